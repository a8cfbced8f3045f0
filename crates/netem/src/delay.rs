//! Propagation delay with jitter, in order or not.

use core::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use base::{Duration, Instant, Rng, SeededRng};

use crate::spec::{DelaySpec, Jitter};
use crate::stats::StageStats;

/// Frames on their way, each due at a time of its own.
#[derive(Debug)]
pub(crate) struct Delay<F> {
    spec: DelaySpec,
    rng: SeededRng,
    flight: Flight<F>,
    latest: Instant,
}

#[derive(Debug)]
enum Flight<F> {
    InOrder(VecDeque<(Instant, F)>),
    AnyOrder(Later<F>),
}

impl<F> Delay<F> {
    pub(crate) fn new(spec: &DelaySpec, rng: SeededRng) -> Self {
        let in_order = spec.jitter.is_none_or(|jitter| !jitter.reorder);
        let flight =
            if in_order { Flight::InOrder(VecDeque::new()) } else { Flight::AnyOrder(Later::default()) };
        Self { spec: *spec, rng, flight, latest: Instant::ZERO }
    }

    pub(crate) fn handle_frame(&mut self, now: Instant, frame: F, stats: &mut StageStats) {
        let delay = match self.spec.jitter {
            None => self.spec.delay,
            Some(jitter) => self.jittered(jitter),
        };
        let mut due = now + delay;
        match &mut self.flight {
            Flight::InOrder(frames) => {
                // Without reordering a frame never overtakes the one before it.
                due = due.max(self.latest);
                frames.push_back((due, frame));
            }
            Flight::AnyOrder(frames) => {
                stats.reordered += u64::from(due < self.latest);
                frames.push(due, frame);
            }
        }
        self.latest = self.latest.max(due);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.flight {
            Flight::InOrder(frames) => frames.front().map(|(due, _)| *due),
            Flight::AnyOrder(frames) => frames.deadline(),
        }
    }

    pub(crate) fn frames(&self) -> usize {
        match &self.flight {
            Flight::InOrder(frames) => frames.len(),
            Flight::AnyOrder(frames) => frames.len(),
        }
    }

    pub(crate) fn poll_frame(&mut self, now: Instant) -> Option<F> {
        match &mut self.flight {
            Flight::InOrder(frames) => match frames.front() {
                Some((due, _)) if *due <= now => frames.pop_front().map(|(_, frame)| frame),
                _ => None,
            },
            Flight::AnyOrder(frames) => frames.pop(now),
        }
    }

    fn jittered(&mut self, jitter: Jitter) -> Duration {
        let spread = jitter.spread.as_nanos();
        let base = self.spec.delay.as_nanos();
        let nanos = if jitter.normal {
            // The sum of twelve uniform draws has variance one: a normal distribution, cut at six deviations, by the
            // same arithmetic on every machine.
            let deviations = (0..12).map(|_| self.rng.unit()).sum::<f64>() - 6.0;
            (base as f64 + deviations * spread as f64).max(0.0) as u64
        } else {
            (base + self.rng.below(2 * spread + 1)).saturating_sub(spread)
        };
        Duration::from_nanos(nanos)
    }
}

/// Frames by the time that they are due, those of the same time in the order in which they came.
#[derive(Debug)]
pub(crate) struct Later<F> {
    heap: BinaryHeap<Due<F>>,
    pushed: u64,
}

#[derive(Debug)]
struct Due<F> {
    at: Instant,
    number: u64,
    frame: F,
}

impl<F> Default for Later<F> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0 }
    }
}

impl<F> Later<F> {
    pub(crate) fn push(&mut self, at: Instant, frame: F) {
        self.heap.push(Due { at, number: self.pushed, frame });
        self.pushed += 1;
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.heap.peek().map(|due| due.at)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<F> {
        if self.deadline()? > now {
            return None;
        }
        self.heap.pop().map(|due| due.frame)
    }
}

impl<F> Ord for Due<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        // A heap gives its greatest first.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<F> PartialOrd for Due<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> PartialEq for Due<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for Due<F> {}
