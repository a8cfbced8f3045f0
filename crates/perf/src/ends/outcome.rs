//! What came of a load: counted by each thread apart, put together at the end.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::Plan;
use crate::histogram;
use crate::results::{CpuSeconds, Latency, Machine, Measure};

/// What came of a load at one end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Transfers, round trips, transactions, messages or connections.
    pub operations: u64,
    /// Bytes of data, both ways.
    pub bytes: u64,
    /// Of them, those that this end received.
    pub received_bytes: u64,
    /// From the first operation's begin to the last one's end, what is omitted not included.
    pub elapsed_seconds: f64,
    /// Processor time that went into making or checking the data, as this end measured it.
    pub own_work_seconds: f64,
    /// Whether this end has checked every byte that it received.
    pub verified: bool,
    /// The longest time without a byte, at the receiving end.
    pub longest_stall_seconds: f64,
    /// How long operations took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Latency>,
    /// The whole distribution: HdrHistogram's V2 form with deflate, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
    /// What else there is to tell, by name.
    #[serde(default)]
    pub details: BTreeMap<String, f64>,
    /// What this end has spent: its process as the application, its FEP, its machine.
    pub cpu_seconds: CpuSeconds,
    /// What this end's FEP counted.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Whose sockets this end used: `kernel`, `host`, `fep`.
    pub sockets: String,
    /// Where this end ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// What came of it at the server, in a client's outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Box<Outcome>>,
}

impl Outcome {
    /// What was done, without what it cost.
    pub fn measure(&self) -> io::Result<Measure> {
        Ok(Measure {
            operations: self.operations,
            bytes: self.bytes,
            elapsed_seconds: self.elapsed_seconds,
            latency_ns: self.latency_ns,
            histogram: self.histogram.as_deref().map(histogram::from_text).transpose()?,
            details: self.details.clone(),
            verified: self.verified,
            ..Measure::default()
        })
    }
}

/// How far a client came in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Interval {
    pub start_seconds: f64,
    pub end_seconds: f64,
    pub operations: u64,
    pub bytes: u64,
    /// Whether it counts for nothing.
    pub omitted: bool,
}

/// What a client tells while it works.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// So far it came.
    Interval(Interval),
    /// From now on everything counts.
    Counting,
    /// So many connections are open, and stay.
    Held(u64),
    /// The end.
    Outcome(Box<Outcome>),
}

/// The time in which a load counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) began: Instant,
    pub(super) counts_from: Instant,
    pub(super) until: Option<Instant>,
}

impl Window {
    pub(super) fn begin(plan: &Plan) -> Self {
        let began = Instant::now();
        Self {
            began,
            counts_from: began + Duration::from_secs_f64(plan.omit_seconds),
            until: plan.whole_duration().map(|duration| began + duration),
        }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }
}

/// What one thread has done.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) received: u64,
    pub(super) own_work_seconds: f64,
    pub(super) verified: bool,
    pub(super) stall: Duration,
    pub(super) histogram: Option<Histogram<u64>>,
    pub(super) details: BTreeMap<String, f64>,
    /// When its last operation was done.
    pub(super) ended: Instant,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            operations: 0,
            bytes: 0,
            received: 0,
            own_work_seconds: 0.0,
            verified: true,
            stall: Duration::ZERO,
            histogram: None,
            details: BTreeMap::new(),
            ended: Instant::now(),
        }
    }
}

impl Part {
    /// One that keeps a distribution.
    pub(super) fn timed() -> io::Result<Self> {
        Ok(Self { histogram: Some(histogram::new()?), ..Self::default() })
    }

    /// An operation of so many bytes, of which some were received, is done.
    pub(super) fn count(&mut self, bytes: u64, received: u64) {
        self.operations += 1;
        self.bytes += bytes;
        self.received += received;
    }

    pub(super) fn record(&mut self, latency: Duration) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    fn add(&mut self, other: Self) -> io::Result<()> {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.received += other.received;
        self.own_work_seconds += other.own_work_seconds;
        self.verified &= other.verified;
        self.stall = self.stall.max(other.stall);
        self.ended = self.ended.max(other.ended);
        for (name, value) in other.details {
            *self.details.entry(name).or_default() += value;
        }
        match (&mut self.histogram, other.histogram) {
            (Some(sum), Some(one)) => sum.add(one).map_err(|error| io::Error::other(error.to_string()))?,
            (None, one) => self.histogram = one,
            (Some(_), None) => {}
        }
        Ok(())
    }
}

/// Puts together what the threads have done since `counts_from`.
pub(super) fn outcome(parts: Vec<Part>, counts_from: Instant) -> io::Result<Outcome> {
    let mut sum = Part { ended: counts_from, ..Part::default() };
    for part in parts {
        sum.add(part)?;
    }
    let recorded = sum.histogram.as_ref().filter(|histogram| !histogram.is_empty());
    Ok(Outcome {
        operations: sum.operations,
        bytes: sum.bytes,
        received_bytes: sum.received,
        elapsed_seconds: sum.ended.saturating_duration_since(counts_from).as_secs_f64(),
        own_work_seconds: sum.own_work_seconds,
        verified: sum.verified,
        longest_stall_seconds: sum.stall.as_secs_f64(),
        latency_ns: recorded.map(histogram::latency),
        histogram: recorded.map(histogram::to_text).transpose()?,
        details: sum.details,
        ..Outcome::default()
    })
}
