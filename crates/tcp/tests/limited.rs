//! What limits sending, and for how long.

mod harness;

use base::{Duration, Instant};
use harness::peer::Peer;
use harness::world::{Path, World};
use tcp::{Config, Limit, State, TcpInfo};
use wire::tcp::Options;

const MS: Duration = Duration::from_millis(1);

fn established() -> Peer {
    Peer::established(&Config::default())
}

/// The time of one reason, of a connection whose times must add up to its age.
fn time(peer: &Peer, limit: Limit) -> Duration {
    let limited = peer.conn.limited_by(peer.now);
    // Peers are established at 100 s and the time of the handshake.
    let all: u64 = Limit::ALL.iter().map(|&limit| limited.time(limit).as_nanos()).sum();
    assert_eq!(limited.total(), Duration::from_nanos(all));
    limited.time(limit)
}

#[test]
fn an_idle_connection_is_limited_by_its_application() {
    let mut peer = established();
    peer.now += MS * 1500;
    assert_eq!(peer.conn.limit(), Limit::Application);
    assert_eq!(time(&peer, Limit::Application), MS * 1500);
    assert_eq!(peer.conn.limited_by(peer.now).total(), MS * 1500);
    assert_eq!(peer.conn.tcp_info(peer.now).busy_time, 0);
}

#[test]
fn a_full_window_of_the_peer_limits() {
    let mut peer = established();
    peer.window = 3000;
    peer.ack(0);
    peer.send(20_000);
    assert_eq!(peer.drain().len(), 3);
    peer.now += MS * 100;
    assert_eq!(time(&peer, Limit::PeerWindow), MS * 100);
    // Closed for good: still the peer's.
    peer.window = 0;
    peer.ack(3000);
    peer.drain();
    peer.now += MS * 50;
    assert_eq!(time(&peer, Limit::PeerWindow), MS * 150);
    assert_eq!(peer.conn.tcp_info(peer.now).rwnd_limited, 150_000);
    assert_eq!(peer.conn.tcp_info(peer.now).busy_time, 150_000);
}

#[test]
fn the_congestion_window_limits_what_the_peer_would_take() {
    let mut peer = established();
    peer.send(50_000);
    assert_eq!(peer.drain().len(), 10);
    peer.now += MS * 30;
    assert_eq!(time(&peer, Limit::CongestionWindow), MS * 30);
    peer.ack(10_000);
    peer.drain();
    peer.now += MS;
    assert_eq!(time(&peer, Limit::CongestionWindow), MS * 31);
}

#[test]
fn pacing_limits_a_window_that_would_go_at_once() {
    let mut peer = Peer::established_after(
        &Config::default(),
        Options { mss: Some(1000), ..Options::default() },
        MS * 100,
    );
    peer.send(50_000);
    peer.drain();
    peer.now += MS * 100;
    peer.ack(10_000);
    assert!(peer.drain().len() < 20, "a part of the window goes at once");
    assert_eq!(peer.conn.limit(), Limit::Pacing);
    let mut paced = Duration::ZERO;
    while peer.conn.limit() == Limit::Pacing {
        paced += peer.wait_for_deadline();
        peer.drain();
    }
    assert_eq!(peer.conn.limit(), Limit::CongestionWindow);
    assert!(paced > MS * 10, "{paced:?}");
    assert_eq!(time(&peer, Limit::Pacing), paced);
    assert_eq!(time(&peer, Limit::CongestionWindow), MS * 100);
}

#[test]
fn a_full_send_buffer_limits_until_it_is_acknowledged() {
    let mut peer = established();
    peer.send(5000);
    peer.drain();
    assert!(peer.conn.is_drained());
    peer.conn.handle_send_blocked(peer.now, true);
    peer.now += MS * 20;
    peer.ack(2500);
    peer.now += MS * 10;
    peer.ack(5000);
    assert!(!peer.conn.is_drained());
    peer.now += MS * 70;
    peer.drain();
    assert_eq!(time(&peer, Limit::SendBuffer), MS * 30);
    assert_eq!(time(&peer, Limit::Application), MS * 70);
    assert_eq!(peer.conn.tcp_info(peer.now).sndbuf_limited, 30_000);
    // What is not drained is not limited by its buffer, whatever its owner says.
    peer.conn.handle_send_blocked(peer.now, true);
    assert_eq!(peer.conn.limit(), Limit::Application);
}

#[test]
fn a_loss_limits_until_it_is_repaired() {
    let options = Options { mss: Some(1000), sack_permitted: true, ..Options::default() };
    let mut peer = Peer::established_with(&Config::default(), options);
    peer.send(10_000);
    peer.drain();
    peer.now += MS * 10;
    peer.sack = vec![(1000, 5000)];
    peer.ack(0);
    assert_eq!(peer.conn.limit(), Limit::Recovery);
    let info = peer.conn.tcp_info(peer.now);
    assert_eq!((info.ca_state, info.sacked, info.lost, info.unacked), (3, 4, 1, 10));
    peer.drain();
    let info = peer.conn.tcp_info(peer.now);
    assert_eq!((info.lost, info.retrans, info.total_retrans, info.bytes_retrans), (1, 1, 1, 1000));
    peer.now += MS * 40;
    peer.sack.clear();
    peer.ack(10_000);
    peer.now += MS * 3;
    assert_eq!(time(&peer, Limit::Recovery), MS * 40);
    assert_eq!(time(&peer, Limit::Application), MS * 13);
    let info = peer.conn.tcp_info(peer.now);
    assert_eq!((info.ca_state, info.delivered, info.bytes_sent), (0, 10, 11_000));
}

