//! IPv4: what is refused, fragments in and out, ICMP in and out.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::Duration;
use common::{IF, LinkConfig, Offload, World, at, build, ip, mac};
use outboard_stack::{
    DatagramMeta, MtuDiscovery, Route, SocketError, SocketId, SocketOption, SocketOptions, StackConfig, Told,
};
use std::net::{IpAddr, SocketAddr};
use wire::ethernet::{EtherType, EthernetAddress};
use wire::icmpv4::{Message, unreachable};
use wire::ip::Protocol;

fn to(remote: SocketAddr) -> DatagramMeta {
    DatagramMeta { remote, local: "0.0.0.0:0".parse().unwrap(), ttl: 0, tos: 0, segment: 0 }
}

fn udp(world: &mut World, host: usize, port: u16) -> SocketId {
    world.stack(host).udp_bind(at(host, port), Default::default(), &SocketOptions::default()).unwrap()
}

fn received(world: &mut World, host: usize, id: SocketId) -> Option<Vec<u8>> {
    world.stack(host).datagrams(id).unwrap().receive().map(|(_, payload)| payload)
}

/// A world in which both hosts know each other, and the log is empty.
fn acquainted(seed: u64, config: StackConfig) -> World {
    let mut world = World::with_config(seed, LinkConfig::default(), config);
    world.run_for(Duration::from_secs(5));
    let question = build::arp(
        wire::arp::Operation::Request,
        (mac(0), ip(0)),
        (EthernetAddress::default(), ip(1)),
        EthernetAddress::BROADCAST,
    );
    world.inject(1, question);
    world.flush();
    world.flights.clear();
    world.log = Some(Vec::new());
    world
}

#[test]
fn what_cannot_be_is_refused_and_counted() {
    let mut world = acquainted(1, StackConfig::default());
    let socket = udp(&mut world, 1, 7);
    let mut give = |packet: Vec<u8>| world.inject(1, build::ethernet(0, 1, &packet));
    let datagram = |source: [u8; 4], destination: [u8; 4]| {
        build::udp(SocketAddr::from((source, 5)), SocketAddr::from((destination, 7)), b"x")
    };
    let us = [10, 0, 0, 2];
    for source in
        [[224, 0, 0, 1], [255, 255, 255, 255], [0, 0, 0, 0], [10, 0, 0, 255], [127, 0, 0, 1], [240, 0, 0, 1]]
    {
        give(datagram(source, us));
    }
    give(datagram(us, us));
    give(datagram([10, 0, 0, 1], [10, 0, 0, 3]));
    give(datagram([10, 0, 0, 1], [127, 0, 0, 1]));
    give(datagram([10, 0, 0, 1], [224, 0, 0, 251]));
    let mut broken = datagram([10, 0, 0, 1], us);
    broken[8] ^= 1;
    give(broken);
    give(datagram([10, 0, 0, 1], us)[..15].to_vec());
    give(vec![0x60; 60]);
    let stats = world.stack(1).stats();
    assert_eq!(stats.drop_martian_source, 7);
    assert_eq!((stats.drop_own_source, stats.drop_not_ours, stats.drop_multicast), (1, 1, 1));
    assert_eq!((stats.drop_ip_checksum, stats.drop_ip_header, stats.drop_ipv6), (1, 1, 1));
    assert_eq!(received(&mut world, 1, socket), None);
}

#[test]
fn link_headers_are_checked() {
    let mut world = acquainted(2, StackConfig::default());
    let socket = udp(&mut world, 1, 7);
    let packet = build::udp(at(0, 5), at(1, 7), b"x");
    let stranger = EthernetAddress([2, 7, 7, 7, 7, 7]);
    world.inject(1, build::frame(mac(0), stranger, EtherType::IPV4, &packet));
    world.inject(1, build::frame(mac(0), EthernetAddress::BROADCAST, EtherType::IPV4, &packet));
    world.inject(1, build::frame(mac(0), mac(1), EtherType(0x88cc), &packet));
    world.inject(1, vec![0; 13]);
    let stats = world.stack(1).stats();
    assert_eq!((stats.drop_other_host, stats.drop_unicast_in_group_frame), (1, 1));
    assert_eq!((stats.drop_ether_type, stats.drop_ethernet_short), (1, 1));
    assert_eq!(received(&mut world, 1, socket), None);
    // Padding behind the packet is not payload.
    let mut padded = build::ethernet(0, 1, &packet);
    padded.resize(60, 0xee);
    world.inject(1, padded);
    assert_eq!(received(&mut world, 1, socket).as_deref(), Some(&b"x"[..]));
}

