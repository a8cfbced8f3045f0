//! A token-bucket policer: drops what exceeds a rate by more than a burst, and delays nothing (RFC 2475 §2.3.3.4).

use base::Instant;

use crate::units::Rate;

#[derive(Debug)]
pub(crate) struct Policer {
    rate: Rate,
    /// Depth of the bucket, in bits times 10⁹ so that time in nanoseconds adds exactly.
    depth: u128,
    tokens: u128,
    filled_at: Instant,
}

const SCALE: u128 = 1_000_000_000;

impl Policer {
    pub(crate) fn new(rate: Rate, burst: u64) -> Self {
        let depth = u128::from(burst) * 8 * SCALE;
        Self { rate, depth, tokens: depth, filled_at: Instant::ZERO }
    }

    /// Whether a packet of `len` bytes conforms; if so its tokens are taken.
    pub(crate) fn conforms(&mut self, now: Instant, len: u32) -> bool {
        let elapsed = u128::from(now.saturating_since(self.filled_at).as_nanos());
        self.filled_at = self.filled_at.max(now);
        self.tokens = (self.tokens + elapsed * u128::from(self.rate.bits_per_second())).min(self.depth);
        let cost = u128::from(len) * 8 * SCALE;
        if cost > self.tokens {
            return false;
        }
        self.tokens -= cost;
        true
    }
}
