//! Who may have which address and port, and when none is left.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::Duration;
use common::{LinkConfig, World, at, build};
use outboard_stack::{SocketError, SocketId, SocketOption, SocketOptions, StackConfig};
use std::collections::HashSet;
use std::net::SocketAddr;
use wire::tcp::Flags;

fn any(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

fn reuse() -> SocketOptions {
    SocketOptions { reuse_address: true, ..SocketOptions::default() }
}

#[test]
fn ephemeral_ports_are_unique_run_out_and_come_back() {
    let config = StackConfig { ephemeral_ports: (50_000, 50_099), ..StackConfig::default() };
    let mut world = World::with_config(1, LinkConfig::default(), config);
    let (now, options) = (world.now, SocketOptions::default());
    let mut connect = |remote| world.stack(0).tcp_connect(now, None, remote, Default::default(), &options);
    let ids: Vec<_> = (0..100).map(|_| connect(at(1, 80)).unwrap()).collect();
    assert_eq!(connect(at(1, 80)), Err(SocketError::AddressNotAvailable));
    // Another destination has ports of its own.
    assert!(connect(at(1, 81)).is_ok());
    let ports: HashSet<u16> = ids.iter().map(|&id| world.stack(0).local_addr(id).unwrap().port()).collect();
    assert_eq!(ports.len(), 100);
    assert!(ports.iter().all(|port| (50_000..50_100).contains(port)));
    world.stack(0).close(now, ids[40]).unwrap();
    world.run_for(Duration::from_millis(1));
    assert!(world.stack(0).tcp_connect(now, None, at(1, 80), Default::default(), &options).is_ok());
}

#[test]
fn ports_cannot_be_guessed_from_one_another() {
    let mut world = World::new(2, LinkConfig::default());
    let mut ports = Vec::new();
    for remote in 0..50 {
        let id = world.connect(0, at(1, 1000 + remote));
        ports.push(i32::from(world.stack(0).local_addr(id).unwrap().port()));
    }
    let close = ports.windows(2).filter(|pair| (pair[0] - pair[1]).abs() < 10).count();
    assert!(close <= 3, "{ports:?}");
}

#[test]
fn a_listener_needs_reuse_beside_connections_and_time_wait() {
    let mut world = World::new(3, LinkConfig::default());
    let listener = world.stack(1).tcp_listen(any(80), 10, (), &SocketOptions::default()).unwrap();
    let client = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    let server = world.stack(1).tcp_accept(listener).unwrap();
    let now = world.now;
    let mut listen = |options: &SocketOptions| {
        let listener = world.stack(1).tcp_listen(any(80), 10, (), options);
        listener.inspect(|&id| world.stack(1).close(now, id).unwrap()).map(|_| ())
    };
    assert_eq!(listen(&reuse()), Err(SocketError::AddressInUse));
    world.stack(1).close(now, listener).unwrap();
    // The connection still holds the port, and did not want to share it.
    let listen = |world: &mut World, options: &SocketOptions| {
        let now = world.now;
        let listener = world.stack(1).tcp_listen(any(80), 10, (), options);
        listener.inspect(|&id| world.stack(1).close(now, id).unwrap()).map(|_| ())
    };
    assert_eq!(listen(&mut world, &reuse()), Err(SocketError::AddressInUse));
    // The server closes first: TIME-WAIT is on its side and holds the port too.
    world.stack(1).close(now, server).unwrap();
    world.run_for(Duration::from_millis(10));
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    world.run_for(Duration::from_millis(10));
    assert_eq!((world.stack(1).socket_count(), world.stack(1).time_wait_count()), (0, 1));
    assert_eq!(listen(&mut world, &SocketOptions::default()), Err(SocketError::AddressInUse));
    world.run_for(Duration::from_secs(61));
    assert_eq!(listen(&mut world, &SocketOptions::default()), Ok(()));
}

#[test]
fn with_reuse_a_server_starts_again_beside_time_wait() {
    let mut world = World::new(4, LinkConfig::default());
    let listener = world.stack(1).tcp_listen(any(80), 10, (), &reuse()).unwrap();
    let client = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    let server = world.stack(1).tcp_accept(listener).unwrap();
    let now = world.now;
    world.stack(1).close(now, server).unwrap();
    world.run_for(Duration::from_millis(10));
    world.stack(0).close(now, client).unwrap();
    world.stack(1).close(now, listener).unwrap();
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.stack(1).time_wait_count(), 1);
    let again = world.stack(1).tcp_listen(any(80), 10, (), &reuse()).unwrap();
    let plain = world.stack(1).tcp_listen(any(80), 10, (), &reuse());
    assert_eq!(plain, Err(SocketError::AddressInUse));
    let client = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    assert!(world.stack(1).tcp_accept(again).is_some());
    assert_eq!(world.state(0, client), tcp::State::Established);
}

