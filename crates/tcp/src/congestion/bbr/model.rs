//! The model of the path (§4.5): bandwidth, round trip, what may be in flight.

use base::{Duration, Instant};

use super::{NO_RATE, NONE};
use crate::congestion::AckSample;
use crate::recovery::rate::RateSample;
use crate::segment::Position;

/// How many rounds the largest aggregation is remembered.
const EXTRA_ACKED_ROUNDS: u32 = 10;

/// What the sender does while a sample is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    /// Its window.
    pub(crate) window: u32,
    /// What it lets out in bytes a second.
    pub(crate) rate: u64,
}

/// What is believed of the path.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The largest bandwidth in this cycle and in the one before (BBR.max_bw's filter), bytes a second.
    max_bandwidth: [u64; 2],
    /// BBR.bw_lo.
    bw_lo: u64,
    bw_latest: u64,
    pub(crate) inflight_latest: u64,
    /// The lowest pacing rates of this round and of the one before, which sent what is delivered now.
    paced: [u64; 2],
    /// BBR.min_rtt; MAX: no sample.
    pub(crate) min_rtt: Duration,
    pub(crate) min_rtt_at: Instant,
    /// The most that may be in flight without too much loss (BBR.inflight_hi).
    pub(crate) inflight_hi: u32,
    /// BBR.inflight_lo.
    pub(crate) inflight_lo: u32,
    /// Everything delivered so far, as a position.
    pub(crate) delivered: Position,
    next_round: Position,
    pub(crate) round_start: bool,
    rounds: u32,
    loss_round: Position,
    pub(crate) loss_round_start: bool,
    loss_in_round: bool,
    /// Bytes and events of loss in the running loss round.
    pub(crate) lost_in_round: u32,
    pub(crate) loss_events: u32,
    /// The aggregation interval (§4.5.9) and its largest excesses.
    interval_at: Instant,
    interval_delivered: u64,
    extra_acked: [u32; 2],
    extra_rounds: u32,
}

impl Model {
    pub(crate) const fn new() -> Self {
        Self {
            max_bandwidth: [0; 2],
            bw_lo: NO_RATE,
            bw_latest: 0,
            inflight_latest: 0,
            paced: [0; 2],
            min_rtt: Duration::MAX,
            min_rtt_at: Instant::ZERO,
            inflight_hi: NONE,
            inflight_lo: NONE,
            delivered: 0,
            next_round: 0,
            round_start: false,
            rounds: 0,
            loss_round: 0,
            loss_round_start: false,
            loss_in_round: false,
            lost_in_round: 0,
            loss_events: 0,
            interval_at: Instant::ZERO,
            interval_delivered: 0,
            extra_acked: [0; 2],
            extra_rounds: 0,
        }
    }

    /// BBR.max_bw.
    pub(crate) fn max_bandwidth(&self) -> u64 {
        self.max_bandwidth[0].max(self.max_bandwidth[1])
    }

    /// BBR.bw: the bandwidth to send at.
    pub(crate) fn bandwidth(&self) -> u64 {
        self.max_bandwidth().min(self.bw_lo)
    }

    /// The largest recent excess of acknowledgements over the bandwidth (§4.5.9).
    pub(crate) fn extra_acked(&self) -> u32 {
        self.extra_acked[0].max(self.extra_acked[1])
    }

    /// `gain` hundredths of the bandwidth-delay product, with room for super-segments (§4.6.4.2).
    pub(crate) fn inflight(&self, gain: u64, mss: u32) -> u32 {
        if self.min_rtt == Duration::MAX {
            return NONE;
        }
        let product = u128::from(self.bandwidth()) * u128::from(self.min_rtt.as_nanos()) / 1_000_000_000;
        let bytes = product * u128::from(gain) / 100 + 3 * u128::from(mss);
        u32::try_from(bytes).unwrap_or(NONE).max(4 * mss)
    }

    /// §4.5.10.5: below inflight_hi by what other flows may need.
    pub(crate) fn inflight_with_headroom(&self, mss: u32) -> u32 {
        if self.inflight_hi == NONE {
            return NONE;
        }
        let headroom = (u64::from(self.inflight_hi) * 15 / 100).max(mss.into()) as u32;
        self.inflight_hi.saturating_sub(headroom).max(4 * mss)
    }

