//! Congestion control: how much may be in flight, behind a narrow trait.
//!
//! Loss evidence, recovery and delivery measurements belong to [`crate::recovery`]; an algorithm only hears what
//! happened. A loss found by acknowledgements and a timeout are different events, and so is the end of a recovery and the
//! discovery that it was needless.

mod bbr;
pub(crate) mod cubic;
mod hystart;
pub(crate) mod reno;

use base::{Duration, Instant};

use crate::config::CongestionAlgorithm;
use crate::recovery::rate::RateSample;
use crate::segment::Position;
use bbr::Bbr;
use cubic::Cubic;
use reno::NewReno;

/// What an acknowledgement means to congestion control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckSample {
    pub(crate) now: Instant,
    /// Bytes newly delivered.
    pub(crate) delivered: u32,
    /// The flight was limited by the congestion window (RFC 7661): only then may it grow.
    pub(crate) window_limited: bool,
    /// The effective MSS.
    pub(crate) mss: u32,
    /// SND.UNA after it.
    pub(crate) una: Position,
    /// SND.NXT.
    pub(crate) nxt: Position,
    /// The round trip of the latest transmission it delivered; zero: none is known.
    pub(crate) rtt: Duration,
    /// The smoothed round trip.
    pub(crate) srtt: Duration,
    /// Bytes in flight after it.
    pub(crate) in_flight: u32,
    /// The delivery rate, for an algorithm that is based on a model.
    pub(crate) rate: Option<RateSample>,
}

/// What the latest of some newly lost transmissions tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostSample {
    pub(crate) now: Instant,
    /// Bytes newly lost.
    pub(crate) len: u32,
    /// In how many ranges, as far as is known.
    pub(crate) ranges: u32,
    /// Bytes lost since it left, itself included.
    pub(crate) lost_since: u32,
    /// What was in flight when it left.
    pub(crate) in_flight: u32,
    /// The application had no more to send then.
    pub(crate) app_limited: bool,
    /// The effective MSS.
    pub(crate) mss: u32,
}

/// One algorithm's view of what happens.
pub(crate) trait CongestionControl {
    /// The congestion window in bytes.
    fn window(&self) -> u32;
    /// The slow-start threshold in bytes.
    fn ssthresh(&self) -> u32;
    /// Whether fast recovery sends by proportional rate reduction instead of `window`.
    fn uses_prr(&self) -> bool;
    /// Whether it hears of every delivery with its rate, in recovery too.
    fn is_model_based(&self) -> bool {
        false
    }
    /// The rate to send at in bytes a second; `None`: the window over a round trip.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
    /// It keeps the flight short for a moment, to see the round trip without a queue.
    fn is_probing_rtt(&self) -> bool {
        false
    }
    /// Transmissions were found lost (only for an algorithm that is based on a model).
    fn on_lost(&mut self, _lost: &LostSample) {}
    /// Data was delivered, and no recovery is in progress, or one after a timeout.
    fn on_ack(&mut self, ack: &AckSample);
    /// A loss was found by acknowledgements with `flight` bytes in flight: fast recovery begins.
    fn on_loss_found(&mut self, now: Instant, flight: u32, mss: u32);
    /// The retransmission timer expired with `flight` bytes in flight. `first`: not again for the same data.
    fn on_timeout(&mut self, now: Instant, flight: u32, mss: u32, first: bool);
    /// Fast recovery ended with `flight` bytes in flight.
    fn on_recovered(&mut self, now: Instant, flight: u32, mss: u32);
    /// All that was in flight at a timeout is acknowledged.
    fn on_timeout_recovered(&mut self) {}
    /// Remember the present for a possible `on_undo`.
    fn save(&mut self);
    /// What `save` remembered will not be asked for.
    fn forget(&mut self) {}
    /// Everything sent is acknowledged: an idle connection keeps no memory.
    fn on_flight_end(&mut self) {}
    /// What happened since `save` was a mistake.
    fn on_undo(&mut self, now: Instant);
    /// Sending starts again after `idle`, longer than a retransmission timeout (RFC 5681 §4.1).
    fn on_idle(&mut self, idle: Duration, rto: Duration, restart_window: u32);
}

/// The algorithms.
#[derive(Clone, Debug)]
pub(crate) enum Congestion {
    NewReno(NewReno),
    Cubic(Cubic),
    Bbr(Box<Bbr>),
}

impl Congestion {
    pub(crate) fn new(algorithm: CongestionAlgorithm, initial_window: u32) -> Self {
        match algorithm {
            CongestionAlgorithm::NewReno => Self::NewReno(NewReno::new(initial_window)),
            CongestionAlgorithm::Cubic => Self::Cubic(Cubic::new(initial_window)),
            CongestionAlgorithm::Bbr => Self::Bbr(Box::new(Bbr::new(initial_window))),
        }
    }

    pub(crate) fn algorithm(&self) -> CongestionAlgorithm {
        match self {
            Self::NewReno(_) => CongestionAlgorithm::NewReno,
            Self::Cubic(_) => CongestionAlgorithm::Cubic,
            Self::Bbr(_) => CongestionAlgorithm::Bbr,
        }
    }

