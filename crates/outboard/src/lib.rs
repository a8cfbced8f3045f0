//! Sockets over an outboard TCP/IP stack, in the manner of `std::net`.
//!
//! An [`Endpoint`] is the stack to use: a running front-end processor ([`Endpoint::fep`]) or the same stack in a
//! thread of this process with a device of its own ([`Endpoint::host`]). On it, [`TcpStream`], [`TcpListener`] and
//! [`UdpSocket`] behave as the types of the same names in `std::net` do, with the same `io::ErrorKind`s.
//!
//! What they add are the calls that work in place, in the memory that the stack itself transmits from and receives
//! into, so that no byte is copied on this side: [`TcpStream::reader`] gives `fill_buf` and `consume` (a
//! `std::io::BufRead`), [`TcpStream::writer`] gives `reserve` and `commit`.
//!
//! ```no_run
//! use std::io::{BufRead, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! let endpoint = outboard::Endpoint::fep("/run/outboard/default.sock")?;
//! let stream = outboard::TcpStream::connect(&endpoint, "10.9.0.1:80")?;
//! (&stream).write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//! let mut reader = stream.reader();
//! loop {
//!     let bytes = reader.fill_buf()?; // in the receive ring, not copied
//!     if bytes.is_empty() {
//!         break;
//!     }
//!     let count = bytes.len();
//!     std::io::stdout().write_all(bytes)?;
//!     reader.consume(count);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Reading order: [`endpoint`], [`TcpStream`] and its neighbours, then [`raw`]: the non-blocking core on which they
//! and the preload library stand. The protocol is none of this crate's business: it moves bytes and commands
//! through the channel to the stack.

pub mod endpoint;
mod env;
mod idle;
mod listener;
mod options;
pub mod poll;
pub mod raw;
pub mod scheduling;
mod sys;
mod tcp;
mod udp;

/// Devices for [`Endpoint::host`]: TAP interfaces, queues in memory, capture, and the trait for others.
pub use device;
/// What frames look like to a device.
pub use wire::{ethernet::EthernetAddress, frame};

pub use ::tcp::{CongestionAlgorithm, Limit, LimitedBy, TcpInfo};
pub use base::IpCidr;
pub use endpoint::{Child, Endpoint, HostConfig};
pub use env::HostSettings;
pub use listener::{Incoming, TcpListener};
pub use poll::{PollEntry, poll};
pub use tcp::{Reader, TcpStream, Writer};
pub use udp::UdpSocket;
