//! What a socket is ready for, as poll(2) of Linux tells it, and the marks that decide when the stack rings.
//!
//! A mark is a stream offset in the socket's record: the stack wakes whoever waits when its cursor gets there. It is
//! set whenever a look finds the socket not ready; the look after the waiter is armed then finds what the stack
//! published before it could see the mark.

use std::sync::atomic::Ordering;

use channel::State;

use super::socket::{Kind, Socket};
use super::{Interest, Readiness};
use crate::endpoint::lock;

impl Socket {
    /// What the socket is ready for now.
    pub fn readiness(&self) -> Readiness {
        // The state first: with the end in it, the cursors loaded after it are the last.
        let state = self.state();
        let mut ready = match self.kind {
            Kind::Datagram => self.datagram_readiness(state),
            Kind::Stream if state.contains(State::LISTENING) => {
                Readiness { readable: self.has_accepted(), ..Readiness::default() }
            }
            Kind::Stream => self.stream_readiness(state),
        };
        ready.error = self.has_error();
        ready.queued_errors = self.has_queued_errors();
        ready
    }

    /// As Linux' `tcp_poll`.
    fn stream_readiness(&self, state: State) -> Readiness {
        let closed = state.contains(State::CLOSED);
        let connected = state.contains(State::CONNECTED);
        if state.contains(State::CONNECTING) {
            return Readiness { writable: self.begins_with_send(), ..Readiness::default() };
        }
        let read_shut = self.progress.read_shut.load(Ordering::Acquire);
        if !connected && !closed {
            // Neither connected nor connecting: hung up, and a send would fail at once.
            let (readable, peer_closed) = (read_shut, read_shut);
            return Readiness { readable, peer_closed, writable: true, hangup: true, ..Readiness::default() };
        }
        self.heed_urgent();
        let write_shut = self.progress.write_shut.load(Ordering::Acquire);
        let peer_closed = state.contains(State::PEER_CLOSED) || read_shut || closed;
        let send_closed = state.contains(State::SEND_CLOSED) || write_shut || closed;
        Readiness {
            readable: peer_closed || self.readable_of_stream() >= self.low_water(),
            writable: send_closed || self.has_room(),
            peer_closed,
            hangup: closed || (peer_closed && send_closed),
            urgent: self.has_urgent(),
            ..Readiness::default()
        }
    }

    fn datagram_readiness(&self, state: State) -> Readiness {
        let read_shut = self.progress.read_shut.load(Ordering::Acquire) || state.contains(State::PEER_CLOSED);
        let write_shut = self.progress.write_shut.load(Ordering::Acquire);
        Readiness {
            readable: read_shut || self.has_datagram(),
            writable: self.has_room(),
            peer_closed: read_shut,
            hangup: read_shut && write_shut,
            ..Readiness::default()
        }
    }

    /// What the socket is ready for now; if it is not ready for `interest`, the marks are set so that the stack rings
    /// when it is. (Look again once the waiter is armed.)
    pub fn poll_ready(&self, interest: Interest) -> Readiness {
        let ready = self.readiness();
        if interest.readable && !ready.readable && !self.progress.meter.is_napping() {
            self.set_read_mark();
        }
        if interest.writable {
            if !ready.writable {
                self.set_write_mark();
            } else if self.progress.write_mark_set.load(Ordering::Relaxed) {
                self.progress.write_mark_set.store(false, Ordering::Relaxed);
                self.record().set_write_wake(u64::MAX);
            }
        }
        ready
    }

    fn set_read_mark(&self) {
        match self.kind {
            Kind::Stream => {
                let consumed = self.progress.consumed.load(Ordering::Relaxed);
                // An urgent byte out of the line is not read (Linux: `tcp_poll`).
                let wanted = self.low_water() as u64 + u64::from(self.next_is_out_of_line(consumed));
                self.record().set_read_wake(consumed + wanted);
            }
            Kind::Datagram => self.set_datagram_mark(),
        }
    }

    pub(super) fn set_write_mark(&self) {
        self.progress.write_mark_set.store(true, Ordering::Relaxed);
        if self.kind == Kind::Datagram {
            return self.set_datagram_room_mark();
        }
        let queued = self.shared.queued.load(Ordering::Relaxed);
        self.set_sent_mark(queued);
        self.record().set_write_wake(queued.saturating_sub(self.useful_room() as u64));
    }

    /// Room from which on a socket counts as writable: half of what the ring takes.
    fn useful_room(&self) -> usize {
        self.progress.send_capacity.load(Ordering::Relaxed) / 2
    }

