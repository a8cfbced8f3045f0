//! Processes that fork: their sockets go from one application to another, and end with the last that has them.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use base::Duration;
use channel::app::{ReceiveStream, SendStream};
use channel::{Command, State};
use common::{App, Stream, World, pattern};
use stack::SocketId;

/// An answer is looked for in the record; the world is stepped by the test, so nobody waits.
fn claim(world: &mut World, app: &App, identity: u64) -> Result<Stream, State> {
    let socket = app.channel.new_socket().unwrap();
    app.post(Command::Claim { socket, sequence: 7, identity });
    world.settle();
    let state = app.state(socket);
    if state.is_empty() {
        return Err(state);
    }
    // What the answer tells of the streams, as `Channel::claim` reads it.
    let (consumed, queued) = app.channel.claimed();
    Ok(Stream {
        socket,
        send: SendStream::resumed(app.channel.clone(), socket, queued),
        receive: ReceiveStream::resumed(app.channel.clone(), socket, consumed),
    })
}

fn identity_of(app: &App, socket: u32) -> u64 {
    app.channel.record(socket).identity().unwrap()
}

/// All that the peer gets within a second.
fn peer_gets(world: &mut World, peer: SocketId) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..200 {
        world.pass(Duration::from_millis(5));
        bytes.extend(world.peer_reads(peer));
    }
    bytes
}

#[test]
fn a_connection_goes_on_where_it_was_left() {
    let (mut world, parent, mut stream, peer) = common::connected();
    let (sent, received) = (pattern(1, 0, 400_000), pattern(2, 0, 60_000));
    world.peer_sends(peer, &received);
    world.settle();
    let mut got = stream.read();
    assert!(!got.is_empty());
    // The peer's window keeps most of it from being acknowledged when it goes over.
    let first = stream.write(&sent);
    assert!(first > 100_000);
    world.settle();
    let child = world.child(&parent);
    let identity = identity_of(&parent, stream.socket);
    let mut heir = claim(&mut world, &child, identity).unwrap();
    assert!(parent.state(stream.socket).contains(State::MOVED));
    // What the parent still asks of its number neither harms the connection nor the parent.
    parent.post(Command::Send { socket: stream.socket, queued_to: 1 << 40 });
    parent.post(Command::Consumed { socket: stream.socket });
    stream.close(&parent);
    let mut written = first;
    let mut answer = Vec::new();
    for _ in 0..400 {
        written += heir.write(&sent[written..]);
        got.extend(heir.read());
        world.pass(Duration::from_millis(2));
        answer.extend(world.peer_reads(peer));
    }
    assert_eq!(written, sent.len());
    assert!(answer == sent && got == received);
    heir.close(&child);
    world.pass(Duration::from_millis(10));
    assert!(world.peer.tcp(peer).unwrap().is_peer_closed());
}

#[test]
fn what_follows_at_once_is_not_lost_behind_what_was_queued_before() {
    let (mut world, parent, mut stream, peer) = common::connected();
    let sent = pattern(4, 0, 300_000);
    let first = stream.write(&sent[..200_000]);
    // The peer, which does not read, lets most of it wait.
    world.settle();
    let child = world.child(&parent);
    let identity = identity_of(&parent, stream.socket);
    let mut heir = claim(&mut world, &child, identity).unwrap();
    // It writes, shuts and closes while most of the parent's bytes are not acknowledged.
    let second = heir.write(&sent[first..]);
    heir.close(&child);
    stream.close(&parent);
    let got = peer_gets(&mut world, peer);
    assert_eq!(got.len(), first + second);
    assert!(got == sent[..first + second]);
    assert!(world.peer.tcp(peer).unwrap().is_peer_closed());
    assert!(world.peer.tcp(peer).unwrap().error().is_none());
}

#[test]
fn a_connection_ends_with_the_last_process_that_has_it() {
    let (mut world, parent, stream, peer) = common::connected();
    let children = [world.child(&parent), world.child(&parent)];
    stream.close(&parent);
    world.pass(Duration::from_millis(10));
    assert!(!world.peer.tcp(peer).unwrap().is_peer_closed(), "two children have it");
    for (index, child) in children.into_iter().enumerate() {
        world.worker.end_application(child.place);
        drop(child);
        world.pass(Duration::from_millis(10));
        assert_eq!(world.peer.tcp(peer).unwrap().is_peer_closed(), index == 1);
    }
    world.worker.end_application(parent.place);
    drop(parent);
    world.peer.close(world.now, peer).unwrap();
    world.let_linger();
    world.assert_empty();
}

#[test]
fn who_was_forked_after_a_socket_was_closed_does_not_keep_it() {
    let (mut world, parent, stream, peer) = common::connected();
    let early = world.child(&parent);
    let identity = identity_of(&parent, stream.socket);
    let heir = claim(&mut world, &early, identity).unwrap();
    stream.close(&parent);
    world.settle();
    let late = world.child(&parent);
    assert!(claim(&mut world, &late, identity).is_err());
    heir.close(&early);
    world.pass(Duration::from_millis(10));
    assert!(world.peer.tcp(peer).unwrap().is_peer_closed());
    drop(late);
}

