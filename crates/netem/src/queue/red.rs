//! RED: drops or marks arriving frames with a probability that grows with the average queue (Floyd and Jacobson 1993),
//! gently from the maximum to twice the maximum.

use base::{Duration, Instant, Rng, SeededRng};

use super::Verdict;

/// The parameters of RED.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedSpec {
    /// Average queue in bytes below which nothing happens.
    pub min: u64,
    /// Average queue in bytes at which the probability has reached `probability`.
    pub max: u64,
    /// The probability at `max`.
    pub probability: f64,
    /// The weight of a new sample in the average.
    pub weight: f64,
    /// Mark ECN-capable frames instead of dropping them, below `max`.
    pub ecn: bool,
}

impl RedSpec {
    /// The weight that Floyd and Jacobson recommend.
    pub const WEIGHT: f64 = 0.002;
}

/// While a queue is empty its average decays as if a frame had left each such span.
const IDLE_STEP: Duration = Duration::from_micros(100);

#[derive(Debug)]
pub(super) struct Red {
    spec: RedSpec,
    rng: SeededRng,
    average: f64,
    /// Frames since the last signal.
    count: u32,
    idle_since: Option<Instant>,
}

impl Red {
    pub(super) fn new(spec: RedSpec, rng: SeededRng) -> Self {
        Self { spec, rng, average: 0.0, count: 0, idle_since: Some(Instant::ZERO) }
    }

    pub(super) fn ecn(&self) -> bool {
        self.spec.ecn
    }

    pub(super) fn on_arrival(&mut self, now: Instant, bytes: u64, frames: usize) -> Verdict {
        match self.idle_since.take() {
            Some(since) if frames == 0 => {
                let steps = now.saturating_since(since).as_nanos() / IDLE_STEP.as_nanos();
                self.average *= power(1.0 - self.spec.weight, steps);
            }
            _ => self.average += self.spec.weight * (bytes as f64 - self.average),
        }
        let (min, max) = (self.spec.min as f64, self.spec.max as f64);
        if self.average < min {
            self.count = 0;
            return Verdict::Keep;
        }
        if self.average >= 2.0 * max {
            self.count = 0;
            return Verdict::Drop;
        }
        let probability = if self.average < max {
            self.spec.probability * (self.average - min) / (max - min).max(1.0)
        } else {
            self.spec.probability + (1.0 - self.spec.probability) * (self.average - max) / max
        };
        // Spaces the signals out evenly: the paper's p_b / (1 - count · p_b).
        let spread = probability / (1.0 - f64::from(self.count) * probability).max(probability);
        if self.rng.unit() >= spread {
            self.count += 1;
            return Verdict::Keep;
        }
        self.count = 0;
        if self.average < max { Verdict::Signal } else { Verdict::Drop }
    }

    pub(super) fn on_empty(&mut self, now: Instant) {
        self.idle_since.get_or_insert(now);
    }
}

/// `base` to the power of `exponent`, by the same multiplications on every machine.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}
