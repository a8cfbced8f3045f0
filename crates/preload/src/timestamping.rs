//! `SO_TIMESTAMPING`: times of what was received, as messages, and of what was sent, by the queue of errors.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use outboard::raw::{Socket, Stamp};

use crate::description::Kind;

/// `SO_TIMESTAMPING` by its later number; not among libc's constants.
pub(crate) const SO_TIMESTAMPING_NEW: c_int = 65;

/// `SOF_TIMESTAMPING_OPT_ID_TCP`; not among libc's constants.
pub(crate) const KEY_BY_WRITTEN: u32 = 1 << 16;
/// The flags by which a time of a send is asked for: those that a message may have.
const OF_SENDS: u32 = libc::SOF_TIMESTAMPING_TX_HARDWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_TX_ACK
    | 1 << 18;

/// What a socket wants.
#[derive(Default)]
pub(crate) struct Timestamping {
    flags: AtomicU32,
    /// The key of the next datagram, or the stream offset at which keys begin.
    next: AtomicU64,
}

impl Timestamping {
    /// The flags as they were set.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets them. Keys begin anew when they are switched on (Linux: `sock_set_timestamping`).
    pub(crate) fn set(&self, kind: Kind, outboard: Option<&Socket>, flags: u32) {
        let before = self.flags.swap(flags, Ordering::Relaxed);
        if flags & !before & libc::SOF_TIMESTAMPING_OPT_ID == 0 {
            return;
        }
        let begin = match (kind, outboard) {
            (Kind::Stream, Some(outboard)) if flags & KEY_BY_WRITTEN != 0 => outboard.queued_to(),
            (Kind::Stream, Some(outboard)) => outboard.queued_to() - outboard.unacknowledged() as u64,
            _ => 0,
        };
        self.next.store(begin, Ordering::Relaxed);
    }

    /// A connection has what its listener wants.
    pub(crate) fn inherit(&self, listener: &Self) {
        self.flags.store(listener.flags(), Ordering::Relaxed);
    }

    /// Whether messages tell when bytes or datagrams came.
    pub(crate) fn tells_arrival(&self) -> bool {
        let both = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        self.flags() & both == both
    }

    /// Whether messages of the queue of errors have times.
    pub(crate) fn tells_times(&self) -> bool {
        self.flags() & libc::SOF_TIMESTAMPING_SOFTWARE != 0
    }

    /// The flags that count for a send, which may have brought its own.
    pub(crate) fn of_send(&self, own: Option<u32>) -> u32 {
        own.unwrap_or(self.flags()) & OF_SENDS
    }

    /// After a send: asks for its times.
    pub(crate) fn after_send(&self, kind: Kind, outboard: &Socket, flags: u32) {
        let stamp = Stamp {
            scheduled: flags & libc::SOF_TIMESTAMPING_TX_SCHED != 0,
            sent: flags & libc::SOF_TIMESTAMPING_TX_SOFTWARE != 0,
            acknowledged: flags & libc::SOF_TIMESTAMPING_TX_ACK != 0 && kind == Kind::Stream,
            key: if self.flags() & libc::SOF_TIMESTAMPING_OPT_ID != 0 { self.key(kind, outboard) } else { 0 },
        };
        if stamp.scheduled || stamp.sent || stamp.acknowledged {
            // If the channel is closed, the next call says so.
            let _ = outboard.stamp(stamp);
        }
    }

    fn key(&self, kind: Kind, outboard: &Socket) -> u32 {
        match kind {
            Kind::Datagram => self.next.fetch_add(1, Ordering::Relaxed) as u32,
            // Of the last byte.
            Kind::Stream => outboard.queued_to().wrapping_sub(self.next.load(Ordering::Relaxed) + 1) as u32,
        }
    }
}

/// The flags that a message to send brings; `None`: none such are allowed.
pub(crate) fn of_message(data: &[u8]) -> Option<u32> {
    let flags = u32::from_ne_bytes(data.try_into().ok()?);
    (flags & !OF_SENDS == 0).then_some(flags)
}