#[test]
fn a_connection_that_is_accepted_later_is_not_the_childs() {
    let mut world = World::new();
    let mut parent = world.app();
    parent.listen(80);
    let peer = world.peer_connects(80);
    world.settle();
    // Announced, and not accepted by the program yet.
    let socket = parent.accepted()[0];
    let child = world.child(&parent);
    let stream = parent.stream(socket);
    let identity = identity_of(&parent, socket);
    assert!(claim(&mut world, &child, identity).is_err());
    stream.close(&parent);
    world.pass(Duration::from_millis(10));
    assert!(world.peer.tcp(peer).unwrap().is_peer_closed());
}

#[test]
fn nobody_claims_what_a_stranger_has() {
    let (mut world, parent, stream, _) = common::connected();
    let (stranger, child) = (world.app(), world.child(&parent));
    let identity = identity_of(&parent, stream.socket);
    for wrong in [identity, 0, 1, identity + 1, u64::MAX, u64::MAX - 1, 1 << 32, 1 << 63] {
        assert!(claim(&mut world, &stranger, wrong).is_err(), "{wrong}");
    }
    // Nor is one that was opened after the fork the child's.
    world.peer_listens(81);
    let later = parent.connect(81);
    world.settle();
    assert!(claim(&mut world, &child, identity_of(&parent, later.socket)).is_err());
    assert!(claim(&mut world, &child, identity).is_ok());
    // What was claimed twice by one application is where it was claimed last.
    assert!(claim(&mut world, &child, identity).is_ok());
    assert_eq!(world.worker.tables().applications, 3, "nobody was cut off");
}

#[test]
fn claiming_a_number_that_is_in_use_ends_the_application() {
    let (mut world, parent, stream, _) = common::connected();
    let child = world.child(&parent);
    let (identity, taken) = (identity_of(&parent, stream.socket), child.tcp());
    child.post(Command::Claim { socket: taken, sequence: 1, identity });
    world.settle();
    assert!(child.channel.closed().is_some());
    assert!(!parent.state(stream.socket).contains(State::MOVED));
}

#[test]
fn connections_of_a_listener_go_to_all_that_accept() {
    let mut world = World::new();
    let parent = world.app();
    let listener = parent.listen(80);
    world.settle();
    let identity = identity_of(&parent, listener);
    let mut children = [world.child(&parent), world.child(&parent)];
    for child in &children {
        let _ = claim(&mut world, child, identity).unwrap();
    }
    let peers: Vec<SocketId> = (0..8).map(|_| world.peer_connects(80)).collect();
    world.settle();
    let counts = [0, 1].map(|index: usize| children[index].accepted().len());
    assert_eq!(counts, [4, 4]);
    // One ends, with connections that it has not accepted: the other one gets them.
    let [first, mut second] = children;
    world.worker.end_application(first.place);
    drop(first);
    world.pass(Duration::from_millis(200));
    assert_eq!(second.accepted().len(), 4);
    assert!(peers.iter().all(|&peer| world.peer.tcp(peer).unwrap().error().is_none()));
    // Both gone, the parent is next.
    let late = world.peer_connects(80);
    world.settle();
    world.worker.end_application(second.place);
    drop(second);
    world.pass(Duration::from_millis(200));
    let mut parent = parent;
    assert!(parent.accepted().is_empty(), "it has not said that it accepts");
    let _ = claim(&mut world, &parent, identity).unwrap();
    assert_eq!(parent.accepted().len(), 9);
    assert!(world.peer.tcp(late).unwrap().error().is_none());
}

#[test]
fn thousands_of_children_leave_nothing_behind() {
    let mut world = World::new();
    let mut parent = world.app();
    parent.listen(80);
    world.settle();
    for round in 0..2_000 {
        let peer = world.peer_connects(80);
        world.settle();
        let socket = parent.accepted()[0];
        let stream = parent.stream(socket);
        let child = world.child(&parent);
        let identity = identity_of(&parent, socket);
        let claims = round % 3 != 0;
        let heir = claims.then(|| claim(&mut world, &child, identity).unwrap());
        stream.close(&parent);
        if let (Some(heir), true) = (heir, round % 3 == 1) {
            heir.close(&child);
        }
        world.worker.end_application(child.place);
        drop(child);
        world.settle();
        assert!(world.peer.tcp(peer).unwrap().is_peer_closed(), "round {round}");
        world.peer.tcp_abort(peer);
        world.peer.close(world.now, peer).unwrap();
        world.settle();
        world.peer_looks();
        parent.poll();
    }
    let tables = world.worker.tables();
    assert_eq!((tables.applications, tables.kinship), (1, 2), "{tables:?}");
    world.worker.end_application(parent.place);
    drop(parent);
    world.let_linger();
    world.assert_empty();
}
