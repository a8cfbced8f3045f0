//! Listeners: which one gets a connection, what happens when the queues are full, resets for nobody's segments.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::Duration;
use common::{LinkConfig, World, at, build, ip};
use outboard_stack::{SocketError, SocketKind, SocketOptions, StackConfig, SynCookieMode};
use std::net::SocketAddr;
use tcp::State;
use wire::tcp::Flags;

fn any(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

fn accept_all(world: &mut World, listener: outboard_stack::SocketId) -> usize {
    std::iter::from_fn(|| world.stack(1).tcp_accept(listener)).count()
}

#[test]
fn a_specific_address_comes_before_the_wildcard() {
    let mut world = World::new(1, LinkConfig::default());
    let reuse = SocketOptions { reuse_port: true, ..SocketOptions::default() };
    let wildcard = world.stack(1).tcp_listen(any(80), 10, (), &reuse).unwrap();
    let specific = world.stack(1).tcp_listen(at(1, 80), 10, (), &reuse).unwrap();
    world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    assert_eq!(accept_all(&mut world, wildcard), 0);
    assert_eq!(accept_all(&mut world, specific), 1);
    let now = world.now;
    world.stack(1).close(now, specific).unwrap();
    world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    assert_eq!(accept_all(&mut world, wildcard), 1);
}

#[test]
fn listeners_that_share_a_port_share_the_connections() {
    let mut world = World::new(2, LinkConfig::default());
    let reuse = SocketOptions { reuse_port: true, ..SocketOptions::default() };
    let listeners: Vec<_> =
        (0..4).map(|_| world.stack(1).tcp_listen(any(80), 100, (), &reuse).unwrap()).collect();
    (0..80).for_each(|_| {
        world.connect(0, at(1, 80));
    });
    world.run_for(Duration::from_millis(50));
    let counts: Vec<usize> = listeners.iter().map(|&id| accept_all(&mut world, id)).collect();
    assert_eq!(counts.iter().sum::<usize>(), 80);
    assert!(counts.iter().all(|&count| count > 5), "{counts:?}");
}

#[test]
fn what_waits_behind_the_owner_counts_against_the_backlog() {
    let mut world = World::new(13, LinkConfig::default());
    let listener = world.stack(1).tcp_listen(at(1, 80), 4, (), &SocketOptions::default()).unwrap();
    assert!(!world.stack(1).tcp_set_unaccepted(listener, 2));
    assert!(world.stack(1).tcp_set_unaccepted(listener, 3));
    (0..5).for_each(|_| {
        world.connect(0, at(1, 80));
    });
    world.run_for(Duration::from_millis(100));
    // As on Linux one more than the backlog waits.
    assert_eq!(accept_all(&mut world, listener), 2);
    assert!(world.stack(1).tcp_set_unaccepted(listener, 5));
    world.run_for(Duration::from_secs(10));
    assert_eq!(accept_all(&mut world, listener), 0);
    assert!(!world.stack(1).tcp_set_unaccepted(listener, 0));
    world.run_for(Duration::from_secs(60));
    assert_eq!(accept_all(&mut world, listener), 3);
}

#[test]
fn a_full_accept_queue_drops_the_last_acknowledgement_and_recovers() {
    let mut world = World::new(3, LinkConfig::default());
    let options = SocketOptions::default();
    let listener = world.stack(1).tcp_listen(at(1, 80), 2, (), &options).unwrap();
    let clients: Vec<_> = (0..5).map(|_| world.connect(0, at(1, 80))).collect();
    world.run_for(Duration::from_millis(100));
    // As on Linux one more than the backlog waits; further SYNs are dropped.
    assert_eq!(world.stack(1).tcp_backlog(listener).map(|(accept, _)| accept), Some(3));
    let stats = world.stack(1).stats();
    assert!(stats.drop_listen_overflow + stats.drop_accept_overflow + stats.drop_half_open > 0);
    let mut accepted = accept_all(&mut world, listener);
    assert!(world.run_until(Duration::from_secs(60), |world| {
        accepted += accept_all(world, listener);
        accepted == 5
    }));
    assert!(clients.iter().all(|&id| world.state(0, id) == State::Established));
}

#[test]
fn closing_a_listener_resets_what_nobody_accepted() {
    let mut world = World::new(4, LinkConfig::default());
    let listener = world.listen(1, 80);
    let accepted_never = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    world.link.delay = Duration::from_millis(50);
    let half_open = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(60));
    assert_eq!(world.stack(1).tcp_backlog(listener), Some((1, 1)));
    let now = world.now;
    world.stack(1).close(now, listener).unwrap();
    world.run_for(Duration::from_millis(300));
    assert_eq!(world.stack(0).tcp(accepted_never).unwrap().error(), Some(tcp::Error::Reset));
    assert_eq!(world.stack(0).tcp(half_open).unwrap().error(), Some(tcp::Error::Reset));
    assert_eq!(world.stack(1).socket_count(), 0);
}

#[test]
fn a_connection_that_is_reset_before_it_is_accepted_says_so_then() {
    let mut world = World::new(5, LinkConfig::default());
    let listener = world.listen(1, 80);
    let client = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    world.stack(0).tcp_abort(client);
    world.run_for(Duration::from_millis(10));
    let server = world.stack(1).tcp_accept(listener).unwrap();
    assert_eq!(world.stack(1).tcp(server).unwrap().error(), Some(tcp::Error::Reset));
    let now = world.now;
    world.stack(1).close(now, server).unwrap();
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.stack(1).socket_count(), 1);
}

