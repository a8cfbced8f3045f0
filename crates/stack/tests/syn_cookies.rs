//! A flood of SYNs costs nothing and keeps nobody out.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::Duration;
use common::{LinkConfig, World, at, build};
use outboard_stack::{SocketOptions, StackConfig, SynCookieMode};
use std::net::SocketAddr;
use tcp::State;
use wire::tcp::Flags;

fn config(mode: SynCookieMode) -> StackConfig {
    StackConfig { syn_cookies: mode, max_half_open: 16, ..StackConfig::default() }
}

/// SYNs from all over the neighbourhood, from nobody who answers.
fn flood(world: &mut World, count: u32) {
    for number in 0..count {
        let source = SocketAddr::from(([10, 0, 0, 10 + (number % 200) as u8], 1024 + (number / 200) as u16));
        let packet = build::tcp(source, at(1, 80), Flags::SYN, number.wrapping_mul(77), 0, b"");
        world.inject(1, build::ethernet(0, 1, &packet));
        world.flush();
    }
}

#[test]
fn a_flood_costs_no_memory_and_real_clients_connect_with_all_their_options() {
    let mut world = World::with_config(1, LinkConfig::default(), config(SynCookieMode::WhenFull));
    let listener = world.listen(1, 80);
    flood(&mut world, 20_000);
    let (_, half_open) = world.stack(1).tcp_backlog(listener).unwrap();
    assert_eq!((half_open, world.stack(1).socket_count()), (16, 17));
    let stats = world.stack(1).stats();
    assert_eq!((stats.syn_cookies_sent, stats.drop_half_open), (20_000 - 16, 0));
    let client = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.state(0, client), State::Established);
    let server = world.stack(1).tcp_accept(listener).unwrap();
    for (host, id) in [(0, client), (1, server)] {
        let info = world.stack(host).tcp(id).unwrap().info();
        assert!(info.sack && info.timestamps, "host {host}");
        assert!(info.send_scale.is_some() && info.receive_scale.is_some(), "host {host}");
    }
    assert_eq!(world.stack(1).stats().syn_cookies_received, 1);
    let mut transfer = common::Outgoing::new(5, 3_000_000);
    let mut incoming = common::Incoming::new(5);
    let done = world.run_until(Duration::from_secs(30), |world| {
        world.pump(0, client, &mut transfer);
        world.drain(1, server, &mut incoming);
        incoming.finished && incoming.read == 3_000_000
    });
    assert!(done, "{} bytes came", incoming.read);
}

#[test]
fn cookies_can_be_for_all_or_for_none() {
    let mut world = World::with_config(2, LinkConfig::default(), config(SynCookieMode::Always));
    let listener = world.listen(1, 80);
    let clients: Vec<_> = (0..50).map(|_| world.connect(0, at(1, 80))).collect();
    world.run_for(Duration::from_millis(20));
    assert!(clients.iter().all(|&id| world.state(0, id) == State::Established));
    assert_eq!(world.stack(1).tcp_backlog(listener), Some((50, 0)));
    let stats = world.stack(1).stats();
    assert_eq!((stats.syn_cookies_sent, stats.syn_cookies_received), (50, 50));
    assert_eq!((stats.tcp_passive_opens, stats.tcp_established), (50, 50));

    let mut world = World::with_config(3, LinkConfig::default(), config(SynCookieMode::Off));
    world.listen(1, 80);
    flood(&mut world, 100);
    let stats = world.stack(1).stats();
    assert_eq!((stats.syn_cookies_sent, stats.drop_syn_queue), (0, 84));
}

#[test]
fn a_full_accept_queue_drops_the_acknowledged_cookie_and_the_client_gets_in_with_its_data() {
    let mut world = World::with_config(4, LinkConfig::default(), config(SynCookieMode::Always));
    let listener = world.stack(1).tcp_listen(at(1, 80), 0, (), &SocketOptions::default()).unwrap();
    let first = world.connect(0, at(1, 80));
    let second = world.connect(0, at(1, 80));
    world.run_for(Duration::from_millis(10));
    // Both SYNs were answered; one connection may wait.
    assert!([first, second].iter().all(|&id| world.state(0, id) == State::Established));
    assert_eq!(world.stack(1).tcp_backlog(listener), Some((1, 0)));
    assert_eq!(world.stack(1).stats().drop_accept_overflow, 1);
    let server = world.stack(1).tcp_accept(listener).unwrap();
    let waiting =
        if world.stack(1).remote_addr(server) == world.stack(0).local_addr(first) { second } else { first };
    let mut transfer = common::Outgoing::new(6, 1000);
    let mut server = None;
    assert!(world.run_until(Duration::from_secs(10), |world| {
        world.pump(0, waiting, &mut transfer);
        server = server.or_else(|| world.stack(1).tcp_accept(listener));
        server.is_some()
    }));
    let mut incoming = common::Incoming::new(6);
    assert!(world.run_until(Duration::from_secs(10), |world| {
        world.drain(1, server.unwrap(), &mut incoming);
        incoming.read == 1000
    }));
}

#[test]
fn an_acknowledgement_of_nothing_is_only_looked_at_while_a_cookie_may_be_out() {
    let mut world = World::with_config(5, LinkConfig::default(), config(SynCookieMode::WhenFull));
    world.listen(1, 80);
    let stray = |world: &mut World| {
        let packet = build::tcp(at(0, 999), at(1, 80), Flags::ACK, 5, 777, b"");
        world.inject(1, build::ethernet(0, 1, &packet));
        let stats = world.stack(1).stats();
        (stats.syn_cookies_failed, stats.resets_out, stats.drop_listen_segment)
    };
    assert_eq!(stray(&mut world), (0, 1, 1));
    flood(&mut world, 20);
    assert_eq!(stray(&mut world), (1, 2, 2));
    world.run_for(tcp::COOKIE_LIFETIME);
    assert_eq!(stray(&mut world), (1, 3, 3));
}
