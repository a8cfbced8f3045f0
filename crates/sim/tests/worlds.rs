//! Worlds made for one thing each.

mod common;

use base::{Duration, Instant};
use common::{finish, pair, path};
use sim::application::{ConversationSpec, End, Pace, Plan, Read, Stage};
use sim::{HostSpec, Limits, PatternBuffers, World};
use stack::{HeapBuffers, StackConfig};
use wire::frame::Medium;

fn conversation(client_plan: Plan, server_plan: Plan) -> ConversationSpec {
    ConversationSpec { client: 0, server: 1, port: 80, start: Instant::ZERO, client_plan, server_plan }
}

#[test]
fn a_transfer_fills_a_clean_path() {
    let mut world = pair::<PatternBuffers>(
        1,
        &HostSpec::default(),
        "rate 100mbit, queue 500KB, delay 10ms",
        "delay 10ms",
    );
    world.converse(conversation(Plan::sending(50_000_000), Plan::default()));
    let elapsed = finish(&mut world);
    assert!(elapsed < Duration::from_secs(6), "50 MB at 100 Mbit/s took {elapsed:?}");
}

#[test]
fn thousands_of_connections_come_and_go() {
    const CONNECTIONS: u64 = 3000;
    let mut world = pair::<HeapBuffers>(
        2,
        &HostSpec::default(),
        "rate 200mbit, delay 5ms, loss 0.5%",
        "rate 200mbit, delay 5ms",
    );
    for number in 0..CONNECTIONS {
        let mut plans = (Plan::sending(200 + number % 700), Plan::sending(2000 + number % 9000));
        if number % 3 == 0 {
            plans.0.end = End::Linger(Duration::from_millis(number % 50));
        }
        let start = Instant::from_micros(number * 700);
        world.converse(ConversationSpec { start, ..conversation(plans.0, plans.1) });
    }
    finish(&mut world);
}

#[test]
fn a_thousand_idle_connections_cost_no_timers_and_come_back_to_life() {
    let mut world =
        pair::<PatternBuffers>(3, &HostSpec::default(), "rate 100mbit, delay 1ms", "rate 100mbit, delay 1ms");
    for _ in 0..1000 {
        // One request now; the client lets go after an hour.
        let mut client = Plan::sending(100);
        client.end = End::Linger(Duration::from_secs(3600));
        world.converse(conversation(
            client,
            Plan { end: End::Linger(Duration::from_secs(7200)), ..Plan::default() },
        ));
    }
    world.run_until(Instant::ZERO + Duration::from_secs(60));
    assert_eq!(world.stack(0).timer_count(), 0, "idle connections have timers");
    assert_eq!(world.stack(1).timer_count(), 0, "idle connections have timers");
    let limits = Limits { patience: Duration::from_secs(8000), ..Limits::default() };
    let verdict = world.run_to_the_end(&limits);
    assert!(verdict.violations.is_empty(), "{}", verdict.violations.join("\n"));
}

#[test]
fn requests_and_responses_take_a_round_trip_each() {
    let mut world = pair::<PatternBuffers>(4, &HostSpec::default(), "delay 10ms", "delay 10ms");
    let turns =
        |mine, theirs, leads| Plan { pace: Pace::Turns { mine, theirs, leads }, ..Plan::sending(mine * 100) };
    world.converse(conversation(turns(1, 1000, true), turns(1000, 1, false)));
    let elapsed = finish(&mut world);
    // A hundred turns, the handshake and the end; the end is noticed to the second.
    assert!((2..=4).contains(&(elapsed.as_millis() / 1000)), "{elapsed:?}");
}

#[test]
fn a_closed_window_opens_again_even_if_its_update_is_lost() {
    let mut host = HostSpec::default();
    host.stack.tcp.window_limit = 20_000;
    host.stack.tcp.initial_window = 20_000;
    let back = "delay 5ms, loss packets 12 14 16 18 20 22 24 26 28 30";
    let mut world = pair::<HeapBuffers>(5, &host, "rate 10mbit, delay 5ms", back);
    let server =
        Plan { read: Read::Slow { bytes: 20_000, every: Duration::from_secs(2) }, ..Plan::default() };
    world.converse(conversation(Plan::sending(300_000), server));
    let elapsed = finish(&mut world);
    assert!(elapsed < Duration::from_secs(120), "{elapsed:?}");
}

#[test]
fn congestion_marks_spare_the_packets() {
    let mut host = HostSpec::default();
    host.stack.tcp.ecn = true;
    let mut world = World::<PatternBuffers>::new(6);
    let (client, server) = (world.add_host(host.clone()), world.add_host(host));
    let forward = world.add_path(&path("rate 20mbit, queue 3MB codel ecn, delay 10ms"));
    let back = world.add_path(&path("delay 10ms"));
    world.route(client, server, vec![forward]);
    world.route(server, client, vec![back]);
    world.observe();
    world.converse(conversation(Plan::sending(20_000_000), Plan::default()));
    finish(&mut world);
    let stats = world.path(forward).stats().next().map(|(_, stats)| *stats).expect("a bottleneck");
    assert!(stats.marked > 0 && stats.dropped == 0, "{stats}");
}

#[test]
fn path_mtu_is_found_from_icmp() {
    let mut world =
        pair::<PatternBuffers>(7, &HostSpec::default(), "mtu 1000, rate 10mbit, delay 5ms", "delay 5ms");
    world.converse(conversation(Plan::sending(2_000_000), Plan::sending(1000)));
    finish(&mut world);
    assert!(world.observer().is_some_and(|observer| observer.bytes_resent < 30_000));
}

