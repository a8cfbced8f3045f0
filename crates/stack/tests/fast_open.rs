//! TCP Fast Open between two hosts (RFC 7413): cookies, the limits of both sides, and streams that stay whole.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::{Duration, Rng, SeededRng};
use common::{Incoming, LinkConfig, Outgoing, World, at, build, pattern};
use outboard_stack::{FastOpenConfig, SocketId, SocketOptions, StackConfig};
use tcp::{FastOpenProgress, State};
use wire::tcp::Flags;

fn client_options() -> SocketOptions {
    SocketOptions { fast_open_connect: true, nodelay: true, ..SocketOptions::default() }
}

fn listen(world: &mut World, limit: u32) -> SocketId {
    let options = SocketOptions { fast_open: limit, ..SocketOptions::default() };
    world.stack(1).tcp_listen(at(1, 80), 64, (), &options).unwrap()
}

fn connect(world: &mut World) -> SocketId {
    let now = world.now;
    world.stack(0).tcp_connect(now, None, at(1, 80), Default::default(), &client_options()).unwrap()
}

/// Queues the first `len` bytes of stream 1.
fn write(world: &mut World, host: usize, id: SocketId, len: u64) {
    let bytes: Vec<u8> = (0..len).map(|at| pattern(1, at)).collect();
    let queued = world.stack(host).stream(id).unwrap().write(&bytes);
    world.stack(host).tcp_send(id, queued);
}

/// A first connection, by which the client learns the cookie; both ends are closed again.
fn learn(world: &mut World, listener: SocketId) {
    let client = connect(world);
    assert!(!world.stack(0).tcp(client).unwrap().awaits_data());
    let mut server = None;
    assert!(world.run_until(Duration::from_secs(60), |world| {
        server = server.or_else(|| world.stack(1).tcp_accept(listener));
        server.is_some() && world.state(0, client) == State::Established
    }));
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    world.stack(1).close(now, server.unwrap()).unwrap();
    world.run_for(Duration::from_secs(1));
}

fn syns(world: &mut World, host: usize) -> Vec<(wire::tcp::Header, usize)> {
    let log = world.log.replace(Vec::new()).unwrap();
    log.iter()
        .filter(|(from, _)| *from == host)
        .filter_map(|(_, frame)| build::open(frame))
        .filter_map(|(_, payload)| {
            let (header, data) = wire::tcp::Header::parse(&payload).ok()?;
            header.flags.contains(Flags::SYN).then_some((header, data.len()))
        })
        .collect()
}

#[test]
fn the_first_connection_brings_a_cookie_and_the_second_its_data_in_the_syn() {
    let mut world = World::new(1, LinkConfig::default());
    let listener = listen(&mut world, 8);
    world.log = Some(Vec::new());
    learn(&mut world, listener);
    let asked = syns(&mut world, 0);
    assert_eq!(asked[0].0.options.fast_open.as_ref().map(|cookie| cookie.len()), Some(0));
    let given = syns_of_server(&mut world, listener);
    assert_eq!(given, Some(8));
    assert_eq!(world.stack(0).fast_open_peers(), 1);

    let client = connect(&mut world);
    assert!(world.stack(0).tcp(client).unwrap().awaits_data());
    world.run_for(Duration::from_secs(1));
    assert!(syns(&mut world, 0).is_empty(), "the SYN waits for data");
    write(&mut world, 0, client, 500);
    world.flush();
    let sent = syns(&mut world, 0);
    assert_eq!((sent.len(), sent[0].1), (1, 500));
    // The server has it, and answers, before the client's acknowledgement is on its way.
    let one_way = Duration::from_micros(100);
    world.run_for(one_way);
    let server = world.stack(1).tcp_accept(listener).unwrap();
    assert_eq!(world.state(1, server), State::SynReceived);
    let mut incoming = Incoming::new(1);
    world.drain(1, server, &mut incoming);
    assert_eq!(incoming.read, 500);
    write(&mut world, 1, server, 3000);
    world.run_for(Duration::from_millis(10));
    let mut answer = Incoming::new(1);
    world.drain(0, client, &mut answer);
    assert_eq!(answer.read, 3000);
    assert_eq!(world.stack(0).tcp(client).unwrap().fast_open(), FastOpenProgress::Acknowledged);
    assert_eq!(world.stack(1).tcp(server).unwrap().fast_open(), FastOpenProgress::Taken);
    let (client, server) = (world.stack(0).stats().clone(), world.stack(1).stats().clone());
    assert_eq!((client.fast_open_active, client.fast_open_active_fail), (1, 0));
    assert_eq!((server.fast_open_passive, server.fast_open_cookies_asked), (1, 2));
}

