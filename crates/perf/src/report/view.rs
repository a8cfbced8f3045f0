//! What people want to see of a document.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use super::Table;
use super::quantity::{Quantity, quantities};
use crate::results::{CpuSeconds, Document, Measure, Ratio, SubjectResult};
use crate::{stats, units};

/// What is said about a subject besides its name.
pub(super) fn describe(subject: &str) -> &'static str {
    match subject {
        "kernel" => "TCP/IP in the Linux kernel, over a veth pair",
        "host" => "Outboard's stack in a thread of the application, over a TAP device",
        "fep" => "Outboard's stack in a front-end processor, over a TAP device",
        "fep-unmodified" => "the same, under a program that makes the kernel's calls",
        _ => "",
    }
}

/// The summary: a row a quantity, a column a subject, and the last subject against each other one.
pub(super) fn summary(document: &Document) -> Table {
    let mut head = vec![String::new()];
    head.extend(document.subjects.iter().map(|subject| subject.name.clone()));
    let pairs = pairs(document);
    head.extend(pairs.iter().map(|(subject, against)| format!("{subject} ÷ {against}")));
    let rows = quantities(&document.workload.name)
        .iter()
        .filter(|quantity| document.subjects.iter().any(|one| one.summary.contains_key(quantity.metric)))
        .map(|quantity| row(document, quantity, &pairs, quantity.metric, quantity.label.to_owned()))
        .collect();
    Table { title: "Results".to_owned(), head, rows }
}

/// The parts of the trials: bandwidth and host CPU of each.
pub(super) fn parts(document: &Document) -> Table {
    let mut head = vec!["part".to_owned()];
    head.extend(document.subjects.iter().map(|subject| subject.name.clone()));
    let pairs = pairs(document);
    head.extend(pairs.iter().map(|(subject, against)| format!("{subject} ÷ {against}")));
    let mut names: Vec<&str> = Vec::new();
    for trial in document.subjects.iter().flat_map(|subject| &subject.trials) {
        for part in &trial.parts {
            if !names.contains(&part.name.as_str()) {
                names.push(&part.name);
            }
        }
    }
    let mut rows = Vec::new();
    for quantity in quantities(&document.workload.name) {
        if !matches!(quantity.metric, "bits_per_second" | "host_cpu_seconds_per_gigabyte") {
            continue;
        }
        for name in &names {
            let metric = format!("{name}.{}", quantity.metric);
            rows.push(row(document, &quantity, &pairs, &metric, format!("{name}, {}", quantity.label)));
        }
    }
    Table { title: "Parts".to_owned(), head, rows }
}

/// Who spent the processors' time: per 10⁶ bytes, per operation, or per second where nothing happens.
pub(super) fn processors(document: &Document) -> Table {
    type Unit = (&'static str, fn(&Measure) -> f64, f64, &'static str);
    let (unit, size, scale, symbol): Unit = match document.workload.name.as_str() {
        "idle" => ("second", |total| total.elapsed_seconds, 1e3, "ms"),
        "rr" | "crr" | "connections" => ("operation", |total| total.operations as f64, 1e6, "µs"),
        _ => ("MByte", |total| total.bytes as f64 / 1e6, 1e6, "µs"),
    };
    let mut head = vec![String::new()];
    head.extend(document.subjects.iter().map(|subject| subject.name.clone()));
    let fields: [(&str, Field); 10] = [
        ("application, its own code", |cpu| cpu.application_user),
        ("application, kernel", |cpu| cpu.application_system),
        ("FEP, work", |cpu| cpu.fep_work),
        ("FEP, kernel", |cpu| cpu.fep_system),
        ("FEP, polling", |cpu| cpu.fep_polling),
        ("peer's program and kernel", |cpu| cpu.peer),
        ("softirq threads", |cpu| cpu.softirq_threads),
        ("all softirqs, contained in the others", |cpu| cpu.softirq),
        ("whole machine, busy", |cpu| cpu.machine_busy),
        ("taken by the hypervisor", |cpu| cpu.machine_stolen),
    ];
    let rows = fields
        .iter()
        .map(|(label, field)| {
            let mut row = vec![(*label).to_owned()];
            row.extend(document.subjects.iter().map(|subject| {
                let totals = subject.trials.iter().map(|trial| &trial.total);
                let (spent, size) = totals.fold((0.0, 0.0), |(spent, sum), total| {
                    (spent + field(&total.cpu_seconds), sum + size(total))
                });
                if spent > 0.0 && size > 0.0 {
                    format!("{} {symbol}", units::digits(spent / size * scale))
                } else {
                    String::new()
                }
            }));
            row
        })
        .filter(|row: &Vec<String>| row[1..].iter().any(|cell| !cell.is_empty()))
        .collect();
    Table { title: format!("Processor time per {unit}"), head, rows }
}

/// What else the workload has told: the mean over the trials.
pub(super) fn details(document: &Document) -> Table {
    let mut head = vec![String::new()];
    head.extend(document.subjects.iter().map(|subject| subject.name.clone()));
    let names: BTreeSet<&String> = document
        .subjects
        .iter()
        .flat_map(|subject| subject.trials.iter().flat_map(|trial| trial.total.details.keys()))
        .collect();
    let rows = names
        .into_iter()
        .map(|name| {
            let mut row = vec![name.replace('_', " ")];
            row.extend(document.subjects.iter().map(|subject| {
                let values: Vec<f64> = subject
                    .trials
                    .iter()
                    .filter_map(|trial| trial.total.details.get(name).copied())
                    .collect();
                stats::mean(&values).map(|mean| units::digits(mean.value)).unwrap_or_default()
            }));
            row
        })
        .collect();
    Table { title: "Further".to_owned(), head, rows }
}

