//! How large a segment the path takes: routers' words (RFC 1191, RFC 5927), probing (RFC 4821), black holes.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod harness;

use base::{Duration, SeqNumber};
use harness::peer::{ISS, Peer};
use harness::world::{Flying, Path, World};
use tcp::{Config, MtuProbing, Phase, State, TooBigVerdict};
use wire::tcp::Options;

const MS: Duration = Duration::from_millis(1);

fn established(config: &Config) -> Peer {
    let options = Options { mss: Some(1460), sack_permitted: true, ..Options::default() };
    Peer::established_after(config, options, MS * 20)
}

fn seq(offset: u64) -> SeqNumber {
    SeqNumber(ISS) + 1 + offset as u32
}

/// Everything that wants to go out, and it is acknowledged a round trip later; returns the segments.
fn round(peer: &mut Peer) -> Vec<(i64, u32)> {
    let sent = peer.drain();
    peer.wait(MS * 20);
    let end = sent.iter().map(|&(seq, len)| seq as u64 + u64::from(len)).max().unwrap();
    peer.ack(end);
    sent
}

#[test]
fn a_routers_word_counts_for_what_is_in_flight_and_only_downwards() {
    let mut peer = established(&Config::default());
    peer.send(20_000);
    peer.drain();
    assert_eq!(peer.conn.handle_too_big(peer.now, 1000, seq(20_000)), TooBigVerdict::Ignored, "never sent");
    assert_eq!(peer.conn.handle_too_big(peer.now, 1000, seq(0) + u32::MAX / 2), TooBigVerdict::Ignored);
    assert_eq!(peer.conn.handle_too_big(peer.now, 1500, seq(0)), TooBigVerdict::Ignored, "not smaller");
    assert_eq!(peer.conn.handle_too_big(peer.now, 9000, seq(0)), TooBigVerdict::Ignored, "larger");
    assert_eq!(peer.conn.mss(), 1460);
    let window = peer.conn.congestion_window();
    // RFC 5927 §7.2: at the beginning, before anything as large has passed, a router is believed at once.
    assert_eq!(peer.conn.handle_too_big(peer.now, 1000, seq(1460)), TooBigVerdict::Taken);
    assert_eq!(peer.conn.mss(), 960);
    assert_eq!(peer.drain()[0], (0, 960), "sent again at once");
    assert_eq!(peer.conn.congestion_window(), window, "it was no congestion");
    assert_eq!(peer.conn.state(), State::Established);
}

#[test]
fn what_contradicts_experience_is_believed_only_after_a_timeout() {
    let mut peer = established(&Config::default());
    peer.send(100_000);
    round(&mut peer);
    let acked = peer.conn.acked_to();
    peer.drain();
    assert_eq!(peer.conn.handle_too_big(peer.now, 600, seq(acked)), TooBigVerdict::Deferred);
    assert_eq!(peer.conn.mss(), 1460, "a forged word does no harm");
    // Progress refutes it.
    peer.wait(MS * 20);
    peer.ack(acked + 1460);
    for _ in 0..2 {
        peer.wait_for_deadline();
        peer.drain();
    }
    assert!(peer.conn.stats().timeouts > 0);
    assert_eq!(peer.conn.mss(), 1460);
    // A path that did change: the segment stays unacknowledged until the timeout.
    assert_eq!(peer.conn.handle_too_big(peer.now, 1000, seq(acked + 1460)), TooBigVerdict::Deferred);
    let timeouts = peer.conn.stats().timeouts;
    while peer.conn.stats().timeouts == timeouts {
        peer.wait_for_deadline();
    }
    assert_eq!(peer.conn.mss(), 960);
    assert_eq!(peer.drain()[0], (acked as i64 + 1460, 960));
}

