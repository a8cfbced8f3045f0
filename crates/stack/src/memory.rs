//! Memory that many share, and how much of it one may count on.
//!
//! A [`Budget`] stands for the buffers of an application, inside the one of the whole stack. Each of its members (a socket's
//! buffer) has [`FLOOR`] bytes to itself, whatever the others hold: so everybody gets on. What is held beyond that is
//! taken from what is left, up to the cap.
//!
//! What a member may promise to its peer follows from how much is left, in three states as in Linux' `tcp_mem`: below
//! half of the cap it is a quarter of what is left; from there on a fair part; at the cap the floor. Who
//! holds more than that is promised no more until it has come down: the largest shrink first, and the small do not
//! notice. A promise once made stands (RFC 9293 §3.8.6: a window does not shrink from the right), so it is honoured out of all
//! that is left; what newcomers are promised before they have read a byte is small enough that, all of them together, they
//! could be kept to it (for a cap of 256 MiB, up to some twenty thousand).
//!
//! Left out: taking back memory that holds bytes which nobody has read.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What every member has to itself: a page.
pub const FLOOR: u64 = 4096;

/// How much of the memory is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Less than half: buffers grow as the paths ask for it.
    Below,
    /// More than half: nobody gets more than a fair part.
    Pressure,
    /// All of it: nobody gets more than the floor.
    Over,
}

impl Pressure {
    /// Its name, as reports show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Below => "below",
            Self::Pressure => "pressure",
            Self::Over => "over",
        }
    }
}

/// Memory with a cap, and what its members hold of it.
#[derive(Debug)]
pub struct Budget {
    cap: u64,
    members: AtomicU64,
    /// Bytes held beyond the members' floors.
    beyond: AtomicU64,
    parent: Option<Arc<Self>>,
}

impl Budget {
    /// So many bytes.
    pub fn new(cap: u64) -> Arc<Self> {
        Arc::new(Self { cap, members: AtomicU64::new(0), beyond: AtomicU64::new(0), parent: None })
    }

    /// So many bytes of another budget, which may have promised them to several.
    pub fn within(parent: &Arc<Self>, cap: u64) -> Arc<Self> {
        let (members, beyond) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { cap, members, beyond, parent: Some(parent.clone()) })
    }

    /// The cap.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// What is held, and what is kept free for those who hold less than their floor.
    pub fn used(&self) -> u64 {
        self.members() * FLOOR + self.beyond.load(Ordering::Relaxed)
    }

    /// How it stands, here or in the budget around it, whichever is worse.
    pub fn pressure(&self) -> Pressure {
        let used = self.used();
        let own = match self.cap.saturating_sub(used) {
            0..FLOOR => Pressure::Over,
            _ if used >= self.cap / 2 => Pressure::Pressure,
            _ => Pressure::Below,
        };
        self.parent.as_ref().map_or(own, |parent| parent.pressure().max(own))
    }

    /// What a member that would like to promise `wanted` bytes may promise: less only where memory is short, and then a power
    /// of two.
    pub fn share(&self, wanted: u64) -> u64 {
        let used = self.used();
        let left = self.cap.saturating_sub(used);
        let own = if used < self.cap / 2 {
            at_most(wanted, left / 4)
        } else {
            // Half of the cap is for those who were there before it was scarce.
            at_most(wanted, (self.cap / (2 * self.members().max(1))).min(left))
        };
        self.parent.as_ref().map_or(own, |parent| parent.share(own))
    }

    /// As [`share`](Self::share), for a member that has not shown yet that it reads: its part of a quarter of the cap.
    pub fn share_of_newcomer(&self, wanted: u64) -> u64 {
        let members = self.members().max(1);
        let own = if wanted.saturating_mul(4 * members) <= self.cap {
            wanted
        } else {
            at_most(wanted, self.cap / (4 * members))
        };
        self.parent.as_ref().map_or(own, |parent| parent.share_of_newcomer(own))
    }

    fn members(&self) -> u64 {
        self.members.load(Ordering::Relaxed)
    }

    fn join(&self) {
        self.members.fetch_add(1, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.join();
        }
    }

    fn leave(&self) {
        self.members.fetch_sub(1, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.leave();
        }
    }

    /// Takes bytes beyond a floor. False: there are not as many left.
    fn take(&self, bytes: u64) -> bool {
        let before = self.beyond.fetch_add(bytes, Ordering::Relaxed);
        let fits = self.members() * FLOOR + before + bytes <= self.cap;
        if fits && self.parent.as_ref().is_none_or(|parent| parent.take(bytes)) {
            return true;
        }
        self.beyond.fetch_sub(bytes, Ordering::Relaxed);
        false
    }

    fn give(&self, bytes: u64) {
        self.beyond.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.give(bytes);
        }
    }
}

/// `wanted`, or the largest power of two of at least [`FLOOR`] that is no more than `limit`.
fn at_most(wanted: u64, limit: u64) -> u64 {
    if wanted <= limit { wanted } else { wanted.min(1 << limit.max(FLOOR).ilog2()) }
}

