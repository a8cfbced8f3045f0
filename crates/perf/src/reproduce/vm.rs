//! The experiment `vm`: "TCP/IP Stack Improvement Part 2", a stack against its next release; client and server on one stack,
//! over its loopback.

use std::time::Duration;

use anyhow::Result;
use lab::Lab;

use super::{Reproduction, mean, percent_difference};
use crate::ends::{Plan, Protocol, Work};
use crate::load::{self, Load};
use crate::report::{Table, figure};
use crate::results::{Document, Measure, SubjectResult};
use crate::runner::Common;
use crate::units;

const ABOUT: &str = "A TCP/IP stack against its next release (VM TCP/IP 4.3.0 and 4.4.0), client and server on one stack: \
                     connect-request-response, streaming, request-response over UDP.";

/// One row: its name, the published figures of both releases and their difference as printed, and the measured quantity.
struct Row {
    name: &'static str,
    published: Option<[&'static str; 3]>,
    value: fn(&Measure) -> f64,
}

/// One of the three tables.
struct Experiment {
    title: &'static str,
    rows: [Row; 8],
    plan: fn() -> Plan,
}

/// Processor time of all parts but polling, in milliseconds, for one operation.
fn each(total: &Measure, seconds: f64) -> f64 {
    seconds * 1e3 / (total.operations.max(1) as f64)
}

/// The same for 10⁶ bytes.
fn megabyte(total: &Measure, seconds: f64) -> f64 {
    seconds * 1e3 / ((total.bytes as f64 / 1e6).max(1e-9))
}

const fn row(name: &'static str, published: Option<[&'static str; 3]>, value: fn(&Measure) -> f64) -> Row {
    Row { name, published, value }
}

const CRR: Experiment = Experiment {
    title: "CRR: connect, 64 B to the server, 8 KB back, disconnect (TCP)",
    rows: [
        row("trans/sec", Some(["43.79", "212.99", "386.4"]), |m| m.operations_per_second),
        row("tot_cpu_util", Some(["34.60", "32.50", "-6.1"]), utilisation),
        row("tot_cpu_msec/trans", Some(["15.81", "3.05", "-80.7"]), |m| each(m, m.cpu_seconds.total())),
        row("emul_msec/trans (user)", Some(["15.35", "2.61", "-83.0"]), |m| each(m, m.cpu_seconds.user())),
        row("cp_msec/trans (system)", Some(["0.46", "0.44", "-4.4"]), |m| each(m, m.cpu_seconds.system())),
        row("application, msec/trans", None, |m| each(m, m.cpu_seconds.host())),
        row("stack's process, msec/trans", None, |m| each(m, stack(m))),
        row("its polling, msec/trans", None, |m| each(m, m.cpu_seconds.fep_polling)),
    ],
    plan: || Plan { request_bytes: 64, answer_bytes: 8192, ..Plan::new(Work::Transact) },
};

const STREAMING: Experiment = Experiment {
    title: "Streaming: 1 B to the server, 20 MB back (TCP)",
    rows: [
        row("MB/sec", Some(["72.18", "87.90", "21.8"]), |m| m.bytes_per_second / 1e6),
        row("tot_cpu_util", Some(["34.70", "35.60", "2.6"]), utilisation),
        row("tot_cpu_msec/MB", Some(["9.62", "8.10", "-15.8"]), |m| megabyte(m, m.cpu_seconds.total())),
        row("emul_msec/MB (user)", Some(["5.57", "4.23", "-24.1"]), |m| megabyte(m, m.cpu_seconds.user())),
        row("cp_msec/MB (system)", Some(["4.05", "3.87", "-4.4"]), |m| megabyte(m, m.cpu_seconds.system())),
        row("application, msec/MB", None, |m| megabyte(m, m.cpu_seconds.host())),
        row("stack's process, msec/MB", None, |m| megabyte(m, stack(m))),
        row("its polling, msec/MB", None, |m| megabyte(m, m.cpu_seconds.fep_polling)),
    ],
    plan: || Plan { answer_bytes: 20_000_000, ..Plan::new(Work::Exchange) },
};

const RR: Experiment = Experiment {
    title: "RR: 200 B to the server, 1000 B back (UDP)",
    rows: [
        row("trans/sec", Some(["1549.78", "1745.09", "12.6"]), |m| m.operations_per_second),
        row("tot_cpu_util", Some(["33.70", "35.30", "4.8"]), utilisation),
        row("tot_cpu_msec/trans", Some(["0.43", "0.41", "-4.7"]), |m| each(m, m.cpu_seconds.total())),
        row("emul_msec/trans (user)", Some(["0.30", "0.28", "-6.7"]), |m| each(m, m.cpu_seconds.user())),
        row("cp_msec/trans (system)", Some(["0.13", "0.13", "0.0"]), |m| each(m, m.cpu_seconds.system())),
        row("application, msec/trans", None, |m| each(m, m.cpu_seconds.host())),
        row("stack's process, msec/trans", None, |m| each(m, stack(m))),
        row("its polling, msec/trans", None, |m| each(m, m.cpu_seconds.fep_polling)),
    ],
    plan: || Plan {
        protocol: Protocol::Udp,
        request_bytes: 200,
        answer_bytes: 1000,
        ..Plan::new(Work::Exchange)
    },
};

