//! What people want to see of a document.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use super::Table;
use super::quantity::{Quantity, quantities};
use crate::results::{CpuSeconds, Document, Measure, Ratio, SubjectResult};
use crate::{stats, trace, units};

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
    let rows = shown(document)
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
    let names: Vec<&str> = part_names(document).into_iter().filter(|name| !name.is_empty()).collect();
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
    let fields: [(&str, Field); 11] = [
        ("application, its own code", |cpu| cpu.application_user),
        ("application, kernel", |cpu| cpu.application_system),
        ("of it, the thread that takes packets in", |cpu| cpu.application_receive_thread),
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

/// What held each subject's runs back, part by part.
pub(super) fn held_back(document: &Document) -> Vec<String> {
    let mut sentences = Vec::new();
    for subject in &document.subjects {
        for name in part_names(document) {
            let traces = measures(subject, name).flat_map(|measure| &measure.tcp_connections);
            let part = if name.is_empty() { String::new() } else { format!(", {name}") };
            let Some((end, shares)) = trace::held_back(traces) else {
                let spent = waiting(document, subject, name);
                sentences.extend(spent.map(|spent| format!("{}{part}: {spent}", subject.name)));
                continue;
            };
            let whose = if end == "peer" { "the peer, which sent," } else { "the sender" };
            let reasons: Vec<String> = shares
                .iter()
                .filter(|(_, share)| *share >= 0.005)
                .map(|(reason, share)| {
                    let words = match reason.as_str() {
                        "application" => "the application, which had no more to send",
                        "peer_window" => "the other end's window",
                        "send_buffer" => "its send buffer",
                        "congestion_window" => "the congestion window",
                        "pacing" => "pacing",
                        "recovery" => "recovery from losses",
                        other => other,
                    };
                    format!("{words} {} %", units::digits(share * 100.0))
                })
                .collect();
            sentences.push(format!(
                "{}{part}: {whose} was held back by {} of the time.",
                subject.name,
                reasons.join(", ")
            ));
        }
    }
    sentences
}

/// What an operation's time went into, of loads whose connections are not seen (they are too short, or there are none): one
/// after the other they take as long as somebody works for them or waits.
fn waiting(document: &Document, subject: &SubjectResult, part: &str) -> Option<String> {
    let option = |name: &str| document.workload.options.get(name).and_then(Value::as_f64);
    if !matches!(document.workload.name.as_str(), "crr" | "rr") {
        return None;
    }
    if let Some(rate) = option("rate_per_second") {
        return Some(format!("held to its rate of {}.", units::scaled(rate, "operations/s")));
    }
    let at_a_time = option("connections")? * option("depth").unwrap_or(1.0);
    let (mut time, mut operations, mut host, mut fep, mut peer) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for measure in measures(subject, part) {
        let cpu = &measure.cpu_seconds;
        time += measure.elapsed_seconds * at_a_time;
        operations += measure.operations as f64;
        host += cpu.application_user + cpu.application_system;
        fep += cpu.fep_work + cpu.fep_system;
        peer += cpu.peer;
    }
    if operations == 0.0 {
        return None;
    }
    let each = |seconds: f64| format!("{} µs", units::digits(seconds / operations * 1e6));
    let workers = [("the application", host), ("the FEP", fep), ("the peer", peer)];
    let worked: Vec<String> = workers
        .into_iter()
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(who, seconds)| format!("{who} worked {}", each(seconds)))
        .collect();
    let rest = time - host - fep - peer;
    let rest = if rest > 0.0 { format!("; {} went by in waiting", each(rest)) } else { String::new() };
    Some(format!("an operation took {} on average, for which {}{rest}.", each(time), worked.join(", ")))
}

/// The parts of the trials; of trials without parts, one without a name.
pub(super) fn part_names(document: &Document) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for trial in document.subjects.iter().flat_map(|subject| &subject.trials) {
        for part in &trial.parts {
            if !names.contains(&part.name.as_str()) {
                names.push(&part.name);
            }
        }
    }
    if names.is_empty() { vec![""] } else { names }
}

/// What a part came to in every trial.
pub(super) fn measures<'a>(subject: &'a SubjectResult, part: &'a str) -> impl Iterator<Item = &'a Measure> {
    subject.trials.iter().filter_map(move |trial| match part {
        "" => Some(&trial.total),
        _ => trial.parts.iter().find(|one| one.name == part).map(|one| &one.measure),
    })
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
    if let Some(server) = server(document) {
        lines.push(format!(
            "The server is {server}; the client is curl, one session for all files of a part. The application's processor \
             time is that of all the server's processes, of those that have ended too."
        ));
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

/// The workload in a line: of its options those that say anything. The document has them all.
pub(super) fn workload(document: &Document) -> String {
    let mut text = document.workload.name.clone();
    let options = &document.workload.options;
    let is_stream = options.get("work").and_then(Value::as_str) == Some("stream");
    for (name, value) in options {
        let says = match name.as_str() {
            "work" | "parts" | "chunk_bytes" | "server" | "server_version" => false,
            "request_bytes" | "answer_bytes" | "flow" => !is_stream && value != "download",
            "depth" => value != 1,
            _ => !value.is_null() && *value != Value::Bool(false) && value.as_f64() != Some(0.0),
        };
        if says {
            write!(text, ", {} {}", name.replace('_', " "), plain(value))
                .expect("writing to a string does not fail");
        }
    }
    text
}

/// The unmodified server of the workload in a line, if it has one.
pub(super) fn server(document: &Document) -> Option<String> {
    let option = |name: &str| document.workload.options.get(name).and_then(Value::as_str);
    let name = option("server")?;
    let manner = match name {
        "pyftpdlib" => ", one process, in Python",
        "vsftpd" => ", a process for each session, in C",
        _ => "",
    };
    let version = option("server_version").map(|version| format!(" {version}")).unwrap_or_default();
    Some(format!("{name}{version}{manner}"))
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
            let interval = format!("{} to {}", bound(low), bound(high));
            if ratio.verdict == "no difference" {
                format!("no difference ({value}, {interval})")
            } else {
                format!("{value} ({interval})")
            }
        }
        _ => format!("{value} (one trial)"),
    }
}

/// An interval's end. Of few trials that differ it can lie anywhere; then only how far out it is is told.
fn bound(value: f64) -> String {
    match value {
        value if value >= 1000.0 => "over 1000".to_owned(),
        value if value < 0.001 => "under 0.001".to_owned(),
        value => units::digits(value),
    }
}

/// The quantities of a document's workload that mean something for it.
pub(super) fn shown(document: &Document) -> Vec<Quantity> {
    let mut all = quantities(&document.workload.name);
    let option = |name: &str| document.workload.options.get(name).and_then(Value::as_str);
    if document.workload.name == "stream" && option("work") == Some("stream") {
        // Its operations are directions.
        all.retain(|quantity| quantity.metric != "operations_per_second");
    }
    all
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
