//! ARP: who is asked, who is answered, who is believed, and what happens when nobody answers.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::{Duration, IpCidr};
use common::{IF, LinkConfig, Offload, World, at, build, ip, mac};
use outboard_stack::{
    AddressState, ConflictDetection, DatagramMeta, InterfaceConfig, NeighbourState, SocketError,
    SocketOption, SocketOptions, StackConfig, Told,
};
use std::net::IpAddr;
use wire::arp::Operation;
use wire::ethernet::{EtherType, EthernetAddress};

fn arp_packets(world: &mut World, from: usize) -> Vec<(wire::ethernet::Header, wire::arp::Packet)> {
    let log = world.log.replace(Vec::new()).unwrap();
    log.iter()
        .filter(|(host, _)| *host == from)
        .filter_map(|(_, frame)| {
            let (header, payload) = wire::ethernet::Header::parse(frame).ok()?;
            (header.ethertype == EtherType::ARP).then(|| (header, wire::arp::Packet::parse(payload).unwrap()))
        })
        .collect()
}

fn logged(seed: u64, config: StackConfig) -> World {
    let mut world = World::with_config(seed, LinkConfig::default(), config);
    world.log = Some(Vec::new());
    world
}

fn datagram(remote: std::net::SocketAddr) -> DatagramMeta {
    DatagramMeta { remote, local: "0.0.0.0:0".parse().unwrap(), ttl: 0, tos: 0, segment: 0 }
}

const STRANGER: EthernetAddress = EthernetAddress([2, 9, 9, 9, 9, 9]);

#[test]
fn addresses_are_announced_at_the_start() {
    let mut world = logged(1, StackConfig::default());
    world.run_for(Duration::from_secs(10));
    let packets = arp_packets(&mut world, 0);
    assert_eq!(packets.len(), 2);
    for (header, packet) in packets {
        assert_eq!(header.destination, EthernetAddress::BROADCAST);
        assert_eq!((IpAddr::V4(packet.sender_protocol), IpAddr::V4(packet.target_protocol)), (ip(0), ip(0)));
        assert_eq!((packet.operation, packet.sender_hardware), (Operation::Request, mac(0)));
    }
}

#[test]
fn only_own_addresses_are_answered() {
    let mut world = logged(2, StackConfig::default());
    world.run_for(Duration::from_secs(5));
    let asker = (STRANGER, IpAddr::from([10, 0, 0, 99]));
    let unknown = EthernetAddress::default();
    arp_packets(&mut world, 1);
    for target in [ip(1), ip(0), IpAddr::from([10, 0, 0, 77])] {
        let question = build::arp(Operation::Request, asker, (unknown, target), EthernetAddress::BROADCAST);
        world.inject(1, question);
    }
    world.flush();
    let answers = arp_packets(&mut world, 1);
    assert_eq!(answers.len(), 1);
    let (header, answer) = answers[0];
    assert_eq!((header.destination, answer.operation), (STRANGER, Operation::Reply));
    assert_eq!((answer.sender_hardware, IpAddr::V4(answer.sender_protocol)), (mac(1), ip(1)));
    // Who asked for us is known from then on, not yet confirmed.
    let known: Vec<_> = world.stack(1).neighbours().collect();
    assert_eq!(known.len(), 1);
    assert_eq!((known[0].address, known[0].hardware), (asker.1, STRANGER));
    assert_eq!(known[0].state, NeighbourState::Stale);
}

#[test]
fn unsolicited_replies_and_strange_senders_make_no_entries() {
    let mut world = logged(3, StackConfig::default());
    let us = (mac(1), ip(1));
    for sender in [
        (STRANGER, IpAddr::from([10, 0, 0, 99])),
        (EthernetAddress::BROADCAST, IpAddr::from([10, 0, 0, 98])),
        (STRANGER, IpAddr::from([224, 0, 0, 1])),
        (STRANGER, IpAddr::from([192, 168, 1, 1])),
    ] {
        world.inject(1, build::arp(Operation::Reply, sender, us, mac(1)));
    }
    world.inject(1, build::frame(STRANGER, mac(1), EtherType::ARP, &[0; 12]));
    assert_eq!(world.stack(1).neighbours().count(), 0);
    let stats = world.stack(1).stats();
    assert_eq!((stats.drop_arp_unsolicited, stats.drop_arp_malformed), (1, 3));
}

