//! Outages: windows of time in which a path loses what comes, or holds it until it works again.

use std::collections::VecDeque;

use base::Instant;

use crate::spec::OutageSpec;
use crate::stats::StageStats;

/// What an outage may hold; more is dropped.
pub(crate) const MOST_HELD: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Outage<F> {
    spec: OutageSpec,
    held: VecDeque<F>,
    due: Instant,
}

impl<F> Outage<F> {
    pub(crate) fn new(spec: &OutageSpec) -> Self {
        Self { spec: *spec, held: VecDeque::new(), due: Instant::ZERO }
    }

    /// Gives the frame back if the path works.
    pub(crate) fn handle_frame(&mut self, now: Instant, frame: F, stats: &mut StageStats) -> Option<F> {
        let end = self.spec.end_at(now);
        match end {
            None if self.held.is_empty() => return Some(frame),
            Some(_) if !self.spec.hold => {
                stats.dropped += 1;
                return None;
            }
            _ => {}
        }
        if self.held.len() >= MOST_HELD {
            stats.dropped += 1;
            return None;
        }
        self.due = end.unwrap_or(now);
        self.held.push_back(frame);
        stats.peak_frames = stats.peak_frames.max(self.held.len() as u64);
        None
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.held.front().map(|_| self.due)
    }

    pub(crate) fn frames(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn poll_frame(&mut self, now: Instant) -> Option<F> {
        if now < self.due { None } else { self.held.pop_front() }
    }
}

impl OutageSpec {
    /// When the outage that reigns at `now` ends; `None` if the path works.
    pub fn end_at(&self, now: Instant) -> Option<Instant> {
        let since = now.as_nanos().checked_sub(self.start.as_nanos())?;
        let start = match self.every {
            None => self.start,
            Some(every) => now - base::Duration::from_nanos(since % every.as_nanos().max(1)),
        };
        let end = start + self.length;
        (now < end).then_some(end)
    }
}
