//! The experiment `tandem`: "Achieving High Performance TCP/IP on your Tandem System", FTP of a 6 MByte file, TCP/IP on the
//! host's processor against a front-end processor.

use anyhow::{Result, bail};
use lab::Lab;
use serde_json::Value;

use super::costs::Costs;
use super::{Reproduction, mean};
use crate::file::{self, Direction, FtpServer, Load, Program};
use crate::report::plot::{Course, Plot};
use crate::report::{Table, figure};
use crate::results::{Document, Measure, SubjectResult};
use crate::runner::Common;
use crate::site::{Setup, Subject};
use crate::units;

const ABOUT: &str = "TCP/IP on the host's processor against TCP/IP on a front-end processor: FTP of a 6 MByte file again and \
                     again, both directions, against a workstation over Ethernet.";
/// The paper's file.
const FILE_BYTES: u64 = 6_000_000;
/// The paper's formula divides by this many bytes a packet.
const PAPER_PACKET_BYTES: f64 = 1024.0;
/// The speeds of hosts: shares of a processor.
const SHARES: [f64; 4] = [0.2, 0.4, 0.7, 1.0];

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
pub fn run(common: &Common, count: u64, costs: &Costs) -> Result<Reproduction> {
    if !common.subjects.contains(&Subject::Fep) || common.subjects.len() < 2 {
        bail!("the experiment compares `fep` with another subject");
    }
    let config = file::Config {
        common: common.clone(),
        loads: vec![Load { size: FILE_BYTES, count }],
        directions: vec![Direction::Download, Direction::Upload],
        program: Program::Ftp(FtpServer::Pyftpdlib),
        check: true,
    };
    let document = measure(&config)?;
    let vsftpd = with_vsftpd(&config)?;
    let native = file::Config { program: Program::Native, ..config.clone() };
    let native = measure(&native)?;
    let speeds = speeds(&config, count)?;
    let mut result = Reproduction::new("tandem", ABOUT, common.command.clone());
    let by_server = || std::iter::once(&document).chain(&vsftpd);
    result.tables.extend(by_server().map(|one| effects(one, costs)));
    result.tables.extend(by_server().map(pressure));
    result.tables.extend([shares(&native), by_speed(&speeds, costs)]);
    result.figures = by_server().flat_map(|one| effect_bars(one, costs)).collect();
    result.figures.push(share_bars(&native));
    result.plots = by_server().map(io_line).chain([speed_line(&speeds)]).flatten().collect();
    result.notes = notes(count, costs, vsftpd.is_some());
    result.documents.push(document);
    result.documents.extend(vsftpd);
    result.documents.push(native);
    result.documents.extend(speeds.into_iter().map(|(_, document)| document));
    Ok(result)
}

/// The same work by vsftpd, on those subjects on which it runs, if it can be compared there.
fn with_vsftpd(config: &file::Config) -> Result<Option<Document>> {
    let program = Program::Ftp(FtpServer::Vsftpd);
    let mut common = config.common.clone();
    common.subjects.retain(|subject| program.check(*subject).is_ok());
    if !common.subjects.contains(&Subject::Fep) || common.subjects.len() < 2 {
        return Ok(None);
    }
    measure(&file::Config { common, program, ..config.clone() }).map(Some)
}

/// What is to be said about the tables.
fn notes(count: u64, costs: &Costs, has_vsftpd: bool) -> Vec<String> {
    let mut notes = vec![
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
        "Figures 12 and 13: file work is what the program spends on making and comparing the bytes of the files, by its own \
         processor clock; network is all the rest of the host's processor time. Of the native program, files of 6 MByte: an \
         interpreter's share would hide both. Its file work touches no disk; the paper's did."
            .to_owned(),
        format!(
            "Figure 14: a slower host is one that may use a share of a processor only (control groups, periods of 10 ms); in the \
             host architecture that holds for the stack too, on the kernel for what it does in the application's context. The \
             FEP and the peer are not limited. {} files each way, one trial. The cost is the life cycle's of the cores in use.",
            few(count)
        ),
    ];
    if has_vsftpd {
        let about = "By vsftpd the same work once more, in trials of their own: a server in C, whose own part of the host's time is small where \
                     pyftpdlib's interpreter has most of it. It makes a process for each session, so it does not run in the host \
                     architecture, where the stack is in the server's own process. How often its sessions slept nobody knows.";
        notes.insert(1, about.to_owned());
    }
    notes
}

/// The server's name, where there is a comparison by one.
fn server(document: &Document) -> &str {
    document.workload.options.get("server").and_then(Value::as_str).unwrap_or("the native program")
}

