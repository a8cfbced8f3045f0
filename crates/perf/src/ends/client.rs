//! The client's end: tells the plan, runs its threads, puts the outcomes together.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use super::connection::{Connection, Datagrams, Net};
use super::control::{Answer, Order, hear, say};
use super::outcome::{Part, Window, outcome};
use super::server::Server;
use super::tally::{self, Count};
use super::{Flow, Outcome, Plan, Protocol, Said, Work};
use super::{datagrams, exchange, hold, messages, stream, transact};

/// What one thread works on.
#[derive(Clone, Copy)]
pub(super) struct Thread<'a> {
    pub(super) plan: &'a Plan,
    pub(super) window: Window,
    pub(super) count: &'a Count,
}

/// Asks the server at `address` to take part in a plan, and carries it out. What happens meanwhile, `tell` hears.
pub fn run(
    own: &Server,
    address: SocketAddr,
    plan: &Plan,
    tell: &(dyn Fn(Said) + Sync),
) -> io::Result<Outcome> {
    let net = &own.net;
    plan.check().map_err(io::Error::other)?;
    if *net != Net::Kernel && plan.congestion_control.is_some() {
        return Err(io::Error::other(
            "congestion control by socket is the kernel's; the stack's own is set where it is started",
        ));
    }
    let control = net.connect(address)?;
    control.set_nodelay()?;
    say(&control, &Order::Plan(Box::new(plan.clone())))?;
    let port = match hear(&control)?.ok_or(io::ErrorKind::UnexpectedEof)? {
        Answer::Ready(port) => port,
        other => return Err(refusal(other)),
    };
    let data = SocketAddr::new(address.ip(), port);
    let before = Mutex::new(own.reading()?);
    let account_and_tell = |said: Said| {
        if matches!(said, Said::Counting) {
            // A reading or a line that fails once fails again where it is asked for.
            if let (Ok(mut before), Ok(now)) = (before.lock(), own.reading()) {
                *before = now;
            }
            let _ = say(&control, &Order::Counting);
        }
        tell(said);
    };
    // What went wrong at the server comes first: that it closed the connections does not tell why.
    let carried_out = carry_out(net, data, plan, &control, &account_and_tell);
    let served = match carried_out {
        Ok(_) => hear(&control),
        Err(_) => say(&control, &Order::End).and_then(|()| hear(&control)),
    };
    let mut outcome = match (carried_out, served) {
        (_, Ok(Some(Answer::Refused(reason)))) => return Err(refusal(Answer::Refused(reason))),
        (Err(error), _) | (Ok(_), Err(error)) => return Err(error),
        (Ok(mine), Ok(Some(Answer::Outcome(server)))) => Outcome { server: Some(server), ..mine },
        (Ok(_), Ok(_)) => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    let before = before.into_inner().unwrap_or_else(PoisonError::into_inner);
    own.account(before.as_ref(), &mut outcome)?;
    join(plan, &mut outcome);
    Ok(outcome)
}

/// One line of JSON, at once.
pub fn print(said: &Said) {
    let line = serde_json::to_string(said).unwrap_or_default();
    let mut out = io::stdout().lock();
    // Whoever does not listen does not want to know.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// What only both ends together know.
fn join(plan: &Plan, outcome: &mut Outcome) {
    let Some(server) = &outcome.server else { return };
    let is_right = |end: &Outcome| end.received_bytes == 0 || end.verified;
    let received = outcome.received_bytes + server.received_bytes > 0;
    outcome.verified = if plan.work == Work::Hold {
        outcome.verified && server.verified
    } else {
        received && is_right(outcome) && is_right(server)
    };
    outcome.longest_stall_seconds = outcome.longest_stall_seconds.max(server.longest_stall_seconds);
    if plan.work == Work::Messages {
        // What counts is what arrived.
        let lost = outcome.operations.saturating_sub(server.operations);
        if plan.protocol == Protocol::Udp {
            outcome.details.insert("lost_datagrams".to_owned(), lost as f64);
        }
        outcome.operations -= lost;
        outcome.bytes -= lost * plan.request_bytes;
    }
}

fn refusal(answer: Answer) -> io::Error {
    match answer {
        Answer::Refused(reason) => io::Error::other(format!("the server: {reason}")),
        Answer::Ready(_) | Answer::Outcome(_) => io::Error::other("the server answers something else"),
    }
}

/// What all threads of a load have in common.
struct Job<'a> {
    net: &'a Net,
    data: SocketAddr,
    plan: &'a Plan,
    window: Window,
    control: &'a Connection,
    tell: &'a (dyn Fn(Said) + Sync),
}

/// Opens the connections, lets a thread work on each, and tells the server when they are done.
fn carry_out(
    net: &Net,
    data: SocketAddr,
    plan: &Plan,
    control: &Connection,
    tell: &(dyn Fn(Said) + Sync),
) -> io::Result<Outcome> {
    let ends = Ends::open(net, data, plan)?;
    let threads = if plan.work == Work::Hold { 1 } else { plan.connections as usize };
    let directions = if plan.work == Work::Stream && plan.flow == Flow::Both { 2 } else { 1 };
    let counts: Vec<Count> = (0..threads * directions).map(|_| Count::default()).collect();
    let job = Job { net, data, plan, window: Window::begin(plan), control, tell };
    let (over, is_over) = mpsc::channel();
    let parts = std::thread::scope(|scope| -> io::Result<Vec<Part>> {
        let (job, ends, counts) = (&job, &ends, &counts);
        scope.spawn(move || tally::watch(plan, job.window, counts, &is_over, tell));
        let workers = counts.chunks(directions).enumerate().map(|(number, mine)| {
            let run = move || job.work(ends, number, mine);
            std::thread::Builder::new().name("asks".to_owned()).spawn_scoped(scope, run)
        });
        let workers = workers.collect::<io::Result<Vec<_>>>()?;
        let parts = workers.into_iter().map(|worker| match worker.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let parts = parts.collect();
        drop(over);
        parts
    })?;
    drop(ends);
    if plan.work != Work::Hold {
        say(control, &Order::End)?;
    }
    outcome(parts, job.window.counts_from)
}

/// What the threads begin with.
enum Ends {
    /// Each opens its own.
    None,
    Streams(Vec<Connection>),
    Datagrams(Vec<Datagrams>),
}

impl Ends {
    fn open(net: &Net, data: SocketAddr, plan: &Plan) -> io::Result<Self> {
        let count = 0..plan.connections;
        match (plan.work, plan.protocol) {
            (Work::Transact | Work::Hold, _) => Ok(Self::None),
            (_, Protocol::Tcp) => {
                let connect = |_| {
                    let connection = net.connect_as(data, plan)?;
                    connection.set_nodelay()?;
                    Ok(connection)
                };
                count.map(connect).collect::<io::Result<_>>().map(Self::Streams)
            }
            (_, Protocol::Udp) => {
                let open = |_| {
                    let socket = net.datagrams(Net::any_address(data))?;
                    socket.tune(plan)?;
                    socket.connect(data)?;
                    Ok(socket)
                };
                count.map(open).collect::<io::Result<_>>().map(Self::Datagrams)
            }
        }
    }
}

impl Job<'_> {
    /// Thread `number`.
    fn work(&self, ends: &Ends, number: usize, counts: &[Count]) -> io::Result<Part> {
        let thread = Thread { plan: self.plan, window: self.window, count: &counts[0] };
        match (ends, self.plan.work) {
            (Ends::None, Work::Hold) => hold::run(self.net, self.data, &thread, self.control, self.tell),
            (Ends::None, _) => transact::run(self.net, self.data, &thread),
            (Ends::Streams(connections), Work::Stream) => stream::run(&connections[number], &thread, counts),
            (Ends::Streams(connections), Work::Messages) => messages::send(&connections[number], &thread),
            (Ends::Streams(connections), _) => exchange::run(&connections[number], &thread),
            (Ends::Datagrams(sockets), Work::Messages) => messages::send_datagrams(&sockets[number], &thread),
            (Ends::Datagrams(sockets), _) => datagrams::run(&sockets[number], &thread),
        }
    }
}

impl Thread<'_> {
    /// An operation that began at `began` is done.
    pub(super) fn done(&self, part: &mut Part, began: Instant, now: Instant, bytes: u64, received: u64) {
        self.count.add(1, bytes);
        if now >= self.window.counts_from {
            part.count(bytes, received);
            part.record(now.saturating_duration_since(began));
            part.ended = now;
        }
    }

    /// Whether there is no operation number `begun` (from 0) any more. There is always the first, however late: a load that
    /// the machine let begin only after its end would otherwise have nothing to tell.
    pub(super) fn is_over(&self, begun: u64, now: Instant) -> bool {
        self.plan.count.is_some_and(|count| begun >= count) || (begun > 0 && self.window.is_over(now))
    }

    /// The rate of this thread alone.
    pub(super) fn rate(&self) -> Option<f64> {
        self.plan.rate_per_second.map(|rate| rate / self.plan.connections as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::super::answer;
    use super::*;

    /// What the client's end has done on a connection when its time is over before it begins.
    fn too_late(plan: &Plan) -> Part {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let began = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        let window = Window { began, counts_from: began, until: Some(began + Duration::from_secs(1)) };
        let counts = [Count::default()];
        let thread = Thread { plan, window, count: &counts[0] };
        std::thread::scope(|scope| {
            scope.spawn(|| answer::connection(plan, &Connection::Kernel(server)).unwrap());
            let client = Connection::Kernel(client);
            match plan.work {
                Work::Stream => stream::run(&client, &thread, &counts).unwrap(),
                _ => exchange::run(&client, &thread).unwrap(),
            }
        })
    }

    #[test]
    fn a_load_that_begins_after_its_end_has_something_to_tell() {
        let plan = |work| Plan { duration_seconds: Some(1.0), flow: Flow::Upload, ..Plan::new(work) };
        let exchanged = too_late(&plan(Work::Exchange));
        assert!(exchanged.operations == 1 && exchanged.verified);
        let streamed = too_late(&plan(Work::Stream));
        assert!(streamed.bytes > 0 && streamed.bytes <= plan(Work::Stream).chunk_bytes, "{}", streamed.bytes);
    }
}
