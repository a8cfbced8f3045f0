//! Sleeping without losing a wake-up.
//!
//! The sleeper: [`announce`] (store a token, full fence), look once more for work, then sleep; or take the token back
//! with [`retract`]. The producer of work: publish it, then [`sleeper`] (full fence, load the token), and ring if there
//! is one. Of the two fences one is first: either the producer sees the token and rings, or the sleeper, looking
//! once more, sees the work. The plain orderings do not give this: a store may pass a later load.
//!
//! Tokens are not zero and differ from one sleep to the next, so that a producer rings once for each sleep, however
//! much it publishes meanwhile ([`Bell`]).
//!
//! What ringing is (an eventfd, a futex, a message) is the caller's. It must be remembered by the kernel until the
//! sleeper sleeps: a ring between `announce` and the sleep counts.

use core::sync::atomic::Ordering;

use crate::{Atomics, Word32};

/// The value of the flag of someone who is awake.
pub const AWAKE: u32 = 0;

/// The token after `token`, never [`AWAKE`].
pub fn next_token(token: u32) -> u32 {
    token.wrapping_add(1).max(1)
}

/// Says that the caller is about to sleep. It must look for work once more before it does.
pub fn announce<A: Atomics>(flag: &impl Word32, token: u32) {
    flag.store(token, Ordering::Relaxed);
    A::full_fence();
}

/// Says that the caller is awake.
pub fn retract(flag: &impl Word32) {
    flag.store(AWAKE, Ordering::Relaxed);
}

/// To be called after publishing work: the token of the sleeper, [`AWAKE`] if nobody sleeps. (One who publishes to many
/// passes one fence and loads many tokens.)
pub fn sleeper<A: Atomics>(flag: &impl Word32) -> u32 {
    A::full_fence();
    flag.load(Ordering::Relaxed)
}

/// A producer's memory of the last sleep that it ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bell {
    rung: u32,
}

impl Bell {
    /// Whether `token`, as [`sleeper`] gave it, is of a sleep that was not rung for yet; from now on it was.
    pub fn must_ring(&mut self, token: u32) -> bool {
        if token == AWAKE || token == self.rung {
            return false;
        }
        self.rung = token;
        true
    }
}
