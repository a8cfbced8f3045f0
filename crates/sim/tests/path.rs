//! What a connection knows of its path: its MTU, and what the one before left behind.

mod common;

use base::{Duration, Instant};
use common::{finish, pair};
use sim::application::{ConversationSpec, Plan};
use sim::{HostSpec, PatternBuffers, World};
use tcp::{CongestionAlgorithm, MtuProbing, Stats};

/// What became of a transfer.
struct Outcome {
    elapsed: Duration,
    /// IP and TCP headers with timestamps, and the payload of a full segment.
    mtu: u16,
    stats: Stats,
}

/// Sends `bytes` from the client to the server; returns when the last is acknowledged.
fn transfer(world: &mut World<PatternBuffers>, bytes: u64) -> Outcome {
    let start = world.now();
    let number = world.converse(ConversationSpec {
        client: 0,
        server: 1,
        port: 80,
        start,
        client_plan: Plan::sending(bytes),
        server_plan: Plan::default(),
    });
    let client = 2 * number;
    let mut outcome = None;
    while world.endpoint(client + 1).read < bytes {
        world.run_until(world.now() + Duration::from_millis(1));
        assert!(world.now().saturating_since(start) < Duration::from_secs(600), "it does not come to an end");
        if let Some(connection) = world.connection(client) {
            outcome = Some((connection.mss() + 52, connection.stats()));
        }
    }
    let elapsed = world.now().saturating_since(start);
    // Let it end in order.
    world.run_until(world.now() + Duration::from_secs(2));
    let (mtu, stats) = outcome.expect("a connection");
    Outcome { elapsed, mtu, stats }
}

fn host(mtu: u16, probing: MtuProbing) -> HostSpec {
    let mut host = HostSpec { mtu, ..HostSpec::default() };
    host.stack.tcp.mtu_probing = probing;
    host
}

#[test]
fn a_transfer_crosses_a_black_hole_and_fills_its_mtu() {
    for (seed, mtu, path_mtu) in [(1, 1500, 1300), (2, 9000, 1500), (3, 1500, 576), (4, 9000, 8000)] {
        for super_segments in [false, true] {
            let mut spec = host(mtu, MtuProbing::OnBlackHole);
            spec.max_segmentation = if super_segments { 65_535 } else { 0 };
            spec.coalesce = super_segments;
            let forward = format!("mtu {path_mtu} blackhole, rate 50mbit, queue 300KB, delay 10ms");
            let mut world = pair(seed, &spec, &forward, "delay 10ms");
            let done = transfer(&mut world, 30_000_000);
            let context = format!("{mtu} over {path_mtu}, super-segments {super_segments}: {:?}", done.stats);
            assert!((path_mtu - 8..=path_mtu).contains(&done.mtu), "MTU {} of {context}", done.mtu);
            assert!((1..=2).contains(&done.stats.black_holes), "{context}");
            assert!(done.stats.mtu_raises > 0 && done.stats.mtu_probes_lost > 0, "{context}");
            // 30 MB at 50 Mbit/s take 5 s, finding the black hole three, and segments of 512 bytes have much header.
            assert!(done.elapsed < Duration::from_secs(15), "{:?}: {context}", done.elapsed);
            // The next connection need not fall into the hole again.
            let next = transfer(&mut world, 3_000_000);
            assert_eq!((next.mtu, next.stats.timeouts), (done.mtu, 0), "{context}: {:?}", next.stats);
            finish(&mut world);
        }
    }
}

#[test]
fn probing_from_the_start_needs_no_timeout() {
    let spec = host(9000, MtuProbing::Always);
    let forward = "mtu 1500 blackhole, rate 50mbit, queue 300KB, delay 10ms";
    let mut world = pair(5, &spec, forward, "delay 10ms");
    let done = transfer(&mut world, 20_000_000);
    assert!((1492..=1500).contains(&done.mtu), "{}", done.mtu);
    assert_eq!((done.stats.timeouts, done.stats.black_holes), (0, 0), "{:?}", done.stats);
    finish(&mut world);
}

