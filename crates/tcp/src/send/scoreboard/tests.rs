//! The scoreboard by itself.

use super::*;

fn board(lens: &[u32]) -> Scoreboard {
    let mut board = Scoreboard::new();
    let mut start = 1;
    for (i, &len) in lens.iter().enumerate() {
        let sent_at = Instant::from_millis(i as u64);
        board.push(Record::new(start, len, sent_at));
        start += u64::from(len);
    }
    board
}

fn layout(board: &Scoreboard) -> Vec<(u64, u32, Fate)> {
    board.board.iter().flat_map(|b| &b.records).map(|r| (r.start, r.len, r.fate)).collect()
}

#[test]
fn a_block_inside_a_super_segment_splits_it_in_three() {
    let mut board = board(&[5000]);
    board.sack(1001, 2001, 64, |_| {});
    assert_eq!(
        layout(&board),
        [(1, 1000, Fate::InFlight), (1001, 1000, Fate::Sacked), (2001, 3000, Fate::InFlight)]
    );
    assert!(board.is_consistent(1, 5001));
    board.sack(2001, 3001, 64, |_| {});
    assert_eq!(layout(&board).len(), 3, "neighbouring blocks are joined");
    assert!(board.is_consistent(1, 5001));
}

#[test]
fn losses_go_out_again_in_order_and_in_pieces() {
    let mut board = board(&[1000, 1000, 1000]);
    board.sack(1001, 2001, 64, |_| {});
    board.mark_all_lost();
    assert_eq!((board.lost(), board.in_flight(), board.sacked()), (2000, 0, 1000));
    let first = board.retransmit_lost(600, Instant::from_millis(9)).unwrap();
    assert_eq!((first.start, first.len, first.transmissions), (1, 600, 2));
    let second = board.retransmit_lost(600, Instant::from_millis(9)).unwrap();
    assert_eq!((second.start, second.len), (601, 400));
    let third = board.retransmit_lost(6000, Instant::from_millis(9)).unwrap();
    assert_eq!((third.start, third.len), (2001, 1000));
    assert!(board.retransmit_lost(600, Instant::ZERO).is_none());
    assert!(board.is_consistent(1, 3001));
}

#[test]
fn single_byte_blocks_cannot_grow_it_without_bound() {
    let mut board = board(&[60_000]);
    for at in (2..50_000).step_by(2) {
        board.sack(at, at + 1, 100, |_| {});
    }
    assert!(layout(&board).len() <= 101);
    assert!(board.is_consistent(1, 60_001));
}

#[test]
fn a_partial_acknowledgement_trims_and_the_last_one_frees() {
    let mut board = board(&[1000, 1000]);
    let mut seen = Vec::new();
    board.acknowledge(501, |record| seen.push((record.start, record.len)));
    board.acknowledge(2001, |record| seen.push((record.start, record.len)));
    assert_eq!(seen, [(1, 500), (501, 500), (1001, 1000)]);
    assert!(board.is_empty());
}

#[test]
fn reneging_loses_what_was_selectively_acknowledged() {
    let mut board = board(&[1000, 1000]);
    board.sack(1001, 2001, 64, |_| {});
    board.acknowledge(1001, |_| {});
    board.mark_all_lost();
    assert_eq!((board.lost(), board.sacked()), (1000, 0));
}
