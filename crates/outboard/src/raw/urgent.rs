//! Urgent data as a program sees it, with the semantics of Linux (`MSG_OOB`, `SO_OOBINLINE`, `SIOCATMARK`).
//!
//! The stream's last urgent byte has a mark. A read stops at it; the next one passes over the byte, unless urgent bytes stay in
//! the line. Until then the byte can be received by itself, once, as soon as it has come, which may be before what precedes it.

use std::io;
use std::sync::atomic::Ordering;

use channel::State;

use super::sides::ReceiveSide;
use super::socket::{Kind, Socket, errno};
use crate::endpoint::lock;

impl Socket {
    /// Receives the peer's urgent byte out of the line; `peek` leaves it.
    ///
    /// # Errors
    /// `ENOTCONN`: it listens. `EINVAL`: there is none, or it was received before, or urgent bytes stay in the line. `EAGAIN`: it is announced and
    /// has not come. It never waits.
    pub fn recv_urgent(&self, peek: bool) -> io::Result<Option<u8>> {
        let state = self.state();
        if state.contains(State::LISTENING) {
            return Err(errno(libc::ENOTCONN));
        }
        self.heed_urgent();
        let consumed = self.progress.consumed.load(Ordering::Relaxed);
        let mark = self.record().urgent_mark(consumed).filter(|&(offset, _)| !self.is_taken(offset));
        let Some((offset, byte)) = mark.filter(|_| self.kind == Kind::Stream && !self.takes_urgent_inline())
        else {
            return Err(errno(libc::EINVAL));
        };
        if byte.is_some() {
            if !peek {
                self.progress.urgent_taken.store(offset + 1, Ordering::Relaxed);
            }
            return Ok(byte);
        }
        let ended = state.intersects(State::PEER_CLOSED | State::CLOSED);
        if ended || self.progress.read_shut.load(Ordering::Acquire) {
            return Ok(None);
        }
        Err(errno(libc::EAGAIN))
    }

    /// Whether the next byte to be read is the urgent one (`SIOCATMARK`).
    pub fn is_at_mark(&self) -> bool {
        self.heed_urgent();
        let consumed = self.progress.consumed.load(Ordering::Relaxed);
        self.record().urgent_mark(consumed).is_some_and(|(offset, _)| offset == consumed)
    }

    /// Whether the byte behind so many of those that were not read is the urgent one.
    pub fn has_mark_at(&self, behind: u64) -> bool {
        let at = self.progress.consumed.load(Ordering::Relaxed).saturating_add(behind);
        self.record().urgent_mark(at).is_some_and(|(offset, _)| offset == at)
    }

    /// Passes over what the mark has gone past. Whoever receives at this moment does it by himself.
    pub(super) fn heed_urgent(&self) {
        if self.record().was_urgent()
            && let Ok(mut side) = self.receive.try_lock()
            && let ReceiveSide::Stream(stream) = &mut *side
        {
            // A closed channel is noticed by the next receive.
            let _ = stream.pass_urgent(true);
            self.progress.consumed.store(stream.consumed(), Ordering::Relaxed);
        }
    }

    /// An urgent byte has come and was neither received nor passed.
    pub(super) fn has_urgent(&self) -> bool {
        let consumed = self.progress.consumed.load(Ordering::Relaxed);
        let mark = self.record().urgent_mark(consumed);
        mark.is_some_and(|(offset, byte)| byte.is_some() && !self.is_taken(offset))
    }

    /// Whether the next byte is urgent and out of the line.
    pub(super) fn next_is_out_of_line(&self, consumed: u64) -> bool {
        let mark = self.record().urgent_mark(consumed);
        mark.is_some_and(|(offset, _)| offset == consumed) && !self.takes_urgent_inline()
    }

    fn is_taken(&self, offset: u64) -> bool {
        self.progress.urgent_taken.load(Ordering::Relaxed) == offset + 1
    }

    pub(super) fn takes_urgent_inline(&self) -> bool {
        self.progress.urgent_inline.load(Ordering::Relaxed)
    }

    pub(super) fn set_urgent_inline(&self, inline: bool) {
        self.progress.urgent_inline.store(inline, Ordering::Relaxed);
        if let ReceiveSide::Stream(stream) = &mut *lock(&self.receive) {
            stream.set_urgent_inline(inline);
        }
    }
}
