//! How long to spin before sleeping.
//!
//! A hand-over between two cores takes a tenth of a microsecond while both look, and tens of microseconds when one
//! must be woken: spinning decides the latency of small exchanges. But spinning for something that comes late is
//! time stolen from others. So the time is learnt: a spin in vain halves it, one that paid off doubles it again, and
//! once nothing is left of it a wait in [`PROBE_EVERY`] tries anew. Where most waits are short, one long one (a processor
//! taken away for a moment) so leaves no trace.

use std::time::{Duration, Instant};

/// The longest spin: a round trip to a peer on the same machine is shorter.
const LONGEST: Duration = Duration::from_micros(100);
/// A success allows at least so much next time.
const MARGIN: Duration = Duration::from_micros(10);
/// Less than this is not worth a look at the clock.
const SHORTEST: Duration = Duration::from_micros(2);
/// Of waits without a spin, one in so many spins again.
const PROBE_EVERY: u8 = 32;
/// Looks between two offers of the processor. Few: the peer of a small exchange may be waiting for this very core.
const LOOKS: u32 = 4;

/// What a thread has learnt about the use of spinning.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    budget: Duration,
    unspun: u8,
}

impl Patience {
    /// Hopeful.
    pub const fn new() -> Self {
        Self { budget: LONGEST, unspun: 0 }
    }

    /// Looks whether `ready` until it is or the time is up; the processor is offered to others between looks.
    pub fn spin(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        let Some(budget) = self.allowed() else { return false };
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if ready() {
                    self.budget = (self.budget * 2).clamp(MARGIN, LONGEST);
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= budget {
                self.budget /= 2;
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// How long this wait may spin, if at all.
    fn allowed(&mut self) -> Option<Duration> {
        if self.budget >= SHORTEST {
            return Some(self.budget);
        }
        self.unspun += 1;
        if self.unspun < PROBE_EVERY {
            return None;
        }
        self.unspun = 0;
        Some(LONGEST)
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_in_vain_is_given_up_and_tried_again_now_and_then() {
        let mut patience = Patience::new();
        let spun = (0..1000)
            .filter(|_| {
                let mut looked = false;
                assert!(!patience.spin(|| {
                    looked = true;
                    false
                }));
                looked
            })
            .count();
        assert!(spun < 400, "{spun} waits of 1000 spun");
        assert!(spun > 10, "{spun} waits of 1000 spun");
    }

    #[test]
    fn success_keeps_the_spin() {
        let mut patience = Patience::new();
        assert!((0..1000).all(|_| patience.spin(|| true)));
    }

    #[test]
    fn a_spin_in_vain_among_others_leaves_no_trace() {
        let mut patience = Patience::new();
        for number in 0..100 {
            patience.spin(|| number % 10 > 0);
        }
        assert_eq!(patience.budget, LONGEST);
    }
}
