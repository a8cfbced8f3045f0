//! A hierarchical timer wheel: arming, cancelling and asking for the next deadline cost the same with one timer as
//! with a million.
//!
//! Eight levels of 64 slots, the finest [`TICK_NANOS`] wide, each level 64 times coarser: 2⁵⁸ ns in all. A timer
//! stands in the level of the highest bit group in which its tick differs from the current one; when the wheel
//! reaches a coarse slot, its timers move down, at most seven times each. A timer never fires early; it may fire up
//! to one tick late. [`Wheel::deadline`] may name an earlier instant than the first timer's, at which timers only
//! move down: at most seven such steps a timer. (Varghese and Lauck 1987; the layout follows tokio's and Linux's.)

use core::num::NonZeroU32;

use base::Instant;

use crate::slab::Slab;

const TICK_BITS: u32 = 10;
/// The width of the finest slot.
pub const TICK_NANOS: u64 = 1 << TICK_BITS;
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = 8;
const NONE: u32 = u32::MAX;
/// Timers further away than the wheel reaches stand at its end and are re-armed from there.
const REACH_TICKS: u64 = (1 << (LEVEL_BITS * LEVELS as u32)) - 1;

/// A timer that is armed. Whoever armed it forgets this when the timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey(NonZeroU32);

struct Timer<T> {
    token: T,
    when_tick: u64,
    next: u32,
    prev: u32,
    place: u16,
}

struct Level {
    occupied: u64,
    heads: [u32; SLOTS],
}

/// The wheel; `T` says whose timer it is.
pub(crate) struct Wheel<T> {
    timers: Slab<Timer<T>>,
    levels: Box<[Level; LEVELS]>,
    /// The wheel has advanced to this tick; nothing stands before it.
    elapsed: u64,
    operations: u64,
}