#[test]
fn packets_wait_for_the_answer_and_then_go() {
    let mut world = logged(4, StackConfig::default());
    world.run_for(Duration::from_secs(5));
    arp_packets(&mut world, 0);
    let options = SocketOptions::default();
    let receiver = world.stack(1).udp_bind(at(1, 7), Default::default(), &options).unwrap();
    let sender = world.stack(0).udp_bind(at(0, 0), Default::default(), &options).unwrap();
    for number in 0..5u8 {
        world.stack(0).datagrams(sender).unwrap().send(datagram(at(1, 7)), &[number]);
    }
    world.stack(0).udp_send(sender).unwrap();
    world.run_for(Duration::from_millis(10));
    let received: Vec<u8> = std::iter::from_fn(|| world.stack(1).datagrams(receiver).unwrap().receive())
        .map(|(_, p)| p[0])
        .collect();
    assert_eq!(received, [0, 1, 2, 3, 4]);
    let asked = arp_packets(&mut world, 0);
    assert_eq!(asked.len(), 1, "one question for five packets");
    let entry = world.stack(0).neighbours().next().unwrap();
    assert_eq!((entry.state, entry.hardware, entry.interface), (NeighbourState::Reachable, mac(1), IF));
}

#[test]
fn without_an_answer_sockets_learn_that_the_host_is_unreachable() {
    let mut world = logged(5, StackConfig::default());
    world.run_for(Duration::from_secs(5));
    arp_packets(&mut world, 0);
    let nobody = std::net::SocketAddr::from(([10, 0, 0, 50], 80));
    let client = world.connect(0, nobody);
    let options = SocketOptions::default();
    let sender = world.stack(0).udp_bind(at(0, 0), Default::default(), &options).unwrap();
    world.stack(0).udp_connect(sender, Some(nobody)).unwrap();
    let now = world.now;
    world.stack(0).set_option(now, sender, SocketOption::QueueErrors(true)).unwrap();
    for _ in 0..200 {
        world.stack(0).datagrams(sender).unwrap().send(datagram(nobody), &[0; 100]);
    }
    world.stack(0).udp_send(sender).unwrap();
    world.run_for(Duration::from_millis(3500));
    assert_eq!(world.stack(0).tcp(client).unwrap().error(), Some(tcp::Error::HostUnreachable));
    assert_eq!(world.stack(0).take_error(sender), Some(SocketError::HostUnreachable));
    assert_eq!(world.stack(0).take_error(sender), None);
    let told = |world: &mut World| std::iter::from_fn(|| world.stack(0).poll_told()).collect::<Vec<_>>();
    let told = told(&mut world);
    let of = |id| told.iter().filter(move |(other, _)| *other == id).map(|(_, told)| told);
    let errors = of(sender).chain(of(client)).filter_map(|told| match told {
        Told::Queued(error) => Some(error),
        Told::Passing(_) => None,
    });
    let errors: Vec<_> = errors.collect();
    assert!(errors.iter().all(|error| (error.errno, error.kind, error.code) == (113, 3, 1)));
    assert!(errors.iter().all(|error| error.destination == Some(nobody)));
    assert!(errors.iter().all(|error| error.offender == Some(std::net::Ipv4Addr::new(10, 0, 0, 1))));
    assert_eq!(errors[0].payload, [0; 100], "of a datagram, what it carried");
    assert_eq!(errors.last().unwrap().payload[2..4], 80u16.to_be_bytes(), "of an attempt, its header");
    assert!(of(client).count() == 1 && of(sender).count() > 1);
    let asked = arp_packets(&mut world, 0);
    assert_eq!(asked.len(), 3);
    assert!(!world.stack(0).wants_transmit());
    let stats = world.stack(0).stats();
    assert_eq!(stats.neighbour_failures, 1);
    // The waiting room is bounded: what did not fit went first.
    assert_eq!((stats.drop_neighbour_queue, stats.drop_neighbour_failed), (136, 65));
}

