//! A host without a body: interfaces, neighbours, routes, fragmentation, ICMP, UDP, TCP's tables and timers.
//!
//! Owns everything between a device and its sockets, and no clock, no entropy, no descriptor and no buffer: time and
//! frames come in as arguments, frames go out through a [`FrameSink`], bytes stand in the buffers of a
//! [`BufferFamily`]. The cost of a packet does not depend on how many connections there are: the flow table is a keyed
//! hash, the timers a wheel, and whoever waits for something stands in a list of those that wait for it.
//!
//! Reading order: [`Stack`] (what an owner calls), `ingress` and `egress` (IPv4), `path` and `neighbour` (where packets
//! go), `transmit` (what goes out next), `tcp` and `udp` (sockets), then the parts: `flow`, `ports`, `wheel`,
//! `reassembly`, `slab`, `list`.
//!
//! A server and a client in one host, whose packets never leave it:
//! ```
//! use base::{Instant, IpCidr, SeededRng};
//! use outboard_stack as stack;
//! use stack::{FrameSink, HeapBuffers, InterfaceConfig, InterfaceId, SinkFull, SocketOptions, Stack};
//! use wire::ethernet::EthernetAddress;
//! use wire::frame::{Capabilities, Medium, TxFrame};
//!
//! /// A device that leads nowhere.
//! struct Nowhere;
//! impl FrameSink for Nowhere {
//!     fn ready(&self, _: InterfaceId) -> bool {
//!         true
//!     }
//!     fn transmit(&mut self, _: InterfaceId, _: &TxFrame<'_>) -> Result<(), SinkFull> {
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Instant::from_millis(1);
//! let mut host = Stack::<HeapBuffers>::new(Default::default(), SeededRng::new(1), [7; 16]);
//! let capabilities = Capabilities {
//!     medium: Medium::Ip,
//!     mtu: 1500,
//!     checksum_tx: false,
//!     checksum_rx: false,
//!     max_segmentation: 0,
//!     hardware_address: EthernetAddress::default(),
//! };
//! let addresses = vec!["10.0.0.1/24".parse::<IpCidr>()?];
//! host.add_interface(now, InterfaceConfig { name: "if1".into(), capabilities, addresses });
//!
//! let options = SocketOptions::default();
//! let listener = host.tcp_listen("10.0.0.1:80".parse()?, 16, (), &options)?;
//! let client = host.tcp_connect(now, None, "10.0.0.1:80".parse()?, Default::default(), &options)?;
//! host.poll_transmit(now, &mut Nowhere);
//! let server = host.tcp_accept(listener).ok_or("not established")?;
//!
//! let queued = host.stream(client).ok_or("gone")?.write(b"hello");
//! host.tcp_send(client, queued);
//! host.poll_transmit(now, &mut Nowhere);
//! let (connection, stream) = host.tcp_and_stream(server).ok_or("gone")?;
//! let mut read = Vec::new();
//! stream.read(connection.received_to(), &mut read);
//! assert_eq!(read, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Left out: IPv6 (counted and dropped), multicast groups, forwarding.
#![forbid(unsafe_code)]

mod arp;
mod batch;
mod buffers;
mod config;
mod egress;
mod error;
mod fixed;
mod flow;
mod hash;
mod heap;
mod icmp;
mod ingress;
mod interface;
mod limit;
mod list;
mod listing;
pub mod memory;
mod neighbour;
mod path;
mod ports;
mod queue;
mod queued_error;
mod reassembly;
mod remembered;
mod route;
mod slab;
mod socket;
mod stack;
mod stats;
mod tcp_sockets;
mod transmit;
mod udp_sockets;
mod wheel;

pub use batch::Batch;
pub use buffers::{BufferFamily, DatagramBuffer, DatagramMeta, Full};
pub use config::{
    ConflictDetection, FastOpenConfig, InterfaceConfig, MtuDiscovery, SocketOption, SocketOptions,
    StackConfig, SynCookieMode,
};
pub use error::SocketError;
pub use fixed::{FixedBuffers, FixedStream};
pub use flow::FourTuple;
pub use heap::{HeapBuffers, HeapDatagrams, HeapStream};
pub use interface::{AddressState, FrameSink, InterfaceId, MAX_CONTROL_BYTES, MAX_CONTROL_FRAMES, SinkFull};
pub use listing::{ConnectionInfo, ConnectionState};
pub use neighbour::NeighbourState;
pub use queued_error::{ErrorOrigin, MAX_QUEUED_PAYLOAD, QueuedError, Told};
pub use reassembly::{MAX_FRAGMENTS, REASSEMBLY_TIMEOUT};
pub use route::{MAX_ROUTES, Route};
pub use socket::SocketKind;
pub use stack::{Change, NeighbourInfo, SocketId, Stack};
pub use stats::{Stats, Work};
pub use tcp_sockets::RestoreError;
pub use transmit::{TRANSMIT_BATCH, TURN_BYTES, TURN_FRAMES};
pub use wheel::TICK_NANOS;
