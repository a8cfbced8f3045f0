//! Waiting for several sockets at once.

use std::io;
use std::time::{Duration, Instant};

use crate::raw::{Interest, Readiness, Socket, Waiter, spin};

/// A socket to watch, what for, and what came of it.
pub struct PollEntry<'a> {
    /// The socket.
    pub socket: &'a Socket,
    /// What to wait for.
    pub interest: Interest,
    /// Filled in by [`poll`].
    pub ready: Readiness,
}

impl<'a> PollEntry<'a> {
    /// An entry that waits for `interest` on `socket` (a stream's `raw()`, for example).
    pub fn new(socket: &'a Socket, interest: Interest) -> Self {
        Self { socket, interest, ready: Readiness::default() }
    }
}

/// Waits until at least one entry is ready for what it asks, or `timeout` is over; how many are. All sockets must be
/// of one endpoint.
///
/// ```no_run
/// use outboard::raw::Interest;
/// use outboard::{PollEntry, TcpStream, poll};
///
/// fn first_readable(streams: &[TcpStream]) -> std::io::Result<Option<usize>> {
///     let mut entries: Vec<PollEntry> =
///         streams.iter().map(|stream| PollEntry::new(stream.raw(), Interest::READABLE)).collect();
///     poll(&mut entries, None)?;
///     Ok(entries.iter().position(|entry| entry.ready.satisfies(entry.interest)))
/// }
/// ```
///
/// # Errors
/// `ErrorKind::InvalidInput` for no entries without a timeout, or sockets of different endpoints; `Interrupted` when
/// a signal was handled.
pub fn poll(entries: &mut [PollEntry<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let Some(first) = entries.first() else {
        return match timeout {
            Some(timeout) => {
                std::thread::sleep(timeout);
                Ok(0)
            }
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "nothing to wait for")),
        };
    };
    let endpoint = first.socket.endpoint().clone();
    if entries.iter().any(|entry| !entry.socket.endpoint().is_same(&endpoint)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "sockets of different endpoints"));
    }
    if let ready @ 1.. = look(entries) {
        return Ok(ready);
    }
    let blocked = entries.iter().any(|entry| entry.socket.is_blocked(entry.interest));
    if timeout == Some(Duration::ZERO) || (!blocked && spin(|| look(entries) > 0)) {
        return Ok(look(entries));
    }
    let waiter = Waiter::new(&endpoint)?;
    for entry in entries.iter() {
        waiter.watch(entry.socket, entry.interest);
    }
    let outcome = sleep(&waiter, entries, deadline);
    for entry in entries.iter() {
        waiter.unwatch(entry.socket);
    }
    outcome
}

fn sleep(waiter: &Waiter, entries: &mut [PollEntry<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    loop {
        waiter.arm();
        let ready = look(entries);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if ready > 0 || left == Some(Duration::ZERO) {
            waiter.disarm();
            return Ok(ready);
        }
        waiter.sleep_and_tend(left)?;
    }
}

fn look(entries: &mut [PollEntry<'_>]) -> usize {
    let mut ready = 0;
    for entry in entries {
        entry.ready = entry.socket.poll_ready(entry.interest);
        ready += usize::from(entry.ready.satisfies(entry.interest));
    }
    ready
}
