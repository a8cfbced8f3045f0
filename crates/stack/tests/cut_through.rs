//! Connections and datagrams between sockets of one stack: they do what two stacks on a link would do, without frames.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::net::SocketAddr;

use base::{Duration, Rng, SeededRng};
use common::{Incoming, LinkConfig, Outgoing, World, at, host, pattern};
use outboard_stack::{SocketError, SocketId, SocketOptions, StackConfig};
use tcp::State;

/// A world whose hosts have made themselves known.
fn quiet_world(seed: u64, link: LinkConfig) -> World {
    let mut world = World::new(seed, link);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.stack(0).timer_count(), 0);
    world.frames = 0;
    world
}

/// Lets time pass in small steps until `done`.
fn in_small_steps(world: &mut World, mut done: impl FnMut(&mut World) -> bool) {
    for _ in 0..200_000 {
        world.flush();
        if done(world) {
            return;
        }
        world.run_for(Duration::from_micros(50));
    }
    panic!("it does not come to an end");
}

/// A connection from host 0 to a listener of the same host, both ends.
fn local_pair(world: &mut World, port: u16) -> (SocketId, SocketId) {
    let listener = world.listen(0, port);
    let client = world.connect(0, at(0, port));
    world.flush();
    let server = world.stack(0).tcp_accept(listener).expect("connected at once");
    assert_eq!(world.state(0, client), State::Established);
    let now = world.now;
    world.stack(0).close(now, listener).unwrap();
    (client, server)
}

/// What an owner does with a socket.
#[derive(Clone, Copy, Debug)]
enum Act {
    Write(usize),
    /// The last byte urgent.
    WriteUrgent(usize),
    Read(usize),
    Shutdown,
    Close,
    Abort,
}

/// What an owner sees of a socket.
#[derive(Debug, PartialEq, Eq)]
struct Sight {
    state: State,
    readable: u64,
    unsent: u64,
    peer_closed: bool,
    send_closed: bool,
    error: Option<tcp::Error>,
    /// The peer's last urgent byte, and where it is if it was not passed.
    urgent: Option<(Option<u64>, Option<u8>)>,
}

/// One end, with what its owner knows.
struct End {
    host: usize,
    id: Option<SocketId>,
    seed: u64,
    peer_seed: u64,
    written: u64,
    read: u64,
}

impl End {
    fn new(host: usize, id: SocketId, seed: u64, peer_seed: u64) -> Self {
        Self { host, id: Some(id), seed, peer_seed, written: 0, read: 0 }
    }

    fn sight(&self, world: &World) -> Option<Sight> {
        let connection = world.hosts[self.host].stack.tcp(self.id?)?;
        Some(Sight {
            state: connection.state(),
            readable: connection.received_to() - self.read,
            unsent: connection.queued_to() - connection.acked_to(),
            peer_closed: connection.is_peer_closed(),
            send_closed: connection.is_send_closed(),
            error: connection.error(),
            urgent: connection.urgent().map(|mark| (mark.offset, mark.byte)),
        })
    }

    fn act(&mut self, world: &mut World, act: Act) {
        let Some(id) = self.id else { return };
        let now = world.now;
        let stack = world.stack(self.host);
        match act {
            Act::Write(count) | Act::WriteUrgent(count) => {
                let (connection, stream) = stack.tcp_and_stream(id).unwrap();
                let may = !connection.is_send_closed() && connection.state() != State::Closed;
                if may && connection.queued_to() - connection.acked_to() < 100_000 {
                    let bytes: Vec<u8> =
                        (self.written..).map(|at| pattern(self.seed, at)).take(count).collect();
                    stream.release(connection.acked_to());
                    self.written = stream.write(&bytes);
                    if let Act::WriteUrgent(_) = act {
                        stack.tcp_send_urgent(id, self.written, self.written);
                    } else {
                        stack.tcp_send(id, self.written);
                    }
                }
            }
            Act::Read(count) => {
                let (connection, stream) = stack.tcp_and_stream(id).unwrap();
                let to = connection.received_to().min(self.read + count as u64);
                let seen = stream.readable(to).concat();
                for (&byte, offset) in seen.iter().zip(self.read..) {
                    assert_eq!(byte, pattern(self.peer_seed, offset), "at {offset}");
                }
                stream.consume(to);
                self.read = to;
                stack.tcp_consumed(now, id, to);
            }
            Act::Shutdown => stack.tcp_shutdown(id),
            Act::Close => {
                stack.close(now, id).unwrap();
                self.id = None;
            }
            Act::Abort => {
                stack.tcp_abort(id);
                stack.close(now, id).unwrap();
                self.id = None;
            }
        }
    }
}