/// The length of the cookie in the SYN-ACK of one more connection that asks.
fn syns_of_server(world: &mut World, listener: SocketId) -> Option<usize> {
    let now = world.now;
    let options = SocketOptions { fast_open_connect: true, ..SocketOptions::default() };
    // A host that knows nothing.
    let fresh = common::host(&LinkConfig::default(), StackConfig::default(), 0, 99, now);
    let known = std::mem::replace(&mut world.hosts[0], fresh);
    let client = world.stack(0).tcp_connect(now, None, at(1, 80), Default::default(), &options).unwrap();
    world.run_for(Duration::from_millis(10));
    let length =
        syns(world, 1).last().and_then(|(header, _)| header.options.fast_open.as_ref().map(|c| c.len()));
    let now = world.now;
    world.stack(0).tcp_abort(client);
    world.stack(0).close(now, client).unwrap();
    world.run_for(Duration::from_millis(10));
    let server = world.stack(1).tcp_accept(listener).unwrap();
    let now = world.now;
    world.stack(1).close(now, server).unwrap();
    world.hosts[0] = known;
    world.stack(1).stats().fast_open_cookies_asked.checked_sub(1)?;
    length
}

#[test]
fn a_server_that_does_not_want_it_gives_no_cookie() {
    let mut world = World::new(2, LinkConfig::default());
    let listener = listen(&mut world, 0);
    world.log = Some(Vec::new());
    learn(&mut world, listener);
    assert!(syns(&mut world, 1).iter().all(|(header, _)| header.options.fast_open.is_none()));
    let client = connect(&mut world);
    assert!(!world.stack(0).tcp(client).unwrap().awaits_data());
}

#[test]
fn a_cookie_of_the_former_key_is_good_once_more_and_is_replaced() {
    let mut world = World::new(3, LinkConfig::default());
    let listener = listen(&mut world, 8);
    learn(&mut world, listener);
    world.log = Some(Vec::new());
    let mut renewed = 0;
    let mut outcomes = Vec::new();
    for renewals in [0u8, 1, 0, 2, 0] {
        for _ in 0..renewals {
            renewed += 1;
            let now = world.now;
            world.stack(1).renew_fast_open_key(now, [renewed; 16]);
        }
        let client = connect(&mut world);
        write(&mut world, 0, client, 100);
        world.run_for(Duration::from_millis(10));
        let given = syns(&mut world, 1).iter().any(|(header, _)| header.options.fast_open.is_some());
        outcomes.push((world.stack(0).tcp(client).unwrap().fast_open(), given));
        let server = world.stack(1).tcp_accept(listener).unwrap();
        let mut incoming = Incoming::new(1);
        world.drain(1, server, &mut incoming);
        assert_eq!(incoming.read, 100);
    }
    let (good, refused) = (FastOpenProgress::Acknowledged, FastOpenProgress::Refused);
    assert_eq!(outcomes, [(good, false), (good, true), (good, false), (refused, true), (good, false)]);
    assert_eq!(world.stack(1).stats().fast_open_passive_fail, 1);
    // By itself the key changes with the time.
    world.run_for(Duration::from_secs(24 * 3600));
    let client = connect(&mut world);
    write(&mut world, 0, client, 100);
    world.run_for(Duration::from_millis(10));
    assert!(syns(&mut world, 1).iter().any(|(header, _)| header.options.fast_open.is_some()));
}

