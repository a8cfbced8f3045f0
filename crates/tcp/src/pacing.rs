//! Pacing: a window is sent over a round trip, not in one burst.
//!
//! The rate follows from the congestion window and the smoothed round trip, with a factor above one so that pacing never
//! becomes the limit: two in slow start, 1.2 later (as in Linux). A burst of [`CREDIT`] passes at once, which on a short path
//! is a whole window: there pacing does nothing, and costs no timer. The credit is never less than a step of the caller's
//! clock, whose timers come no more often.

use base::{Duration, Instant};

use crate::congestion::CongestionControl;
use crate::connection::Connection;
use crate::timer::Timer;

/// What may be sent ahead of its time: it also absorbs a timer that is late by a tick or two.
const CREDIT: Duration = Duration::from_millis(2);
/// But at least this many segments: an initial window goes at once.
const CREDIT_SEGMENTS: u32 = 10;

/// Bytes by whose time the pacing rate is told.
const MEASURE: u32 = 1_000_000;

impl Connection {
    /// Whether data has to wait for its time.
    #[inline]
    pub(crate) fn pacing_blocks(&self, now: Instant) -> bool {
        self.paced_until > now
    }

    /// Whether output is paced: not where a whole window is within the credit, on a short path, unless the congestion control
    /// models the path.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.congestion.pacing_rate().is_some() || (self.settings.pacing && self.rtt.srtt > CREDIT)
    }

    /// `len` bytes went out: the next ones go when these have had their share of the round trip.
    #[inline]
    pub(crate) fn note_paced(&mut self, now: Instant, len: u32) {
        if !self.is_paced() {
            return;
        }
        let share = self.pacing_interval(len);
        let segments = self.pacing_interval(CREDIT_SEGMENTS * u32::from(self.send.mss));
        // A clock that stands still for a while lets everything go that its last step has earned.
        let credit = CREDIT.max(segments).max(self.settings.granularity());
        self.paced_until = self.paced_until.max(now - credit) + share;
    }

    /// How long `len` bytes take at the pacing rate.
    fn pacing_interval(&self, len: u32) -> Duration {
        if let Some(rate) = self.congestion.pacing_rate() {
            return Duration::from_nanos(u64::from(len).saturating_mul(1_000_000_000) / rate);
        }
        let window = u64::from(self.effective_window().max(1));
        let slow_start = window < u64::from(self.congestion.ssthresh() / 2);
        // Rate = window · factor / srtt.
        let (numerator, denominator) = if slow_start { (1, 2) } else { (5, 6) };
        let nanos =
            u64::from(len).saturating_mul(self.rtt.srtt.as_nanos()) / window * numerator / denominator;
        Duration::from_nanos(nanos)
    }

    /// The pacing rate in bytes a second, for those who ask; all ones: output is not paced.
    pub(crate) fn pacing_rate(&self) -> u64 {
        if let Some(rate) = self.congestion.pacing_rate() {
            return rate;
        }
        if !self.settings.pacing || self.rtt.srtt <= CREDIT {
            return u64::MAX;
        }
        u64::from(MEASURE) * 1_000_000_000 / self.pacing_interval(MEASURE).as_nanos().max(1)
    }

    /// Wakes output when pacing lets it go on.
    pub(crate) fn arm_pacing(&mut self) {
        self.timers.set(Timer::Pacing, self.paced_until);
    }
}