fn random_act(rng: &mut SeededRng) -> Act {
    match rng.below(20) {
        0..5 => Act::Write(1 + rng.below(30_000) as usize),
        5 | 6 => Act::WriteUrgent(1 + rng.below(3000) as usize),
        7..15 => Act::Read(1 + rng.below(60_000) as usize),
        15..17 => Act::Shutdown,
        17 | 18 => Act::Close,
        _ => Act::Abort,
    }
}

/// The same calls on a joined connection and on one over a link show the same, whenever all is quiet.
#[test]
fn the_same_calls_show_the_same_as_over_a_link() {
    for seed in 0..250 {
        let mut rng = SeededRng::new(seed);
        let link = LinkConfig { delay: Duration::from_micros(20), ..LinkConfig::default() };
        let (mut linked, mut local) = (quiet_world(seed, link), quiet_world(seed, link));
        let (client, server) = linked.pair(80);
        let mut over_link = [End::new(0, client, 1, 2), End::new(1, server, 2, 1)];
        let (client, server) = local_pair(&mut local, 80);
        let mut joined = [End::new(0, client, 1, 2), End::new(0, server, 2, 1)];
        assert_eq!(local.stack(0).stats().tcp_cut_through, 1);
        // A patient peer of either kind: the link's needs time for acknowledgements that are held back.
        let (quiet, mut acts) = (Duration::from_millis(900), Vec::new());
        let mut was_full = false;
        for _ in 0..60 {
            let (end, act) = (rng.below(2) as usize, random_act(&mut rng));
            acts.push((end, act));
            over_link[end].act(&mut linked, act);
            joined[end].act(&mut local, act);
            linked.run_for(quiet);
            local.run_for(quiet);
            for end in 0..2 {
                let (one, other) = (over_link[end].sight(&linked), joined[end].sight(&local));
                // How much of a full window's worth waits here or there depends on the segments' size.
                let windowed = one.as_ref().is_some_and(|sight| sight.unsent > 0)
                    || over_link[1 - end].sight(&linked).is_some_and(|sight| sight.unsent > 0)
                    || joined[1 - end].sight(&local).is_some_and(|sight| sight.unsent > 0)
                    || other.as_ref().is_some_and(|sight| sight.unsent > 0);
                was_full |= windowed;
                let failed = one.as_ref().is_some_and(|sight| sight.error.is_some());
                if windowed || (was_full && failed) {
                    let rough = |sight: Option<Sight>| sight.map(|sight| (sight.send_closed, sight.error));
                    assert_eq!(rough(one), rough(other), "seed {seed}, end {end}: {acts:?}");
                } else {
                    assert_eq!(one, other, "seed {seed}, end {end}: {acts:?}");
                }
            }
        }
        assert_eq!(local.frames, 0, "no frame left the host");
        for (world, ends) in [(&mut linked, &mut over_link), (&mut local, &mut joined)] {
            ends.iter_mut().for_each(|end| end.act(world, Act::Close));
            world.run_for(Duration::from_secs(1000));
            world.hosts.iter().for_each(|host| {
                assert_eq!((host.stack.socket_count(), host.stack.timer_count()), (0, 0), "seed {seed}");
            });
        }
    }
}

