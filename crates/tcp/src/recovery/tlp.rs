//! Tail loss probes: when the last segments of a flight are lost, nothing comes back that could show it (RFC 8985 §7).
//!
//! Two round trips after the last transmission a probe goes out: new data if there is some, else the last segment once
//! more. Its acknowledgement starts the ordinary recovery long before the retransmission timeout would.

use base::{Duration, Instant};

use super::{AckSummary, Phase};
use crate::congestion::CongestionControl;
use crate::connection::Connection;
use crate::segment::Position;
use crate::timer::Timer;

/// The longest that a peer may hold an acknowledgement back (TLP.max_ack_delay).
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// A probe sooner than this would only measure the scheduling of the peer (Linux: two jiffies).
const MIN_TIMEOUT: Duration = Duration::from_millis(2);
/// The probe timeout before a round trip was measured (RFC 8985 §7.2).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The probe in flight.
#[derive(Clone, Debug)]
pub(crate) struct LossProbe {
    /// SND.NXT when the probe was sent (TLP.end_seq); 0: no probe in flight.
    pub(crate) end: Position,
    /// The probe repeated data (TLP.is_retrans).
    pub(crate) repeats: bool,
    /// The timer has expired: the next poll sends the probe.
    pub(crate) due: bool,
}

impl LossProbe {
    pub(crate) const fn new() -> Self {
        Self { end: 0, repeats: false, due: false }
    }
}

impl Connection {
    /// Arms the probe timer after new data was sent or acknowledged (RFC 8985 §7.2).
    pub(crate) fn schedule_loss_probe(&mut self, now: Instant) {
        let applies = self.settings.sack
            && self.state.is_synchronised()
            && self.recovery.phase == Phase::Open
            && self.recovery.probe.end == 0
            && self.send.scoreboard.in_flight() > 0
            && self.send.scoreboard.sacked() == 0
            && !self.timers.is_set(Timer::Reordering);
        if !applies {
            self.timers.clear(Timer::LossProbe);
            return;
        }
        let mut timeout = if self.rtt.has_sample() {
            (self.rtt.srtt * 2).max(self.settings.granularity() * 2).max(MIN_TIMEOUT)
        } else {
            INITIAL_TIMEOUT
        };
        if self.send.outstanding() <= u64::from(self.send.mss) {
            timeout += MAX_ACK_DELAY;
        }
        // §7.2: not later than the retransmission timeout, in whose stead the probe goes out then.
        let at = self.timers.at(Timer::Retransmit).map_or(now + timeout, |at| at.min(now + timeout));
        self.timers.set(Timer::LossProbe, at);
    }

    /// The retransmission timer has expired. If a probe is due too, it goes first, and the timeout runs from it
    /// (RFC 8985 §7.2 and §7.3): one lost segment does not cost the whole congestion window.
    pub(crate) fn probe_precedes_timeout(&mut self, now: Instant) -> bool {
        if !self.timers.take_expired(Timer::LossProbe, now) {
            return false;
        }
        self.recovery.probe.due = true;
        self.restart_retransmit_timer(now);
        true
    }

    /// RFC 8985 §7.4.2: what an acknowledgement says about the probe in flight.
    pub(crate) fn on_ack_of_probe(&mut self, now: Instant, ack: &AckSummary) {
        let probe = &mut self.recovery.probe;
        if probe.end == 0 || self.send.una < probe.end {
            return;
        }
        let repaired = probe.repeats
            && !ack.duplicate_sack
            && (self.send.una > probe.end || (ack.advanced > 0 && !ack.original_delivered));
        probe.end = 0;
        if repaired && self.recovery.phase == Phase::Open {
            // The probe itself repaired a loss: the congestion control must hear of it.
            let mss = u32::from(self.send.mss);
            let flight = self.flight_size(ack.advanced);
            self.congestion.on_loss_found(now, flight, mss);
            let pipe = self.pipe();
            self.congestion.on_recovered(now, pipe, mss);
        }
    }
}
