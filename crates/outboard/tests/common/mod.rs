//! Two hosts on a wire in memory.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use outboard::device::memory::{self, MemoryDevice};
use outboard::frame::{Capabilities, Medium};
use outboard::{Endpoint, EthernetAddress, HostConfig};

pub const FIRST: &str = "192.0.2.1";
pub const SECOND: &str = "192.0.2.2";

/// A device with offload, as a TAP is, or without any.
pub fn capabilities(medium: Medium, offload: bool, last: u8) -> Capabilities {
    Capabilities {
        medium,
        mtu: 1500,
        checksum_tx: offload,
        checksum_rx: offload,
        max_segmentation: if offload { 65_535 } else { 0 },
        hardware_address: EthernetAddress([2, 0, 0, 0, 0, last]),
    }
}

fn host(address: &str, device: MemoryDevice) -> Endpoint {
    let address = format!("{address}/24").parse().unwrap();
    Endpoint::host(HostConfig { addresses: vec![address], ..HostConfig::default() }, device).unwrap()
}

pub fn hosts_over(medium: Medium, offload: bool) -> (Endpoint, Endpoint) {
    let (first, second) =
        memory::pair(capabilities(medium, offload, 1), capabilities(medium, offload, 2)).unwrap();
    (host(FIRST, first), host(SECOND, second))
}

pub fn hosts() -> (Endpoint, Endpoint) {
    hosts_over(Medium::Ethernet, true)
}
