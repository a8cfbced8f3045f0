//! Open descriptions: what is kept for a socket beside the kernel's own.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use outboard::raw;

use crate::epoll::{Epoll, Watchers};
use crate::file::SentFile;
use crate::sockaddr::Family;

/// What a descriptor of ours stands for.
#[allow(clippy::large_enum_variant, reason = "descriptions live in slots of a pool; most are sockets")]
pub(crate) enum Description {
    /// An Internet socket.
    Socket(InetSocket),
    /// An epoll instance.
    Epoll(Epoll),
    /// A file that is lent to the FEP; every call on it is the kernel's.
    File(SentFile),
}

impl Description {
    /// The socket, if it is one.
    #[inline]
    pub(crate) fn socket(&self) -> Option<&InetSocket> {
        match self {
            Self::Socket(socket) => Some(socket),
            Self::Epoll(_) | Self::File(_) => None,
        }
    }

    /// The epoll instance, if it is one.
    #[inline]
    pub(crate) fn epoll(&self) -> Option<&Epoll> {
        match self {
            Self::Epoll(epoll) => Some(epoll),
            Self::Socket(_) | Self::File(_) => None,
        }
    }

    /// The lent file, if it is one.
    #[inline]
    pub(crate) fn file(&self) -> Option<&SentFile> {
        match self {
            Self::File(file) => Some(file),
            Self::Socket(_) | Self::Epoll(_) => None,
        }
    }
}

/// Stream or datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `SOCK_STREAM`
    Stream,
    /// `SOCK_DGRAM`
    Datagram,
}

/// Who carries a socket's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The kernel, so far or for good.
    Kernel,
    /// The stack.
    Outboard,
    /// Both: a wildcard listener, or a datagram socket that talks to both sides.
    Both,
}

/// An Internet socket of the program. It always has a kernel socket of its own (the descriptor); the stack's is
/// opened when it binds or connects to an address of the stack's.
pub(crate) struct InetSocket {
    /// The family it was made for.
    pub(crate) family: Family,
    /// Stream or datagram.
    pub(crate) kind: Kind,
    phase: AtomicU8,
    outboard: OnceLock<raw::Socket>,
    nonblocking: AtomicBool,
    receive_timeout_ns: AtomicU64,
    send_timeout_ns: AtomicU64,
    /// `TCP_INQ`: every `recvmsg` tells what is left to read.
    tells_left: AtomicBool,
    change: Mutex<()>,
    /// Whether the program has ever set an option.
    tuned: AtomicBool,
    /// Options that the kernel's socket cannot be asked for later, as they were set: level, name, value.
    early: Mutex<Vec<(c_int, c_int, Vec<u8>)>>,
    /// The epoll instances that watch it.
    pub(crate) watchers: Arc<Watchers>,
}

impl InetSocket {
    /// A socket that was just made.
    pub(crate) fn new(family: Family, kind: Kind, nonblocking: bool) -> Self {
        Self {
            family,
            kind,
            phase: AtomicU8::new(Phase::Kernel as u8),
            outboard: OnceLock::new(),
            nonblocking: AtomicBool::new(nonblocking),
            receive_timeout_ns: AtomicU64::new(0),
            send_timeout_ns: AtomicU64::new(0),
            tells_left: AtomicBool::new(false),
            change: Mutex::new(()),
            tuned: AtomicBool::new(false),
            early: Mutex::default(),
            watchers: Arc::default(),
        }
    }

    /// A connection that a listener of the stack accepted.
    pub(crate) fn accepted(family: Family, socket: raw::Socket, nonblocking: bool) -> Self {
        let new = Self::new(family, Kind::Stream, nonblocking);
        new.adopt(socket, Phase::Outboard);
        new
    }

    /// Whether `TCP_INQ` is set.
    pub(crate) fn tells_left(&self) -> bool {
        self.tells_left.load(Ordering::Relaxed)
    }

