//! Slow start and congestion avoidance (RFC 5681), counting bytes (RFC 3465).

use base::{Duration, Instant};

use super::{AckSample, CongestionControl};

/// No threshold yet (RFC 5681 §3.1: arbitrarily high).
pub(crate) const UNLIMITED: u32 = u32::MAX;

/// The window of RFC 5681.
#[derive(Clone, Debug)]
pub(crate) struct NewReno {
    window: u32,
    ssthresh: u32,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    acknowledged: u32,
    saved_window: u32,
    saved_ssthresh: u32,
}

impl NewReno {
    pub(crate) const fn new(initial_window: u32) -> Self {
        Self::restored(initial_window, UNLIMITED)
    }

    pub(crate) const fn restored(window: u32, ssthresh: u32) -> Self {
        Self { window, ssthresh, acknowledged: 0, saved_window: window, saved_ssthresh: ssthresh }
    }
}

impl CongestionControl for NewReno {
    #[inline]
    fn window(&self) -> u32 {
        self.window
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    #[inline]
    fn uses_prr(&self) -> bool {
        true
    }

    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        if !ack.window_limited {
            return;
        }
        let mut delivered = ack.delivered;
        if self.window < self.ssthresh {
            // Slow start, up to the threshold; the rest counts for congestion avoidance.
            let growth = delivered.min(self.ssthresh - self.window);
            self.window = self.window.saturating_add(growth);
            delivered -= growth;
            if delivered == 0 {
                return;
            }
        }
        // RFC 5681 §3.1: one segment for each window that was acknowledged.
        self.acknowledged = self.acknowledged.saturating_add(delivered);
        if self.acknowledged >= self.window {
            self.acknowledged -= self.window;
            self.window = self.window.saturating_add(ack.mss);
        }
    }

    fn on_loss_found(&mut self, _now: Instant, flight: u32, mss: u32) {
        // RFC 5681 equation 4.
        self.ssthresh = (flight / 2).max(2 * mss);
        self.acknowledged = 0;
    }

    fn on_timeout(&mut self, _now: Instant, flight: u32, mss: u32, first: bool) {
        if first {
            self.ssthresh = (flight / 2).max(2 * mss);
        }
        self.window = mss; // the loss window
        self.acknowledged = 0;
    }

    fn on_recovered(&mut self, _now: Instant, _flight: u32, _mss: u32) {
        // RFC 6582 §3.2 step 3; proportional rate reduction has brought the flight down to it, so there is no burst.
        self.window = self.ssthresh;
    }

    fn save(&mut self) {
        self.saved_window = self.window;
        self.saved_ssthresh = self.ssthresh;
    }

    fn on_undo(&mut self, _now: Instant) {
        self.window = self.window.max(self.saved_window);
        self.ssthresh = self.ssthresh.max(self.saved_ssthresh);
    }

    fn on_idle(&mut self, idle: Duration, rto: Duration, restart_window: u32) {
        // RFC 5681 §4.1 asks for the restart window; RFC 2861 halves for each timeout that passed.
        self.ssthresh = self.ssthresh.max(self.window / 4 * 3);
        let mut left = idle.saturating_sub(rto);
        while left > Duration::ZERO && self.window > restart_window {
            self.window = (self.window / 2).max(restart_window);
            left = left.saturating_sub(rto);
        }
        self.acknowledged = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(delivered: u32) -> AckSample {
        AckSample {
            now: Instant::ZERO,
            delivered,
            window_limited: true,
            mss: 1000,
            una: 0,
            nxt: 0,
            rtt: Duration::ZERO,
            srtt: Duration::ZERO,
            in_flight: 0,
            rate: None,
        }
    }

    #[test]
    fn doubles_then_adds_one_segment_a_window() {
        let mut reno = NewReno::new(10_000);
        reno.on_ack(&ack(10_000));
        assert_eq!(reno.window(), 20_000);
        reno.on_loss_found(Instant::ZERO, 20_000, 1000);
        reno.on_recovered(Instant::ZERO, 10_000, 1000);
        assert_eq!(reno.window(), 10_000);
        for _ in 0..10 {
            reno.on_ack(&ack(1000));
        }
        assert_eq!(reno.window(), 11_000);
    }

    #[test]
    fn an_idle_or_application_limited_flow_does_not_grow() {
        let mut reno = NewReno::new(10_000);
        reno.on_ack(&AckSample { window_limited: false, ..ack(10_000) });
        assert_eq!(reno.window(), 10_000);
    }

    #[test]
    fn repeated_timeouts_lower_the_threshold_once() {
        let mut reno = NewReno::new(40_000);
        reno.save();
        reno.on_timeout(Instant::ZERO, 40_000, 1000, true);
        reno.on_timeout(Instant::ZERO, 1000, 1000, false);
        assert_eq!((reno.window(), reno.ssthresh()), (1000, 20_000));
        reno.on_undo(Instant::ZERO);
        assert_eq!((reno.window(), reno.ssthresh()), (40_000, UNLIMITED));
    }
}