#[test]
fn options_are_skipped_and_source_routes_refused() {
    let mut world = acquainted(3, StackConfig::default());
    let socket = udp(&mut world, 1, 7);
    let with_options = |options: [u8; 4]| {
        let datagram = build::udp_datagram(at(0, 5), at(1, 7), b"x");
        let mut bytes = build::ip(ip(0), ip(1), Protocol::UDP, &datagram);
        bytes[0] = 0x46;
        bytes.splice(20..20, options);
        let total = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[10..12].fill(0);
        let checksum = wire::checksum::Sum::of(&bytes[..24]).finish();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        build::ethernet(0, 1, &bytes)
    };
    world.inject(1, with_options([148, 4, 0, 0]));
    assert_eq!(received(&mut world, 1, socket).as_deref(), Some(&b"x"[..]));
    world.inject(1, with_options([131, 3, 4, 0]));
    assert_eq!(received(&mut world, 1, socket), None);
    assert_eq!(world.stack(1).stats().drop_source_route, 1);
}

#[test]
fn large_datagrams_cross_in_fragments() {
    for mtu in [576, 1500, 9000] {
        for offload in [Offload::None, Offload::Full] {
            let link = LinkConfig { mtu, offload, reorder: 300, duplicate: 100, ..LinkConfig::default() };
            let mut world = World::new(4, link);
            let receiver = udp(&mut world, 1, 7);
            let sender = udp(&mut world, 0, 0);
            for size in [0, 1, 540, 1472, 1473, 9000, 30_000, 65_507] {
                let payload: Vec<u8> = (0..size).map(|at| common::pattern(1, at as u64)).collect();
                assert!(world.stack(0).datagrams(sender).unwrap().send(to(at(1, 7)), &payload));
                world.stack(0).udp_send(sender).unwrap();
                world.run_for(Duration::from_millis(50));
                assert_eq!(received(&mut world, 1, receiver).as_deref(), Some(&payload[..]), "{mtu} {size}");
                while received(&mut world, 1, receiver).is_some() {}
            }
            let stats = world.stack(0).stats().clone();
            assert!(stats.fragmented > 0 && stats.fragments_out > 10);
            assert!(world.stack(1).stats().reassembled >= stats.fragmented);
        }
    }
}

#[test]
fn a_datagram_that_is_too_long_is_refused() {
    let mut world = World::new(5, LinkConfig::default());
    let sender = udp(&mut world, 0, 0);
    world.stack(0).datagrams(sender).unwrap().send(to(at(1, 7)), &[0; 65_508]);
    world.stack(0).udp_send(sender).unwrap();
    world.flush();
    assert_eq!(world.stack(0).take_error(sender), Some(SocketError::MessageTooLong));
}

#[test]
fn overlapping_fragments_end_their_datagram() {
    let mut world = acquainted(6, StackConfig::default());
    let socket = udp(&mut world, 1, 7);
    let datagram = build::udp_datagram(at(0, 5), at(1, 7), &[1; 1000]);
    let pieces = build::fragments(ip(0), ip(1), Protocol::UDP, 9, &datagram, 400);
    let shifted = wire::ipv4::Header {
        ident: 9,
        more_fragments: true,
        fragment_offset: 200,
        ..build::header(ip(0), ip(1), Protocol::UDP, 400)
    };
    world.inject(1, build::ethernet(0, 1, &pieces[0]));
    world.inject(1, build::ethernet(0, 1, &build::packet(&shifted, &[2; 400])));
    world.inject(1, build::ethernet(0, 1, &pieces[1]));
    world.inject(1, build::ethernet(0, 1, &pieces[2]));
    assert_eq!(received(&mut world, 1, socket), None);
    assert_eq!(world.stack(1).stats().drop_fragment_overlap, 1);
    // Whole, and twice, it comes once.
    for piece in pieces.iter().rev().chain(&pieces[..2]) {
        let piece: Vec<u8> = piece.clone();
        let mut bytes = build::ethernet(0, 1, &piece);
        // Another identification.
        bytes[14 + 4..14 + 6].copy_from_slice(&[0, 10]);
        bytes[24..26].fill(0);
        let checksum = wire::checksum::Sum::of(&bytes[14..34]).finish();
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
        world.inject(1, bytes);
    }
    assert_eq!(received(&mut world, 1, socket).map(|payload| payload.len()), Some(1000));
    assert_eq!(received(&mut world, 1, socket), None);
}

