//! UDP: who receives what, connected and not, errors, limits.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::Duration;
use common::{LinkConfig, Offload, World, at, build, ip};
use outboard_stack::{Change, DatagramMeta, SocketError, SocketId, SocketOptions};
use std::net::SocketAddr;

fn any(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

fn to(remote: SocketAddr) -> DatagramMeta {
    DatagramMeta { remote, local: any(0), ttl: 0, tos: 0, segment: 0 }
}

/// To the connected peer.
fn to_peer() -> DatagramMeta {
    to(any(0))
}

fn bind(world: &mut World, host: usize, local: SocketAddr) -> SocketId {
    world.stack(host).udp_bind(local, Default::default(), &SocketOptions::default()).unwrap()
}

fn send(world: &mut World, host: usize, id: SocketId, meta: DatagramMeta, payload: &[u8]) {
    assert!(world.stack(host).datagrams(id).unwrap().send(meta, payload));
    world.stack(host).udp_send(id).unwrap();
    world.run_for(Duration::from_millis(10));
}

fn receive(world: &mut World, host: usize, id: SocketId) -> Option<(SocketAddr, SocketAddr, Vec<u8>)> {
    let (meta, payload) = world.stack(host).datagrams(id)?.receive()?;
    Some((meta.remote, meta.local, payload))
}

#[test]
fn a_question_and_its_answer() {
    for offload in [Offload::None, Offload::Full] {
        let mut world = World::new(1, LinkConfig { offload, ..LinkConfig::default() });
        let server = bind(&mut world, 1, any(53));
        let client = bind(&mut world, 0, any(0));
        send(&mut world, 0, client, to(at(1, 53)), b"question");
        let (from, local, payload) = receive(&mut world, 1, server).unwrap();
        assert_eq!((from.ip(), local, &payload[..]), (ip(0), at(1, 53), &b"question"[..]));
        assert!(world.hosts[1].changes.contains(&Change::Updated(server)));
        send(&mut world, 1, server, to(from), b"answer");
        let (from, _, payload) = receive(&mut world, 0, client).unwrap();
        assert_eq!((from, &payload[..]), (at(1, 53), &b"answer"[..]));
    }
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    let mut world = World::new(2, LinkConfig::default());
    let client = bind(&mut world, 0, at(0, 1000));
    let (peer, other) = (bind(&mut world, 1, at(1, 7)), bind(&mut world, 1, at(1, 8)));
    send(&mut world, 0, client, to_peer(), b"nowhere");
    assert_eq!(world.stack(0).take_error(client), Some(SocketError::NotConnected));
    world.stack(0).udp_connect(client, Some(at(1, 7))).unwrap();
    assert_eq!(world.stack(0).remote_addr(client), Some(at(1, 7)));
    send(&mut world, 0, client, to_peer(), b"hello");
    assert!(receive(&mut world, 1, peer).is_some());
    send(&mut world, 1, other, to(at(0, 1000)), b"me too");
    assert_eq!(receive(&mut world, 0, client), None);
    send(&mut world, 1, peer, to(at(0, 1000)), b"hello yourself");
    assert!(receive(&mut world, 0, client).is_some());
    world.stack(0).udp_connect(client, None).unwrap();
    send(&mut world, 1, other, to(at(0, 1000)), b"me too");
    assert!(receive(&mut world, 0, client).is_some());
}

#[test]
fn nobody_at_the_port_is_an_error_for_a_connected_socket_only() {
    let mut world = World::new(3, LinkConfig::default());
    let client = bind(&mut world, 0, any(0));
    send(&mut world, 0, client, to(at(1, 9)), b"x");
    assert_eq!(world.stack(0).take_error(client), None);
    world.stack(0).udp_connect(client, Some(at(1, 9))).unwrap();
    send(&mut world, 0, client, to_peer(), b"x");
    assert_eq!(world.stack(0).take_error(client), Some(SocketError::ConnectionRefused));
    assert_eq!(world.stack(0).take_error(client), None);
}

#[test]
fn a_server_may_connect_its_socket_and_bind_another() {
    // As iperf3 does for UDP.
    let mut world = World::new(4, LinkConfig::default());
    let reuse = SocketOptions { reuse_address: true, ..SocketOptions::default() };
    let first = world.stack(1).udp_bind(any(5201), Default::default(), &reuse).unwrap();
    let client = bind(&mut world, 0, at(0, 1000));
    send(&mut world, 0, client, to(at(1, 5201)), b"hello");
    let (from, ..) = receive(&mut world, 1, first).unwrap();
    world.stack(1).udp_connect(first, Some(from)).unwrap();
    let second = world.stack(1).udp_bind(any(5201), Default::default(), &reuse).unwrap();
    send(&mut world, 0, client, to(at(1, 5201)), b"again");
    assert!(receive(&mut world, 1, first).is_some());
    let another = bind(&mut world, 0, at(0, 1001));
    send(&mut world, 0, another, to(at(1, 5201)), b"new");
    assert!(receive(&mut world, 1, second).is_some());
    let plain = world.stack(1).udp_bind(any(5201), Default::default(), &SocketOptions::default());
    assert_eq!(plain, Err(SocketError::AddressInUse));
}

#[test]
fn sockets_that_share_a_port_share_the_flows() {
    let mut world = World::new(5, LinkConfig::default());
    let share = SocketOptions { reuse_port: true, ..SocketOptions::default() };
    let servers: Vec<_> =
        (0..3).map(|_| world.stack(1).udp_bind(any(7), Default::default(), &share).unwrap()).collect();
    for _ in 0..60 {
        let client = bind(&mut world, 0, any(0));
        send(&mut world, 0, client, to(at(1, 7)), b"x");
    }
    let counts: Vec<usize> =
        servers.iter().map(|&id| std::iter::from_fn(|| receive(&mut world, 1, id)).count()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 60);
    assert!(counts.iter().all(|&count| count > 5), "{counts:?}");
}

#[test]
fn broadcast_needs_permission_and_reaches_all() {
    let mut world = World::new(6, LinkConfig::default());
    let reuse = SocketOptions { reuse_address: true, ..SocketOptions::default() };
    let servers: Vec<_> =
        (0..2).map(|_| world.stack(1).udp_bind(any(67), Default::default(), &reuse).unwrap()).collect();
    let specific = world.stack(1).udp_bind(at(1, 67), Default::default(), &reuse).unwrap();
    let client = bind(&mut world, 0, any(68));
    let to_all = SocketAddr::from(([255, 255, 255, 255], 67));
    send(&mut world, 0, client, to(to_all), b"discover");
    assert_eq!(world.stack(0).take_error(client), Some(SocketError::PermissionDenied));
    let allowed = SocketOptions { broadcast: true, ..SocketOptions::default() };
    let client = world.stack(0).udp_bind(any(0), Default::default(), &allowed).unwrap();
    for to_all in [to_all, SocketAddr::from(([10, 0, 0, 255], 67))] {
        send(&mut world, 0, client, to(to_all), b"discover");
        for &id in &servers {
            let (from, local, _) = receive(&mut world, 1, id).unwrap();
            assert_eq!((from.ip(), local), (ip(0), to_all));
        }
        assert_eq!(receive(&mut world, 1, specific), None);
    }
}

#[test]
fn a_full_queue_drops_and_counts() {
    let mut world = World::new(7, LinkConfig::default());
    let server = bind(&mut world, 1, any(7));
    let client = bind(&mut world, 0, any(0));
    for _ in 0..300 {
        send(&mut world, 0, client, to(at(1, 7)), &[0; 1400]);
    }
    let stored = std::iter::from_fn(|| receive(&mut world, 1, server)).count();
    let dropped = world.stack(1).stats().drop_udp_queue_full;
    assert_eq!(stored as u64 + dropped, 300);
    assert!(dropped > 50);
}

#[test]
fn checksums_are_verified_unless_there_is_none() {
    let mut world = World::new(8, LinkConfig::default());
    let server = bind(&mut world, 1, any(7));
    let mut packet = build::udp(at(0, 5), at(1, 7), b"data");
    packet[26] ^= 1;
    world.inject(1, build::ethernet(0, 1, &packet));
    assert_eq!(receive(&mut world, 1, server), None);
    assert_eq!(world.stack(1).stats().drop_udp_checksum, 1);
    packet[26..28].fill(0);
    world.inject(1, build::ethernet(0, 1, &packet));
    assert!(receive(&mut world, 1, server).is_some());
    packet[24..26].copy_from_slice(&[0, 200]);
    world.inject(1, build::ethernet(0, 1, &packet));
    assert_eq!(world.stack(1).stats().drop_udp_malformed, 1);
}

#[test]
fn one_stack_talks_to_itself() {
    let mut world = World::new(9, LinkConfig::default());
    let server = bind(&mut world, 0, any(7));
    let client = bind(&mut world, 0, any(0));
    send(&mut world, 0, client, to(at(0, 7)), &[9; 60_000]);
    let (from, _, payload) = receive(&mut world, 0, server).unwrap();
    assert_eq!((from.ip(), payload.len()), (ip(0), 60_000));
    world.stack(0).udp_connect(client, Some(at(0, 9))).unwrap();
    send(&mut world, 0, client, to_peer(), b"nobody");
    assert_eq!(world.stack(0).take_error(client), Some(SocketError::ConnectionRefused));
}

#[test]
fn what_was_queued_is_sent_before_the_socket_goes() {
    let mut world = World::new(10, LinkConfig::default());
    let server = bind(&mut world, 1, any(7));
    let client = bind(&mut world, 0, at(0, 99));
    world.hosts[0].device_ready = false;
    for _ in 0..10 {
        assert!(world.stack(0).datagrams(client).unwrap().send(to(at(1, 7)), b"last words"));
    }
    world.stack(0).udp_send(client).unwrap();
    let now = world.now;
    world.stack(0).set_user_data(client, 5);
    world.stack(0).close(now, client).unwrap();
    world.run_for(Duration::from_millis(10));
    assert!(world.hosts[0].changes.is_empty());
    world.hosts[0].device_ready = true;
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.hosts[0].changes, [Change::Released { id: client, user_data: 5 }]);
    assert_eq!(std::iter::from_fn(|| receive(&mut world, 1, server)).count(), 10);
    // Its port is free again.
    bind(&mut world, 0, at(0, 99));
}

