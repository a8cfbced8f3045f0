//! The examples that RFCs give, packet by packet. Sequence numbers are the RFCs' less the number of their first segment.

mod harness;

use harness::peer::Peer;
use tcp::Config;
use wire::tcp::Options;

const SEGMENT: u64 = 500;

/// A receiver that has everything up to offset 0.
fn receiver() -> Peer {
    let options = Options { mss: Some(1000), sack_permitted: true, ..Options::default() };
    Peer::established_with(&Config::default(), options)
}

/// Gives it the segment at `from` and returns what it answers: the acknowledgement and the SACK blocks.
fn answer(peer: &mut Peer, from: u64, len: u64) -> (i64, Vec<(u64, u64)>) {
    peer.data(from, len as usize);
    let segment = peer.poll().expect("an acknowledgement at once");
    (segment.ack, segment.sack)
}

/// The `n`th of eight segments.
fn at(n: u64) -> u64 {
    n * SEGMENT
}

#[test]
fn rfc_2018_case_1_nothing_is_lost_at_the_end() {
    // Section 4, case 1: the first four segments arrive, the last four are dropped: no SACK option.
    let mut peer = receiver();
    for n in 0..4 {
        peer.data(at(n), SEGMENT as usize);
        while let Some(segment) = peer.poll() {
            assert_eq!(segment.sack, []);
        }
    }
    assert_eq!(peer.conn.received_to(), at(4));
}

#[test]
fn rfc_2018_case_2_the_first_is_lost() {
    let mut peer = receiver();
    for n in 1..8 {
        assert_eq!(answer(&mut peer, at(n), SEGMENT), (0, vec![(at(1), at(n + 1))]), "segment {n}");
    }
}

#[test]
fn rfc_2018_case_3_every_second_is_lost() {
    let mut peer = receiver();
    peer.data(at(0), SEGMENT as usize);
    while peer.poll().is_some() {}
    let first = at(1) as i64;
    assert_eq!(answer(&mut peer, at(2), SEGMENT), (first, vec![(at(2), at(3))]));
    assert_eq!(answer(&mut peer, at(4), SEGMENT), (first, vec![(at(4), at(5)), (at(2), at(3))]));
    let three = vec![(at(6), at(7)), (at(4), at(5)), (at(2), at(3))];
    assert_eq!(answer(&mut peer, at(6), SEGMENT), (first, three));
    // The fourth arrives out of order: the block around it comes first.
    assert_eq!(answer(&mut peer, at(3), SEGMENT), (first, vec![(at(2), at(5)), (at(6), at(7))]));
    // Then the second.
    assert_eq!(answer(&mut peer, at(1), SEGMENT), (at(5) as i64, vec![(at(6), at(7))]));
}

#[test]
fn rfc_2883_4_1_1_a_duplicate_segment() {
    // The acknowledgements of both segments are lost, the first is sent again.
    let mut peer = receiver();
    peer.data(at(0), SEGMENT as usize);
    peer.data(at(1), SEGMENT as usize);
    while peer.poll().is_some() {}
    assert_eq!(answer(&mut peer, at(0), SEGMENT), (at(2) as i64, vec![(at(0), at(1))]));
}

#[test]
fn rfc_2883_4_1_2_an_out_of_order_segment_and_a_duplicate() {
    let mut peer = receiver();
    peer.data(at(0), SEGMENT as usize);
    while peer.poll().is_some() {}
    let next = at(1) as i64;
    assert_eq!(answer(&mut peer, at(2), SEGMENT), (next, vec![(at(2), at(3))]));
    assert_eq!(answer(&mut peer, at(0), SEGMENT), (next, vec![(at(0), at(1)), (at(2), at(3))]));
}

#[test]
fn rfc_2883_4_1_3_a_duplicate_of_an_out_of_order_segment() {
    let mut peer = receiver();
    peer.data(at(0), SEGMENT as usize);
    while peer.poll().is_some() {}
    let next = at(1) as i64;
    assert_eq!(answer(&mut peer, at(2), SEGMENT), (next, vec![(at(2), at(3))]));
    assert_eq!(answer(&mut peer, at(3), SEGMENT), (next, vec![(at(2), at(4))]));
    // The second block names the range that the duplicate lies in.
    assert_eq!(answer(&mut peer, at(2), SEGMENT), (next, vec![(at(2), at(3)), (at(2), at(4))]));
}

#[test]
fn rfc_2883_4_2_1_a_partial_duplicate() {
    // A segment is delayed, the next is lost, the one behind arrives. What is sent again covers the first two, after the
    // delayed one has come: its first half is a duplicate, reported although the second half is new.
    let mut peer = receiver();
    assert_eq!(answer(&mut peer, at(2), SEGMENT), (0, vec![(at(2), at(3))]));
    assert_eq!(answer(&mut peer, at(0), SEGMENT), (at(1) as i64, vec![(at(2), at(3))]));
    assert_eq!(answer(&mut peer, at(0), 2 * SEGMENT), (at(3) as i64, vec![(at(0), at(1))]));
}