/// Figures 7 to 11.
fn effect_bars(document: &Document, costs: &Costs) -> Vec<figure::Figure> {
    let mut all = figure::draw(document);
    let published = [("host", 7.0), ("fep", 1.0)]
        .map(|(name, cost)| (name.to_owned(), format!("{name} published"), units::digits(cost), cost));
    let measured = document.subjects.iter().map(|subject| {
        let cost = weighted_cost(subject, costs);
        (subject.name.clone(), subject.name.clone(), units::plain(cost), cost)
    });
    let cost = figure::Figure::of(
        "Figure 10 · Weighted cost",
        "The life cycle's cost of the cores in use, by the cost model below, for each Mbit/s.",
        vec![("measured", measured.collect()), ("published", published.into())],
    );
    all.insert(all.len().saturating_sub(1), cost);
    for figure in &mut all {
        figure.caption = format!("{}, {}", figure.caption, server(document));
    }
    all
}

/// Figures 12 and 13.
fn share_bars(native: &Document) -> figure::Figure {
    let shares = native.subjects.iter().map(|subject| {
        let (host, file) = host_and_file_work(subject);
        let share = |label: &str, part: f64| {
            let percent = part / host.max(1e-9) * 100.0;
            (label.to_owned(), subject.name.clone(), format!("{} %", units::digits(percent)), percent)
        };
        (subject.name.as_str(), vec![share("network", host - file), share("file work", file)])
    });
    let meaning = "What the host's processor time goes into. Published: network nearly 7 times the file work in the host \
                   architecture, as much with the front-end processor.";
    figure::Figure::of("Figures 12 and 13 · Share of the host's CPU", meaning, shares.collect())
}

/// The host's processor seconds, and those of them that went into making and comparing the bytes.
fn host_and_file_work(subject: &SubjectResult) -> (f64, f64) {
    let host = mean(subject, |m| m.cpu_seconds.host());
    (host, mean(subject, |m| m.cpu_seconds.application_own_work).min(host))
}

/// Files of one trial at one speed.
fn few(count: u64) -> u64 {
    count.div_ceil(10)
}

/// Each run has a laboratory of its own, which is gone when the next begins.
fn measure(config: &file::Config) -> Result<Document> {
    file::run(&Lab::new()?, config)
}

/// The same with hosts of several speeds.
fn speeds(config: &file::Config, count: u64) -> Result<Vec<(f64, Document)>> {
    let mut all = Vec::new();
    for share in SHARES {
        let setup = Setup { application_share: Some(share), ..config.common.setup.clone() };
        let common = Common { setup, trials: 1, until: None, ..config.common.clone() };
        let loads = vec![Load { size: FILE_BYTES, count: few(count) }];
        all.push((share, measure(&file::Config { common, loads, ..config.clone() })?));
    }
    Ok(all)
}

/// Figures 12 and 13.
fn shares(document: &Document) -> Table {
    let head = ["", "network, % of host CPU", "file work, %", "network ÷ file"];
    let mut rows = vec![
        ["published: host", "", "", "nearly 7"].map(str::to_owned).to_vec(),
        ["published: FEP", "", "", "1"].map(str::to_owned).to_vec(),
    ];
    for subject in &document.subjects {
        let (host, file) = host_and_file_work(subject);
        let network = host - file;
        let percent = |part: f64| units::digits(part / host.max(1e-9) * 100.0);
        let ratio = if file > 0.0 { units::digits(network / file) } else { String::new() };
        rows.push(vec![format!("measured: {}", subject.name), percent(network), percent(file), ratio]);
    }
    let title = "Figures 12 and 13: share of the host's CPU, network against file work".to_owned();
    Table { title, head: head.map(str::to_owned).to_vec(), rows }
}

/// Figure 14.
fn by_speed(speeds: &[(f64, Document)], costs: &Costs) -> Table {
    let subjects = || speeds.first().into_iter().flat_map(|(_, document)| &document.subjects);
    let mut head = vec!["host's speed".to_owned()];
    head.extend(subjects().map(|subject| format!("{}: bandwidth", subject.name)));
    head.extend(subjects().map(|subject| format!("{}: cost, {}", subject.name, costs.currency)));
    let rows = speeds.iter().map(|(share, document)| {
        let mut row = vec![format!("{} %", units::digits(share * 100.0))];
        let bandwidth = |subject| units::bit_rate(mean(subject, |m| m.bits_per_second));
        row.extend(document.subjects.iter().map(bandwidth));
        row.extend(document.subjects.iter().map(|subject| units::digits(cost(subject, costs))));
        row
    });
    Table { title: "Figure 14: bandwidth and cost over host speeds".to_owned(), rows: rows.collect(), head }
}

