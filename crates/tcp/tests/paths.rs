//! How much of a path is used: long fat paths with loss and with reordering, on virtual time.

mod harness;

use base::Duration;
use harness::world::{Path, World};
use tcp::{Config, CongestionAlgorithm};

/// 527 Mbit/s.
const RATE: u64 = 527_000_000 / 8;

/// The published long fat path: 45 ms, MTU 9180, a queue of 3 MB.
fn long_fat() -> Path {
    Path { delay: Duration::from_micros(22_500), rate: RATE, queue: 3_000_000, ..Path::default() }
}

fn config(congestion: CongestionAlgorithm, sack: bool) -> Config {
    Config {
        mss: 9140,
        announced_mss: 9140,
        window_limit: 16 << 20,
        congestion,
        selective_acks: sack,
        ..Config::default()
    }
}

/// Longer runs: `OUTBOARD_SECONDS`.
fn seconds(few: u64) -> u64 {
    std::env::var("OUTBOARD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// Runs for `secs` and returns the goodput in Mbit/s.
fn goodput(world: &mut World, secs: u64) -> f64 {
    world.hosts[0].to_send = u64::MAX / 4;
    world.hosts[0].send_buffer = 16 << 20;
    world.hosts[0].plain = true;
    world.hosts[1].buffer.checks = false;
    for _ in 0..secs {
        world.run_for(Duration::from_secs(1));
        if std::env::var_os("OUTBOARD_TRACE").is_some() {
            let (info, stats) = (world.hosts[0].conn.info(), world.hosts[0].conn.stats());
            println!(
                "{} cwnd {} ssthresh {} srtt {:?} min {:?} limit {} recoveries {} undone {} retransmissions {}",
                world.hosts[1].conn.received_to() / 1_000_000,
                info.congestion_window,
                info.ssthresh,
                info.srtt,
                info.min_rtt,
                world.hosts[1].conn.info().receive_limit,
                stats.fast_recoveries,
                stats.undone,
                stats.retransmissions
            );
        }
    }
    world.hosts[1].conn.received_to() as f64 * 8.0 / secs as f64 / 1e6
}

#[test]
fn a_clean_long_fat_path_is_filled() {
    for congestion in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic, CongestionAlgorithm::Bbr] {
        let mut world = World::new(3, &config(congestion, true), &long_fat());
        let rate = goodput(&mut world, seconds(5));
        let stats = world.hosts[0].conn.stats();
        println!("{congestion:?}: {rate:.0} Mbit/s, {stats:?}");
        assert!(rate > 0.75 * 527.0, "{congestion:?}: {rate}");
    }
}

#[test]
fn bursts_of_loss_cost_a_reduction_not_a_timeout() {
    for congestion in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        for sack in [true, false] {
            let mut world = World::new(4, &config(congestion, sack), &long_fat());
            world.burst = (1e-4, 3);
            let rate = goodput(&mut world, seconds(5));
            let stats = world.hosts[0].conn.stats();
            println!("{congestion:?} sack {sack}: {rate:.0} Mbit/s, {stats:?}");
            // Without SACK nothing but a timeout finds that a retransmission was lost, as in the overflow of the start.
            assert!(stats.timeouts <= u32::from(!sack), "{congestion:?} sack {sack}: {stats:?}");
            assert!(rate > 100.0, "{congestion:?} sack {sack}: {rate}");
        }
    }
}

#[test]
fn bbr_is_not_slowed_by_random_loss() {
    for probability in [3e-5, 3e-4] {
        let mut world = World::new(6, &config(CongestionAlgorithm::Bbr, true), &long_fat());
        world.burst = (probability, 3);
        let rate = goodput(&mut world, seconds(6));
        let stats = world.hosts[0].conn.stats();
        println!("Bbr {probability}: {rate:.0} Mbit/s, {stats:?}");
        assert_eq!(stats.timeouts, 0);
        assert!(rate > 0.8 * 527.0, "{probability}: {rate}");
    }
}

#[test]
fn reordering_is_not_taken_for_loss() {
    for granularity in [1, 1000] {
        let path = Path { reorder: 0.01, jitter: Duration::from_millis(10), queue: 1 << 30, ..long_fat() };
        let config = Config {
            clock_granularity: Duration::from_micros(granularity),
            ..config(CongestionAlgorithm::Cubic, true)
        };
        let mut world = World::new(5, &config, &path);
        world.tick = config.clock_granularity;
        let rate = goodput(&mut world, seconds(5));
        let stats = world.hosts[0].conn.stats();
        let spurious = f64::from(stats.retransmissions) / (stats.segments_out as f64);
        println!("granularity {granularity} µs: {rate:.0} Mbit/s, {spurious:.5} spurious, {stats:?}");
        assert!(rate > 0.75 * 527.0, "{rate}");
        assert!(spurious < 0.001, "{spurious}");
    }
}
