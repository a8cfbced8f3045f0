//! Every target: its corpus, then a fixed number of inputs from a seed.
//!
//!     FUZZ_SEED=7 FUZZ_RUNS=100000 cargo test -p outboard-fuzz middle_box    # another sequence, a longer one
//!     FUZZ_INPUT=FILE cargo test -p outboard-fuzz middle_box                 # one input
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use fuzz::{corpus, mutation, target};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// After so many broken inputs there is enough to look at.
const ENOUGH: usize = 5;

/// Runs one input; one that breaks something is kept, and it is said how to replay it.
fn attempt(name: &str, run: fn(&[u8]), input: &[u8], origin: &str, broken: &mut usize) {
    if *broken < ENOUGH && catch_unwind(AssertUnwindSafe(|| run(input))).is_err() {
        *broken += 1;
        let kept = corpus::keep_crash(name, input).unwrap();
        eprintln!("{name}: broken by {origin}; kept as {}", kept.display());
        eprintln!("replay: FUZZ_INPUT={} cargo test -p outboard-fuzz --test fixed {name}", kept.display());
    }
}

fn fuzz(name: &str) {
    let target = target(name).unwrap();
    if let Ok(file) = std::env::var("FUZZ_INPUT") {
        return (target.run)(&std::fs::read(file).unwrap());
    }
    let kept = corpus::load(name).unwrap();
    assert!(!kept.is_empty(), "a target begins with something");
    let mut broken = 0;
    for (file, input) in &kept {
        attempt(name, target.run, input, file, &mut broken);
    }
    let (seed, runs) = (number("FUZZ_SEED").unwrap_or(1), number("FUZZ_RUNS").unwrap_or(target.runs));
    println!("{name}: {} kept inputs, then {runs} with FUZZ_SEED={seed}", kept.len());
    let inputs: Vec<_> = kept.into_iter().map(|(_, input)| input).collect();
    for index in 0..runs {
        let input = mutation::make(seed, index, &inputs, target.longest);
        attempt(name, target.run, &input, &format!("number {index} of FUZZ_SEED={seed}"), &mut broken);
    }
    assert_eq!(broken, 0, "inputs broke {name}");
}

#[test]
fn options() {
    fuzz("options");
}

#[test]
fn packets() {
    fuzz("packets");
}

#[test]
fn messages() {
    fuzz("messages");
}

#[test]
fn middle_box() {
    fuzz("middle_box");
}

#[test]
fn snapshot() {
    fuzz("snapshot");
}

#[test]
fn frames() {
    fuzz("frames");
}

#[test]
fn shared_memory() {
    fuzz("shared_memory");
}

#[test]
fn every_folder_of_the_corpus_has_a_target() {
    let all = corpus::folder("");
    for entry in std::fs::read_dir(all).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(target(&name).is_some(), "{name}");
    }
}
