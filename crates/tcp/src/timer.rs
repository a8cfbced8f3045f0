//! The timers of a connection, each with a variable of its own so that none excludes another.

use base::{Duration, Instant};

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Timer {
    /// Retransmission (RFC 6298).
    Retransmit = 0,
    /// Tail loss probe (RFC 8985 §7).
    LossProbe = 1,
    /// The end of the reordering window (RFC 8985 §6.2 step 5).
    Reordering = 2,
    /// Zero-window probe and the override of sender SWS avoidance (RFC 9293 §3.8.6.1, RFC 1122 §4.2.3.4).
    Persist = 3,
    /// A held-back acknowledgement (RFC 1122 §4.2.3.2).
    DelayedAck = 4,
    /// Keepalive (RFC 9293 §3.8.4).
    Keepalive = 5,
    /// The end of FIN-WAIT-2 or TIME-WAIT.
    Linger = 6,
    /// When pacing lets the next segment go.
    Pacing = 7,
}

impl Timer {
    pub(crate) const COUNT: usize = 8;
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Retransmit,
        Self::LossProbe,
        Self::Reordering,
        Self::Persist,
        Self::DelayedAck,
        Self::Keepalive,
        Self::Linger,
        Self::Pacing,
    ];
}

/// A point in time in four bytes: milliseconds modulo 2³² (49 days), for what need not be finer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Stamp {
    #[inline]
    pub(crate) const fn at(now: Instant) -> Self {
        Self(now.as_millis() as u32)
    }

    pub(crate) const fn from_millis(millis: u32) -> Self {
        Self(millis)
    }

    pub(crate) const fn millis(self) -> u32 {
        self.0
    }

    /// How long ago it was.
    #[inline]
    pub(crate) const fn elapsed(self, now: Instant) -> Duration {
        Duration::from_millis((now.as_millis() as u32).wrapping_sub(self.0) as u64)
    }
}

/// When each timer expires.
#[derive(Clone, Debug)]
pub(crate) struct Timers([Instant; Timer::COUNT]);

impl Timers {
    pub(crate) const fn new() -> Self {
        Self([Instant::FAR_FUTURE; Timer::COUNT])
    }

    #[inline]
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    #[inline]
    pub(crate) fn clear(&mut self, timer: Timer) {
        self.0[timer as usize] = Instant::FAR_FUTURE;
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::new();
    }

    #[inline]
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        let at = self.0[timer as usize];
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    #[inline]
    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize] != Instant::FAR_FUTURE
    }

    /// The earliest expiry.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        let earliest = self.0.iter().copied().min().unwrap_or(Instant::FAR_FUTURE);
        (earliest != Instant::FAR_FUTURE).then_some(earliest)
    }

    /// Clears `timer` and says true if it has expired.
    pub(crate) fn take_expired(&mut self, timer: Timer, now: Instant) -> bool {
        let expired = self.0[timer as usize] <= now;
        if expired {
            self.clear(timer);
        }
        expired
    }
}
