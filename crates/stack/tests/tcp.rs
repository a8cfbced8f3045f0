//! TCP between two hosts: transfers over all kinds of links, closing, resetting, half-closing.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::{Duration, Rng, SeededRng};
use common::{Incoming, LinkConfig, Offload, Outgoing, World, at};
use outboard_stack::{Change, SocketOptions};
use tcp::State;
use wire::frame::Medium;

/// Both directions at once over the link; returns the virtual time it took.
fn transfer(seed: u64, link: LinkConfig, total: u64) -> Duration {
    let mut world = World::new(seed, link);
    let (client, server) = world.pair(80);
    let start = world.now;
    let (mut up, mut down) = (Outgoing::new(1, total), Outgoing::new(2, total));
    let (mut at_server, mut at_client) = (Incoming::new(1), Incoming::new(2));
    let done = world.run_until(Duration::from_secs(3600), |world| {
        world.pump(0, client, &mut up);
        world.pump(1, server, &mut down);
        world.drain(1, server, &mut at_server);
        world.drain(0, client, &mut at_client);
        at_server.finished && at_client.finished
    });
    assert!(done, "{link:?} seed {seed}: {at_server:?} {at_client:?}");
    assert_eq!((at_server.read, at_client.read), (total, total));
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    world.stack(1).close(now, server).unwrap();
    world.run_for(Duration::from_secs(200));
    for host in 0..2 {
        assert_eq!(world.stack(host).socket_count(), 0, "host {host}");
        assert_eq!(world.stack(host).time_wait_count(), 0, "host {host}");
        assert_eq!(world.stack(host).timer_count(), 0, "host {host}");
    }
    now.saturating_since(start)
}

#[test]
fn connect_send_close() {
    let mut world = World::new(1, LinkConfig::default());
    let listener = world.listen(1, 80);
    let client = world.connect(0, at(1, 80));
    assert!(world.run_until(Duration::from_secs(1), |world| {
        world.state(0, client) == State::Established
            && world.hosts[1].changes.contains(&Change::Updated(listener))
    }));
    let server = world.stack(1).tcp_accept(listener).unwrap();
    assert_eq!(world.stack(1).tcp_accept(listener), None);
    assert_eq!(world.stack(1).remote_addr(server), world.stack(0).local_addr(client));
    let stack = world.stack(0);
    let queued = stack.stream(client).unwrap().write(b"hello");
    stack.tcp_send(client, queued);
    stack.tcp_shutdown(client);
    assert!(world.run_until(Duration::from_secs(1), |world| {
        world.stack(1).tcp(server).is_some_and(|tcp| tcp.is_peer_closed())
    }));
    let (connection, stream) = world.stack(1).tcp_and_stream(server).unwrap();
    let mut read = Vec::new();
    stream.read(connection.received_to(), &mut read);
    assert_eq!(read, b"hello");
    let now = world.now;
    world.stack(1).tcp_consumed(now, server, 5);
    world.stack(0).set_user_data(client, 77);
    world.stack(1).close(now, server).unwrap();
    world.stack(0).close(now, client).unwrap();
    assert_eq!(world.stack(0).close(now, client), Err(outboard_stack::SocketError::NoSuchSocket));
    world.run_for(Duration::from_secs(1));
    assert!(world.hosts[0].changes.contains(&Change::Released { id: client, user_data: 77 }));
    assert!(world.hosts[1].changes.contains(&Change::Released { id: server, user_data: 0 }));
    assert!(world.stack(0).tcp(client).is_none());
    assert_eq!(world.stack(0).time_wait_count() + world.stack(1).time_wait_count(), 1);
    world.run_for(Duration::from_secs(61));
    assert_eq!(world.stack(0).time_wait_count() + world.stack(1).time_wait_count(), 0);
}

#[test]
fn bulk_at_every_mtu_with_and_without_super_segments() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        for mtu in [576, 1500, 9000, 65_535] {
            for offload in [Offload::None, Offload::SoftwareCut, Offload::Full] {
                transfer(7, LinkConfig { medium, mtu, offload, ..LinkConfig::default() }, 2_000_000);
            }
        }
    }
}

