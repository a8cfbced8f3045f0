//! What a connection tells: to its application, and to who lists connections.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;

use base::Duration;
use channel::Command;
use common::{App, World, small_limits};
use outboard_fep::config::Limits;
use stack::SocketOption;
use tcp::{CongestionAlgorithm, Limit, TcpInfo};

/// Asks in another thread, while the world goes on.
fn ask(world: &mut World, app: &App, socket: u32) -> std::io::Result<TcpInfo> {
    let channel = app.channel.clone();
    let asking = std::thread::spawn(move || channel.tcp_info(socket));
    while !asking.is_finished() {
        world.settle();
        std::thread::yield_now();
    }
    asking.join().unwrap()
}

fn set(app: &App, socket: u32, option: SocketOption) {
    app.post(Command::SetOption { socket, sequence: 0, option });
}

#[test]
fn a_reader_that_does_not_read_limits_by_its_window() {
    let (mut world, app, mut stream, peer) = common::connected();
    let start = world.now;
    assert_eq!(stream.write(&[7; 500_000]), 500_000);
    world.pass(Duration::from_millis(700));
    let info = ask(&mut world, &app, stream.socket).unwrap();
    assert_eq!((info.state, info.limit, info.snd_wnd), (1, Limit::PeerWindow, 0));
    assert_eq!(info.rwnd_limited, 700_000);
    assert_eq!(info.limited_by.total(), world.now.saturating_since(start));
    assert!(info.notsent_bytes > 400_000 && info.bytes_acked > 60_000, "{info:?}");
    for _ in 0..200 {
        world.peer_reads(peer);
        world.pass(Duration::from_millis(1));
    }
    let info = ask(&mut world, &app, stream.socket).unwrap();
    assert_eq!((info.bytes_acked, info.limit), (500_000, Limit::Application));
    assert_eq!(info.limited_by.total(), world.now.saturating_since(start));
}

#[test]
fn options_set_before_connecting_and_listening_are_the_connections() {
    let mut world = World::new();
    let peer_listener = world.peer_listens(80);
    let mut app = world.app();
    let socket = app.tcp();
    set(&app, socket, SocketOption::Congestion(CongestionAlgorithm::Bbr));
    set(&app, socket, SocketOption::Cork(true));
    let remote = Some(format!("{}:80", common::PEER).parse().unwrap());
    app.post(Command::Connect { socket, sequence: 0, remote });
    let mut stream = app.stream(socket);
    world.settle();
    let peer = world.peer.tcp_accept(peer_listener).unwrap();
    assert_eq!(ask(&mut world, &app, socket).unwrap().congestion, CongestionAlgorithm::Bbr);
    stream.write(b"held back");
    world.settle();
    assert_eq!(world.peer_reads(peer), b"", "corked");
    world.pass(Duration::from_millis(201));
    assert_eq!(world.peer_reads(peer), b"held back", "for no longer than 200 ms");

    let listener = app.listen(7);
    set(&app, listener, SocketOption::Congestion(CongestionAlgorithm::NewReno));
    world.settle();
    let asked = ask(&mut world, &app, listener).unwrap();
    assert_eq!((asked.state, asked.unacked, asked.sacked), (TcpInfo::LISTEN, 0, 64));
    world.peer_connects(7);
    world.settle();
    let accepted = app.accepted()[0];
    assert_eq!(ask(&mut world, &app, accepted).unwrap().congestion, CongestionAlgorithm::NewReno);
    set(&app, accepted, SocketOption::Congestion(CongestionAlgorithm::Cubic));
    assert_eq!(ask(&mut world, &app, accepted).unwrap().congestion, CongestionAlgorithm::Cubic);
}

#[test]
fn a_socket_that_is_not_connected_tells_that() {
    let mut world = World::new();
    let app = world.app();
    let fresh = app.tcp();
    assert_eq!(ask(&mut world, &app, fresh).unwrap().state, TcpInfo::CLOSE);
    let datagrams = app.channel.new_socket().unwrap();
    app.post(Command::OpenUdp { socket: datagrams, sequence: 0 });
    let error = ask(&mut world, &app, datagrams).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
}

#[test]
fn connections_are_listed_and_counted_a_bounded_part_at_a_time() {
    let mut world = World::with_limits(Limits { sockets: 1024, ..small_limits() });
    let listener = world.peer_listens(80);
    let app = world.app();
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.extend((0..60).map(|_| app.connect(80)));
        world.settle();
        while world.peer.tcp_accept(listener).is_some() {}
    }
    // Some go again; what is left is listed once.
    for stream in streams.drain(..100) {
        app.post(Command::Abort { socket: stream.socket });
    }
    world.settle();
    let (mut seen, mut position, mut pages) = (BTreeSet::new(), Some(0), 0);
    while let Some(at) = position {
        let page = world.worker.connection_page(at);
        assert!(page.connections.len() <= 64);
        for row in page.connections {
            let told = row.tcp.unwrap();
            assert_eq!((row.state.as_str(), told.congestion_control.as_str()), ("ESTABLISHED", "cubic"));
            assert_eq!(told.limited_by_ns.len(), Limit::ALL.len());
            assert!(seen.insert(row.local.clone()), "{} is listed twice", row.local);
        }
        position = page.next;
        pages += 1;
    }
    assert_eq!(seen.len(), 200);
    assert!(pages >= 4, "{pages}");
    let (mut counted, mut position) = (0, Some(0));
    while let Some(at) = position {
        let page = world.worker.census(at);
        counted += page.connections.get("established").copied().unwrap_or(0);
        position = page.next;
    }
    assert_eq!(counted, 200);
}