/// One who holds memory of a budget. Dropping it gives all of it back.
#[derive(Debug)]
pub struct Member {
    budget: Arc<Budget>,
    beyond: u64,
}

impl Member {
    /// A member that holds nothing.
    pub fn new(budget: &Arc<Budget>) -> Self {
        budget.join();
        Self { budget: budget.clone(), beyond: 0 }
    }

    /// The budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Holds `total` bytes from now on. False: there are not as many; then nothing has changed. Less is always granted.
    pub fn hold(&mut self, total: u64) -> bool {
        let beyond = total.saturating_sub(FLOOR);
        if beyond > self.beyond && !self.budget.take(beyond - self.beyond) {
            return false;
        }
        if beyond < self.beyond {
            self.budget.give(self.beyond - beyond);
        }
        self.beyond = beyond;
        true
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hold(0);
        self.budget.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_few_get_what_they_want_and_many_a_fair_part() {
        let budget = Budget::new(256 * MIB);
        let mut few: Vec<_> = (0..8).map(|_| Member::new(&budget)).collect();
        for member in &mut few {
            assert_eq!(budget.share(4 * MIB), 4 * MIB);
            assert_eq!(budget.share_of_newcomer(65_536), 65_536);
            assert!(member.hold(4 * MIB));
        }
        assert_eq!(budget.pressure(), Pressure::Below);
        let mut many: Vec<_> = (0..10_000).map(|_| Member::new(&budget)).collect();
        assert_eq!(budget.share_of_newcomer(65_536), 4096);
        let hogs = many.iter_mut().map(|hog| hog.hold(MIB)).take_while(|&granted| granted).count();
        assert!((150..200).contains(&hogs), "{hogs}");
        assert_eq!(budget.pressure(), Pressure::Pressure);
        assert_eq!(budget.share(4 * MIB), 8192);
        let more = many[1000..].iter_mut().map(|one| one.hold(8192)).take_while(|&granted| granted).count();
        assert!(more < 300, "{more}");
        assert_eq!((budget.pressure(), budget.share(4 * MIB)), (Pressure::Over, FLOOR));
        // Whoever comes late has its floor nevertheless.
        assert!(many.last_mut().unwrap().hold(FLOOR) && !many.last_mut().unwrap().hold(2 * FLOOR));
        drop(many);
        assert_eq!(budget.pressure(), Pressure::Below);
        drop(few);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn under_pressure_the_largest_is_promised_no_more_and_the_small_do_not_notice() {
        let budget = Budget::new(64 * MIB);
        let mut members: Vec<_> = (0..100).map(|_| Member::new(&budget)).collect();
        assert!(members[0].hold(40 * MIB));
        assert_eq!(budget.pressure(), Pressure::Pressure);
        // A hundredth of half of it, down to a power of two.
        assert_eq!(budget.share(4 * MIB), 262_144);
        assert_eq!(budget.share(100_000), 100_000);
        assert!(members[1].hold(262_144));
        members[0].hold(0);
        assert_eq!(budget.share(4 * MIB), 4 * MIB);
    }

    #[test]
    fn an_application_is_bounded_by_the_stack_around_it() {
        let stack = Budget::new(32 * MIB);
        let (first, second) = (Budget::within(&stack, 24 * MIB), Budget::within(&stack, 24 * MIB));
        let (mut greedy, mut modest) = (Member::new(&first), Member::new(&second));
        assert!(!greedy.hold(25 * MIB), "its own cap");
        assert!(greedy.hold(20 * MIB));
        assert_eq!((second.pressure(), first.pressure()), (Pressure::Pressure, Pressure::Pressure));
        assert!(!modest.hold(13 * MIB), "the stack's cap");
        assert_eq!(second.used(), FLOOR, "what was refused is not counted");
        assert!(modest.hold(8 * MIB));
        drop(greedy);
        assert!(modest.hold(13 * MIB));
        assert_eq!(stack.used(), 13 * MIB);
    }

    proptest! {
        #[test]
        fn never_more_than_the_cap_is_held(
            cap in 1u64..1 << 30,
            steps in prop::collection::vec((0usize..16, 0u64..1 << 26), 0..200),
        ) {
            let budget = Budget::new(cap);
            let mut members: Vec<_> = (0..16).map(|_| Member::new(&budget)).collect();
            let mut held = [0u64; 16];
            for (index, total) in steps {
                if members[index].hold(total) {
                    held[index] = total;
                }
                let beyond: u64 = held.iter().map(|held| held.saturating_sub(FLOOR)).sum();
                prop_assert_eq!(budget.used(), 16 * FLOOR + beyond);
                prop_assert!(beyond == 0 || budget.used() <= cap);
                let share = budget.share(4 << 20);
                prop_assert!((FLOOR..=4 << 20).contains(&share));
            }
            members.clear();
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