#[test]
fn a_new_connection_reopens_time_wait() {
    let mut world = World::new(5, LinkConfig::default());
    let listener = world.stack(1).tcp_listen(any(80), 10, (), &reuse()).unwrap();
    for round in 0..5 {
        let now = world.now;
        let client = world
            .stack(0)
            .tcp_connect(now, Some(at(0, 4000)), at(1, 80), Default::default(), &reuse())
            .unwrap();
        world.run_for(Duration::from_millis(10));
        let server = world.stack(1).tcp_accept(listener).unwrap();
        // The side that accepts closes first, so TIME-WAIT is there and the other port is free at once.
        let now = world.now;
        world.stack(1).close(now, server).unwrap();
        world.run_for(Duration::from_millis(10));
        world.stack(0).close(now, client).unwrap();
        world.run_for(Duration::from_millis(10));
        assert_eq!(world.stack(1).time_wait_count(), 1, "round {round}");
        assert_eq!(world.stack(0).socket_count(), 0);
    }
    assert_eq!(world.stack(1).stats().time_waits, 5);
}

#[test]
fn our_own_time_wait_is_succeeded_when_no_port_is_left() {
    let config = StackConfig { ephemeral_ports: (50_000, 50_000), ..StackConfig::default() };
    let mut world = World::with_config(11, LinkConfig::default(), config);
    let listener = world.stack(1).tcp_listen(any(80), 10, (), &reuse()).unwrap();
    for round in 0..5 {
        let client = world.connect(0, at(1, 80));
        world.run_for(Duration::from_millis(10));
        let server = world.stack(1).tcp_accept(listener).unwrap();
        let now = world.now;
        world.stack(0).close(now, client).unwrap();
        world.run_for(Duration::from_millis(10));
        world.stack(1).close(now, server).unwrap();
        world.run_for(Duration::from_millis(10));
        assert_eq!((world.stack(0).time_wait_count(), world.stack(1).socket_count()), (1, 1), "{round}");
        // Not before our timestamps have moved on.
        let (now, options) = (world.now, SocketOptions::default());
        let early = world.stack(0).tcp_connect(now, None, at(1, 80), Default::default(), &options);
        assert_eq!(early, Err(SocketError::AddressNotAvailable));
        world.run_for(Duration::from_secs(2));
    }
}

#[test]
fn time_wait_records_are_bounded() {
    let config = StackConfig { max_time_wait: 10, ..StackConfig::default() };
    let mut world = World::with_config(6, LinkConfig::default(), config);
    let listener = world.stack(1).tcp_listen(any(80), 100, (), &reuse()).unwrap();
    let clients: Vec<_> = (0..30).map(|_| world.connect(0, at(1, 80))).collect();
    world.run_for(Duration::from_millis(10));
    let now = world.now;
    while let Some(id) = world.stack(1).tcp_accept(listener) {
        world.stack(1).close(now, id).unwrap();
    }
    world.run_for(Duration::from_millis(10));
    for id in clients {
        world.stack(0).close(now, id).unwrap();
    }
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.stack(1).time_wait_count(), 10);
    assert_eq!(world.stack(1).stats().time_wait_overflow, 20);
    assert_eq!(world.stack(1).socket_count(), 1);
}

