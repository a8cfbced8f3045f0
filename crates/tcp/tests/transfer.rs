//! Whole transfers between two connections: every byte arrives once, in order, whatever the link does.

mod harness;

use base::{Duration, Rng, SeededRng};
use harness::world::{Path, World};
use tcp::{Config, CongestionAlgorithm, State};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_clean_path_carries_both_directions_and_closes() {
    let mut world = World::new(1, &Config::default(), &Path::default());
    world.hosts[0].to_send = 3_000_000;
    world.hosts[1].to_send = 1_000_000;
    for host in &mut world.hosts {
        host.close_when_sent = true;
    }
    world.run_until(secs(60), World::both_closed);
    assert_eq!(world.hosts[1].conn.received_to(), 3_000_000);
    assert_eq!(world.hosts[0].conn.received_to(), 1_000_000);
    assert_eq!(world.hosts[0].conn.stats().retransmissions, 0);
    assert_eq!(world.hosts[0].conn.error(), None);
    assert_eq!(world.hosts[1].conn.error(), None);
}

#[test]
fn super_segments_go_both_ways() {
    let path = Path { coalesce: 44, rate: 1_000_000_000, ..Path::default() };
    let mut world = World::new(2, &Config::default(), &path);
    world.hosts[0].to_send = 20_000_000;
    world.hosts[0].max_payload = 65_000;
    world.run_until(secs(60), World::transfers_done);
    let stats = world.hosts[1].conn.stats();
    assert!(stats.segments_in > 13_000);
    assert_eq!(world.hosts[0].conn.stats().retransmissions, 0);
    assert!(world.now.as_millis() < 1_000_000 + 1000 + 60_000);
}

/// Random links: loss, duplication, reordering, rates, queues; with and without each option; super-segments.
#[test]
fn hostile_links_deliver_everything() {
    for seed in 0..seeds(400) {
        random_world(seed);
    }
}

const ALGORITHMS: [CongestionAlgorithm; 3] =
    [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic, CongestionAlgorithm::Bbr];