#[test]
fn connections_that_have_not_finished_their_handshake_are_bounded() {
    let mut world = World::new(4, LinkConfig::default());
    let listener = listen(&mut world, 3);
    learn(&mut world, listener);
    // Acknowledgements of the SYN-ACKs take long: the other three wait for them.
    let mut early = Vec::new();
    let clients: Vec<_> = (0..5).map(|_| connect(&mut world)).collect();
    clients.iter().for_each(|&id| write(&mut world, 0, id, 10));
    world.run_for(Duration::from_micros(100));
    early.extend(std::iter::from_fn(|| world.stack(1).tcp_accept(listener)));
    assert_eq!(early.len(), 3);
    assert_eq!(world.stack(1).stats().fast_open_overflow, 2);
    world.run_for(Duration::from_millis(10));
    assert!(clients.iter().all(|&id| world.state(0, id) == State::Established));
    // Those are over their handshake: there is room for others. (Refused twice, the client waited for a while.)
    world.run_for(Duration::from_secs(240));
    let one_more = connect(&mut world);
    write(&mut world, 0, one_more, 10);
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.stack(1).stats().fast_open_passive, 4);
    // One that is reset before its handshake is over counts for a minute.
    for (number, reset) in [(0, 1), (1, 2), (2, 3)] {
        let client = connect(&mut world);
        write(&mut world, 0, client, 10);
        world.flush();
        world.stack(0).tcp_abort(client);
        let now = world.now;
        world.stack(0).close(now, client).unwrap();
        world.run_for(Duration::from_millis(10));
        assert_eq!(world.stack(1).stats().fast_open_passive, 5 + number, "{reset} were reset");
    }
    let refused = connect(&mut world);
    write(&mut world, 0, refused, 10);
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.stack(1).stats().fast_open_passive, 7);
    world.run_for(Duration::from_secs(60));
    let again = connect(&mut world);
    write(&mut world, 0, again, 10);
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.stack(1).stats().fast_open_passive, 8);
}

#[test]
fn a_closed_listener_and_an_early_connection_go_each_their_way() {
    let mut world = World::new(5, LinkConfig::default());
    let listener = listen(&mut world, 8);
    learn(&mut world, listener);
    let taken = connect(&mut world);
    write(&mut world, 0, taken, 10);
    world.run_for(Duration::from_micros(100));
    let server = world.stack(1).tcp_accept(listener).unwrap();
    let left = connect(&mut world);
    write(&mut world, 0, left, 10);
    world.run_for(Duration::from_micros(100));
    let now = world.now;
    world.stack(1).close(now, listener).unwrap();
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.state(1, server), State::Established);
    assert_eq!(world.state(0, taken), State::Established);
    assert_eq!(world.stack(0).tcp(left).unwrap().error(), Some(tcp::Error::Reset));
}

#[test]
fn a_path_that_loses_such_syns_is_spared_them_for_a_while() {
    let mut world = World::new(6, LinkConfig::default());
    let listener = listen(&mut world, 8);
    learn(&mut world, listener);
    let mut avoided = Vec::new();
    for _ in 0..4 {
        let client = connect(&mut world);
        write(&mut world, 0, client, 100);
        world.flush();
        // A box on the way takes SYNs with data away.
        world.flights.retain(|flight| flight.to != 1);
        assert!(
            world.run_until(Duration::from_secs(5), |world| world.state(0, client) == State::Established)
        );
        let mut server = None;
        assert!(world.run_until(Duration::from_secs(5), |world| {
            server = server.or_else(|| world.stack(1).tcp_accept(listener));
            server.is_some()
        }));
        let server = server.unwrap();
        let mut incoming = Incoming::new(1);
        assert!(world.run_until(Duration::from_secs(5), |world| {
            world.drain(1, server, &mut incoming);
            incoming.read == 100
        }));
        avoided.push(world.stack(0).stats().fast_open_avoided);
        world.run_for(Duration::from_secs(1));
    }
    assert_eq!(avoided, [0, 0, 1, 2]);
    assert_eq!(world.stack(0).stats().fast_open_active_fail, 2);
    // After four minutes it is tried again, and a success ends the caution.
    world.run_for(Duration::from_secs(240));
    for _ in 0..2 {
        let client = connect(&mut world);
        write(&mut world, 0, client, 100);
        world.run_for(Duration::from_millis(10));
        assert_eq!(world.stack(0).tcp(client).unwrap().fast_open(), FastOpenProgress::Acknowledged);
    }
}