#[test]
fn addresses_that_are_not_ours_are_refused() {
    let mut world = World::new(7, LinkConfig::default());
    let options = SocketOptions::default();
    let stack = world.stack(0);
    let foreign = stack.tcp_listen(at(1, 80), 5, (), &options);
    assert_eq!(foreign, Err(SocketError::AddressNotAvailable));
    let foreign = stack.udp_bind(at(1, 80), Default::default(), &options);
    assert_eq!(foreign, Err(SocketError::AddressNotAvailable));
    let v6 = stack.tcp_listen("[fe80::1]:80".parse().unwrap(), 5, (), &options);
    assert_eq!(v6, Err(SocketError::FamilyNotSupported));
    // The wildcard of both families listens on the one there is.
    let both = stack.tcp_listen("[::]:80".parse().unwrap(), 5, (), &options).unwrap();
    assert_eq!(stack.local_addr(both), Some(any(80)));
    let now = world.now;
    let mut connect = |remote: &str| {
        let remote = remote.parse().unwrap();
        world.stack(0).tcp_connect(now, None, remote, Default::default(), &options).map(|_| ())
    };
    assert_eq!(connect("192.168.7.7:80"), Err(SocketError::NetworkUnreachable));
    assert_eq!(connect("10.0.0.255:80"), Err(SocketError::NetworkUnreachable));
    assert_eq!(connect("224.0.0.1:80"), Err(SocketError::NetworkUnreachable));
    assert_eq!(connect("[fe80::2]:80"), Err(SocketError::NetworkUnreachable));
    assert_eq!(connect("[::ffff:10.0.0.2]:80"), Ok(()));
}

#[test]
fn the_table_of_sockets_is_bounded() {
    let config = StackConfig { max_sockets: 10, ..StackConfig::default() };
    let mut world = World::with_config(8, LinkConfig::default(), config);
    let options = SocketOptions::default();
    for port in 0..10 {
        world.stack(0).udp_bind(any(1000 + port), Default::default(), &options).unwrap();
    }
    let now = world.now;
    let stack = world.stack(0);
    let full = Err(SocketError::TooManySockets);
    assert_eq!(stack.udp_bind(any(0), Default::default(), &options), full);
    assert_eq!(stack.tcp_bind(any(0), &options), full);
    assert_eq!(stack.tcp_connect(now, None, at(1, 80), Default::default(), &options), full);
}

#[test]
fn too_many_orphans_are_reset() {
    let config = StackConfig { max_orphans: 5, ..StackConfig::default() };
    let mut world = World::with_config(9, LinkConfig::default(), config);
    let listener = world.stack(1).tcp_listen(any(80), 100, (), &reuse()).unwrap();
    let clients: Vec<_> = (0..20).map(|_| world.connect(0, at(1, 80))).collect();
    world.run_for(Duration::from_millis(10));
    while world.stack(1).tcp_accept(listener).is_some() {}
    let now = world.now;
    for id in clients {
        world.stack(0).close(now, id).unwrap();
    }
    world.run_for(Duration::from_millis(10));
    // The servers do not close: five orphans stay in FIN-WAIT-2, the rest were reset.
    assert_eq!(world.stack(0).socket_count(), 5);
    assert_eq!(world.stack(0).stats().orphans_reset, 15);
    world.run_for(Duration::from_secs(100));
    assert_eq!(world.stack(0).socket_count(), 0);
}

#[test]
fn options_set_after_binding_count_from_then_on() {
    let mut world = World::new(10, LinkConfig::default());
    let now = world.now;
    let listener = world.stack(1).tcp_listen(any(80), 10, (), &SocketOptions::default()).unwrap();
    world.stack(1).set_option(now, listener, SocketOption::ReuseAddress(true)).unwrap();
    world.stack(1).set_option(now, listener, SocketOption::NoDelay(true)).unwrap();
    world.stack(1).set_option(now, listener, SocketOption::Ttl(3)).unwrap();
    world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    let server = world.stack(1).tcp_accept(listener).unwrap();
    assert!(world.stack(1).tcp(server).unwrap().nodelay());
    let now = world.now;
    world.stack(1).close(now, listener).unwrap();
    // The accepted connection shares its port as its listener would have.
    assert!(world.stack(1).tcp_listen(any(80), 10, (), &reuse()).is_ok());
    let udp = world.stack(0).udp_bind(any(7), Default::default(), &SocketOptions::default()).unwrap();
    let refused = world.stack(0).set_option(now, udp, SocketOption::NoDelay(true));
    assert_eq!(refused, Err(SocketError::NotSupported));
    assert!(world.stack(0).set_option(now, udp, SocketOption::Broadcast(true)).is_ok());
}

