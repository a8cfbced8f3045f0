//! The native program of the measurements: one end of a load, on the kernel's sockets or on the library's.
//!
//! It runs as a process of its own (`outboard bench-end …`, not shown in the help), so that its processor time is its
//! own, or by hand on two machines (`outboard bench -s` and `-c`). A *client* ([`run`]) tells a *server* ([`serve`]) a
//! [`Plan`] over a control connection; the server opens a port for the data, both do their part, and the client gets
//! the server's [`Outcome`] with its own.
//!
//! On the library the ends work in place where it pays: they produce into the send ring and read out of the receive
//! ring. On the kernel they do the same with a buffer and `read` and `write`.
//!
//! Reading order: `plan`, `connection`, `control`, `server` with `answer`, [`run`] in `client`, then a load: `exchange`
//! (`open_loop`, `datagrams`), `transact`, `stream`, `hold`.

mod answer;
mod batch;
mod burn;
mod client;
mod connection;
mod control;
mod data;
mod datagrams;
mod exchange;
mod hold;
mod messages;
mod open_loop;
mod outcome;
mod pace;
mod plan;
mod server;
mod stream;
mod tally;
mod transact;

pub use burn::burn;
pub use client::{print, run};
pub use connection::Net;
pub use outcome::{Interval, Outcome, Said};
pub use plan::{Flow, MAX_CONNECTIONS, Plan, Protocol, Verify, Work};
pub use server::{Server, serve};

/// The port that the server listens on.
pub const PORT: u16 = 7700;
/// How much is produced or read at a time. Of the size of the kernel subject's buffer too.
pub const CHUNK: usize = 256 * 1024;
