//! The server's end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::connection::{Connection, Net};
use super::{Operation, Outcome, Request};
use crate::pattern;

/// A message to be echoed is at most this long.
const MAX_MESSAGE: u64 = 1 << 20;

/// Serves connections, each on a thread of its own, until the process is killed.
pub fn serve(net: &Net, address: SocketAddr) -> io::Result<()> {
    let listener = net.listen(address)?;
    let mut held = Vec::new();
    loop {
        let mut connection = listener.accept()?;
        let mut request = [0; Request::LENGTH];
        // One that says nothing only wanted to know whether somebody listens.
        let Ok(request) = connection.read_exact(&mut request).and_then(|()| Request::decode(request)) else {
            continue;
        };
        if request.operation == Operation::Hold {
            held.push(connection);
            continue;
        }
        held.clear();
        std::thread::Builder::new().name("connection".to_owned()).spawn(move || {
            match carry_out(&mut connection, request) {
                Ok(outcome) => print(&outcome),
                Err(error) => eprintln!("{request:?}: {error}"),
            }
        })?;
    }
}

/// One line of JSON, at once.
pub(super) fn print(outcome: &Outcome) {
    let line = serde_json::to_string(outcome).unwrap_or_default();
    let mut out = io::stdout().lock();
    // Whoever does not listen does not want to know.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn carry_out(connection: &mut Connection, request: Request) -> io::Result<Outcome> {
    let began = Instant::now();
    let mut outcome = match request.operation {
        Operation::Get => send(connection, request)?,
        Operation::Put => {
            let outcome = receive(connection, request)?;
            connection.write_all(&[u8::from(outcome.verified)])?;
            outcome
        }
        Operation::Echo => echo(connection, request)?,
        Operation::Hold => Outcome::default(),
    };
    outcome.elapsed_seconds = began.elapsed().as_secs_f64();
    // The client closes first, when it has everything: so the closing is no part of the transfer.
    while connection.read(&mut [0; 16])? > 0 {}
    Ok(outcome)
}

/// Sends what the request asks for.
pub(super) fn send(connection: &mut Connection, request: Request) -> io::Result<Outcome> {
    let mut work = Sampler::default();
    let mut offset = 0;
    connection.send(request.bytes, |space| {
        if request.check {
            work.time(space.len(), || pattern::fill(space, offset));
            offset += space.len() as u64;
        }
    })?;
    Ok(Outcome {
        operations: 1,
        bytes: request.bytes,
        own_work_seconds: work.seconds(),
        ..Outcome::default()
    })
}

/// Receives what the request announces.
pub(super) fn receive(connection: &mut Connection, request: Request) -> io::Result<Outcome> {
    let mut work = Sampler::default();
    let mut right = true;
    let mut offset = 0;
    let mut last = Instant::now();
    let mut stall = Duration::ZERO;
    connection.receive(request.bytes, |bytes| {
        let now = Instant::now();
        stall = stall.max(now - last);
        if request.check {
            right &= work.time(bytes.len(), || pattern::check(bytes, offset));
            offset += bytes.len() as u64;
        }
        last = if request.check { Instant::now() } else { now };
    })?;
    if !right {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the bytes are not those that were sent"));
    }
    Ok(Outcome {
        operations: 1,
        bytes: request.bytes,
        own_work_seconds: work.seconds(),
        verified: request.check,
        longest_stall_seconds: stall.as_secs_f64(),
        ..Outcome::default()
    })
}

/// Answers messages until the client has no more.
fn echo(connection: &mut Connection, request: Request) -> io::Result<Outcome> {
    connection.set_nodelay()?;
    let mut message = vec![0; request.bytes.clamp(1, MAX_MESSAGE) as usize];
    let mut count = 0;
    loop {
        let first = connection.read(&mut message)?;
        if first == 0 {
            break;
        }
        connection.read_exact(&mut message[first..])?;
        connection.write_all(&message)?;
        count += 1;
    }
    Ok(Outcome { operations: count, bytes: count * 2 * message.len() as u64, ..Outcome::default() })
}

/// The processor time spent in some calls, estimated from a sample of them: reading a thread's processor clock is a system
/// call, and one in [`Sampler::EVERY`] calls is enough.
#[derive(Default)]
pub(super) struct Sampler {
    calls: u64,
    bytes: u64,
    sampled_bytes: u64,
    sampled_nanoseconds: u64,
}

impl Sampler {
    const EVERY: u64 = 8;

    /// Makes a call that works on so many bytes.
    pub(super) fn time<T>(&mut self, bytes: usize, work: impl FnOnce() -> T) -> T {
        self.calls += 1;
        self.bytes += bytes as u64;
        if !self.calls.is_multiple_of(Self::EVERY) {
            return work();
        }
        let began = thread_nanoseconds();
        let result = work();
        self.sampled_nanoseconds += thread_nanoseconds() - began;
        self.sampled_bytes += bytes as u64;
        result
    }

    /// The estimate for all calls.
    pub(super) fn seconds(&self) -> f64 {
        let share = if self.sampled_bytes > 0 { self.bytes as f64 / self.sampled_bytes as f64 } else { 0.0 };
        self.sampled_nanoseconds as f64 / 1e9 * share
    }
}

/// What this thread has used of its processor.
fn thread_nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
