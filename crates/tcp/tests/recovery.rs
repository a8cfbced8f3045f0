//! Loss and what is done about it, packet by packet.

mod harness;

use base::Duration;
use harness::peer::{ACK, Peer};
use tcp::{Config, CongestionAlgorithm, Phase};
use wire::tcp::{Options, Timestamps};

const MS: Duration = Duration::from_millis(1);

/// A peer without SACK, a round trip of 100 ms measured, and ten segments of 1000 bytes in flight from `base`.
fn flight(options: Options) -> (Peer, u64) {
    let config = Config { nodelay: true, congestion: CongestionAlgorithm::NewReno, ..Config::default() };
    let mut peer = Peer::established_after(&config, options, MS * 100);
    let base = 1000;
    peer.send(base);
    peer.drain();
    peer.now += MS * 100;
    acked(&mut peer, base);
    peer.send(base + 10_000);
    assert_eq!(peer.drain().len(), 10);
    peer.now += MS * 100;
    (peer, base)
}

fn plain() -> (Peer, u64) {
    flight(Options { mss: Some(1000), ..Options::default() })
}

fn selective() -> (Peer, u64) {
    flight(Options { mss: Some(1000), sack_permitted: true, ..Options::default() })
}

/// An acknowledgement, with the peer's clock going on.
fn acked(peer: &mut Peer, to: u64) {
    peer.ack(to);
}

fn sacked(peer: &mut Peer, to: u64, blocks: &[(u64, u64)]) {
    peer.sack = blocks.to_vec();
    peer.ack(to);
    peer.sack.clear();
}

#[test]
fn the_timeout_doubles_and_karns_rule_keeps_it() {
    let (mut peer, base) = plain();
    assert_eq!(
        peer.wait_for_deadline().as_millis() / 100,
        2,
        "srtt 100 ms + 200 ms, less the 100 ms that passed"
    );
    assert_eq!(peer.drain(), [(base as i64, 1000)], "one segment");
    assert_eq!(peer.conn.congestion_window(), 1000);
    let first = peer.conn.info().rto;
    peer.wait_for_deadline();
    assert_eq!(peer.drain(), [(base as i64, 1000)]);
    assert_eq!(peer.conn.info().rto, first * 2);
    assert_eq!(peer.conn.info().ssthresh, 5000, "lowered once");
    // The acknowledgement of a retransmission gives no sample without timestamps.
    let srtt = peer.conn.srtt();
    acked(&mut peer, base + 1000);
    assert_eq!(peer.conn.srtt(), srtt);
    assert_eq!(peer.conn.info().rto, first * 2);
}

#[test]
fn three_duplicates_start_a_fast_retransmit() {
    let (mut peer, base) = plain();
    peer.send(base + 100_000);
    acked(&mut peer, base);
    acked(&mut peer, base);
    let limited = peer.drain();
    assert_eq!(limited.len(), 2, "RFC 3042: new segments for the first two duplicates: {limited:?}");
    assert!(limited.iter().all(|&(seq, _)| seq >= base as i64 + 10_000));
    assert_eq!(peer.conn.info().phase, Phase::Open);
    acked(&mut peer, base);
    assert_eq!(peer.conn.info().phase, Phase::Fast);
    assert_eq!(peer.drain()[0], (base as i64, 1000));
    assert_eq!(peer.conn.stats().fast_recoveries, 1);
}

#[test]
fn a_window_update_is_no_duplicate() {
    let (mut peer, base) = plain();
    for i in 0..5 {
        peer.window += 10 + i;
        acked(&mut peer, base);
    }
    assert_eq!(peer.conn.info().phase, Phase::Open);
}

#[test]
fn newreno_repairs_a_hole_for_each_partial_acknowledgement() {
    let (mut peer, base) = plain();
    // Segments 0, 3 and 5 of ten are lost: seven duplicates.
    for _ in 0..7 {
        acked(&mut peer, base);
    }
    assert_eq!(peer.drain()[0], (base as i64, 1000));
    acked(&mut peer, base + 3000);
    assert_eq!(peer.conn.info().phase, Phase::Fast, "partial: still in recovery");
    assert_eq!(peer.drain()[0], (base as i64 + 3000, 1000));
    acked(&mut peer, base + 5000);
    assert_eq!(peer.drain()[0], (base as i64 + 5000, 1000));
    acked(&mut peer, base + 10_000);
    assert_eq!(peer.conn.info().phase, Phase::Open);
    assert_eq!(peer.conn.congestion_window(), 5000, "half of what was in flight");
    assert_eq!(peer.conn.stats().timeouts, 0);
}