#[test]
fn bytes_go_both_ways_and_a_reader_that_pauses_stops_the_sender() {
    let mut world = quiet_world(1, LinkConfig::default());
    let (client, server) = local_pair(&mut world, 80);
    let total = 3_000_000;
    let mut outgoing = [Outgoing::new(1, total), Outgoing::new(2, total)];
    let mut incoming = [Incoming::new(2), Incoming::new(1)];
    let mut rounds = 0;
    in_small_steps(&mut world, |world| {
        rounds += 1;
        world.pump(0, client, &mut outgoing[0]);
        world.pump(0, server, &mut outgoing[1]);
        if rounds % 5 == 0 {
            world.drain(0, client, &mut incoming[0]);
            world.drain(0, server, &mut incoming[1]);
        } else {
            let connection = world.stack(0).tcp(server).unwrap();
            assert!(connection.received_to() - connection.consumed_to() <= connection.receive_limit());
        }
        world.stack(0).tcp(client).unwrap().check_invariants().unwrap();
        incoming.iter().all(|incoming| incoming.finished && incoming.read == total)
    });
    assert_eq!(world.frames, 0);
    assert_eq!(world.stack(0).stats().cut_through_bytes, 2 * total);
    let info = world.hosts[0].stack.tcp_info(world.now, client).unwrap();
    assert_eq!((info.bytes_acked, info.bytes_received), (total, total));
}

#[test]
fn an_urgent_byte_is_announced_through_a_closed_window_and_comes_with_the_bytes() {
    let mut world = quiet_world(1, LinkConfig::default());
    let (client, server) = local_pair(&mut world, 80);
    let window = world.stack(0).tcp(server).unwrap().receive_limit() as usize;
    let stack = world.stack(0);
    let queued = stack.stream(client).unwrap().write(&vec![b'a'; window + 10]);
    stack.tcp_send(client, queued);
    world.flush();
    let stack = world.stack(0);
    assert_eq!(stack.tcp(server).unwrap().received_to(), window as u64);
    let queued = stack.stream(client).unwrap().write(b"bcd");
    stack.tcp_send_urgent(client, queued, queued);
    world.flush();
    let now = world.now;
    let stack = world.stack(0);
    let mark = stack.tcp(server).unwrap().urgent().unwrap();
    assert_eq!((mark.offset, mark.byte), (Some(window as u64 + 12), None), "nothing else of it has come");
    let mut got = Vec::new();
    let read = stack.stream(server).unwrap().read(window as u64, &mut got);
    stack.tcp_consumed(now, server, read);
    world.flush();
    let mark = world.stack(0).tcp(server).unwrap().urgent().unwrap();
    assert_eq!((mark.offset, mark.byte), (Some(window as u64 + 12), Some(b'd')));
    assert_eq!(world.stack(0).tcp(server).unwrap().received_to(), window as u64 + 13);
    assert_eq!(world.frames, 0);
}

#[test]
fn nobody_listens_or_the_queue_is_full() {
    let mut world = quiet_world(2, LinkConfig::default());
    let refused = world.connect(0, at(0, 81));
    world.flush();
    let connection = world.stack(0).tcp(refused).unwrap();
    assert_eq!((connection.state(), connection.error()), (State::Closed, Some(tcp::Error::Refused)));
    let options = SocketOptions::default();
    let listener = world.stack(0).tcp_listen(at(0, 80), 1, (), &options).unwrap();
    let clients: Vec<SocketId> = (0..3).map(|_| world.connect(0, at(0, 80))).collect();
    world.run_for(Duration::from_millis(100));
    let states = clients.iter().map(|&id| world.state(0, id)).collect::<Vec<_>>();
    assert_eq!(states, [State::Established, State::Established, State::SynSent]);
    assert_eq!(world.stack(0).stats().drop_listen_overflow, 1);
    assert!(world.stack(0).tcp_accept(listener).is_some());
    // The SYN is tried again after a second, as on Linux.
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.state(0, clients[2]), State::Established);
    assert_eq!(world.stack(0).stats().tcp_cut_through, 3);
    let now = world.now;
    world.stack(0).close(now, listener).unwrap();
    world.flush();
    let reset = world.stack(0).tcp(clients[2]).unwrap();
    assert_eq!((reset.state(), reset.error()), (State::Closed, Some(tcp::Error::Reset)));
    assert_eq!(world.state(0, clients[0]), State::Established, "it was accepted");
}