#[test]
fn fragments_time_out_and_the_sender_is_told() {
    let mut world = acquainted(7, StackConfig::default());
    udp(&mut world, 1, 7);
    let datagram = build::udp_datagram(at(0, 5), at(1, 7), &[1; 1000]);
    let pieces = build::fragments(ip(0), ip(1), Protocol::UDP, 9, &datagram, 400);
    world.inject(1, build::ethernet(0, 1, &pieces[0]));
    world.run_for(Duration::from_secs(1));
    let second = build::fragments(ip(0), ip(1), Protocol::UDP, 10, &datagram, 400);
    world.inject(1, build::ethernet(0, 1, &second[1]));
    world.run_for(Duration::from_secs(40));
    assert_eq!(world.stack(1).stats().drop_fragment_timeout, 2);
    let messages = build::icmp_messages(world.log.as_ref().unwrap(), 1);
    assert_eq!(messages.len(), 1, "only for the one whose first fragment came");
    assert_eq!(messages[0].0, Message::TimeExceeded { code: 1 });
    assert_eq!(messages[0].1[..20], pieces[0][..20]);
}

#[test]
fn fragment_bombs_are_bounded() {
    let mut world = acquainted(8, StackConfig::default());
    for number in 0..20_000u32 {
        let source = IpAddr::from([10, 0, 0, 10 + (number % 50) as u8]);
        let header = wire::ipv4::Header {
            ident: number as u16,
            more_fragments: true,
            fragment_offset: 800,
            ..build::header(source, ip(1), Protocol::UDP, 1400)
        };
        world.inject(1, build::ethernet(0, 1, &build::packet(&header, &[0; 1400])));
    }
    assert!(world.stack(1).stats().drop_fragment_limit > 15_000);
    assert!(world.stack(1).fragment_bytes() <= StackConfig::default().max_fragment_bytes);
    // Others are still put together.
    let socket = udp(&mut world, 1, 7);
    let datagram = build::udp_datagram(at(0, 5), at(1, 7), &[1; 1000]);
    for piece in build::fragments(ip(0), ip(1), Protocol::UDP, 9, &datagram, 400) {
        world.inject(1, build::ethernet(0, 1, &piece));
    }
    assert!(received(&mut world, 1, socket).is_some());
}

