//! Zero traffic: what noise on the network that is nobody's business costs a host, without connections and under load.
//!
//! The paper tells of systems that lost 20 % of their processors to it, and of one that a PC brought down which looped
//! sending ARP requests; with a front-end processor it costs the host nothing.
//!
//! The noise needs a sender, and the sender a processor to itself: on a machine of two the FEP then shares the application's.
//! So that what the sender does to the machine is not taken for the noise's effect, the load also runs beside the same sender
//! that sends at the same rate where nobody is (`elsewhere`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::{Lab, Process, cpu};
use serde_json::{Map, json};

use super::Reproduction;
use crate::ends::{Plan, Work};
use crate::interrupt;
use crate::meter::Reading;
use crate::native::Native;
use crate::progress::Progress;
use crate::report::Table;
use crate::results::{Document, Measure, Part, SubjectResult, Trial};
use crate::runner::{self, Common};
use crate::site::{DEVICE, Setup, Site};
use crate::steer::Steer;
use crate::storm::Storm;
use crate::{stats, units};

const ABOUT: &str = "Zero traffic: ARP requests and broadcasts for others at a host without connections, and at one under load \
                     (round trips of 1 byte, client and server on one stack): host CPU, round trips per second and their 99th \
                     percentile.";
/// Frames per second.
const RATES: [u64; 4] = [10_000, 100_000, 500_000, 1_000_000];
/// The storm is there before anything is measured, and outlasts it.
const MARGIN: Duration = Duration::from_millis(200);
/// Where frames vanish, on the peer.
const NOWHERE: &str = "nowhere0";

/// Where a storm goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Nobody,
    Elsewhere,
    Host,
}

/// What is measured at once: a part of a trial.
#[derive(Debug, Clone, Copy)]
struct Condition {
    loaded: bool,
    to: To,
    /// Frames per second.
    rate: u64,
}

impl Condition {
    /// All of them. Without a load only the host's own processors are looked at, where the sender is not.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for loaded in [false, true] {
            all.push(Self { loaded, to: To::Nobody, rate: 0 });
            for rate in RATES {
                if loaded {
                    all.push(Self { loaded, to: To::Elsewhere, rate });
                }
                all.push(Self { loaded, to: To::Host, rate });
            }
        }
        all
    }

    /// The part's name.
    fn name(self) -> String {
        let load = if self.loaded { "load" } else { "idle" };
        match self.to {
            To::Nobody => load.to_owned(),
            To::Elsewhere => format!("{load}-{}-elsewhere", self.rate),
            To::Host => format!("{load}-{}", self.rate),
        }
    }
}

/// Each condition for `duration` at each subject, trial by trial.
pub fn run(lab: &Lab, common: &Common, duration: Duration) -> Result<Reproduction> {
    let placement = common.setup.placement.with_peer_apart();
    let sender = placement.peer_or_fep().to_vec();
    let setup = Setup { steer: Steer::Rps, placement, ..common.setup.clone() };
    let mut options = Map::new();
    options.insert("duration_seconds".to_owned(), duration.as_secs_f64().into());
    options.insert("storm_processors".to_owned(), json!(sender));
    let common = Common { setup, ..common.clone() };
    let document = runner::run(
        lab,
        &common,
        runner::Description { name: "zero", options },
        |site| {
            make_nowhere(site)?;
            Native::start(lab, site)
        },
        |site, native, progress| {
            let mut parts = Vec::new();
            for condition in Condition::all() {
                let name = condition.name();
                progress.begin(site.name(), &name);
                parts.push(Part { name, measure: one(lab, site, native, progress, condition, duration)? });
            }
            Ok(Trial::of_parts(parts))
        },
    )?;
    let mut result = Reproduction::new("zero", ABOUT, common.command.clone());
    result.tables = vec![idle(&document), loaded(&document)];
    result.notes = notes(&common, &sender, duration);
    result.documents.push(document);
    Ok(result)
}

/// A device that swallows what is sent out of it, as far as this kernel has one.
fn make_nowhere(site: &Site) -> Result<()> {
    let made = ["dummy", "ifb"].iter().any(|kind| {
        let make = format!("link add {NOWHERE} type {kind}");
        site.peer().ip(&make).is_ok()
    });
    if !made {
        bail!("this kernel has neither dummy nor ifb devices: there is nowhere to send noise to");
    }
    site.peer().ip(&format!("link set {NOWHERE} up")).map(drop)
}

