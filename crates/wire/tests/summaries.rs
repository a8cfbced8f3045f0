//! The lines that logs and failing tests print.

use std::net::Ipv4Addr;

use base::SeqNumber;
use outboard_wire::ethernet::{EtherType, EthernetAddress};
use outboard_wire::frame::Medium;
use outboard_wire::ip::{Ecn, Protocol};
use outboard_wire::summary::{Summary, TcpSummary};
use outboard_wire::tcp::{Flags, Options, SackBlock, Timestamps};
use outboard_wire::{arp, ethernet, icmpv4, ipv4, tcp, udp};

fn packet(protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        dscp: 0,
        ecn: Ecn::NotEct,
        total_len: (ipv4::HEADER_LEN + payload.len()) as u16,
        ident: 7,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
    };
    let mut bytes = vec![0; ipv4::HEADER_LEN];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn line(packet: &[u8]) -> String {
    Summary::of(packet, Medium::Ip).to_string()
}

fn segment(header: &tcp::Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    packet(Protocol::TCP, &bytes)
}

#[test]
fn tcp_lines() {
    let mut header = tcp::Header {
        src_port: 80,
        dst_port: 99,
        seq: SeqNumber(1),
        flags: Flags::SYN,
        window: 65_535,
        options: Options {
            mss: Some(1460),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 5, echo: 0 }),
            window_scale: Some(7),
            ..Options::default()
        },
        ..tcp::Header::default()
    };
    assert_eq!(
        line(&segment(&header, &[])),
        "10.0.0.1:80 > 10.0.0.2:99 S 1:1(0) win 65535 <mss 1460,sackOK,TS val 5 ecr 0,wscale 7>"
    );
    header.flags = Flags::ACK | Flags::PSH;
    header.ack = SeqNumber(8);
    let block = SackBlock { start: SeqNumber(20), end: SeqNumber(30) };
    header.options = Options { sack: [block].into_iter().collect(), ..Options::default() };
    assert_eq!(
        line(&segment(&header, b"hello")),
        "10.0.0.1:80 > 10.0.0.2:99 P. 1:6(5) ack 8 win 65535 <sack 20:30>"
    );
    header.options = Options::default();
    let text = TcpSummary { header: &header, payload_len: 5 }.to_string();
    assert_eq!(text, "80 > 99 P. 1:6(5) ack 8 win 65535");
}

#[test]
fn other_lines() {
    let mut datagram = vec![0; 8];
    udp::Header { src_port: 1, dst_port: 2, len: 11, checksum: 0 }.emit(&mut datagram);
    datagram.extend_from_slice(b"abc");
    assert_eq!(line(&packet(Protocol::UDP, &datagram)), "10.0.0.1:1 > 10.0.0.2:2 udp 3");

    let mut echo = vec![0; 8];
    icmpv4::Message::EchoRequest { identifier: 3, sequence: 4 }.emit(&mut echo, b"ab");
    echo.extend_from_slice(b"ab");
    assert_eq!(
        line(&packet(Protocol::ICMP, &echo)),
        "10.0.0.1 > 10.0.0.2 icmp echo request, id 3, seq 4, 2 bytes"
    );
    let code = icmpv4::unreachable::FRAGMENTATION_NEEDED;
    icmpv4::Message::Unreachable { code, next_hop_mtu: 1400 }.emit(&mut echo, b"ab");
    assert_eq!(
        line(&packet(Protocol::ICMP, &echo)),
        "10.0.0.1 > 10.0.0.2 icmp unreachable, code 4, mtu 1400"
    );
    assert_eq!(line(&packet(Protocol(47), b"xyz")), "10.0.0.1 > 10.0.0.2 protocol 47 3");
    assert_eq!(line(b"\x45"), "1 bytes, truncated");
    assert_eq!(line(b""), "0 bytes, of an unsupported kind");

    let mut frame = vec![0; 42];
    let (destination, source) = (EthernetAddress::BROADCAST, EthernetAddress([2, 0, 0, 0, 0, 1]));
    ethernet::Header { destination, source, ethertype: EtherType::ARP }.emit(&mut frame);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_hardware: source,
        sender_protocol: Ipv4Addr::new(10, 0, 0, 1),
        target_hardware: EthernetAddress::UNSPECIFIED,
        target_protocol: Ipv4Addr::new(10, 0, 0, 2),
    }
    .emit(&mut frame[14..]);
    assert_eq!(Summary::of(&frame, Medium::Ethernet).to_string(), "arp who-has 10.0.0.2 tell 10.0.0.1");
}
