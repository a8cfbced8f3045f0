//! IPv4, ICMP and UDP: what is answered, with what, and what never is (RFC 1122 §3.2).

use std::net::Ipv4Addr;

use anyhow::Result;
use rustix::net::SocketType;
use wire::ethernet::{EtherType, EthernetAddress};
use wire::icmpv4::{Message, unreachable};
use wire::ip::Protocol;

use crate::packet::{Ip, datagram, frame, icmp, ping, seg};
use crate::script::Script;
use crate::subject::PEER_MAC;

const ICMP: u8 = Protocol::ICMP.0;
const UDP: u8 = Protocol::UDP.0;
const TCP: u8 = Protocol::TCP.0;
const MORE: u16 = 0x2000;
/// From, to, and whether more follows.
type Part = (usize, usize, bool);
/// A port that nobody has.
const NOBODY: u16 = 9;

fn shown(s: &mut Script<'_>, what: &str, packet: &Ip) -> Result<()> {
    s.say(format!("{what}:"));
    s.put_ip(packet)?;
    s.settle_all()
}

/// Headers that are right and wrong, around an echo request.
pub(crate) fn headers(s: &mut Script<'_>) -> Result<()> {
    let good = Ip::new(ICMP, ping(1, 1, b"abcdefgh"));
    let with = |change: &dyn Fn(&mut Ip)| {
        let mut packet = good.clone();
        change(&mut packet);
        packet
    };
    let packets = [
        ("good", good.clone()),
        ("a wrong checksum", with(&|ip| ip.bad_checksum = true)),
        ("version 5", with(&|ip| ip.first_byte = Some(0x55))),
        ("version 6 in an IPv4 frame", with(&|ip| ip.first_byte = Some(0x65))),
        ("version 0", with(&|ip| ip.first_byte = Some(0x05))),
        ("a header of 4 words", with(&|ip| ip.first_byte = Some(0x44))),
        ("a header longer than the packet", with(&|ip| ip.first_byte = Some(0x4f))),
        ("a total length beyond the frame", with(&|ip| ip.total_len = Some(200))),
        ("a total length below the header", with(&|ip| ip.total_len = Some(19))),
        ("a total length of the header alone", with(&|ip| ip.total_len = Some(20))),
        ("a total length that cuts the payload", with(&|ip| ip.total_len = Some(30))),
        ("TTL 0", with(&|ip| ip.ttl = 0)),
        ("TTL 1", with(&|ip| ip.ttl = 1)),
        ("DF", with(&|ip| ip.fragment = 0x4000)),
        ("the reserved flag", with(&|ip| ip.fragment = 0x8000)),
        ("type of service", with(&|ip| ip.tos = 0xb8)),
        ("protocol 253", with(&|ip| ip.protocol = 253)),
        ("protocol 255", with(&|ip| ip.protocol = 255)),
        ("protocol 0", with(&|ip| ip.protocol = 0)),
        ("NOPs as options", with(&|ip| ip.options = vec![1, 1, 1, 1])),
        ("router alert", with(&|ip| ip.options = vec![148, 4, 0, 0])),
        ("record route", with(&|ip| ip.options = vec![7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        ("timestamp option", with(&|ip| ip.options = vec![68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        ("loose source route, used up", with(&|ip| ip.options = vec![131, 7, 8, 10, 77, 0, 9, 0])),
        ("loose source route", with(&|ip| ip.options = vec![131, 7, 4, 10, 77, 0, 9, 0])),
        ("strict source route", with(&|ip| ip.options = vec![137, 7, 4, 10, 77, 0, 9, 0])),
        ("an option of length 0", with(&|ip| ip.options = vec![7, 0, 4, 0])),
        ("an option of length 1", with(&|ip| ip.options = vec![7, 1, 4, 0])),
        ("an option beyond the header", with(&|ip| ip.options = vec![7, 40, 4, 0])),
        ("an unknown option", with(&|ip| ip.options = vec![99, 4, 0, 0])),
        ("the end of options first", with(&|ip| ip.options = vec![0, 99, 99, 99])),
    ];
    for (what, packet) in &packets {
        shown(s, what, packet)?;
    }
    Ok(())
}

/// Sources and destinations that must not be believed or answered.
pub(crate) fn addresses(s: &mut Script<'_>) -> Result<()> {
    let sources = [
        ("of another network", Ipv4Addr::new(192, 0, 2, 1)),
        ("broadcast", Ipv4Addr::BROADCAST),
        ("the network's broadcast", Ipv4Addr::new(10, 77, 0, 255)),
        ("the network itself", Ipv4Addr::new(10, 77, 0, 0)),
        ("multicast", Ipv4Addr::new(224, 0, 0, 1)),
        ("loopback", Ipv4Addr::LOCALHOST),
        ("unspecified", Ipv4Addr::UNSPECIFIED),
        ("class E", Ipv4Addr::new(240, 0, 0, 1)),
        ("its own", crate::subject::HOST),
    ];
    let destinations = [
        ("broadcast", Ipv4Addr::BROADCAST),
        ("the network's broadcast", Ipv4Addr::new(10, 77, 0, 255)),
        ("all hosts", Ipv4Addr::new(224, 0, 0, 1)),
        ("another group", Ipv4Addr::new(239, 1, 2, 3)),
        ("loopback", Ipv4Addr::LOCALHOST),
        ("another host", Ipv4Addr::new(10, 77, 0, 77)),
        ("unspecified", Ipv4Addr::UNSPECIFIED),
    ];
    let syn = || seg("S").mss(1460).emit((30_000, NOBODY), 100, 0, 0);
    let kinds: [(&str, u8, Vec<u8>); 4] = [
        ("echo", ICMP, ping(2, 2, b"abc")),
        ("UDP to a closed port", UDP, datagram((30_000, NOBODY), b"abc")),
        ("TCP to a closed port", TCP, syn()),
        ("an unknown protocol", 253, b"abcd".to_vec()),
    ];
    for (kind, protocol, payload) in &kinds {
        for (what, source) in &sources {
            let mut packet = Ip::new(*protocol, payload.clone());
            packet.source = *source;
            fix_checksum(&mut packet);
            shown(s, &format!("{kind} from {what}"), &packet)?;
        }
        for (what, destination) in &destinations {
            let mut packet = Ip::new(*protocol, payload.clone());
            packet.destination = *destination;
            fix_checksum(&mut packet);
            shown(s, &format!("{kind} to {what}"), &packet)?;
            s.say(format!("{kind} to {what}, in a broadcast frame:"));
            let bytes = frame(EthernetAddress::BROADCAST, PEER_MAC, EtherType::IPV4, &packet.emit());
            s.put_frame(&bytes)?;
            s.settle_all()?;
        }
        s.say(format!("{kind}, to its address in a broadcast frame:"));
        let packet = Ip::new(*protocol, payload.clone()).emit();
        s.put_frame(&frame(EthernetAddress::BROADCAST, PEER_MAC, EtherType::IPV4, &packet))?;
        s.settle_all()?;
        s.say(format!("{kind}, in a frame to somebody else:"));
        s.put_frame(&frame(EthernetAddress([2, 0, 0, 0, 9, 9]), PEER_MAC, EtherType::IPV4, &packet))?;
        s.settle_all()?;
    }
    Ok(())
}

/// The pseudo-header of TCP and UDP has the addresses in it.
fn fix_checksum(packet: &mut Ip) {
    use wire::checksum::Sum;
    let at = match packet.protocol {
        TCP => wire::tcp::CHECKSUM_OFFSET,
        UDP => wire::udp::CHECKSUM_OFFSET,
        _ => return,
    };
    packet.payload[at..at + 2].fill(0);
    let (source, destination) = (packet.source.into(), packet.destination.into());
    let length = packet.payload.len() as u32;
    let sum = Sum::pseudo_header(source, destination, Protocol(packet.protocol), length);
    let checksum = sum.add(&packet.payload).finish();
    packet.payload[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Fragments: orders, overlaps, sizes, lies (RFC 791 §3.2).
pub(crate) fn fragments(s: &mut Script<'_>) -> Result<()> {
    let whole = ping(3, 3, &[b'z'; 92]); // 100 bytes with the header
    let mut ident = 100;
    let part = |from: usize, to: usize, more: bool, id: u16| {
        let mut packet = Ip::new(ICMP, whole[from..to].to_vec());
        packet.fragment = (from / 8) as u16 | if more { MORE } else { 0 };
        packet.ident = id;
        packet
    };
    let cases: Vec<(&str, Vec<Part>)> = vec![
        ("in order", vec![(0, 48, true), (48, 100, false)]),
        ("out of order", vec![(48, 100, false), (0, 48, true)]),
        ("three, the middle last", vec![(0, 32, true), (64, 100, false), (32, 64, true)]),
        ("of eight bytes", (0..13).map(|i| (i * 8, ((i + 1) * 8).min(100), i < 12)).collect()),
        ("one twice", vec![(0, 48, true), (0, 48, true), (48, 100, false)]),
        ("the last twice", vec![(48, 100, false), (48, 100, false), (0, 48, true)]),
        ("overlapping", vec![(0, 56, true), (48, 100, false)]),
        ("one inside another", vec![(0, 64, true), (16, 32, true), (64, 100, false)]),
        ("not a multiple of eight", vec![(0, 44, true), (48, 100, false)]),
        ("two ends", vec![(48, 100, false), (48, 96, false), (0, 48, true)]),
        ("data beyond the end", vec![(0, 48, true), (48, 80, false), (80, 96, true)]),
        ("empty with more", vec![(0, 0, true), (0, 48, true), (48, 100, false)]),
        ("the first missing", vec![(48, 100, false)]),
    ];
    for (what, parts) in cases {
        ident += 1;
        s.say(format!("{what}:"));
        for (from, to, more) in parts {
            let packet = part(from, to, more, ident);
            s.put_ip(&packet)?;
        }
        s.settle_all()?;
    }
    s.say("beyond 65535:");
    let mut packet = Ip::new(ICMP, vec![0; 1400]);
    packet.fragment = 0x1fff;
    s.put_ip(&packet)?;
    s.settle_all()?;
    s.say("of different identifications:");
    s.put_ip(&part(0, 48, true, 900))?;
    s.put_ip(&part(48, 100, false, 901))?;
    s.settle_all()?;
    s.say("of different protocols:");
    s.put_ip(&part(0, 48, true, 910))?;
    let mut other = part(48, 100, false, 910);
    other.protocol = UDP;
    s.put_ip(&other)?;
    s.settle_all()?;
    s.say("of different sources:");
    s.put_ip(&part(0, 48, true, 920))?;
    let mut other = part(48, 100, false, 920);
    other.source = Ipv4Addr::new(10, 77, 0, 3);
    s.put_ip(&other)?;
    s.settle_all()?;
    s.say("a large one comes back in fragments:");
    let large = ping(4, 4, &[b'q'; 4000]);
    for (index, piece) in large.chunks(1480).enumerate() {
        let mut packet = Ip::new(ICMP, piece.to_vec());
        packet.fragment = (index * 1480 / 8) as u16 | if piece.len() == 1480 { MORE } else { 0 };
        packet.ident = 930;
        s.put_ip(&packet)?;
    }
    s.settle_all()
}

/// Messages that are to be answered, believed or dropped.
pub(crate) fn messages(s: &mut Script<'_>) -> Result<()> {
    let mut bad = ping(5, 5, b"abc");
    bad[3] ^= 1;
    shown(s, "echo with a wrong checksum", &Ip::new(ICMP, bad))?;
    shown(s, "echo of no data", &Ip::new(ICMP, ping(5, 5, b"")))?;
    shown(s, "echo of a full packet", &Ip::new(ICMP, ping(5, 5, &[7; 1472])))?;
    shown(s, "echo that is cut", &Ip::new(ICMP, ping(5, 5, b"")[..6].to_vec()))?;
    shown(s, "echo reply", &Ip::new(ICMP, icmp(Message::EchoReply { identifier: 5, sequence: 5 }, b"abc")))?;
    for kind in [1, 2, 4, 5, 6, 9, 10, 13, 15, 17, 19, 40, 200, 255] {
        let message = Message::Other { kind, code: 0, rest: [0; 4] };
        shown(s, &format!("type {kind}"), &Ip::new(ICMP, icmp(message, &[0; 28])))?;
    }
    let mut echo = ping(5, 5, b"abc");
    echo[1] = 7;
    let sum = wire::checksum::Sum::of(&echo[4..]).add_u16(0x0807).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    shown(s, "echo of code 7", &Ip::new(ICMP, echo))?;
    shown(s, "UDP to a closed port", &Ip::new(UDP, datagram((30_000, NOBODY), &[1; 100])))?;
    shown(s, "much UDP to a closed port", &Ip::new(UDP, datagram((30_000, NOBODY), &[1; 1400])))?;
    let mut options = Ip::new(UDP, datagram((30_000, NOBODY), b"x"));
    options.options = vec![1, 1, 1, 1];
    shown(s, "UDP with options to a closed port", &options)?;
    let mut first = Ip::new(UDP, datagram((30_000, NOBODY), &[1; 56]));
    first.fragment = MORE;
    shown(s, "a first fragment to a closed port", &first)?;
    let quote = Ip::new(UDP, datagram((30_000, NOBODY), b"x")).emit();
    let error = icmp(Message::Unreachable { code: unreachable::PORT, next_hop_mtu: 0 }, &quote);
    shown(s, "an error about nothing of its own", &Ip::new(ICMP, error.clone()))?;
    let mut lost = Ip::new(UDP, error);
    lost.protocol = 253;
    shown(s, "an unknown protocol", &lost)?;
    Ok(())
}

/// UDP: lengths, checksums, ports, errors that come back.
pub(crate) fn udp(s: &mut Script<'_>) -> Result<()> {
    let conn = s.conn();
    let socket = s.subject.socket(SocketType::DGRAM)?;
    socket.bind(conn.port)?;
    let ports = (conn.own_port, conn.port);
    let take = |s: &mut Script<'_>| {
        let mut room = [0; 2000];
        let result = socket.recv_datagram(&mut room);
        s.say(format!("  recv {}", crate::script::outcome(&result)));
    };
    let good = datagram(ports, b"hello");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Ip::new(UDP, bytes)
    };
    let length = |value: u16| move |bytes: &mut Vec<u8>| bytes[4..6].copy_from_slice(&value.to_be_bytes());
    let packets = [
        ("good", with(&|_| {})),
        ("no checksum", with(&|bytes| bytes[6..8].fill(0))),
        ("a wrong checksum", with(&|bytes| bytes[6] ^= 0x11)),
        ("a length of 7", with(&length(7))),
        ("a length of 0", with(&length(0))),
        ("a length beyond the packet", with(&length(100))),
        (
            "a length below the packet's",
            with(&|bytes| {
                length(10)(bytes);
                bytes[6..8].fill(0);
            }),
        ),
        ("no data", Ip::new(UDP, datagram(ports, b""))),
        ("a header that is cut", with(&|bytes| bytes.truncate(6))),
        ("from port 0", Ip::new(UDP, datagram((0, conn.port), b"zero"))),
    ];
    for (what, packet) in &packets {
        shown(s, what, packet)?;
        take(s);
    }
    s.say("to port 0:");
    s.put_ip(&Ip::new(UDP, datagram((ports.0, 0), b"x")))?;
    s.settle_all()?;
    s.say("an error for a connected socket:");
    let socket = s.subject.socket(SocketType::DGRAM)?;
    socket.bind(conn.port + 1)?;
    socket.connect(conn.own_port)?;
    let sent = socket.send_datagram(b"anybody?");
    s.say(format!("  send {}", crate::script::outcome(&sent)));
    s.settle_all()?;
    let mut own = Ip::new(UDP, datagram((conn.port + 1, conn.own_port), b"anybody?"));
    (own.source, own.destination) = (own.destination, own.source);
    for code in [unreachable::PORT, unreachable::HOST, unreachable::NET, unreachable::PROTOCOL] {
        let error = icmp(Message::Unreachable { code, next_hop_mtu: 0 }, &own.emit());
        shown(s, &format!("unreachable {code}"), &Ip::new(ICMP, error))?;
        s.poll(&socket)?;
        let sent = socket.send_datagram(b"anybody?");
        s.say(format!("  send {}", crate::script::outcome(&sent)));
        s.error(&socket)?;
        s.settle_all()?;
    }
    s.say("from somebody else:");
    let mut other = Ip::new(UDP, datagram((conn.own_port + 7, conn.port + 1), b"me"));
    fix_checksum(&mut other);
    s.put_ip(&other)?;
    s.settle_all()?;
    s.poll(&socket)?;
    Ok(())
}