#[test]
fn echo_is_answered_with_the_same_data() {
    let mut world = acquainted(9, StackConfig::default());
    for size in [0usize, 56, 1472, 8000] {
        let data: Vec<u8> = (0..size).map(|at| common::pattern(3, at as u64)).collect();
        let request = Message::EchoRequest { identifier: 7, sequence: size as u16 };
        let packet = build::icmp(ip(0), ip(1), request, &data);
        for piece in build::fragments(ip(0), ip(1), Protocol::ICMP, 5, &packet[20..], 1480) {
            world.inject(1, build::ethernet(0, 1, &piece));
        }
        world.flush();
    }
    let replies = build::icmp_messages(
        &world
            .log
            .as_ref()
            .unwrap()
            .iter()
            .filter(|(_, frame)| frame.len() < 1515 && frame[20] & 0x3f == 0 && frame[21] == 0)
            .cloned()
            .collect::<Vec<_>>(),
        1,
    );
    let sequences: Vec<_> = replies
        .iter()
        .map(|(message, data)| match message {
            Message::EchoReply { identifier: 7, sequence } => (usize::from(*sequence), data.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sequences, [(0, 0), (56, 56), (1472, 1472)]);
    assert_eq!(world.stack(1).stats().echo_replies, 4);
    // The longest went back in fragments.
    assert_eq!(world.stack(1).stats().fragmented, 1);
    let to_all = build::icmp(
        ip(0),
        IpAddr::from([10, 0, 0, 255]),
        Message::EchoRequest { identifier: 1, sequence: 1 },
        b"",
    );
    world.inject(1, build::ethernet(0, 1, &to_all));
    assert_eq!(world.stack(1).stats().drop_echo_broadcast, 1);
}

#[test]
fn nobody_at_the_port_is_said_at_a_limited_rate() {
    let mut world = acquainted(10, StackConfig::default());
    let packet = build::udp(at(0, 5), at(1, 9), b"anybody?");
    world.inject(1, build::ethernet(0, 1, &packet));
    world.flush();
    let messages = build::icmp_messages(world.log.as_ref().unwrap(), 1);
    assert_eq!(messages[0].0, Message::Unreachable { code: unreachable::PORT, next_hop_mtu: 0 });
    assert_eq!(messages[0].1, packet);
    for _ in 0..1000 {
        world.inject(1, build::ethernet(0, 1, &packet));
    }
    let stats = world.stack(1).stats();
    assert!(stats.icmp_errors_out <= 60 && stats.icmp_rate_limited > 900);
    // Not for what came to all, not for another protocol's errors.
    let before = stats.icmp_errors_out;
    world.run_for(Duration::from_secs(1));
    let to_all = build::udp(at(0, 5), SocketAddr::from(([10, 0, 0, 255], 9)), b"anybody?");
    world.inject(1, build::ethernet(0, 1, &to_all));
    assert_eq!(world.stack(1).stats().icmp_errors_out, before);
    world.inject(1, build::ethernet(0, 1, &build::ip(ip(0), ip(1), Protocol(132), b"sctp")));
    assert_eq!(world.stack(1).stats().icmp_errors_out, before + 1);
}

#[test]
fn errors_reach_only_sockets_that_sent_the_packet() {
    let mut world = World::new(11, LinkConfig::default());
    let (client, _) = world.pair(80);
    let local = world.stack(0).local_addr(client).unwrap();
    // What the connection sends next is lost, so that it stays in flight.
    world.link.loss = 1000;
    world.log = Some(Vec::new());
    let stack = world.stack(0);
    let queued = stack.stream(client).unwrap().write(&[7; 100]);
    stack.tcp_send(client, queued);
    world.flush();
    let sent = world.log.as_ref().unwrap().iter().rev().find_map(|(_, frame)| build::open(frame)).unwrap();
    let seq = u32::from_be_bytes(sent.1[4..8].try_into().unwrap());
    let quote = |seq: u32| {
        let mut quote = build::tcp(local, at(1, 80), wire::tcp::Flags::ACK, seq, 0, b"");
        quote.truncate(28);
        quote
    };
    let error = Message::Unreachable { code: unreachable::HOST, next_hop_mtu: 0 };
    let router = IpAddr::from([10, 0, 0, 254]);
    let give = |world: &mut World, message: Message, quote: &[u8]| {
        world.inject(0, build::ethernet(1, 0, &build::icmp(router, ip(0), message, quote)));
        let stats = world.stack(0).stats();
        (stats.icmp_errors_in, stats.drop_icmp_unmatched)
    };
    assert_eq!(give(&mut world, error, &quote(seq.wrapping_sub(5000))), (0, 1));
    assert_eq!(give(&mut world, error, &quote(seq)), (1, 1));
    assert_eq!(world.state(0, client), tcp::State::Established, "what may pass does not end a connection");
    let mut stranger = quote(seq);
    stranger[20..22].copy_from_slice(&[1, 1]);
    assert_eq!(give(&mut world, error, &stranger), (1, 2));
    assert_eq!(give(&mut world, error, &quote(seq)[..24]), (1, 3));
    // A narrower path: believed for what is in flight only, and not below a floor.
    let narrow = |mtu| Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, next_hop_mtu: mtu };
    let mss = world.stack(0).tcp(client).unwrap().mss();
    give(&mut world, narrow(1000), &quote(seq.wrapping_sub(5000)));
    assert_eq!(world.stack(0).tcp(client).unwrap().mss(), mss);
    give(&mut world, narrow(1000), &quote(seq));
    assert_eq!(world.stack(0).tcp(client).unwrap().mss(), 1000 - 40 - 12);
    give(&mut world, narrow(60), &quote(seq));
    assert_eq!(world.stack(0).tcp(client).unwrap().mss(), 552 - 40 - 12);
    // New connections there start with it.
    world.link.loss = 0;
    let (second, _) = world.pair(81);
    assert_eq!(world.stack(0).tcp(second).unwrap().mss(), 552 - 40 - 12);
}

/// The sequence number of the segment that a host sent last.
fn last_sequence(world: &World) -> u32 {
    let log = world.log.as_ref().unwrap();
    let sent = log.iter().rev().find_map(|(_, frame)| build::open(frame)).unwrap();
    u32::from_be_bytes(sent.1[4..8].try_into().unwrap())
}

#[test]
fn who_asks_hears_of_errors_and_what_ends_an_attempt_is_kept() {
    let mut world = World::new(17, LinkConfig::default());
    let (client, _) = world.pair(80);
    let local = world.stack(0).local_addr(client).unwrap();
    world.link.loss = 1000;
    world.log = Some(Vec::new());
    let now = world.now;
    let stack = world.stack(0);
    let queued = stack.stream(client).unwrap().write(&[7; 100]);
    stack.tcp_send(client, queued);
    world.flush();
    let quote = build::tcp(local, at(1, 80), wire::tcp::Flags::ACK, last_sequence(&world), 0, b"");
    let router = IpAddr::from([10, 0, 0, 254]);
    let error = Message::Unreachable { code: unreachable::HOST, next_hop_mtu: 0 };
    let message = build::ethernet(1, 0, &build::icmp(router, ip(0), error, &quote));
    world.inject(0, message.clone());
    assert_eq!(world.stack(0).poll_told(), None, "nobody has asked");
    world.stack(0).set_option(now, client, SocketOption::QueueErrors(true)).unwrap();
    world.inject(0, message);
    assert_eq!(world.stack(0).poll_told(), Some((client, Told::Passing(113))));
    assert_eq!(world.state(0, client), tcp::State::Established);
    // An attempt: whether it has asked or not.
    let attempt = world.connect(0, at(1, 81));
    let local = world.stack(0).local_addr(attempt).unwrap();
    world.flush();
    let quote = build::tcp(local, at(1, 81), wire::tcp::Flags::SYN, last_sequence(&world), 0, b"");
    let error = Message::Unreachable { code: unreachable::PORT, next_hop_mtu: 0 };
    world.inject(0, build::ethernet(1, 0, &build::icmp(router, ip(0), error, &quote)));
    assert_eq!(world.state(0, attempt), tcp::State::Closed);
    let Some((id, Told::Queued(error))) = world.stack(0).poll_told() else { panic!("an entry") };
    assert_eq!((id, error.errno, error.kind, error.code), (attempt, 111, 3, 3));
    assert_eq!((error.offender.map(IpAddr::V4), error.destination), (Some(router), Some(at(1, 81))));
    assert_eq!(error.payload, quote[20..], "the segment, without its packet's header");
}

/// RFC 5927 §4 to §7, RFC 6633: whatever ICMP says, an established connection goes on.
#[test]
fn no_icmp_message_ends_or_slows_an_established_connection() {
    let mut world = World::new(14, LinkConfig { offload: Offload::None, ..LinkConfig::default() });
    let (client, server) = world.pair(80);
    let local = world.stack(0).local_addr(client).unwrap();
    let (mut up, mut incoming) = (common::Outgoing::new(1, 400_000), common::Incoming::new(1));
    // The enemy on the path sees every sequence number, and answers each segment with something.
    world.log = Some(Vec::new());
    let router = IpAddr::from([10, 0, 0, 254]);
    let mut messages: Vec<Message> = (0..16u8)
        .filter(|code| *code != unreachable::FRAGMENTATION_NEEDED)
        .map(|code| Message::Unreachable { code, next_hop_mtu: 0 })
        .collect();
    // Source quench (RFC 6633), a redirect, both kinds of time exceeded, a parameter problem.
    messages.push(Message::Other { kind: 4, code: 0, rest: [0; 4] });
    messages.push(Message::Other { kind: 5, code: 1, rest: [10, 0, 0, 9] });
    messages.push(Message::TimeExceeded { code: 0 });
    messages.push(Message::TimeExceeded { code: 1 });
    messages.push(Message::ParameterProblem { code: 0, pointer: 0 });
    let mut next = 0;
    assert!(world.run_until(Duration::from_secs(100), |world| {
        world.pump(0, client, &mut up);
        world.drain(1, server, &mut incoming);
        world.flush();
        let log = std::mem::take(world.log.as_mut().unwrap());
        for (_, frame) in log.iter().filter(|(from, _)| *from == 0) {
            let Some((_, segment)) = build::open(frame).filter(|(_, segment)| segment.len() > 8) else {
                continue;
            };
            let seq = u32::from_be_bytes(segment[4..8].try_into().unwrap());
            let mut quote = build::tcp(local, at(1, 80), wire::tcp::Flags::ACK, seq, 0, b"");
            quote.truncate(28);
            let error = build::icmp(router, ip(0), messages[next % messages.len()], &quote);
            next += 1;
            world.inject(0, build::ethernet(1, 0, &error));
        }
        incoming.finished
    }));
    assert!(next > messages.len(), "each was tried: {next}");
    assert_eq!(incoming.read, 400_000);
    let stats = world.stack(0).tcp(client).map(|connection| connection.stats());
    assert!(stats.is_none_or(|stats| stats.retransmissions == 0 && stats.timeouts == 0));
    assert!(world.stack(0).stats().icmp_errors_in > 0, "some were believed to be about ours, as soft errors");
    assert!(world.stack(0).stats().drop_icmp_kind > 0, "some mean nothing to anybody");
}

#[test]
fn a_routers_word_against_experience_waits_for_a_timeout() {
    let mut world = World::new(15, LinkConfig { offload: Offload::None, ..LinkConfig::default() });
    let (client, server) = world.pair(80);
    let local = world.stack(0).local_addr(client).unwrap();
    let (mut up, mut incoming) = (common::Outgoing::new(1, 400_000), common::Incoming::new(1));
    assert!(world.run_until(Duration::from_secs(100), |world| {
        world.pump(0, client, &mut up);
        world.drain(1, server, &mut incoming);
        incoming.read >= 100_000
    }));
    let mss = world.stack(0).tcp(client).unwrap().mss();
    world.log = Some(Vec::new());
    world.link.loss = 1000;
    world.run_for(Duration::from_millis(5));
    world.pump(0, client, &mut up);
    world.flush();
    let sent = build::tcp_segments(world.log.as_ref().unwrap(), 0);
    let seq = sent.last().unwrap().seq.0;
    let mut quote = build::tcp(local, at(1, 80), wire::tcp::Flags::ACK, seq, 0, b"");
    quote.truncate(28);
    let narrow = Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, next_hop_mtu: 600 };
    world
        .inject(0, build::ethernet(1, 0, &build::icmp(IpAddr::from([10, 0, 0, 254]), ip(0), narrow, &quote)));
    assert_eq!(world.stack(0).stats().icmp_too_big_deferred, 1);
    assert_eq!(world.stack(0).tcp(client).unwrap().mss(), mss, "RFC 5927 §7.2: a forged word does no harm");
    world.run_for(Duration::from_millis(700));
    assert_eq!(world.stack(0).tcp(client).unwrap().mss(), 600 - 52, "nothing comes through: it was right");
}