fn one(
    lab: &Lab,
    site: &Site,
    native: &mut Native,
    progress: &Progress,
    condition: Condition,
    duration: Duration,
) -> Result<Measure> {
    let device = match condition.to {
        To::Nobody => None,
        To::Elsewhere => Some(NOWHERE),
        To::Host => Some(DEVICE),
    };
    let storm = device.map(|device| start(lab, site, device, condition.rate, duration)).transpose()?;
    std::thread::sleep(MARGIN);
    let (before, began) = (host_processors(site)?, Instant::now());
    let mut measure = if condition.loaded {
        let plan = Plan { duration_seconds: Some(duration.as_secs_f64()), ..Plan::new(Work::Exchange) };
        native.run(site, &plan, progress)?
    } else {
        watch(site, native, duration)?
    };
    let busy = host_processors(site)?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    measure.details.insert("host_processors_busy".to_owned(), busy);
    if let Some(storm) = storm.map(finish).transpose()? {
        let rate = |frames: u64| frames as f64 / storm.seconds;
        measure.details.insert("storm_frames_per_second".to_owned(), rate(storm.sent + storm.refused));
        measure.details.insert("storm_frames_taken_per_second".to_owned(), rate(storm.sent));
    }
    Ok(measure)
}

fn start(lab: &Lab, site: &Site, device: &str, rate: u64, duration: Duration) -> Result<Process> {
    let mut spawn = site.peer().command(lab::executable()?);
    spawn.args(["bench-end", "storm", "--device", device, "--rate"]).arg(rate.to_string());
    // A load begins with connecting and ends with the outcome: time enough that the storm is there throughout.
    spawn.arg("--seconds").arg((duration + 3 * MARGIN).as_secs_f64().to_string());
    spawn.on_processors(site.placement().peer_or_fep());
    lab.start("storm", spawn)
}

fn finish(mut process: Process) -> Result<Storm> {
    process.wait_for_success(Duration::from_secs(60))?;
    serde_json::from_str(process.stdout()?.trim()).context("what the storm says")
}

/// What the application's processors have done so far, whoever's work it was.
fn host_processors(site: &Site) -> Result<Duration> {
    let mut busy = Duration::ZERO;
    for processor in &site.placement().application {
        busy += cpu::processor(*processor)?.busy;
    }
    Ok(busy)
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
    Ok(after.complete(&before, Measure { verified: true, ..Measure::default() }))
}

/// The mean of a quantity of one condition over the trials.
fn mean(
    subject: &SubjectResult,
    condition: Condition,
    value: impl Fn(&Measure) -> Option<f64>,
) -> Option<f64> {
    let name = condition.name();
    let parts = subject.trials.iter().filter_map(|trial| trial.parts.iter().find(|part| part.name == name));
    let values: Vec<f64> = parts.filter_map(|part| value(&part.measure)).collect();
    stats::mean(&values).map(|mean| mean.value)
}

fn shown(value: Option<f64>, scale: f64) -> String {
    value.map_or_else(String::new, |value| units::digits(value * scale))
}

fn application(measure: &Measure) -> Option<f64> {
    Some(measure.cpu_seconds.host() / measure.elapsed_seconds)
}

fn fep(measure: &Measure) -> Option<f64> {
    let cpu = &measure.cpu_seconds;
    let spent = cpu.fep_work + cpu.fep_system + cpu.fep_polling;
    (spent > 0.0).then(|| spent / measure.elapsed_seconds)
}

fn detail(name: &'static str) -> impl Fn(&Measure) -> Option<f64> {
    move |measure| measure.details.get(name).copied()
}

/// A host without connections.
fn idle(document: &Document) -> Table {
    let head = [
        "",
        "frames/s",
        "let through",
        "application, % of a core",
        "host's processors busy, %",
        "FEP, % of a core",
    ];
    let mut rows = Vec::new();
    for subject in &document.subjects {
        for condition in Condition::all().into_iter().filter(|one| !one.loaded) {
            rows.push(vec![
                subject.name.clone(),
                shown(mean(subject, condition, detail("storm_frames_per_second")).or(Some(0.0)), 1.0),
                shown(mean(subject, condition, detail("storm_frames_taken_per_second")).or(Some(0.0)), 1.0),
                shown(mean(subject, condition, application), 100.0),
                shown(mean(subject, condition, detail("host_processors_busy")), 100.0),
                shown(mean(subject, condition, fep), 100.0),
            ]);
        }
    }
    Table { title: "A host without connections".to_owned(), rows, head: head.map(str::to_owned).to_vec() }
}

