//! A token bucket: so many a second, with a burst.

use base::Instant;

/// Lets through `rate` events a second and bursts of `burst`.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// Nanoseconds that one event costs.
    cost: u64,
    /// Most nanoseconds that can be saved up.
    depth: u64,
    saved: u64,
    last: Instant,
}

impl TokenBucket {
    pub(crate) fn new(rate: u32, burst: u32) -> Self {
        let cost = 1_000_000_000 / u64::from(rate.max(1));
        let depth = cost * u64::from(burst.max(1));
        Self { cost, depth, saved: depth, last: Instant::ZERO }
    }

    /// Whether one more event may happen now.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_since(self.last).as_nanos();
        self.last = self.last.max(now);
        self.saved = self.saved.saturating_add(passed).min(self.depth);
        if self.saved < self.cost {
            return false;
        }
        self.saved -= self.cost;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Duration;

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let mut bucket = TokenBucket::new(10, 3);
        let mut now = Instant::from_millis(5_000);
        assert_eq!((0..10).filter(|_| bucket.take(now)).count(), 3);
        let mut passed = 0;
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            passed += usize::from(bucket.take(now));
        }
        assert_eq!(passed, 10);
    }
}
