//! Send memory of sockets that have nothing to send goes back.
//!
//! Whoever goes to sleep in a call of this library looks after it first, for all sockets of the endpoint: what a socket
//! held at one look and has not used at the next, two seconds later, is given up. So ten thousand connections that wait for
//! their peers cost a server no memory, and a program whose sockets hold none is not woken for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::endpoint::lock;
use crate::raw::Sending;

/// How long memory must be unused, at least; a few times as long at most, where somebody sleeps.
const PERIOD: Duration = Duration::from_secs(2);
/// The time until the next look where one did not come to the end of the list.
const SOON: Duration = Duration::from_millis(20);
/// Sockets looked at in one look.
const BUDGET: usize = 1024;
/// Whoever never sleeps looks once in so many calls.
const BUSY_CALLS: u32 = 1024;

/// The sockets of an endpoint that hold send memory.
pub(crate) struct Holders {
    list: Mutex<List>,
    /// When the next look is due, in milliseconds since `epoch`.
    due: AtomicU64,
    epoch: Instant,
    calls: AtomicU32,
}

#[derive(Default)]
struct List {
    /// Each with what it had queued when it was last looked at.
    sockets: VecDeque<(Weak<Sending>, u64)>,
    /// How many are still to be looked at in this round.
    left: usize,
}

impl Holders {
    pub(crate) fn new() -> Self {
        Self {
            list: Mutex::default(),
            due: AtomicU64::new(0),
            epoch: Instant::now(),
            calls: AtomicU32::new(0),
        }
    }

    /// The socket holds send memory from now on.
    pub(crate) fn add(&self, sending: &Arc<Sending>) {
        let mut list = lock(&self.list);
        if list.sockets.is_empty() {
            self.put_off(Instant::now(), PERIOD);
        }
        list.sockets.push_back((Arc::downgrade(sending), 0));
        // Sockets that have gone leave their place: more of them go from the list than come into it.
        for _ in 0..2 {
            if let Some(holder) = list.sockets.pop_front().filter(|(sending, _)| sending.strong_count() > 0) {
                list.sockets.push_back(holder);
            }
        }
    }

    /// In milliseconds since `epoch`.
    fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis() as u64
    }

    fn put_off(&self, now: Instant, span: Duration) {
        self.due.store(self.millis(now) + span.as_millis() as u64, Ordering::Relaxed);
    }

    /// Looks after the memory if that is due. Whether some went back, and how long the caller may sleep until the
    /// next look; `None`: there is nothing to look after.
    pub(crate) fn tend(&self, now: Instant) -> (bool, Option<Duration>) {
        let (millis, due) = (self.millis(now), self.due.load(Ordering::Relaxed));
        if millis < due {
            // Whoever looked last comes back in time; the others need not all wake up with it.
            let is_empty = lock(&self.list).sockets.is_empty();
            return (false, (!is_empty).then_some(PERIOD));
        }
        let next = millis + PERIOD.as_millis() as u64;
        if self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // Another thread is at it.
            return (false, Some(PERIOD));
        }
        self.look(now)
    }

    /// The same for a caller who does not sleep, once in many calls.
    pub(crate) fn tend_while_busy(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % BUSY_CALLS == BUSY_CALLS - 1
            && self.tend(Instant::now()).0
    }

    /// Takes back what some sockets did not use since they were last looked at.
    fn look(&self, now: Instant) -> (bool, Option<Duration>) {
        let mut went_back = false;
        let mut list = lock(&self.list);
        if list.left == 0 {
            list.left = list.sockets.len();
        }
        for _ in 0..list.left.min(BUDGET) {
            list.left -= 1;
            let Some((weak, queued)) = list.sockets.pop_front() else { break };
            let Some(sending) = weak.upgrade() else { continue };
            match sending.give_back_idle(queued) {
                None => list.sockets.push_back((weak, queued)),
                Some((queued, true)) => list.sockets.push_back((weak, queued)),
                Some((_, false)) => went_back = true,
            }
        }
        if list.sockets.is_empty() {
            list.left = 0;
            return (went_back, None);
        }
        let next = if list.left > 0 { SOON } else { PERIOD };
        self.put_off(now, next);
        (went_back, Some(next))
    }
}