#[test]
fn finding_no_port_costs_no_more_when_there_are_more_of_them() {
    let config = StackConfig { ephemeral_ports: (20_000, 49_999), ..StackConfig::default() };
    let mut world = World::with_config(20, LinkConfig::default(), config);
    let (now, options) = (world.now, SocketOptions::default());
    let connect =
        |world: &mut World| world.stack(0).tcp_connect(now, None, at(1, 80), Default::default(), &options);
    let ids: Vec<_> = (0..30_000).map(|_| connect(&mut world).unwrap()).collect();
    let ports: HashSet<u16> = ids.iter().map(|&id| world.stack(0).local_addr(id).unwrap().port()).collect();
    assert_eq!(ports.len(), 30_000);
    assert_eq!(connect(&mut world), Err(SocketError::AddressNotAvailable));
    let before = world.stack(0).work().flow_lookups;
    for _ in 0..1000 {
        assert_eq!(connect(&mut world), Err(SocketError::AddressNotAvailable));
    }
    let lookups = world.stack(0).work().flow_lookups - before;
    assert!(lookups <= 1000, "{lookups} lookups for 1000 attempts");
    // One comes free, and is found at once.
    world.stack(0).close(now, ids[12_345]).unwrap();
    world.flush();
    let before = world.stack(0).work().flow_lookups;
    assert!(connect(&mut world).is_ok());
    assert!(world.stack(0).work().flow_lookups - before <= 4);
    assert_eq!(connect(&mut world), Err(SocketError::AddressNotAvailable));
    // When the crowd has gone, ports are chosen as before.
    ids.iter().skip(100).for_each(|&id| {
        let _ = world.stack(0).close(now, id);
    });
    world.flush();
    (0..1000).for_each(|_| assert!(connect(&mut world).is_ok()));
}

/// A connection of host 0 that ends in TIME-WAIT there.
fn close_from_client(world: &mut World, client: SocketId, listener: SocketId) {
    let server = world.stack(1).tcp_accept(listener).unwrap();
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    world.run_for(Duration::from_millis(5));
    let now = world.now;
    world.stack(1).close(now, server).unwrap();
    world.run_for(Duration::from_millis(5));
}

#[test]
fn time_wait_is_succeeded_by_the_client_after_a_second_and_only_with_timestamps() {
    for timestamps in [true, false] {
        let tcp = tcp::Config { timestamps, ..tcp::Config::default() };
        let config = StackConfig { ephemeral_ports: (50_000, 50_003), tcp, ..StackConfig::default() };
        let mut world = World::with_config(21, LinkConfig::default(), config);
        let listener = world.stack(1).tcp_listen(any(80), 10, (), &reuse()).unwrap();
        let connect = |world: &mut World, local| {
            let now = world.now;
            world.stack(0).tcp_connect(now, local, at(1, 80), Default::default(), &reuse())
        };
        for _ in 0..4 {
            let client = connect(&mut world, None).unwrap();
            world.run_for(Duration::from_millis(5));
            close_from_client(&mut world, client, listener);
        }
        assert_eq!(world.stack(0).time_wait_count(), 4);
        assert!(connect(&mut world, None).is_err(), "too early (RFC 6191 §2)");
        world.run_for(Duration::from_secs(1));
        let again = connect(&mut world, None);
        assert_eq!(again.is_ok(), timestamps);
        let Ok(again) = again else { continue };
        assert_eq!(world.stack(0).time_wait_count(), 3);
        world.run_for(Duration::from_millis(5));
        assert_eq!(world.state(0, again), tcp::State::Established);
        // A port that the owner chose is succeeded by the same rule.
        let local = world.stack(0).local_addr(again);
        close_from_client(&mut world, again, listener);
        assert!(connect(&mut world, local).is_err());
        world.run_for(Duration::from_secs(1));
        assert!(connect(&mut world, local).is_ok());
    }
}

#[test]
fn no_reset_ends_time_wait_early() {
    let mut world = World::new(22, LinkConfig::default());
    let listener = world.stack(1).tcp_listen(any(80), 10, (), &reuse()).unwrap();
    let client = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(5));
    let port = world.stack(0).local_addr(client).unwrap().port();
    close_from_client(&mut world, client, listener);
    assert_eq!(world.stack(0).time_wait_count(), 1);
    for seq in [0, 1, u32::MAX / 2, u32::MAX] {
        let packet = build::tcp(at(1, 80), at(0, port), Flags::RST, seq, 0, b"");
        world.inject(0, build::ethernet(1, 0, &packet));
        assert_eq!(world.stack(0).time_wait_count(), 1, "RFC 1337 §3");
    }
}
