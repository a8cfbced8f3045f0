//! Memory: what hostile connections can take, and that everyone else gets on.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use base::Duration;
use common::{World, pattern};
use outboard_fep::config::Limits;

/// Bytes that the first application's receive buffers hold.
fn held(world: &World) -> u64 {
    world.worker.status().applications[0].buffer_bytes
}

#[test]
fn ten_thousand_connections_that_nobody_reads_stay_below_the_cap_and_the_others_get_on() {
    const HOSTILE: usize = 10_000;
    const CAP: u64 = 48 << 20;
    let limits =
        Limits { sockets: 32_768, buffer_bytes: CAP, receive_buffer_max: 1 << 20, ..Limits::default() };
    let mut world = World::with_limits(limits);
    let (mut app, mut other) = (world.app(), world.app());
    app.listen(7);
    other.listen(8);
    world.settle();
    let mut unread = Vec::new();
    while unread.len() < HOSTILE {
        let peers: Vec<_> = (0..50).map(|_| world.peer_connects(7)).collect();
        world.settle();
        unread.extend(app.accepted());
        // In all, more than the application may have.
        for peer in peers {
            world.peer_sends(peer, &[7; 8192]);
        }
        world.settle();
        world.peer_looks();
    }
    assert_eq!(unread.len(), HOSTILE);
    world.pass(Duration::from_millis(500));
    assert!(held(&world) <= CAP, "{}", held(&world));
    assert!(held(&world) >= HOSTILE as u64 * 4096, "each has its floor: {}", held(&world));
    let status = world.worker.status();
    assert_ne!(status.applications[0].receive_buffers.pressure, "below");
    assert_eq!(status.applications[1].receive_buffers.pressure, "below");

    const EACH: usize = 60_000;
    let mut honest = Vec::new();
    for (port, app) in [(7, &mut app), (8, &mut other)] {
        let peers: Vec<_> = (0..10).map(|_| world.peer_connects(port)).collect();
        world.settle();
        let mut streams: Vec<_> = app.accepted().into_iter().map(|socket| app.stream(socket)).collect();
        assert_eq!(streams.len(), 10);
        for &peer in &peers {
            world.peer_sends(peer, &pattern(1, 0, EACH));
        }
        let mut got = vec![Vec::new(); streams.len()];
        for _ in 0..1000 {
            world.pass(Duration::from_millis(1));
            for (stream, got) in streams.iter_mut().zip(&mut got) {
                got.extend(stream.read());
            }
            if got.iter().all(|got: &Vec<u8>| got.len() == EACH) {
                break;
            }
        }
        assert!(got.iter().all(|got| *got == pattern(1, 0, EACH)), "port {port}: not all of it came");
        assert!(held(&world) <= CAP);
        honest.extend(peers);
    }

    // When they are gone, so is everything that they held.
    for peer in honest {
        world.peer.close(world.now, peer).unwrap();
    }
    world.worker.end_application(app.place);
    world.worker.end_application(other.place);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.worker.memory().used(), 0);
}

#[test]
fn a_reader_in_need_is_given_larger_windows_again_when_the_need_is_over() {
    let limits =
        Limits { sockets: 4096, buffer_bytes: 16 << 20, receive_buffer_max: 1 << 20, ..Limits::default() };
    let mut world = World::with_limits(limits);
    let mut app = world.app();
    app.listen(7);
    world.settle();
    let reader = world.peer_connects(7);
    world.settle();
    let accepted = app.accepted()[0];
    let mut stream = app.stream(accepted);
    // Others take most of it and do not read: first they read what makes their windows grow.
    let peers: Vec<_> = (0..40).map(|_| world.peer_connects(7)).collect();
    world.settle();
    let mut others: Vec<_> = app.accepted().into_iter().map(|socket| app.stream(socket)).collect();
    for round in 0..12 {
        for &peer in &peers {
            world.peer_sends(peer, &[1; 200_000]);
        }
        world.pass(Duration::from_millis(20));
        if round < 8 {
            others.iter_mut().for_each(|other| drop(other.read()));
        }
    }
    let pressure = |world: &World| world.worker.status().applications[0].receive_buffers.pressure.clone();
    assert_ne!(pressure(&world), "below");
    assert!(held(&world) <= 16 << 20);
    // It gets on all the same.
    let transfer = |world: &mut World, stream: &mut common::Stream| {
        world.peer_sends(reader, &[2; 400_000]);
        let (mut got, mut rounds) = (0, 0);
        while got < 400_000 {
            world.pass(Duration::from_millis(2));
            got += stream.read().len();
            rounds += 1;
            assert!(rounds < 10_000, "{got}");
        }
        rounds
    };
    let in_need = transfer(&mut world, &mut stream);
    let sent = 12 * 200_000;
    for round in 0.. {
        others.iter_mut().for_each(|other| drop(other.read()));
        world.pass(Duration::from_millis(100));
        if peers.iter().all(|&peer| world.peer.tcp(peer).unwrap().acked_to() == sent) {
            break;
        }
        assert!(round < 1000, "the others do not come to an end");
    }
    others.iter_mut().for_each(|other| drop(other.read()));
    world.pass(Duration::from_secs(3));
    assert_eq!(pressure(&world), "below");
    transfer(&mut world, &mut stream);
    let at_ease = transfer(&mut world, &mut stream);
    assert!(at_ease <= in_need, "{at_ease} rounds at ease, {in_need} in need");
}
