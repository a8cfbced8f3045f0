//! The receive window's growth: dynamic right-sizing, by the round trip that the receiver itself measures.
//!
//! Once per round trip, what the application read in it is compared with the most that it read in one before. A sender in
//! slow start doubles its rate each round trip, so the window must hold twice what was read to stay ahead of it; and while
//! what is read grows, more by the same factor, because what the sender sends by the new window is read a round trip later
//! (Linux does likewise). The window grows only by evidence: an application that does not read gets no more.
//!
//! A receiver that sends nothing learns of the round trip at the handshake only, when the queues were empty. A round trip
//! that is taken for too short counts too little, and the window would hold the sender back. So it is measured on what
//! arrives, as Linux does: by the time since our timestamp that full segments echo, and by the time until what lies beyond
//! the window arrives, which is never shorter than a round trip.

use base::{Duration, Instant};

/// What is taken for read in a round trip before the first was measured: an initial window (RFC 6928). A connection that
/// has received less needs no growth, and no memory for it.
pub(crate) const FIRST_READ: u32 = 10 * 1460;
/// Over a fast path, a burst of reads is no measure.
const MIN_ROUND: Duration = Duration::from_millis(1);
/// A round trip that is longer is not believed: the echo is the peer's word.
const MAX_SAMPLE_MS: u32 = 60_000;

/// The measurement of one round trip after the other.
#[derive(Clone, Debug)]
pub(crate) struct Autotune {
    /// When the running measurement began; zero: not begun.
    started: Instant,
    /// The low 32 bits of the consumed position at that time: the difference is smaller.
    consumed: u32,
    /// The most that was read in a measurement before (Linux: `rcvq_space.space`).
    read: u32,
    /// The round trip as what arrives tells.
    pub(crate) round_trip: ReceiveRoundTrip,
}

/// The round trip as seen by a receiver (Linux: `rcv_rtt_est`).
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiveRoundTrip {
    /// When the running window began; zero: not begun.
    started: Instant,
    /// The low 32 bits of the position at which it ends.
    window_end: u32,
    /// The last echo that was looked at: each tells once.
    echo: u32,
    /// Eight times the estimate in microseconds; zero: no sample yet.
    scaled_us: u32,
}

impl ReceiveRoundTrip {
    /// The estimate, if there is one.
    pub(crate) fn estimate(&self) -> Option<Duration> {
        (self.scaled_us > 0).then(|| Duration::from_micros(u64::from(self.scaled_us / 8).max(1)))
    }

    /// A full segment came with `echo`, and our timestamp clock stands at `clock`, both in milliseconds: the time since
    /// the acknowledgement that let it be sent. Smoothed, because the sender may have waited for its application.
    #[inline]
    pub(crate) fn on_echo(&mut self, echo: u32, clock: u32) {
        if echo == self.echo {
            return;
        }
        self.echo = echo;
        let sample = clock.wrapping_sub(echo);
        if (1..=MAX_SAMPLE_MS).contains(&sample) {
            let sample = sample * 1000;
            self.scaled_us = match self.scaled_us {
                0 => sample * 8,
                scaled => scaled - scaled / 8 + sample,
            };
        }
    }

    /// Data arrived up to the position `nxt`, and `window` bytes more may come by what the peer was told. What lies beyond
    /// was let out by an acknowledgement that had not been sent then: its time is at least a round trip, so the least counts.
    #[inline]
    pub(crate) fn on_data(&mut self, arrival: Instant, nxt: u64, window: u64) {
        if self.started != Instant::ZERO {
            if (self.window_end.wrapping_sub(nxt as u32) as i32) >= 0 {
                return;
            }
            let sample = arrival.saturating_since(self.started).as_micros().max(1);
            if sample <= u64::from(MAX_SAMPLE_MS) * 1000 {
                let scaled = sample as u32 * 8;
                self.scaled_us = if self.scaled_us == 0 { scaled } else { self.scaled_us.min(scaled) };
            }
        }
        self.started = arrival;
        self.window_end = (nxt as u32).wrapping_add(window as u32);
    }
}

