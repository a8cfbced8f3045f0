//! The round trip as a receiver sees it: of one that sends no data, nobody acknowledges anything.
//!
//! With timestamps, data that echoes an acknowledgement's (RFC 7323 §3.1) was sent when that had come: the time since is a round
//! trip, to the millisecond of our clock. Without, no more than a window can come in a round trip: the shortest time in
//! which one came is an upper bound. Where the sender had nothing to send both measure its silence too, as Linux's do
//! (`tcp_rcv_rtt_update`), so one sample may at most double the estimate that it goes into.

use base::{Duration, Instant};

use crate::segment::Position;

/// The longest that a sample counts for, in milliseconds.
const LONGEST_MS: u32 = 60_000;

/// The measurement.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    /// In microseconds; zero: none yet.
    smoothed_us: u32,
    /// With timestamps, the last that was echoed. Without, the low 32 bits of the position that ends the running window.
    mark: u32,
    /// Without timestamps, when the running window began, in microseconds; wraps.
    since_us: u32,
}

impl RoundTrip {
    pub(crate) const fn new() -> Self {
        Self { smoothed_us: 0, mark: 0, since_us: 0 }
    }

    /// The estimate; zero: none.
    pub(crate) const fn get(&self) -> Duration {
        Duration::from_micros(self.smoothed_us as u64)
    }

    /// Data came that echoes `echo` at a time at which our timestamp clock says `clock`, in milliseconds.
    #[inline]
    pub(crate) fn on_echo(&mut self, echo: u32, clock: u32) {
        if echo != self.mark {
            self.mark = echo;
            self.on_sample(clock.wrapping_sub(echo));
        }
    }

    fn on_sample(&mut self, millis: u32) {
        // Half of the clock's range at most: beyond, it is an echo of what was never sent.
        if millis > i32::MAX as u32 {
            return;
        }
        let sample = millis.clamp(1, LONGEST_MS) * 1000;
        let known = self.smoothed_us;
        self.smoothed_us = match known {
            0 => sample,
            _ => known - known / 8 + sample.min(known.saturating_mul(2)) / 8,
        };
    }

    /// Data came up to `nxt`, and up to `window` more may come now.
    #[inline]
    pub(crate) fn on_data(&mut self, now: Instant, nxt: Position, window: u64) {
        let (low, now_us) = (nxt as u32, now.as_micros() as u32);
        if self.since_us == 0 {
            self.begin_window(low, window, now_us);
        } else if low.wrapping_sub(self.mark) as i32 >= 0 {
            let sample = now_us.wrapping_sub(self.since_us).max(1);
            self.smoothed_us = if self.smoothed_us == 0 { sample } else { self.smoothed_us.min(sample) };
            self.begin_window(low, window, now_us);
        }
    }

    fn begin_window(&mut self, low: u32, window: u64, now_us: u32) {
        self.mark = low.wrapping_add(window.min(i32::MAX as u64) as u32);
        self.since_us = now_us.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_counts_once_and_the_estimate_follows() {
        let mut round_trip = RoundTrip::new();
        assert_eq!(round_trip.get(), Duration::ZERO);
        round_trip.on_echo(1_000, 1_040);
        round_trip.on_echo(1_000, 1_090);
        assert_eq!(round_trip.get(), Duration::from_millis(40));
        for i in 0..100 {
            round_trip.on_echo(2_000 + i, 2_080 + i);
        }
        assert!(
            round_trip.get() > Duration::from_millis(79) && round_trip.get() <= Duration::from_millis(80)
        );
        // A sender that paused for ten seconds: an eighth more.
        round_trip.on_echo(3_000, 13_000);
        assert!(round_trip.get() < Duration::from_millis(91));
    }

    #[test]
    fn an_echo_from_the_future_is_none_and_one_of_this_millisecond_is_a_millisecond() {
        let mut round_trip = RoundTrip::new();
        round_trip.on_echo(5_000, 4_000);
        assert_eq!(round_trip.get(), Duration::ZERO);
        round_trip.on_echo(u32::MAX, 0);
        assert_eq!(round_trip.get(), Duration::from_millis(1));
        round_trip.on_echo(1, 1);
        assert_eq!(round_trip.get(), Duration::from_millis(1));
    }

    #[test]
    fn without_timestamps_the_shortest_window_counts() {
        let mut round_trip = RoundTrip::new();
        let (mut now, mut nxt) = (1_000, 1);
        let mut data = |micros: u64, bytes: u64| {
            now += micros;
            nxt += bytes;
            round_trip.on_data(Instant::from_micros(now), nxt, 10_000);
            round_trip.get()
        };
        assert_eq!(data(0, 1), Duration::ZERO);
        assert_eq!(data(50_000, 9_999), Duration::ZERO, "a byte of the window is missing");
        assert_eq!(data(10_000, 1), Duration::from_millis(60));
        assert_eq!(data(45_000, 10_000), Duration::from_millis(45));
        assert_eq!(data(900_000, 10_000), Duration::from_millis(45));
    }
}
