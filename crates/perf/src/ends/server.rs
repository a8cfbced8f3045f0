//! The server's end: control connections, and the threads that answer on the data's port.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Instant;

use super::connection::{Connection, Listener, Net};
use super::control::{Answer, Order, hear, say};
use super::outcome::{Part, outcome};
use super::{Outcome, Plan, Protocol, Work, answer, datagrams, hold};
use crate::machine;
use crate::meter::Reading;

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

/// An end of a load: its sockets, and whose processor time is its.
#[derive(Clone)]
pub struct Server {
    /// Its sockets.
    pub net: Net,
    /// Whether it tells what it has spent; not where whoever started it reads the clocks.
    pub accounts: bool,
    /// The control socket of the FEP whose processor time it tells.
    pub fep_socket: Option<PathBuf>,
}

/// Serves clients until the process is killed. `ready` is told the address once it listens there.
pub fn serve(server: &Server, address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = server.net.listen(address)?;
    ready(listener.local_addr()?);
    let sessions = Arc::new(AtomicUsize::new(0));
    loop {
        let control = listener.accept()?;
        let (server, sessions) = (server.clone(), Arc::clone(&sessions));
        std::thread::Builder::new().name("session".to_owned()).spawn(move || {
            let busy = sessions.fetch_add(1, Ordering::Relaxed) >= MAX_SESSIONS;
            let result = if busy {
                say(&control, &Answer::Refused(format!("{MAX_SESSIONS} clients are being served")))
            } else {
                serve_one(&server, address.ip(), &control)
            };
            sessions.fetch_sub(1, Ordering::Relaxed);
            if let Err(error) = result {
                eprintln!("outboard: a client's session: {error}");
            }
        })?;
    }
}

/// One client, from its plan to its outcome.
fn serve_one(server: &Server, address: IpAddr, control: &Connection) -> io::Result<()> {
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
            Protocol::Tcp => serve_streams(server, address, control, &plan),
            Protocol::Udp => serve_datagrams(server, address, control, &plan),
        }
    });
    match result {
        Ok(outcome) => say(control, &Answer::Outcome(Box::new(outcome))),
        // A client that has gone does not hear it.
        Err(error) => say(control, &Answer::Refused(error.to_string())).and(Err(error)),
    }
}

fn serve_streams(server: &Server, address: IpAddr, control: &Connection, plan: &Plan) -> io::Result<Outcome> {
    let net = &server.net;
    let listener = net.listen(SocketAddr::new(address, 0))?;
    listener.tune(plan)?;
    let local = listener.local_addr()?;
    let session = Session::new(plan);
    let mut before = server.reading()?;
    let began = Instant::now();
    std::thread::scope(|scope| -> io::Result<()> {
        let threads = if plan.work == Work::Hold { 1 } else { plan.connections };
        for _ in 0..threads {
            spawn(scope, &session, || answer_streams(&session, &listener))?;
        }
        say(control, &Answer::Ready(local.port()))?;
        let ended = server.wait_for_end(control, &mut before);
        session.is_over.store(true, Ordering::SeqCst);
        // Whoever waits for a connection gets one that says nothing.
        let waiting = if plan.work == Work::Hold { 1 } else { session.waiting.load(Ordering::SeqCst) };
        for _ in 0..waiting {
            net.connect(net.reachable(local))?;
        }
        ended
    })?;
    session.into_outcome(server, began, before)
}

fn serve_datagrams(
    server: &Server,
    address: IpAddr,
    control: &Connection,
    plan: &Plan,
) -> io::Result<Outcome> {
    let socket = server.net.datagrams(SocketAddr::new(address, 0))?;
    socket.tune(plan)?;
    let port = socket.local_addr()?.port();
    let session = Session::new(plan);
    let mut before = server.reading()?;
    let began = Instant::now();
    std::thread::scope(|scope| -> io::Result<()> {
        spawn(scope, &session, || datagrams::serve(&session, &socket))?;
        say(control, &Answer::Ready(port))?;
        let ended = server.wait_for_end(control, &mut before);
        session.is_over.store(true, Ordering::SeqCst);
        ended
    })?;
    session.into_outcome(server, began, before)
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

    fn into_outcome(self, server: &Server, began: Instant, before: Option<Reading>) -> io::Result<Outcome> {
        if let Some(error) = self.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let parts = self.parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = outcome(parts, began)?;
        server.account(before.as_ref(), &mut outcome)?;
        Ok(outcome)
    }
}

impl Server {
    /// Reads the clocks, if it accounts.
    pub(super) fn reading(&self) -> io::Result<Option<Reading>> {
        let read = || Reading::take_own(self.fep_socket.as_deref());
        self.accounts.then(read).transpose().map_err(|error| io::Error::other(format!("{error:#}")))
    }

    /// Until the client says that it has ended, or is gone. When it says that from now on everything counts, `before` is
    /// taken anew.
    fn wait_for_end(&self, control: &Connection, before: &mut Option<Reading>) -> io::Result<()> {
        while let Some(Order::Counting) = hear(control)? {
            *before = self.reading()?;
        }
        Ok(())
    }

    /// Completes an outcome with what was spent, and where.
    pub(super) fn account(&self, before: Option<&Reading>, outcome: &mut Outcome) -> io::Result<()> {
        if let (Some(after), Some(before)) = (self.reading()?, before) {
            (outcome.cpu_seconds, outcome.counters) = after.since(before);
            outcome.cpu_seconds.application_own_work = outcome.own_work_seconds;
            outcome.machine = Some(machine::machine());
        }
        outcome.sockets = self.net.name().to_owned();
        Ok(())
    }
}
