//! The round trip and the retransmission timeout (RFC 6298), with the lower bound on the variance that Linux has.

use base::{Duration, Instant};

use crate::timer::Stamp;

/// How long a minimum is believed before a larger one may replace it.
const MIN_RTT_LIFETIME: Duration = Duration::from_secs(300);

/// Smoothed round trip, its variation, its minimum, and the back-off of the timeout.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    /// SRTT; zero: no sample yet.
    pub(crate) srtt: Duration,
    /// RTTVAR.
    pub(crate) rttvar: Duration,
    /// The smallest recent sample; zero: none yet.
    pub(crate) min_rtt: Duration,
    min_rtt_at: Stamp,
    /// The timeout is doubled this often (RFC 6298 §5.5).
    pub(crate) backoff: u8,
}

/// The bounds of the timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RtoBounds {
    pub(crate) initial: Duration,
    pub(crate) min: Duration,
    pub(crate) max: Duration,
    pub(crate) granularity: Duration,
}

impl RoundTrip {
    pub(crate) const fn new() -> Self {
        Self {
            srtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            min_rtt: Duration::ZERO,
            min_rtt_at: Stamp::from_millis(0),
            backoff: 0,
        }
    }

    pub(crate) fn has_sample(&self) -> bool {
        self.srtt != Duration::ZERO
    }

    /// A sample, already known to be unambiguous (Karn's rule, RFC 6298 §3).
    pub(crate) fn on_sample(&mut self, now: Instant, sample: Duration, granularity: Duration) {
        let sample = sample.max(granularity).max(Duration::from_nanos(1));
        if self.min_rtt == Duration::ZERO
            || sample <= self.min_rtt
            || self.min_rtt_at.elapsed(now) > MIN_RTT_LIFETIME
        {
            self.min_rtt = sample;
            self.min_rtt_at = Stamp::at(now);
        }
        if !self.has_sample() {
            // RFC 6298 §2.2
            self.srtt = sample;
            self.rttvar = self.rttvar.max(sample / 2); // what is remembered of the path counts too
            return;
        }
        // RFC 6298 §2.3, alpha = 1/8 and beta = 1/4.
        let (srtt, var, sample) = (self.srtt.as_nanos(), self.rttvar.as_nanos(), sample.as_nanos());
        let deviation = srtt.abs_diff(sample);
        self.rttvar = Duration::from_nanos(var - var / 4 + deviation / 4);
        self.srtt = Duration::from_nanos(srtt - srtt / 8 + sample / 8);
    }

    /// RTO without back-off: `SRTT + max(G, 4·RTTVAR)` (RFC 6298 §2.3); the second term has Linux's lower bound, which
    /// is above the rounding of §2.4 for short round trips and absorbs the peer's delayed acknowledgements.
    pub(crate) fn base_rto(&self, bounds: &RtoBounds) -> Duration {
        if !self.has_sample() {
            return bounds.initial;
        }
        let variance = (self.rttvar * 4).max(bounds.granularity).max(bounds.min);
        (self.srtt + variance).min(bounds.max)
    }

    /// RTO with back-off.
    pub(crate) fn rto(&self, bounds: &RtoBounds) -> Duration {
        back_off(self.base_rto(bounds), self.backoff, bounds.max)
    }
}

/// `base · 2^times`, at most `max` (RFC 6298 §5.5).
pub(crate) fn back_off(base: Duration, times: u8, max: Duration) -> Duration {
    if times >= 32 { max } else { Duration::from_nanos(base.as_nanos().saturating_mul(1 << times)).min(max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: RtoBounds = RtoBounds {
        initial: Duration::from_secs(1),
        min: Duration::from_millis(200),
        max: Duration::from_secs(120),
        granularity: Duration::from_micros(1),
    };

    #[test]
    fn follows_rfc_6298() {
        let mut rtt = RoundTrip::new();
        let now = Instant::from_millis(5000);
        assert_eq!(rtt.rto(&BOUNDS), Duration::from_secs(1));
        rtt.on_sample(now, Duration::from_millis(400), BOUNDS.granularity);
        assert_eq!(rtt.rto(&BOUNDS), Duration::from_millis(400 + 4 * 200));
        rtt.on_sample(now, Duration::from_millis(800), BOUNDS.granularity);
        assert_eq!(rtt.srtt, Duration::from_millis(450));
        assert_eq!(rtt.rttvar, Duration::from_millis(250));
        rtt.backoff = 3;
        assert_eq!(rtt.rto(&BOUNDS), Duration::from_millis(1450 * 8));
        rtt.backoff = 40;
        assert_eq!(rtt.rto(&BOUNDS), Duration::from_secs(120));
    }

    #[test]
    fn a_steady_short_path_keeps_the_lower_bound() {
        let mut rtt = RoundTrip::new();
        for i in 0..200 {
            rtt.on_sample(Instant::from_millis(i), Duration::from_micros(100), BOUNDS.granularity);
        }
        assert!(rtt.rto(&BOUNDS) >= Duration::from_millis(200));
        assert!(rtt.rto(&BOUNDS) < Duration::from_millis(201));
        assert_eq!(rtt.min_rtt, Duration::from_micros(100));
    }
}