#[test]
fn duplicates_of_a_repaired_window_start_nothing() {
    let (mut peer, base) = plain();
    while peer.conn.info().phase != Phase::Timeout {
        peer.wait_for_deadline();
    }
    peer.drain();
    acked(&mut peer, base + 1000);
    peer.drain();
    for _ in 0..4 {
        acked(&mut peer, base + 1000);
        peer.drain();
    }
    assert_eq!(peer.conn.stats().fast_recoveries, 0, "RFC 6582 §3.2 step 2");
}

#[test]
fn sack_repairs_several_holes_in_one_round_trip() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    sacked(&mut peer, base, &[(at(1), at(3))]);
    assert_eq!(peer.conn.info().phase, Phase::Open, "two segments are not enough");
    sacked(&mut peer, base, &[(at(6), at(10)), (at(4), at(5)), (at(1), at(3))]);
    assert_eq!(peer.conn.info().phase, Phase::Fast);
    assert_eq!(peer.conn.info().lost, 3000, "0, 3 and 5");
    let mut again = peer.drain();
    sacked(&mut peer, at(1) + 2000, &[(at(6), at(10)), (at(4), at(5))]);
    again.extend(peer.drain());
    let seqs: Vec<_> = again.iter().map(|&(seq, _)| (seq as u64 - base) / 1000).collect();
    assert_eq!(seqs, [0, 3, 5]);
    acked(&mut peer, at(10));
    assert_eq!(peer.conn.info().phase, Phase::Open);
}

#[test]
fn a_lost_retransmission_is_found_by_time() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    peer.send(at(40));
    sacked(&mut peer, base, &[(at(1), at(10))]);
    let out = peer.drain();
    assert_eq!(out[0], (base as i64, 1000));
    assert!(out.len() > 1, "and new data: {out:?}");
    // The new data arrives, the retransmission does not.
    peer.wait(MS * 100);
    sacked(&mut peer, base, &[(at(1), at(12))]);
    let out = peer.drain();
    assert_eq!(out[0], (base as i64, 1000), "again, without a timeout");
    assert_eq!(peer.conn.stats().timeouts, 0);
}

#[test]
fn reordering_once_seen_waits_a_quarter_round_trip() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    sacked(&mut peer, base, &[(at(1), at(2))]);
    assert_eq!(peer.conn.deadline(), peer.conn.deadline());
    acked(&mut peer, at(2));
    assert!(peer.conn.info().reordering_seen);
    // Now even eight segments behind the hole do not make it a loss at once.
    sacked(&mut peer, at(2), &[(at(3), at(9))]);
    assert_eq!(peer.conn.info().phase, Phase::Open);
    assert_eq!(peer.wait_for_deadline(), MS * 25);
    assert_eq!(peer.conn.info().phase, Phase::Fast);
    assert_eq!(peer.drain()[0], (at(2) as i64, 1000));
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    acked(&mut peer, at(8));
    peer.drain();
    let wait = peer.wait_for_deadline();
    assert!(wait >= MS * 200 && wait < MS * 210, "{wait:?}");
    assert_eq!(peer.drain(), [(at(9) as i64, 1000)], "the last segment once more");
    assert_eq!(peer.conn.stats().loss_probes, 1);
    // Its selective acknowledgement shows the hole in front of it.
    peer.wait(MS * 100);
    sacked(&mut peer, at(8), &[(at(9), at(10))]);
    while peer.conn.info().lost == 0 {
        peer.wait_for_deadline();
    }
    assert_eq!(peer.drain(), [(at(8) as i64, 1000)]);
    assert_eq!(peer.conn.stats().timeouts, 0);
}

#[test]
fn a_probe_that_repaired_a_loss_reduces_the_window_and_a_needless_one_does_not() {
    let probe = |needless: bool| {
        let (mut peer, base) = selective();
        let at = |n: u64| base + n * 1000;
        acked(&mut peer, at(9));
        peer.drain();
        peer.wait_for_deadline();
        assert_eq!(peer.drain(), [(at(9) as i64, 1000)]);
        if needless {
            acked(&mut peer, at(10));
            sacked(&mut peer, at(10), &[(at(9), at(10))]);
        } else {
            peer.send(at(11));
            peer.drain();
            acked(&mut peer, at(11));
        }
        peer.conn.info().ssthresh
    };
    assert!(probe(false) < u32::MAX);
}

