//! The document that every measurement writes (`--json`): base SI units, named in the keys.
//!
//! [`crate::schema`] describes it for programs; a test holds the two together. Reading order: [`Document`],
//! [`SubjectResult`], [`Trial`], [`Measure`].

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::stats::Interval;
use crate::trace::Trace;

/// The version of the document's form. A reader may rely on every key of a version; later ones only add.
pub const SCHEMA_VERSION: u32 = 1;

/// One measurement: what ran, on which machine, what came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The program that measured.
    pub tool: Tool,
    /// The command line.
    pub command: Vec<String>,
    /// Where it ran.
    pub machine: Machine,
    /// What was done: its name and every option in effect.
    pub workload: Workload,
    /// What was measured, in the order of the alternating trials.
    pub subjects: Vec<SubjectResult>,
    /// How the subjects compare.
    pub ratios: Vec<Ratio>,
}

/// The program that measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tool {
    /// `outboard`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The commit that it was built from, if known.
    pub commit: String,
}

/// The machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu_model: String,
    /// Processors that this program may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Whether it is a virtual machine.
    pub virtualised: bool,
    /// What the kernel's TCP uses unless told otherwise.
    pub congestion_control: String,
}

impl Document {
    /// The subject of that name.
    pub fn subject(&self, name: &str) -> Option<&SubjectResult> {
        self.subjects.iter().find(|subject| subject.name == name)
    }
}

/// What was done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Workload {
    /// The workload's name: `file`, `stream`, `rr`, `crr`, `messages`, `connections`, `idle`.
    pub name: String,
    /// Every option in effect.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

/// One of the stacks compared, and its trials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubjectResult {
    /// `kernel`, `host`, `fep`, `fep-unmodified`; with a suffix for another release of it.
    pub name: String,
    /// Every option in effect of this subject.
    pub options: Map<String, Value>,
    /// The trials in the order in which they ran.
    pub trials: Vec<Trial>,
    /// Every metric over the trials. A part's metrics are named `PART.METRIC`.
    pub summary: BTreeMap<String, Summary>,
}

/// One trial: the sum of its parts, and the parts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Trial {
    /// Everything that was done in this trial.
    #[serde(flatten)]
    pub total: Measure,
    /// Its parts, as `download-6MB`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// A part of a trial.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Part {
    /// Its name within the trial.
    pub name: String,
    /// What it came to.
    #[serde(flatten)]
    pub measure: Measure,
}

/// What was moved, how long it took, and what it cost.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measure {
    /// Files, round trips or connections.
    pub operations: u64,
    /// Bytes of the application's data, both directions.
    pub bytes: u64,
    /// Time between the first operation's begin and the last one's end.
    pub elapsed_seconds: f64,
    /// `operations / elapsed_seconds`.
    pub operations_per_second: f64,
    /// `bytes / elapsed_seconds`.
    pub bytes_per_second: f64,
    /// `bytes * 8 / elapsed_seconds`.
    pub bits_per_second: f64,
    /// How long single operations took, where they were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Latency>,
    /// The longest time in which no byte arrived, where it was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_stall_seconds: Option<f64>,
    /// Processor time.
    pub cpu_seconds: CpuSeconds,
    /// The same for one operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_per_operation: Option<CpuSeconds>,
    /// The same for 10⁶ bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_per_megabyte: Option<CpuSeconds>,
    /// What else the workload tells, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, f64>,
    /// Events, as the FEP counted them.
    pub counters: BTreeMap<String, u64>,
    /// How the connections fared: samples of each end's state, and what held it back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp_connections: Vec<Trace>,
    /// Whether the receiving end has checked every byte.
    pub verified: bool,
    /// The whole distribution of `latency_ns`.
    #[serde(skip)]
    pub histogram: Option<Histogram<u64>>,
}

/// Percentiles of a distribution of times.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub min: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub p99_99: u64,
    pub max: u64,
}

/// Processor time by who spent it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// The application in its own code. In the host architecture the stack's thread is part of the application.
    pub application_user: f64,
    /// The kernel on behalf of the application, softirqs that it carried included.
    pub application_system: f64,
    /// Of the kernel's time on behalf of the application, what a thread spent that takes packets in, where it has one.
    #[serde(default)]
    pub application_receive_thread: f64,
    /// Of the application's time, what it spent on the data itself (making or checking it), where it says so.
    pub application_own_work: f64,
    /// The FEP in its own code, with something to do.
    pub fep_work: f64,
    /// The FEP looking for something to do.
    pub fep_polling: f64,
    /// The kernel on behalf of the FEP, with something to do.
    pub fep_system: f64,
    /// The peer's program, softirqs that it carried included.
    pub peer: f64,
    /// The kernel's softirq threads, on whoever's behalf.
    pub softirq_threads: f64,
    /// All softirqs of the machine, in whoever's context they ran (and counted there too): a sample of the kernel's tick.
    #[serde(default)]
    pub softirq: f64,
    /// All processors together, not idle.
    pub machine_busy: f64,
    /// All processors together, taken by the hypervisor.
    pub machine_stolen: f64,
}

impl CpuSeconds {
    /// What the application's own processors pay.
    pub fn host(&self) -> f64 {
        self.application_user + self.application_system
    }

