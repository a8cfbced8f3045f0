//! Urgent data: the pointer that goes out, the mark that comes in.
#![allow(clippy::unwrap_used, reason = "a test that fails")]

mod harness;

use base::Duration;
use harness::pattern;
use harness::peer::{ACK, FIN_ACK, Peer};
use tcp::{Config, Connection, Snapshot, State, UrgentMark};
use wire::tcp::Flags;

const URG: Flags = Flags::URG;

fn established() -> Peer {
    Peer::established(&Config { delayed_ack: Duration::from_millis(40), ..Config::default() })
}

/// What goes out: offset, payload bytes, and the offset of the urgent byte that it points at.
fn sent(peer: &mut Peer) -> Vec<(i64, u32, Option<i64>)> {
    std::iter::from_fn(|| peer.poll_raw())
        .map(|segment| {
            let seq =
                i64::from(segment.header.seq.distance_from(base::SeqNumber(harness::peer::ISS)) as i32) - 1;
            let urgent =
                segment.header.flags.contains(URG).then(|| seq + i64::from(segment.header.urgent) - 1);
            assert!(urgent.is_some() || segment.header.urgent == 0);
            (seq, segment.len, urgent)
        })
        .collect()
}

/// The peer sends `len` bytes from `from` with an urgent pointer of `pointer`.
fn give_urgent(peer: &mut Peer, from: u64, len: usize, pointer: u16) {
    let acked = peer.conn.acked_to() as i64;
    let mut header = peer.header(ACK | URG, from as i64, acked);
    header.urgent = pointer;
    let payload: Vec<u8> = (0..len as u64).map(|i| pattern(0, from + i)).collect();
    peer.sent = peer.sent.max(from + len as u64);
    peer.give(header, &payload);
}

fn mark(offset: u64, byte: Option<u8>) -> Option<UrgentMark> {
    Some(UrgentMark { offset: Some(offset), byte, passed_to: 0 })
}

#[test]
fn every_segment_before_the_urgent_byte_points_at_it() {
    let mut peer = established();
    peer.max_payload = 64_000;
    peer.conn.handle_send_urgent(2500, 2500);
    assert_eq!(sent(&mut peer), [(0, 1000, Some(2499)), (1000, 1000, Some(2499)), (2000, 500, Some(2499))]);
    // What follows is not urgent, and in super-segments again once the urgent byte is acknowledged.
    peer.send(3000);
    peer.conn.set_nodelay(true);
    assert_eq!(sent(&mut peer), [(2500, 500, None)]);
    peer.ack(3000);
    peer.send(7000);
    assert_eq!(sent(&mut peer), [(3000, 4000, None)]);
}

#[test]
fn urgent_data_goes_past_what_holds_small_segments_back() {
    let mut peer = established();
    peer.conn.set_cork(true);
    peer.send(10);
    assert_eq!(sent(&mut peer), []);
    peer.conn.handle_send_urgent(11, 11);
    assert_eq!(sent(&mut peer), [(0, 11, Some(10))]);
    peer.conn.set_cork(false);
    peer.conn.handle_send_urgent(12, 12);
    assert_eq!(sent(&mut peer), [(11, 1, Some(11))], "the one before is not acknowledged");
}

#[test]
fn a_retransmission_points_at_the_latest_urgent_byte() {
    let mut peer = established();
    peer.conn.handle_send_urgent(100, 100);
    assert_eq!(sent(&mut peer), [(0, 100, Some(99))]);
    peer.conn.handle_send_urgent(300, 300);
    assert_eq!(sent(&mut peer), [(100, 200, Some(299))]);
    peer.conn.handle_send_urgent(200, 200);
    while peer.conn.stats().timeouts == 0 {
        peer.wait_for_deadline();
        sent(&mut peer);
    }
    peer.wait_for_deadline();
    let again = sent(&mut peer);
    assert_eq!((again[0].0, again[0].2), (0, Some(299)), "the pointer never goes back");
}

