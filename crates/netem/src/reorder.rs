//! Reordering: chosen frames wait while others pass, for a time or for a number of frames.

use std::collections::VecDeque;

use base::{Duration, Instant, Rng, SeededRng};

use crate::delay::Later;
use crate::spec::{HoldBack, ReorderSpec};
use crate::stats::StageStats;

/// A frame held back by a number of frames leaves after this long even if no frame comes to overtake it.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_millis(200);

/// Holds chosen frames back.
#[derive(Debug)]
pub(crate) struct Reorder<F> {
    spec: ReorderSpec,
    rng: SeededRng,
    by_time: Later<F>,
    by_frames: VecDeque<Held<F>>,
}

#[derive(Debug)]
struct Held<F> {
    /// How many frames have still to overtake it.
    overtakers: u64,
    due: Instant,
    frame: F,
}

impl<F> Reorder<F> {
    pub(crate) fn new(spec: &ReorderSpec, rng: SeededRng) -> Self {
        Self { spec: *spec, rng, by_time: Later::default(), by_frames: VecDeque::new() }
    }

    /// Gives the frame back if it passes at once.
    pub(crate) fn handle_frame(&mut self, now: Instant, frame: F, stats: &mut StageStats) -> Option<F> {
        if self.rng.unit() >= self.spec.probability {
            for held in &mut self.by_frames {
                held.overtakers = held.overtakers.saturating_sub(1);
                if held.overtakers == 0 {
                    held.due = held.due.min(now);
                }
            }
            return Some(frame);
        }
        stats.reordered += 1;
        match self.spec.by {
            HoldBack::Time { least, most } => {
                let span = most.saturating_sub(least).as_nanos();
                let hold = least + Duration::from_nanos(self.rng.below(span + 1));
                self.by_time.push(now + hold, frame);
            }
            HoldBack::Frames { least, most } => {
                let overtakers = least + self.rng.below(most.saturating_sub(least) + 1);
                self.by_frames.push_back(Held { overtakers, due: now + LONGEST_HOLD, frame });
            }
        }
        None
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let by_frames = self.by_frames.iter().map(|held| held.due).min();
        [self.by_time.deadline(), by_frames].into_iter().flatten().min()
    }

    pub(crate) fn frames(&self) -> usize {
        self.by_time.len() + self.by_frames.len()
    }

    pub(crate) fn poll_frame(&mut self, now: Instant) -> Option<F> {
        if let Some(index) = self.by_frames.iter().position(|held| held.due <= now) {
            return self.by_frames.remove(index).map(|held| held.frame);
        }
        self.by_time.pop(now)
    }
}