#[test]
fn lost_probes_do_not_slow_a_transfer_down() {
    // The same path, once with the right MTU from the start, once with probes that are lost on the way there.
    for congestion in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic, CongestionAlgorithm::Bbr] {
        let run = |mtu, forward: &str| {
            let mut spec = host(mtu, MtuProbing::Always);
            spec.stack.tcp.congestion = congestion;
            let mut world = pair(6, &spec, forward, "delay 10ms");
            let done = transfer(&mut world, 40_000_000);
            finish(&mut world);
            done
        };
        let plain = run(1500, "rate 50mbit, queue 300KB, delay 10ms");
        let probed = run(4000, "mtu 1500 blackhole, rate 50mbit, queue 300KB, delay 10ms");
        assert!(probed.stats.mtu_probes_lost >= 9, "{congestion:?}: {:?}", probed.stats);
        let (plain_ms, probed_ms) = (plain.elapsed.as_millis(), probed.elapsed.as_millis());
        assert!(probed_ms < plain_ms + plain_ms / 10, "{congestion:?}: {plain_ms} ms and {probed_ms} ms");
    }
}

#[test]
fn a_router_that_speaks_leaves_nothing_to_search() {
    for probing in [MtuProbing::OnBlackHole, MtuProbing::Always] {
        let spec = host(1500, probing);
        let mut world = pair(7, &spec, "mtu 1300, rate 50mbit, queue 300KB, delay 10ms", "delay 10ms");
        let done = transfer(&mut world, 10_000_000);
        assert_eq!((done.mtu, done.stats.black_holes, done.stats.timeouts), (1300, 0, 0), "{probing:?}");
        assert!(done.stats.mtu_probes <= 2, "{probing:?}: {:?}", done.stats);
        finish(&mut world);
    }
}

#[test]
fn a_second_transfer_knows_the_window_of_the_first() {
    for (congestion, forward) in [
        // Slow start overshoots a queue of a fifth of the path's product.
        (CongestionAlgorithm::NewReno, "rate 50mbit, queue 50KB, delay 20ms"),
        (CongestionAlgorithm::Cubic, "rate 100mbit, queue 100KB, delay 20ms, loss 0.001%"),
    ] {
        let run = |share: bool| {
            let mut spec = HostSpec::default();
            spec.stack.tcp.congestion = congestion;
            // The receiver's window is not what holds slow start back.
            spec.stack.tcp.initial_window = 4 << 20;
            spec.stack.share_path_information = share;
            let mut world = pair(8, &spec, forward, "delay 20ms");
            let both = [transfer(&mut world, 30_000_000), transfer(&mut world, 30_000_000)];
            finish(&mut world);
            both
        };
        let ([first, second], [_, stranger]) = (run(true), run(false));
        let lost = |outcome: &Outcome| outcome.stats.bytes_retransmitted;
        println!(
            "{congestion:?}: first {:?} {} B again, second {:?} {} B, without memory {:?} {} B",
            first.elapsed,
            lost(&first),
            second.elapsed,
            lost(&second),
            stranger.elapsed,
            lost(&stranger)
        );
        assert!(
            lost(&first) > 100_000 && lost(&stranger) > 100_000,
            "slow start overshoots: {:?}",
            first.stats
        );
        assert!(lost(&second) * 10 < lost(&first), "the second does not: {:?}", second.stats);
        assert!(second.elapsed < first.elapsed && second.elapsed < stranger.elapsed);
    }
}

#[test]
fn reordering_is_remembered() {
    let spec = HostSpec::default();
    let (mut first, mut second) = (0, 0);
    for seed in 9..15 {
        let mut world =
            pair(seed, &spec, "rate 50mbit, queue 500KB, delay 10ms, reorder 2% 1..8pkt", "delay 10ms");
        first += transfer(&mut world, 10_000_000).stats.fast_recoveries;
        second += transfer(&mut world, 10_000_000).stats.fast_recoveries;
        finish(&mut world);
    }
    assert!(second < first, "first transfers: {first} recoveries, second ones: {second}");
}

#[test]
fn what_is_remembered_expires() {
    let spec = host(1500, MtuProbing::OnBlackHole);
    let forward = "mtu 1300 blackhole, rate 50mbit, queue 300KB, delay 10ms";
    let mut world = pair(10, &spec, forward, "delay 10ms");
    let first = transfer(&mut world, 5_000_000);
    world.run_until(world.now() + Duration::from_secs(601));
    let later = transfer(&mut world, 5_000_000);
    assert_eq!((first.stats.black_holes, later.stats.black_holes), (1, 1));
    assert!(world.now() > Instant::ZERO + Duration::from_secs(600));
    finish(&mut world);
}