#[test]
fn an_attempt_is_made_at_once_where_the_listener_is_here() {
    let mut world = quiet_world(4, LinkConfig::default());
    let (now, listener) = (world.now, world.listen(0, 80));
    let met = world.connect(0, at(0, 80));
    world.stack(0).tcp_meet(now, met);
    assert_eq!(world.state(0, met), State::Established);
    assert!(world.stack(0).tcp_accept(listener).is_some());
    let refused = world.connect(0, at(0, 81));
    world.stack(0).tcp_meet(now, refused);
    assert_eq!(world.stack(0).tcp(refused).unwrap().error(), Some(tcp::Error::Refused));
    // What cannot be done so goes its way: to another host, and to itself.
    world.listen(1, 80);
    let far = world.connect(0, at(1, 80));
    let own = world.stack(0).tcp_bind(at(0, 5000), &SocketOptions::default()).unwrap();
    world.stack(0).tcp_connect_bound(now, own, at(0, 5000), Default::default()).unwrap();
    for id in [far, own, met] {
        world.stack(0).tcp_meet(now, id);
    }
    assert_eq!(world.state(0, far), State::SynSent);
    world.run_for(Duration::from_secs(3));
    for id in [far, own, met] {
        assert_eq!(world.state(0, id), State::Established);
    }
}

#[test]
fn a_connection_to_itself_and_a_simultaneous_open_go_by_segments() {
    let mut world = quiet_world(3, LinkConfig::default());
    let options = SocketOptions::default();
    let now = world.now;
    let own = world.stack(0).tcp_bind(at(0, 5000), &options).unwrap();
    world.stack(0).tcp_connect_bound(now, own, at(0, 5000), Default::default()).unwrap();
    let one = world.stack(0).tcp_bind(at(0, 5001), &options).unwrap();
    let two = world.stack(0).tcp_bind(at(0, 5002), &options).unwrap();
    world.stack(0).tcp_connect_bound(now, one, at(0, 5002), Default::default()).unwrap();
    world.stack(0).tcp_connect_bound(now, two, at(0, 5001), Default::default()).unwrap();
    world.run_for(Duration::from_secs(3));
    for id in [own, one, two] {
        assert_eq!(world.state(0, id), State::Established);
    }
    assert_eq!(world.stack(0).stats().tcp_cut_through, 0);
    let mut talk = Outgoing::new(1, 100_000);
    let mut heard = Incoming::new(1);
    let done = world.run_until(Duration::from_secs(9), |world| {
        world.pump(0, own, &mut talk);
        world.drain(0, own, &mut heard);
        heard.finished
    });
    assert!(done && heard.read == 100_000);
}

/// Closes one end and then the other.
fn close_in_order(world: &mut World, first: SocketId, second: SocketId) {
    for id in [first, second] {
        let now = world.now;
        world.stack(0).close(now, id).unwrap();
        world.flush();
    }
    assert_eq!(world.stack(0).socket_count(), 0);
}

