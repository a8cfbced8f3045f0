//! Ethernet and ARP (RFC 826, RFC 1122 §2.3, RFC 5227).

use std::net::Ipv4Addr;

use anyhow::Result;
use wire::arp::{Operation, PACKET_LEN, Packet};
use wire::ethernet::{EtherType, EthernetAddress};
use wire::ip::Protocol;

use crate::packet::{Ip, frame, ping};
use crate::script::Script;
use crate::subject::{HOST, PEER, PEER_MAC};

const STRANGER_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

fn request() -> Packet {
    Packet {
        operation: Operation::Request,
        sender_hardware: PEER_MAC,
        sender_protocol: PEER,
        target_hardware: EthernetAddress::UNSPECIFIED,
        target_protocol: HOST,
    }
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0; PACKET_LEN];
    packet.emit(&mut bytes);
    bytes
}

/// Requests of all kinds, and what is no request.
pub(crate) fn arp(s: &mut Script<'_>) -> Result<()> {
    s.shows_arp = true;
    let all = EthernetAddress::BROADCAST;
    let own = s.subject_mac;
    let packets = [
        ("a request", all, request()),
        ("a request to its hardware address", own, request()),
        ("a request in a frame to somebody else", STRANGER_MAC, request()),
        ("for another host", all, Packet { target_protocol: STRANGER, ..request() }),
        (
            "for the broadcast address",
            all,
            Packet { target_protocol: Ipv4Addr::new(10, 77, 0, 255), ..request() },
        ),
        ("from another network", all, Packet { sender_protocol: Ipv4Addr::new(192, 0, 2, 7), ..request() }),
        ("a probe", all, Packet { sender_protocol: Ipv4Addr::UNSPECIFIED, ..request() }),
        (
            "gratuitous of another host",
            all,
            Packet {
                sender_protocol: STRANGER,
                target_protocol: STRANGER,
                sender_hardware: STRANGER_MAC,
                ..request()
            },
        ),
        (
            "a reply that nobody asked for",
            own,
            Packet {
                operation: Operation::Reply,
                sender_protocol: STRANGER,
                sender_hardware: STRANGER_MAC,
                target_hardware: own,
                ..request()
            },
        ),
        (
            "from a group's hardware address",
            all,
            Packet { sender_hardware: EthernetAddress([1, 0, 94, 0, 0, 1]), ..request() },
        ),
        ("from a group's address", all, Packet { sender_protocol: Ipv4Addr::new(224, 0, 0, 1), ..request() }),
        ("from the broadcast address", all, Packet { sender_protocol: Ipv4Addr::BROADCAST, ..request() }),
        ("from loopback", all, Packet { sender_protocol: Ipv4Addr::LOCALHOST, ..request() }),
        ("for loopback", all, Packet { target_protocol: Ipv4Addr::LOCALHOST, ..request() }),
    ];
    for (what, to, packet) in &packets {
        s.say(format!("{what}:"));
        s.put_frame(&frame(*to, PEER_MAC, EtherType::ARP, &bytes_of(packet)))?;
        s.settle_all()?;
    }
    Ok(())
}

/// What is not ARP for IPv4 over Ethernet.
pub(crate) fn malformed_arp(s: &mut Script<'_>) -> Result<()> {
    s.shows_arp = true;
    let all = EthernetAddress::BROADCAST;
    let good = bytes_of(&request());
    let wrong = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let malformed = [
        ("cut", good[..27].to_vec()),
        ("empty", Vec::new()),
        ("hardware type 6", wrong(1, 6)),
        ("protocol type 0x0806", wrong(3, 6)),
        ("hardware length 5", wrong(4, 5)),
        ("protocol length 16", wrong(5, 16)),
        ("operation 0", wrong(7, 0)),
        ("operation 3", wrong(7, 3)),
        ("operation 0x0101", wrong(6, 1)),
        ("padded", [&good[..], &[0; 18]].concat()),
    ];
    for (what, bytes) in &malformed {
        s.say(format!("{what}:"));
        s.put_frame(&frame(all, PEER_MAC, EtherType::ARP, bytes))?;
        s.settle_all()?;
    }
    Ok(())
}

/// What frames carry beside IPv4, and how.
pub(crate) fn frames(s: &mut Script<'_>) -> Result<()> {
    let packet = Ip::new(Protocol::ICMP.0, ping(8, 8, b"x")).emit();
    let own = s.subject_mac;
    let tagged = |tag: [u8; 4]| {
        let mut bytes = frame(own, PEER_MAC, EtherType::IPV4, &packet);
        bytes.splice(12..12, tag);
        bytes
    };
    let frames = [
        ("padded to 60", {
            let mut bytes = frame(own, PEER_MAC, EtherType::IPV4, &packet);
            bytes.resize(60, 0xaa);
            bytes
        }),
        ("padded to 1514", {
            let mut bytes = frame(own, PEER_MAC, EtherType::IPV4, &packet);
            bytes.resize(1514, 0xaa);
            bytes
        }),
        ("an unknown type", frame(own, PEER_MAC, EtherType(0x88b5), &packet)),
        ("an 802.3 length", frame(own, PEER_MAC, EtherType(packet.len() as u16), &packet)),
        ("a VLAN tag", tagged([0x81, 0, 0, 5])),
        ("a provider's tag", tagged([0x88, 0xa8, 0, 5])),
        ("IPv6", frame(own, PEER_MAC, EtherType::IPV6, &[0x60; 60])),
        ("ARP's type around IPv4", frame(own, PEER_MAC, EtherType::ARP, &packet)),
        ("nothing behind the header", frame(own, PEER_MAC, EtherType::IPV4, &[])),
        ("half a header", frame(own, PEER_MAC, EtherType::IPV4, &packet[..10])),
        ("from a group", frame(own, EthernetAddress([1, 0, 94, 0, 0, 1]), EtherType::IPV4, &packet)),
    ];
    for (what, bytes) in &frames {
        s.say(format!("{what}:"));
        s.put_frame(bytes)?;
        s.settle_all()?;
    }
    Ok(())
}
