//! Startup doubles the rate each round until the bandwidth no longer grows; Drain empties the queue that it made (§4.3.1,
//! §4.3.2).

use super::{Bbr, NONE, Phase};
use crate::congestion::AckSample;
use crate::recovery::rate::RateSample;

/// Loss events in one round that end Startup, if they are over two percent (§4.3.1.3).
const LOSS_EVENTS: u32 = 6;

impl Bbr {
    /// §4.3.1.2: three rounds without a quarter more.
    pub(super) fn check_full_bandwidth(&mut self, sample: &RateSample) {
        if self.full_bandwidth_now || !self.model.round_start || sample.app_limited {
            return;
        }
        if sample.rate >= self.full_bandwidth / 4 * 5 {
            self.reset_full_bandwidth(sample.rate);
            return;
        }
        self.full_bandwidth_rounds += 1;
        self.full_bandwidth_now = self.full_bandwidth_rounds >= 3;
        self.full_bandwidth_reached |= self.full_bandwidth_now;
    }

    pub(super) fn reset_full_bandwidth(&mut self, rate: u64) {
        self.full_bandwidth = rate;
        self.full_bandwidth_rounds = 0;
        self.full_bandwidth_now = false;
    }

    /// §4.3.1.3: a round with much loss shows the end of the path too.
    pub(super) fn check_startup_high_loss(&mut self, ack: &AckSample) {
        if self.phase != Phase::Startup
            || !self.model.loss_round_start
            || self.model.loss_events < LOSS_EVENTS
        {
            return;
        }
        if u64::from(self.model.lost_in_round) * 50 > u64::from(self.window) {
            self.full_bandwidth_reached = true;
            let delivered = u32::try_from(self.model.inflight_latest).unwrap_or(NONE);
            self.model.inflight_hi = self.model.inflight(100, ack.mss).max(delivered);
        }
    }

    pub(super) fn check_startup_done(&mut self) {
        if self.phase == Phase::Startup && self.full_bandwidth_reached {
            self.phase = Phase::Drain;
        }
    }

    pub(super) fn check_drain_done(&mut self, ack: &AckSample) {
        if self.phase == Phase::Drain && ack.in_flight <= self.model.inflight(100, ack.mss) {
            self.start_down(ack.now);
        }
    }
}