#[test]
fn who_lets_its_packets_be_fragmented_does_not_heed_what_routers_say_of_their_size() {
    for (may, flag, left) in [(false, 0x40, 1000 - 52), (true, 0, 1460 - 12)] {
        let mut world = World::new(16, LinkConfig { offload: Offload::None, ..LinkConfig::default() });
        let (client, _) = world.pair(80);
        let now = world.now;
        let manner = if may { MtuDiscovery::Dont } else { MtuDiscovery::Want };
        world.stack(0).set_option(now, client, SocketOption::MtuDiscovery(manner)).unwrap();
        world.log = Some(Vec::new());
        world.pump(0, client, &mut common::Outgoing::new(1, 4000));
        world.flush();
        let log = world.log.take().unwrap();
        let sent: Vec<_> = log.iter().filter(|(from, frame)| *from == 0 && frame.len() > 500).collect();
        assert!(!sent.is_empty());
        assert!(sent.iter().all(|(_, frame)| frame[14 + 6] & 0x40 == flag));
        let narrow = Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, next_hop_mtu: 1000 };
        let router = IpAddr::from([10, 0, 0, 254]);
        let error = build::icmp(router, ip(0), narrow, &sent[0].1[14..14 + 28]);
        world.inject(0, build::ethernet(1, 0, &error));
        assert_eq!(world.stack(0).tcp(client).unwrap().mss(), left);
    }
}

