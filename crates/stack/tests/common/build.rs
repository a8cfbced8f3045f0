//! Packets made by hand.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::SeqNumber;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetAddress};
use wire::ip::{Ecn, Protocol};
use wire::tcp::Flags;

use super::mac;

pub fn v4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => panic!("{address} is not IPv4"),
    }
}

/// A frame with this IP packet from host to host.
pub fn ethernet(from: usize, to: usize, packet: &[u8]) -> Vec<u8> {
    frame(mac(from), mac(to), EtherType::IPV4, packet)
}

pub fn frame(
    source: EthernetAddress,
    destination: EthernetAddress,
    ethertype: EtherType,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    wire::ethernet::Header { destination, source, ethertype }.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// The header of a whole packet.
pub fn header(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    payload_len: usize,
) -> wire::ipv4::Header {
    wire::ipv4::Header {
        dscp: 0,
        ecn: Ecn::from_bits(0),
        total_len: (20 + payload_len) as u16,
        ident: 7,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol,
        source: v4(source),
        destination: v4(destination),
    }
}

pub fn packet(header: &wire::ipv4::Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

pub fn ip(source: IpAddr, destination: IpAddr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    packet(&header(source, destination, protocol, payload.len()), payload)
}

pub fn udp_datagram(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let header =
        wire::udp::Header { src_port: source.port(), dst_port: destination.port(), len, checksum: 0 };
    let mut bytes = vec![0; 8];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    let sum = Sum::pseudo_header(source.ip(), destination.ip(), Protocol::UDP, u32::from(len)).add(&bytes);
    bytes[6..8].copy_from_slice(&wire::udp::transmitted(sum.finish()).to_be_bytes());
    bytes
}

pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let datagram = udp_datagram(source, destination, payload);
    ip(source.ip(), destination.ip(), Protocol::UDP, &datagram)
}

pub fn tcp(
    source: SocketAddr,
    destination: SocketAddr,
    flags: Flags,
    seq: u32,
    ack: u32,
    payload: &[u8],
) -> Vec<u8> {
    let header = wire::tcp::Header {
        src_port: source.port(),
        dst_port: destination.port(),
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window: 10_000,
        ..Default::default()
    };
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    let length = bytes.len() as u32;
    let sum = Sum::pseudo_header(source.ip(), destination.ip(), Protocol::TCP, length).add(&bytes);
    bytes[16..18].copy_from_slice(&sum.finish().to_be_bytes());
    ip(source.ip(), destination.ip(), Protocol::TCP, &bytes)
}

pub fn icmp(source: IpAddr, destination: IpAddr, message: wire::icmpv4::Message, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    message.emit(&mut bytes, data);
    bytes.extend_from_slice(data);
    ip(source, destination, Protocol::ICMP, &bytes)
}

pub fn arp(
    operation: wire::arp::Operation,
    sender: (EthernetAddress, IpAddr),
    target: (EthernetAddress, IpAddr),
    to: EthernetAddress,
) -> Vec<u8> {
    let packet = wire::arp::Packet {
        operation,
        sender_hardware: sender.0,
        sender_protocol: v4(sender.1),
        target_hardware: target.0,
        target_protocol: v4(target.1),
    };
    let mut bytes = vec![0; 28];
    packet.emit(&mut bytes);
    frame(sender.0, to, EtherType::ARP, &bytes)
}

/// Cuts an IP packet's payload into fragments of at most `size` bytes (a multiple of eight).
pub fn fragments(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    ident: u16,
    payload: &[u8],
    size: usize,
) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(size);
    let piece = |(number, bytes): (usize, &[u8])| {
        let header = wire::ipv4::Header {
            ident,
            more_fragments: number + 1 < count,
            fragment_offset: (number * size) as u16,
            ..header(source, destination, protocol, bytes.len())
        };
        packet(&header, bytes)
    };
    payload.chunks(size).enumerate().map(piece).collect()
}

/// What an Ethernet frame carries: its IP header and payload, if it is IPv4.
pub fn open(frame: &[u8]) -> Option<(wire::ipv4::Header, Vec<u8>)> {
    let (ethernet, packet) = wire::ethernet::Header::parse(frame).ok()?;
    if ethernet.ethertype != EtherType::IPV4 {
        return None;
    }
    let packet = wire::ipv4::Packet::parse(packet).expect("what we send is well formed");
    Some((packet.header, packet.payload.to_vec()))
}

/// The ICMP messages among the frames from one host.
pub fn icmp_messages(log: &[(usize, Vec<u8>)], host: usize) -> Vec<(wire::icmpv4::Message, Vec<u8>)> {
    log.iter()
        .filter(|(from, _)| *from == host)
        .filter_map(|(_, frame)| open(frame))
        .filter(|(header, _)| header.protocol == Protocol::ICMP)
        .map(|(_, payload)| {
            let (message, data) = wire::icmpv4::Message::parse(&payload).expect("checksums are right");
            (message, data.to_vec())
        })
        .collect()
}

/// The TCP segments among the frames from one host.
pub fn tcp_segments(log: &[(usize, Vec<u8>)], host: usize) -> Vec<wire::tcp::Header> {
    log.iter()
        .filter(|(from, _)| *from == host)
        .filter_map(|(_, frame)| open(frame))
        .filter(|(header, _)| header.protocol == Protocol::TCP)
        .filter_map(|(_, payload)| wire::tcp::Header::parse(&payload).ok().map(|(header, _)| header))
        .collect()
}
