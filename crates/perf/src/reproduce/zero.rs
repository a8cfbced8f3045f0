//! Zero traffic: what noise on the network that is nobody's business costs a host, without connections and under load.
//!
//! The paper tells of systems that lost 20 % of their processors to it, and of one that a PC brought down which looped
//! sending ARP requests; with a front-end processor it costs the host nothing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::{Lab, Process};

use super::{Reproduction, Table};
use crate::ends::{Plan, Work};
use crate::interrupt;
use crate::meter::Reading;
use crate::native::Native;
use crate::progress::Progress;
use crate::results::Measure;
use crate::runner::Common;
use crate::site::{DEVICE, Site};
use crate::storm::Storm;
use crate::units;

const ABOUT: &str = "ARP requests and broadcasts for others at a host without connections, and at one under load (round trips \
                     of 1 byte): host CPU, round trips per second and their 99th percentile.";
/// Frames per second.
const RATES: [f64; 4] = [0.0, 10_000.0, 100_000.0, 1_000_000.0];
/// The storm is there before anything is measured, and outlasts it.
const MARGIN: Duration = Duration::from_millis(200);

/// One storm at one host.
struct Row {
    wanted: f64,
    loaded: bool,
    storm: Option<Storm>,
    measure: Measure,
}

/// Each storm for `duration` at each subject, without load and with it.
pub fn run(lab: &Lab, common: &Common, duration: Duration) -> Result<Reproduction> {
    let mut result = Reproduction::new("zero", ABOUT, common.command.clone());
    let progress = Progress::new(common.quiet, false);
    progress.expect((common.subjects.len() * RATES.len() * 2) as u64);
    for subject in &common.subjects {
        let site = Site::new(lab, *subject, &common.setup)?;
        let mut native = Native::start(lab, &site)?;
        let mut rows = Vec::new();
        for loaded in [false, true] {
            for wanted in RATES {
                interrupt::check()?;
                progress.begin(site.name(), &units::scaled(wanted, "frames/s"));
                rows.push(one(lab, &site, &mut native, &progress, wanted, loaded, duration)?);
                progress.step();
            }
        }
        result.tables.push(table(site.name(), &rows));
        drop(native);
        site.close()?;
    }
    progress.finish();
    result.notes.push(format!(
        "{} s each. Half of the frames are ARP requests for another host, half UDP broadcasts to a port where nobody listens. \
         Over a veth pair and a TAP device alike the softirq that delivers a frame may run in the sender's context: what the \
         noise costs the kernel's host beyond its application shows as softirq. The sender needs a processor itself; on a \
         machine of two that slows everything under load, and `sent` says what it reached.",
        duration.as_secs_f64()
    ));
    Ok(result)
}

fn one(
    lab: &Lab,
    site: &Site,
    native: &mut Native,
    progress: &Progress,
    wanted: f64,
    loaded: bool,
    duration: Duration,
) -> Result<Row> {
    let process = (wanted > 0.0).then(|| start(lab, site, wanted, duration + 2 * MARGIN)).transpose()?;
    std::thread::sleep(MARGIN);
    let measure = if loaded {
        let plan = Plan { duration_seconds: Some(duration.as_secs_f64()), ..Plan::new(Work::Exchange) };
        native.run(site, &plan, progress)?
    } else {
        watch(site, native, duration)?
    };
    let storm = process.map(finish).transpose()?;
    Ok(Row { wanted, loaded, storm, measure })
}

fn start(lab: &Lab, site: &Site, rate: f64, duration: Duration) -> Result<Process> {
    let mut spawn = site.peer().command(lab::executable()?);
    spawn.args(["bench-end", "storm", "--device", DEVICE, "--rate"]).arg(rate.to_string());
    spawn.arg("--seconds").arg(duration.as_secs_f64().to_string());
    lab.start("storm", spawn)
}

fn finish(mut process: Process) -> Result<Storm> {
    process.wait_for_success(Duration::from_secs(60))?;
    serde_json::from_str(process.stdout()?.trim()).context("what the storm says")
}

/// A host on which nothing is done.
fn watch(site: &Site, native: &Native, duration: Duration) -> Result<Measure> {
    let applications: Vec<u32> = native.id().into_iter().collect();
    let before = Reading::take(site, &applications)?;
    let began = Instant::now();
    while began.elapsed() < duration {
        interrupt::check()?;
        std::thread::sleep(Duration::from_millis(50).min(duration.saturating_sub(began.elapsed())));
    }
    let after = Reading::take(site, &applications)?;
    Ok(after.complete(&before, Measure::default()))
}

fn table(subject: &str, rows: &[Row]) -> Table {
    let head =
        ["frames/s wanted", "sent", "load", "host CPU %", "FEP %", "softirq %", "round trips/s", "p99 µs"];
    let percent = |row: &Row, seconds: f64| units::digits(seconds / row.measure.elapsed_seconds * 100.0);
    let cells = rows.iter().map(|row| {
        let cpu = &row.measure.cpu_seconds;
        vec![
            units::plain(row.wanted),
            row.storm.map_or_else(String::new, |storm| units::digits(storm.sent as f64 / storm.seconds)),
            if row.loaded { "round trips" } else { "none" }.to_owned(),
            percent(row, cpu.host()),
            percent(row, cpu.fep_work + cpu.fep_system + cpu.fep_polling),
            percent(row, cpu.softirq),
            if row.loaded { units::digits(row.measure.operations_per_second) } else { String::new() },
            row.measure.latency_ns.map_or_else(String::new, |one| units::digits(one.p99 as f64 / 1e3)),
        ]
    });
    Table {
        title: format!("{subject}: storms"),
        rows: cells.collect(),
        head: head.map(str::to_owned).to_vec(),
    }
}
