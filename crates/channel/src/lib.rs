//! The channel between one application and the FEP: two shared-memory segments, and both halves of what uses them.
//!
//! Owns the layout of the segments ([`layout`]), what crosses them ([`Command`], [`Event`], the records' [`State`]), the
//! rings of byte streams and datagrams, waking up, and the messages on the control socket that set a channel up
//! ([`control`]). Leaves out what the commands do: that is the `fep` crate's on one side, the `outboard` library's on the other.
//!
//! The application is hostile. The FEP's half ([`fep`]) copies what it reads from segment A once, validates the copy
//! and uses only that; whatever cannot come from a correct application is an [`Offence`], after which the channel is
//! closed. Nothing in A is ever used as an offset, an index or a length before that.
//!
//! Publication order replaces locks. The rules, each loom-checked in the `ring` crate:
//! - The FEP stores a receive ring's location before it stores `received`; the application loads `received` before the
//!   location. So what it may read always lies in the ring that it sees. A replaced ring is used for something else
//!   only after the application's cursor has passed what was received before the replacement.
//! - Whoever sleeps announces it, fences, looks again; whoever publishes fences and looks for sleepers.
//!
//! Reading order: [`layout`], [`Command`], [`Event`], [`fep`], [`app`], [`control`].
#![deny(unsafe_code)]

pub mod app;
mod command;
pub mod control;
mod datagram;
mod event;
pub mod fep;
pub mod fuzz;
pub mod layout;
// The one place where segments are reached.
#[allow(unsafe_code)]
mod mapping;
mod memory;
mod offence;
mod queued;
mod record;
mod retired;
mod sending;
mod urgent;

use std::io;
use std::sync::Arc;

pub use command::{Command, Manner, Stamp};
pub use event::Event;
pub use layout::{Geometry, RingLocation};
pub use mapping::MemoryUse;
pub use offence::Offence;
pub use record::State;

/// Both halves of a channel in one process, without a control socket: for a stack in a thread of the application.
pub fn pair(limits: &fep::Limits) -> io::Result<(fep::AppChannel, Arc<app::Channel>)> {
    let half = fep::AppChannel::create(limits)?;
    let channel = app::Channel::local(&half)?;
    Ok((half, channel))
}

/// The same, the receive memory being a part of what several applications may have together.
pub fn pair_within(
    limits: &fep::Limits,
    around: &Arc<stack::memory::Budget>,
) -> io::Result<(fep::AppChannel, Arc<app::Channel>)> {
    let half = fep::AppChannel::create_within(limits, around)?;
    let channel = app::Channel::local(&half)?;
    Ok((half, channel))
}

#[cfg(test)]
mod tests;
