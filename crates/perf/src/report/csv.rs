//! The document as a table of one line for each trial and each of its parts.

use std::fmt::Write;

use crate::results::{Document, Measure};

const HEAD: &str = "subject,trial,part,operations,bytes,elapsed_seconds,bits_per_second,operations_per_second,\
application_user_seconds,application_system_seconds,application_own_work_seconds,fep_work_seconds,\
fep_polling_seconds,fep_system_seconds,peer_seconds,machine_busy_seconds,latency_p50_ns,latency_p99_ns,\
longest_stall_seconds,verified\n";

/// The document as comma-separated values. The part of a whole trial is `all`.
pub fn csv(document: &Document) -> String {
    let mut text = HEAD.to_owned();
    for subject in &document.subjects {
        for (number, trial) in subject.trials.iter().enumerate() {
            let mut line = |part: &str, measure: &Measure| {
                writeln!(text, "{},{},{part},{}", subject.name, number + 1, fields(measure))
                    .expect("writing to a string does not fail");
            };
            line("all", &trial.total);
            for part in &trial.parts {
                line(&part.name, &part.measure);
            }
        }
    }
    text
}

fn fields(measure: &Measure) -> String {
    let cpu = &measure.cpu_seconds;
    let optional = |value: Option<String>| value.unwrap_or_default();
    [
        measure.operations.to_string(),
        measure.bytes.to_string(),
        measure.elapsed_seconds.to_string(),
        measure.bits_per_second.to_string(),
        measure.operations_per_second.to_string(),
        cpu.application_user.to_string(),
        cpu.application_system.to_string(),
        cpu.application_own_work.to_string(),
        cpu.fep_work.to_string(),
        cpu.fep_polling.to_string(),
        cpu.fep_system.to_string(),
        cpu.peer.to_string(),
        cpu.machine_busy.to_string(),
        optional(measure.latency_ns.map(|latency| latency.p50.to_string())),
        optional(measure.latency_ns.map(|latency| latency.p99.to_string())),
        optional(measure.longest_stall_seconds.map(|stall| stall.to_string())),
        measure.verified.to_string(),
    ]
    .join(",")
}