#[test]
fn time_wait_keeps_a_port_from_being_bound_but_not_from_being_used_again() {
    let mut world = quiet_world(4, LinkConfig::default());
    let options = SocketOptions::default();
    let reuse = SocketOptions { reuse_address: true, ..options.clone() };
    // The client closes first: its port was chosen for it, and nothing is left.
    let (client, server) = local_pair(&mut world, 80);
    close_in_order(&mut world, client, server);
    assert_eq!(world.stack(0).time_wait_count(), 0);
    // The server closes first: its port is kept. As on Linux, to be bound again it must have been shared before.
    let listener = world.stack(0).tcp_listen(at(0, 80), 9, (), &reuse).unwrap();
    let client = world.connect(0, at(0, 80));
    world.flush();
    let server = world.stack(0).tcp_accept(listener).unwrap();
    let now = world.now;
    world.stack(0).close(now, listener).unwrap();
    world.flush();
    let port = world.stack(0).local_addr(client).unwrap().port();
    close_in_order(&mut world, server, client);
    assert_eq!((world.stack(0).time_wait_count(), world.stack(0).timer_count()), (1, 1));
    assert_eq!(world.stack(0).tcp_bind(at(0, 80), &options), Err(SocketError::AddressInUse));
    let listener = world.stack(0).tcp_listen(at(0, 80), 9, (), &reuse).unwrap();
    // The very same ends, at once.
    let now = world.now;
    let local = Some(at(0, port));
    let again = world.stack(0).tcp_connect(now, local, at(0, 80), Default::default(), &reuse).unwrap();
    world.flush();
    assert_eq!(world.state(0, again), State::Established);
    assert_eq!(world.stack(0).time_wait_count(), 0);
    // A port that the client asked for is kept, too.
    let server = world.stack(0).tcp_accept(listener).unwrap();
    world.stack(0).close(now, listener).unwrap();
    close_in_order(&mut world, again, server);
    assert_eq!(world.stack(0).time_wait_count(), 1);
    assert_eq!(world.stack(0).tcp_bind(at(0, port), &options), Err(SocketError::AddressInUse));
    world.run_for(Duration::from_secs(61));
    assert_eq!((world.stack(0).time_wait_count(), world.stack(0).timer_count()), (0, 0));
}

#[test]
fn ports_do_not_run_out_however_many_connections_come_and_go() {
    let config = StackConfig { ephemeral_ports: (40_000, 40_063), ..StackConfig::default() };
    let mut world = World::with_config(5, LinkConfig::default(), config);
    let listener = world.listen(0, 80);
    for round in 0..1000 {
        let client = world.connect(0, at(0, 80));
        world.flush();
        let server = world.stack(0).tcp_accept(listener).unwrap();
        let now = world.now;
        let ids = if round % 2 == 0 { [client, server] } else { [server, client] };
        ids.into_iter().for_each(|id| world.stack(0).close(now, id).unwrap());
        world.flush();
        world.hosts[0].changes.clear();
    }
    assert_eq!(world.stack(0).socket_count(), 1);
    assert_eq!(world.stack(0).stats().tcp_cut_through, 1000);
}

#[test]
fn an_orphan_is_patient_for_a_while_only() {
    let mut world = quiet_world(6, LinkConfig::default());
    let (client, server) = local_pair(&mut world, 80);
    let mut end = End::new(0, client, 1, 2);
    for _ in 0..8 {
        end.act(&mut world, Act::Write(50_000));
        world.flush();
    }
    end.act(&mut world, Act::Close);
    world.flush();
    let patience = StackConfig::default().orphan_timeout;
    world.run_for(patience / 2);
    // A reader that goes on is waited for anew.
    let mut reader = End::new(0, server, 2, 1);
    reader.act(&mut world, Act::Read(40_000));
    world.run_for(patience * 3 / 4);
    assert_eq!(world.state(0, server), State::Established);
    world.run_for(patience / 2);
    let connection = world.stack(0).tcp(server).unwrap();
    assert_eq!((connection.state(), connection.error()), (State::Closed, Some(tcp::Error::Reset)));
    assert_eq!(world.stack(0).socket_count(), 1);
}

#[test]
fn whoever_writes_to_an_end_that_is_gone_is_reset() {
    let mut world = quiet_world(7, LinkConfig::default());
    // FIN-WAIT-2 is over, and the other end has heard of nothing.
    let (client, server) = local_pair(&mut world, 80);
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    world.run_for(Duration::from_secs(100));
    assert_eq!((world.stack(0).socket_count(), world.state(0, server)), (1, State::CloseWait));
    End::new(0, server, 1, 2).act(&mut world, Act::Write(10));
    world.flush();
    assert_eq!(world.stack(0).tcp(server).unwrap().error(), Some(tcp::Error::Reset));
    // Within FIN-WAIT-2 both ends are over at once.
    let (client, server) = local_pair(&mut world, 81);
    let now = world.now;
    world.stack(0).close(now, client).unwrap();
    world.flush();
    End::new(0, server, 1, 2).act(&mut world, Act::Write(10));
    world.flush();
    assert_eq!(world.stack(0).tcp(server).unwrap().error(), Some(tcp::Error::Reset));
    assert_eq!(world.stack(0).socket_count(), 2);
}