#[test]
fn a_pointer_that_cannot_reach_says_that_there_is_more_only_near_the_end() {
    let mut peer = Peer::established_with(
        &Config { initial_congestion_window: 200, ..Config::default() },
        wire::tcp::Options {
            mss: Some(1000),
            window_scale: Some(4),
            sack_permitted: true,
            ..Default::default()
        },
    );
    peer.ack(0); // its window, scaled
    peer.conn.handle_send_urgent(200_000, 200_000);
    let sent = sent(&mut peer);
    let reached = |at: i64| sent.iter().find(|(seq, ..)| *seq == at).unwrap().2;
    assert_eq!(reached(135_000), Some(199_999));
    assert_eq!(reached(199_000), Some(199_999));
    // Beyond its reach it is as far as it can be, where that is ahead of all that was sent by then.
    assert_eq!(reached(10_000), Some(10_000 + 0xffff - 1));
    peer.sack = vec![(1000, 20_000)];
    peer.ack(0);
    assert_eq!(self::sent(&mut peer), [(0, 1000, None)], "sent again, far behind");
}

#[test]
fn a_closed_window_is_probed_with_the_pointer_in_a_segment_that_is_taken() {
    let mut peer = established();
    peer.window = 0;
    peer.ack(0);
    peer.conn.handle_send_urgent(50, 50);
    assert_eq!(sent(&mut peer), []);
    for _ in 0..2 {
        peer.wait_for_deadline();
        assert_eq!(sent(&mut peer), [(0, 0, Some(49)), (-1, 0, Some(49))]);
    }
    peer.window = 1000;
    peer.ack(0);
    assert_eq!(sent(&mut peer), [(0, 50, Some(49))]);
    peer.ack(50);
    peer.window = 0;
    peer.ack(50);
    peer.send(60);
    sent(&mut peer);
    peer.wait_for_deadline();
    assert_eq!(sent(&mut peer), [(49, 0, None)], "nothing urgent any more: an ordinary probe");
}

#[test]
fn after_a_shutdown_nothing_becomes_urgent() {
    let mut peer = established();
    peer.conn.handle_shutdown();
    sent(&mut peer);
    peer.conn.handle_send_urgent(10, 10);
    assert_eq!(sent(&mut peer), []);
    assert_eq!(peer.conn.queued_to(), 0);
}

#[test]
fn the_mark_is_the_byte_before_the_pointer_and_stays_in_the_stream() {
    let mut peer = established();
    assert_eq!(peer.conn.urgent(), None);
    give_urgent(&mut peer, 0, 10, 5);
    assert_eq!(peer.conn.urgent(), mark(4, Some(pattern(0, 4))));
    assert_eq!(peer.conn.received_to(), 10);
    let changes = peer.conn.urgent_changes();
    peer.conn.handle_consumed(peer.now, 5);
    assert_eq!(
        peer.conn.urgent(),
        Some(UrgentMark { offset: None, byte: Some(pattern(0, 4)), passed_to: 0 })
    );
    assert_eq!(peer.conn.urgent_changes(), changes, "the reader knows by itself that it has passed");
}

#[test]
fn the_pointer_may_come_before_its_byte() {
    let mut peer = established();
    give_urgent(&mut peer, 0, 10, 16);
    assert_eq!(peer.conn.urgent(), mark(15, None));
    assert_eq!(peer.data(20, 10), tcp::Verdict::OutOfOrder);
    assert_eq!(peer.conn.urgent(), mark(15, None));
    peer.data(10, 10); // without the flag: a middle box has cleared it
    assert_eq!(peer.conn.urgent(), mark(15, Some(pattern(0, 15))));
    assert_eq!(peer.conn.received_to(), 30);
}

#[test]
fn out_of_order_the_byte_is_known_before_what_precedes_it() {
    let mut peer = established();
    give_urgent(&mut peer, 100, 10, 10);
    assert_eq!(peer.conn.urgent(), mark(109, Some(pattern(0, 109))));
    assert_eq!(peer.conn.received_to(), 0);
}

#[test]
fn a_bare_acknowledgement_into_a_closed_window_carries_it() {
    let mut peer =
        Peer::established(&Config { initial_window: 2000, window_limit: 2000, ..Config::default() });
    peer.data(0, 2000);
    assert_eq!(peer.poll().unwrap().window, 0);
    give_urgent(&mut peer, 2000, 0, 1);
    assert_eq!(peer.conn.urgent(), mark(2000, None));
}