#[test]
fn a_connection_crosses_a_narrower_path_once_it_is_told() {
    let mut world = World::new(12, LinkConfig { offload: Offload::None, ..LinkConfig::default() });
    let (client, server) = world.pair(80);
    let (mut up, mut incoming) = (common::Outgoing::new(1, 300_000), common::Incoming::new(1));
    let router = IpAddr::from([10, 0, 0, 254]);
    world.log = Some(Vec::new());
    assert!(world.run_until(Duration::from_secs(100), |world| {
        world.pump(0, client, &mut up);
        world.drain(1, server, &mut incoming);
        world.flush();
        // A router in the middle takes 1000 bytes.
        let large: Vec<_> =
            world.flights.extract_if(.., |flight| flight.to == 1 && flight.bytes.len() > 1014).collect();
        for flight in large {
            let narrow = Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, next_hop_mtu: 1000 };
            let error = build::icmp(router, ip(0), narrow, &flight.bytes[14..14 + 28]);
            world.inject(0, build::ethernet(1, 0, &error));
        }
        incoming.finished
    }));
    assert_eq!(incoming.read, 300_000);
}

#[test]
fn source_addresses_follow_routes() {
    let mut world = World::new(13, LinkConfig::default());
    assert_eq!(world.stack(0).source_address_for(ip(1)), Some(ip(0)));
    assert_eq!(world.stack(0).source_address_for(ip(0)), Some(ip(0)));
    assert_eq!(world.stack(0).source_address_for([9, 9, 9, 9].into()), None);
    assert!(world.stack(0).add_route("0.0.0.0/0".parse().unwrap(), Some(ip(1)), IF));
    assert_eq!(world.stack(0).source_address_for([9, 9, 9, 9].into()), Some(ip(0)));
    assert_eq!(world.stack(0).routes().count(), 2);
}

