//! The vocabulary that every other crate shares: time, sequence numbers, stream offsets and randomness.
//!
//! Owns no behaviour of a protocol. Everything here is a value: no clock is read, no entropy is drawn, no
//! descriptor is held. A caller passes `now` in and injects its random source at construction.
//!
//! Reading order: [`time`], [`seq`], [`rng`].
#![forbid(unsafe_code)]

pub mod cidr;
pub mod rng;
pub mod seq;
pub mod time;

pub use cidr::IpCidr;
pub use rng::{Rng, SeededRng};
pub use seq::SeqNumber;
pub use time::{Duration, Instant};
