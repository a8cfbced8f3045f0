//! The cycle of bandwidth probing: down, cruise, refill, up (§4.3.3).

use base::{Duration, Instant};

use super::{AckPhase, Bbr, NONE, Phase};
use crate::congestion::AckSample;
use crate::recovery::rate::RateSample;

/// As often as Reno would lose a packet on such a path, BBR probes too (§4.3.3.5.1).
const MOST_ROUNDS: u32 = 63;

impl Bbr {
    /// §4.3.3.6.
    pub(super) fn update_cycle(&mut self, ack: &AckSample, sample: &RateSample) {
        if !self.full_bandwidth_reached {
            return;
        }
        self.adapt_upper_bounds(ack, sample);
        match self.phase {
            Phase::Down => {
                if !self.check_time_to_probe(ack) && self.is_time_to_cruise(ack) {
                    self.phase = Phase::Cruise;
                }
            }
            Phase::Cruise => {
                self.check_time_to_probe(ack);
            }
            Phase::Refill => {
                if self.model.round_start {
                    self.probe_samples = true;
                    self.start_up(ack, sample);
                }
            }
            Phase::Up => {
                if self.is_time_to_go_down(ack, sample) {
                    self.start_down(ack.now);
                }
            }
            Phase::Startup | Phase::Drain | Phase::ProbeRtt => {}
        }
    }

    pub(super) fn start_down(&mut self, now: Instant) {
        self.model.reset_congestion_signals();
        self.probe_up_count = NONE;
        self.pick_probe_wait(now);
        self.cycle_at = now;
        self.ack_phase = AckPhase::Stopping;
        self.model.start_round();
        self.phase = Phase::Down;
    }

    pub(super) fn start_cruise(&mut self) {
        self.phase = Phase::Cruise;
    }

    fn start_refill(&mut self) {
        self.model.reset_lower_bounds();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0;
        self.ack_phase = AckPhase::Refilling;
        self.model.start_round();
        self.phase = Phase::Refill;
    }

    fn start_up(&mut self, ack: &AckSample, sample: &RateSample) {
        self.ack_phase = AckPhase::Starting;
        self.model.start_round();
        self.reset_full_bandwidth(sample.rate);
        self.cycle_at = ack.now;
        self.phase = Phase::Up;
        self.raise_slope(ack.mss);
    }

    /// Two to three seconds; the spread comes from the clock's low bits, so that flows do not probe in step (§4.3.3.5).
    fn pick_probe_wait(&mut self, now: Instant) {
        let mixed = now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.rounds_since_probe = (mixed & 1) as u32;
        self.probe_wait = Duration::from_millis(2000 + mixed % 1000);
    }

    fn check_time_to_probe(&mut self, ack: &AckSample) -> bool {
        let reno_rounds = (self.target_inflight(ack.mss) / ack.mss).min(MOST_ROUNDS);
        let waited = ack.now.saturating_since(self.cycle_at) > self.probe_wait;
        let due = waited || self.rounds_since_probe >= reno_rounds;
        if due {
            self.start_refill();
        }
        due
    }

    fn is_time_to_cruise(&self, ack: &AckSample) -> bool {
        ack.in_flight <= self.model.inflight_with_headroom(ack.mss)
            && ack.in_flight <= self.model.inflight(100, ack.mss)
    }

    fn is_time_to_go_down(&mut self, ack: &AckSample, sample: &RateSample) -> bool {
        if ack.window_limited && self.window >= self.model.inflight_hi {
            // It is the bound that limits: probing goes on while the bound grows.
            self.reset_full_bandwidth(sample.rate);
            return false;
        }
        self.full_bandwidth_now
    }

    /// §4.5.10.1: what the probe of the last round showed about the most that may be in flight.
    fn adapt_upper_bounds(&mut self, ack: &AckSample, sample: &RateSample) {
        if self.ack_phase == AckPhase::Starting && self.model.round_start {
            self.ack_phase = AckPhase::Feedback;
        }
        if self.ack_phase == AckPhase::Stopping && self.model.round_start {
            // The last of what was sent while probing has been heard of: losses from now on say nothing about the bound.
            self.probe_samples = false;
            self.ack_phase = AckPhase::None;
            if self.is_in_cycle() && !sample.app_limited {
                self.model.advance_bandwidth_filter();
            }
        }
        if u64::from(sample.lost) * 50 > u64::from(sample.in_flight) {
            if self.probe_samples {
                self.on_inflight_too_high(ack.now, sample.in_flight, sample.app_limited, ack.mss);
            }
            return;
        }
        if self.model.inflight_hi == NONE {
            return;
        }
        self.model.inflight_hi = self.model.inflight_hi.max(sample.in_flight);
        if self.phase == Phase::Up {
            self.raise_inflight_hi(ack);
        }
    }

    /// §4.3.3.4: the bound grows exponentially, a round at a time.
    fn raise_inflight_hi(&mut self, ack: &AckSample) {
        if !ack.window_limited || self.window < self.model.inflight_hi {
            return;
        }
        self.probe_up_acked = self.probe_up_acked.saturating_add(ack.delivered);
        if self.probe_up_acked >= self.probe_up_count {
            let steps = self.probe_up_acked / self.probe_up_count;
            self.probe_up_acked -= steps * self.probe_up_count;
            self.model.inflight_hi = self.model.inflight_hi.saturating_add(steps * ack.mss);
        }
        if self.model.round_start {
            self.raise_slope(ack.mss);
        }
    }

    /// Acknowledged bytes for each segment by which the bound grows.
    fn raise_slope(&mut self, mss: u32) {
        let segments = 1u32 << self.probe_up_rounds;
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_count = (self.window / segments).max(mss);
    }
}
