//! The chain: what leaves one stage enters the next at the same instant.

use std::collections::VecDeque;

use base::{Instant, Rng, SeededRng};

use crate::bottleneck::Bottleneck;
use crate::delay::Delay;
use crate::frame::Frame;
use crate::impair::{Corrupt, Loss};
use crate::outage::Outage;
use crate::policer::Policer;
use crate::reorder::Reorder;
use crate::spec::{PathSpec, StageSpec};
use crate::stats::StageStats;

/// What a path gives back.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<F> {
    /// The frame has reached the end.
    Deliver(F),
    /// The frame is longer than a link on the way takes, and its sender is to be told (RFC 1191 §4).
    TooBig {
        /// The frame.
        frame: F,
        /// The length that the link takes.
        mtu: u32,
    },
}

/// One direction of an emulated path.
///
/// Call [`handle_frame`](Self::handle_frame) when a frame enters and [`poll_output`](Self::poll_output), until it gives
/// nothing, after that and at each [`deadline`](Self::deadline). Times never go back.
#[derive(Debug)]
pub struct Path<F> {
    stages: Vec<Slot<F>>,
    output: VecDeque<Output<F>>,
    /// The earliest deadline of a stage.
    next: Instant,
}

#[derive(Debug)]
struct Slot<F> {
    stage: Stage<F>,
    stats: StageStats,
    name: Box<str>,
}

#[derive(Debug)]
enum Stage<F> {
    Bottleneck(Bottleneck<F>),
    Delay(Delay<F>),
    Loss(Loss),
    Duplicate(f64, SeededRng),
    Reorder(Reorder<F>),
    Corrupt(Corrupt),
    Mtu { mtu: u32, icmp: bool },
    Policer(Policer),
    Outage(Outage<F>),
}

/// What became of a frame in a stage.
enum Step<F> {
    Pass(F),
    PassTwice(F, F),
    /// The stage keeps it, or has dropped it.
    Gone,
    TooBig(F, u32),
}

impl<F: Frame> Path<F> {
    /// A path as `spec` says. Each stage has a generator of its own, seeded from `rng`.
    pub fn new(spec: &PathSpec, rng: &mut impl Rng) -> Self {
        let stages = spec.stages.iter().map(|stage| Slot {
            stage: Stage::new(stage, SeededRng::new(rng.next_u64())),
            stats: StageStats::default(),
            name: stage.to_string().into(),
        });
        Self { stages: stages.collect(), output: VecDeque::new(), next: Instant::FAR_FUTURE }
    }

    /// A frame enters at `now`.
    pub fn handle_frame(&mut self, now: Instant, frame: F) {
        self.advance(now);
        self.feed(0, now, frame);
        self.advance(now);
    }

    /// When [`poll_output`](Self::poll_output) has something to do; `None` while the path is empty.
    pub fn deadline(&self) -> Option<Instant> {
        if !self.output.is_empty() {
            return Some(Instant::ZERO);
        }
        (self.next != Instant::FAR_FUTURE).then_some(self.next)
    }

    /// The next frame that has come out by `now`.
    pub fn poll_output(&mut self, now: Instant) -> Option<Output<F>> {
        if self.output.is_empty() && self.next <= now {
            self.advance(now);
        }
        self.output.pop_front()
    }

    /// Frames inside: waiting, in transmission, on their way.
    pub fn frames(&self) -> usize {
        self.output.len() + self.stages.iter().map(|slot| slot.stage.frames()).sum::<usize>()
    }

    /// Each stage, as text, with its counters.
    pub fn stats(&self) -> impl Iterator<Item = (&str, &StageStats)> {
        self.stages.iter().map(|slot| (&*slot.name, &slot.stats))
    }

    /// Frames that the stages dropped, all together; those too big without a message included.
    pub fn dropped(&self) -> u64 {
        self.stages.iter().map(|slot| slot.stats.dropped).sum()
    }

    /// Lets everything happen that is due by `now`, in the order of its time. At one instant the stage nearest the end
    /// comes first, so that a frame leaves before another takes its place.
    fn advance(&mut self, now: Instant) {
        loop {
            let mut earliest = (Instant::FAR_FUTURE, 0);
            for (index, slot) in self.stages.iter().enumerate() {
                if let Some(due) = slot.stage.deadline()
                    && due <= earliest.0
                {
                    earliest = (due, index);
                }
            }
            let (due, index) = earliest;
            self.next = due;
            if due > now || due == Instant::FAR_FUTURE {
                return;
            }
            let slot = &mut self.stages[index];
            if let Some(frame) = slot.stage.poll_frame(due, &mut slot.stats) {
                slot.stats.count_out(frame.wire_len());
                self.feed(index + 1, due, frame);
            }
        }
    }

