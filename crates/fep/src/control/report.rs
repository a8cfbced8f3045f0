//! What a FEP tells about itself: the documents behind `outboard status` and its listing of connections.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stack::memory::Budget;

use super::tcp_status::TcpStatus;
use crate::accounting::CpuReport;

/// The version of these documents.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole state of a FEP in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The FEP's name.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The supervisor's process, which is the one to stop; 0 where there is none.
    pub supervisor_pid: u32,
    /// The worker's process.
    pub worker_pid: u32,
    /// Times that the worker was restarted.
    pub worker_restarts: u64,
    /// Seconds since the FEP started, restarts of the worker included.
    pub uptime_seconds: f64,
    /// The interfaces.
    pub interfaces: Vec<InterfaceStatus>,
    /// The applications with an open channel.
    pub applications: Vec<ApplicationStatus>,
    /// TCP connections and listeners by state. The FEP leaves it to whoever asks to count them, page by page.
    pub connections: BTreeMap<String, u64>,
    /// Connections that outlive their application while their last bytes drain; counted with the former.
    pub orphans: u64,
    /// The stack's counters by name; those of dropped packets say why.
    pub counters: BTreeMap<String, u64>,
    /// The worker's own counters.
    pub worker: WorkerCounters,
    /// CPU time.
    pub cpu: CpuReport,
    /// Applications cut off, by reason.
    pub offences: BTreeMap<String, u64>,
    /// Resident memory of the worker's process, shared memory included.
    pub memory_bytes: u64,
    /// The receive buffers of all applications.
    pub receive_buffers: MemoryStatus,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its addresses, each with its prefix length.
    pub addresses: Vec<String>,
    /// Its hardware address.
    pub hardware_address: String,
    /// The largest IP packet.
    pub mtu_bytes: u32,
    /// Whether the device segments.
    pub segmentation_offload: bool,
    /// The device's counters by name.
    pub counters: BTreeMap<String, u64>,
}

/// One application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplicationStatus {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its program's name.
    pub name: String,
    /// Its open sockets.
    pub sockets: u64,
    /// Bytes of its receive buffers.
    pub buffer_bytes: u64,
    /// How these stand against what it may have.
    pub receive_buffers: MemoryStatus,
}

/// How memory with a cap stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Held, or kept free as the floor of a socket.
    pub used_bytes: u64,
    /// The cap.
    pub cap_bytes: u64,
    /// `below` half of it, under `pressure`, or `over` it but for the floors.
    pub pressure: String,
}

impl From<&Budget> for MemoryStatus {
    fn from(budget: &Budget) -> Self {
        let pressure = budget.pressure().name().to_owned();
        Self { used_bytes: budget.used(), cap_bytes: budget.cap(), pressure }
    }
}

/// What the worker counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCounters {
    /// Turns of the loop.
    pub turns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Times it woke an application.
    pub wakeups: u64,
    /// System calls, the device's included.
    pub system_calls: u64,
    /// Commands of applications carried out.
    pub commands: u64,
    /// Bytes of lent files that applications had the FEP read.
    #[serde(default)]
    pub file_bytes: u64,
    /// Events given to applications.
    pub events: u64,
    /// Applications that ever opened a channel.
    pub applications_seen: u64,
}

/// One socket of the stack, as a listing shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The RFC's name of the state; empty for UDP.
    pub state: String,
    /// The local address.
    pub local: String,
    /// The peer's address; empty if there is none.
    pub remote: String,
    /// Received bytes that the application has not taken; for a listener, connections that wait.
    pub receive_queue: u64,
    /// Sent bytes that the peer has not acknowledged.
    pub send_queue: u64,
    /// The congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// The smoothed round-trip time.
    pub round_trip_us: u64,
    /// The application's process, 0 for an orphan.
    pub pid: u32,
    /// Of a TCP connection: what `TCP_INFO` tells, and what limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpStatus>,
}

/// How many TCP connections and listeners are in which state: one page of the count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CensusPage {
    /// Sockets by state.
    pub connections: BTreeMap<String, u64>,
    /// Connections without an owner.
    pub orphans: u64,
    /// Where the next page starts, if there is one.
    pub next: Option<u64>,
}

/// One page of the listing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionPage {
    /// The rows.
    pub connections: Vec<ConnectionStatus>,
    /// Where the next page starts, if there is one.
    pub next: Option<u64>,
}