    fn has_room(&self) -> bool {
        if self.kind == Kind::Datagram {
            return self.has_datagram_room();
        }
        self.unacknowledged() <= self.useful_room() && self.has_sent_enough()
    }

    fn has_accepted(&self) -> bool {
        if !lock(&self.shared.accepted).waiting.is_empty() {
            return true;
        }
        self.endpoint.dispatch();
        !lock(&self.shared.accepted).waiting.is_empty()
    }

    /// Bytes that make a stream readable (`SO_RCVLOWAT`).
    pub fn low_water(&self) -> usize {
        self.progress.low_water.load(Ordering::Relaxed).max(1) as usize
    }

    /// Received bytes that a read would give, sooner or later.
    fn readable_of_stream(&self) -> usize {
        let received = self.record().received();
        let consumed = self.progress.consumed.load(Ordering::Relaxed);
        let bytes = received.saturating_sub(consumed);
        bytes.saturating_sub(u64::from(self.next_is_out_of_line(consumed))) as usize
    }

    /// Whether a read that wants `count` bytes gives them, or as many as it ever will.
    pub(super) fn has_bytes(&self, count: usize) -> bool {
        if self.readable_of_stream() >= count || self.is_at_mark() {
            return true;
        }
        let consumed = self.progress.consumed.load(Ordering::Relaxed);
        self.record().set_read_wake(consumed + count as u64);
        let ended = State::PEER_CLOSED | State::CLOSED | State::ERROR;
        self.state().intersects(ended)
            || self.has_error()
            || self.progress.read_shut.load(Ordering::Acquire)
            // What came before the mark was set rings nobody.
            || self.readable_of_stream() >= count
    }

    /// Whether more has been received than `seen` of [`received_total`](Self::received_total), or there is an error, or nothing
    /// more will be. If not, the mark is set so that the stack rings when there is.
    pub fn has_more(&self, seen: u64) -> bool {
        if self.record().received() > seen {
            return true;
        }
        self.record().set_read_wake(seen.saturating_add(1));
        // The state of a datagram socket says for ever that there was an error.
        self.state().intersects(State::PEER_CLOSED | State::CLOSED)
            || self.has_error()
            || self.progress.read_shut.load(Ordering::Acquire)
            // As above.
            || self.record().received() > seen
    }

    /// Received bytes before the next urgent one that is out of the line (Linux: `tcp_inq`).
    fn receivable_of_stream(&self) -> usize {
        self.heed_urgent();
        let received = self.record().received();
        let consumed = self.progress.consumed.load(Ordering::Relaxed);
        let mark = self.record().urgent_mark(consumed).map(|(offset, _)| offset);
        let before = mark.filter(|&mark| mark < received && !self.takes_urgent_inline());
        before.unwrap_or(received).saturating_sub(consumed) as usize
    }

    /// Bytes of a stream queued that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        let queued = self.shared.queued.load(Ordering::Relaxed);
        queued.saturating_sub(self.record().acked()) as usize
    }

    /// Bytes that can be received now (of a datagram socket: in the next datagram).
    pub fn receivable(&self) -> usize {
        match self.kind {
            Kind::Stream => self.receivable_of_stream(),
            Kind::Datagram => self.next_datagram_length().unwrap_or(0),
        }
    }

    /// What is left to read as `TCP_INQ` counts it: the end of the stream is one byte more.
    pub fn left_to_read(&self) -> usize {
        let ended = self.state().contains(State::PEER_CLOSED);
        self.unread() as usize + usize::from(ended)
    }

    /// Bytes of a stream received and not taken, urgent ones too.
    pub(super) fn unread(&self) -> u64 {
        self.record().received().saturating_sub(self.progress.consumed.load(Ordering::Relaxed))
    }

    /// What came in so far, in bytes or connections, what was already taken included. It grows whenever more comes.
    pub fn received_total(&self) -> u64 {
        if self.is_listening() {
            return lock(&self.shared.accepted).total;
        }
        self.record().received()
    }

    /// How often a send found no room. With [`received_total`](Self::received_total) it tells a new readiness from
    /// one that was seen before.
    pub fn blocked_sends(&self) -> u64 {
        self.progress.blocked_sends.load(Ordering::Relaxed)
    }

    /// Whether a wait for `interest` waits for a full send ring to be half empty: sleeping is better then than spinning.
    pub fn is_blocked(&self, interest: Interest) -> bool {
        // A connect sets the mark too, and is over as soon as the peer answers: soon, if it is near.
        interest.writable
            && self.progress.write_mark_set.load(Ordering::Relaxed)
            && !self.record().state().contains(State::CONNECTING)
    }
}
