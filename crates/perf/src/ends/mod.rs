//! The native program of the measurements: one end of a transfer, on the kernel's sockets or on the library's.
//!
//! It runs as a process of its own (`outboard bench-end …`, not shown in the help), so that its processor time is its
//! own. A *server* ([`serve`]) does what each connection asks for in its first bytes ([`Request`]); a *client*
//! ([`client`]) asks, and prints an [`Outcome`] as a line of JSON. The server prints one for each connection too.
//!
//! On the library the server works in place: it produces into the send ring and reads out of the receive ring. On the
//! kernel it does the same with a buffer and `read` and `write`.

mod client;
mod connection;
mod server;

use std::io;

use serde::{Deserialize, Serialize};

pub use client::{ClientOptions, client};
pub use connection::{Listener, Net};
pub use server::serve;

use crate::results::Latency;

/// The port that the server listens on.
pub const PORT: u16 = 7700;
/// How much is produced or read at a time. Of the size of the kernel subject's buffer too.
pub(crate) const CHUNK: usize = 256 * 1024;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// The server sends.
    Get,
    /// The server receives, and says when it has everything.
    Put,
    /// The server answers every message with one of the same size.
    Echo,
    /// Nothing happens until the client closes.
    Hold,
}

impl std::str::FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "get" => Ok(Self::Get),
            "put" => Ok(Self::Put),
            "echo" => Ok(Self::Echo),
            "hold" => Ok(Self::Hold),
            other => Err(format!("`{other}` is none of get, put, echo, hold")),
        }
    }
}

/// The first bytes of a connection, from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// Whether the receiving end checks every byte, and the sending end therefore makes the pattern.
    pub check: bool,
    /// How many bytes, or of which size messages are.
    pub bytes: u64,
}

impl Request {
    /// How many bytes it takes on the wire.
    pub const LENGTH: usize = 16;

    fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = match self.operation {
            Operation::Get => b'g',
            Operation::Put => b'p',
            Operation::Echo => b'e',
            Operation::Hold => b'h',
        };
        bytes[1] = u8::from(self.check);
        bytes[8..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    fn decode(bytes: [u8; Self::LENGTH]) -> io::Result<Self> {
        let operation = match bytes[0] {
            b'g' => Operation::Get,
            b'p' => Operation::Put,
            b'e' => Operation::Echo,
            b'h' => Operation::Hold,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a request for nothing known")),
        };
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[8..]);
        Ok(Self { operation, check: bytes[1] != 0, bytes: u64::from_be_bytes(number) })
    }
}

/// What came of a connection, or of all connections of a client.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Transfers or round trips.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// From the first request to the last answer.
    pub elapsed_seconds: f64,
    /// Processor time that went into making or checking the data, as this end measured it.
    pub own_work_seconds: f64,
    /// Whether this end has received something and checked every byte of it.
    pub verified: bool,
    /// The longest time without a byte, at the receiving end.
    pub longest_stall_seconds: f64,
    /// Round-trip times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Latency>,
}
