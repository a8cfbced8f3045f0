//! The experiment `tandem`: "Achieving High Performance TCP/IP on your Tandem System", FTP of a 6 MByte file, TCP/IP on the
//! host's processor against a front-end processor.

use anyhow::{Result, bail};
use lab::Lab;

use super::costs::Costs;
use super::{Reproduction, mean};
use crate::file::{self, Direction, Load, Program};
use crate::report::Table;
use crate::results::{Document, Measure, SubjectResult};
use crate::runner::Common;
use crate::site::Subject;
use crate::units;

const ABOUT: &str = "TCP/IP on the host's processor against TCP/IP on a front-end processor: FTP of a 6 MByte file again and \
                     again, both directions, against a workstation over Ethernet.";
/// The paper's file.
const FILE_BYTES: u64 = 6_000_000;
/// The paper's formula divides by this many bytes a packet.
const PAPER_PACKET_BYTES: f64 = 1024.0;

/// What the paper says of an effect: the figure, for the host architecture, for the front-end processor, and their ratio.
struct Figure {
    name: &'static str,
    host: &'static str,
    fep: &'static str,
    ratio: &'static str,
    value: fn(&SubjectResult, &Costs) -> f64,
    show: fn(f64) -> String,
}

const FIGURES: [Figure; 5] = [
    Figure {
        name: "Figure 7, bandwidth",
        host: "0.35 Mbit/s",
        fep: "2.45 Mbit/s",
        ratio: "7×",
        value: |subject, _| mean(subject, |m| m.bits_per_second),
        show: units::bit_rate,
    },
    Figure {
        name: "Figure 8, host CPU in percent of one processor",
        host: "about 1.5",
        fep: "1",
        ratio: "0.667×",
        value: |subject, _| mean(subject, |m| m.cpu_seconds.host() / m.elapsed_seconds * 100.0),
        show: units::digits,
    },
    Figure {
        name: "Figure 9, efficiency: bits per second of host CPU",
        host: "1",
        fep: "nearly 10",
        ratio: "10×",
        value: |subject, _| mean(subject, |m| m.bytes as f64 * 8.0 / m.cpu_seconds.host().max(1e-9)),
        show: |value| units::scaled(value, "bit"),
    },
    Figure {
        name: "Figure 10, weighted cost: life cycle's cost per Mbit/s",
        host: "7",
        fep: "1",
        ratio: "0.143×",
        value: weighted_cost,
        show: units::plain,
    },
    Figure {
        name: "Figure 11, elapsed time",
        host: "7",
        fep: "1",
        ratio: "0.143×",
        value: |subject, _| mean(subject, |m| m.elapsed_seconds),
        show: |value| format!("{} s", units::digits(value)),
    },
];

/// Runs the workload with `count` files each way, and makes the tables.
pub fn run(lab: &Lab, common: &Common, count: u64, costs: &Costs) -> Result<Reproduction> {
    if !common.subjects.contains(&Subject::Fep) || common.subjects.len() < 2 {
        bail!("the experiment compares `fep` with another subject");
    }
    let config = file::Config {
        common: common.clone(),
        loads: vec![Load { size: FILE_BYTES, count }],
        directions: vec![Direction::Download, Direction::Upload],
        program: Program::Pyftpdlib,
        check: true,
    };
    let document = file::run(lab, &config)?;
    let mut result = Reproduction::new("tandem", ABOUT, common.command.clone());
    result.tables = tables(&document, costs);
    result.notes = vec![
        format!(
            "{count} files of 6 MByte each way and trial, by pyftpdlib and curl, compared by SHA-256. The published figures are \
             of the host architecture and of the front-end processor; where the paper draws a ratio only, the ratio stands there."
        ),
        format!(
            "Cost model ({}, {} years): a core-hour in use {}, bought once {}, licence a year {} (host) and {} (FEP). Cores in \
             use: the application's with the kernel on its behalf; with a FEP also the FEP's, polling included.",
            costs.currency, costs.years, costs.core_hour, costs.machine, costs.host_licence_a_year,
            costs.fep_licence_a_year,
        ),
        "Figure 5 and the I/O pressure: the paper counts one packet of 1024 bytes and one acknowledgement as two I/Os. Today's \
         rows are counted over both directions: segments that the peer's kernel sent (data and acknowledgements), packets that it \
         received, and what the FEP counted of itself. The formula's row is the paper's arithmetic for today's bandwidth."
            .to_owned(),
    ];
    result.documents.push(document);
    Ok(result)
}

