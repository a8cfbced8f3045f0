//! What waits in front of a bottleneck, and who is turned away: drop-tail, CoDel, RED.

mod codel;
mod red;

use std::collections::VecDeque;

use base::{Instant, SeededRng};

use crate::frame::Frame;
use crate::stats::StageStats;
use codel::Codel;
use red::Red;

pub use codel::CodelSpec;
pub use red::RedSpec;

/// How much may wait in a queue. The frame in transmission does not count, and a queue always holds one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this many bytes.
    Bytes(u64),
    /// At most this many frames.
    Frames(u64),
}

/// How a queue manages itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Discipline {
    /// A full queue drops the arriving frame.
    DropTail,
    /// Controlled Delay (RFC 8289).
    Codel(CodelSpec),
    /// Random Early Detection (Floyd and Jacobson 1993, RFC 7567 §4.2), gentle above its maximum.
    Red(RedSpec),
}

/// A queue's limit and discipline.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// The hard limit.
    pub limit: Limit,
    /// What happens below it.
    pub discipline: Discipline,
}

impl Default for QueueSpec {
    /// A thousand frames, drop-tail: what Linux gives an interface.
    fn default() -> Self {
        Self { limit: Limit::Frames(1000), discipline: Discipline::DropTail }
    }
}

/// A queue of frames in front of a bottleneck.
#[derive(Debug)]
pub struct Queue<F> {
    limit: Limit,
    manager: Manager,
    waiting: VecDeque<Waiting<F>>,
    bytes: u64,
}

#[derive(Debug)]
struct Waiting<F> {
    frame: F,
    since: Instant,
}

#[derive(Debug)]
enum Manager {
    DropTail,
    Codel(Codel),
    Red(Red),
}

/// What to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// Signal congestion: mark the frame if it can be, else drop it.
    Signal,
    Drop,
}

impl<F: Frame> Queue<F> {
    /// An empty queue.
    pub fn new(spec: &QueueSpec, rng: SeededRng) -> Self {
        let manager = match &spec.discipline {
            Discipline::DropTail => Manager::DropTail,
            Discipline::Codel(codel) => Manager::Codel(Codel::new(*codel)),
            Discipline::Red(red) => Manager::Red(Red::new(*red, rng)),
        };
        Self { limit: spec.limit, manager, waiting: VecDeque::new(), bytes: 0 }
    }

    /// Bytes waiting.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frames waiting.
    pub fn frames(&self) -> usize {
        self.waiting.len()
    }

    /// A frame arrives: it waits, or it is dropped.
    pub fn handle_frame(&mut self, now: Instant, mut frame: F, stats: &mut StageStats) {
        let len = u64::from(frame.wire_len());
        let verdict = match &mut self.manager {
            Manager::DropTail | Manager::Codel(_) => Verdict::Keep,
            Manager::Red(red) => red.on_arrival(now, self.bytes, self.waiting.len()),
        };
        let ecn = matches!(&self.manager, Manager::Red(red) if red.ecn());
        let full = !self.waiting.is_empty()
            && match self.limit {
                Limit::Bytes(limit) => self.bytes + len > limit,
                Limit::Frames(limit) => self.waiting.len() as u64 >= limit,
            };
        if full || !admit(verdict, ecn, &mut frame, stats) {
            stats.dropped += 1;
            return;
        }
        self.bytes += len;
        self.waiting.push_back(Waiting { frame, since: now });
        stats.peak_bytes = stats.peak_bytes.max(self.bytes);
        stats.peak_frames = stats.peak_frames.max(self.waiting.len() as u64);
    }

    /// The next frame to transmit. CoDel drops here.
    pub fn poll_frame(&mut self, now: Instant, stats: &mut StageStats) -> Option<F> {
        loop {
            let Some(mut head) = self.waiting.pop_front() else {
                self.on_empty(now);
                return None;
            };
            self.bytes -= u64::from(head.frame.wire_len());
            let sojourn = now.saturating_since(head.since);
            let (verdict, ecn) = match &mut self.manager {
                Manager::Codel(codel) => (codel.on_departure(now, sojourn, self.bytes), codel.ecn()),
                Manager::DropTail | Manager::Red(_) => (Verdict::Keep, false),
            };
            if admit(verdict, ecn, &mut head.frame, stats) {
                return Some(head.frame);
            }
            stats.dropped += 1;
        }
    }

    fn on_empty(&mut self, now: Instant) {
        match &mut self.manager {
            Manager::DropTail => {}
            Manager::Codel(codel) => codel.on_empty(),
            Manager::Red(red) => red.on_empty(now),
        }
    }
}

/// Carries a verdict out on `frame`; `false` if it must be dropped.
fn admit<F: Frame>(verdict: Verdict, ecn: bool, frame: &mut F, stats: &mut StageStats) -> bool {
    match verdict {
        Verdict::Keep => true,
        Verdict::Drop => false,
        Verdict::Signal => {
            let marked = ecn && frame.mark_congestion();
            stats.marked += u64::from(marked);
            marked
        }
    }
}

#[cfg(test)]
mod tests;
