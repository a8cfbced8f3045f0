//! What comes in: link headers, the IPv4 header's checks in order, fragments, and on to the protocols.

use base::Instant;
use core::net::{IpAddr, Ipv4Addr};
use wire::ethernet::{self, EtherType};
use wire::frame::{ChecksumIn, Medium, RxFrame};
use wire::ip::Protocol;
use wire::ipv4;

use crate::InterfaceId;
use crate::buffers::BufferFamily;
use crate::icmp::IcmpKind;
use crate::reassembly::{DatagramKey, Fragment, Outcome};
use crate::stack::{Stack, Timer};
use crate::tcp_sockets::Split;

/// IP options that name a route: loose and strict source routing (RFC 791 §3.1).
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

/// An IPv4 packet that passed the header's checks.
pub(crate) struct Packet<'a> {
    pub(crate) header: ipv4::Header,
    /// The payload; of a datagram that came in fragments, all of it.
    pub(crate) payload: &'a [u8],
    /// The packet as an ICMP error would quote it; empty if it came in fragments.
    pub(crate) quote: &'a [u8],
    pub(crate) checksum: ChecksumIn,
    pub(crate) segment_size: u16,
    /// The interface it came in by.
    pub(crate) interface: InterfaceId,
    /// When the device received it.
    pub(crate) arrival: Instant,
    /// To all or to a group, by its address or its frame.
    pub(crate) to_group: bool,
}

impl Packet<'_> {
    pub(crate) fn source(&self) -> IpAddr {
        IpAddr::V4(self.header.source)
    }

    pub(crate) fn destination(&self) -> IpAddr {
        IpAddr::V4(self.header.destination)
    }

    /// The type of service octet.
    pub(crate) fn tos(&self) -> u8 {
        self.header.dscp << 2 | self.header.ecn.bits()
    }
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    MartianSource,
    OwnSource,
    NotOurs,
    Multicast,
    UnicastInGroupFrame,
    SourceRoute,
    /// The options cannot be walked through from this byte of the header on.
    MalformedOptions(u8),
}

impl<B: BufferFamily> Stack<B> {
    /// Takes a frame in that has just been received.
    pub fn handle_frame(&mut self, now: Instant, interface: InterfaceId, frame: &RxFrame<'_>) {
        self.handle_frame_at(now, now, interface, frame);
    }

    /// Takes a frame in that the device received at `arrival`, and that is processed only now: round trips, delivery rates
    /// and RACK (RFC 8985 §6.2) go by its arrival. A caller that polls its device stamps all of a batch when it polls.
    pub fn handle_frame_at(
        &mut self,
        now: Instant,
        arrival: Instant,
        interface: InterfaceId,
        frame: &RxFrame<'_>,
    ) {
        self.stats.frames_in += 1;
        self.stats.bytes_in += frame.bytes.len() as u64;
        let Some(link) =
            self.interfaces.get(interface.index()).filter(|_| interface != InterfaceId::LOOPBACK)
        else {
            self.stats.drop_no_interface += 1;
            return;
        };
        if link.capabilities.medium == Medium::Ip {
            if !self.continue_run(now, arrival, interface, Split::of(frame, 0)) {
                self.handle_ip(now, arrival, interface, frame, false);
            }
            return;
        }
        let Ok((header, payload)) = ethernet::Header::parse(frame.bytes) else {
            self.stats.drop_ethernet_short += 1;
            return;
        };
        let to_group = !header.destination.is_unicast();
        if !to_group && header.destination != link.capabilities.hardware_address {
            self.stats.drop_other_host += 1;
            return;
        }
        match header.ethertype {
            EtherType::IPV4 | EtherType::IPV6 => {
                let packet = RxFrame { bytes: payload, ..*frame };
                if !to_group && self.continue_run(now, arrival, interface, Split::of(&packet, 0)) {
                    return;
                }
                self.handle_ip(now, arrival, interface, &packet, to_group);
            }
            EtherType::ARP => self.handle_arp(now, interface, payload),
            // A filter of `device::tap` drops what has no arm here before it is read.
            _ => self.stats.drop_ether_type += 1,
        }
    }

    /// Takes a frame of a link without link headers in if it continues the run in progress; else `false`, and nothing has changed
    /// but that there is no run any more.
    pub(crate) fn take_apart(
        &mut self,
        now: Instant,
        arrival: Instant,
        interface: InterfaceId,
        frame: Split<'_>,
    ) -> bool {
        let taken = self.link_header_len(interface) == Some(0)
            && self.continue_run(now, arrival, interface, Some(frame));
        if taken {
            self.stats.frames_in += 1;
            self.stats.bytes_in += frame.frame_len() as u64;
        }
        taken
    }