    /// Sets `TCP_INQ`.
    pub(crate) fn set_tells_left(&self, on: bool) {
        self.tells_left.store(on, Ordering::Relaxed);
    }

    /// Who carries the traffic.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            1 => Phase::Outboard,
            2 => Phase::Both,
            _ => Phase::Kernel,
        }
    }

    /// Changes who carries the traffic. An outboard phase needs the stack's socket first.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The stack's socket, if traffic goes there.
    #[inline]
    pub(crate) fn outboard(&self) -> Option<&raw::Socket> {
        if self.phase() == Phase::Kernel { None } else { self.outboard.get() }
    }

    /// The stack's socket although traffic may not go there (yet, or any more).
    pub(crate) fn existing(&self) -> Option<&raw::Socket> {
        self.outboard.get()
    }

    /// Keeps the stack's socket.
    pub(crate) fn adopt(&self, socket: raw::Socket, phase: Phase) -> &raw::Socket {
        let socket = self.outboard.get_or_init(|| socket);
        self.set_phase(phase);
        socket
    }

    /// Held by whoever changes the phase or makes the stack's socket.
    pub(crate) fn lock_change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the program has set options of it.
    pub(crate) fn is_tuned(&self) -> bool {
        self.tuned.load(Ordering::Relaxed)
    }

    /// It has.
    pub(crate) fn note_tuned(&self) {
        self.tuned.store(true, Ordering::Relaxed);
    }

    /// Keeps an option for the stack's socket, which does not exist yet.
    pub(crate) fn remember(&self, level: c_int, name: c_int, bytes: &[u8]) {
        self.forget(level, name);
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.push((level, name, bytes.to_vec()));
    }

    /// An option that was kept does not count any more.
    pub(crate) fn forget(&self, level: c_int, name: c_int) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.retain(|(other_level, other, _)| (*other_level, *other) != (level, name));
    }

    /// The value of an option that was kept.
    pub(crate) fn remembered(&self, level: c_int, name: c_int) -> Option<Vec<u8>> {
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.iter().find(|(l, n, _)| (*l, *n) == (level, name)).map(|(_, _, bytes)| bytes.clone())
    }

    /// All options that were kept, in the order in which they were set.
    pub(crate) fn all_remembered(&self) -> Vec<(c_int, c_int, Vec<u8>)> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether calls return instead of waiting (`O_NONBLOCK`).
    #[inline]
    pub(crate) fn nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Sets `O_NONBLOCK` as the program sees it.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Until when a receive may wait (`SO_RCVTIMEO`), counted from now.
    pub(crate) fn receive_deadline(&self) -> Option<Instant> {
        deadline(&self.receive_timeout_ns)
    }

    /// Until when a send may wait (`SO_SNDTIMEO`), counted from now.
    pub(crate) fn send_deadline(&self) -> Option<Instant> {
        deadline(&self.send_timeout_ns)
    }

    /// Sets `SO_RCVTIMEO` (0: none).
    pub(crate) fn set_receive_timeout(&self, nanos: u64) {
        self.receive_timeout_ns.store(nanos, Ordering::Relaxed);
    }

    /// Sets `SO_SNDTIMEO` (0: none).
    pub(crate) fn set_send_timeout(&self, nanos: u64) {
        self.send_timeout_ns.store(nanos, Ordering::Relaxed);
    }

    /// Whether a call with these `MSG_` flags may not wait.
    #[inline]
    pub(crate) fn may_not_wait(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT != 0 || self.nonblocking()
    }
}

impl Drop for InetSocket {
    fn drop(&mut self) {
        self.watchers.forget_all();
    }
}

fn deadline(timeout_ns: &AtomicU64) -> Option<Instant> {
    match timeout_ns.load(Ordering::Relaxed) {
        0 => None,
        nanos => Some(Instant::now() + Duration::from_nanos(nanos)),
    }
}