/// Takes one sum out of several.
type Field = fn(&CpuSeconds) -> f64;

/// The results in sentences: the last subject against the others.
pub(super) fn sentences(document: &Document) -> Vec<String> {
    let mut sentences = Vec::new();
    let quantities = quantities(&document.workload.name);
    for (subject, against) in pairs(document) {
        let parts: Vec<String> = quantities
            .iter()
            .take(3)
            .filter_map(|quantity| {
                let ratio = find(document, quantity.metric, subject, against)?;
                Some(format!("{} {}", quantity.label, in_words(ratio)))
            })
            .collect();
        if !parts.is_empty() {
            sentences.push(format!("{subject} against {against}: {}.", parts.join("; ")));
        }
    }
    sentences
}

/// How it was done, in sentences.
pub(super) fn method(document: &Document) -> Vec<String> {
    let mut lines = vec![format!(
        "{} trials of each subject, alternating ({}), so that a drifting machine hurts all alike. Ratios are geometric \
         means over the rounds, with Student's 95 % confidence interval; an interval that spans 1 is no difference.",
        document.workload.options.get("trials").and_then(Value::as_u64).unwrap_or_default(),
        document.subjects.iter().map(|subject| subject.name.as_str()).collect::<Vec<_>>().join(", "),
    )];
    for subject in &document.subjects {
        lines.push(format!("{}: {}. {}", subject.name, describe(&subject.name), options(subject)));
    }
    if document.workload.options.get("between").and_then(Value::as_str) == Some("loopback") {
        lines.push(
            "Client and server are on one stack, and both count as the application. A kernel's, and a stack in the process, \
             may use the processors of the application and of the FEP."
                .to_owned(),
        );
        return lines;
    }
    lines.push(
        "The peer is a host on the Linux kernel in a network namespace of the same machine; the link is able to segment \
         and to leave checksums to the other side, for every subject. Processor time comes from the scheduler's clock, \
         which is exact; its split into user and system is the kernel's estimate. Over a veth pair and over a TAP device \
         alike, the softirq that delivers a packet runs in the context of whoever sent it: of both directions together, each \
         end carries its share."
            .to_owned(),
    );
    if !is_verified(document) {
        lines.push("The receiving end has not checked the bytes in these trials.".to_owned());
    }
    lines
}

/// Whether every byte of every trial was checked.
pub(super) fn is_verified(document: &Document) -> bool {
    let bytes_matter = !matches!(document.workload.name.as_str(), "idle" | "connections");
    document
        .subjects
        .iter()
        .flat_map(|subject| &subject.trials)
        .all(|trial| trial.total.verified || !bytes_matter)
}

/// The machine in a line.
pub(super) fn machine(document: &Document) -> String {
    let machine = &document.machine;
    format!(
        "{}, {} processors{}, {:.1} GB of memory, Linux {}, congestion control {}",
        machine.cpu_model,
        machine.cores,
        if machine.virtualised { " of a virtual machine" } else { "" },
        machine.memory_bytes as f64 / 1e9,
        machine.kernel,
        machine.congestion_control,
    )
}

/// The workload in a line.
pub(super) fn workload(document: &Document) -> String {
    let mut text = document.workload.name.clone();
    for (name, value) in &document.workload.options {
        if !value.is_null() {
            write!(text, ", {} {}", name.replace('_', " "), plain(value))
                .expect("writing to a string does not fail");
        }
    }
    text
}

/// The last subject, against each before it.
pub(super) fn pairs(document: &Document) -> Vec<(&str, &str)> {
    match document.subjects.split_last() {
        Some((last, others)) => {
            others.iter().map(|other| (last.name.as_str(), other.name.as_str())).collect()
        }
        None => Vec::new(),
    }
}

/// The ratio of a metric between two subjects.
pub(super) fn find<'a>(
    document: &'a Document,
    metric: &str,
    subject: &str,
    against: &str,
) -> Option<&'a Ratio> {
    document
        .ratios
        .iter()
        .find(|ratio| ratio.metric == metric && ratio.subject == subject && ratio.against == against)
}

/// `2.1× (2.0 to 2.2)`, or `no difference (…)`.
pub(super) fn in_words(ratio: &Ratio) -> String {
    let value = format!("{}×", units::digits(ratio.value));
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => {
            let interval = format!("{} to {}", units::digits(low), units::digits(high));
            if ratio.verdict == "no difference" {
                format!("no difference ({value}, {interval})")
            } else {
                format!("{value} ({interval})")
            }
        }
        _ => format!("{value} (one trial)"),
    }
}

fn row(
    document: &Document,
    quantity: &Quantity,
    pairs: &[(&str, &str)],
    metric: &str,
    label: String,
) -> Vec<String> {
    let mut row = vec![label];
    row.extend(document.subjects.iter().map(|subject| match subject.summary.get(metric) {
        Some(summary) => (quantity.show)(summary.mean),
        None => String::new(),
    }));
    row.extend(pairs.iter().map(|(subject, against)| {
        find(document, metric, subject, against).map(in_words).unwrap_or_default()
    }));
    row
}

fn options(subject: &SubjectResult) -> String {
    let listed: Vec<String> = subject
        .options
        .iter()
        .filter(|(_, value)| !value.is_null() && **value != Value::Array(Vec::new()))
        .map(|(name, value)| format!("{} {}", name.replace('_', " "), plain(value)))
        .collect();
    format!("Options: {}.", listed.join(", "))
}

/// A JSON value as a person would write it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Object(map) => match (map.get("file_bytes").and_then(Value::as_u64), map.get("count")) {
            (Some(size), Some(count)) => format!("{} × {count}", units::bytes(size)),
            _ => value.to_string(),
        },
        other => other.to_string(),
    }
}
