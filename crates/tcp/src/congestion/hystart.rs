//! HyStart++: leaves slow start when the round trip grows, before the queue overflows (RFC 9406).

use base::Duration;

use super::AckSample;
use crate::segment::Position;

/// MIN_RTT_THRESH and MAX_RTT_THRESH.
const MIN_THRESHOLD_US: u32 = 4_000;
const MAX_THRESHOLD_US: u32 = 16_000;
/// MIN_RTT_DIVISOR.
const DIVISOR: u32 = 8;
/// N_RTT_SAMPLE.
const SAMPLES: u8 = 8;
/// CSS_GROWTH_DIVISOR.
const GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const CONSERVATIVE_ROUNDS: u8 = 5;
/// No sample in this round.
const NONE: u32 = u32::MAX;

/// The rounds of one slow start.
#[derive(Clone, Debug)]
pub(crate) struct HyStart {
    /// The round ends when this is acknowledged (windowEnd).
    round_end: Position,
    last_min_us: u32,
    current_min_us: u32,
    /// cssBaselineMinRtt; `NONE` outside conservative slow start.
    baseline_us: u32,
    samples: u8,
    conservative_rounds: u8,
}

/// What an acknowledgement in slow start means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Grow by this many bytes.
    By(u32),
    /// The path is full: the window of now becomes the threshold.
    Leave,
}

impl HyStart {
    pub(crate) const fn new() -> Self {
        Self {
            round_end: 0,
            last_min_us: NONE,
            current_min_us: NONE,
            baseline_us: NONE,
            samples: 0,
            conservative_rounds: 0,
        }
    }

    /// RFC 9406 §4.2, for each acknowledgement in slow start.
    pub(crate) fn on_ack(&mut self, ack: &AckSample) -> Growth {
        if ack.una >= self.round_end && self.on_round_end(ack.nxt) {
            return Growth::Leave;
        }
        if ack.rtt != Duration::ZERO {
            let rtt_us = u32::try_from(ack.rtt.as_micros()).unwrap_or(NONE - 1);
            self.current_min_us = self.current_min_us.min(rtt_us);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= SAMPLES && self.current_min_us != NONE {
            self.on_enough_samples();
        }
        let conservative = self.baseline_us != NONE;
        Growth::By(if conservative { ack.delivered / GROWTH_DIVISOR } else { ack.delivered })
    }

    /// Returns whether conservative slow start has lasted long enough.
    fn on_round_end(&mut self, nxt: Position) -> bool {
        self.round_end = nxt;
        self.last_min_us = self.current_min_us;
        self.current_min_us = NONE;
        self.samples = 0;
        if self.baseline_us == NONE {
            return false;
        }
        self.conservative_rounds += 1;
        self.conservative_rounds >= CONSERVATIVE_ROUNDS
    }

    fn on_enough_samples(&mut self) {
        if self.baseline_us != NONE {
            if self.current_min_us < self.baseline_us {
                self.baseline_us = NONE; // a false alarm: slow start goes on
            }
            return;
        }
        if self.last_min_us == NONE {
            return;
        }
        let threshold = (self.last_min_us / DIVISOR).clamp(MIN_THRESHOLD_US, MAX_THRESHOLD_US);
        if self.current_min_us >= self.last_min_us.saturating_add(threshold) {
            self.baseline_us = self.current_min_us;
            self.conservative_rounds = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Instant;

    fn ack(una: u64, nxt: u64, rtt_ms: u64) -> AckSample {
        AckSample {
            now: Instant::ZERO,
            delivered: 1000,
            window_limited: true,
            mss: 1000,
            una,
            nxt,
            rtt: Duration::from_millis(rtt_ms),
            srtt: Duration::from_millis(rtt_ms),
            in_flight: 0,
            rate: None,
        }
    }

    fn round(start: &mut HyStart, at: u64, rtt_ms: u64) -> Growth {
        let mut last = Growth::By(0);
        for _ in 0..10 {
            last = start.on_ack(&ack(at, at + 10, rtt_ms));
            if last == Growth::Leave {
                break;
            }
        }
        last
    }

    #[test]
    fn a_growing_round_trip_slows_the_start_and_ends_it() {
        let mut start = HyStart::new();
        assert_eq!(round(&mut start, 10, 40), Growth::By(1000));
        assert_eq!(round(&mut start, 20, 41), Growth::By(1000));
        assert_eq!(round(&mut start, 30, 50), Growth::By(250));
        for i in 0..4 {
            assert_eq!(round(&mut start, 40 + i * 10, 50), Growth::By(250), "{i}");
        }
        assert_eq!(round(&mut start, 80, 50), Growth::Leave);
    }

    #[test]
    fn a_passing_delay_is_forgiven() {
        let mut start = HyStart::new();
        round(&mut start, 10, 40);
        assert_eq!(round(&mut start, 20, 50), Growth::By(250));
        assert_eq!(round(&mut start, 30, 41), Growth::By(1000));
    }
}