#[test]
fn a_timeout_forgets_what_the_peer_took_back() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    sacked(&mut peer, base, &[(at(1), at(2))]);
    acked(&mut peer, at(1)); // it holds segment 1 no more
    while peer.conn.info().phase != Phase::Timeout {
        peer.wait_for_deadline();
    }
    assert_eq!(peer.conn.info().sacked, 0);
    assert_eq!(peer.drain()[0], (at(1) as i64, 1000));
}

fn stamped(peer: &mut Peer, to: u64, echo: u32) {
    let mut header = peer.header(ACK, peer.sent as i64, to as i64);
    header.options.timestamps = Some(Timestamps { value: peer.timestamp.unwrap_or(1) + 1, echo });
    peer.give(header, &[]);
}

#[test]
fn eifel_undoes_a_spurious_timeout() {
    let stamps = Some(Timestamps { value: 1000, echo: 0 });
    let config = Config { nodelay: true, congestion: CongestionAlgorithm::NewReno, ..Config::default() };
    let mut peer = Peer::established_with(
        &config,
        Options { mss: Some(1012), timestamps: stamps, ..Options::default() },
    );
    peer.send(10_000);
    let sent = (peer.now.as_millis() as u32).wrapping_add(7);
    assert_eq!(peer.drain().len(), 10);
    let before = peer.conn.congestion_window();
    while peer.conn.info().phase != Phase::Timeout {
        peer.wait_for_deadline();
    }
    assert_eq!(peer.drain(), [(0, 1000)]);
    stamped(&mut peer, 1000, sent); // it was only late: the echo is the original's
    assert_eq!(peer.conn.info().phase, Phase::Open);
    assert!(peer.conn.congestion_window() >= before);
    assert_eq!(peer.conn.info().lost, 0);
    assert_eq!(peer.conn.stats().undone, 1);
}

#[test]
fn eifel_leaves_a_real_timeout_alone() {
    let stamps = Some(Timestamps { value: 1000, echo: 0 });
    let mut peer = Peer::established_with(
        &Config::default(),
        Options { mss: Some(1012), timestamps: stamps, ..Options::default() },
    );
    peer.send(10_000);
    peer.drain();
    while peer.conn.info().phase != Phase::Timeout {
        peer.wait_for_deadline();
    }
    peer.drain();
    let again = (peer.now.as_millis() as u32).wrapping_add(7);
    stamped(&mut peer, 1000, again);
    assert_eq!(peer.conn.info().phase, Phase::Timeout);
    assert_eq!(peer.conn.stats().undone, 0);
}

#[test]
fn f_rto_finds_a_spurious_timeout_by_what_comes_through() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    while peer.conn.info().phase != Phase::Timeout {
        peer.wait_for_deadline();
        if peer.conn.info().phase != Phase::Timeout {
            peer.drain(); // the tail loss probe comes first
        }
    }
    assert_eq!(peer.drain(), [(at(0) as i64, 1000)]);
    sacked(&mut peer, at(1), &[]);
    let new = peer.drain();
    assert!(new.is_empty() || new[0].0 >= at(10) as i64 || new[0].0 == at(1) as i64, "{new:?}");
    acked(&mut peer, at(4)); // segments that were never sent again
    assert_eq!(peer.conn.info().phase, Phase::Open);
    assert_eq!(peer.conn.stats().undone, 1);
}

#[test]
fn f_rto_does_not_take_new_data_for_a_sign() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    while peer.conn.info().phase != Phase::Timeout {
        peer.wait_for_deadline();
        if peer.conn.info().phase != Phase::Timeout {
            peer.drain();
        }
    }
    assert_eq!(peer.drain(), [(at(0) as i64, 1000)]);
    peer.send(at(20));
    acked(&mut peer, at(1));
    let new = peer.drain();
    assert!(new.iter().all(|&(seq, _)| seq >= at(10) as i64), "RFC 5682 §2.1 step 2b: {new:?}");
    // The new data arrives, nothing from before the timeout does: it was right.
    sacked(&mut peer, at(1), &[(at(10), at(12))]);
    assert_eq!(peer.conn.info().phase, Phase::Timeout);
    assert_eq!(peer.conn.stats().undone, 0);
    assert_eq!(peer.drain()[0], (at(1) as i64, 1000), "and the rest is sent again");
}