#[test]
fn nobody_listens_is_refused() {
    let mut world = World::new(6, LinkConfig::default());
    let client = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.stack(0).tcp(client).unwrap().error(), Some(tcp::Error::Refused));
    assert_eq!(world.stack(1).stats().resets_out, 1);
}

#[test]
fn resets_follow_the_rules() {
    let mut world = World::new(7, LinkConfig::default());
    let source = at(0, 999);
    world.log = Some(Vec::new());
    let give = |world: &mut World, packet: Vec<u8>| {
        world.inject(1, build::ethernet(0, 1, &packet));
        world.flush();
        build::tcp_segments(&world.log.replace(Vec::new()).unwrap(), 1)
    };
    // Resolve the neighbour first.
    give(&mut world, build::udp(source, at(1, 9), b""));
    world.run_for(Duration::from_millis(10));
    world.log = Some(Vec::new());
    // RFC 9293 §3.10.7.1: by the acknowledgement's number if there is one, else acknowledging the segment.
    let resets = give(&mut world, build::tcp(source, at(1, 80), Flags::ACK, 5, 777, b"abc"));
    assert_eq!((resets[0].seq.0, resets[0].flags), (777, Flags::RST));
    let resets = give(&mut world, build::tcp(source, at(1, 80), Flags::SYN, 5, 0, b"abc"));
    assert_eq!((resets[0].seq.0, resets[0].ack.0, resets[0].flags), (0, 9, Flags::RST | Flags::ACK));
    // Never for a reset, never for what came to all.
    assert!(give(&mut world, build::tcp(source, at(1, 80), Flags::RST, 5, 0, b"")).is_empty());
    let to_all = SocketAddr::from(([10, 0, 0, 255], 80));
    assert!(give(&mut world, build::tcp(source, to_all, Flags::SYN, 5, 0, b"")).is_empty());
    assert_eq!(world.stack(1).stats().drop_tcp_broadcast, 1);
    // As many as are asked for, as on Linux; what the device does not take is bounded.
    let before = world.stack(1).stats().resets_out;
    for seq in 0..1000 {
        assert_eq!(give(&mut world, build::tcp(source, at(1, 80), Flags::SYN, seq, 0, b"")).len(), 1);
    }
    assert_eq!(world.stack(1).stats().resets_out, before + 1000);
    assert_eq!(world.stack(1).stats().drop_control_queue, 0);
    for seq in 0..100_000 {
        world.inject(1, build::ethernet(0, 1, &build::tcp(source, at(1, 80), Flags::SYN, seq, 0, b"")));
    }
    assert!(world.stack(1).stats().drop_control_queue > 90_000);
}

#[test]
fn a_listener_answers_a_stray_acknowledgement_with_a_reset() {
    let mut world = World::new(8, LinkConfig::default());
    world.listen(1, 80);
    let packet = build::tcp(at(0, 999), at(1, 80), Flags::ACK, 5, 777, b"");
    world.inject(1, build::ethernet(0, 1, &packet));
    let packet = build::tcp(at(0, 999), at(1, 80), Flags::FIN, 5, 0, b"");
    world.inject(1, build::ethernet(0, 1, &packet));
    let stats = world.stack(1).stats();
    assert_eq!((stats.drop_listen_segment, stats.resets_out), (2, 1));
}

#[test]
fn half_open_connections_are_bounded_over_all_listeners() {
    let syn_cookies = SynCookieMode::Off;
    let config = StackConfig { max_half_open: 50, syn_cookies, ..StackConfig::default() };
    let mut world = World::with_config(9, LinkConfig::default(), config);
    let first = world.stack(1).tcp_listen(any(80), 1000, (), &SocketOptions::default()).unwrap();
    let second = world.stack(1).tcp_listen(any(81), 1000, (), &SocketOptions::default()).unwrap();
    for number in 0..500u32 {
        let source = SocketAddr::new(ip(0), 1024 + number as u16);
        let packet = build::tcp(source, at(1, 80 + (number & 1) as u16), Flags::SYN, number, 0, b"");
        world.inject(1, build::ethernet(0, 1, &packet));
        world.now += Duration::from_millis(1);
    }
    let half_open = [first, second].map(|id| world.stack(1).tcp_backlog(id).unwrap().1);
    assert_eq!(half_open.iter().sum::<usize>(), 50);
    let stats = world.stack(1).stats();
    assert_eq!(stats.drop_half_open + stats.drop_syn_queue, 450);
    assert!(stats.drop_half_open >= 200, "{}", stats.drop_half_open);
}

#[test]
fn bound_then_listening_or_connected_keeps_its_name() {
    let mut world = World::new(10, LinkConfig::default());
    let options = SocketOptions::default();
    let id = world.stack(1).tcp_bind(any(0), &options).unwrap();
    assert_eq!(world.stack(1).kind(id), Some(SocketKind::TcpBound));
    let local = world.stack(1).local_addr(id).unwrap();
    assert!(local.port() >= 32_768);
    world.stack(1).tcp_listen_bound(id, 5, ()).unwrap();
    assert_eq!(world.stack(1).kind(id), Some(SocketKind::TcpListener));
    let client = world.stack(0).tcp_bind(at(0, 1234), &options).unwrap();
    let now = world.now;
    let remote = at(1, local.port());
    world.stack(0).tcp_connect_bound(now, client, remote, Default::default()).unwrap();
    let again = world.stack(0).tcp_connect_bound(now, client, remote, Default::default());
    assert_eq!(again, Err(SocketError::AlreadyConnected));
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.state(0, client), State::Established);
    let server = world.stack(1).tcp_accept(id).unwrap();
    assert_eq!(world.stack(1).remote_addr(server), Some(at(0, 1234)));
}
