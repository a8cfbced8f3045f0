//! The server's end: control connections, and the threads that answer on the data's port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Instant;

use super::connection::{Connection, Listener, Net};
use super::control::{Answer, Order, hear, say};
use super::outcome::{Part, outcome};
use super::{Outcome, Plan, ProcessCpu, Protocol, Work, answer, datagrams, hold};

/// Clients at a time.
const MAX_SESSIONS: usize = 64;

/// What a session has for its threads.
pub(super) struct Session<'a> {
    pub(super) plan: &'a Plan,
    /// The client has ended, or gone.
    pub(super) is_over: AtomicBool,
    /// Threads that may be waiting for a connection.
    waiting: AtomicUsize,
    parts: Mutex<Vec<Part>>,
    failure: Mutex<Option<io::Error>>,
}

/// Serves clients until the process is killed. `ready` is told the address once it listens there.
pub fn serve(net: &Net, address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = net.listen(address)?;
    ready(listener.local_addr()?);
    let sessions = Arc::new(AtomicUsize::new(0));
    loop {
        let control = listener.accept()?;
        let (net, sessions) = (net.clone(), Arc::clone(&sessions));
        std::thread::Builder::new().name("session".to_owned()).spawn(move || {
            let busy = sessions.fetch_add(1, Ordering::Relaxed) >= MAX_SESSIONS;
            let result = if busy {
                say(&control, &Answer::Refused(format!("{MAX_SESSIONS} clients are being served")))
            } else {
                serve_one(&net, address.ip(), &control)
            };
            sessions.fetch_sub(1, Ordering::Relaxed);
            if let Err(error) = result {
                eprintln!("outboard: a client's session: {error}");
            }
        })?;
    }
}

/// One client, from its plan to its outcome.
fn serve_one(net: &Net, address: IpAddr, control: &Connection) -> io::Result<()> {
    // One that says nothing only wanted to know whether somebody listens.
    let plan = match hear::<Order>(control) {
        Ok(Some(Order::Plan(plan))) => plan,
        Ok(_) => return Ok(()),
        Err(error) => {
            return say(control, &Answer::Refused(format!("the plan is not understood: {error}")));
        }
    };
    let result = plan.check().map_err(io::Error::other).and_then(|()| {
        control.set_nodelay()?;
        match plan.protocol {
            Protocol::Tcp => serve_streams(net, address, control, &plan),
            Protocol::Udp => serve_datagrams(net, address, control, &plan),
        }
    });
    match result {
        Ok(outcome) => say(control, &Answer::Outcome(Box::new(outcome))),
        // A client that has gone does not hear it.
        Err(error) => say(control, &Answer::Refused(error.to_string())).and(Err(error)),
    }
}

fn serve_streams(net: &Net, address: IpAddr, control: &Connection, plan: &Plan) -> io::Result<Outcome> {
    let listener = net.listen(SocketAddr::new(address, 0))?;
    listener.tune(plan)?;
    let local = listener.local_addr()?;
    let session = Session::new(plan);
    let before = own_cpu()?;
    let began = Instant::now();
    std::thread::scope(|scope| -> io::Result<()> {
        let threads = if plan.work == Work::Hold { 1 } else { plan.connections };
        for _ in 0..threads {
            spawn(scope, &session, || answer_streams(&session, &listener))?;
        }
        say(control, &Answer::Ready(local.port()))?;
        let ended = hear::<Order>(control);
        session.is_over.store(true, Ordering::SeqCst);
        // Whoever waits for a connection gets one that says nothing.
        let waiting = if plan.work == Work::Hold { 1 } else { session.waiting.load(Ordering::SeqCst) };
        for _ in 0..waiting {
            net.connect(reachable(local))?;
        }
        ended.map(drop)
    })?;
    session.into_outcome(began, before)
}

fn serve_datagrams(net: &Net, address: IpAddr, control: &Connection, plan: &Plan) -> io::Result<Outcome> {
    let socket = net.datagrams(SocketAddr::new(address, 0))?;
    socket.tune(plan)?;
    let port = socket.local_addr()?.port();
    let session = Session::new(plan);
    let before = own_cpu()?;
    let began = Instant::now();
    std::thread::scope(|scope| -> io::Result<()> {
        spawn(scope, &session, || datagrams::serve(&session, &socket))?;
        say(control, &Answer::Ready(port))?;
        let ended = hear::<Order>(control);
        session.is_over.store(true, Ordering::SeqCst);
        ended.map(drop)
    })?;
    session.into_outcome(began, before)
}

/// A thread of a session. What it could not do, the client is told.
fn spawn<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    session: &'scope Session<'_>,
    work: impl FnOnce() -> io::Result<Part> + Send + 'scope,
) -> io::Result<()> {
    let run = move || match work() {
        Ok(part) => session.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part),
        Err(error) => {
            session.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    };
    std::thread::Builder::new().name("answers".to_owned()).spawn_scoped(scope, run).map(drop)
}

/// One thread's connections.
fn answer_streams(session: &Session<'_>, listener: &Listener) -> io::Result<Part> {
    match session.plan.work {
        Work::Hold => hold::serve(session, listener),
        Work::Transact => {
            let mut transactions = answer::Transactions::new(session.plan);
            while let Some(connection) = session.accept(listener)? {
                transactions.answer(&connection)?;
            }
            transactions.finish()
        }
        Work::Exchange | Work::Stream | Work::Messages => match session.accept(listener)? {
            Some(connection) => answer::connection(session.plan, &connection),
            None => Ok(Part::default()),
        },
    }
}

impl<'a> Session<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            is_over: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            parts: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// The next connection; none when the session is over.
    pub(super) fn accept(&self, listener: &Listener) -> io::Result<Option<Connection>> {
        // Either this thread sees the end, or whoever ends sees this thread (`serve_streams`).
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.is_over.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let connection = listener.accept()?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Ok((!self.is_over.load(Ordering::SeqCst)).then_some(connection))
    }

    fn into_outcome(self, began: Instant, before: ProcessCpu) -> io::Result<Outcome> {
        if let Some(error) = self.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let parts = self.parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let now = own_cpu()?;
        let cpu = ProcessCpu { user: now.user - before.user, system: now.system - before.system };
        Ok(Outcome { cpu, ..outcome(parts, began)? })
    }
}

/// What this process has spent so far.
pub(super) fn own_cpu() -> io::Result<ProcessCpu> {
    let time = lab::cpu::process(std::process::id()).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(ProcessCpu { user: time.user.as_secs_f64(), system: time.system.as_secs_f64() })
}

/// Where a listener's own host reaches it.
fn reachable(local: SocketAddr) -> SocketAddr {
    let ip = match local.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    SocketAddr::new(ip, local.port())
}
