use super::*;
use base::{Rng, SeededRng};

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

fn reassembler() -> Reassembler {
    Reassembler::new(256 << 10, 128 << 10, KeyedState::new([1; 16]))
}

fn key(source: Ipv4Addr, identification: u16) -> DatagramKey {
    DatagramKey { source, destination: Ipv4Addr::new(10, 0, 0, 1), protocol: 17, identification }
}

fn give(
    reassembler: &mut Reassembler,
    at: u64,
    key: DatagramKey,
    offset: usize,
    more: bool,
    bytes: &[u8],
) -> Outcome {
    let fragment = Fragment { key, offset, more, payload: bytes, packet: bytes };
    reassembler.handle_fragment(Instant::from_millis(at), &fragment)
}

#[test]
fn any_order_gives_the_datagram() {
    for seed in 0..50 {
        let mut rng = SeededRng::new(seed);
        let mut reassembler = reassembler();
        let payload: Vec<u8> = (0..20_000).map(|_| rng.next_u64() as u8).collect();
        let mut pieces: Vec<(usize, &[u8])> = payload.chunks(1480).enumerate().collect();
        for i in (1..pieces.len()).rev() {
            pieces.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let last = pieces.len() - 1;
        for (count, (number, bytes)) in pieces.iter().enumerate() {
            let more = *number != payload.len() / 1480;
            let outcome = give(&mut reassembler, 0, key(SOURCE, 7), number * 1480, more, bytes);
            if count == last {
                assert_eq!(outcome, Outcome::Complete(payload.clone()), "seed {seed}");
            } else {
                assert_eq!(outcome, Outcome::Stored, "seed {seed}");
                let again = give(&mut reassembler, 0, key(SOURCE, 7), number * 1480, more, bytes);
                assert_eq!(again, Outcome::Duplicate, "seed {seed}");
            }
        }
        assert_eq!(reassembler.bytes(), 0);
        assert!(reassembler.by_source.is_empty());
    }
}

#[test]
fn a_partial_overlap_ends_the_datagram() {
    let mut reassembler = reassembler();
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 1), 0, true, &[1; 16]), Outcome::Stored);
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 1), 8, true, &[2; 16]), Outcome::Overlap);
    assert_eq!(reassembler.bytes(), 0);
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 1), 16, false, &[3; 16]), Outcome::Stored);
}

#[test]
fn impossible_lengths_are_refused() {
    let mut reassembler = reassembler();
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 1), 0, true, &[1; 15]), Outcome::Malformed);
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 1), 65_512, false, &[1; 16]), Outcome::Malformed);
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 1), 8, false, &[]), Outcome::Malformed);
    // Two ends, and bytes beyond the end.
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 2), 32, false, &[1; 8]), Outcome::Stored);
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 2), 48, false, &[1; 8]), Outcome::Malformed);
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 3), 32, false, &[1; 8]), Outcome::Stored);
    assert_eq!(give(&mut reassembler, 0, key(SOURCE, 3), 40, true, &[1; 8]), Outcome::Malformed);
    assert_eq!(reassembler.bytes(), 0);
}

#[test]
fn time_runs_out_and_the_first_fragment_is_quoted() {
    let mut reassembler = reassembler();
    give(&mut reassembler, 0, key(SOURCE, 1), 0, true, &[7; 16]);
    give(&mut reassembler, 1_000, key(SOURCE, 2), 8, true, &[8; 16]);
    assert_eq!(reassembler.deadline(), Some(Instant::from_millis(30_000)));
    assert!(reassembler.poll_timed_out(Instant::from_millis(29_999)).is_none());
    let first = reassembler.poll_timed_out(Instant::from_millis(40_000)).expect("due");
    assert_eq!(first.quote.as_deref(), Some(&[7; 16][..]));
    let second = reassembler.poll_timed_out(Instant::from_millis(40_000)).expect("due");
    assert!(second.quote.is_none());
    assert_eq!(reassembler.deadline(), None);
    assert_eq!(reassembler.bytes(), 0);
}

#[test]
fn bombs_stay_within_the_bounds() {
    let mut reassembler = reassembler();
    // One source opens datagram after datagram: its own limit holds.
    let mut refused = 0;
    for identification in 0..2000u16 {
        let outcome = give(&mut reassembler, 0, key(SOURCE, identification), 65_000, true, &[0; 256]);
        refused += u32::from(outcome == Outcome::OverLimit);
    }
    assert!(refused > 0);
    assert!(reassembler.bytes() <= 128 << 10);
    // Many sources: the total holds, the oldest goes.
    for host in 0..2000u32 {
        give(&mut reassembler, 1, key(Ipv4Addr::from_bits(0x0b00_0000 + host), 1), 0, true, &[0; 512]);
        assert!(reassembler.bytes() <= 256 << 10);
    }
    assert!(reassembler.take_evicted() > 0);
    // Many tiny fragments of one datagram.
    let mut last = Outcome::Stored;
    for number in 0..=MAX_FRAGMENTS {
        last = give(&mut reassembler, 1, key(Ipv4Addr::new(12, 0, 0, 1), 1), number * 16, true, &[0; 8]);
    }
    assert_eq!(last, Outcome::OverLimit);
}
