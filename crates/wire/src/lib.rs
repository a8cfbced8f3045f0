//! Packets as bytes: parsing, emitting, summing, cutting.
//!
//! Owns the formats of Ethernet II, ARP, IPv4, IPv6, ICMPv4, UDP and TCP, the Internet checksum, and the description of
//! a frame that a device and a stack hand to each other ([`frame`]). A parser takes any bytes and gives a small header
//! by value together with the payload as a slice of the input, or a [`Malformed`]; it never panics and never loops. An
//! emitter writes into a slice of the caller and returns how much it wrote.
//!
//! What a packet *means* is decided elsewhere: nothing here knows a connection, a neighbour or a route.
//!
//! Reading order: [`ethernet`], [`ip`], [`ipv4`], [`tcp`], [`checksum`], [`frame`], [`cut`]; [`view`] and [`summary`]
//! are for tests, logs and captures, [`mod@fuzz`] for fuzzers.
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod cut;
pub mod ethernet;
pub mod frame;
pub mod fuzz;
pub mod icmpv4;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod summary;
pub mod tcp;
pub mod udp;
pub mod view;

use core::fmt;

/// Why bytes are not the packet they were taken for. A peer's doing: something to count, not to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// Fewer bytes than the format, or a length in it, asks for.
    Truncated,
    /// A length that contradicts the format or another length.
    Length,
    /// A wrong checksum.
    Checksum,
    /// Well formed perhaps, but of a version or kind that is not handled.
    Unsupported,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "truncated",
            Self::Length => "of a contradictory length",
            Self::Checksum => "of a wrong checksum",
            Self::Unsupported => "of an unsupported kind",
        })
    }
}

impl core::error::Error for Malformed {}
