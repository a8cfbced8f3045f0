//! A path as data: its stages with their parameters, and as text.
//!
//! A path in text is a list of stages, separated by commas or line ends, in the order in which a frame meets them:
//!
//! | stage | example |
//! |---|---|
//! | bottleneck | `rate 527mbit`, `rate 100mbit ethernet`, `rate 599mbit atm`, `rate 10mbit overhead 4B` |
//! | trace | `trace NAME`, a Mahimahi trace that the caller resolves |
//! | its queue | `queue 3MB`, `queue 1000pkt droptail`, `queue 3MB codel target 5ms interval 100ms ecn`, `queue 3MB red min 100KB max 300KB p 10% weight 0.002 ecn` |
//! | delay | `delay 22.5ms`, `delay 20ms jitter 3ms`, `delay 20ms jitter 3ms normal reorder` |
//! | loss | `loss 1%`, `loss burst 3 3e-5`, `loss gilbert 1% 30%`, `loss gilbert 1% 30% bad 80% good 0.1%`, `loss packets 7 9 20..30` |
//! | duplication | `duplicate 0.1%` |
//! | reordering | `reorder 1% 10pkt`, `reorder 1% 1..10pkt`, `reorder 1% 0..10ms` |
//! | corruption | `corrupt 1e-4`, `corrupt 1e-4 bits 3` |
//! | MTU | `mtu 1400`, `mtu 1400 blackhole` |
//! | policer | `policer 50mbit burst 64KB` |
//! | outage | `outage at 5s for 2s`, `outage at 5s for 2s every 30s hold` |
//!
//! A `queue` belongs to the nearest bottleneck before it, or, if there is none, to the first one after it.

mod display;
mod parse;

use core::ops::RangeInclusive;

use base::{Duration, Instant};

use crate::bottleneck::Server;
use crate::queue::QueueSpec;
use crate::units::Rate;

pub use parse::ParsePathError;

/// A path: its stages in the order in which a frame meets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathSpec {
    /// The stages.
    pub stages: Vec<StageSpec>,
}

/// One stage of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum StageSpec {
    /// A queue and what drains it.
    Bottleneck {
        /// The link.
        server: Server,
        /// The queue before it.
        queue: QueueSpec,
    },
    /// Propagation delay.
    Delay(DelaySpec),
    /// Loss.
    Loss(LossSpec),
    /// Duplication with this probability.
    Duplicate(f64),
    /// Reordering.
    Reorder(ReorderSpec),
    /// Bit errors.
    Corrupt {
        /// Probability that a packet is damaged.
        probability: f64,
        /// How many bits flip then.
        bits: u32,
    },
    /// A link with a small MTU.
    Mtu {
        /// The longest IP packet that passes.
        mtu: u32,
        /// Whether the sender is told (RFC 1191 §4); if not, the path is a black hole for longer packets.
        icmp: bool,
    },
    /// A token-bucket policer.
    Policer {
        /// The rate at which tokens come.
        rate: Rate,
        /// The depth of the bucket in bytes.
        burst: u64,
    },
    /// Windows of time in which the path does not work.
    Outage(OutageSpec),
}

/// Propagation delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelaySpec {
    /// The delay, or its mean.
    pub delay: Duration,
    /// Its variation.
    pub jitter: Option<Jitter>,
}

/// How a delay varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// Uniform: the most that the delay differs from its mean. Normal: the standard deviation.
    pub spread: Duration,
    /// Normally instead of uniformly distributed.
    pub normal: bool,
    /// Whether a frame may overtake another.
    pub reorder: bool,
}

/// How frames are lost.
#[derive(Clone, Debug, PartialEq)]
pub enum LossSpec {
    /// Each with this probability, independently.
    Bernoulli(f64),
    /// Runs of `length` frames; a run starts at a frame with `probability`.
    Burst {
        /// Frames in a run.
        length: u64,
        /// Probability that a run starts, for each frame outside of one.
        probability: f64,
    },
    /// Two states, each with a loss probability of its own (Gilbert 1960, Elliott 1963).
    Gilbert {
        /// Probability to turn bad, for each frame.
        to_bad: f64,
        /// Probability to turn good again.
        to_good: f64,
        /// Loss probability in the bad state.
        in_bad: f64,
        /// Loss probability in the good state.
        in_good: f64,
    },
    /// These frames, counted from one, in ascending ranges.
    Packets(Vec<RangeInclusive<u64>>),
}

/// Reordering of single frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReorderSpec {
    /// Probability that a frame is held back.
    pub probability: f64,
    /// For how long.
    pub by: HoldBack,
}

/// How long a frame is held back, uniformly between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldBack {
    /// For a time.
    Time {
        /// At least.
        least: Duration,
        /// At most.
        most: Duration,
    },
    /// Until a number of frames have overtaken it.
    Frames {
        /// At least.
        least: u64,
        /// At most.
        most: u64,
    },
}

/// Windows of time in which a path does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutageSpec {
    /// When the first starts.
    pub start: Instant,
    /// How long each lasts.
    pub length: Duration,
    /// The time from start to start, if there is more than one.
    pub every: Option<Duration>,
    /// Whether frames wait for the end (a hand-over) instead of being lost.
    pub hold: bool,
}
