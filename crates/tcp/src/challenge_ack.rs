//! The rate limit of acknowledgements that a peer or an attacker can provoke (RFC 5961 §7).
//!
//! Without it two confused ends could answer each other's acknowledgements for ever, and a blind attacker could use the
//! answers as an oracle or as an amplifier.

use base::Instant;

/// RFC 5961 §7 suggests ten in five seconds.
const LIMIT: u8 = 10;
const PERIOD_MS: u32 = 5000;

/// Counts the answers of the current period.
#[derive(Clone, Debug)]
pub(crate) struct ChallengeLimit {
    /// When the period began, in milliseconds, modulo 2³².
    period_start_ms: u32,
    sent: u8,
}

impl ChallengeLimit {
    pub(crate) const fn new() -> Self {
        Self { period_start_ms: 0, sent: 0 }
    }

    /// Whether one more may be sent now; counts it if so.
    pub(crate) fn permit(&mut self, now: Instant) -> bool {
        let now_ms = now.as_millis() as u32;
        if now_ms.wrapping_sub(self.period_start_ms) >= PERIOD_MS {
            self.period_start_ms = now_ms;
            self.sent = 0;
        }
        let permitted = self.sent < LIMIT;
        self.sent += u8::from(permitted);
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Duration;

    #[test]
    fn ten_in_five_seconds() {
        let mut limit = ChallengeLimit::new();
        let start = Instant::from_millis(20_000);
        let permitted = (0..100).filter(|i| limit.permit(start + Duration::from_millis(*i * 49))).count();
        assert_eq!(permitted, 10);
        assert!(limit.permit(start + Duration::from_secs(5)));
    }
}