#[test]
fn what_nagle_and_cork_hold_back_is_the_applications() {
    let mut peer = established();
    peer.send(100);
    peer.drain();
    peer.send(200);
    assert_eq!(peer.drain(), []);
    assert_eq!(peer.conn.limit(), Limit::Application);
    peer.now += MS * 5;
    assert_eq!(time(&peer, Limit::Application), MS * 5);
}

#[test]
fn the_times_add_up_to_the_age_whatever_happens_and_survive_a_restart() {
    for seed in 0..20 {
        let path = Path {
            loss: 0.02,
            reorder: 0.02,
            jitter: MS * 5,
            rate: 2_000_000,
            queue: 60_000,
            ..Path::default()
        };
        let mut world = World::new(seed, &Config::default(), &path);
        world.established();
        let age = |world: &World, side: usize| world.hosts[side].conn.limited_by(world.now).total();
        let (start, first) = (world.now, [age(&world, 0), age(&world, 1)]);
        world.hosts[0].to_send = 3_000_000;
        world.hosts[0].send_buffer = 20_000 << (seed % 8);
        world.hosts[1].to_send = 1000;
        for round in 0..40 {
            world.run_for(MS * 100);
            world.hosts[1].paused = round % 7 == 3;
            if round == 20 {
                world.restart((seed % 2) as usize);
            }
            for (side, first) in first.iter().enumerate() {
                let state = world.hosts[side].conn.state();
                assert_eq!(state, State::Established, "seed {seed}");
                let elapsed = world.now.saturating_since(start);
                assert_eq!(age(&world, side), *first + elapsed, "seed {seed} side {side}");
            }
        }
    }
}

#[test]
fn the_numbers_of_a_transfer_are_those_of_the_kernels_structure() {
    let path = Path { delay: MS * 10, rate: 10_000_000, queue: 1 << 30, ..Path::default() };
    let mut world = World::new(3, &Config::default(), &path);
    world.established();
    world.hosts[0].to_send = 2_000_000;
    world.run_until(Duration::from_secs(20), World::transfers_done);
    let [sender, receiver] = [0, 1].map(|side| world.hosts[side].conn.tcp_info(world.now));
    assert_eq!((sender.state, sender.options & 7), (1, 7));
    assert_eq!((sender.snd_mss, sender.pmtu, sender.advmss), (1448, 1500, 1448));
    assert_eq!((sender.bytes_acked, sender.bytes_sent, sender.notsent_bytes), (2_000_000, 2_000_000, 0));
    assert_eq!(receiver.bytes_received, 2_000_000);
    assert_eq!(sender.data_segs_out, receiver.data_segs_in);
    assert_eq!(sender.data_segs_out, 2_000_000u32.div_ceil(1448));
    // The SYN came to the listener, before there was a connection to count it.
    assert_eq!((sender.segs_out, sender.segs_in), (receiver.segs_in + 1, receiver.segs_out));
    assert!((20_000..40_000).contains(&sender.min_rtt), "{}", sender.min_rtt);
    // 10 MB/s less what the headers take.
    assert!((9_000_000..10_000_000).contains(&sender.delivery_rate), "{}", sender.delivery_rate);
    assert_eq!(TcpInfo::from_bytes(&sender.to_bytes()), sender);
    let later = world.now + MS * 700;
    assert!((700..1000).contains(&world.hosts[1].conn.tcp_info(later).last_data_recv));
    assert_eq!(world.hosts[0].conn.tcp_info(Instant::ZERO).last_ack_sent, 0);
}

#[test]
fn another_congestion_control_goes_on_from_the_same_window() {
    for algorithm in tcp::CongestionAlgorithm::ALL {
        let path = Path { rate: 5_000_000, queue: 100_000, loss: 0.002, ..Path::default() };
        let mut world = World::new(9, &Config::default(), &path);
        world.established();
        world.hosts[0].to_send = 4_000_000;
        world.run_for(MS * 300);
        let before = world.hosts[0].conn.tcp_info(world.now);
        world.hosts[0].conn.set_congestion(algorithm);
        let after = world.hosts[0].conn.tcp_info(world.now);
        assert_eq!(after.congestion, algorithm);
        assert_eq!(tcp::CongestionAlgorithm::from_name(algorithm.name()), Some(algorithm));
        if before.ca_state == 0 {
            assert_eq!(after.snd_cwnd, before.snd_cwnd, "{algorithm:?}");
        }
        world.run_until(Duration::from_secs(60), World::transfers_done);
    }
}

#[test]
fn the_size_of_the_peers_segments_is_a_guess_until_it_is_seen_in_order_or_not() {
    let mut peer = established();
    assert_eq!(peer.conn.tcp_info(peer.now).rcv_mss, 536);
    peer.more(10);
    assert_eq!(peer.conn.tcp_info(peer.now).rcv_mss, 536, "small ones say nothing");
    let header = peer.header(harness::peer::ACK, 2000, 0);
    let payload: Vec<u8> = (2000..11_000).map(|at| harness::pattern(0, at)).collect();
    peer.give_counted(header, &payload, 9);
    assert_eq!(peer.conn.tcp_info(peer.now).rcv_mss, 1000);
}
