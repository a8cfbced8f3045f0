//! Packets that the stack makes itself: replies, errors, fragments. They are copied into a bounded queue of their
//! interface, or into the waiting room of a neighbour that has not answered yet.

use base::Instant;
use core::net::{IpAddr, Ipv4Addr};
use wire::ethernet::{self, EtherType, EthernetAddress};
use wire::frame::Medium;
use wire::ip::{Ecn, Protocol};
use wire::ipv4;

use crate::InterfaceId;
use crate::buffers::BufferFamily;
use crate::path::{Opening, Path};
use crate::queue::QueuedFrame;
use crate::stack::Stack;

/// Counters for the identifications of packets that may be cut (RFC 7739 §5.3: per destination, by a keyed hash).
const IDENT_COUNTERS: usize = 256;

/// A packet to be sent, but for its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    /// Unspecified: the stack chooses.
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: Protocol,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) dont_fragment: bool,
}

/// Identifications for packets that may be cut.
pub(crate) struct Identifications {
    counters: [u16; IDENT_COUNTERS],
}

impl Identifications {
    pub(crate) fn new() -> Self {
        Self { counters: [0; IDENT_COUNTERS] }
    }

    /// The next one; `word` is a keyed hash of addresses and protocol.
    fn next(&mut self, word: u64) -> u16 {
        let counter = &mut self.counters[word as usize % IDENT_COUNTERS];
        *counter = counter.wrapping_add(1);
        counter.wrapping_add((word >> 32) as u16)
    }
}

impl Outgoing {
    /// The header for `payload_len` bytes as a packet of its own.
    pub(crate) fn header(&self, payload_len: usize) -> ipv4::Header {
        ipv4::Header {
            dscp: self.tos >> 2,
            ecn: Ecn::from_bits(self.tos),
            total_len: (ipv4::HEADER_LEN + payload_len) as u16,
            // RFC 6864 §4.1: of a packet that cannot be cut, the identification means nothing.
            ident: 0,
            dont_fragment: self.dont_fragment,
            more_fragments: false,
            fragment_offset: 0,
            ttl: self.ttl,
            protocol: self.protocol,
            source: self.source,
            destination: self.destination,
        }
    }
}

impl<B: BufferFamily> Stack<B> {
    /// Sends a packet whose payload is `pieces`, in order.
    pub(crate) fn send_packet(&mut self, now: Instant, mut packet: Outgoing, pieces: &[&[u8]]) {
        let found = self.find_path(now, IpAddr::V4(packet.source), IpAddr::V4(packet.destination));
        let Ok((path, IpAddr::V4(source))) = found else {
            self.stats.drop_no_route += 1;
            return;
        };
        packet.source = source;
        self.send_along(now, path, packet, pieces);
    }

    /// Sends a packet along a way that was found, cut into fragments if it is too long for the link.
    pub(crate) fn send_along(&mut self, now: Instant, path: Path, packet: Outgoing, pieces: &[&[u8]]) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mtu = usize::from(self.mtu_towards(now, path.interface, packet.destination));
        let mut header = packet.header(length);
        if !packet.dont_fragment {
            header.ident = self.next_identification(&packet);
        }
        if ipv4::HEADER_LEN + length <= mtu {
            self.enqueue(now, path, &header, pieces, 0..length);
            return;
        }
        // RFC 791 §3.2: all but the last fragment carry a multiple of eight bytes.
        let room = (mtu - ipv4::HEADER_LEN) & !7;
        header.dont_fragment = false;
        self.stats.fragmented += 1;
        let mut at = 0;
        while at < length {
            let end = (at + room).min(length);
            header.total_len = (ipv4::HEADER_LEN + end - at) as u16;
            header.fragment_offset = at as u16;
            header.more_fragments = end < length;
            self.stats.fragments_out += 1;
            self.enqueue(now, path, &header, pieces, at..end);
            at = end;
        }
    }

    /// The identification of a packet that may be cut.
    pub(crate) fn next_identification(&mut self, packet: &Outgoing) -> u16 {
        let mut bytes = [0; 9];
        bytes[..4].copy_from_slice(&packet.source.octets());
        bytes[4..8].copy_from_slice(&packet.destination.octets());
        bytes[8] = packet.protocol.0;
        let word = self.hash.hash_bytes(&bytes);
        self.identifications.next(word)
    }

    /// Puts one packet into the queue of its interface, or of its neighbour.
    fn enqueue(
        &mut self,
        now: Instant,
        path: Path,
        header: &ipv4::Header,
        pieces: &[&[u8]],
        range: core::ops::Range<usize>,
    ) {
        let opening = self.open_path(now, path);
        let interface = &mut self.interfaces[path.interface.index()];
        let own = interface.capabilities.hardware_address;
        let medium = interface.capabilities.medium;
        let mut bytes = interface.control.buffer();
        let to = match opening {
            Opening::Open(hardware) => hardware,
            Opening::Wait(_) | Opening::Stale => EthernetAddress::default(),
        };
        write_frame(&mut bytes, medium, own, to, header, pieces, range);
        match opening {
            Opening::Open(_) => self.push_control(path.interface, bytes),
            Opening::Wait(key) => {
                let Some(entry) = self.neighbours.get_mut(key) else { return };
                self.stats.drop_neighbour_queue += entry.push_waiting(bytes) as u64;
            }
            Opening::Stale => self.stats.drop_neighbour_failed += 1,
        }
    }

    /// Queues a whole frame.
    pub(crate) fn push_control(&mut self, interface: InterfaceId, bytes: Vec<u8>) {
        let queue = &mut self.interfaces[interface.index()].control;
        if !queue.push(QueuedFrame { bytes, segment_size: 0 }) {
            if interface == InterfaceId::LOOPBACK {
                self.stats.drop_loopback_queue += 1;
            } else {
                self.stats.drop_control_queue += 1;
            }
        }
    }

    /// What waited for a neighbour goes out to `hardware`.
    pub(crate) fn release_waiting(&mut self, key: crate::slab::Key, hardware: EthernetAddress) {
        while let Some(entry) = self.neighbours.get_mut(key) {
            let interface = entry.interface;
            let Some(mut frame) = entry.pop_waiting() else { break };
            if let Some(destination) = frame.first_chunk_mut::<6>() {
                *destination = hardware.0;
            }
            self.push_control(interface, frame);
        }
    }
}

/// Writes link header, IP header and the `range` of the payload `pieces`.
fn write_frame(
    bytes: &mut Vec<u8>,
    medium: Medium,
    own: EthernetAddress,
    to: EthernetAddress,
    header: &ipv4::Header,
    pieces: &[&[u8]],
    range: core::ops::Range<usize>,
) {
    let link = medium.header_len();
    bytes.clear();
    bytes.resize(link + ipv4::HEADER_LEN, 0);
    if medium == Medium::Ethernet {
        let link = ethernet::Header { destination: to, source: own, ethertype: EtherType::IPV4 };
        link.emit(bytes);
    }
    header.emit(&mut bytes[link..]);
    let mut start = 0;
    for piece in pieces {
        let from = range.start.saturating_sub(start).min(piece.len());
        let to = range.end.saturating_sub(start).min(piece.len());
        bytes.extend_from_slice(&piece[from..to]);
        start += piece.len();
    }
}