#[test]
fn bulk_over_bad_links() {
    for seed in 0..10 {
        let mut rng = SeededRng::new(seed);
        let link = LinkConfig {
            mtu: [576, 1500, 9000][rng.below(3) as usize],
            offload: [Offload::None, Offload::SoftwareCut, Offload::Full][rng.below(3) as usize],
            delay: Duration::from_micros(100 + rng.below(20_000)),
            loss: rng.below(30),
            duplicate: rng.below(50),
            reorder: rng.below(200),
            corrupt: rng.below(20),
            ..LinkConfig::default()
        };
        transfer(seed, link, 500_000);
    }
}

#[test]
fn half_close_leaves_the_other_direction_open() {
    let mut world = World::new(3, LinkConfig::default());
    let (client, server) = world.pair(80);
    world.stack(0).tcp_shutdown(client);
    assert!(world.run_until(Duration::from_secs(1), |world| world.state(0, client) == State::FinWait2));
    let (mut down, mut incoming) = (Outgoing::new(5, 300_000), Incoming::new(5));
    assert!(world.run_until(Duration::from_secs(60), |world| {
        world.pump(1, server, &mut down);
        world.drain(0, client, &mut incoming);
        incoming.finished
    }));
    assert_eq!(incoming.read, 300_000);
}

#[test]
fn closing_with_unread_data_resets() {
    let mut world = World::new(4, LinkConfig::default());
    let (client, server) = world.pair(80);
    let stack = world.stack(0);
    let queued = stack.stream(client).unwrap().write(b"nobody reads this");
    stack.tcp_send(client, queued);
    world.run_for(Duration::from_millis(100));
    let now = world.now;
    world.stack(1).close(now, server).unwrap();
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.stack(0).tcp(client).unwrap().error(), Some(tcp::Error::Reset));
    assert!(world.hosts[1].changes.contains(&Change::Released { id: server, user_data: 0 }));
    // The failed connection is not released before its owner closes it.
    assert!(!world.hosts[0].changes.iter().any(|change| matches!(change, Change::Released { .. })));
    world.stack(0).close(now, client).unwrap();
    world.run_for(Duration::from_millis(100));
    assert!(world.hosts[0].changes.contains(&Change::Released { id: client, user_data: 0 }));
}

#[test]
fn abort_resets_and_is_released_after_close() {
    let mut world = World::new(5, LinkConfig::default());
    let (client, server) = world.pair(80);
    world.stack(0).tcp_abort(client);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.stack(1).tcp(server).unwrap().error(), Some(tcp::Error::Reset));
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    world.stack(1).close(now, server).unwrap();
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.stack(0).socket_count() + world.stack(1).socket_count(), 0);
}

#[test]
fn an_orphan_delivers_what_was_queued() {
    let mut world = World::new(6, LinkConfig { loss: 20, ..LinkConfig::default() });
    let (client, server) = world.pair(80);
    let mut outgoing = Outgoing { shut_at_end: false, ..Outgoing::new(9, 200_000) };
    world.pump(0, client, &mut outgoing);
    assert_eq!(outgoing.written, 200_000);
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    let mut incoming = Incoming::new(9);
    assert!(world.run_until(Duration::from_secs(60), |world| {
        world.drain(1, server, &mut incoming);
        incoming.finished
    }));
    assert_eq!(incoming.read, 200_000);
}

#[test]
fn an_orphan_without_a_peer_is_given_up() {
    let mut world = World::new(8, LinkConfig::default());
    let (client, _) = world.pair(80);
    let queued = world.stack(0).stream(client).unwrap().write(b"into the void");
    world.stack(0).tcp_send(client, queued);
    world.link.loss = 1000;
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    world.run_for(Duration::from_secs(130));
    assert_eq!(world.stack(0).socket_count(), 0);
    assert!(world.hosts[0].changes.contains(&Change::Released { id: client, user_data: 0 }));
}