#[test]
fn a_restart_in_the_middle_is_not_noticed() {
    for seed in 0..20 {
        let mut world = pair::<HeapBuffers>(
            seed,
            &HostSpec::default(),
            "rate 50mbit, queue 200KB, delay 10ms",
            "delay 10ms",
        );
        world.converse(conversation(Plan::sending(3_000_000), Plan::sending(1_000_000)));
        for restart in 1..5 {
            world.restart_at((seed % 2) as u16, Instant::from_millis(60 + restart * 40 + seed * 3));
            world.run_until(Instant::from_millis(60 + restart * 40 + seed * 3));
        }
        finish(&mut world);
        assert!(world.endpoints().iter().all(|end| end.error.is_none() && end.stage == Stage::Released));
        assert_eq!((world.endpoint(0).read, world.endpoint(1).read), (1_000_000, 3_000_000));
    }
}

#[test]
fn coarse_clocks_and_late_processing_lose_nothing() {
    for millis in [1, 4, 10] {
        let host = HostSpec {
            granularity: Duration::from_millis(millis),
            processing_delay: Duration::from_millis(millis),
            clock_offset: Duration::from_micros(123_456),
            stack: StackConfig {
                tcp: tcp::Config {
                    clock_granularity: Duration::from_millis(millis),
                    ..tcp::Config::default()
                },
                ..StackConfig::default()
            },
            ..HostSpec::default()
        };
        let mut world = pair::<PatternBuffers>(
            millis,
            &host,
            "rate 20mbit, queue 100KB, delay 10ms, reorder 1% 1..5pkt",
            "delay 10ms",
        );
        world.converse(conversation(Plan::sending(5_000_000), Plan::default()));
        finish(&mut world);
    }
}

#[test]
fn an_ethernet_resolves_its_neighbours() {
    let host = HostSpec { medium: Medium::Ethernet, checksums: true, ..HostSpec::default() };
    let mut world = pair::<HeapBuffers>(
        8,
        &host,
        "rate 100mbit ethernet, delay 100us",
        "rate 100mbit ethernet, delay 100us",
    );
    for _ in 0..20 {
        world.converse(conversation(Plan::sending(10_000), Plan::sending(50_000)));
    }
    finish(&mut world);
}

#[test]
fn damaged_packets_are_never_believed() {
    let host = HostSpec { checksums: true, max_segmentation: 65_535, ..HostSpec::default() };
    let mut world = pair::<HeapBuffers>(
        9,
        &host,
        "rate 50mbit, delay 5ms, corrupt 2%",
        "rate 50mbit, delay 5ms, corrupt 2%",
    );
    world.converse(conversation(Plan::sending(2_000_000), Plan::sending(2_000_000)));
    finish(&mut world);
}

#[test]
fn a_broken_law_is_reported() {
    // A limit that cannot be kept: the end comes before the transfer is done.
    let mut world = pair::<PatternBuffers>(10, &HostSpec::default(), "rate 1mbit, delay 5ms", "delay 5ms");
    world.converse(conversation(Plan::sending(1_000_000), Plan::default()));
    let limits = Limits { end: Instant::from_millis(2000), ..Limits::default() };
    let verdict = world.run_to_the_end(&limits);
    assert!(
        verdict.violations.iter().any(|text| text.contains("not done in time")),
        "{:?}",
        verdict.violations
    );
}

#[test]
fn round_trips_are_measured_by_arrival_however_late_a_host_looks() {
    let mut prompt = HostSpec::default();
    prompt.stack.tcp.delayed_ack = Duration::from_millis(1);
    prompt.stack.tcp.window_limit = 65_535;
    let late = HostSpec { processing_delay: Duration::from_millis(20), ..prompt.clone() };
    let mut world = World::<PatternBuffers>::new(5);
    let (client, server) = (world.add_host(late), world.add_host(prompt));
    let (forward, back) =
        (world.add_path(&path("rate 1gbit, delay 15ms")), world.add_path(&path("delay 15ms")));
    world.route(client, server, vec![forward]);
    world.route(server, client, vec![back]);
    world.observe();
    world.converse(conversation(Plan::sending(u64::MAX >> 1), Plan::default()));
    world.run_until(Instant::from_millis(3000));
    let info = world.connection(0).expect("the client's connection").info();
    // The delay is ten milliseconds in the mean.
    assert!(
        info.srtt >= Duration::from_millis(30) && info.srtt < Duration::from_millis(33),
        "{:?}",
        info.srtt
    );
}

/// Requests and answers whose SYNs carry the request, over paths that lose every tenth packet each way, so that every kind
/// of opening comes about (SYN with data lost, SYN-ACK lost, plain repetition). The world checks that every byte arrives once.
/// (With much more loss some connections rightly fail, with and without fast open: an orphan gives up with one reset, which is
/// lost too.)
#[test]
fn fast_opens_that_lose_syns_and_syn_acks_deliver_each_byte_once() {
    let mut taken = 0;
    for seed in 0..20 {
        let mut world = pair::<HeapBuffers>(
            100 + seed,
            &HostSpec::default(),
            "delay 3ms, loss 10%",
            "delay 3ms, loss 10%",
        );
        for number in 0..40 {
            let mut plans = (Plan::sending(1 + number * 37), Plan::sending(1 + number * 91));
            plans.0.options.fast_open_connect = true;
            plans.1.options.fast_open = 8;
            let start = Instant::from_millis(number * 400);
            world.converse(ConversationSpec { start, ..conversation(plans.0, plans.1) });
        }
        finish(&mut world);
        taken += world.stack(0).stats().fast_open_active;
    }
    assert!(taken > 50, "only {taken} connections began with their data");
}