fn tables(document: &Document, costs: &Costs) -> Vec<Table> {
    vec![effects(document, costs), pressure(document)]
}

/// Figures 7 to 11.
fn effects(document: &Document, costs: &Costs) -> Table {
    let mut head: Vec<String> =
        ["", "published: host", "published: FEP", "FEP ÷ host"].map(str::to_owned).to_vec();
    head.extend(document.subjects.iter().map(|subject| format!("measured: {}", subject.name)));
    let fep = document.subject("fep");
    let others: Vec<&SubjectResult> =
        document.subjects.iter().filter(|subject| subject.name != "fep").collect();
    head.extend(others.iter().map(|other| format!("fep ÷ {}", other.name)));
    let rows = FIGURES.iter().map(|figure| {
        let value = |subject: &SubjectResult| (figure.value)(subject, costs);
        let mut row = [figure.name, figure.host, figure.fep, figure.ratio].map(str::to_owned).to_vec();
        row.extend(document.subjects.iter().map(|subject| (figure.show)(value(subject))));
        row.extend(others.iter().map(|other| match fep {
            Some(fep) if value(other) > 0.0 => format!("{}×", units::digits(value(fep) / value(other))),
            _ => String::new(),
        }));
        row
    });
    Table { title: "Figures 7 to 11".to_owned(), rows: rows.collect(), head }
}

/// Figure 5, and what stands behind it: what is done for each megabyte.
fn pressure(document: &Document) -> Table {
    type Value = fn(&Measure) -> Option<f64>;
    fn per_megabyte(total: &Measure, counter: &str) -> Option<f64> {
        Some(*total.counters.get(counter)? as f64 / (total.bytes as f64 / 1e6))
    }
    let rows: [(&str, &str, Value); 5] = [
        ("I/Os per second by the paper's formula", "85 and 598", |m| {
            Some(m.bytes_per_second / PAPER_PACKET_BYTES * 2.0)
        }),
        ("packets to the peer per MByte, super-segments as one", "977", |m| {
            per_megabyte(m, "peer_packets_in")
        }),
        ("segments from the peer per MByte", "977", |m| per_megabyte(m, "peer_segments_out")),
        ("system calls of the FEP per MByte", "", |m| per_megabyte(m, "system_calls")),
        ("wake-ups by the FEP per MByte", "", |m| per_megabyte(m, "wakeups")),
    ];
    let mut head = vec![String::new(), "published".to_owned()];
    head.extend(document.subjects.iter().map(|subject| format!("measured: {}", subject.name)));
    let rows = rows.iter().map(|(name, published, value)| {
        let mut row = vec![(*name).to_owned(), (*published).to_owned()];
        row.extend(document.subjects.iter().map(|subject| {
            let known = subject.trials.iter().all(|trial| value(&trial.total).is_some());
            if known { units::digits(mean(subject, |m| value(m).unwrap_or_default())) } else { String::new() }
        }));
        row
    });
    Table { title: "Figure 5: I/O pressure".to_owned(), rows: rows.collect(), head }
}

/// The life cycle's cost of the cores in use, for each Mbit/s.
fn weighted_cost(subject: &SubjectResult, costs: &Costs) -> f64 {
    let cores = mean(subject, |m| {
        let cpu = &m.cpu_seconds;
        (cpu.host() + cpu.fep_work + cpu.fep_system + cpu.fep_polling) / m.elapsed_seconds
    });
    let is_fep = subject.name.starts_with("fep");
    costs.life_cycle(cores, is_fep) / mean(subject, |m| m.bits_per_second / 1e6)
}
