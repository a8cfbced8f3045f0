//! The metrics that summaries and ratios are made of.

use std::collections::BTreeMap;

use crate::results::{Measure, Ratio, SubjectResult, Summary, Trial};
use crate::stats;

/// A number that a measure yields, if it has one.
pub struct Metric {
    /// Its key in the document.
    pub name: &'static str,
    /// Takes it out of a measure.
    pub value: fn(&Measure) -> Option<f64>,
}

/// Which way a metric is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Up.
    More,
    /// Down.
    Less,
}

/// Which way a metric is to go; a part's is named `PART.METRIC`.
pub fn better(metric: &str) -> Better {
    let name = metric.rsplit('.').next().unwrap_or(metric);
    match name {
        "bits_per_second" | "operations_per_second" | "efficiency_bits_per_host_cpu_second" => Better::More,
        _ => Better::Less,
    }
}

/// The metric that a workload is about.
pub fn primary(workload: &str) -> &'static str {
    match workload {
        "rr" | "crr" | "connections" => "operations_per_second",
        "idle" => "host_cpu_utilisation",
        _ => "bits_per_second",
    }
}

/// Half of the 95 % confidence interval of a metric's mean, as a share of the mean; none for fewer than two trials.
pub fn half_width(trials: &[Trial], metric: &str) -> Option<f64> {
    let interval = stats::mean(samples(trials).get(metric)?)?;
    let (low, high) = interval.bounds?;
    (interval.value > 0.0).then(|| (high - low) / 2.0 / interval.value)
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// All metrics.
pub const METRICS: [Metric; 17] = [
    Metric { name: "bits_per_second", value: |m| positive(m.bits_per_second) },
    Metric { name: "operations_per_second", value: |m| positive(m.operations_per_second) },
    Metric { name: "elapsed_seconds", value: |m| positive(m.elapsed_seconds) },
    Metric {
        name: "host_cpu_utilisation",
        value: |m| (m.elapsed_seconds > 0.0).then(|| m.cpu_seconds.host() / m.elapsed_seconds),
    },
    Metric {
        name: "fep_cpu_utilisation",
        value: |m| {
            let cpu = &m.cpu_seconds;
            positive((cpu.fep_work + cpu.fep_polling + cpu.fep_system) / m.elapsed_seconds)
        },
    },
    Metric { name: "host_cpu_seconds_per_gigabyte", value: |m| m.per_gigabyte(m.cpu_seconds.host()) },
    Metric {
        name: "host_network_cpu_seconds_per_gigabyte",
        value: |m| {
            positive(m.cpu_seconds.application_own_work)?;
            m.per_gigabyte((m.cpu_seconds.host() - m.cpu_seconds.application_own_work).max(0.0))
        },
    },
    Metric { name: "total_cpu_seconds_per_gigabyte", value: |m| m.per_gigabyte(m.cpu_seconds.total()) },
    Metric {
        name: "efficiency_bits_per_host_cpu_second",
        value: |m| positive(m.cpu_seconds.host()).map(|host| m.bytes as f64 * 8.0 / host),
    },
    Metric {
        name: "machine_busy_seconds_per_gigabyte",
        value: |m| m.per_gigabyte(m.cpu_seconds.machine_busy),
    },
    Metric {
        name: "host_cpu_seconds_per_operation",
        value: |m| (m.operations > 0).then(|| m.cpu_seconds.host() / m.operations as f64),
    },
    Metric {
        name: "total_cpu_seconds_per_operation",
        value: |m| m.cpu_seconds_per_operation.map(|cpu| cpu.total()),
    },
    Metric {
        name: "user_cpu_seconds_per_operation",
        value: |m| m.cpu_seconds_per_operation.map(|cpu| cpu.user()),
    },
    Metric {
        name: "system_cpu_seconds_per_operation",
        value: |m| m.cpu_seconds_per_operation.map(|cpu| cpu.system()),
    },
    Metric {
        name: "fep_polling_seconds_per_operation",
        value: |m| m.cpu_seconds_per_operation.and_then(|cpu| positive(cpu.fep_polling)),
    },
    Metric { name: "latency_p50_ns", value: |m| m.latency_ns.map(|latency| latency.p50 as f64) },
    Metric { name: "latency_p99_ns", value: |m| m.latency_ns.map(|latency| latency.p99 as f64) },
];

/// Summarises a subject's trials, over their totals and over their parts.
pub fn summarise(trials: &[Trial]) -> BTreeMap<String, Summary> {
    samples(trials).into_iter().filter_map(|(name, values)| Some((name, stats::summary(&values)?))).collect()
}

/// Every subject against each subject before it, metric by metric.
pub fn ratios(subjects: &[SubjectResult]) -> Vec<Ratio> {
    let all: Vec<_> = subjects.iter().map(|subject| samples(&subject.trials)).collect();
    let mut ratios = Vec::new();
    for (position, subject) in subjects.iter().enumerate() {
        for (against, divisors) in subjects[..position].iter().zip(&all) {
            for (metric, values) in &all[position] {
                let Some(interval) = divisors.get(metric).and_then(|others| stats::ratio(values, others))
                else {
                    continue;
                };
                ratios.push(Ratio::new(metric, &subject.name, &against.name, interval));
            }
        }
    }
    ratios
}

/// The values of every metric over the trials, parts included.
fn samples(trials: &[Trial]) -> BTreeMap<String, Vec<f64>> {
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for trial in trials {
        for metric in &METRICS {
            if let Some(value) = (metric.value)(&trial.total) {
                samples.entry(metric.name.to_owned()).or_default().push(value);
            }
            for part in &trial.parts {
                if let Some(value) = (metric.value)(&part.measure) {
                    samples.entry(format!("{}.{}", part.name, metric.name)).or_default().push(value);
                }
            }
        }
    }
    samples
}
