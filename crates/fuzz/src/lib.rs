//! Fuzzers: hostile input for every part that reads what others wrote.
//!
//! Owns the *targets* ([`TARGETS`]), each a function of bytes that panics when a law is broken; the corpus, a folder of
//! inputs a target, in which every input that ever broke one is kept; and a mutator. Two drivers use them: the test
//! `fixed`, which replays the corpus and then runs a fixed number of mutations from a seed, and `make fuzz`, which is
//! guided by coverage (`guided/`, a package of its own, because it is compiled with instrumentation).
//!
//! An input is a program: a target takes decisions from it byte by byte ([`input::Input`]), and what is missing is zero. So
//! every file is a valid input, and a short one is a short story. Leaves out the random worlds of `sim`, which look for what
//! goes wrong without an enemy.
//!
//! Reading order: this table, [`middle_box`], [`shared_memory`], then the small ones.

pub mod corpus;
pub mod frames;
pub mod input;
pub mod middle_box;
pub mod mutation;
pub mod parsers;
pub mod shared_memory;
pub mod snapshot;

/// Something that is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name, and the folder in the corpus.
    pub name: &'static str,
    /// Takes any bytes; panics when a law is broken.
    pub run: fn(&[u8]),
    /// How many inputs `make test` tries besides the corpus.
    pub runs: u64,
    /// The longest input worth making.
    pub longest: usize,
}

/// All of them.
pub const TARGETS: [Target; 7] = [
    Target { name: "options", run: parsers::options, runs: 20_000, longest: 40 },
    Target { name: "packets", run: parsers::packets, runs: 20_000, longest: 300 },
    Target { name: "messages", run: parsers::messages, runs: 20_000, longest: 200 },
    Target { name: "middle_box", run: middle_box::run, runs: 10_000, longest: 600 },
    Target { name: "snapshot", run: snapshot::run, runs: 10_000, longest: 400 },
    Target { name: "frames", run: frames::run, runs: 10_000, longest: 800 },
    Target { name: "shared_memory", run: shared_memory::run, runs: 1500, longest: 800 },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
