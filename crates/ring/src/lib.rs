//! Single-producer single-consumer rings, cursors and the sleep and wake-up protocol over shared memory.
//!
//! Owns the *protocols* only: which index is stored when, with which ordering, and what is believed of the other
//! side's. Where the memory is and how it is reached is the caller's: the traits [`ProducerMemory`], [`ConsumerMemory`]
//! and [`Word32`] are implemented over mappings in the `channel` crate and over loom's checked cells in this crate's
//! tests. So there is no unsafe code here, and what loom checks is what ships.
//!
//! The other side is hostile. Everything that a side relies on is private to it; of an index in shared memory one copy
//! is loaded, checked against what the private state allows, and only then used. An index out of range is [`Corrupt`].
//!
//! Reading order: [`word`], [`queue`], [`doorbell`], [`patience`], [`crowd`], [`cursor`], [`span`].
#![forbid(unsafe_code)]

pub mod crowd;
pub mod cursor;
pub mod doorbell;
pub mod patience;
pub mod queue;
pub mod span;
pub mod word;

pub use crowd::Crowd;
pub use cursor::PeerCursor;
pub use patience::Patience;
pub use queue::{Consumer, ConsumerMemory, Producer, ProducerMemory, PushError};
pub use span::{Span, spans};
pub use word::{Atomics, Native, Word32};

/// The other side stored an index or cursor that no correct sequence of operations leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;