    /// Takes one sample: rounds, signals, bandwidth, aggregation (§4.5.2 to §4.5.9).
    pub(crate) fn on_sample(&mut self, ack: &AckSample, sample: &RateSample, probing: bool, sender: Sender) {
        self.delivered = sample.prior_delivered + sample.delivered;
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        if sample.prior_delivered >= self.loss_round {
            self.loss_round = self.delivered;
            self.loss_round_start = true;
        }
        self.round_start = sample.prior_delivered >= self.next_round;
        if self.round_start {
            self.start_round();
            self.rounds = self.rounds.wrapping_add(1);
            self.paced = [sender.rate, self.paced[0]];
        }
        self.paced[0] = self.paced[0].min(sender.rate);
        if sample.rate > 0 && (sample.rate >= self.max_bandwidth() || !sample.app_limited) {
            self.max_bandwidth[0] = self.max_bandwidth[0].max(sample.rate);
        }
        self.update_aggregation(ack, sender.window);
        if self.loss_round_start && self.loss_in_round && !probing && !self.delivers_all() {
            self.adapt_lower_bounds(sender.window);
        }
    }

    /// After everything else that looks at a sample.
    pub(crate) fn end_of_sample(&mut self, sample: &RateSample) {
        if self.loss_round_start {
            self.bw_latest = sample.rate;
            self.inflight_latest = sample.delivered;
            self.loss_in_round = false;
            self.lost_in_round = 0;
            self.loss_events = 0;
        }
    }

    /// The next round ends when all that is delivered now has been followed by a round trip.
    pub(crate) fn start_round(&mut self) {
        self.next_round = self.delivered;
    }

    pub(crate) fn on_loss(&mut self, len: u32, ranges: u32) {
        if !self.loss_in_round {
            self.loss_round = self.delivered;
        }
        self.loss_in_round = true;
        self.lost_in_round = self.lost_in_round.saturating_add(len);
        self.loss_events = self.loss_events.saturating_add(ranges);
    }

    /// Whether the path has delivered, in the round that ends, what the pacing let go, but for what it may lose.
    ///
    /// A deviation from §4.5.10.6, which lowers the bounds after every round with loss: what is delivered of a flow that
    /// is paced below the bandwidth (by the margin of §4.6.2, or by Down's gain) is its own rate and not the path's.
    /// Taken for the path's, every random loss lowers the bound by the margin, and the next ones further. Loss of less
    /// than BBRLossThresh is no sign of a full path while probing, and here it is none either.
    fn delivers_all(&self) -> bool {
        let rate = self.paced[0].min(self.paced[1]);
        self.bw_latest >= rate - rate / 50
    }

    /// §4.5.10.6: after a round with loss, while not probing.
    fn adapt_lower_bounds(&mut self, window: u32) {
        if self.bw_lo == NO_RATE {
            self.bw_lo = self.max_bandwidth();
        }
        if self.inflight_lo == NONE {
            self.inflight_lo = window;
        }
        self.bw_lo = self.bw_latest.max(self.bw_lo / 10 * 7);
        let reduced = (u64::from(self.inflight_lo) * 7 / 10).max(self.inflight_latest);
        self.inflight_lo = u32::try_from(reduced).unwrap_or(NONE);
    }

    pub(crate) fn reset_lower_bounds(&mut self) {
        self.bw_lo = NO_RATE;
        self.inflight_lo = NONE;
    }

    pub(crate) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    /// The loss in the running round was none.
    pub(crate) fn forget_loss(&mut self) {
        self.loss_in_round = false;
        self.lost_in_round = 0;
        self.loss_events = 0;
    }

    /// A cycle of probing ended: the bandwidth of the cycle before is forgotten.
    pub(crate) fn advance_bandwidth_filter(&mut self) {
        self.max_bandwidth = [0, self.max_bandwidth[0]];
    }

    /// §4.5.9: acknowledgements that come faster than the bandwidth, in clumps.
    fn update_aggregation(&mut self, ack: &AckSample, window: u32) {
        if self.round_start {
            self.extra_rounds += 1;
            if self.extra_rounds >= EXTRA_ACKED_ROUNDS {
                self.extra_rounds = 0;
                self.extra_acked = [0, self.extra_acked[0]];
            }
        }
        let elapsed = ack.now.saturating_since(self.interval_at);
        let expected = (u128::from(self.bandwidth()) * u128::from(elapsed.as_nanos()) / 1_000_000_000) as u64;
        if self.interval_delivered <= expected {
            self.interval_delivered = 0;
            self.interval_at = ack.now;
        }
        let expected = if self.interval_delivered == 0 { 0 } else { expected };
        self.interval_delivered += u64::from(ack.delivered);
        let extra = self.interval_delivered.saturating_sub(expected).min(window.into()) as u32;
        self.extra_acked[0] = self.extra_acked[0].max(extra);
    }
}
