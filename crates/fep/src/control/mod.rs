//! The control socket: a Unix SEQPACKET socket by which applications get their channel and people get their answers.

mod client;
mod listener;
mod report;
mod server;
mod tcp_status;

pub(crate) use client::{ASK_CENSUS, ASK_CONNECTIONS, ASK_STATUS, MAX_ANSWER};
pub use client::{AskError, Client};
pub use listener::{ListenError, connect_to, open_listener};
pub use report::{
    ApplicationStatus, CensusPage, ConnectionPage, ConnectionStatus, InterfaceStatus, MemoryStatus,
    SCHEMA_VERSION, Status, WorkerCounters,
};
pub(crate) use server::Peer;
pub use server::{About, Server};
pub use tcp_status::TcpStatus;
