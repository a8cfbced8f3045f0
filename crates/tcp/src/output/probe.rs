//! Probes: of a closed window, of an idle peer, of a lost tail.

use base::{Duration, Instant};
use wire::tcp::Flags;

use crate::connection::Connection;
use crate::recovery::Phase;
use crate::recovery::rtt::back_off;
use crate::segment::SegmentOut;
use crate::timer::Timer;

/// The override of silly-window avoidance and of `TCP_CORK` (RFC 1122 §4.2.3.4: 0.1 to 1 s).
const OVERRIDE: Duration = Duration::from_millis(200);

impl Connection {
    /// Something is queued, nothing is in flight that could bring news, and nothing may be sent: without a timer this
    /// would last for ever if the peer's window update is lost (RFC 9293 §3.8.6.1).
    #[inline]
    pub(crate) fn lacks_persist_timer(&self) -> bool {
        self.send.scoreboard.is_empty()
            && self.send.nxt < self.send.end()
            && self.state.sends_data()
            && !self.timers.is_set(Timer::Persist)
            && !self.pending.probe
            && self.sendable(0) == 0
    }

    pub(crate) fn arm_persist(&mut self, now: Instant) {
        let window_closed = self.send.right_edge() <= self.send.nxt;
        let wait = if window_closed {
            // RFC 9293 §3.8.6.1: the first probe after the retransmission timeout, then ever more seldom.
            let bounds = self.rto_bounds();
            back_off(self.rtt.base_rto(&bounds), self.pending.persist_backoff, bounds.max)
        } else {
            OVERRIDE
        };
        let wait = self.bounded_by_user_timeout(now, wait);
        self.timers.set(Timer::Persist, now + wait);
    }

    /// The persist timer is armed while nothing is outstanding: from here on the user waits (Linux: `probes_tstamp`), and
    /// answers to probes do not change that.
    pub(crate) fn begin_persist(&mut self, now: Instant) {
        if self.send.right_edge() <= self.send.nxt {
            self.recovery.progress_at = now;
        }
        self.arm_persist(now);
    }

    /// The persist timer expired.
    pub(crate) fn on_persist_timeout(&mut self, now: Instant) {
        if self.send.right_edge() > self.send.nxt {
            self.pending.force = true; // a window that is open a little: what fits goes
            return;
        }
        let stalled = now.saturating_since(self.recovery.progress_at);
        let user_gives_up = self.settings.user_timeout().is_some_and(|limit| stalled >= limit);
        // An answered probe resets the count: a peer may keep its window closed for ever (RFC 9293 §3.8.6.1). An orphan
        // is not worth it.
        let limit = if self.orphaned { self.settings.retries.min(8) } else { self.settings.retries };
        if user_gives_up || self.pending.probes >= limit {
            self.on_timed_out();
            return;
        }
        self.pending.probe = true;
    }

    /// A probe of the window or of the peer's life: a segment without data from before the window, which every TCP
    /// answers with its present acknowledgement and window (as Linux does; no byte beyond the window is at stake).
    pub(crate) fn poll_probe(&mut self, now: Instant) -> Option<SegmentOut> {
        if self.pending.probe && self.takes_urgent_probe() {
            return Some(self.build(now, self.send.una, Flags::ACK));
        }
        if !core::mem::take(&mut self.pending.probe) {
            return None;
        }
        self.stats.rare().probes += 1;
        let window_closed = self.send.scoreboard.is_empty() && self.send.nxt < self.send.end();
        if window_closed {
            self.pending.probes = self.pending.probes.saturating_add(1);
            self.pending.persist_backoff = self.pending.persist_backoff.saturating_add(1);
            self.arm_persist(now);
        }
        Some(self.build(now, self.send.una.saturating_sub(1), Flags::ACK))
    }

    /// The tail loss probe: new data if there is any and the peer's window takes it, whatever the congestion window says,
    /// else the last segment again (RFC 8985 §7.3).
    pub(crate) fn poll_loss_probe(&mut self, now: Instant) -> Option<SegmentOut> {
        let due = core::mem::take(&mut self.recovery.probe.due);
        if !due || self.recovery.phase != Phase::Open || self.send.scoreboard.in_flight() == 0 {
            return None;
        }
        self.stats.rare().loss_probes += 1;
        let mss = u64::from(self.send.mss);
        let queued = self.send.queued.saturating_sub(self.send.nxt).min(mss);
        let offered = self.send.right_edge().saturating_sub(self.send.nxt);
        let segment = if queued > 0 && queued <= offered {
            self.recovery.probe.repeats = false;
            self.send_new(now, queued as u32)
        } else {
            self.recovery.probe.repeats = true;
            let record = self.send.scoreboard.retransmit_last(mss as u32, now)?;
            self.build_retransmission(now, &record)
        };
        self.recovery.probe.end = self.send.nxt;
        self.timers.clear(Timer::LossProbe);
        self.restart_retransmit_timer(now); // RFC 8985 §7.3: the timeout runs from the probe
        Some(segment)
    }
}