#[test]
fn the_mtu_of_a_route_bounds_what_connections_announce_and_send() {
    for narrowed in [0, 1] {
        let mut world = World::new(15, LinkConfig { offload: Offload::None, ..LinkConfig::default() });
        let destination = base::IpCidr::new(ip(1 - narrowed), 32).unwrap();
        let route = Route { destination, gateway: None, interface: IF, mtu: Some(900) };
        assert!(world.stack(narrowed).insert_route(route));
        world.log = Some(Vec::new());
        let (client, server) = world.pair(80);
        let (mut up, mut down) = (common::Outgoing::new(1, 100_000), common::Outgoing::new(2, 100_000));
        let (mut at_server, mut at_client) = (common::Incoming::new(1), common::Incoming::new(2));
        assert!(world.run_until(Duration::from_secs(100), |world| {
            world.pump(0, client, &mut up);
            world.pump(1, server, &mut down);
            world.drain(1, server, &mut at_server);
            world.drain(0, client, &mut at_client);
            at_server.finished && at_client.finished
        }));
        let log = world.log.take().unwrap();
        let announced = |host: usize| build::tcp_segments(&log, host)[0].options.mss;
        assert_eq!((announced(narrowed), announced(1 - narrowed)), (Some(860), Some(1460)));
        for host in [0, 1] {
            let longest = log.iter().filter(|(from, _)| *from == host).map(|(_, frame)| frame.len()).max();
            assert_eq!(longest, Some(14 + 900), "from host {host}");
        }
    }
}
