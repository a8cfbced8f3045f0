//! Looking for the round trip without a queue: for a moment, little is kept in flight (§4.3.4).

use base::Duration;

use super::{AckPhase, Bbr, Phase};
use crate::congestion::AckSample;

/// ProbeRTTInterval, ProbeRTTDuration, MinRTTFilterLen.
const INTERVAL: Duration = Duration::from_secs(5);
const DURATION: Duration = Duration::from_millis(200);
const FILTER: Duration = Duration::from_secs(10);

impl Bbr {
    /// §4.3.4.3.
    pub(super) fn update_min_rtt(&mut self, ack: &AckSample) {
        let now = ack.now;
        // The intervals begin with the first sample.
        let measured = self.probe_rtt_min != Duration::MAX;
        self.probe_rtt_expired = measured && now > self.probe_rtt_min_at + INTERVAL;
        let has_sample = ack.rtt != Duration::ZERO;
        if has_sample && (ack.rtt < self.probe_rtt_min || self.probe_rtt_expired) {
            self.probe_rtt_min = ack.rtt;
            self.probe_rtt_min_at = now;
        }
        let expired = measured && now > self.model.min_rtt_at + FILTER;
        if self.probe_rtt_min < self.model.min_rtt || expired {
            self.model.min_rtt = self.probe_rtt_min;
            self.model.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    /// §4.3.4.4.
    pub(super) fn check_probe_rtt(&mut self, ack: &AckSample) {
        if self.phase != Phase::ProbeRtt && self.probe_rtt_expired {
            self.prior_window = self.prior_window.max(self.window);
            self.phase = Phase::ProbeRtt;
            self.probe_rtt_done_at = None;
            self.ack_phase = AckPhase::Stopping;
            self.model.start_round();
        }
        if self.phase != Phase::ProbeRtt {
            return;
        }
        match self.probe_rtt_done_at {
            None if ack.in_flight <= self.probe_rtt_window(ack.mss) => {
                self.probe_rtt_done_at = Some(ack.now + DURATION);
                self.probe_rtt_round_done = false;
                self.model.start_round();
            }
            None => {}
            Some(done_at) => {
                self.probe_rtt_round_done |= self.model.round_start;
                if self.probe_rtt_round_done && ack.now > done_at {
                    self.leave_probe_rtt(ack);
                }
            }
        }
    }

    fn leave_probe_rtt(&mut self, ack: &AckSample) {
        self.probe_rtt_min_at = ack.now;
        self.window = self.window.max(self.prior_window);
        self.prior_window = 0;
        self.model.reset_lower_bounds();
        if self.full_bandwidth_reached {
            self.start_down(ack.now);
            self.start_cruise();
        } else {
            self.phase = Phase::Startup;
        }
    }

    /// Half of the bandwidth-delay product (§4.3.4.2).
    pub(super) fn probe_rtt_window(&self, mss: u32) -> u32 {
        self.model.inflight(50, mss)
    }
}