#[test]
fn timeouts_of_large_segments_make_them_small_but_of_small_ones_do_not() {
    let mut peer = established(&Config::default());
    peer.send(20_000);
    assert_eq!(peer.drain()[0], (0, 1460));
    let mut seen = Vec::new();
    while peer.conn.stats().timeouts < 5 {
        peer.wait_for_deadline();
        seen.extend(peer.drain().first().map(|&(_, len)| len));
    }
    assert_eq!(peer.conn.stats().black_holes, 2, "and not below a floor");
    assert_eq!(seen[seen.len() - 3..], [1024, 512, 512], "{seen:?}");
    // A request that is not a full segment can be too large as well.
    let mut peer = established(&Config::default());
    peer.send(900);
    assert_eq!(peer.drain(), [(0, 900)]);
    while peer.conn.stats().timeouts < 3 {
        peer.wait_for_deadline();
        seen = peer.drain().iter().map(|&(_, len)| len).collect();
    }
    assert_eq!((peer.conn.stats().black_holes, &seen[..]), (1, &[512, 388][..]));
    // Small segments that time out say nothing about sizes.
    let mut peer = established(&Config::default());
    peer.send(500);
    peer.drain();
    while peer.conn.stats().timeouts < 5 {
        peer.wait_for_deadline();
        peer.drain();
    }
    assert_eq!((peer.conn.stats().black_holes, peer.conn.mss()), (0, 1460));
    // Nor does anything if nobody wants to know.
    let mut peer = established(&Config { mtu_probing: MtuProbing::Off, ..Config::default() });
    peer.send(20_000);
    peer.drain();
    while peer.conn.stats().timeouts < 5 {
        peer.wait_for_deadline();
        peer.drain();
    }
    assert_eq!(peer.conn.mss(), 1460);
}

/// Established with small segments, the first probe (of 1460) in flight. Returns where it began.
fn probing() -> (Peer, u64) {
    let mut peer = established(&Config { mtu_probing: MtuProbing::Always, ..Config::default() });
    assert_eq!(peer.conn.mss(), 1024);
    peer.send(400_000);
    let sent = peer.drain();
    let probe = sent.iter().position(|&(_, len)| len == 1460).expect("a probe");
    assert_eq!(sent.iter().filter(|&&(_, len)| len == 1460).count(), 1, "one at a time");
    assert!(sent.len() >= probe + 3, "segments go behind it: {sent:?}");
    (peer, sent[probe].0 as u64)
}

#[test]
fn an_acknowledged_probe_is_the_new_size() {
    let (mut peer, start) = probing();
    peer.wait(MS * 20);
    peer.ack(start);
    assert_eq!(peer.conn.mss(), 1024);
    peer.ack(start + 1460);
    assert_eq!(peer.conn.mss(), 1460);
    assert!(round(&mut peer).iter().all(|&(_, len)| len == 1460));
    assert_eq!((peer.conn.stats().mtu_probes, peer.conn.stats().mtu_raises), (1, 1));
}

#[test]
fn a_lost_probe_is_no_congestion_and_goes_again_in_small_segments() {
    let (mut peer, start) = probing();
    peer.wait(MS * 20);
    peer.ack(start);
    peer.drain();
    let window = peer.conn.congestion_window();
    // What came behind the probe arrives.
    for count in 1..=4 {
        peer.sack = vec![(start + 1460, start + 1460 + count * 1024)];
        peer.ack(start);
    }
    let info = peer.conn.info();
    assert_eq!((info.phase, info.congestion_window >= window), (Phase::Open, true), "{info:?}");
    assert_eq!(peer.conn.stats().fast_recoveries, 0);
    let again = peer.drain();
    assert_eq!(again[..2], [(start as i64, 1024), (start as i64 + 1024, 436)], "at the old size");
    assert_eq!(peer.conn.stats().mtu_probes_lost, 1);
    assert_eq!(peer.conn.mss(), 1024);
}

#[test]
fn a_probe_that_is_lost_with_others_is_a_loss_like_any() {
    let (mut peer, start) = probing();
    peer.wait(MS * 20);
    // The segment behind it is lost too.
    for count in 2..=5 {
        peer.sack = vec![(start + 1460 + 1024, start + 1460 + count * 1024)];
        peer.ack(start);
    }
    assert_eq!(peer.conn.info().phase, Phase::Fast);
    assert_eq!((peer.conn.stats().fast_recoveries, peer.conn.stats().mtu_probes_lost), (1, 0));
}

#[test]
fn a_router_that_answers_a_probe_names_the_next_size() {
    let (mut peer, start) = probing();
    assert_eq!(peer.conn.handle_too_big(peer.now, 1340, seq(start)), TooBigVerdict::Taken);
    assert_eq!(peer.conn.mss(), 1024, "what is known to pass is not given up");
    peer.wait(MS * 20);
    let mut end = 0;
    for _ in 0..10 {
        end = end.max(peer.drain().iter().map(|&(seq, len)| seq as u64 + u64::from(len)).max().unwrap());
        peer.wait(MS * 20);
        peer.ack(end);
    }
    assert_eq!(peer.conn.mss(), 1300);
    let stats = peer.conn.stats();
    assert_eq!((stats.mtu_probes, stats.mtu_raises, stats.fast_recoveries), (2, 1, 0));
}

