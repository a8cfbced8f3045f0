//! Two applications of one FEP that talk to each other: no frame, no leak, and the end of one is seen by the other.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::net::SocketAddr;

use base::Duration;
use channel::{Command, State};
use common::{App, OURS, Stream, World, pattern};

/// A connection from one application to a listener of the other; both ends.
fn connect(world: &mut World, client: &App, server: &mut App, port: u16) -> (Stream, Stream) {
    let socket = client.tcp();
    let remote = Some(SocketAddr::new(OURS.parse().unwrap(), port));
    client.post(Command::Connect { socket, sequence: 0, remote });
    world.settle();
    assert!(client.state(socket).contains(State::CONNECTED));
    let accepted = server.accepted();
    assert_eq!(accepted.len(), 1);
    (client.stream(socket), server.stream(accepted[0]))
}

#[test]
fn transactions_between_applications_leave_nothing_behind() {
    const TRANSACTIONS: u64 = 1000;
    let mut world = World::new();
    world.pass(Duration::from_secs(20));
    let (mut client, mut server) = (world.app(), world.app());
    server.listen(80);
    world.settle();
    let before = world.worker.tables();
    for number in 0..TRANSACTIONS {
        let (mut asks, mut answers) = connect(&mut world, &client, &mut server, 80);
        let (request, answer) = (pattern(number, 0, 64), pattern(number + 1, 0, 8192));
        assert_eq!(asks.write(&request), request.len());
        world.settle();
        assert_eq!(answers.read(), request);
        assert_eq!(answers.write(&answer), answer.len());
        answers.close(&server);
        world.settle();
        assert_eq!(asks.read(), answer);
        assert!(client.state(asks.socket).contains(State::PEER_CLOSED));
        asks.close(&client);
        world.settle();
        assert_eq!((client.released().len(), server.released().len()), (1, 1));
        world.now += Duration::from_micros(20);
    }
    world.pass(Duration::from_secs(100));
    let after = world.worker.tables();
    assert_eq!((after.sockets, after.time_waits, after.timers), (before.sockets, 0, before.timers));
    assert_eq!((client.channel.memory().in_use, server.channel.memory().in_use), (0, 0));
}

#[test]
fn a_reader_that_stops_holds_the_writer_and_nobody_else() {
    let mut world = World::new();
    let (client, mut server) = (world.app(), world.app());
    server.listen(80);
    world.settle();
    let (mut writes, mut reads) = connect(&mut world, &client, &mut server, 80);
    let (mut other, mut peer) = connect(&mut world, &client, &mut server, 80);
    let (mut written, mut read, mut idle) = (0, 0, 0);
    while idle < 3 {
        let count = writes.write(&pattern(1, written, 100_000));
        written += count as u64;
        idle = if count == 0 { idle + 1 } else { 0 };
        world.settle();
    }
    assert!((1 << 20..5 << 20).contains(&written), "{written}");
    other.write(b"still here");
    world.settle();
    assert_eq!(peer.read(), b"still here");
    while read < written {
        let bytes = reads.read();
        assert!(!bytes.is_empty(), "at {read} of {written}");
        assert_eq!(bytes, pattern(1, read, bytes.len()));
        read += bytes.len() as u64;
        world.settle();
    }
}

#[test]
fn the_end_of_an_application_is_seen_by_the_other() {
    let mut world = World::new();
    let (client, mut server) = (world.app(), world.app());
    server.listen(80);
    world.settle();
    let (mut one, mut first) = connect(&mut world, &client, &mut server, 80);
    let (two, mut second) = connect(&mut world, &client, &mut server, 80);
    // What was queued still arrives; bytes that the client never read are answered with a reset.
    one.write(b"last words");
    second.write(b"unheard");
    world.settle();
    one.write(b", truly");
    world.worker.end_application(client.place);
    world.settle();
    assert_eq!(first.read(), b"last words, truly");
    assert!(server.state(first.socket).contains(State::PEER_CLOSED));
    assert!(!server.state(first.socket).contains(State::ERROR));
    assert!(server.state(second.socket).contains(State::ERROR));
    assert_eq!(second.read(), b"");
    drop(two);
    first.close(&server);
    second.close(&server);
    world.pass(Duration::from_secs(100));
    assert_eq!(world.worker.tables().sockets, 1);
}
