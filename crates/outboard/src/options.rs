//! What the blocking sockets keep beside the raw one: whether they block, and for how long.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::raw::{Interest, Socket};

/// Blocking or not, and the timeouts in nanoseconds (0: none).
#[derive(Default)]
pub(crate) struct Blocking {
    nonblocking: AtomicBool,
    read_timeout_ns: AtomicU64,
    write_timeout_ns: AtomicU64,
}

impl Blocking {
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout_ns.store(to_nanos(timeout)?, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout_ns.store(to_nanos(timeout)?, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn read_timeout(&self) -> Option<Duration> {
        from_nanos(self.read_timeout_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn write_timeout(&self) -> Option<Duration> {
        from_nanos(self.write_timeout_ns.load(Ordering::Relaxed))
    }

    /// Waits until `socket` has what `interest` asks for; `WouldBlock` if it may not wait or the time is over.
    pub(crate) fn wait(&self, socket: &Socket, interest: Interest) -> io::Result<()> {
        if self.nonblocking.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let timeout = if interest.readable { self.read_timeout() } else { self.write_timeout() };
        let ready = socket.wait(interest, timeout.map(|timeout| Instant::now() + timeout))?;
        if ready.satisfies(interest) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

fn to_nanos(timeout: Option<Duration>) -> io::Result<u64> {
    match timeout {
        None => Ok(0),
        Some(timeout) if timeout.is_zero() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a timeout of zero"))
        }
        Some(timeout) => Ok(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
    }
}

fn from_nanos(nanos: u64) -> Option<Duration> {
    (nanos != 0).then(|| Duration::from_nanos(nanos))
}

/// Tries each address in turn; the first success counts, else the last error.
pub(crate) fn each_address<T>(
    addresses: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match attempt(address) {
            Ok(value) => return Ok(value),
            Err(error) => last = Some(error),
        }
    }
    Err(last
        .unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses")))
}
