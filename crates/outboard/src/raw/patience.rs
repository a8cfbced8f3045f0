//! Looking for a while before sleeping ([`ring::Patience`] learns for how long).
//!
//! Between looks the processor is offered to others: the peer of a small exchange may be waiting for this very core. Beside a
//! program that computes, which would keep it ([`ring::Crowd`]), nothing is offered: what comes soon comes from another core, and
//! whether that is worth looking for is learnt apart.
//!
//! Where what was waited for came as soon as somebody else had had the processor, it is that one's answer: next time the
//! processor is offered at once.

use channel::app::{Offered, Offers};

/// The longest wait: a round trip to a peer on the same machine is shorter.
const LONGEST_NS: u64 = 100_000;
/// After a success it is at least so much.
const MARGIN_NS: u64 = 10_000;
/// The longest wait beside a program that computes: the answer of a stack on another core, without a program in between.
const LONGEST_ALONE_NS: u64 = 20_000;
/// Looks between two offers of the processor, or two looks at the clock.
const LOOKS: u32 = 4;
/// Looks before the first offer where the answer comes from this processor.
const LOOKS_AT_ONCE: u32 = 1;

/// What a thread has learnt about the use of looking.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    offering: ring::Patience,
    alone: ring::Patience,
    /// Looks before the first offer.
    first_looks: u32,
}

impl Patience {
    /// Hopeful.
    pub const fn new() -> Self {
        Self {
            offering: ring::Patience::new(LONGEST_NS, MARGIN_NS),
            alone: ring::Patience::new(LONGEST_ALONE_NS, LONGEST_ALONE_NS),
            first_looks: LOOKS,
        }
    }

    /// Looks whether `ready` until it is or the time is up.
    pub fn spin(&mut self, ready: impl FnMut() -> bool) -> bool {
        self.spin_with(ready, &mut Offers::default())
    }

    fn spin_with(&mut self, mut ready: impl FnMut() -> bool, processor: &mut impl Processor) -> bool {
        let mut look = |looks| {
            (0..looks).any(|_| {
                let found = ready();
                if !found {
                    std::hint::spin_loop();
                }
                found
            })
        };
        let Some(budget) = self.offering.allowed_ns() else { return false };
        let (mut looks, mut offers) = (self.first_looks, 0u32);
        loop {
            if look(looks) {
                self.offering.on_success();
                self.on_found(offers);
                return true;
            }
            looks = LOOKS;
            match processor.offer(budget) {
                Offered::Taken => offers += 1,
                Offered::Over => {
                    self.offering.on_vain();
                    return false;
                }
                // That says nothing about what was waited for.
                Offered::Crowded => break,
            }
        }
        let Some(budget) = self.alone.allowed_ns() else { return false };
        while processor.keep(budget) {
            if look(LOOKS) {
                self.alone.on_success();
                return true;
            }
        }
        self.alone.on_vain();
        false
    }

    /// It came after so many offers: after one it was the other program's, after many it came from another core.
    fn on_found(&mut self, offers: u32) {
        match offers {
            0 => {}
            1 => self.first_looks = LOOKS_AT_ONCE,
            _ => self.first_looks = LOOKS,
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

/// The processor that the wait is on.
trait Processor {
    /// See [`Offers::offer`].
    fn offer(&mut self, limit_ns: u64) -> Offered;
    /// See [`Offers::keep`].
    fn keep(&mut self, limit_ns: u64) -> bool;
}

impl Processor for Offers {
    fn offer(&mut self, limit_ns: u64) -> Offered {
        Offers::offer(self, limit_ns)
    }

    fn keep(&mut self, limit_ns: u64) -> bool {
        Offers::keep(self, limit_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A processor on which a look takes a microsecond.
    struct Simulated {
        now_ns: u64,
        crowded: bool,
    }

    impl Processor for Simulated {
        fn offer(&mut self, limit_ns: u64) -> Offered {
            match (self.crowded, self.keep(limit_ns)) {
                (true, _) => Offered::Crowded,
                (false, true) => Offered::Taken,
                (false, false) => Offered::Over,
            }
        }

        fn keep(&mut self, limit_ns: u64) -> bool {
            self.now_ns += 1_000;
            self.now_ns < limit_ns
        }
    }

    #[test]
    fn the_processor_is_offered_at_once_where_the_answer_comes_from_it() {
        /// Counts the looks before the first offer, which brings what is waited for.
        fn looks(patience: &mut Patience, offers_wanted: u32) -> u32 {
            let (looks, offers) = (Cell::new(0), Cell::new(0));
            let ready = || {
                looks.set(looks.get() + u32::from(offers.get() == 0));
                offers.get() == offers_wanted
            };
            assert!(patience.spin_with(ready, &mut Counted(&offers)));
            looks.get()
        }
        let mut patience = Patience::new();
        assert_eq!(looks(&mut patience, 1), LOOKS);
        assert_eq!(looks(&mut patience, 1), LOOKS_AT_ONCE);
        assert_eq!(looks(&mut patience, 9), LOOKS_AT_ONCE);
        assert_eq!(looks(&mut patience, 9), LOOKS, "another core's answer is looked for");
    }

    /// A processor that counts how often it is offered.
    struct Counted<'a>(&'a Cell<u32>);

    impl Processor for Counted<'_> {
        fn offer(&mut self, _: u64) -> Offered {
            self.0.set(self.0.get() + 1);
            Offered::Taken
        }

        fn keep(&mut self, _: u64) -> bool {
            true
        }
    }

    /// How often waits for what comes after so many looks, if it comes, find it.
    fn found(patience: &mut Patience, crowded: bool, after: u32) -> usize {
        let wait = |_: &usize| {
            let mut looks = 0;
            let ready = || {
                looks += 1;
                looks > after
            };
            patience.spin_with(ready, &mut Simulated { now_ns: 0, crowded })
        };
        (0..100_usize).filter(wait).count()
    }

    #[test]
    fn what_comes_soon_is_found() {
        for crowded in [false, true] {
            assert_eq!(found(&mut Patience::new(), crowded, 0), 100);
            assert_eq!(found(&mut Patience::new(), crowded, 40), 100);
        }
    }

    #[test]
    fn beside_a_program_that_computes_only_what_comes_sooner_is_found() {
        assert_eq!(found(&mut Patience::new(), false, 200), 100);
        assert_eq!(found(&mut Patience::new(), true, 200), 0);
    }

    #[test]
    fn what_is_learnt_in_a_crowd_is_about_the_crowd() {
        let mut patience = Patience::new();
        assert_eq!(found(&mut patience, true, 1_000_000), 0);
        assert_eq!(found(&mut patience, false, 200), 100);
    }
}