/// RFC 5682 §3.1 step 1: with a recovery in progress, what was sent before the timeout comes through whatever was lost.
#[test]
fn f_rto_keeps_out_of_a_recovery_whose_retransmission_was_lost() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    sacked(&mut peer, base, &[(at(1), at(5))]);
    assert_eq!(peer.drain()[0], (base as i64, 1000));
    // The timeout runs from the retransmission, which nothing could acknowledge before.
    let timeout = peer.conn.info().rto;
    let mut waited = Duration::ZERO;
    while peer.conn.info().phase != Phase::Timeout {
        waited += peer.wait_for_deadline();
        peer.drain();
    }
    assert_eq!(waited.as_millis(), timeout.as_millis());
    sacked(&mut peer, base, &[(at(1), at(8))]);
    assert_eq!(peer.conn.info().phase, Phase::Timeout);
    assert_eq!(peer.conn.stats().undone, 0);
}

#[test]
fn dsack_for_every_retransmission_undoes_a_fast_recovery() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    let before = peer.conn.congestion_window();
    sacked(&mut peer, base, &[(at(1), at(5))]);
    assert_eq!(peer.conn.info().phase, Phase::Fast);
    assert_eq!(peer.drain()[0], (base as i64, 1000));
    acked(&mut peer, at(6)); // the original was only late
    peer.drain();
    sacked(&mut peer, at(7), &[(at(0), at(1))]);
    assert_eq!(peer.conn.info().phase, Phase::Open);
    assert_eq!(peer.conn.stats().undone, 1);
    assert!(peer.conn.congestion_window() >= before);
    assert_eq!(peer.conn.stats().duplicate_sacks, 1);
}

/// Where the hole was one segment, everything is acknowledged before the D-SACK can come.
#[test]
fn a_dsack_after_the_whole_flight_undoes_too() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    let before = peer.conn.congestion_window();
    sacked(&mut peer, base, &[(at(1), at(5))]);
    assert_eq!(peer.drain()[0], (base as i64, 1000));
    acked(&mut peer, at(10));
    assert_eq!(peer.conn.info().phase, Phase::Open);
    assert!(peer.conn.congestion_window() < before);
    sacked(&mut peer, at(10), &[(at(0), at(1))]);
    assert_eq!(peer.conn.stats().undone, 1);
    assert!(peer.conn.congestion_window() >= before);
}

/// RFC 8985 §7.2: the probe of one segment waits for the peer's delayed acknowledgement, but not longer than the timeout.
#[test]
fn a_lost_single_segment_is_probed_before_the_window_collapses() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    acked(&mut peer, at(10));
    peer.send(at(11));
    assert_eq!(peer.drain(), [(at(10) as i64, 1000)]);
    let window = peer.conn.congestion_window();
    let timeout = peer.conn.info().rto;
    assert!(timeout < MS * 400, "sooner than two round trips and a delayed acknowledgement: {timeout:?}");
    let first = peer.wait_for_deadline();
    assert_eq!(first.as_millis(), timeout.as_millis());
    assert_eq!(peer.drain(), [(at(10) as i64, 1000)]);
    assert_eq!((peer.conn.stats().loss_probes, peer.conn.stats().timeouts), (1, 0));
    assert_eq!(peer.conn.congestion_window(), window);
    // The timeout runs from the probe, not doubled yet.
    let second = peer.wait_for_deadline();
    assert_eq!(second.as_millis(), timeout.as_millis());
    assert_eq!(peer.drain(), [(at(10) as i64, 1000)]);
    assert_eq!((peer.conn.stats().loss_probes, peer.conn.stats().timeouts), (1, 1));
    assert_eq!(peer.conn.info().rto, timeout * 2);
}