#[test]
fn an_established_connection_survives_a_neighbour_that_is_away() {
    let mut world = World::new(6, LinkConfig { offload: Offload::None, ..LinkConfig::default() });
    let (client, server) = world.pair(80);
    // Long idle: the neighbour is stale. It is away for ten seconds just then.
    world.run_for(Duration::from_secs(100));
    world.link.loss = 1000;
    let queued = world.stack(0).stream(client).unwrap().write(b"are you there");
    world.stack(0).tcp_send(client, queued);
    world.run_for(Duration::from_secs(20));
    assert!(world.stack(0).stats().neighbour_failures >= 1);
    assert_eq!(world.state(0, client), tcp::State::Established);
    world.link.loss = 0;
    assert!(world.run_until(Duration::from_secs(60), |world| {
        world.stack(1).tcp(server).unwrap().received_to() == 13
    }));
}

#[test]
fn a_stale_neighbour_in_use_is_asked_in_person() {
    let mut world = logged(7, StackConfig::default());
    let options = SocketOptions::default();
    world.stack(1).udp_bind(at(1, 7), Default::default(), &options).unwrap();
    let sender = world.stack(0).udp_bind(at(0, 0), Default::default(), &options).unwrap();
    let send = |world: &mut World| {
        world.stack(0).datagrams(sender).unwrap().send(datagram(at(1, 7)), b"x");
        world.stack(0).udp_send(sender).unwrap();
        world.run_for(Duration::from_secs(6));
    };
    send(&mut world);
    world.run_for(Duration::from_secs(60));
    arp_packets(&mut world, 0);
    send(&mut world);
    let asked = arp_packets(&mut world, 0);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].0.destination, mac(1));
    let entry = world.stack(0).neighbours().next().unwrap();
    assert_eq!(entry.state, NeighbourState::Reachable);
}

#[test]
fn progress_of_a_connection_confirms_the_neighbour() {
    let mut world = World::new(8, LinkConfig::default());
    let (client, _) = world.pair(80);
    world.log = Some(Vec::new());
    world.run_for(Duration::from_secs(5));
    arp_packets(&mut world, 0);
    for _ in 0..60 {
        let stack = world.stack(0);
        let queued = stack.stream(client).unwrap().write(b"tick");
        stack.tcp_send(client, queued);
        world.run_for(Duration::from_secs(3));
    }
    // It asks nothing. (It may be asked: the other side only receives, and has nothing to go by.)
    let packets = arp_packets(&mut world, 0);
    assert!(packets.iter().all(|(_, packet)| packet.operation == Operation::Reply), "{packets:?}");
}

#[test]
fn another_host_with_our_address_is_counted_and_answered_once_an_interval() {
    let mut world = logged(9, StackConfig::default());
    world.run_for(Duration::from_secs(5));
    arp_packets(&mut world, 1);
    let impostor = (STRANGER, ip(1));
    for _ in 0..5 {
        let claim = build::arp(Operation::Request, impostor, (STRANGER, ip(1)), EthernetAddress::BROADCAST);
        world.inject(1, claim);
    }
    world.flush();
    let defences = arp_packets(&mut world, 1);
    assert_eq!(defences.len(), 1);
    assert_eq!(IpAddr::V4(defences[0].1.sender_protocol), ip(1));
    let stats = world.stack(1).stats();
    assert_eq!((stats.address_conflicts, stats.address_defences), (5, 1));
    // The address stays in use, and the impostor is no neighbour.
    assert!(world.stack(1).is_local(ip(1)));
    assert_eq!(world.stack(1).neighbours().count(), 0);
}