#[test]
fn without_selective_acknowledgements_nothing_is_probed() {
    let config = Config { mtu_probing: MtuProbing::Always, ..Config::default() };
    let mut peer = Peer::established_with(&config, Options { mss: Some(1460), ..Options::default() });
    peer.send(400_000);
    for _ in 0..5 {
        assert!(round(&mut peer).iter().all(|&(_, len)| len == 1024));
    }
}

/// IP packets of more than 1300 bytes vanish on their way to host 1.
fn narrow(side: usize, segment: &Flying) -> bool {
    side == 0 || 40 + segment.header.options.emitted_len() + segment.payload.len() <= 1300
}

fn wide(_: usize, _: &Flying) -> bool {
    true
}

#[test]
fn a_path_that_becomes_narrow_and_wide_again_is_followed() {
    for max_payload in [0, 60_000] {
        let path = Path { rate: 1_250_000, queue: 60_000, ..Path::default() };
        let mut world = World::new(17, &Config::default(), &path);
        world.established();
        world.hosts[0].max_payload = max_payload;
        world.hosts[0].to_send = 2_000_000;
        world.run_until(Duration::from_secs(20), World::transfers_done);
        assert_eq!(world.hosts[0].conn.mss(), 1448);
        // Narrow, and nobody says so.
        world.filter = Some(narrow);
        world.hosts[0].to_send += 4_000_000;
        world.run_until(Duration::from_secs(60), World::transfers_done);
        let mss = world.hosts[0].conn.mss();
        assert!((1300 - 52 - 8..=1300 - 52).contains(&mss), "{mss}");
        assert_eq!(world.hosts[0].conn.learned_path_mtu(), Some(mss + 52));
        let stats = world.hosts[0].conn.stats();
        assert_eq!(stats.black_holes, 1, "{stats:?}");
        // Wide again: nothing happens at once, but ten minutes later.
        world.filter = Some(wide);
        world.hosts[0].to_send += 1_000_000;
        world.run_until(Duration::from_secs(60), World::transfers_done);
        assert_eq!(world.hosts[0].conn.mss(), mss);
        world.run_for(Duration::from_secs(600));
        world.hosts[0].to_send += 1_000_000;
        world.run_until(Duration::from_secs(60), World::transfers_done);
        assert_eq!(world.hosts[0].conn.mss(), 1448);
        assert_eq!(world.hosts[0].conn.learned_path_mtu(), None);
    }
}

#[test]
fn an_outage_is_not_taken_for_a_narrow_path_for_long() {
    let path = Path { rate: 1_250_000, queue: 60_000, ..Path::default() };
    let mut world = World::new(18, &Config::default(), &path);
    world.established();
    world.hosts[0].to_send = 200_000;
    world.filter = Some(|side, segment| side == 0 || segment.payload.is_empty());
    world.run_for(Duration::from_secs(6));
    assert!(world.hosts[0].conn.mss() < 1100);
    world.filter = None;
    world.hosts[0].to_send = 1_000_000;
    world.run_until(Duration::from_secs(60), World::transfers_done);
    assert_eq!(world.hosts[0].conn.mss(), 1448);
    let stats = world.hosts[0].conn.stats();
    assert_eq!((stats.mtu_probes, stats.mtu_raises), (1, 1), "the first probe brings it back");
}

#[test]
fn a_restored_connection_goes_on_searching() {
    let path = Path { rate: 1_250_000, queue: 60_000, ..Path::default() };
    let mut world = World::new(19, &Config::default(), &path);
    world.filter = Some(narrow);
    world.established();
    world.hosts[0].to_send = 3_000_000;
    world.run_until(Duration::from_secs(60), |world| world.hosts[0].conn.stats().black_holes > 0);
    world.restart(0);
    assert_eq!(world.hosts[0].conn.mss(), 1012);
    world.run_until(Duration::from_secs(60), World::transfers_done);
    let mss = world.hosts[0].conn.mss();
    assert!((1300 - 52 - 8..=1300 - 52).contains(&mss), "{mss}");
}