/// A host under load: the storm at it, and the same storm elsewhere.
fn loaded(document: &Document) -> Table {
    let head = [
        "",
        "storm",
        "frames/s",
        "let through",
        "application, % of a core",
        "FEP, % of a core",
        "round trips/s",
        "p99, µs",
        "changes: application, % of a core",
        "round trips, %",
        "p99, µs",
    ];
    let rate = |measure: &Measure| Some(measure.operations_per_second);
    let tail = |measure: &Measure| measure.latency_ns.map(|latency| latency.p99 as f64 / 1e3);
    let mut rows = Vec::new();
    for subject in &document.subjects {
        for condition in Condition::all().into_iter().filter(|one| one.loaded) {
            let mut row = vec![
                subject.name.clone(),
                match condition.to {
                    To::Nobody => "none",
                    To::Elsewhere => "elsewhere",
                    To::Host => "at the host",
                }
                .to_owned(),
                shown(mean(subject, condition, detail("storm_frames_per_second")).or(Some(0.0)), 1.0),
                shown(mean(subject, condition, detail("storm_frames_taken_per_second")).or(Some(0.0)), 1.0),
                shown(mean(subject, condition, application), 100.0),
                shown(mean(subject, condition, fep), 100.0),
                shown(mean(subject, condition, rate), 1.0),
                shown(mean(subject, condition, tail), 1.0),
            ];
            let elsewhere = Condition { to: To::Elsewhere, ..condition };
            let change = |value: &dyn Fn(&Measure) -> Option<f64>| {
                let pair = mean(subject, condition, value).zip(mean(subject, elsewhere, value));
                pair.filter(|_| condition.to == To::Host)
            };
            let signed = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:+.1}"));
            row.push(signed(change(&application).map(|(here, there)| (here - there) * 100.0)));
            row.push(signed(change(&rate).map(|(here, there)| (here / there - 1.0) * 100.0)));
            row.push(signed(change(&tail).map(|(here, there)| here - there)));
            rows.push(row);
        }
    }
    Table {
        title: "A host under load; what changes when the storm is at the host and not elsewhere".to_owned(),
        rows,
        head: head.map(str::to_owned).to_vec(),
    }
}

fn notes(common: &Common, sender: &[usize], duration: Duration) -> Vec<String> {
    let placement = &common.setup.placement;
    vec![
        format!(
            "{} s each, {} trials. Half of the frames are ARP requests for another host, half UDP broadcasts to a port where \
             nobody listens. The application runs on processors {:?} (the kernel's may use the FEP's too), the FEP on {:?}, the \
             storm's sender on {sender:?}. “Let through” are the frames that the link's other end took: at a TAP device the kernel \
             drops what the FEP has no use for, in the sender's call.",
            duration.as_secs_f64(),
            common.trials,
            placement.application,
            placement.fep,
        ),
        "The sender has a processor to itself, on a machine of two by letting the FEP share the application's. The changes are \
         against the same sender at the same rate out of a device that swallows the frames, since it takes its processor's time \
         whatever comes of them."
            .to_owned(),
        "The kernel's host takes its packets in on the application's processors (receive packet steering), as a network card's \
         interrupts have a host architecture do; otherwise the sender's processor would do that work and hide it. Its cost shows \
         as the busy time of the host's processors, and of the application whenever it interrupts that."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_has_a_name_of_its_own_and_a_control() {
        let all = Condition::all();
        let names: std::collections::BTreeSet<String> = all.iter().map(|one| one.name()).collect();
        assert_eq!(names.len(), all.len());
        for one in all.iter().filter(|one| one.loaded && one.to == To::Host) {
            assert!(names.contains(&Condition { to: To::Elsewhere, ..*one }.name()));
        }
    }

    #[test]
    fn a_change_is_against_the_same_storm_elsewhere() {
        let part = |condition: Condition, rate: f64, host: f64| {
            let mut measure =
                Measure { operations_per_second: rate, elapsed_seconds: 1.0, ..Measure::default() };
            measure.cpu_seconds.application_user = host;
            measure.details.insert("storm_frames_per_second".to_owned(), condition.rate as f64);
            Part { name: condition.name(), measure }
        };
        let storm = |to, rate| Condition { loaded: true, to, rate };
        let parts = vec![
            part(storm(To::Nobody, 0), 1000.0, 0.1),
            part(storm(To::Elsewhere, RATES[2]), 800.0, 0.2),
            part(storm(To::Host, RATES[2]), 720.0, 0.205),
        ];
        let subject = SubjectResult {
            name: "fep".to_owned(),
            options: Map::new(),
            trials: vec![Trial::of_parts(parts)],
            summary: std::collections::BTreeMap::new(),
        };
        let description = runner::Description { name: "zero", options: Map::new() };
        let table = loaded(&runner::finish(Vec::new(), description, None, vec![subject]));
        let row = table.rows.iter().find(|row| row[1] == "at the host" && row[2] == "500000").unwrap();
        assert_eq!([&row[8], &row[9]], ["+0.5", "-10.0"]);
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
    }
}
