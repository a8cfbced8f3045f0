//! An emulated network path, sans-IO: frames and times in, frames and times out.
//!
//! A [`Path`] is a chain of stages in the order in which a frame meets them: a bottleneck (a [`queue`] in front of a
//! rate or of a Mahimahi [`trace`]), propagation delay with jitter, loss, duplication, reordering, corruption, an MTU,
//! a token-bucket policer, outages. Each stage counts what it did. A path is one direction; two of them make a link.
//!
//! Paths are generic over the [`Frame`] they carry, so that the simulator sends small descriptors through them without
//! copying payload, and a real-time emulator sends bytes. Every stage draws from a generator of its own, forked from
//! the one injected at construction: the same seed, frames and times give the same outcome, and a stage's draws do not
//! change when another stage is added behind it.
//!
//! Rates, queue limits and losses count frames as they are on the wire: whoever holds super-segments cuts them before
//! they enter.
//!
//! Paths have a text form, [`PathSpec`]: `rate 527mbit, queue 3MB droptail, delay 22.5ms, loss burst 3 3e-5`.
//!
//! Not here: addresses, routing, ICMP messages (the MTU stage hands the frame back and its owner answers), and the
//! event queue that calls [`Path::poll_output`] at [`Path::deadline`].
//!
//! Reading order: [`frame`], [`spec`], [`path`], then the stages.
#![forbid(unsafe_code)]

pub mod bottleneck;
mod delay;
pub mod frame;
mod impair;
mod outage;
pub mod path;
mod policer;
pub mod queue;
mod reorder;
pub mod spec;
pub mod stats;
pub mod trace;
pub mod units;

pub use frame::{Frame, Packet};
pub use path::{Output, Path};
pub use spec::{ParsePathError, PathSpec};
pub use stats::StageStats;
