//! How long to look before sleeping.
//!
//! A hand-over between two cores takes a tenth of a microsecond while both look, and tens of microseconds when one
//! must be woken: looking decides the latency of small exchanges. But looking for something that comes late is
//! time stolen from others. So the time is learnt: a wait in vain halves it, one that paid off doubles it again, and
//! once nothing is left of it a wait in [`PROBE_EVERY`] tries anew. Where most waits are short, one long one (a processor
//! taken away for a moment) so leaves no trace.

/// Less than this is not worth a look at the clock.
const SHORTEST_NS: u64 = 2_000;
/// Of waits without a look, one in so many looks again.
const PROBE_EVERY: u8 = 32;

/// What has been learnt about the use of looking.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    longest_ns: u64,
    margin_ns: u64,
    budget_ns: u64,
    unspun: u8,
}

impl Patience {
    /// Hopeful; never looks for longer than `longest_ns`. What paid off once may look for `margin_ns` the next time, at least.
    pub const fn new(longest_ns: u64, margin_ns: u64) -> Self {
        Self { longest_ns, margin_ns, budget_ns: longest_ns, unspun: 0 }
    }

    /// A wait begins: for how long it may look, if at all. Tell [`Patience::on_success`] or [`Patience::on_vain`] afterwards.
    pub fn allowed_ns(&mut self) -> Option<u64> {
        if self.budget_ns >= SHORTEST_NS {
            return Some(self.budget_ns);
        }
        self.unspun += 1;
        if self.unspun < PROBE_EVERY {
            return None;
        }
        self.unspun = 0;
        Some(self.longest_ns)
    }

    /// What was waited for came while it looked.
    pub fn on_success(&mut self) {
        self.budget_ns = (self.budget_ns * 2).max(self.margin_ns).min(self.longest_ns);
    }

    /// It did not.
    pub fn on_vain(&mut self) {
        self.budget_ns /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_NS: u64 = 100_000;

    /// Waits of which every one for which `comes` says so ends while it looks; how many looked.
    fn waits(patience: &mut Patience, count: u32, comes: impl Fn(u32) -> bool) -> u32 {
        let mut looked = 0;
        for number in 0..count {
            if patience.allowed_ns().is_none() {
                continue;
            }
            looked += 1;
            if comes(number) { patience.on_success() } else { patience.on_vain() }
        }
        looked
    }

    #[test]
    fn looking_in_vain_is_given_up_and_tried_again_now_and_then() {
        let looked = waits(&mut Patience::new(LONGEST_NS, 10_000), 1000, |_| false);
        assert!((11..100).contains(&looked), "{looked} waits of 1000 looked");
    }

    #[test]
    fn success_keeps_it_and_brings_it_back() {
        let mut patience = Patience::new(LONGEST_NS, 10_000);
        waits(&mut patience, 100, |_| false);
        assert!(patience.allowed_ns().is_none());
        assert!(waits(&mut patience, 1000, |_| true) > 900);
        assert_eq!(patience.allowed_ns(), Some(LONGEST_NS));
    }

    #[test]
    fn a_wait_in_vain_among_others_leaves_no_trace() {
        let mut patience = Patience::new(LONGEST_NS, 10_000);
        waits(&mut patience, 100, |number| number % 10 > 0);
        assert_eq!(patience.allowed_ns(), Some(LONGEST_NS));
    }
}
