//! Which way packets to a destination go, and how far that way is open.
//!
//! A way is found once and remembered by the socket; it holds until the routing table's epoch moves or its neighbour
//! entry goes. Per packet there remains one look at the neighbour entry.

use base::Instant;
use core::net::{IpAddr, Ipv4Addr};
use wire::ethernet::EthernetAddress;
use wire::frame::Medium;

use crate::buffers::BufferFamily;
use crate::error::SocketError;
use crate::neighbour::Use;
use crate::slab::Key;
use crate::stack::Stack;
use crate::{InterfaceId, arp};

/// A way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) interface: InterfaceId,
    pub(crate) next: Next,
}

/// Who takes the packet on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is nobody else: a raw IP link, or ourselves.
    Direct,
    /// All, or a group.
    Group(EthernetAddress),
    /// A neighbour.
    Neighbour(Key),
}

/// A way that a socket remembers, and the epoch in which it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedPath {
    pub(crate) path: Path,
    pub(crate) epoch: u32,
}

/// How far a way is open for a packet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Go, to this hardware address if the link has any.
    Open(EthernetAddress),
    /// Wait for the neighbour.
    Wait(Key),
    /// The neighbour entry has gone: find the way anew.
    Stale,
}

impl<B: BufferFamily> Stack<B> {
    /// The way from `source` (unspecified: any of our addresses) to `destination`, and the source address to use.
    pub(crate) fn find_path(
        &mut self,
        now: Instant,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<(Path, IpAddr), SocketError> {
        let (interface, next_hop, address) = self.route_to(source, destination)?;
        let direct = Path { interface, next: Next::Direct };
        if interface == InterfaceId::LOOPBACK {
            return Ok((direct, address));
        }
        if self.interfaces[interface.index()].capabilities.medium == Medium::Ip {
            return Ok((direct, address));
        }
        if let Some(group) = self.group_address(interface, next_hop) {
            return Ok((Path { interface, next: Next::Group(group) }, address));
        }
        let (entry, evicted) = self.neighbours.find_or_create(now, interface, next_hop);
        if let Some(timer) = evicted {
            self.wheel.cancel(timer);
        }
        let Some(entry) = entry else {
            self.stats.drop_neighbour_table += 1;
            return Err(SocketError::TooManySockets);
        };
        Ok((Path { interface, next: Next::Neighbour(entry) }, address))
    }

    /// The interface, the next hop and the source address towards `destination`.
    pub(crate) fn route_to(
        &self,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<(InterfaceId, IpAddr, IpAddr), SocketError> {
        if self.is_local(destination) {
            let address = if source.is_unspecified() { destination } else { source };
            return Ok((InterfaceId::LOOPBACK, destination, address));
        }
        let (interface, next_hop) = match self.broadcast_interface(source, destination) {
            Some(interface) => (interface, destination),
            None => {
                let route = self.routes.lookup(destination).ok_or(SocketError::NetworkUnreachable)?;
                (route.interface, route.gateway.unwrap_or(destination))
            }
        };
        let address = if source.is_unspecified() {
            self.interfaces[interface.index()].source_for(next_hop).ok_or(SocketError::AddressNotAvailable)?
        } else {
            source
        };
        Ok((interface, next_hop, address))
    }

    /// The largest packet on the way to `destination`.
    pub(crate) fn mtu_towards(&self, now: Instant, interface: InterfaceId, destination: Ipv4Addr) -> u16 {
        let destination = IpAddr::V4(destination);
        let link = self.link_mtu(interface, destination);
        self.path_mtus.get(now, destination).map_or(link, |mtu| mtu.min(link))
    }

    /// The largest packet to `destination` that the interface takes and the route allows.
    pub(crate) fn link_mtu(&self, interface: InterfaceId, destination: IpAddr) -> u16 {
        let link = self.interfaces[interface.index()].capabilities.mtu;
        match self.routes.mtu_to(destination) {
            Some(mtu) if interface != InterfaceId::LOOPBACK => mtu.min(link),
            _ => link,
        }
    }

    /// Asks whether a packet may go along `path` now. Starts to resolve the neighbour if need be.
    pub(crate) fn open_path(&mut self, now: Instant, path: Path) -> Opening {
        let key = match path.next {
            Next::Direct => return Opening::Open(EthernetAddress::default()),
            Next::Group(address) => return Opening::Open(address),
            Next::Neighbour(key) => key,
        };
        let Some(entry) = self.neighbours.get_mut(key) else { return Opening::Stale };
        match entry.on_use(now) {
            Use::Send(hardware) => Opening::Open(hardware),
            Use::SendAndArm(hardware, deadline) => {
                self.arm_neighbour(key, deadline);
                Opening::Open(hardware)
            }
            Use::Wait => Opening::Wait(key),
            Use::Solicit(deadline) => {
                self.arm_neighbour(key, deadline);
                self.send_arp_request(key, arp::To::All);
                Opening::Wait(key)
            }
        }
    }

    /// Where a limited or directed broadcast, or a multicast without a route, goes out.
    fn broadcast_interface(&self, source: IpAddr, destination: IpAddr) -> Option<InterfaceId> {
        let IpAddr::V4(destination) = destination else { return None };
        let of_source = || {
            let mut links = self.links();
            links.clone().find(|(_, link)| link.owns(source)).or_else(|| links.next()).map(|(id, _)| id)
        };
        if destination.is_broadcast() || destination.is_multicast() {
            return of_source();
        }
        let mut links = self.links();
        links.find(|(_, link)| link.is_directed_broadcast(destination)).map(|(id, _)| id)
    }

    /// The hardware address of a group (RFC 1112 §6.4), or of all.
    fn group_address(&self, interface: InterfaceId, next_hop: IpAddr) -> Option<EthernetAddress> {
        let IpAddr::V4(address) = next_hop else { return None };
        if address.is_multicast() {
            let [_, b, c, d] = address.octets();
            return Some(EthernetAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d]));
        }
        let to_all =
            address.is_broadcast() || self.interfaces[interface.index()].is_directed_broadcast(address);
        to_all.then_some(EthernetAddress::BROADCAST)
    }

    /// Whether `address` means all hosts of some link.
    pub(crate) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.links().any(|(_, link)| link.is_directed_broadcast(address))
    }
}
