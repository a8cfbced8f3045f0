//! What happens when a timer expires.

use base::Instant;

use crate::connection::Connection;
use crate::recovery::{AckSummary, Phase};
use crate::state::{Event, State};
use crate::timer::Timer;

impl Connection {
    /// When [`handle_deadline`](Self::handle_deadline) wants to be called next, if nothing else happens.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Time has passed: acts on every timer that has expired by `now`. Poll for output afterwards.
    pub fn handle_deadline(&mut self, now: Instant) {
        for timer in Timer::ALL {
            if self.timers.take_expired(timer, now) {
                self.on_timer(now, timer);
            }
        }
        self.account(now);
    }

    fn on_timer(&mut self, now: Instant, timer: Timer) {
        match timer {
            Timer::Retransmit => self.on_retransmission_timeout(now),
            Timer::LossProbe => self.recovery.probe.due = true,
            Timer::Reordering => self.on_reordering_timeout(now),
            Timer::Persist => self.on_persist_timeout(now),
            Timer::DelayedAck => self.on_delayed_ack_timeout(),
            Timer::Keepalive => self.on_keepalive_timeout(now),
            Timer::Linger => self.on_linger_over(),
            Timer::Pacing => {}
        }
    }

    /// FIN-WAIT-2 or TIME-WAIT is over, or the patience with a peer that does not read what an orphan has left.
    fn on_linger_over(&mut self) {
        if !self.on_event(Event::LingerExpired) {
            // The other end is there, and would wait for ever.
            self.pending.reset = true;
            self.on_timed_out();
        }
    }

    /// RFC 8985 §6.3: the reordering window of the oldest suspect is over.
    fn on_reordering_timeout(&mut self, now: Instant) {
        let prior_in_flight = self.pipe();
        let lost = self.detect_by_time(now);
        if lost > 0 && self.recovery.phase == Phase::Open {
            self.on_loss_found(now, &AckSummary { prior_in_flight, ..AckSummary::default() });
        }
        if lost > 0 {
            self.restart_retransmit_timer(now);
        }
    }

    fn on_delayed_ack_timeout(&mut self) {
        self.pending.ack = true;
    }

    /// Arms the keepalive timer if keepalive is wanted and the state has somebody to probe.
    pub(crate) fn arm_keepalive(&mut self, now: Instant) {
        match self.settings.keepalive() {
            Some(keepalive)
                if self.state.is_synchronised() && self.state != State::TimeWait && !self.cut_through =>
            {
                self.timers.set(Timer::Keepalive, now + keepalive.idle);
            }
            _ => self.timers.clear(Timer::Keepalive),
        }
    }

    /// RFC 9293 §3.8.4: a probe after a long silence, several before the peer is given up.
    fn on_keepalive_timeout(&mut self, now: Instant) {
        let Some(keepalive) = self.settings.keepalive() else { return };
        let silent = self.heard_at.elapsed(now);
        if self.pending.keepalives == 0 && silent < keepalive.idle {
            self.timers.set(Timer::Keepalive, now + keepalive.idle.saturating_sub(silent));
            return;
        }
        // Data in flight or a closed window have timers of their own.
        let busy = !self.send.scoreboard.is_empty() || self.send.nxt < self.send.end();
        if busy {
            self.timers.set(Timer::Keepalive, now + keepalive.idle);
            return;
        }
        let expired = match self.settings.user_timeout() {
            // Linux: a user timeout takes the place of the count.
            Some(limit) => silent >= limit && self.pending.keepalives > 0,
            None => self.pending.keepalives >= keepalive.count,
        };
        if expired {
            // The peer may still be there: tell it, as Linux does, which gives up everything else in silence.
            self.pending.reset = self.state.is_synchronised();
            self.on_timed_out();
            return;
        }
        self.pending.keepalives = self.pending.keepalives.saturating_add(1);
        self.pending.probe = true;
        self.timers.set(Timer::Keepalive, now + keepalive.interval);
    }
}
