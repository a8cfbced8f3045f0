//! Worlds of stacks, paths and applications on virtual time, exactly repeatable from a seed.
//!
//! A [`World`] holds hosts (a [`stack::Stack`] each, with a clock as coarse as one likes), paths of [`netem`] between them
//! and conversations between applications. It checks what must hold in every world: bytes arrive in order, once, and are
//! those that were sent ([`pattern`], [`buffers`]); frames keep the laws of sequence space and windows ([`observer`]); no
//! connection stands still; at the end no socket, timer, frame or buffer is left behind ([`Verdict`]).
//!
//! [`swarm`] makes a random world of a seed. [`experiment`] measures transfers over a path, for the tables.
//!
//! No clock, no descriptor, no entropy: a capture is bytes that the caller may write to a file.
//!
//! Reading order: [`world`], [`application`], `host`, `network`, then the checkers.
#![forbid(unsafe_code)]

pub mod application;
pub mod buffers;
mod coalesce;
pub mod experiment;
pub mod frame;
pub mod host;
mod network;
pub mod observer;
pub mod pattern;
pub mod pcapng;
mod schedule;
pub mod swarm;
pub mod world;

pub use buffers::{PatternBuffers, SimBuffers};
pub use host::HostSpec;
pub use network::PathId;
pub use world::{Limits, Verdict, World};