/// How many seeds to run: `OUTBOARD_SEEDS`, or a few.
fn seeds(few: u64) -> u64 {
    std::env::var("OUTBOARD_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

fn random_world(seed: u64) {
    let mut rng = SeededRng::new(seed ^ 0x5eed);
    let mut config = || {
        let mut config = Config::default();
        config.timestamps = rng.below(3) != 0;
        config.window_scaling = rng.below(4) != 0;
        config.selective_acks = rng.below(3) != 0;
        config.congestion = ALGORITHMS[rng.below(3) as usize];
        config.ecn = rng.below(2) == 0;
        config.nodelay = rng.below(2) == 0;
        config.mss = [536, 1460, 8960][rng.below(3) as usize];
        config.announced_mss = config.mss;
        // Longer than the largest timeout, so that a last segment lost again and again still finds its peer.
        config.time_wait = secs(900);
        config.window_limit = [4000, 65_535, 300_000, 6 << 20][rng.below(4) as usize];
        config
    };
    let configs = [config(), config()];
    let mut path = || Path {
        delay: Duration::from_micros(rng.below(50_000)),
        jitter: Duration::from_micros(rng.below(30_000)),
        loss: [0.0, 0.001, 0.02, 0.1][rng.below(4) as usize],
        duplicate: [0.0, 0.01][rng.below(2) as usize],
        reorder: [0.0, 0.01, 0.2][rng.below(3) as usize],
        rate: [0, 100_000, 1_250_000, 125_000_000][rng.below(4) as usize],
        queue: [20_000, 200_000, 1 << 30][rng.below(3) as usize],
        coalesce: [1, 1, 44][rng.below(3) as usize],
        mark: [0, 10_000][rng.below(2) as usize],
    };
    let paths = [path(), path()];
    let mut world = World::with_configs(seed, configs, paths);
    for side in 0..2 {
        world.hosts[side].to_send = rng.below(400_000);
        world.hosts[side].max_payload = [0, 10_000, 65_000][rng.below(3) as usize];
        world.hosts[side].close_when_sent = true;
    }
    world.run_until(secs(3600), |world| world.transfers_done() && world.both_closed());
    for host in &world.hosts {
        assert_eq!(host.conn.error(), None, "seed {seed}");
    }
}

#[test]
fn restarts_in_the_middle_lose_nothing() {
    for seed in 0..100 {
        let mut rng = SeededRng::new(seed);
        let path = Path {
            loss: [0.0, 0.02][rng.below(2) as usize],
            rate: 1_250_000,
            queue: 60_000,
            reorder: 0.02,
            jitter: Duration::from_millis(5),
            ..Path::default()
        };
        let mut world = World::new(seed, &Config::default(), &path);
        world.hosts[0].to_send = 400_000;
        world.hosts[1].to_send = 300_000;
        for host in &mut world.hosts {
            host.close_when_sent = true;
            host.max_payload = 20_000;
        }
        let mut restarts = 0;
        while !(world.transfers_done() && world.both_closed()) && restarts < 200 {
            world.run_for(Duration::from_millis(rng.below(120)));
            world.restart(rng.below(2) as usize);
            restarts += 1;
        }
        world.run_until(secs(3600), |world| world.transfers_done() && world.both_closed());
        for host in &world.hosts {
            assert_eq!(host.conn.error(), None, "seed {seed}");
        }
    }
}

#[test]
fn half_close_lets_the_other_direction_go_on() {
    let mut world = World::new(5, &Config::default(), &Path::default());
    world.hosts[0].to_send = 10_000;
    world.hosts[0].close_when_sent = true;
    world.run_until(secs(10), |world| world.hosts[0].conn.state() == State::FinWait2);
    assert_eq!(world.hosts[1].conn.state(), State::CloseWait);
    world.hosts[1].to_send = 2_000_000;
    world.hosts[1].close_when_sent = true;
    world.run_until(secs(60), World::both_closed);
    assert_eq!(world.hosts[0].conn.received_to(), 2_000_000);
}

#[test]
fn a_reader_that_stops_stops_the_sender_and_nothing_is_lost() {
    let mut world = World::new(6, &Config::default(), &Path::default());
    world.hosts[0].to_send = 5_000_000;
    world.hosts[1].paused = true;
    world.run_for(secs(30));
    let received = world.hosts[1].conn.received_to();
    assert!((65_535 - 256..=65_535).contains(&received), "{received}");
    assert!(world.hosts[0].conn.stats().probes >= 3);
    // The update that opens the window is lost: a probe finds it open.
    world.hosts[1].paused = false;
    world.paths[1].loss = 1.0;
    world.run_for(Duration::from_millis(15));
    world.paths[1].loss = 0.0;
    world.run_until(secs(200), World::transfers_done);
}

/// The path becomes ten times as long after the handshake. The receiver sends no data, so nothing is acknowledged by which it
/// could see that; the window must hold a round trip's worth all the same.
#[test]
fn a_receiver_sees_a_longer_path_by_the_data_alone() {
    for timestamps in [true, false] {
        let path = Path { delay: Duration::from_millis(5), rate: 200_000_000, ..Path::default() };
        let config = Config { timestamps, window_limit: 8 << 20, ..Config::default() };
        let mut world = World::new(11, &config, &path);
        world.established();
        world.hosts[0].to_send = 25_000_000;
        world.hosts[0].send_buffer = 16 << 20;
        for path in &mut world.paths {
            path.delay = Duration::from_millis(50);
        }
        let start = world.now;
        world.run_until(secs(120), World::transfers_done);
        let info = world.hosts[1].conn.tcp_info(world.now);
        let receiver = Duration::from_micros(info.rcv_rtt.into());
        assert!(receiver >= Duration::from_millis(90), "timestamps {timestamps}: {receiver:?}");
        assert!(receiver <= Duration::from_millis(250), "timestamps {timestamps}: {receiver:?}");
        assert_eq!(world.hosts[0].conn.tcp_info(world.now).rcv_rtt, 0, "it received no data");
        // 25 MB at 200 Mbit/s take 1 s, and the start some round trips.
        let took = world.now.saturating_since(start);
        assert!(took < secs(4), "timestamps {timestamps}: {took:?}");
    }
}
