//! The shell around the stack: what makes a process of its own out of a library.
//!
//! [`worker`] is the loop; [`process`] runs it in a process that a [`supervisor`] watches over, [`host`] on a thread of the
//! application. [`control`] is the socket by which applications get their channel and people their answers.
//!
//! Reading order: [`config`], [`worker`], [`accounting`], [`control`], [`process`], [`supervisor`], [`host`].

pub mod accounting;
mod clerk;
pub mod clock;
pub mod config;
pub mod control;
pub mod host;
pub mod names;
mod poller;
pub mod process;
pub mod slice;
pub mod supervisor;
mod sys;
pub mod worker;

use base::Duration;
use device::tap::TapOptions;
use wire::ethernet::EthernetAddress;
use wire::frame::Medium;

/// How long a worker that was told to stop lets its connections send what they hold.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// The interface that a configuration asks for.
fn device_options(config: &config::Config) -> TapOptions {
    TapOptions {
        name: config.tap.clone(),
        medium: if config.tun { Medium::Ip } else { Medium::Ethernet },
        mtu: Some(config.network.mtu),
        offload: config.offload,
        bring_up: true,
        kernel_address: config.kernel_address,
        hardware_address: hardware_address(&config.network),
    }
}

/// A locally administered address that stays the same from start to start, so that neighbours' caches stay right, and
/// differs wherever the IP address does.
fn hardware_address(network: &config::Network) -> EthernetAddress {
    let mut bytes = [0x02, 0x0b, 0, 0, 0, 1];
    match network.addresses.first().map(base::IpCidr::address) {
        Some(std::net::IpAddr::V4(address)) => bytes[2..].copy_from_slice(&address.octets()),
        Some(std::net::IpAddr::V6(address)) => bytes[2..].copy_from_slice(&address.octets()[12..]),
        None => {}
    }
    EthernetAddress(bytes)
}
