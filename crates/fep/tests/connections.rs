//! An application connects, accepts, moves bytes both ways and closes.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use base::Duration;
use channel::{Command, State};
use common::{World, pattern};
use std::net::Shutdown;

#[test]
fn an_application_connects_and_bytes_flow_both_ways() {
    let mut world = World::new();
    let mut app = world.app();
    let listener = world.peer_listens(80);
    let mut stream = app.connect(80);
    world.settle();
    assert!(app.state(stream.socket).contains(State::CONNECTED));
    assert!(!app.state(stream.socket).contains(State::CONNECTING));
    let record = app.channel.record(stream.socket);
    assert_eq!(record.remote().unwrap().to_string(), "10.9.0.1:80");
    assert_eq!(record.local().unwrap().ip().to_string(), common::OURS);

    let accepted = world.peer.tcp_accept(listener).unwrap();
    assert_eq!(stream.write(b"over the wall"), 13);
    world.settle();
    assert_eq!(world.peer_reads(accepted), b"over the wall");
    world.peer_sends(accepted, b"and back");
    world.settle();
    assert_eq!(stream.read(), b"and back");

    stream.close(&app);
    world.settle();
    assert!(world.peer.tcp(accepted).unwrap().is_peer_closed());
    world.peer.close(world.now, accepted).unwrap();
    world.pass(Duration::from_millis(200));
    assert_eq!(app.released().len(), 1);
}

#[test]
fn a_bulk_reader_is_woken_in_a_pause_and_after_two_milliseconds_without_one() {
    let mut world = World::new();
    let mut app = world.app();
    let listener = app.listen(7);
    world.settle();
    let peers = [world.peer_connects(7), world.peer_connects(7)];
    world.settle();
    let accepted = app.accepted();
    let mut busy = app.stream(accepted[1]);
    let mut waiter = app.channel.waiter().unwrap();
    let record = app.channel.record(accepted[0]);
    record.set_reader(waiter.slot());
    for pause in [true, false] {
        let received = record.received();
        record.set_read_wake_or_pause(received + 1, received + 1_000_000);
        waiter.prepare();
        world.peer_sends(peers[0], b"a little");
        world.settle();
        assert!(!waiter.is_rung(), "not while more may come");
        if pause {
            world.pass(Duration::from_micros(200));
            assert!(waiter.is_rung(), "nothing more came");
        } else {
            let mut turns = 0;
            while !waiter.is_rung() {
                assert!(turns < 100, "others' traffic keeps it asleep");
                turns += 1;
                // More than a segment: Nagle holds none of it back.
                world.peer_sends(peers[1], &[0; 2000]);
                world.pass(Duration::from_micros(50));
                busy.read();
            }
            assert!(turns > 10, "woken after {turns} turns of 50 microseconds");
        }
        waiter.cancel();
    }
    assert!(app.state(listener).contains(State::LISTENING));
}

#[test]
fn a_listener_accepts_and_echoes_much() {
    let mut world = World::new();
    let mut app = world.app();
    let listener = app.listen(7);
    world.settle();
    assert!(app.state(listener).contains(State::LISTENING));
    let peer = world.peer_connects(7);
    world.settle();
    let accepted = app.accepted();
    assert_eq!(accepted.len(), 1);
    let mut stream = app.stream(accepted[0]);
    const TOTAL: usize = 8 << 20;
    let sent = pattern(1, 0, TOTAL);
    let (mut given, mut echoed, mut pending) = (0, Vec::new(), Vec::new());
    while echoed.len() < TOTAL {
        let room = (1 << 20) - world.peer.stream(peer).unwrap().unacknowledged();
        let count = room.min(TOTAL - given).min(256 << 10);
        let piece = sent[given..given + count].to_vec();
        world.peer_sends(peer, &piece);
        given += count;
        world.pass(Duration::from_millis(1));
        pending.extend(stream.read());
        let written = stream.write(&pending);
        pending.drain(..written);
        world.pass(Duration::from_millis(1));
        echoed.extend(world.peer_reads(peer));
    }
    assert!(echoed == sent, "the echo is what was sent");
}

#[test]
fn half_close_lets_the_other_half_go_on() {
    let mut world = World::new();
    let app = world.app();
    let listener = world.peer_listens(80);
    let mut stream = app.connect(80);
    world.settle();
    let peer = world.peer.tcp_accept(listener).unwrap();
    stream.write(b"request");
    app.post(Command::Shutdown { socket: stream.socket, sequence: 0, how: Shutdown::Write });
    world.settle();
    assert!(world.peer.tcp(peer).unwrap().is_peer_closed());
    assert!(app.state(stream.socket).contains(State::SEND_CLOSED));
    world.peer_sends(peer, b"answer");
    world.peer.tcp_shutdown(peer);
    world.settle();
    assert!(app.state(stream.socket).contains(State::PEER_CLOSED));
    assert_eq!(stream.read(), b"answer");
}

#[test]
fn a_refused_connection_says_so_and_can_be_tried_again() {
    let mut world = World::new();
    let app = world.app();
    let stream = app.connect(81);
    world.settle();
    let record = app.channel.record(stream.socket);
    assert_eq!(record.error().1, libc::ECONNREFUSED);
    assert!(app.state(stream.socket).contains(State::ERROR | State::CLOSED));
    world.peer_listens(81);
    let remote = Some("10.9.0.1:81".parse().unwrap());
    app.post(Command::Connect { socket: stream.socket, sequence: 0, remote });
    world.settle();
    assert!(app.state(stream.socket).contains(State::CONNECTED));
}

#[test]
fn an_address_that_is_bound_twice_is_refused() {
    let mut world = World::new();
    let app = world.app();
    app.listen(90);
    let second = app.tcp();
    app.post(Command::Bind { socket: second, sequence: 0, local: "0.0.0.0:90".parse().unwrap() });
    world.settle();
    assert!(!app.state(second).contains(State::BOUND));
}