#[test]
fn a_mark_goes_on_but_never_back_nor_to_what_was_received() {
    let mut peer = established();
    give_urgent(&mut peer, 0, 10, 30);
    give_urgent(&mut peer, 10, 5, 2);
    assert_eq!(peer.conn.urgent(), mark(29, None));
    give_urgent(&mut peer, 15, 5, 40);
    assert_eq!(peer.conn.urgent(), mark(54, None));
    peer.more(40);
    assert_eq!(peer.conn.urgent(), mark(54, Some(pattern(0, 54))));
    // A duplicate of what was received makes nothing urgent.
    let changes = peer.conn.urgent_changes();
    give_urgent(&mut peer, 50, 10, 8);
    assert_eq!(peer.conn.urgent_changes(), changes);
}

#[test]
fn a_byte_at_which_the_reader_stands_is_passed_over_when_the_pointer_goes_on() {
    let mut peer = established();
    peer.more(10);
    peer.buffer.consumed = Some(10);
    for i in 0..3 {
        give_urgent(&mut peer, 10 + i, 1, 1);
    }
    let all = peer.conn.urgent().unwrap();
    assert_eq!((all.offset, all.passed_to), (Some(12), 12), "the reader has not looked in between");
    // A byte that is not next stays in the line.
    peer.buffer.consumed = Some(11);
    give_urgent(&mut peer, 13, 10, 10);
    assert_eq!(peer.conn.urgent().unwrap().passed_to, 13, "12 was next: 11 is passed over");
    give_urgent(&mut peer, 23, 10, 10);
    assert_eq!(peer.conn.urgent().unwrap().passed_to, 13, "22 was not");
}

#[test]
fn hostile_pointers_do_no_harm() {
    for pointer in [0, 1, 2, 9, 10, 11, 0x7fff, 0x8000, 0xffff] {
        for len in [0, 1, 10] {
            for flags in [URG, URG | Flags::FIN, URG | Flags::SYN, URG | Flags::PSH] {
                let mut peer = established();
                let mut header = peer.header(ACK | flags, 0, 0);
                header.urgent = pointer;
                let payload: Vec<u8> = (0..len).map(|i| pattern(0, i)).collect();
                peer.give(header, &payload);
                peer.drain();
                let known = peer.conn.urgent();
                if flags.contains(Flags::SYN) {
                    assert_eq!(known, None, "a challenged segment says nothing");
                    continue;
                }
                let at = u64::from(pointer.saturating_sub(1));
                assert_eq!(known, mark(at, (at < len).then(|| pattern(0, at))));
                assert_eq!(peer.conn.received_to(), len);
                assert_eq!(peer.conn.is_peer_closed(), flags.contains(Flags::FIN));
                // It goes on as ever.
                if !flags.contains(Flags::FIN) {
                    peer.sent = len;
                    peer.more(100);
                    assert_eq!(peer.conn.received_to(), len + 100);
                }
                peer.conn.handle_consumed(peer.now, peer.conn.received_to());
            }
        }
    }
}

#[test]
fn after_the_peers_end_a_pointer_means_nothing() {
    let mut peer = established();
    let mut header = peer.header(FIN_ACK, 0, 0);
    header.urgent = 7; // without the flag it means nothing either
    peer.give(header, &[]);
    assert_eq!((peer.conn.state(), peer.conn.urgent()), (State::CloseWait, None));
    give_urgent(&mut peer, 1, 0, 9);
    assert_eq!(peer.conn.urgent(), None);
}

#[test]
fn a_snapshot_keeps_both_directions() {
    let mut peer = established();
    peer.conn.handle_send_urgent(100, 100);
    sent(&mut peer);
    peer.more(10);
    peer.buffer.consumed = Some(10);
    give_urgent(&mut peer, 10, 1, 1);
    give_urgent(&mut peer, 11, 1, 5);
    let before = peer.conn.urgent();
    assert_eq!(before, Some(UrgentMark { offset: Some(15), byte: None, passed_to: 11 }));
    let bytes = *peer.conn.snapshot().as_bytes();
    peer.conn = Connection::restore(&Snapshot::from_bytes(bytes), peer.now).unwrap();
    assert_eq!(peer.conn.urgent(), before);
    assert_eq!(sent(&mut peer)[0], (0, 100, Some(99)), "sent again, as urgent as before");
    peer.data(12, 4);
    assert_eq!(peer.conn.urgent().unwrap().byte, Some(pattern(0, 15)));
}