    /// Whether this link header, as long as those of the interface, brings an IPv4 packet to this host alone.
    pub(crate) fn link_header_fits(&self, interface: InterfaceId, link: &[u8]) -> bool {
        let Some(capabilities) = self.interfaces.get(interface.index()).map(|link| &link.capabilities) else {
            return false;
        };
        capabilities.medium == Medium::Ip
            || ethernet::Header::parse(link).is_ok_and(|(header, _)| {
                header.destination.is_unicast()
                    && header.destination == capabilities.hardware_address
                    && header.ethertype == EtherType::IPV4
            })
    }

    /// The length of the headers in front of an IP packet that comes in there.
    pub(crate) fn link_header_len(&self, interface: InterfaceId) -> Option<usize> {
        let link = self.interfaces.get(interface.index()).filter(|_| interface != InterfaceId::LOOPBACK)?;
        Some(link.capabilities.medium.header_len())
    }

    /// Takes an IP packet in; `in_group_frame`: it came to all or to a group by its link header.
    pub(crate) fn handle_ip(
        &mut self,
        now: Instant,
        arrival: Instant,
        interface: InterfaceId,
        frame: &RxFrame<'_>,
        in_group_frame: bool,
    ) {
        if frame.bytes.first().is_some_and(|first| first >> 4 == 6) {
            self.stats.drop_ipv6 += 1;
            return;
        }
        let ipv4::Packet { header, options, payload } = match ipv4::Packet::parse(frame.bytes) {
            Ok(packet) => packet,
            Err(wire::Malformed::Checksum) => {
                self.stats.drop_ip_checksum += 1;
                return;
            }
            Err(_) => {
                self.stats.drop_ip_header += 1;
                return;
            }
        };
        let addresses = (interface, header.source, header.destination);
        let plain = options.is_empty() && !in_group_frame;
        let passes = plain && self.passed == Some(addresses);
        if !passes && let Err(refusal) = self.judge(interface, &header, options, in_group_frame) {
            self.count_refusal(refusal);
            if let Refusal::MalformedOptions(pointer) = refusal {
                let quote = frame.bytes.get(..usize::from(header.total_len)).unwrap_or(frame.bytes);
                self.send_icmp_error_quoting(now, quote, IcmpKind::ParameterProblem(pointer));
            }
            return;
        }
        let to_group = !passes && (in_group_frame || self.is_group(header.destination));
        if plain && !to_group {
            self.passed = Some(addresses);
        }
        let packet = Packet {
            header,
            payload,
            // Without the link's padding; parsing has seen that the whole is there.
            quote: frame.bytes.get(..usize::from(header.total_len)).unwrap_or(frame.bytes),
            checksum: frame.checksum,
            segment_size: frame.segment_size,
            interface,
            arrival,
            to_group,
        };
        if header.more_fragments || header.fragment_offset != 0 {
            self.handle_fragment(now, &packet);
        } else {
            self.handle_payload(now, &packet);
        }
    }

    /// The checks of RFC 1122 §3.2.1.3 and §3.3.6, in order.
    fn judge(
        &self,
        interface: InterfaceId,
        header: &ipv4::Header,
        options: &[u8],
        in_group_frame: bool,
    ) -> Result<(), Refusal> {
        let (source, destination) = (header.source, header.destination);
        let loopback = interface == InterfaceId::LOOPBACK;
        let class_e = source.octets()[0] >= 240;
        if source.is_multicast() || class_e || source.octets()[0] == 0 || self.is_broadcast(source) {
            return Err(Refusal::MartianSource);
        }
        if !loopback && (source.is_loopback() || destination.is_loopback()) {
            return Err(Refusal::MartianSource);
        }
        if !loopback && self.is_local(IpAddr::V4(source)) {
            return Err(Refusal::OwnSource);
        }
        if destination.is_multicast() {
            return Err(Refusal::Multicast);
        }
        let to_all = self.is_broadcast(destination);
        if !to_all && !self.is_local(IpAddr::V4(destination)) {
            return Err(Refusal::NotOurs);
        }
        if !to_all && in_group_frame {
            return Err(Refusal::UnicastInGroupFrame);
        }
        examine_options(options)
    }

