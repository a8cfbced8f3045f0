//! The worker's state in numbers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use base::Instant;
use device::Device;
use stack::{ConnectionInfo, ConnectionState};

use super::{Key, Worker};
use crate::clock;
use crate::control::{
    ApplicationStatus, CensusPage, ConnectionPage, ConnectionStatus, InterfaceStatus, MAX_ANSWER,
    MemoryStatus, SCHEMA_VERSION, Status, TcpStatus, WorkerCounters,
};
use crate::sys::page_size;

/// Rows of a page of the listing: what fits an answer, and takes less than a millisecond to make.
const PAGE_ROWS: usize = 64;
const _: () = assert!(PAGE_ROWS * 3000 <= MAX_ANSWER);
/// Places of the table that are looked at for a page of the listing, and for one of the count.
const LISTED_SLOTS: u32 = 1024;
const CENSUS_SLOTS: u32 = 4096;

impl<D: Device> Worker<D> {
    /// What `outboard status` shows, except for the counts of connections: see [`census`](Self::census).
    pub fn status(&self) -> Status {
        let about = self.server.as_ref().map(|server| server.about.clone()).unwrap_or_default();
        Status {
            schema_version: SCHEMA_VERSION,
            name: about.name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            supervisor_pid: about.supervisor,
            worker_pid: std::process::id(),
            worker_restarts: about.restarts,
            uptime_seconds: clock::now().as_nanos().saturating_sub(about.started_ns) as f64 / 1e9,
            interfaces: vec![self.interface_status()],
            applications: self.core.apps.iter().map(application_status).collect(),
            connections: BTreeMap::new(),
            orphans: 0,
            counters: self.counters(),
            worker: self.worker_counters(),
            cpu: self.account.report(),
            offences: self.core.offences.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            memory_bytes: resident_bytes(),
            receive_buffers: MemoryStatus::from(&*self.memory),
        }
    }

    /// A part of the count of connections, by state.
    pub fn census(&self, position: u64) -> CensusPage {
        let mut page = CensusPage::default();
        page.next = self.core.stack.visit_connections(position, CENSUS_SLOTS, |one| {
            let state = state_name(one.state).to_ascii_lowercase().replace('-', "_");
            *page.connections.entry(state).or_default() += 1;
            page.orphans += u64::from(one.orphan && one.id.is_some());
            ControlFlow::Continue(())
        });
        page
    }

    /// A part of the listing of sockets.
    pub fn connection_page(&self, position: u64) -> ConnectionPage {
        let now = clock::now();
        let mut connections = Vec::new();
        let next = self.core.stack.visit_connections(position, LISTED_SLOTS, |one| {
            connections.push(self.row(now, &one));
            if connections.len() < PAGE_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        ConnectionPage { connections, next }
    }

    fn row(&self, now: Instant, one: &ConnectionInfo) -> ConnectionStatus {
        let connection = one.id.and_then(|id| self.core.stack.tcp(id));
        let owner = (!one.orphan).then(|| Key::from_word(one.user_data)).flatten();
        ConnectionStatus {
            protocol: if one.state == ConnectionState::Udp { "udp" } else { "tcp" }.to_owned(),
            state: state_name(one.state).to_owned(),
            local: one.local.to_string(),
            remote: one.remote.map(|remote| remote.to_string()).unwrap_or_default(),
            receive_queue: one.receive_queue,
            send_queue: one.send_queue,
            congestion_window_bytes: connection.map_or(0, |it| u64::from(it.congestion_window())),
            round_trip_us: connection.and_then(|it| it.srtt()).map_or(0, |srtt| srtt.as_micros()),
            pid: owner.and_then(|key| self.core.apps.find(key.app)).map_or(0, |app| app.identity.pid),
            tcp: connection.map(|it| TcpStatus::from(&it.tcp_info(now))),
        }
    }

    fn interface_status(&self) -> InterfaceStatus {
        let capabilities = self.device.capabilities();
        let device = self.device.stats();
        let counters = [
            ("frames_in", device.frames_in),
            ("bytes_in", device.bytes_in),
            ("frames_out", device.frames_out),
            ("bytes_out", device.bytes_out),
            ("full", device.full),
            ("errors_in", device.errors_in),
            ("errors_out", device.errors_out),
            ("system_calls", device.system_calls),
        ];
        InterfaceStatus {
            name: self.network.interface.clone(),
            addresses: self.network.addresses.iter().map(ToString::to_string).collect(),
            hardware_address: capabilities.hardware_address.to_string(),
            mtu_bytes: u32::from(self.network.mtu.min(capabilities.mtu)),
            segmentation_offload: capabilities.max_segmentation > 0,
            counters: counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    /// The stack's counters under their names, and those that every measurement asks for under common ones.
    fn counters(&self) -> BTreeMap<String, u64> {
        let stats = self.core.stack.stats();
        let mut counters: BTreeMap<String, u64> =
            stats.iter().map(|(name, value)| (name.to_owned(), value)).collect();
        counters.extend(stats.verdicts.iter().map(|(name, value)| (format!("verdict_{name}"), value)));
        counters.insert("segments_in".to_owned(), stats.tcp_in);
        counters.insert("segments_out".to_owned(), stats.tcp_out);
        counters
    }

    fn worker_counters(&self) -> WorkerCounters {
        let (wakeups, events) = self.core.wakeups_and_events();
        WorkerCounters {
            turns: self.account.turns,
            sleeps: self.account.sleeps,
            wakeups,
            system_calls: self.account.system_calls + self.device.stats().system_calls,
            commands: self.core.commands,
            file_bytes: self.core.filled_bytes,
            events,
            applications_seen: self.core.applications_seen,
        }
    }
}

fn application_status(application: &super::Application) -> ApplicationStatus {
    ApplicationStatus {
        pid: application.identity.pid,
        uid: application.identity.uid,
        name: application.identity.name.clone(),
        sockets: u64::from(application.open),
        buffer_bytes: application.channel.memory().in_use,
        receive_buffers: MemoryStatus::from(application.channel.budget()),
    }
}

fn state_name(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::Bound => "BOUND",
        ConnectionState::Listen => "LISTEN",
        ConnectionState::Tcp(state) => state.name(),
        ConnectionState::Udp => "UDP",
    }
}

/// Resident memory of this process, shared memory included; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages * page_size()
}