#[test]
fn connection_between_sockets_of_one_stack() {
    let mut world = World::new(9, LinkConfig::default());
    let listener = world.listen(0, 80);
    let client = world.connect(0, at(0, 80));
    let mut server = None;
    assert!(world.run_until(Duration::from_secs(1), |world| {
        server = server.or_else(|| world.stack(0).tcp_accept(listener));
        server.is_some()
    }));
    let server = server.unwrap();
    let (mut up, mut down) = (Outgoing::new(1, 1_000_000), Outgoing::new(2, 1_000_000));
    let (mut at_server, mut at_client) = (Incoming::new(1), Incoming::new(2));
    assert!(world.run_until(Duration::from_secs(60), |world| {
        world.pump(0, client, &mut up);
        world.pump(0, server, &mut down);
        world.drain(0, server, &mut at_server);
        world.drain(0, client, &mut at_client);
        at_server.finished && at_client.finished
    }));
    assert_eq!((at_server.read, at_client.read), (1_000_000, 1_000_000));
    assert_eq!(world.stack(0).stats().tcp_no_socket, 0);
    // Nothing of it was seen on the link but our announcements.
    assert!(world.frames <= 4, "{} frames", world.frames);
}

#[test]
fn a_device_that_is_not_ready_loses_nothing() {
    let mut world = World::new(10, LinkConfig::default());
    let (client, server) = world.pair(80);
    let (mut up, mut incoming) = (Outgoing::new(1, 500_000), Incoming::new(1));
    let mut turns = 0u32;
    assert!(world.run_until(Duration::from_secs(60), |world| {
        turns += 1;
        world.hosts[0].device_ready = !turns.is_multiple_of(3);
        world.pump(0, client, &mut up);
        world.drain(1, server, &mut incoming);
        incoming.finished
    }));
    assert_eq!(incoming.read, 500_000);
    assert_eq!(world.stack(0).stats().transmit_refused, 0);
    assert_eq!(world.stack(0).tcp(client).unwrap().stats().retransmissions, 0);
}

#[test]
fn many_connections_at_once() {
    let mut world = World::new(11, LinkConfig { loss: 5, ..LinkConfig::default() });
    let listener = world.stack(1).tcp_listen(at(1, 80), 1000, (), &SocketOptions::default()).unwrap();
    let clients: Vec<_> = (0..300).map(|_| world.connect(0, at(1, 80))).collect();
    let mut servers = Vec::new();
    assert!(world.run_until(Duration::from_secs(120), |world| {
        while let Some(id) = world.stack(1).tcp_accept(listener) {
            servers.push((id, Incoming::new(3)));
        }
        servers.len() == clients.len()
    }));
    let mut sending: Vec<_> = clients.iter().map(|&id| (id, Outgoing::new(3, 20_000))).collect();
    assert!(world.run_until(Duration::from_secs(600), |world| {
        for (id, outgoing) in &mut sending {
            world.pump(0, *id, outgoing);
        }
        for (id, incoming) in &mut servers {
            world.drain(1, *id, incoming);
        }
        servers.iter().all(|(_, incoming)| incoming.finished)
    }));
    assert!(servers.iter().all(|(_, incoming)| incoming.read == 20_000));
}

#[test]
fn an_attempt_gives_up_after_as_many_syns_as_its_owner_wants() {
    for (retries, seconds) in [(1, 3), (2, 7)] {
        let mut world = World::new(1, LinkConfig::default());
        world.run_for(Duration::from_secs(20));
        let (now, options) =
            (world.now, SocketOptions { syn_retries: Some(retries), ..SocketOptions::default() });
        // The neighbour is known, and says nothing: its end of the link loses all.
        let local = world.connect(0, at(1, 81));
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.state(0, local), State::Closed, "refused: it is there");
        world.link.loss = 1000;
        let stack = world.stack(0);
        let id = stack.tcp_connect(now, None, at(1, 80), Default::default(), &options).unwrap();
        world.run_for(Duration::from_secs(seconds - 1));
        assert_eq!(world.state(0, id), State::SynSent, "{retries}");
        world.run_for(Duration::from_secs(2));
        let connection = world.stack(0).tcp(id).unwrap();
        assert_eq!(connection.error(), Some(tcp::Error::TimedOut), "{retries}");
    }
}