impl Autotune {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::ZERO,
            consumed: 0,
            read: FIRST_READ,
            round_trip: ReceiveRoundTrip::default(),
        }
    }

    /// The most that was read in a round trip, as far as is known.
    pub(crate) fn most_read(&self) -> u32 {
        self.read
    }

    /// The application has read up to `consumed`. Returns the limit that the window should have. `handshake_rtt` counts
    /// until what arrives has told of the round trip.
    pub(crate) fn on_consumed(
        &mut self,
        now: Instant,
        consumed: u64,
        handshake_rtt: Duration,
        limit: u32,
        max_limit: u32,
    ) -> u32 {
        if self.started == Instant::ZERO {
            self.started = now;
            self.consumed = consumed as u32;
            return limit;
        }
        let rtt = self.round_trip.estimate().unwrap_or(handshake_rtt);
        if now.saturating_since(self.started) < rtt.max(MIN_ROUND) {
            return limit;
        }
        let read = (consumed as u32).wrapping_sub(self.consumed);
        self.started = now;
        self.consumed = consumed as u32;
        if read <= self.read {
            return limit;
        }
        // Twice what was read, and room for the segments that arrive while the application does not run; then the growth.
        let wanted = u64::from(read) * 2 + 16 * 1460;
        let growth = wanted.saturating_mul(u64::from(read - self.read)) / u64::from(self.read);
        self.read = read;
        let wanted = wanted.saturating_add(growth.saturating_mul(2));
        limit.max(u32::try_from(wanted).unwrap_or(u32::MAX).min(max_limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(45);

    #[test]
    fn grows_with_what_is_read_in_a_round_trip_and_not_without() {
        let mut tuner = Autotune::new();
        let (mut limit, mut now, mut consumed) = (65_535, Instant::from_millis(1), 1);
        for _ in 0..8 {
            consumed += u64::from(limit); // a full window is read in each round trip
            now += RTT;
            limit = tuner.on_consumed(now, consumed, RTT, limit, 6 << 20);
        }
        assert_eq!(limit, 6 << 20);
        let mut idle = Autotune::new();
        for i in 0..100 {
            let now = Instant::from_millis(1 + i * 50);
            assert_eq!(idle.on_consumed(now, 1 + i * 10, RTT, 65_535, 6 << 20), 65_535);
        }
    }

    #[test]
    fn a_steady_reader_gets_no_more_than_it_needs() {
        let mut tuner = Autotune::new();
        let (mut limit, mut now, mut consumed) = (65_535, Instant::from_millis(1), 1);
        for _ in 0..1000 {
            consumed += 40_000;
            now += RTT;
            limit = tuner.on_consumed(now, consumed, RTT, limit, 6 << 20);
        }
        assert!((2 * 40_000..600_000).contains(&limit), "{limit}");
        assert_eq!(tuner.most_read(), 40_000);
    }

    #[test]
    fn echoes_are_smoothed_and_count_once_each() {
        let mut trip = ReceiveRoundTrip::default();
        assert_eq!(trip.estimate(), None);
        trip.on_echo(u32::MAX - 10, 34); // the clock wraps
        assert_eq!(trip.estimate(), Some(RTT));
        trip.on_echo(u32::MAX - 10, 5000);
        assert_eq!(trip.estimate(), Some(RTT), "the same echo again");
        trip.on_echo(100, 100 + 85);
        assert_eq!(trip.estimate(), Some(Duration::from_millis(50)), "an eighth of the difference");
        for nonsense in [200, 200 + 70_000, 200u32.wrapping_sub(60_001)] {
            trip.on_echo(nonsense, 200);
        }
        assert_eq!(trip.estimate(), Some(Duration::from_millis(50)), "no time, the future, long ago");
    }

    #[test]
    fn without_timestamps_the_quickest_window_counts() {
        let mut trip = ReceiveRoundTrip::default();
        let mut now = Instant::from_millis(10);
        let mut nxt = u64::from(u32::MAX) - 5000;
        for (step, expected) in
            [(0, None), (300, Some(300)), (100, Some(100)), (60, Some(60)), (90, Some(60))]
        {
            now += Duration::from_millis(step);
            nxt += 10_001;
            trip.on_data(now, nxt, 10_000);
            assert_eq!(trip.estimate(), expected.map(Duration::from_millis));
            // The rest of the window was on its way.
            trip.on_data(now + Duration::from_millis(1), nxt + 10_000, 0);
            assert_eq!(trip.estimate(), expected.map(Duration::from_millis));
        }
    }
}
