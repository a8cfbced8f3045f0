//! Whether a thread that waits may offer its processor to others and look again, or should rather sleep.
//!
//! Offering it (`sched_yield`) is the cheapest hand-over between two who wait for each other on one processor. Beside a program
//! that computes it is the dearest: the scheduler then lets that program run until its next tick, milliseconds later,
//! and nothing that comes meanwhile brings the processor back. A sleep costs a wake-up, but a wake-up brings it back.
//! From outside the two cases look alike, so it is learnt from how long offers take: once the offers that took long have cost more
//! than everything else that the waits were about, none is made for a while; then it is tried again.
//!
//! Time is an argument, in nanoseconds of any clock that only goes forward.

/// An offer that took longer brought somebody who computes, not one who waits too.
const LONG_NS: u64 = 200_000;
/// So much more lost to long offers than spent otherwise, and no more are made: not for one of them, however long (the
/// hypervisor takes processors away as well).
const TOLERATED_NS: u64 = 2_500_000;
const COUNTED_NS: u64 = 2_000_000;
/// The time between two offers counts as time of the waits up to here; the rest was a sleep or other work.
const BETWEEN_NS: u64 = 100_000;
/// For how long none is made, the first time and at most: it doubles as long as the first new offer takes long again.
const FIRST_PAUSE_NS: u64 = 50_000_000;
const LONGEST_PAUSE_NS: u64 = 1_600_000_000;

/// What a thread has learnt about who else wants its processor.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Time lost to long offers beyond what the waits took otherwise.
    lost_ns: u64,
    judged_ns: u64,
    pause_ns: u64,
    until_ns: u64,
}

impl Crowd {
    /// Nobody so far.
    pub const fn new() -> Self {
        Self { lost_ns: 0, judged_ns: 0, pause_ns: FIRST_PAUSE_NS, until_ns: 0 }
    }

    /// Whether the processor may be offered at `now_ns`. If not, whoever waits should sleep.
    pub fn may_offer(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    /// It was offered, and came back at `now_ns` after `took_ns`.
    pub fn on_offered(&mut self, now_ns: u64, took_ns: u64) {
        let since = now_ns.saturating_sub(self.judged_ns);
        self.judged_ns = now_ns;
        if took_ns < LONG_NS {
            self.lost_ns = self.lost_ns.saturating_sub(since.min(BETWEEN_NS));
            if self.lost_ns == 0 {
                self.pause_ns = FIRST_PAUSE_NS;
            }
            return;
        }
        let between = since.saturating_sub(took_ns).min(BETWEEN_NS);
        self.lost_ns = (self.lost_ns + took_ns.min(COUNTED_NS)).saturating_sub(between);
        if self.lost_ns > TOLERATED_NS {
            self.until_ns = now_ns + self.pause_ns;
            self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
            // One more like this, and it is as before.
            self.lost_ns = TOLERATED_NS;
        }
    }
}

impl Default for Crowd {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers until `end_ns` wherever they may be made, each taking what `took` says; how many were made and what they took.
    fn offers(
        crowd: &mut Crowd,
        now_ns: &mut u64,
        end_ns: u64,
        mut took: impl FnMut(u64) -> u64,
    ) -> (u64, u64) {
        let (mut made, mut taken) = (0, 0);
        while *now_ns < end_ns {
            *now_ns += 5_000;
            if crowd.may_offer(*now_ns) {
                let one = took(made);
                *now_ns += one;
                crowd.on_offered(*now_ns, one);
                made += 1;
                taken += one;
            }
        }
        (made, taken)
    }

    #[test]
    fn offers_among_those_who_wait_are_always_made() {
        let (mut crowd, mut now) = (Crowd::new(), 0);
        let (made, _) = offers(&mut crowd, &mut now, 1_000_000_000, |_| 3_000);
        assert_eq!(made, 125_000);
    }

    #[test]
    fn a_processor_that_is_taken_away_at_times_is_no_crowd() {
        let (mut crowd, mut now) = (Crowd::new(), 0);
        let stolen = |number: u64| if number.is_multiple_of(200) { 1_000_000 } else { 3_000 };
        offers(&mut crowd, &mut now, 1_000_000_000, stolen);
        assert_eq!(crowd.until_ns, 0);
        let mut crowd = Crowd::new();
        crowd.on_offered(500_000_000, 500_000_000);
        assert!(crowd.may_offer(500_000_000), "one alone says nothing");
    }

    #[test]
    fn beside_a_program_that_computes_few_are_made() {
        for tick in [1_000_000, 4_000_000] {
            let (mut crowd, mut now) = (Crowd::new(), 0);
            let (_, before) = offers(&mut crowd, &mut now, 1_000_000_000, |_| tick);
            assert!(before <= 60_000_000, "{before} ns of the first second");
            let (_, after) = offers(&mut crowd, &mut now, 11_000_000_000, |_| tick);
            assert!(after <= 80_000_000, "{after} ns of ten seconds");
        }
    }

    #[test]
    fn when_the_program_has_gone_they_are_made_again() {
        let (mut crowd, mut now) = (Crowd::new(), 0);
        offers(&mut crowd, &mut now, 5_000_000_000, |_| 4_000_000);
        offers(&mut crowd, &mut now, 7_000_000_000, |_| 3_000);
        let (made, _) = offers(&mut crowd, &mut now, 8_000_000_000, |_| 3_000);
        assert_eq!(made, 125_000);
        assert_eq!(crowd.pause_ns, FIRST_PAUSE_NS);
    }

    #[test]
    fn rare_waits_learn_it_too() {
        let (mut crowd, mut now, mut made) = (Crowd::new(), 0, 0);
        for _ in 0..1_000 {
            now += 10_000_000;
            if crowd.may_offer(now) {
                made += 1;
                now += 4_000_000;
                crowd.on_offered(now, 4_000_000);
            }
        }
        assert!(made < 20, "{made} of 1000 waits");
    }
}
