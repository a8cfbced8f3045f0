//! Stages that judge a frame the moment they see it: loss, duplication, corruption.

use base::{Rng, SeededRng};

use crate::frame::Frame;
use crate::spec::LossSpec;

/// Loses frames.
#[derive(Debug)]
pub(crate) struct Loss {
    spec: LossSpec,
    rng: SeededRng,
    /// Frames seen, the present one included: the explicit list counts from one.
    number: u64,
    /// Frames of the present burst still to lose.
    burst_left: u64,
    /// Gilbert-Elliott's bad state.
    bad: bool,
    /// The first range of the explicit list that is not over.
    next_range: usize,
}

impl Loss {
    pub(crate) fn new(spec: &LossSpec, rng: SeededRng) -> Self {
        Self { spec: spec.clone(), rng, number: 0, burst_left: 0, bad: false, next_range: 0 }
    }

    /// Whether the next frame is lost.
    pub(crate) fn loses(&mut self) -> bool {
        self.number += 1;
        match &self.spec {
            LossSpec::Bernoulli(probability) => self.rng.unit() < *probability,
            LossSpec::Burst { length, probability } => {
                if self.burst_left == 0 && self.rng.unit() < *probability {
                    self.burst_left = *length;
                }
                let lost = self.burst_left > 0;
                self.burst_left = self.burst_left.saturating_sub(1);
                lost
            }
            LossSpec::Gilbert { to_bad, to_good, in_bad, in_good } => {
                let turn = if self.bad { *to_good } else { *to_bad };
                self.bad ^= self.rng.unit() < turn;
                self.rng.unit() < if self.bad { *in_bad } else { *in_good }
            }
            LossSpec::Packets(ranges) => {
                while ranges.get(self.next_range).is_some_and(|range| *range.end() < self.number) {
                    self.next_range += 1;
                }
                ranges.get(self.next_range).is_some_and(|range| range.contains(&self.number))
            }
        }
    }
}

/// Flips bits.
#[derive(Debug)]
pub(crate) struct Corrupt {
    probability: f64,
    bits: u32,
    rng: SeededRng,
}

impl Corrupt {
    pub(crate) fn new(probability: f64, bits: u32, rng: SeededRng) -> Self {
        Self { probability, bits, rng }
    }

    /// Whether the frame was damaged.
    pub(crate) fn damage(&mut self, frame: &mut impl Frame) -> bool {
        if self.rng.unit() >= self.probability {
            return false;
        }
        for _ in 0..self.bits {
            let bit = self.rng.below(u64::from(frame.wire_len()) * 8);
            frame.flip_bit(bit);
        }
        true
    }
}
