//! The receive window's growth: dynamic right-sizing.
//!
//! Once per round trip, what the application read in it is compared with the window. A sender in slow start doubles its
//! rate each round trip, so the window must hold twice what was read to stay ahead of it; and while what is read grows,
//! twice that again, because what the sender sends by the new window is read a round trip later (Linux does likewise). The
//! window grows only by evidence: an application that does not read gets no more.

use base::{Duration, Instant};

/// The measurement of one round trip.
#[derive(Clone, Debug)]
pub(crate) struct Autotune {
    /// When the running measurement began; zero: not begun.
    started: Instant,
    /// The low 32 bits of the consumed position at that time: the difference is smaller.
    consumed: u32,
    /// What was read in the measurement before.
    read: u32,
}

impl Autotune {
    pub(crate) const fn new() -> Self {
        Self { started: Instant::ZERO, consumed: 0, read: 0 }
    }

    /// The application has read up to `consumed`. Returns the limit that the window should have.
    pub(crate) fn on_consumed(
        &mut self,
        now: Instant,
        consumed: u64,
        rtt: Duration,
        limit: u32,
        max_limit: u32,
    ) -> u32 {
        if self.started == Instant::ZERO {
            self.started = now;
            self.consumed = consumed as u32;
            return limit;
        }
        // Over a fast path, a burst of reads is no measure: a round trip of a millisecond at least.
        if now.saturating_since(self.started) < rtt.max(MIN_ROUND) {
            return limit;
        }
        let read = u64::from((consumed as u32).wrapping_sub(self.consumed));
        self.started = now;
        self.consumed = consumed as u32;
        // Twice what was read, and room for the segments that arrive while the application does not run.
        let growth = read.saturating_sub(self.read.into()).min(read / 2);
        self.read = u32::try_from(read).unwrap_or(u32::MAX);
        let wanted = (read * 2).saturating_add(16 * 1460).saturating_add(growth * 4);
        limit.max(u32::try_from(wanted).unwrap_or(u32::MAX).min(max_limit))
    }
}

const MIN_ROUND: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_what_is_read_in_a_round_trip_and_not_without() {
        let mut tuner = Autotune::new();
        let rtt = Duration::from_millis(45);
        let (mut limit, mut now, mut consumed) = (65_535, Instant::from_millis(1), 1);
        for _ in 0..12 {
            consumed += u64::from(limit); // a full window is read in each round trip
            now += rtt;
            limit = tuner.on_consumed(now, consumed, rtt, limit, 6 << 20);
        }
        assert_eq!(limit, 6 << 20);
        let mut idle = Autotune::new();
        for i in 0..100 {
            let now = Instant::from_millis(1 + i * 50);
            assert_eq!(idle.on_consumed(now, 1 + i * 10, rtt, 65_535, 6 << 20), 65_535);
        }
    }
}