    /// Takes a frame through the stages from `index` on, until one keeps it or it is out.
    fn feed(&mut self, mut index: usize, now: Instant, mut frame: F) {
        while let Some(slot) = self.stages.get_mut(index) {
            slot.stats.count_in(frame.wire_len());
            index += 1;
            match slot.stage.handle_frame(now, frame, &mut slot.stats) {
                Step::Pass(passed) => {
                    slot.stats.count_out(passed.wire_len());
                    frame = passed;
                }
                Step::PassTwice(passed, copy) => {
                    slot.stats.count_out(passed.wire_len());
                    slot.stats.count_out(copy.wire_len());
                    self.feed(index, now, passed);
                    frame = copy;
                }
                Step::Gone => return,
                Step::TooBig(frame, mtu) => {
                    self.output.push_back(Output::TooBig { frame, mtu });
                    return;
                }
            }
        }
        self.output.push_back(Output::Deliver(frame));
    }
}

impl<F: Frame> Stage<F> {
    fn new(spec: &StageSpec, rng: SeededRng) -> Self {
        match spec {
            StageSpec::Bottleneck { server, queue } => Self::Bottleneck(Bottleneck::new(server, queue, rng)),
            StageSpec::Delay(delay) => Self::Delay(Delay::new(delay, rng)),
            StageSpec::Loss(loss) => Self::Loss(Loss::new(loss, rng)),
            StageSpec::Duplicate(probability) => Self::Duplicate(*probability, rng),
            StageSpec::Reorder(reorder) => Self::Reorder(Reorder::new(reorder, rng)),
            StageSpec::Corrupt { probability, bits } => Self::Corrupt(Corrupt::new(*probability, *bits, rng)),
            StageSpec::Mtu { mtu, icmp } => Self::Mtu { mtu: *mtu, icmp: *icmp },
            StageSpec::Policer { rate, burst } => Self::Policer(Policer::new(*rate, *burst)),
            StageSpec::Outage(outage) => Self::Outage(Outage::new(outage)),
        }
    }

    fn handle_frame(&mut self, now: Instant, mut frame: F, stats: &mut StageStats) -> Step<F> {
        let kept = match self {
            Self::Bottleneck(bottleneck) => {
                bottleneck.handle_frame(now, frame, stats);
                return Step::Gone;
            }
            Self::Delay(delay) => {
                delay.handle_frame(now, frame, stats);
                return Step::Gone;
            }
            Self::Reorder(reorder) => {
                return reorder.handle_frame(now, frame, stats).map_or(Step::Gone, Step::Pass);
            }
            Self::Outage(outage) => {
                return outage.handle_frame(now, frame, stats).map_or(Step::Gone, Step::Pass);
            }
            Self::Duplicate(probability, rng) => {
                if rng.unit() < *probability
                    && let Some(copy) = frame.duplicate()
                {
                    stats.duplicated += 1;
                    return Step::PassTwice(frame, copy);
                }
                true
            }
            Self::Corrupt(corrupt) => {
                stats.corrupted += u64::from(corrupt.damage(&mut frame));
                true
            }
            Self::Mtu { mtu, icmp } => {
                let fits = frame.wire_len() <= *mtu;
                if !fits && *icmp {
                    stats.too_big += 1;
                    return Step::TooBig(frame, *mtu);
                }
                fits
            }
            Self::Loss(loss) => !loss.loses(),
            Self::Policer(policer) => policer.conforms(now, frame.wire_len()),
        };
        stats.dropped += u64::from(!kept);
        if kept { Step::Pass(frame) } else { Step::Gone }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.deadline(),
            Self::Delay(delay) => delay.deadline(),
            Self::Reorder(reorder) => reorder.deadline(),
            Self::Outage(outage) => outage.deadline(),
            Self::Loss(_) | Self::Duplicate(..) | Self::Corrupt(_) | Self::Mtu { .. } | Self::Policer(_) => {
                None
            }
        }
    }

    fn poll_frame(&mut self, now: Instant, stats: &mut StageStats) -> Option<F> {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.poll_frame(now, stats),
            Self::Delay(delay) => delay.poll_frame(now),
            Self::Reorder(reorder) => reorder.poll_frame(now),
            Self::Outage(outage) => outage.poll_frame(now),
            Self::Loss(_) | Self::Duplicate(..) | Self::Corrupt(_) | Self::Mtu { .. } | Self::Policer(_) => {
                None
            }
        }
    }

    fn frames(&self) -> usize {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.frames(),
            Self::Delay(delay) => delay.frames(),
            Self::Reorder(reorder) => reorder.frames(),
            Self::Outage(outage) => outage.frames(),
            Self::Loss(_) | Self::Duplicate(..) | Self::Corrupt(_) | Self::Mtu { .. } | Self::Policer(_) => 0,
        }
    }
}