#[test]
fn a_probed_address_is_used_only_when_nobody_has_it() {
    let config = StackConfig { conflict_detection: ConflictDetection::Probe, ..StackConfig::default() };
    let mut world = logged(10, config);
    let state = |world: &mut World| world.stack(0).addresses(IF).next().unwrap().1;
    assert_eq!(state(&mut world), AddressState::Tentative);
    assert!(!world.stack(0).is_local(ip(0)));
    let refused = world.stack(0).udp_bind(at(0, 7), Default::default(), &SocketOptions::default());
    assert_eq!(refused, Err(SocketError::AddressNotAvailable));
    world.run_for(Duration::from_secs(15));
    assert_eq!(state(&mut world), AddressState::Usable);
    let packets = arp_packets(&mut world, 0);
    let probes = packets.iter().filter(|(_, packet)| packet.sender_protocol.is_unspecified()).count();
    assert_eq!((probes, packets.len()), (3, 5));
    // Both hosts can talk now.
    world.log = None;
    world.pair(80);
}

#[test]
fn a_probed_address_that_somebody_has_is_not_used() {
    let config = StackConfig { conflict_detection: ConflictDetection::Probe, ..StackConfig::default() };
    let mut world = logged(11, config);
    world.run_for(Duration::from_millis(500));
    world.inject(0, build::arp(Operation::Reply, (STRANGER, ip(0)), (mac(0), ip(0)), mac(0)));
    world.run_for(Duration::from_secs(15));
    assert_eq!(world.stack(0).addresses(IF).next().unwrap().1, AddressState::Conflicted);
    assert!(!world.stack(0).is_local(ip(0)));
    assert_eq!(world.stack(0).stats().address_conflicts, 1);
}

#[test]
fn what_is_behind_a_router_goes_to_the_router() {
    let mut world = logged(12, StackConfig::default());
    world.stack(0).add_route("0.0.0.0/0".parse().unwrap(), Some(ip(1)), IF);
    let options = SocketOptions::default();
    let sender = world.stack(0).udp_bind("0.0.0.0:0".parse().unwrap(), Default::default(), &options).unwrap();
    world.stack(0).datagrams(sender).unwrap().send(datagram("8.8.8.8:53".parse().unwrap()), b"query");
    world.stack(0).udp_send(sender).unwrap();
    world.run_for(Duration::from_millis(10));
    let log = world.log.take().unwrap();
    let sent = log.iter().find_map(|(from, frame)| {
        let (header, _) = build::open(frame)?;
        (*from == 0).then_some((header, frame[..6].to_vec()))
    });
    let (header, to) = sent.unwrap();
    assert_eq!((header.destination, header.source), ([8, 8, 8, 8].into(), build::v4(ip(0))));
    assert_eq!(to, mac(1).0);
    assert_eq!(world.stack(1).stats().drop_not_ours, 1);
}

#[test]
fn a_second_interface_has_neighbours_of_its_own() {
    let mut world = World::new(13, LinkConfig::default());
    let now = world.now;
    let capabilities = common::capabilities(&world.link, 0);
    let interface = InterfaceConfig {
        name: "second".to_owned(),
        capabilities,
        addresses: vec![IpCidr::new([192, 168, 5, 1].into(), 24).unwrap()],
    };
    let second = world.stack(0).add_interface(now, interface);
    assert_ne!(second, IF);
    assert_eq!(world.stack(0).source_address_for([192, 168, 5, 9].into()), Some([192, 168, 5, 1].into()));
    assert_eq!(world.stack(0).source_address_for(ip(1)), Some(ip(0)));
    assert_eq!(world.stack(0).source_address_for([1, 1, 1, 1].into()), None);
    assert_eq!(
        world.stack(0).interfaces().map(|(_, name, _)| name.to_owned()).collect::<Vec<_>>(),
        ["if0", "second"]
    );
}
