//! An interface: its addresses with their standing, and what waits to go out over it.

use base::{Instant, IpCidr};
use core::net::{IpAddr, Ipv4Addr};
use wire::frame::{Capabilities, TxFrame};

use crate::config::{ConflictDetection, InterfaceConfig};
use crate::list::List;
use crate::queue::FrameQueue;

/// Frames that the stack made itself and that may wait for a device.
pub const MAX_CONTROL_FRAMES: usize = 1024;
/// Their bytes.
pub const MAX_CONTROL_BYTES: usize = 1 << 20;

/// Names an interface of a stack. Number 0 leads back into the stack itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u16);

impl InterfaceId {
    /// The way from the stack to itself; never given to a sink.
    pub const LOOPBACK: Self = Self(0);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Takes the frames that a stack gives out.
pub trait FrameSink {
    /// Whether the interface takes one more frame of any size. Asked before each frame is made.
    fn ready(&self, interface: InterfaceId) -> bool;

    /// How many more frames of any size it takes at least. Whoever tells of more than one gets the segments of a device
    /// that cuts nothing several at a time, which is cheaper.
    fn room(&self, interface: InterfaceId) -> usize {
        self.ready(interface).into()
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// `SinkFull`: it could not, although [`ready`](Self::ready) said so. The frame counts as lost on the way.
    fn transmit(&mut self, interface: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull>;
}

/// A sink took a frame that it had said it would not, or the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkFull;

/// How an address of ours stands (RFC 5227).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Being probed; not used yet.
    Tentative,
    /// In use.
    Usable,
    /// Somebody else had it first; not used.
    Conflicted,
}

/// An address of an interface.
#[derive(Debug)]
pub(crate) struct OwnAddress {
    pub(crate) cidr: IpCidr,
    pub(crate) state: AddressState,
    /// Probes or announcements still to be sent.
    pub(crate) remaining: u8,
    pub(crate) last_defence: Option<Instant>,
}

/// An interface.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) capabilities: Capabilities,
    pub(crate) addresses: Vec<OwnAddress>,
    /// Frames that the stack made itself.
    pub(crate) control: FrameQueue,
    /// Sockets that want output over this interface.
    pub(crate) ready: List,
}

impl Interface {
    pub(crate) fn new(config: InterfaceConfig, detection: ConflictDetection) -> Self {
        let state = match detection {
            ConflictDetection::Probe => AddressState::Tentative,
            ConflictDetection::Off | ConflictDetection::Announce => AddressState::Usable,
        };
        let own = |cidr| OwnAddress { cidr, state, remaining: 0, last_defence: None };
        Self {
            name: config.name,
            capabilities: config.capabilities,
            addresses: config.addresses.into_iter().map(own).collect(),
            control: FrameQueue::new(MAX_CONTROL_FRAMES, MAX_CONTROL_BYTES),
            ready: List::new(),
        }
    }

    /// Whether the stack uses `address` on this interface.
    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.cidr.address() == address && own.state == AddressState::Usable)
    }

    /// The address to send from when none is bound: the first in the prefix of `next_hop`, else the first.
    pub(crate) fn source_for(&self, next_hop: IpAddr) -> Option<IpAddr> {
        let mut usable = self.addresses.iter().filter(|own| own.state == AddressState::Usable);
        let same_family = |own: &&OwnAddress| own.cidr.address().is_ipv4() == next_hop.is_ipv4();
        usable
            .clone()
            .find(|own| own.cidr.contains(next_hop))
            .or_else(|| usable.find(same_family))
            .map(|own| own.cidr.address())
    }

    /// Whether `address` is the directed broadcast address of one of our prefixes (RFC 919).
    pub(crate) fn is_directed_broadcast(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|own| own.cidr.broadcast() == Some(address))
    }

    /// Whether `address` stands on this link.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.cidr.contains(address))
    }
}