#[test]
fn the_memory_of_peers_is_bounded() {
    let fast_open = FastOpenConfig { max_peers: 10, ..FastOpenConfig::default() };
    let config = StackConfig { fast_open, ..StackConfig::default() };
    let mut world = World::with_config(7, LinkConfig::default(), config);
    for host in 0..50u8 {
        let now = world.now;
        let remote = std::net::SocketAddr::from(([10, 0, 0, 100 + host], 80));
        let id =
            world.stack(0).tcp_connect(now, None, remote, Default::default(), &client_options()).unwrap();
        world.flush();
        let syn = syn_of(&mut world, id);
        answer(&mut world, remote, &syn);
        assert_eq!(world.state(0, id), State::Established);
    }
    assert_eq!(world.stack(0).fast_open_peers(), 10);
}

/// The SYN of a connection, from what the stack knows.
fn syn_of(world: &mut World, id: SocketId) -> (std::net::SocketAddr, u32) {
    let remote = world.stack(0).remote_addr(id).unwrap();
    // Its next hop answers.
    let hardware = common::mac(1);
    let ours = common::ip(0);
    let frame = build::arp(
        wire::arp::Operation::Reply,
        (hardware, remote.ip()),
        (common::mac(0), ours),
        common::mac(0),
    );
    world.log = Some(Vec::new());
    world.inject(0, frame);
    world.flush();
    let local = world.stack(0).local_addr(id).unwrap();
    let syn = syns(world, 0).into_iter().find(|(header, _)| header.dst_port == remote.port()).unwrap().0;
    world.log = None;
    (local, syn.seq.0)
}

fn answer(world: &mut World, remote: std::net::SocketAddr, (local, seq): &(std::net::SocketAddr, u32)) {
    let flags = Flags::SYN | Flags::ACK;
    let mut packet = build::tcp(remote, *local, flags, 7, seq + 1, b"");
    // The option by hand: a cookie of four bytes, which needs no padding but two.
    let mut segment = packet.split_off(20);
    segment.extend_from_slice(&[1, 1, 34, 6, 9, 9, 9, 9]);
    segment[12] = 7 << 4;
    segment[16..18].copy_from_slice(&[0, 0]);
    let sum = wire::checksum::Sum::pseudo_header(
        remote.ip(),
        local.ip(),
        wire::ip::Protocol::TCP,
        segment.len() as u32,
    )
    .add(&segment)
    .finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let packet = build::ip(remote.ip(), local.ip(), wire::ip::Protocol::TCP, &segment);
    world.inject(0, build::ethernet(1, 0, &packet));
}

#[test]
fn requests_and_answers_over_a_bad_path_are_delivered_exactly_once() {
    for seed in 0..150 {
        let mut rng = SeededRng::new(seed);
        let link = LinkConfig {
            loss: rng.below(350),
            duplicate: rng.below(100),
            reorder: rng.below(300),
            delay: Duration::from_micros(1 + rng.below(20_000)),
            ..LinkConfig::default()
        };
        let mut world = World::new(seed, LinkConfig::default());
        let listener = listen(&mut world, 8);
        learn(&mut world, listener);
        world.link = link;
        let client = connect(&mut world);
        let mut request = Outgoing::new(seed, 1 + rng.below(3000));
        let mut response = Outgoing::new(seed + 1, 1 + rng.below(6000));
        let (mut got_request, mut got_response) = (Incoming::new(seed), Incoming::new(seed + 1));
        let mut server = None;
        let done = world.run_until(Duration::from_secs(1200), |world| {
            world.pump(0, client, &mut request);
            server = server.or_else(|| world.stack(1).tcp_accept(listener));
            let Some(server) = server else { return false };
            world.drain(1, server, &mut got_request);
            world.pump(1, server, &mut response);
            world.drain(0, client, &mut got_response);
            got_request.finished && got_response.finished
        });
        let progress = world.stack(0).tcp(client).map(tcp::Connection::fast_open);
        assert!(done, "seed {seed} ({progress:?}): {link:?}");
        assert_eq!((got_request.read, got_response.read), (request.total, response.total), "seed {seed}");
    }
}
