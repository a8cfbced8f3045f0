//! The pending error of a socket, and its queue of errors (`IP_RECVERR`): what the stack keeps of it, and what this side refused
//! to send.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use channel::{Command, Stamp, State};
use stack::{ErrorOrigin, QueuedError};

use super::sides::SendSide;
use super::socket::{Socket, errno};
use crate::endpoint::lock;

/// How many errors of its own a socket keeps at most.
const MOST_OWN: usize = 256;
/// The most datagrams in one run (Linux: `UDP_MAX_SEGMENTS`).
const MOST_OF_RUN: usize = 128;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// The longest payload of a UDP datagram over IPv4.
pub(super) const MOST_PAYLOAD: usize = 65_507;

/// `SO_EE_CODE_ZEROCOPY_COPIED`
const COPIED: u8 = 1;

/// An entry of this side: what is too long to be sent.
fn own_error() -> QueuedError {
    QueuedError {
        errno: libc::EMSGSIZE,
        origin: ErrorOrigin::Local,
        kind: 0,
        code: 0,
        info: 0,
        data: 0,
        offender: None,
        local: Ipv4Addr::UNSPECIFIED,
        ttl: 0,
        tos: 0,
        destination: None,
        at: None,
        payload: Vec::new(),
    }
}

impl Socket {
    /// The error that waits, if any; taking it clears it. That the stack is gone is such an error, told once.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let kept = self.progress.kept_error.swap(0, Ordering::AcqRel);
        if kept != 0 {
            return Ok(Some(errno(kept)));
        }
        let (count, number) = self.record().error();
        // A number of 0: the last error does not count any more.
        if self.progress.errors_taken.swap(count, Ordering::AcqRel) != count && number != 0 {
            return Ok(Some(errno(number)));
        }
        if self.endpoint.is_dead() && !self.progress.end_taken.swap(true, Ordering::AcqRel) {
            return Ok(Some(errno(libc::ENETDOWN)));
        }
        Ok(None)
    }

    pub(super) fn has_error(&self) -> bool {
        self.has_new_error() || (self.endpoint.is_dead() && !self.progress.end_taken.load(Ordering::Acquire))
    }

    /// An error that was taken and could not be told is pending again.
    pub fn keep_error(&self, number: i32) {
        self.progress.kept_error.store(number, Ordering::Release);
    }

    /// Whether the stack has told of an error that was not taken.
    pub(super) fn has_new_error(&self) -> bool {
        if self.progress.kept_error.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let (count, number) = self.record().error();
        number != 0 && count != self.progress.errors_taken.load(Ordering::Acquire)
    }

    /// Takes the oldest entry of the queue of errors. A pending error becomes that of the next ICMP message, or none.
    pub fn take_queued_error(&self) -> io::Result<Option<QueuedError>> {
        if self.record().state().contains(State::HAS_QUEUED) {
            let _one = lock(&self.calling);
            match self.endpoint.channel().take_queued_error(self.number) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other.map(Some),
            }
        }
        let mut own = lock(&self.progress.own_errors);
        let taken = own.pop_front();
        self.progress.has_own_errors.store(!own.is_empty(), Ordering::Relaxed);
        Ok(taken)
    }

    /// Whether the queue of errors holds any.
    pub fn has_queued_errors(&self) -> bool {
        self.record().state().contains(State::HAS_QUEUED)
            || self.progress.has_own_errors.load(Ordering::Relaxed)
    }

    /// How many errors there were; it changes whenever another comes.
    pub fn errors_total(&self) -> u32 {
        let record = self.record();
        let own = self.progress.own_errors_total.load(Ordering::Relaxed);
        record.error().0.wrapping_add(record.queued_errors()).wrapping_add(own)
    }

    /// A send without copying (`MSG_ZEROCOPY`) was copied: an entry says so, one for several in a row (Linux:
    /// `skb_zerocopy_notify_extend`).
    pub fn tell_copied(&self) {
        let number = self.progress.copied.fetch_add(1, Ordering::Relaxed);
        {
            let mut own = lock(&self.progress.own_errors);
            if let Some(last) = own.back_mut()
                && last.origin == ErrorOrigin::ZeroCopy
                && last.data.wrapping_add(1) == number
            {
                last.data = number;
                drop(own);
                return self.announce_own_error();
            }
        }
        self.queue_own_error(QueuedError {
            errno: 0,
            origin: ErrorOrigin::ZeroCopy,
            kind: 0,
            code: COPIED,
            info: number,
            data: number,
            ..own_error()
        });
    }

    /// Adds an entry of this side to the queue. What does not fit is lost.
    pub(super) fn queue_own_error(&self, error: QueuedError) {
        {
            let mut own = lock(&self.progress.own_errors);
            if own.len() >= MOST_OWN {
                return;
            }
            own.push_back(error);
            self.progress.has_own_errors.store(true, Ordering::Relaxed);
        }
        self.announce_own_error();
    }

    fn announce_own_error(&self) {
        self.progress.own_errors_total.fetch_add(1, Ordering::Relaxed);
        let observer = lock(&self.shared.observer).clone();
        if let Some(observer) = observer {
            observer.on_event();
        }
    }

    /// Errors are queued no more: what is there goes.
    pub(super) fn forget_own_errors(&self) {
        lock(&self.progress.own_errors).clear();
        self.progress.has_own_errors.store(false, Ordering::Relaxed);
    }

    /// Wants entries in the queue of errors that tell when what is queued by now was sent, and acknowledged. To be called right
    /// after a send.
    pub fn stamp(&self, stamp: Stamp) -> io::Result<()> {
        let (socket, offset) = (self.number, self.queued_to());
        self.endpoint.channel().post(&Command::Stamp { socket, offset, stamp })
    }

    /// How far the stream, or the records of datagrams, is queued.
    pub fn queued_to(&self) -> u64 {
        match &*lock(&self.send.side) {
            SendSide::Stream(stream) => stream.queued(),
            SendSide::Datagrams(datagrams) => datagrams.queued(),
        }
    }

    /// The largest packet on the way to a datagram socket's peer.
    ///
    /// # Errors
    /// `ENOTCONN`: it has none.
    pub fn path_mtu(&self) -> io::Result<u32> {
        if !self.record().state().contains(State::CONNECTED) {
            return Err(errno(libc::ENOTCONN));
        }
        self.mtus_to(None).map(|(path, _)| path)
    }

    fn mtus_to(&self, remote: Option<SocketAddr>) -> io::Result<(u32, u32)> {
        let _one = lock(&self.calling);
        self.endpoint.channel().path_mtu(self.number, remote)
    }

    /// Whether a datagram of so many bytes may be sent (Linux: `__ip_append_data`). The stack is asked only about those that may
    /// be too long for some path.
    pub(super) fn check_length(&self, remote: SocketAddr, length: usize) -> io::Result<()> {
        let options = self.options();
        let refuses = options.mtu_discovery.refuses();
        let narrowest = self.endpoint.channel().narrowest_mtu() as usize;
        if length <= MOST_PAYLOAD && (!refuses || length + HEADERS <= narrowest) {
            return Ok(());
        }
        // Without a way there the stack tells what is wrong.
        let Ok((path, link)) = self.mtus_to(Some(remote)) else { return Ok(()) };
        let mtu = if options.mtu_discovery.goes_by_link() { link } else { path };
        if length <= MOST_PAYLOAD && length + HEADERS <= mtu as usize {
            return Ok(());
        }
        Err(self.refuse_length(remote, mtu))
    }

    /// Whether a run of datagrams of `segment` bytes each may be sent (Linux: `udp_send_skb`).
    pub(super) fn check_run(&self, remote: SocketAddr, length: usize, segment: usize) -> io::Result<()> {
        if length > MOST_PAYLOAD {
            return self.check_length(remote, length);
        }
        let longest = length.min(segment) + HEADERS;
        if longest > self.endpoint.channel().narrowest_mtu() as usize
            && let Ok((path, link)) = self.mtus_to(Some(remote))
        {
            let by_link = self.options().mtu_discovery.goes_by_link();
            if longest > (if by_link { link } else { path }) as usize {
                return Err(errno(libc::EMSGSIZE));
            }
        }
        if length > segment * MOST_OF_RUN { Err(errno(libc::EINVAL)) } else { Ok(()) }
    }

    /// Tells the queue of errors of a datagram that is too long for `mtu`.
    fn refuse_length(&self, remote: SocketAddr, mtu: u32) -> io::Error {
        let options = self.options();
        if options.queue_errors {
            let peer =
                self.record().state().contains(State::CONNECTED).then(|| self.record().remote()).flatten();
            self.queue_own_error(QueuedError {
                info: mtu,
                destination: Some(SocketAddr::new(remote.ip(), peer.map_or(0, |peer| peer.port()))),
                ..own_error()
            });
        }
        errno(libc::EMSGSIZE)
    }
}