    /// Goes on from a snapshot.
    pub(crate) fn restored(algorithm: CongestionAlgorithm, window: u32, ssthresh: u32) -> Self {
        match algorithm {
            CongestionAlgorithm::NewReno => Self::NewReno(NewReno::restored(window, ssthresh)),
            CongestionAlgorithm::Cubic => Self::Cubic(Cubic::restored(window, ssthresh)),
            // The path has to be measured anew.
            CongestionAlgorithm::Bbr => Self::Bbr(Box::new(Bbr::new(window))),
        }
    }
}

impl CongestionControl for Congestion {
    #[inline]
    fn window(&self) -> u32 {
        match self {
            Self::NewReno(reno) => reno.window(),
            Self::Cubic(cubic) => cubic.window(),
            Self::Bbr(bbr) => bbr.window(),
        }
    }

    fn ssthresh(&self) -> u32 {
        match self {
            Self::NewReno(reno) => reno.ssthresh(),
            Self::Cubic(cubic) => cubic.ssthresh(),
            Self::Bbr(bbr) => bbr.ssthresh(),
        }
    }

    #[inline]
    fn uses_prr(&self) -> bool {
        match self {
            Self::NewReno(reno) => reno.uses_prr(),
            Self::Cubic(cubic) => cubic.uses_prr(),
            Self::Bbr(bbr) => bbr.uses_prr(),
        }
    }

    #[inline]
    fn is_model_based(&self) -> bool {
        matches!(self, Self::Bbr(_))
    }

    #[inline]
    fn pacing_rate(&self) -> Option<u64> {
        match self {
            Self::NewReno(_) | Self::Cubic(_) => None,
            Self::Bbr(bbr) => bbr.pacing_rate(),
        }
    }

    fn is_probing_rtt(&self) -> bool {
        match self {
            Self::NewReno(_) | Self::Cubic(_) => false,
            Self::Bbr(bbr) => bbr.is_probing_rtt(),
        }
    }

    fn on_lost(&mut self, lost: &LostSample) {
        match self {
            Self::NewReno(_) | Self::Cubic(_) => {}
            Self::Bbr(bbr) => bbr.on_lost(lost),
        }
    }

    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        match self {
            Self::NewReno(reno) => reno.on_ack(ack),
            Self::Cubic(cubic) => cubic.on_ack(ack),
            Self::Bbr(bbr) => bbr.on_ack(ack),
        }
    }

    fn on_loss_found(&mut self, now: Instant, flight: u32, mss: u32) {
        match self {
            Self::NewReno(reno) => reno.on_loss_found(now, flight, mss),
            Self::Cubic(cubic) => cubic.on_loss_found(now, flight, mss),
            Self::Bbr(bbr) => bbr.on_loss_found(now, flight, mss),
        }
    }

    fn on_timeout(&mut self, now: Instant, flight: u32, mss: u32, first: bool) {
        match self {
            Self::NewReno(reno) => reno.on_timeout(now, flight, mss, first),
            Self::Cubic(cubic) => cubic.on_timeout(now, flight, mss, first),
            Self::Bbr(bbr) => bbr.on_timeout(now, flight, mss, first),
        }
    }

    fn on_recovered(&mut self, now: Instant, flight: u32, mss: u32) {
        match self {
            Self::NewReno(reno) => reno.on_recovered(now, flight, mss),
            Self::Cubic(cubic) => cubic.on_recovered(now, flight, mss),
            Self::Bbr(bbr) => bbr.on_recovered(now, flight, mss),
        }
    }

    fn on_timeout_recovered(&mut self) {
        match self {
            Self::NewReno(_) | Self::Cubic(_) => {}
            Self::Bbr(bbr) => bbr.on_timeout_recovered(),
        }
    }

    fn save(&mut self) {
        match self {
            Self::NewReno(reno) => reno.save(),
            Self::Cubic(cubic) => cubic.save(),
            Self::Bbr(bbr) => bbr.save(),
        }
    }

    fn forget(&mut self) {
        match self {
            Self::NewReno(reno) => reno.forget(),
            Self::Cubic(cubic) => cubic.forget(),
            Self::Bbr(bbr) => bbr.forget(),
        }
    }

    #[inline]
    fn on_flight_end(&mut self) {
        match self {
            Self::NewReno(reno) => reno.on_flight_end(),
            Self::Cubic(cubic) => cubic.on_flight_end(),
            Self::Bbr(bbr) => bbr.on_flight_end(),
        }
    }

    fn on_undo(&mut self, now: Instant) {
        match self {
            Self::NewReno(reno) => reno.on_undo(now),
            Self::Cubic(cubic) => cubic.on_undo(now),
            Self::Bbr(bbr) => bbr.on_undo(now),
        }
    }

    fn on_idle(&mut self, idle: Duration, rto: Duration, restart_window: u32) {
        match self {
            Self::NewReno(reno) => reno.on_idle(idle, rto, restart_window),
            Self::Cubic(cubic) => cubic.on_idle(idle, rto, restart_window),
            Self::Bbr(bbr) => bbr.on_idle(idle, rto, restart_window),
        }
    }
}
