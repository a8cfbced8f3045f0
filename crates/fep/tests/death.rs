//! Applications that end at any moment: their peers are treated as by an exiting process under Linux, and everything
//! that they held comes back. (Thousands of them: `death_cycles.rs`.)
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use base::Duration;
use common::{World, pattern};

#[test]
fn connections_that_nobody_accepted_are_reset_by_death_and_the_others_are_closed_in_order() {
    let mut world = World::new();
    let mut app = world.app();
    app.listen(80);
    let taken = world.peer_connects(80);
    let left = world.peer_connects(80);
    world.settle();
    let local = world.peer.local_addr(taken);
    let accepted = app.accepted();
    assert_eq!(accepted.len(), 2, "both were announced");
    let socket = accepted.iter().copied().find(|&socket| app.channel.record(socket).remote() == local);
    app.channel.record(socket.unwrap()).set_taken(true);
    world.worker.end_application(app.place);
    drop(app);
    world.pass(Duration::from_millis(10));
    // As on Linux: the program had not accepted the second one.
    assert_eq!(world.peer.tcp(left).unwrap().error(), Some(tcp::Error::Reset));
    let orderly = world.peer.tcp(taken).unwrap();
    assert!(orderly.is_peer_closed() && orderly.error().is_none());
}

#[test]
fn what_was_sent_before_death_still_arrives() {
    let (mut world, app, mut stream, peer) = common::connected();
    let sent = pattern(3, 0, 300_000);
    assert_eq!(stream.write(&sent), sent.len());
    // It dies before the worker has even seen the command.
    world.worker.end_application(app.place);
    drop(stream);
    drop(app);
    let mut received = Vec::new();
    for _ in 0..200 {
        world.pass(Duration::from_millis(5));
        received.extend(world.peer_reads(peer));
    }
    assert!(received == sent);
    assert!(world.peer.tcp(peer).unwrap().is_peer_closed());
    assert_eq!(world.worker.tables().applications, 0);
    world.peer.close(world.now, peer).unwrap();
    world.let_linger();
    world.assert_empty();
}

#[test]
fn unread_data_at_death_resets_the_connection() {
    let (mut world, app, stream, peer) = common::connected();
    world.peer_sends(peer, b"nobody reads this");
    world.settle();
    world.worker.end_application(app.place);
    drop((stream, app));
    world.pass(Duration::from_millis(50));
    assert_eq!(world.peer.tcp(peer).unwrap().error(), Some(tcp::Error::Reset));
    assert_eq!(world.worker.tables().sockets, 0);
}

#[test]
fn a_dead_listener_refuses() {
    let mut world = World::new();
    let app = world.app();
    app.listen(7);
    world.settle();
    let waiting = world.peer_connects(7);
    world.settle();
    world.worker.end_application(app.place);
    drop(app);
    world.pass(Duration::from_millis(50));
    // The worker has announced it, but the program has not accepted it.
    assert_eq!(world.peer.tcp(waiting).unwrap().error(), Some(tcp::Error::Reset));
    let late = world.peer_connects(7);
    world.pass(Duration::from_millis(50));
    assert_eq!(world.peer.tcp(late).unwrap().error(), Some(tcp::Error::Refused));
    world.peer.close(world.now, waiting).unwrap();
    world.pass(Duration::from_millis(50));
    assert_eq!(world.worker.tables().sockets, 0);
}

#[test]
fn death_in_the_middle_of_a_transfer_frees_everything() {
    let mut world = World::new();
    let listener = world.peer_listens(80);
    let app = world.app();
    let mut streams: Vec<_> = (0..16).map(|_| app.connect(80)).collect();
    world.settle();
    let peers: Vec<_> = std::iter::from_fn(|| world.peer.tcp_accept(listener)).collect();
    assert_eq!(peers.len(), 16);
    for (stream, &peer) in streams.iter_mut().zip(&peers) {
        stream.write(&pattern(1, 0, 200_000));
        world.peer_sends(peer, &pattern(2, 0, 200_000));
    }
    // One round only: frames are on their way in both directions, nothing is acknowledged.
    world.worker.turn(world.now);
    world.worker.end_application(app.place);
    drop((streams, app));
    world.pass(Duration::from_secs(1));
    for &peer in &peers {
        let _ = world.peer.close(world.now, peer);
    }
    world.let_linger();
    world.assert_empty();
}

#[test]
fn a_peer_that_is_gone_too_does_not_hold_an_orphan_for_ever() {
    let mut world = World::new();
    let listener = world.peer_listens(80);
    let app = world.app();
    let mut stream = app.connect(80);
    world.settle();
    world.peer.tcp_accept(listener).unwrap();
    // The peer never reads: its window closes, and what is left can never be sent.
    stream.write(&pattern(1, 0, 4 << 20));
    world.pass(Duration::from_secs(5));
    world.worker.end_application(app.place);
    drop((stream, app));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.worker.tables().applications, 0);
    assert_eq!(world.worker.tables().sockets, 1, "the orphan still tries");
    world.let_linger();
    world.assert_empty();
}