/// Figure 5's line, and where the subjects stand: what was counted, and not by the formula.
fn io_line(document: &Document) -> Option<Plot> {
    let point = |subject: &SubjectResult| {
        let count = |m: &Measure, name: &str| m.counters.get(name).copied().unwrap_or_default() as f64;
        let counted =
            |m: &Measure| (count(m, "peer_packets_in") + count(m, "peer_segments_out")) / m.elapsed_seconds;
        (mean(subject, |m| m.bits_per_second), mean(subject, counted))
    };
    let course = |subject: &SubjectResult| Course {
        label: subject.name.clone(),
        class: subject.name.clone(),
        points: vec![point(subject)],
        marked: true,
        joined: false,
    };
    let widest = document.subjects.iter().map(|subject| point(subject).0).fold(0.0, f64::max);
    let line = [0.0, widest].map(|bits| (bits, bits / 8.0 / PAPER_PACKET_BYTES * 2.0));
    let formula = Course {
        label: "the formula".to_owned(),
        class: "formula".to_owned(),
        points: line.to_vec(),
        marked: false,
        joined: true,
    };
    let courses = [formula].into_iter().chain(document.subjects.iter().map(course)).collect();
    let caption = format!(
        "Figure 5 · I/Os per second over bandwidth: the paper's formula, and packets counted, {}",
        server(document)
    );
    Plot::new(caption, courses, units::bit_rate, |rate| units::scaled(rate, "/s"))
}

/// Figure 14's bandwidths.
fn speed_line(speeds: &[(f64, Document)]) -> Option<Plot> {
    let mut courses: Vec<Course> = Vec::new();
    for (share, document) in speeds {
        for subject in &document.subjects {
            let point = (share * 100.0, mean(subject, |m| m.bits_per_second));
            match courses.iter_mut().find(|course| course.label == subject.name) {
                Some(course) => course.points.push(point),
                None => courses.push(Course {
                    label: subject.name.clone(),
                    class: subject.name.clone(),
                    points: vec![point],
                    marked: true,
                    joined: true,
                }),
            }
        }
    }
    let caption = "Figure 14 · Bandwidth over the host's speed, in percent of a processor".to_owned();
    Plot::new(caption, courses, |share| format!("{} %", units::digits(share)), units::bit_rate)
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
    Table { title: format!("Figures 7 to 11: {}", server(document)), rows: rows.collect(), head }
}

/// Figure 5, and what stands behind it: what is done for each megabyte.
fn pressure(document: &Document) -> Table {
    type Value = fn(&Measure) -> Option<f64>;
    fn per_megabyte(total: &Measure, counter: &str) -> Option<f64> {
        Some(*total.counters.get(counter)? as f64 / (total.bytes as f64 / 1e6))
    }
    let rows: [(&str, &str, Value); 7] = [
        ("I/Os per second by the paper's formula", "85 and 598", |m| {
            Some(m.bytes_per_second / PAPER_PACKET_BYTES * 2.0)
        }),
        ("packets to the peer per MByte, super-segments as one", "977", |m| {
            per_megabyte(m, "peer_packets_in")
        }),
        ("segments from the peer per MByte", "977", |m| per_megabyte(m, "peer_segments_out")),
        ("of the packets to the peer, acknowledgements without data per MByte", "", |m| {
            per_megabyte(m, "peer_acks_in")
        }),
        ("times per MByte that the application slept and was woken", "", |m| {
            per_megabyte(m, "application_sleeps")
        }),
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
    Table { title: format!("Figure 5: I/O pressure, {}", server(document)), rows: rows.collect(), head }
}

/// The life cycle's cost of the cores in use.
fn cost(subject: &SubjectResult, costs: &Costs) -> f64 {
    let cores = mean(subject, |m| {
        let cpu = &m.cpu_seconds;
        (cpu.host() + cpu.fep_work + cpu.fep_system + cpu.fep_polling) / m.elapsed_seconds
    });
    let is_fep = subject.name.starts_with("fep");
    costs.life_cycle(cores, is_fep)
}

/// The same for each Mbit/s.
fn weighted_cost(subject: &SubjectResult, costs: &Costs) -> f64 {
    cost(subject, costs) / mean(subject, |m| m.bits_per_second / 1e6)
}
