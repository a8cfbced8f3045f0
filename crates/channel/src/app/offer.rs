//! Offering the processor to others while waiting, as long as that is no loss.

use core::cell::Cell;

use ring::Crowd;
use rustix::time::{ClockId, clock_gettime};

thread_local! {
    static CROWD: Cell<Crowd> = const { Cell::new(Crowd::new()) };
}

/// What became of a wait that wants to go on looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Others had the chance to run: look again.
    Taken,
    /// The time for looking is over.
    Over,
    /// Somebody computes on this processor and would keep it: sleep at once, a wake-up brings it back.
    Crowded,
}

/// The offers of one wait. What they show of who else is there, the thread remembers.
#[derive(Debug, Default)]
pub struct Offers {
    /// When the first one was to be made.
    began_ns: Option<u64>,
    /// The last one that was not judged yet.
    made_ns: Option<u64>,
}

impl Offers {
    /// Lets others have the processor, if less than `limit_ns` has passed since the first offer.
    pub fn offer(&mut self, limit_ns: u64) -> Offered {
        let now = now_ns();
        self.judge(now);
        if !self.is_within(now, limit_ns) {
            return Offered::Over;
        }
        if !CROWD.try_with(|crowd| crowd.get().may_offer(now)).unwrap_or(true) {
            return Offered::Crowded;
        }
        self.made_ns = Some(now);
        std::thread::yield_now();
        Offered::Taken
    }

    /// Keeps the processor for further looks, if less than `limit_ns` has passed since the first offer.
    pub fn keep(&mut self, limit_ns: u64) -> bool {
        self.is_within(now_ns(), limit_ns)
    }

    fn is_within(&mut self, now_ns: u64, limit_ns: u64) -> bool {
        now_ns.saturating_sub(*self.began_ns.get_or_insert(now_ns)) < limit_ns
    }

    fn judge(&mut self, now_ns: u64) {
        let Some(made) = self.made_ns.take() else { return };
        let _ = CROWD.try_with(|place| {
            let mut crowd = place.get();
            crowd.on_offered(now_ns, now_ns.saturating_sub(made));
            place.set(crowd);
        });
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        if self.made_ns.is_some() {
            self.judge(now_ns());
        }
    }
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