/// The snapshot of an end is that of any connection: restored ends go on by segments.
#[test]
fn both_ends_go_on_in_another_stack() {
    let link = LinkConfig::default();
    let mut world = quiet_world(8, link);
    let (client, server) = local_pair(&mut world, 80);
    let mut ids = [client, server];
    let total = 2_000_000;
    let mut outgoing = [Outgoing::new(1, total), Outgoing::new(2, total)];
    let mut incoming = [Incoming::new(2), Incoming::new(1)];
    let mut moved = false;
    in_small_steps(&mut world, |world| {
        for end in 0..2 {
            world.pump(0, ids[end], &mut outgoing[end]);
            world.drain(0, ids[end], &mut incoming[end]);
        }
        if !moved && incoming[0].read > total / 2 {
            moved = true;
            world.flush();
            let kept = ids.map(|id| {
                let snapshot = world.stack(0).snapshot(id).unwrap();
                (snapshot, world.stack(0).stream(id).unwrap().clone())
            });
            let now = world.now;
            world.hosts[0] = host(&link, StackConfig::default(), 0, 99, now);
            ids = kept.map(|(snapshot, stream)| {
                world.stack(0).restore_tcp(now, &snapshot, stream, &SocketOptions::default()).unwrap()
            });
        }
        incoming.iter().all(|incoming| incoming.finished)
    });
    assert!(moved);
    assert!(incoming.iter().all(|incoming| incoming.read == total));
    assert_eq!(world.stack(0).stats().tcp_cut_through, 0);
}

#[test]
fn datagrams_go_straight_from_one_socket_to_the_other() {
    use outboard_stack::DatagramMeta;
    let mut world = quiet_world(9, LinkConfig::default());
    let options = SocketOptions::default();
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let bind =
        |world: &mut World, local| world.stack(0).udp_bind(local, Default::default(), &options).unwrap();
    let (server, client) = (bind(&mut world, at(0, 7)), bind(&mut world, any));
    world.stack(0).udp_connect(client, Some(at(0, 7))).unwrap();
    let meta = |remote| DatagramMeta { remote, local: any, ttl: 0, tos: 0, segment: 0 };
    for (number, length) in [0, 1, 1000, 60_000].into_iter().enumerate() {
        let payload = vec![number as u8; length];
        assert!(world.stack(0).datagrams(client).unwrap().send(meta(any), &payload));
        world.stack(0).udp_send(client).unwrap();
        world.flush();
        let (from, got) = world.stack(0).datagrams(server).unwrap().receive().unwrap();
        assert_eq!((got, from.local), (payload, at(0, 7)));
        assert_eq!(from.remote, world.stack(0).local_addr(client).unwrap());
        assert!(world.stack(0).datagrams(server).unwrap().send(meta(from.remote), b"answer"));
        world.stack(0).udp_send(server).unwrap();
        world.flush();
        assert_eq!(world.stack(0).datagrams(client).unwrap().receive().unwrap().1, b"answer");
    }
    assert_eq!(world.stack(0).stats().udp_cut_through, 8);
    // To itself, and to nobody, by a packet.
    assert!(world.stack(0).datagrams(server).unwrap().send(meta(at(0, 7)), b"note"));
    world.stack(0).udp_send(server).unwrap();
    world.flush();
    assert_eq!(world.stack(0).datagrams(server).unwrap().receive().unwrap().1, b"note");
    assert_eq!((world.stack(0).stats().udp_cut_through, world.frames), (8, 0));
}