/// Processors used, in percent of one; polling apart.
fn utilisation(total: &Measure) -> f64 {
    total.cpu_seconds.total() * 100.0 / total.elapsed_seconds.max(1e-9)
}

fn stack(total: &Measure) -> f64 {
    total.cpu_seconds.fep_work + total.cpu_seconds.fep_system
}

/// Runs the three workloads for `duration` each, and makes the three tables.
pub fn run(lab: &Lab, common: &Common, duration: Duration) -> Result<Reproduction> {
    let mut result = Reproduction::new("vm", ABOUT, common.command.clone());
    for (name, experiment) in [("crr", CRR), ("stream", STREAMING), ("rr", RR)] {
        let plan = Plan { duration_seconds: Some(duration.as_secs_f64()), ..(experiment.plan)() };
        let load = Load {
            name,
            preset: Some(format!("vm-{name}")),
            parts: vec![(experiment.title.to_owned(), plan)],
        };
        let document = load::run(lab, common, &load)?;
        result.tables.extend(tables(&experiment, &document));
        // The rate, and what an operation or a byte costs.
        let figures = figure::draw(&document);
        result.figures.extend([figures.first(), figures.last()].into_iter().flatten().cloned());
        result.documents.push(document);
    }
    result.notes.push(format!(
        "{} s for each trial (published: 400 s), {} trials of each subject, alternating. tot_cpu_util is in percent of one \
         processor, polling apart; the published machine had three. A user's time (emul) is that of the application and of the \
         stack's process in their own code, the system's (cp) what the kernel did for them.",
        duration.as_secs_f64(),
        result.documents[0].subjects[0].trials.len(),
    ));
    Ok(result)
}

/// A table for each pair: the first subject against every other, and another release against this one.
fn tables(experiment: &Experiment, document: &Document) -> Vec<Table> {
    let Some((first, others)) = document.subjects.split_first() else { return Vec::new() };
    let mut pairs: Vec<(&SubjectResult, &SubjectResult)> =
        others.iter().filter(|other| !other.name.ends_with("-against")).map(|other| (first, other)).collect();
    for older in others.iter().filter(|other| other.name.ends_with("-against")) {
        let name = older.name.trim_end_matches("-against");
        pairs.extend(document.subject(name).map(|newer| (older, newer)));
    }
    if pairs.is_empty() {
        pairs.push((first, first));
    }
    pairs.into_iter().map(|(before, after)| table(experiment, before, after)).collect()
}

fn table(experiment: &Experiment, before: &SubjectResult, after: &SubjectResult) -> Table {
    let head = [
        "",
        "published: 4.3.0",
        "4.4.0",
        "percent difference",
        &format!("measured: {}", before.name),
        &after.name,
        "percent difference",
    ];
    let rows = experiment.rows.iter().map(|row| {
        let (a, b) = (mean(before, row.value), mean(after, row.value));
        let mut cells = vec![row.name.to_owned()];
        cells.extend(row.published.unwrap_or_default().map(str::to_owned));
        cells.extend([units::plain(a), units::plain(b), percent_difference(a, b)]);
        cells
    });
    Table { title: experiment.title.to_owned(), rows: rows.collect(), head: head.map(str::to_owned).to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{CpuSeconds, Trial};

    fn subject(name: &str, rate: u64) -> SubjectResult {
        let total = Measure {
            operations: rate * 10,
            bytes: rate * 10_000,
            elapsed_seconds: 10.0,
            cpu_seconds: CpuSeconds { application_user: 2.0, fep_system: 1.0, ..CpuSeconds::default() },
            ..Measure::default()
        };
        SubjectResult {
            name: name.to_owned(),
            options: serde_json::Map::new(),
            trials: vec![Trial { total: total.with_rates(), parts: Vec::new() }],
            summary: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn the_published_columns_stand_beside_the_measured_ones() {
        let table = table(&CRR, &subject("kernel", 100), &subject("fep", 800));
        assert_eq!(
            table.rows[0],
            ["trans/sec", "43.79", "212.99", "386.4", "100.00", "800.00", "+700.0"].map(str::to_owned)
        );
        // 3 s of processor time in 10 s; 3 ms for each of 1000 transactions, 2 of them the user's.
        assert_eq!(table.rows[1][4], "30.000");
        assert_eq!([&table.rows[2][4], &table.rows[3][4], &table.rows[4][4]], ["3.0000", "2.0000", "1.0000"]);
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
    }

    #[test]
    fn what_is_printed_as_difference_follows_from_the_printed_figures() {
        for experiment in [CRR, STREAMING, RR] {
            assert_eq!((experiment.plan)().check().unwrap_err(), "neither a duration nor an amount is given");
            for row in experiment.rows {
                let Some([before, after, difference]) = row.published else { continue };
                let [before, after, difference]: [f64; 3] =
                    [before, after, difference].map(|text| text.parse().unwrap());
                let change = (after / before - 1.0) * 100.0;
                assert!(
                    (change - difference).abs() < 0.3,
                    "{}: {change} is printed as {difference}",
                    row.name
                );
            }
        }
    }
}
