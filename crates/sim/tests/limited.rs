//! What limits a transfer, where the answer is known.

use base::{Duration, Instant};
use sim::application::{ConversationSpec, Pace, Plan, Read};
use sim::{HostSpec, PatternBuffers, World};
use tcp::Limit;

/// Runs one conversation for a while.
fn run(forward: &str, client: Plan, server: Plan, span: Duration) -> World<PatternBuffers> {
    let mut world = World::<PatternBuffers>::new(7);
    let spec = HostSpec::default();
    let (near, far) = (world.add_host(spec.clone()), world.add_host(spec));
    let path = |text: &str| text.parse().expect("a path");
    let (there, back) = (world.add_path(&path(forward)), world.add_path(&path("delay 10ms")));
    world.route(near, far, vec![there]);
    world.route(far, near, vec![back]);
    world.converse(ConversationSpec {
        client: near,
        server: far,
        port: 80,
        start: Instant::ZERO,
        client_plan: client,
        server_plan: server,
    });
    world.run_until(Instant::ZERO + span);
    world
}

/// How much of its time each reason limited the client of such a conversation.
fn shares(forward: &str, client: Plan, server: Plan, span: Duration) -> [f64; Limit::ALL.len()] {
    shares_in(forward, &run(forward, client, server, span))
}

fn shares_in(forward: &str, world: &World<PatternBuffers>) -> [f64; Limit::ALL.len()] {
    let now = world.now();
    let connection = world.connection(0).expect("the transfer goes on");
    let limited = connection.limited_by(now);
    let established = world.endpoint(0).established.expect("it is established");
    let age = now.saturating_since(established);
    let off = age.as_nanos().abs_diff(limited.total().as_nanos());
    assert!(off < 1_000_000, "the times add up to {:?}, the age is {age:?}", limited.total());
    let shares = Limit::ALL.map(|limit| limited.time(limit).as_secs_f64() / age.as_secs_f64());
    println!("{forward}: {:?}", Limit::ALL.map(Limit::name).iter().zip(shares).collect::<Vec<_>>());
    shares
}

fn bulk() -> Plan {
    Plan::sending(1 << 40)
}

#[test]
fn a_slow_reader_limits_by_its_window() {
    let server =
        Plan { read: Read::Slow { bytes: 10_000, every: Duration::from_millis(10) }, ..Plan::default() };
    let shares = shares("rate 100mbit, delay 10ms", bulk(), server, Duration::from_secs(10));
    assert!(shares[Limit::PeerWindow as usize] > 0.9);
    assert!(shares[Limit::Recovery as usize] == 0.0);
}

#[test]
fn an_application_with_little_to_say_limits_itself() {
    let turns = |mine, theirs, leads| Plan { pace: Pace::Turns { mine, theirs, leads }, ..bulk() };
    let shares =
        shares("delay 10ms", turns(100, 1000, true), turns(1000, 100, false), Duration::from_secs(10));
    assert!(shares[Limit::Application as usize] > 0.99);
}

#[test]
fn a_clean_path_is_limited_by_congestion_control_and_pacing() {
    let shares =
        shares("rate 20mbit, queue 40KB, delay 10ms", bulk(), Plan::default(), Duration::from_secs(20));
    let congestion = shares[Limit::CongestionWindow as usize] + shares[Limit::Pacing as usize];
    assert!(congestion > 0.6, "{congestion}");
    assert!(shares[Limit::PeerWindow as usize] < 0.3);
    assert!(shares[Limit::Application as usize] < 0.05);
}

#[test]
fn a_lossy_path_spends_a_part_of_its_time_in_recovery() {
    let shares = shares(
        "rate 50mbit, queue 500KB, delay 10ms, loss 3%",
        bulk(),
        Plan::default(),
        Duration::from_secs(20),
    );
    // By the square-root law, a loss each thirty segments leaves a window of seven: a round trip of recovery to four others.
    assert!((0.1..0.4).contains(&shares[Limit::Recovery as usize]));
    assert!(shares[Limit::Recovery as usize] + shares[Limit::CongestionWindow as usize] > 0.95);
}

/// A window that starts with 64 KiB has to grow to a path's 3 MB, and to the 3 MB of its queue, as fast as slow start.
#[test]
fn the_receive_window_grows_ahead_of_the_sender_on_a_long_fat_path() {
    let path = "rate 527mbit, queue 3MB droptail, delay 35ms";
    let world = run(path, bulk(), Plan::default(), Duration::from_secs(5));
    let shares = shares_in(path, &world);
    assert!(shares[Limit::PeerWindow as usize] < 0.1, "{}", shares[Limit::PeerWindow as usize]);
    let info = world.connection(1).expect("the transfer goes on").tcp_info(world.now());
    println!("round trip {} us, {} bytes read in one", info.rcv_rtt, info.rcv_space);
    // The receiver sends nothing: only what arrives tells it of the round trip, 45 ms and up to as much again in the queue.
    assert!((44_000..100_000).contains(&info.rcv_rtt), "{} us", info.rcv_rtt);
    assert!(info.rcv_space > 2_500_000, "{} bytes", info.rcv_space);
}
