//! The retransmission timeout's consequences (RFC 6298 §5, RFC 5681 §3.1, RFC 9293 §3.8.3).

use base::Instant;

use super::rtt::RtoBounds;
use super::{Phase, Repair};
use crate::congestion::CongestionControl;
use crate::connection::Connection;
use crate::state::State;
use crate::timer::Timer;

impl Connection {
    pub(crate) fn rto_bounds(&self) -> RtoBounds {
        self.settings.rto_bounds()
    }

    /// Starts the retransmission timer from now (RFC 6298 §5.1 and §5.3).
    pub(crate) fn restart_retransmit_timer(&mut self, now: Instant) {
        let rto = self.rtt.rto(&self.rto_bounds());
        let wait = self.bounded_by_user_timeout(now, rto);
        self.timers.set(Timer::Retransmit, now + wait);
    }

    /// The retransmission timer expired (RFC 6298 §5.4 to §5.6).
    pub(crate) fn on_retransmission_timeout(&mut self, now: Instant) {
        if self.send.scoreboard.is_empty() {
            return;
        }
        if self.gives_up(now) {
            self.stats.rare().timeouts += 1;
            self.on_timed_out();
            return;
        }
        if self.probe_precedes_timeout(now) {
            return;
        }
        self.stats.rare().timeouts += 1;
        match self.state {
            State::SynSent | State::SynReceived if self.repeats_syn() => self.repeat_syn(),
            State::SynSent | State::SynReceived => {}
            State::Established
            | State::FinWait1
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::FinWait2
            | State::TimeWait
            | State::Closed => self.enter_timeout_recovery(now),
        }
        self.recovery.timeouts = self.recovery.timeouts.saturating_add(1);
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        self.restart_retransmit_timer(now);
    }

    /// R2 has been reached, by count or by the user's time (RFC 9293 §3.8.3, RFC 5482).
    fn gives_up(&self, now: Instant) -> bool {
        let stalled = now.saturating_since(self.recovery.progress_at);
        if let Some(limit) = self.settings.user_timeout()
            && (stalled >= limit || self.state.is_synchronised())
        {
            return stalled >= limit; // it takes the place of the count, as on Linux, and may be longer
        }
        let limit = match self.state {
            State::SynSent | State::SynReceived => self.settings.syn_retries.max(self.deferred_retries()),
            State::Closed
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.settings.retries,
        };
        self.recovery.timeouts >= limit
    }

    fn enter_timeout_recovery(&mut self, now: Instant) {
        let mss = u32::from(self.send.mss);
        let flight = self.flight_size(0);
        // RFC 5681 §3.1: ssthresh is lowered once for a loss, not again when the retransmission is lost too.
        let first = self.recovery.timeouts == 0;
        // RFC 5682 §3.1 step 1: what comes through while a loss is being repaired says nothing about the timeout.
        let is_fresh = first && self.recovery.phase == Phase::Open;
        if first {
            self.begin_undo();
        }
        self.congestion.on_timeout(now, flight, mss, first);
        self.send.scoreboard.mark_all_lost();
        self.recovery.dup_acks = 0;
        self.recovery.repair = Repair::Unknown;
        self.recovery.probe.end = 0;
        self.recovery.probe.due = false;
        self.recovery.phase = Phase::Timeout;
        self.recovery.high = self.send.nxt;
        self.begin_forward_recovery(is_fresh);
        self.timers.clear(Timer::Reordering);
        self.timers.clear(Timer::LossProbe);
        self.on_timeout_of_sizes(now);
    }
}
