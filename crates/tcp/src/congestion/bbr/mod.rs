//! BBRv3: a model of the path instead of a reaction to loss (draft-ietf-ccwg-bbr).
//!
//! The bottleneck's bandwidth and the round trip without a queue are estimated; the sending rate and the window follow from
//! them. Bounds on what may be in flight are learned from loss while probing (`inflight_hi`) and kept lower for
//! a while after congestion (`bw_lo`, `inflight_lo`). A file a phase: [`startup`] (with draining), [`probe_bw`],
//! [`probe_rtt`]; what all share is in [`model`].

mod model;
mod probe_bw;
mod probe_rtt;
mod startup;

use base::{Duration, Instant};

use super::{AckSample, CongestionControl, LostSample};
use crate::segment::Position;
use model::{Model, Sender};

/// The phases (§4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// What the acknowledgements of now tell about the last bandwidth probe (§4.3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Starting,
    Feedback,
    Stopping,
    Refilling,
    None,
}

/// No bound.
const NONE: u32 = u32::MAX;
const NO_RATE: u64 = u64::MAX;

/// BBR's variables, boxed: a connection that uses another algorithm does not pay for them.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    phase: Phase,
    ack_phase: AckPhase,
    model: Model,
    window: u32,
    initial_window: u32,
    /// The window before recovery or before probing the round trip.
    prior_window: u32,
    /// Bytes a second; 0: not yet known.
    pacing_rate: u64,
    /// Startup has found the bandwidth (BBR.full_bw_reached).
    full_bandwidth_reached: bool,
    /// The bandwidth no longer grows in this probe (BBR.full_bw_now).
    full_bandwidth_now: bool,
    full_bandwidth: u64,
    full_bandwidth_rounds: u8,
    /// When the phase of the bandwidth cycle began.
    cycle_at: Instant,
    probe_wait: Duration,
    rounds_since_probe: u32,
    /// Losses tell about inflight_hi (BBR.bw_probe_samples).
    probe_samples: bool,
    probe_up_count: u32,
    probe_up_acked: u32,
    probe_up_rounds: u8,
    /// The next time the round trip is to be probed follows from these.
    probe_rtt_min: Duration,
    probe_rtt_min_at: Instant,
    probe_rtt_done_at: Option<Instant>,
    probe_rtt_round_done: bool,
    probe_rtt_expired: bool,
}

impl Bbr {
    pub(crate) fn new(initial_window: u32) -> Self {
        Self {
            phase: Phase::Startup,
            ack_phase: AckPhase::None,
            model: Model::new(),
            window: initial_window,
            initial_window,
            prior_window: 0,
            pacing_rate: 0,
            full_bandwidth_reached: false,
            full_bandwidth_now: false,
            full_bandwidth: 0,
            full_bandwidth_rounds: 0,
            cycle_at: Instant::ZERO,
            probe_wait: Duration::ZERO,
            rounds_since_probe: 0,
            probe_samples: false,
            probe_up_count: NONE,
            probe_up_acked: 0,
            probe_up_rounds: 0,
            probe_rtt_min: Duration::MAX,
            probe_rtt_min_at: Instant::ZERO,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            probe_rtt_expired: false,
        }
    }

    /// Pacing gain of the phase, in hundredths (§2.4 and §4.3).
    const fn pacing_gain(&self) -> u64 {
        match self.phase {
            Phase::Startup => 277,
            Phase::Drain => 35,
            Phase::Down => 90,
            Phase::Cruise | Phase::Refill | Phase::ProbeRtt => 100,
            Phase::Up => 125,
        }
    }

    /// Window gain of the phase, in hundredths.
    const fn window_gain(&self) -> u64 {
        match self.phase {
            Phase::Startup | Phase::Drain | Phase::Down | Phase::Cruise | Phase::Refill => 200,
            Phase::Up => 225,
            Phase::ProbeRtt => 50,
        }
    }

    const fn is_probing_bandwidth(&self) -> bool {
        matches!(self.phase, Phase::Startup | Phase::Refill | Phase::Up)
    }

    const fn is_in_cycle(&self) -> bool {
        matches!(self.phase, Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up)
    }

    /// §4.6.2: slower only once the pipe is known to be full.
    fn set_pacing_rate(&mut self) {
        let rate = (u128::from(self.model.bandwidth()) * u128::from(self.pacing_gain()) * 99 / 10_000) as u64;
        if rate > 0 && (self.full_bandwidth_reached || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// What the pacing, or the window while the round trip is probed, lets out in bytes a second.
    fn allowed_rate(&self) -> u64 {
        if self.phase == Phase::ProbeRtt {
            self.pacing_rate / 100 * self.window_gain()
        } else {
            self.pacing_rate
        }
    }

    /// §4.6.4.
    fn set_window(&mut self, ack: &AckSample) {
        let most = self.model.inflight(self.window_gain(), ack.mss).saturating_add(self.model.extra_acked());
        if self.full_bandwidth_reached {
            self.window = self.window.saturating_add(ack.delivered).min(most);
        } else if self.window < most || self.model.delivered < Position::from(self.initial_window) {
            self.window = self.window.saturating_add(ack.delivered);
        }
        self.window = self.window.max(4 * ack.mss);
        if self.phase == Phase::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window(ack.mss));
        }
        self.bound_window(ack.mss);
    }