#[test]
fn one_silent_destination_does_not_hold_up_the_others() {
    let mut world = World::new(11, LinkConfig::default());
    let server = bind(&mut world, 1, any(7));
    let client = bind(&mut world, 0, any(0));
    let nobody = SocketAddr::from(([10, 0, 0, 77], 7));
    for _ in 0..10 {
        assert!(world.stack(0).datagrams(client).unwrap().send(to(nobody), b"x"));
        assert!(world.stack(0).datagrams(client).unwrap().send(to(at(1, 7)), b"y"));
    }
    world.stack(0).udp_send(client).unwrap();
    world.run_for(Duration::from_millis(10));
    assert_eq!(std::iter::from_fn(|| receive(&mut world, 1, server)).count(), 10);
}

#[test]
fn answering_a_flood_does_not_hold_up_the_sockets() {
    let mut world = World::new(12, LinkConfig::default());
    let client = bind(&mut world, 0, any(0));
    let server = bind(&mut world, 1, any(7));
    send(&mut world, 1, server, to(at(0, 1)), b"to know each other");
    let request = wire::icmpv4::Message::EchoRequest { identifier: 1, sequence: 1 };
    let ping = build::ethernet(1, 0, &build::icmp(ip(1), ip(0), request, &[0; 1000]));
    for _ in 0..1000 {
        world.inject(0, ping.clone());
    }
    assert!(world.stack(0).datagrams(client).unwrap().send(to(at(1, 7)), b"me too"));
    world.stack(0).udp_send(client).unwrap();
    world.log = Some(Vec::new());
    world.flush();
    let log = world.log.take().unwrap();
    let place =
        log.iter().position(|(_, frame)| build::open(frame).is_some_and(|(ip, _)| ip.protocol.0 == 17));
    assert!(place.is_some_and(|place| place < 100), "{place:?} of {}", log.len());
}
