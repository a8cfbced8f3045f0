//! The rules at the wire, compared: the same segments go to the Linux kernel, through a TAP device, and to Outboard's
//! stack, through a queue of frames; the same calls are made on the sockets; what comes back must be the same.
//!
//! [`script`] is what a case works with, [`packet`] makes frames, [`subject`] is the two subjects, and `cases` the cases
//! by topic. [`deviations`] lists what differs on purpose. A case that says something else on the two is run again: where the
//! machine is busy or stands still, a timer can come before a segment that should have been faster. What differs is what is
//! not the same in any run.

mod cases;
mod deviations;
mod packet;
mod script;
mod subject;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use lab::Lab;
use script::Script;
use subject::{Kind, Subject};

type Case = fn(&mut Script<'_>) -> Result<()>;

/// How often a difference must show.
const ATTEMPTS: u16 = 5;

/// Runs a case on one subject; what was said.
fn run(subject: &mut Subject, number: u16, case: Case) -> Result<Vec<String>> {
    let mut script = Script::new(subject, number)?;
    case(&mut script)?;
    Ok(script.lines)
}

/// Runs the cases on both subjects and compares.
fn compare(lab: &Lab, cases: &[(&str, Case)]) -> Result<()> {
    let mut subjects = [Subject::new(lab, Kind::Kernel)?, Subject::new(lab, Kind::Outboard)?];
    let mut differences = Vec::new();
    let mut number = 0;
    for (name, case) in cases {
        let mut difference: Option<BTreeMap<usize, String>> = None;
        for _ in 0..ATTEMPTS {
            number += 1;
            let [kernel, outboard] = &mut subjects;
            let (expected, found) = std::thread::scope(|scope| {
                let other = scope.spawn(|| run(kernel, number, *case));
                let found = run(outboard, number, *case);
                (other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), found)
            });
            let mut now = differing(name, &expected?, &found?);
            // A block that was once the same on both is done.
            if let Some(before) = difference {
                now.retain(|block, _| before.contains_key(block));
            }
            if now.is_empty() {
                difference = None;
                break;
            }
            difference = Some(now);
        }
        if let Some(blocks) = difference {
            differences.push(format!("==== {name}\n{}", blocks.into_values().collect::<String>()));
        }
    }
    ensure!(differences.is_empty(), "{} cases differ:\n{}", differences.len(), differences.join("\n"));
    Ok(())
}

/// The blocks that differ, by their numbers.
fn differing(name: &str, expected: &[String], found: &[String]) -> BTreeMap<usize, String> {
    let (left, right) = (blocks(expected), blocks(found));
    let mut differing = BTreeMap::new();
    for index in 0..left.len().max(right.len()) {
        let none = Vec::new();
        let (kernel, outboard) = (left.get(index).unwrap_or(&none), right.get(index).unwrap_or(&none));
        if kernel == outboard || deviations::is_intended(name, outboard) {
            continue;
        }
        let mut text = String::new();
        for line in 0..kernel.len().max(outboard.len()) {
            let (kernel, outboard) = (kernel.get(line), outboard.get(line));
            if kernel == outboard {
                text += &format!("{}\n", kernel.unwrap_or(&""));
            } else {
                text += &format!("K {}\nO {}\n", kernel.unwrap_or(&""), outboard.unwrap_or(&""));
            }
        }
        differing.insert(index, text);
    }
    differing
}

/// A heading starts in the first column.
fn blocks(lines: &[String]) -> Vec<Vec<&str>> {
    let mut blocks: Vec<Vec<&str>> = vec![Vec::new()];
    for line in lines {
        if !line.starts_with(' ') {
            blocks.push(Vec::new());
        }
        if let Some(last) = blocks.last_mut() {
            last.push(line);
        }
    }
    blocks
}

macro_rules! cases {
    ($module:ident: $($name:ident),+ $(,)?) => {
        &[$((stringify!($name), cases::$module::$name as Case)),+]
    };
}

lab::lab_test! {
    fn states_of_opening(lab) {
        compare(lab, cases!(states: closed, listen, syn_sent, syn_received, syn_received_simultaneous))
    }

    fn states_of_transfer(lab) {
        compare(lab, cases!(states:
            established, established_with_timestamps, established_actively, established_with_data_in_flight))
    }

    fn states_of_closing(lab) {
        compare(lab, cases!(states: fin_wait_1, fin_wait_2, closing, time_wait, close_wait, last_ack))
    }

    fn states_without_a_program(lab) {
        compare(lab, cases!(states:
            orphan_fin_wait_1, orphan_fin_wait_2, orphan_closing, orphan_last_ack, orphan_time_wait))
    }

    fn options(lab) {
        compare(lab, cases!(options:
            answers_to_syns, answers_to_ours, options_on_data, timestamps, sack_blocks, acknowledgements))
    }

    fn windows(lab) {
        compare(lab, cases!(windows: the_peers_window, small_writes, own_window))
    }

    fn urgent_data(lab) {
        compare(lab, cases!(urgent: pointers, marks, sending))
    }

    fn opening_timers(lab) {
        compare(lab, cases!(timers: handshake, retransmission))
    }

    fn probing_timers(lab) {
        compare(lab, cases!(timers: probes, keepalive, lingering))
    }

    fn internet_and_link(lab) {
        let internet = compare(lab, cases!(ip: headers, fragments, messages, udp, addresses));
        compare(lab, cases!(link: arp, malformed_arp, frames)).and(internet)
    }

    fn resets_and_sequences(lab) {
        compare(lab, cases!(states: resets, sequences, openings))
    }
}
