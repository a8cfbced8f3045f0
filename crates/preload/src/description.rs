//! Open descriptions: what is kept for a socket beside the kernel's own.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use outboard::raw;

use crate::epoll::{Epoll, Watchers};
use crate::file::SentFile;
use crate::fork::{Inherited, Kinship};
use crate::gather::Gathering;
use crate::sockaddr::Family;
use crate::timestamping::Timestamping;

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

#[allow(clippy::vec_box, reason = "they may still be looked at, so they stay where they are")]
type Retired = Vec<Box<raw::Socket>>;

/// How often one socket may be disconnected: each time costs memory until it is closed.
const MOST_RETIRED: usize = 10_000;

/// An Internet socket of the program. It always has a kernel socket of its own (the descriptor); the stack's is
/// opened when it binds or connects to an address of the stack's.
pub(crate) struct InetSocket {
    /// The family it was made for.
    pub(crate) family: Family,
    /// Stream or datagram.
    pub(crate) kind: Kind,
    phase: AtomicU8,
    /// The stack's socket; null: none (any more).
    outboard: AtomicPtr<raw::Socket>,
    /// Those that a disconnect has ended. A call that began before may still look at one, so they live as long as this.
    retired: Mutex<Retired>,
    /// What the program bound it to, if it named a port.
    bound: OnceLock<SocketAddr>,
    nonblocking: AtomicBool,
    receive_timeout_ns: AtomicU64,
    send_timeout_ns: AtomicU64,
    /// `TCP_INQ`: every `recvmsg` tells what is left to read.
    tells_left: AtomicBool,
    /// Whether a send of datagrams may have to be added to others.
    gathers: AtomicBool,
    gathering: Mutex<Gathering>,
    /// `SO_TIMESTAMPING`.
    pub(crate) timestamping: Timestamping,
    /// `SO_ZEROCOPY`: sends with `MSG_ZEROCOPY` are told in the queue of errors.
    tells_copied: AtomicBool,
    /// `UDP_SEGMENT`: the length of the datagrams that a send is cut into; 0: it is one.
    segment: AtomicU16,
    /// `SO_PEEK_OFF`: from where on what is received is peeked at; negative: from the beginning.
    peek_offset: AtomicI32,
    /// Of one that talks by the kernel as well: the kernel's socket, which has an offset of its own, was the last to be asked.
    kernel_peeked: AtomicBool,
    /// What the program wants to hear of a datagram: the bits of [`crate::ancillary`].
    ancillary: AtomicU8,
    change: Mutex<()>,
    /// Whether the program has ever set an option.
    tuned: AtomicBool,
    /// Options that the kernel's socket cannot be asked for later, as they were set: level, name, value.
    early: Mutex<Vec<(c_int, c_int, Vec<u8>)>>,
    /// What it has to do with processes that were forked.
    kinship: Kinship,
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
            outboard: AtomicPtr::new(std::ptr::null_mut()),
            retired: Mutex::default(),
            bound: OnceLock::new(),
            nonblocking: AtomicBool::new(nonblocking),
            receive_timeout_ns: AtomicU64::new(0),
            send_timeout_ns: AtomicU64::new(0),
            tells_left: AtomicBool::new(false),
            gathers: AtomicBool::new(false),
            gathering: Mutex::default(),
            timestamping: Timestamping::default(),
            tells_copied: AtomicBool::new(false),
            segment: AtomicU16::new(0),
            peek_offset: AtomicI32::new(-1),
            kernel_peeked: AtomicBool::new(false),
            ancillary: AtomicU8::new(0),
            change: Mutex::new(()),
            tuned: AtomicBool::new(false),
            early: Mutex::default(),
            kinship: Kinship::default(),
            watchers: Arc::default(),
        }
    }

    /// The same in a child that was just forked.
    pub(crate) fn in_child(&self, inherited: Inherited) -> Self {
        let mut new = Self::new(self.family, self.kind, self.nonblocking());
        new.kinship = Kinship::inherited(inherited);
        new.set_phase(self.phase());
        if let Some(bound) = self.bound() {
            new.note_bound(bound);
        }
        let copy =
            |from: &AtomicU64, to: &AtomicU64| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        copy(&self.receive_timeout_ns, &new.receive_timeout_ns);
        copy(&self.send_timeout_ns, &new.send_timeout_ns);
        new.set_tells_left(self.tells_left());
        new.set_tells_copied(self.tells_copied());
        new.set_peek_offset(self.peek_offset());
        if self.is_tuned() {
            new.note_tuned();
        }
        new
    }

    /// What a child inherits of it, if anything.
    pub(crate) fn legacy(&self) -> Option<Inherited> {
        self.kinship.legacy(self.as_it_is())
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

    /// Whether a datagram is being gathered, or is to be.
    pub(crate) fn gathers(&self) -> bool {
        self.gathers.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(crate) fn set_gathers(&self, on: bool) {
        self.gathers.store(on, Ordering::Relaxed);
    }

    /// The datagram that is being gathered.
    pub(crate) fn gathering(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `SO_ZEROCOPY`.
    pub(crate) fn tells_copied(&self) -> bool {
        self.tells_copied.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(crate) fn set_tells_copied(&self, on: bool) {
        self.tells_copied.store(on, Ordering::Relaxed);
    }

    /// `SO_PEEK_OFF`.
    pub(crate) fn peek_offset(&self) -> i32 {
        self.peek_offset.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(crate) fn set_peek_offset(&self, offset: i32) {
        self.peek_offset.store(offset, Ordering::Relaxed);
    }

    /// Whether the kernel's socket knows the offset that counts.
    pub(crate) fn was_kernel_peeked(&self) -> bool {
        self.kernel_peeked.load(Ordering::Relaxed)
    }

    /// The kernel's socket is asked now.
    pub(crate) fn note_kernel_peeked(&self) {
        self.kernel_peeked.store(true, Ordering::Relaxed);
    }

    /// So many bytes were peeked at, or taken: where the offset is set it goes on, or back (Linux: `sk_peek_offset_bwd`).
    #[inline]
    pub(crate) fn move_peek_offset(&self, peeked: bool, count: usize) {
        if self.peek_offset() < 0 {
            return;
        }
        self.kernel_peeked.store(false, Ordering::Relaxed);
        let moved = |offset: i32| {
            let by = count as i32; // no call gives more than 2 GiB
            let after = if peeked { offset.wrapping_add(by) } else { offset.wrapping_sub(by) };
            (offset >= 0).then_some(after.max(0))
        };
        let _ = self.peek_offset.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved); // switched off meanwhile
    }

    /// `UDP_SEGMENT`.
    pub(crate) fn segment(&self) -> u16 {
        self.segment.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(crate) fn set_segment(&self, bytes: u16) {
        self.segment.store(bytes, Ordering::Relaxed);
    }

    /// What is wanted with a datagram.
    pub(crate) fn ancillary(&self) -> u8 {
        self.ancillary.load(Ordering::Relaxed)
    }

    /// Takes bits away from it, then adds others.
    pub(crate) fn change_ancillary(&self, clears: u8, sets: u8) {
        let changed = |bits: u8| Some(bits & !clears | sets);
        let _ = self.ancillary.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed); // never refused
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
        if self.phase() == Phase::Kernel {
            return None;
        }
        self.existing().filter(|_| self.phase() != Phase::Kernel)
    }

    /// The stack's socket although traffic may not go there (yet, or any more).
    pub(crate) fn existing(&self) -> Option<&raw::Socket> {
        self.claim(false);
        self.as_it_is()
    }

    /// As [`outboard`](Self::outboard), for one who waits for connections: a listener whose connections went to processes that were
    /// forked gives some to this one again.
    pub(crate) fn joined(&self) -> Option<&raw::Socket> {
        if self.phase() == Phase::Kernel {
            return None;
        }
        self.claim(true);
        self.outboard()
    }

    fn claim(&self, joins: bool) {
        match self.kinship.claim(self.as_it_is(), joins) {
            None => {}
            Some(Ok(claimed)) => {
                self.watchers.follow(&claimed);
                self.replace(Box::into_raw(Box::new(claimed)));
            }
            // It is over: the kernel's socket, which was never connected, answers from now on.
            Some(Err(_)) => self.set_phase(Phase::Kernel),
        }
    }

    /// The same; it is left where it is if another process uses it.
    pub(crate) fn as_it_is(&self) -> Option<&raw::Socket> {
        // SAFETY: null, or made by `adopt`, and neither moved nor dropped before this.
        unsafe { self.outboard.load(Ordering::Acquire).as_ref() }
    }

    /// Keeps the stack's socket. To be called with the change locked, or before anybody else knows the socket.
    pub(crate) fn adopt(&self, socket: raw::Socket, phase: Phase) {
        self.replace(Box::into_raw(Box::new(socket)));
        self.set_phase(phase);
    }

    /// Puts another of the stack's sockets, or none, in the place of that which is there, which lives on.
    fn replace(&self, new: *mut raw::Socket) {
        let before = self.outboard.swap(new, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: made by `adopt`; from now on only the list owns it.
            self.retired().push(unsafe { Box::from_raw(before) });
        }
    }

    /// The stack's socket has been ended; the kernel's is as it was made. False: that was done too often.
    pub(crate) fn retire(&self) -> bool {
        if self.retired().len() >= MOST_RETIRED {
            return false;
        }
        self.set_phase(Phase::Kernel);
        self.replace(std::ptr::null_mut());
        true
    }

    fn retired(&self) -> MutexGuard<'_, Retired> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the program bound it to.
    pub(crate) fn bound(&self) -> Option<SocketAddr> {
        self.bound.get().copied()
    }

    /// The program has bound it.
    pub(crate) fn note_bound(&self, local: SocketAddr) {
        let _ = self.bound.set(local); // it stays the first
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
        let socket = *self.outboard.get_mut();
        if !socket.is_null() {
            // SAFETY: made by `adopt`, and nobody else has it any more.
            drop(unsafe { Box::from_raw(socket) });
        }
    }
}

fn deadline(timeout_ns: &AtomicU64) -> Option<Instant> {
    match timeout_ns.load(Ordering::Relaxed) {
        0 => None,
        nanos => Some(Instant::now() + Duration::from_nanos(nanos)),
    }
}
