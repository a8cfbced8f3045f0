//! What an application may not exceed, and that it gets on when there is room again.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use base::Duration;
use channel::{Command, State};
use common::{World, pattern, small_limits};
use outboard_fep::config::Limits;

#[test]
fn accepted_connections_wait_for_a_free_number() {
    let mut world = World::with_limits(Limits { sockets: 8, ..small_limits() });
    let mut app = world.app();
    app.listen(7);
    world.settle();
    let peers: Vec<_> = (0..6).map(|_| world.peer_connects(7)).collect();
    world.pass(Duration::from_millis(50));
    let accepted = app.accepted();
    // Half of the numbers are for connections that are accepted.
    assert_eq!(accepted.len(), 4);
    for &peer in &peers {
        assert_eq!(world.peer.tcp(peer).unwrap().state(), tcp::State::Established);
    }
    for &socket in &accepted[..2] {
        app.post(Command::Close { socket });
    }
    world.pass(Duration::from_millis(50));
    for &peer in &peers {
        if world.peer.tcp(peer).unwrap().is_peer_closed() {
            world.peer.close(world.now, peer).unwrap();
        }
    }
    world.pass(Duration::from_millis(50));
    let mut late = app.accepted();
    world.pass(Duration::from_millis(50));
    late.extend(app.accepted());
    assert_eq!(late.len(), 2, "the numbers that came back are used again");
}

#[test]
fn receive_memory_stays_below_the_limit_and_the_rest_is_not_lost() {
    let mut world = World::with_limits(Limits { buffer_bytes: 1 << 20, ..small_limits() });
    let mut app = world.app();
    app.listen(7);
    world.settle();
    let peers: Vec<_> = (0..24).map(|_| world.peer_connects(7)).collect();
    world.settle();
    let mut streams: Vec<_> = app.accepted().into_iter().map(|socket| app.stream(socket)).collect();
    assert_eq!(streams.len(), 24);
    const EACH: usize = 900_000;
    for (&peer, seed) in peers.iter().zip(0..) {
        world.peer_sends(peer, &pattern(seed, 0, EACH));
    }
    for _ in 0..200 {
        world.pass(Duration::from_millis(10));
        let used = world.worker.status().applications[0].buffer_bytes;
        // The area is rounded up to whole blocks of 16 MiB.
        assert!(used <= 16 << 20, "{used}");
    }
    let order: Vec<_> = app.accepted();
    assert!(order.is_empty());
    let mut received = vec![Vec::new(); streams.len()];
    for _ in 0..20_000 {
        if received.iter().all(|bytes: &Vec<u8>| bytes.len() == EACH) {
            break;
        }
        world.pass(Duration::from_millis(20));
        for (stream, bytes) in streams.iter_mut().zip(&mut received) {
            bytes.extend(stream.read());
        }
    }
    // A number says nothing of which peer it is; the contents do.
    let mut seen: Vec<u64> = received
        .iter()
        .map(|bytes| {
            (0..24).find(|seed| *bytes == pattern(*seed, 0, EACH)).expect("one of the streams, whole")
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..24).collect::<Vec<_>>());
}

#[test]
fn idle_connections_hold_no_receive_memory() {
    let (mut world, app, mut stream, peer) = common::connected();
    world.peer_sends(peer, &pattern(1, 0, 50_000));
    world.settle();
    assert!(world.worker.status().applications[0].buffer_bytes >= 50_000);
    assert_eq!(stream.read().len(), 50_000);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.worker.status().applications[0].buffer_bytes, 0);
    assert_eq!(world.worker.tables().watched_for_idleness, 0);
    // It still works, with memory that is lent again.
    world.peer_sends(peer, b"again");
    world.settle();
    assert_eq!(stream.read(), b"again");
    assert!(app.state(stream.socket).contains(State::CONNECTED));
}

#[test]
fn nothing_is_due_while_connections_are_idle() {
    let mut world = World::with_limits(Limits { sockets: 256, ..small_limits() });
    let listener = world.peer_listens(80);
    let app = world.app();
    let streams: Vec<_> = (0..100).map(|_| app.connect(80)).collect();
    world.settle();
    while world.peer.tcp_accept(listener).is_some() {}
    world.pass(Duration::from_secs(120));
    let turns = world.worker.status().worker.turns;
    world.pass(Duration::from_secs(600));
    let during = world.worker.status().worker.turns - turns;
    assert!(during < 20, "{during} turns in ten idle minutes");
    assert_eq!(streams.len(), 100);
}
