//! An application that writes garbage over everything it can write, while others transfer.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::fd::OwnedFd;

use base::{Duration, Rng, SeededRng};
use channel::Command;
use common::{App, Stream, World, pattern};
use stack::SocketId;

/// What lies before the data area in segment A with the limits of these tests: header, waiters, commands, records.
const CONTROL_BYTES: u64 = 256 << 10;

/// A transfer in both directions between a well-behaved application and the peer, every byte checked.
struct Transfer {
    stream: Stream,
    peer: SocketId,
    seed: u64,
    sent: [u64; 2],
    received: [u64; 2],
}

impl Transfer {
    fn start(world: &mut World, app: &App, listener: SocketId, seed: u64) -> Self {
        let stream = app.connect(80);
        world.settle();
        let peer = world.peer.tcp_accept(listener).unwrap();
        Self { stream, peer, seed, sent: [0; 2], received: [0; 2] }
    }

    fn step(&mut self, world: &mut World) {
        let piece = pattern(self.seed, self.sent[0], 20_000);
        self.sent[0] += self.stream.write(&piece) as u64;
        let unacknowledged = world.peer.stream(self.peer).unwrap().unacknowledged();
        if unacknowledged < 200_000 {
            world.peer_sends(self.peer, &pattern(!self.seed, self.sent[1], 20_000));
            self.sent[1] += 20_000;
        }
        world.pass(Duration::from_micros(200));
        let at_peer = world.peer_reads(self.peer);
        assert!(
            at_peer == pattern(self.seed, self.received[0], at_peer.len()),
            "what the peer got is intact"
        );
        self.received[0] += at_peer.len() as u64;
        let here = self.stream.read();
        assert!(
            here == pattern(!self.seed, self.received[1], here.len()),
            "what the application got is intact"
        );
        self.received[1] += here.len() as u64;
    }
}

fn scribble(segment: &OwnedFd, rng: &mut SeededRng, start: u64, end: u64, pieces: usize) {
    for _ in 0..pieces {
        let most = if rng.below(4) == 0 { 4096 } else { 16 };
        let len = 1 + rng.below(most) as usize;
        let bytes: Vec<u8> = match rng.below(3) {
            0 => vec![0xff; len],
            1 => (0..len).map(|_| rng.below(4) as u8).collect(),
            _ => (0..len).map(|_| rng.next_u64() as u8).collect(),
        };
        let at = start + rng.below(end - start - len as u64);
        rustix::io::pwrite(segment, &bytes, at).unwrap();
    }
}

/// Behaves at first, so that the records and rings mean something, then scribbles until it is cut off.
fn harm(world: &mut World, rng: &mut SeededRng, listener: SocketId, others: &mut [Transfer]) {
    let app = world.app();
    let mut stream = app.connect(80);
    app.listen(1000);
    let udp = app.channel.new_socket().unwrap();
    app.post(Command::OpenUdp { socket: udp, sequence: 0 });
    app.post(Command::Bind { socket: udp, sequence: 0, local: "0.0.0.0:0".parse().unwrap() });
    world.settle();
    let peer = world.peer.tcp_accept(listener).unwrap();
    stream.write(&[7; 50_000]);
    world.peer_sends(peer, &[8; 50_000]);
    // Segment F is not its to write, however it tries.
    assert!(rustix::io::pwrite(&app.segments[1], &[1], 0).is_err());
    let size = rustix::fs::fstat(&app.segments[0]).unwrap().st_size as u64;
    for _ in 0..400 {
        scribble(&app.segments[0], rng, 0, CONTROL_BYTES, 64);
        scribble(&app.segments[0], rng, CONTROL_BYTES, size, 16);
        // Some commands that are well-formed, and of sockets that are not.
        let socket = rng.below(64) as u32;
        let _ = app.channel.post(&Command::Send { socket, queued_to: rng.next_u64() });
        world.worker.turn(world.now);
        for other in &mut *others {
            other.step(world);
        }
        if app.channel.closed().is_some() {
            break;
        }
    }
    assert!(app.channel.closed().is_some(), "it is cut off");
    world.pass(Duration::from_millis(10));
    assert_eq!(world.peer.tcp(peer).unwrap().error(), Some(tcp::Error::Reset));
    world.peer.close(world.now, peer).unwrap();
    world.peer_looks();
}

#[test]
fn garbage_from_one_harms_nobody_else() {
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("SEED={seed}");
    let mut rng = SeededRng::new(seed);
    let mut world = World::new();
    let listener = world.peer_listens(80);
    let good = [world.app(), world.app()];
    let mut transfers: Vec<_> =
        good.iter().zip(1..).map(|(app, seed)| Transfer::start(&mut world, app, listener, seed)).collect();
    const OFFENDERS: u64 = 100;
    for _ in 0..OFFENDERS {
        harm(&mut world, &mut rng, listener, &mut transfers);
    }
    let status = world.worker.status();
    println!("{:?}", status.offences);
    assert_eq!(status.offences.values().sum::<u64>(), OFFENDERS);
    assert!(status.offences.len() > 1, "several reasons occur: {:?}", status.offences);
    assert_eq!(status.applications.len(), 2);
    for transfer in &transfers {
        assert!(transfer.received.iter().all(|bytes| *bytes > 1 << 20), "{:?}", transfer.received);
    }
}

#[test]
fn each_offence_is_named() {
    for (command, name) in [
        (Command::Send { socket: 3, queued_to: 1 }, "not_open"),
        (Command::OpenTcp { socket: 63, sequence: 0 }, "not_yours"),
        (Command::Close { socket: 40 }, "not_open"),
        (
            Command::AttachSend { socket: 0, location: channel::layout::RingLocation(u64::MAX) },
            "bad_location",
        ),
        (Command::Send { socket: 0, queued_to: 1 }, "no_ring"),
        (Command::OpenTcp { socket: 0, sequence: 0 }, "already_open"),
    ] {
        let mut world = World::new();
        world.peer_listens(80);
        let app = world.app();
        let stream = app.connect(80);
        assert_eq!(stream.socket, 0);
        world.settle();
        app.post(command);
        world.settle();
        let offences = world.worker.status().offences;
        assert_eq!(offences.into_iter().collect::<Vec<_>>(), [(name.to_owned(), 1)], "{command:?}");
        assert_eq!(world.worker.tables().applications, 0);
    }
}

#[test]
fn a_flood_of_commands_does_not_starve_the_others() {
    let mut world = World::new();
    let listener = world.peer_listens(80);
    let (noisy, quiet) = (world.app(), world.app());
    let mut transfer = Transfer::start(&mut world, &quiet, listener, 5);
    let socket = noisy.tcp();
    for _ in 0..50 {
        for _ in 0..1000 {
            noisy.post(Command::Info { socket, sequence: 0 });
        }
        transfer.step(&mut world);
    }
    assert!(transfer.received.iter().all(|bytes| *bytes > 500_000), "{:?}", transfer.received);
}