    /// §4.6.4.7: what the model of the path allows.
    fn bound_window(&mut self, mss: u32) {
        let hi = match self.phase {
            Phase::Down | Phase::Refill | Phase::Up => self.model.inflight_hi,
            Phase::Cruise | Phase::ProbeRtt => self.model.inflight_with_headroom(mss),
            Phase::Startup | Phase::Drain => NONE,
        };
        self.window = self.window.min(hi.min(self.model.inflight_lo).max(4 * mss));
    }

    /// §4.5.10.3: the target of probing.
    fn target_inflight(&self, mss: u32) -> u32 {
        self.model.inflight(100, mss).min(self.window)
    }

    /// §4.5.10.4: a probe went too far.
    fn on_inflight_too_high(&mut self, now: Instant, in_flight: u32, app_limited: bool, mss: u32) {
        self.probe_samples = false;
        if !app_limited {
            let floor = (u64::from(self.target_inflight(mss)) * 7 / 10) as u32;
            self.model.inflight_hi = in_flight.max(floor);
        }
        if self.phase == Phase::Up {
            self.start_down(now);
        }
    }
}

impl CongestionControl for Bbr {
    fn window(&self) -> u32 {
        self.window
    }

    fn ssthresh(&self) -> u32 {
        if self.full_bandwidth_reached { self.window } else { NONE }
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn is_model_based(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<u64> {
        (self.pacing_rate > 0).then_some(self.pacing_rate)
    }

    fn is_probing_rtt(&self) -> bool {
        self.phase == Phase::ProbeRtt
    }

    fn on_ack(&mut self, ack: &AckSample) {
        let Some(sample) = &ack.rate else { return };
        let probing = self.is_probing_bandwidth();
        let sender = Sender { window: self.window, rate: self.allowed_rate() };
        self.model.on_sample(ack, sample, probing, sender);
        if self.model.round_start {
            self.rounds_since_probe = self.rounds_since_probe.saturating_add(1);
        }
        self.check_full_bandwidth(sample);
        self.check_startup_high_loss(ack);
        self.check_startup_done();
        self.check_drain_done(ack);
        self.update_cycle(ack, sample);
        self.update_min_rtt(ack);
        self.check_probe_rtt(ack);
        self.model.end_of_sample(sample);
        self.set_pacing_rate();
        self.set_window(ack);
    }

    fn on_lost(&mut self, lost: &LostSample) {
        self.model.on_loss(lost.len, lost.ranges);
        if !self.probe_samples {
            return;
        }
        // §4.5.10.2: how much was in flight when the loss became too much.
        let too_much = |lost_bytes: u64, in_flight: u64| lost_bytes * 50 > in_flight;
        let (lost_bytes, in_flight) = (u64::from(lost.lost_since), u64::from(lost.in_flight));
        if too_much(lost_bytes, in_flight) {
            let before = in_flight.saturating_sub(lost.len.into());
            let lost_before = lost_bytes.saturating_sub(lost.len.into());
            let prefix = (before / 50).saturating_sub(lost_before) * 50 / 49;
            self.on_inflight_too_high(lost.now, (before + prefix) as u32, lost.app_limited, lost.mss);
        }
    }

    fn on_loss_found(&mut self, _now: Instant, _flight: u32, _mss: u32) {
        self.prior_window = self.prior_window.max(self.window);
    }

    fn on_timeout(&mut self, _now: Instant, _flight: u32, mss: u32, first: bool) {
        if first {
            self.prior_window = self.prior_window.max(self.window);
        }
        self.window = mss;
    }

    fn on_recovered(&mut self, _now: Instant, _flight: u32, _mss: u32) {
        // While the round trip is probed, the window of before is still wanted.
        if self.phase != Phase::ProbeRtt {
            self.prior_window = 0;
        }
    }

    fn on_timeout_recovered(&mut self) {
        // BBRRestoreCwnd: the model has not changed, only its data was lost.
        self.window = self.window.max(self.prior_window);
        if self.phase != Phase::ProbeRtt {
            self.prior_window = 0;
        }
    }

    fn save(&mut self) {
        self.prior_window = self.prior_window.max(self.window);
    }

    fn on_undo(&mut self, _now: Instant) {
        self.window = self.window.max(self.prior_window);
        self.model.reset_lower_bounds();
        self.model.forget_loss();
    }

    fn on_idle(&mut self, _idle: Duration, _rto: Duration, _restart_window: u32) {
        // §4.4.3: pacing at the estimated rate makes a burst impossible; the window stays.
    }
}

#[cfg(test)]
mod tests;