    fn count_refusal(&mut self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::MartianSource => &mut self.stats.drop_martian_source,
            Refusal::OwnSource => &mut self.stats.drop_own_source,
            Refusal::NotOurs => &mut self.stats.drop_not_ours,
            Refusal::Multicast => &mut self.stats.drop_multicast,
            Refusal::UnicastInGroupFrame => &mut self.stats.drop_unicast_in_group_frame,
            Refusal::SourceRoute => &mut self.stats.drop_source_route,
            Refusal::MalformedOptions(_) => &mut self.stats.drop_ip_header,
        };
        *counter += 1;
    }

    fn is_group(&self, address: Ipv4Addr) -> bool {
        address.is_multicast() || self.is_broadcast(address)
    }

    fn handle_payload(&mut self, now: Instant, packet: &Packet<'_>) {
        match packet.header.protocol {
            Protocol::TCP => self.handle_tcp(now, packet),
            Protocol::UDP => self.handle_udp(now, packet),
            Protocol::ICMP => self.handle_icmp(now, packet),
            _ => {
                self.stats.drop_ip_protocol += 1;
                self.send_icmp_error(now, packet, IcmpKind::ProtocolUnreachable);
            }
        }
    }

    fn handle_fragment(&mut self, now: Instant, packet: &Packet<'_>) {
        self.stats.fragments_in += 1;
        let header = &packet.header;
        let fragment = Fragment {
            key: DatagramKey {
                source: header.source,
                destination: header.destination,
                protocol: header.protocol.0,
                identification: header.ident,
            },
            offset: usize::from(header.fragment_offset),
            more: header.more_fragments,
            payload: packet.payload,
            packet: packet.quote,
        };
        let outcome = self.reassembler.handle_fragment(now, &fragment);
        self.stats.drop_fragment_limit += self.reassembler.take_evicted();
        match outcome {
            Outcome::Stored => {}
            Outcome::Duplicate => self.stats.fragment_duplicates += 1,
            Outcome::Overlap => self.stats.drop_fragment_overlap += 1,
            Outcome::Malformed => self.stats.drop_fragment_malformed += 1,
            Outcome::OverLimit => self.stats.drop_fragment_limit += 1,
            Outcome::Complete(payload) => {
                self.stats.reassembled += 1;
                // A fragment's checksum was not the device's to verify.
                let whole = Packet {
                    payload: &payload,
                    quote: &[],
                    checksum: ChecksumIn::Unknown,
                    segment_size: 0,
                    ..*packet
                };
                self.handle_payload(now, &whole);
            }
        }
        self.arm_reassembly();
    }

    fn arm_reassembly(&mut self) {
        if self.reassembly_timer.is_none()
            && let Some(deadline) = self.reassembler.deadline()
        {
            self.reassembly_timer = Some(self.wheel.arm(deadline, Timer::Reassembly));
        }
    }

    /// Datagrams whose fragments did not all come in time.
    pub(crate) fn on_reassembly_timer(&mut self, now: Instant) {
        self.reassembly_timer = None;
        self.path_mtus.expire(now);
        while let Some(timed_out) = self.reassembler.poll_timed_out(now) {
            self.stats.drop_fragment_timeout += 1;
            // RFC 792: if fragment zero is not there, no time exceeded need be sent.
            if let Some(quote) = timed_out.quote {
                self.send_icmp_error_quoting(now, &quote, IcmpKind::ReassemblyTimeExceeded);
            }
        }
        self.arm_reassembly();
    }
}

/// Options that ask for a route are refused (RFC 1122 §3.2.1.8 (c) lets a host do that; everybody does), and those that
/// make no sense are told to the sender (§3.2.2.5). All others are skipped.
fn examine_options(options: &[u8]) -> Result<(), Refusal> {
    let mut rest = options;
    while let Some((&kind, tail)) = rest.split_first() {
        match kind {
            0 => return Ok(()),
            1 => rest = tail,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err(Refusal::SourceRoute),
            _ => match tail.first().map(|&length| usize::from(length)) {
                Some(length) if length >= 2 && length <= rest.len() => rest = &rest[length..],
                _ => {
                    let at = ipv4::HEADER_LEN + options.len() - rest.len();
                    return Err(Refusal::MalformedOptions(at as u8));
                }
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_routes_are_seen_behind_other_options_and_nothing_loops() {
        let source_route = Err(Refusal::SourceRoute);
        assert_eq!(examine_options(&[1, 1, 7, 3, 4, LOOSE_SOURCE_ROUTE, 3, 4]), source_route);
        assert_eq!(examine_options(&[STRICT_SOURCE_ROUTE]), source_route);
        assert_eq!(examine_options(&[0, LOOSE_SOURCE_ROUTE, 3, 4]), Ok(()));
        assert_eq!(examine_options(&[7, 0, LOOSE_SOURCE_ROUTE, 3]), Err(Refusal::MalformedOptions(20)));
        assert_eq!(examine_options(&[1, 7, 1, 1]), Err(Refusal::MalformedOptions(21)));
        assert_eq!(examine_options(&[7, 200, 1]), Err(Refusal::MalformedOptions(20)));
        assert_eq!(examine_options(&[7, 3, 4, 7]), Err(Refusal::MalformedOptions(23)));
    }
}