#[test]
fn the_receiver_reports_ranges_newest_first_and_duplicates() {
    let options = Options { mss: Some(1000), sack_permitted: true, ..Options::default() };
    let mut peer = Peer::established_with(&Config::default(), options);
    peer.data(1000, 500);
    assert_eq!(peer.poll().unwrap().sack, [(1000, 1500)]);
    peer.data(3000, 500);
    assert_eq!(peer.poll().unwrap().sack, [(3000, 3500), (1000, 1500)]);
    peer.data(1500, 500);
    assert_eq!(peer.poll().unwrap().sack, [(1000, 2000), (3000, 3500)]);
    // RFC 2883 §4.2: a duplicate beyond the gap, then the range around it.
    peer.data(3000, 500);
    assert_eq!(peer.poll().unwrap().sack, [(3000, 3500), (3000, 3500), (1000, 2000)]);
    peer.data(0, 1000);
    assert_eq!(peer.poll().unwrap().sack, [(3000, 3500)]);
    // §4.1: a duplicate of what was acknowledged.
    peer.data(0, 500);
    assert_eq!(peer.poll().unwrap().sack, [(0, 500), (3000, 3500)]);
    peer.data(2000, 1000);
    assert_eq!(peer.poll().unwrap().sack, []);
}

#[test]
fn sack_blocks_that_make_no_sense_are_ignored() {
    let (mut peer, base) = selective();
    let at = |n: u64| base + n * 1000;
    sacked(&mut peer, base, &[(at(1), at(50)), (at(5), at(5)), (at(7), at(6))]);
    assert_eq!(peer.conn.info().sacked, 0);
    assert_eq!(peer.conn.info().phase, Phase::Open);
}

#[test]
fn a_lossy_super_segment_is_repaired_in_pieces() {
    let config = Config { nodelay: true, congestion: CongestionAlgorithm::NewReno, ..Config::default() };
    let options = Options { mss: Some(1000), sack_permitted: true, ..Options::default() };
    let mut peer = Peer::established_with(&config, options);
    peer.max_payload = 10_000;
    peer.send(10_000);
    assert_eq!(peer.drain(), [(0, 10_000)]);
    peer.wait(MS * 50);
    sacked(&mut peer, 2000, &[(3000, 10_000)]);
    assert_eq!(peer.drain()[0], (2000, 1000));
}

#[test]
fn an_overtaken_acknowledgement_still_reports_selectively() {
    let (mut peer, base) = selective();
    // The first, fifth and eighth are lost.
    sacked(&mut peer, base, &[(base + 1000, base + 2000)]);
    sacked(&mut peer, base, &[(base + 1000, base + 3000)]);
    sacked(&mut peer, base, &[(base + 1000, base + 4000)]);
    assert_eq!(peer.drain(), [(base as i64, 1000)]);
    peer.wait(MS * 50);
    sacked(&mut peer, base + 4000, &[(base + 8000, base + 9000)]);
    peer.drain();
    assert_eq!(peer.conn.tcp_info(peer.now).sacked, 1);
    // From before SND.UNA: a range of it counts, and one that is acknowledged by now does not.
    sacked(&mut peer, base + 3000, &[(base + 5000, base + 7000), (base + 3500, base + 4000)]);
    let info = peer.conn.tcp_info(peer.now);
    assert_eq!((info.sacked, info.dsack_dups), (3, 0));
}

#[test]
fn a_window_that_was_just_full_grows_by_every_acknowledgement_of_it() {
    let (mut peer, base) = selective();
    let window = peer.conn.congestion_window();
    assert_eq!(window, 10_000, "full, and nothing is held back");
    for acked in 1..=5 {
        peer.ack(base + acked * 2000);
        assert_eq!(u64::from(peer.conn.congestion_window()), u64::from(window) + acked * 2000);
    }
}

#[test]
fn a_flight_of_more_than_half_the_window_doubles_it_and_no_more() {
    let (mut peer, base) = selective();
    for acked in 1..=5 {
        peer.ack(base + acked * 2000);
    }
    assert_eq!(peer.conn.congestion_window(), 20_000);
    peer.send(base + 12_000);
    peer.drain();
    peer.ack(base + 12_000);
    assert_eq!(peer.conn.congestion_window(), 20_000, "two segments say nothing about such a window");
}

#[test]
fn a_closed_window_does_not_shrink_the_congestion_window_before_it_opens() {
    let (mut peer, base) = plain();
    peer.ack(base + 10_000);
    let window = peer.conn.congestion_window();
    peer.window = 0;
    peer.ack(base + 10_000);
    peer.send(base + 30_000);
    assert_eq!(peer.drain(), []);
    for _ in 0..3 {
        peer.wait_for_deadline();
        peer.drain();
        assert_eq!(peer.conn.congestion_window(), window);
    }
}
