//! Random worlds from fixed seeds. A failing one leaves a capture and says how to run it again; the same worlds without
//! an end to them are `cargo run --release -p outboard-sim --example soak`.

use sim::swarm;

/// Worlds of one test: four tests share the fixed seeds, so that two cores are used.
const SEEDS: u64 = 1000;

fn run(seeds: core::ops::Range<u64>) {
    for seed in seeds {
        let report = swarm::run(seed, false);
        if !report.violations.is_empty() {
            fail(seed);
        }
    }
}

/// The world fails again, with a capture.
fn fail(seed: u64) -> ! {
    let report = swarm::run(seed, true);
    let file = std::env::temp_dir().join(format!("outboard-seed-{seed}.pcapng"));
    let kept = match report.capture.map(|bytes| std::fs::write(&file, bytes)) {
        Some(Ok(())) => format!("capture: {}", file.display()),
        Some(Err(error)) => format!("no capture, {}: {error}", file.display()),
        None => "no capture".to_owned(),
    };
    panic!(
        "{}\n{}\n{kept}\nagain: cargo run --release -p outboard-sim --example soak -- --seed {seed} --capture seed-{seed}.pcapng",
        report.scenario,
        report.violations.join("\n")
    );
}

#[test]
fn first_quarter() {
    run(0..SEEDS);
}

#[test]
fn second_quarter() {
    run(SEEDS..2 * SEEDS);
}

#[test]
fn third_quarter() {
    run(2 * SEEDS..3 * SEEDS);
}

#[test]
fn fourth_quarter() {
    run(3 * SEEDS..4 * SEEDS);
}

#[test]
fn a_world_repeats_to_the_last_bit() {
    for seed in [3, 1 << 40] {
        let (first, second) = (swarm::run(seed, true), swarm::run(seed, true));
        assert!(first.capture.is_some_and(|bytes| bytes.len() > 1000));
        assert!(first.segments > 0 && first.segments == second.segments);
        assert_eq!(first.elapsed, second.elapsed);
        let again = swarm::run(seed, true).capture;
        assert!(again == second.capture, "the captures of seed {seed} differ");
    }
}
