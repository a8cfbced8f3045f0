//! Random worlds for as long as one likes, or one world again.
//!
//! ```text
//! cargo run --release -p outboard-sim --example soak -- [--from SEED] [--count N]
//! cargo run --release -p outboard-sim --example soak -- --seed SEED [--capture FILE]
//! ```
//!
//! Without a count it runs until a world fails or it is interrupted. A failing seed is printed with the command that
//! runs it again, and leaves a capture in the present directory.

use std::process::ExitCode;

use sim::swarm::{self, Report};

#[derive(Default)]
struct Arguments {
    from: u64,
    count: Option<u64>,
    seed: Option<u64>,
    capture: Option<String>,
    keep_going: bool,
}

fn arguments() -> Option<Arguments> {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--from" => arguments.from = words.next()?.parse().ok()?,
            "--count" => arguments.count = Some(words.next()?.parse().ok()?),
            "--seed" => arguments.seed = Some(words.next()?.parse().ok()?),
            "--capture" => arguments.capture = Some(words.next()?),
            "--keep-going" => arguments.keep_going = true,
            _ => return None,
        }
    }
    Some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: soak [--from SEED] [--count N] [--keep-going] | --seed SEED [--capture FILE]");
        return ExitCode::from(2);
    };
    // A panic in a world is reported with its seed; the message itself comes from the report.
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    match arguments.seed {
        Some(seed) => one(seed, arguments.capture),
        None => many(&arguments),
    }
}

fn one(seed: u64, file: Option<String>) -> ExitCode {
    println!("{}", swarm::Scenario::new(seed));
    let mut report = swarm::run(seed, file.is_some());
    if let (Some(file), Some(capture)) = (file, report.capture.take()) {
        match std::fs::write(&file, capture) {
            Ok(()) => println!("capture in {file}"),
            Err(error) => eprintln!("{file}: {error}"),
        }
    }
    conclude(&report)
}

fn many(arguments: &Arguments) -> ExitCode {
    let end = arguments.count.map_or(u64::MAX, |count| arguments.from.saturating_add(count));
    let (mut segments, mut failed) = (0, 0);
    for seed in arguments.from..end {
        let report = swarm::run(seed, false);
        segments += report.segments;
        if !report.violations.is_empty() {
            failed += 1;
            if arguments.keep_going {
                println!("seed {seed}: {}", report.violations[0]);
                continue;
            }
            println!("{}", report.scenario);
            return one(seed, Some(format!("seed-{seed}.pcapng")));
        }
        if (seed + 1 - arguments.from).is_multiple_of(1000) {
            println!("{} worlds, {segments} segments, {failed} failed", seed + 1 - arguments.from);
        }
    }
    println!("{} worlds, {segments} segments, {failed} failed", end - arguments.from);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn conclude(report: &Report) -> ExitCode {
    let (sent, resent) = report.bytes;
    println!(
        "{:?} of virtual time, {} segments, {sent} bytes of payload sent, {resent} of them again",
        report.elapsed, report.segments
    );
    for violation in &report.violations {
        println!("{violation}");
    }
    if report.violations.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!(
        "again: cargo run --release -p outboard-sim --example soak -- --seed {seed} --capture seed-{seed}.pcapng",
        seed = report.scenario.seed
    );
    ExitCode::FAILURE
}