    /// What the application and the FEP spend in their own code, polling apart.
    pub fn user(&self) -> f64 {
        self.application_user + self.fep_work
    }

    /// What the kernel spends on behalf of the application and of the FEP.
    pub fn system(&self) -> f64 {
        self.application_system + self.fep_system
    }

    /// What the host and the FEP pay together, polling apart.
    pub fn total(&self) -> f64 {
        self.host() + self.fep_work + self.fep_system
    }
}

impl std::ops::Div<f64> for CpuSeconds {
    type Output = Self;

    fn div(self, count: f64) -> Self {
        Self {
            application_user: self.application_user / count,
            application_system: self.application_system / count,
            application_receive_thread: self.application_receive_thread / count,
            application_own_work: self.application_own_work / count,
            fep_work: self.fep_work / count,
            fep_polling: self.fep_polling / count,
            fep_system: self.fep_system / count,
            peer: self.peer / count,
            softirq_threads: self.softirq_threads / count,
            softirq: self.softirq / count,
            machine_busy: self.machine_busy / count,
            machine_stolen: self.machine_stolen / count,
        }
    }
}

impl std::ops::Add for CpuSeconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            application_user: self.application_user + other.application_user,
            application_system: self.application_system + other.application_system,
            application_receive_thread: self.application_receive_thread + other.application_receive_thread,
            application_own_work: self.application_own_work + other.application_own_work,
            fep_work: self.fep_work + other.fep_work,
            fep_polling: self.fep_polling + other.fep_polling,
            fep_system: self.fep_system + other.fep_system,
            peer: self.peer + other.peer,
            softirq_threads: self.softirq_threads + other.softirq_threads,
            softirq: self.softirq + other.softirq,
            machine_busy: self.machine_busy + other.machine_busy,
            machine_stolen: self.machine_stolen + other.machine_stolen,
        }
    }
}

impl Measure {
    /// Fills in what follows from the counts: rates, and processor time for each operation and megabyte.
    pub fn with_rates(mut self) -> Self {
        let seconds = self.elapsed_seconds.max(1e-9);
        self.operations_per_second = self.operations as f64 / seconds;
        self.bytes_per_second = self.bytes as f64 / seconds;
        self.bits_per_second = self.bytes_per_second * 8.0;
        let each = |count: f64| (count > 0.0).then(|| self.cpu_seconds / count);
        self.cpu_seconds_per_operation = each(self.operations as f64);
        self.cpu_seconds_per_megabyte = each(self.bytes as f64 / 1e6);
        self
    }

    /// Processor seconds per 10⁹ bytes.
    pub(crate) fn per_gigabyte(&self, seconds: f64) -> Option<f64> {
        (self.bytes > 0).then(|| seconds / (self.bytes as f64 / 1e9))
    }
}

impl Trial {
    /// The sum of parts.
    pub fn of_parts(parts: Vec<Part>) -> Self {
        let mut total = Measure { verified: !parts.is_empty(), ..Measure::default() };
        for part in &parts {
            let one = &part.measure;
            total.operations += one.operations;
            total.bytes += one.bytes;
            total.elapsed_seconds += one.elapsed_seconds;
            total.cpu_seconds = total.cpu_seconds + one.cpu_seconds;
            total.verified &= one.verified;
            for (name, count) in &one.counters {
                *total.counters.entry(name.clone()).or_default() += count;
            }
            if let Some(stall) = one.longest_stall_seconds {
                total.longest_stall_seconds = Some(total.longest_stall_seconds.unwrap_or(0.0).max(stall));
            }
        }
        Self { total: total.with_rates(), parts }
    }
}

/// A metric over the trials of one subject.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Summary {
    /// The middle value.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample; 0 for one trial.
    pub stddev: f64,
    /// The lower end of the mean's 95 % confidence interval; absent for one trial.
    pub low: Option<f64>,
    /// The upper end of it.
    pub high: Option<f64>,
}

/// One metric of one subject, divided by the same of another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ratio {
    /// The metric.
    pub metric: String,
    /// The subject whose value is the dividend.
    pub subject: String,
    /// The subject whose value is the divisor.
    pub against: String,
    /// The ratio: the geometric mean over the rounds of alternating trials.
    pub value: f64,
    /// The lower end of its 95 % confidence interval; absent for one round.
    pub low: Option<f64>,
    /// The upper end of it.
    pub high: Option<f64>,
    /// The same in words: `more`, `less`, `no difference`, or `one trial` where there is no interval.
    pub verdict: String,
}

impl Ratio {
    pub(crate) fn new(metric: &str, subject: &str, against: &str, interval: Interval) -> Self {
        let verdict = match interval.bounds {
            None => "one trial",
            Some((low, high)) if low <= 1.0 && high >= 1.0 => "no difference",
            Some(_) if interval.value > 1.0 => "more",
            Some(_) => "less",
        };
        Self {
            metric: metric.to_owned(),
            subject: subject.to_owned(),
            against: against.to_owned(),
            value: interval.value,
            low: interval.bounds.map(|(low, _)| low),
            high: interval.bounds.map(|(_, high)| high),
            verdict: verdict.to_owned(),
        }
    }
}