impl<T: Copy> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self {
            timers: Slab::new(),
            levels: Box::new(core::array::from_fn(|_| Level { occupied: 0, heads: [NONE; SLOTS] })),
            elapsed: 0,
            operations: 0,
        }
    }

    /// Arms a new timer.
    pub(crate) fn arm(&mut self, deadline: Instant, token: T) -> TimerKey {
        let when_tick = self.tick_for(deadline);
        let index = self.timers.insert(Timer { token, when_tick, next: NONE, prev: NONE, place: 0 }).index;
        self.link(index);
        TimerKey(NonZeroU32::MIN.saturating_add(index))
    }

    /// Takes a timer out that has not fired.
    pub(crate) fn cancel(&mut self, key: TimerKey) {
        let index = key.0.get() - 1;
        debug_assert!(self.timers.get_index(index).is_some(), "a cancelled timer is armed");
        if self.timers.get_index(index).is_some() {
            self.unlink(index);
            self.timers.remove(index);
        }
    }

    /// The next instant at which [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next_slot().map(|(_, _, tick)| Instant::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// The next timer that is due at `now`; it is no longer armed. `None` when none is left, or when `budget` (steps,
    /// moves of timers to finer slots included) is used up.
    pub(crate) fn expire(&mut self, now: Instant, budget: &mut u32) -> Option<T> {
        let now_tick = now.as_nanos() >> TICK_BITS;
        while *budget > 0 {
            let Some((level, slot, tick)) = self.next_slot().filter(|&(_, _, tick)| tick <= now_tick) else {
                self.elapsed = self.elapsed.max(now_tick);
                return None;
            };
            *budget -= 1;
            self.elapsed = self.elapsed.max(tick);
            let index = self.levels[level].heads[slot];
            self.unlink(index);
            let timer = self.timers.get_index(index).expect("linked timers exist");
            if timer.when_tick <= self.elapsed {
                return self.timers.remove(index).map(|timer| timer.token);
            }
            self.link(index);
        }
        None
    }

    /// How many list operations were made since the start.
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    /// How many timers are armed.
    pub(crate) fn len(&self) -> usize {
        self.timers.len()
    }

    /// Ticks are rounded up, so that no timer fires early.
    fn tick_for(&self, deadline: Instant) -> u64 {
        deadline.as_nanos().div_ceil(TICK_NANOS).clamp(self.elapsed, self.elapsed.saturating_add(REACH_TICKS))
    }

    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let mut best: Option<(usize, usize, u64)> = None;
        for (number, level) in self.levels.iter().enumerate() {
            if level.occupied == 0 {
                continue;
            }
            let shift = LEVEL_BITS * number as u32;
            let current = (self.elapsed >> shift) & (SLOTS as u64 - 1);
            let ahead = u64::from(level.occupied.rotate_right(current as u32).trailing_zeros());
            let slot = (current + ahead) & (SLOTS as u64 - 1);
            let tick = (((self.elapsed >> shift) + ahead) << shift).max(self.elapsed);
            // On a tie the coarser slot comes first: its timers have to move down before finer ones fire.
            if best.is_none_or(|(_, _, earliest)| tick <= earliest) {
                best = Some((number, slot as usize, tick));
            }
        }
        best
    }

    fn link(&mut self, index: u32) {
        self.operations += 1;
        let elapsed = self.elapsed;
        let timer = self.timers.get_index_mut(index).expect("a timer being linked exists");
        let differing = 63 - ((timer.when_tick ^ elapsed) | 1).leading_zeros();
        let level = ((differing / LEVEL_BITS) as usize).min(LEVELS - 1);
        let slot = ((timer.when_tick >> (LEVEL_BITS * level as u32)) as usize) & (SLOTS - 1);
        let head = self.levels[level].heads[slot];
        timer.place = (level * SLOTS + slot) as u16;
        timer.prev = NONE;
        timer.next = head;
        if let Some(next) = self.timers.get_index_mut(head) {
            next.prev = index;
        }
        self.levels[level].heads[slot] = index;
        self.levels[level].occupied |= 1 << slot;
    }

    fn unlink(&mut self, index: u32) {
        self.operations += 1;
        let timer = self.timers.get_index(index).expect("a linked timer exists");
        let (next, prev, place) = (timer.next, timer.prev, usize::from(timer.place));
        if let Some(next) = self.timers.get_index_mut(next) {
            next.prev = prev;
        }
        if let Some(prev) = self.timers.get_index_mut(prev) {
            prev.next = next;
        } else {
            let level = &mut self.levels[place / SLOTS];
            level.heads[place % SLOTS] = next;
            if next == NONE {
                level.occupied &= !(1 << (place % SLOTS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Duration, Rng, SeededRng};

    fn expire_all(wheel: &mut Wheel<u64>, now: Instant) -> Vec<u64> {
        core::iter::from_fn(|| wheel.expire(now, &mut u32::MAX.clone())).collect()
    }

    #[test]
    fn timers_fire_once_in_time_and_never_early() {
        for seed in 0..20 {
            let mut rng = SeededRng::new(seed);
            let mut wheel = Wheel::new();
            let mut now = Instant::from_nanos(rng.below(1 << 40));
            let mut model: Vec<(Instant, u64, TimerKey)> = Vec::new();
            for step in 0..3_000u64 {
                match rng.below(10) {
                    0..6 => {
                        let span = 1u64 << rng.below(45);
                        let deadline = now + Duration::from_nanos(rng.below(span));
                        model.push((deadline, step, wheel.arm(deadline, step)));
                    }
                    6..8 if !model.is_empty() => {
                        let (_, _, key) = model.swap_remove(rng.below(model.len() as u64) as usize);
                        wheel.cancel(key);
                    }
                    _ => {
                        let span = 1 << rng.below(40);
                        let earliest = model.iter().map(|entry| entry.0).min();
                        now = match wheel.deadline() {
                            Some(deadline) if rng.below(2) == 0 => now.max(deadline),
                            _ => now + Duration::from_nanos(rng.below(span)),
                        };
                        if let (Some(deadline), Some(earliest)) = (wheel.deadline(), earliest) {
                            assert!(deadline <= earliest + Duration::from_nanos(TICK_NANOS), "seed {seed}");
                        }
                        for token in expire_all(&mut wheel, now) {
                            let at = model.iter().position(|entry| entry.1 == token).expect("armed");
                            let (deadline, ..) = model.swap_remove(at);
                            assert!(deadline <= now, "seed {seed}: fired early");
                        }
                        for (deadline, ..) in &model {
                            assert!(*deadline + Duration::from_nanos(TICK_NANOS) > now, "seed {seed}: late");
                        }
                    }
                }
                assert_eq!(wheel.len(), model.len());
            }
        }
    }

    #[test]
    fn following_the_deadlines_reaches_the_timer_in_few_steps() {
        let mut wheel = Wheel::new();
        let target = Instant::from_millis(86_400_000);
        wheel.arm(target, 1);
        let mut steps = 0;
        loop {
            let deadline = wheel.deadline().expect("armed");
            steps += 1;
            if wheel.expire(deadline, &mut 100).is_some() {
                assert!(deadline >= target);
                break;
            }
        }
        assert!(steps <= LEVELS, "{steps}");
    }

    #[test]
    fn the_budget_bounds_a_call_and_loses_nothing() {
        let mut wheel = Wheel::new();
        for token in 0..1000u64 {
            wheel.arm(Instant::from_millis(100), token);
        }
        let mut fired = 0;
        let mut calls = 0;
        while wheel.len() > 0 {
            let mut budget = 64;
            calls += 1;
            while wheel.expire(Instant::from_millis(200), &mut budget).is_some() {
                fired += 1;
            }
        }
        assert_eq!(fired, 1000);
        assert!(calls > 15);
    }
}
