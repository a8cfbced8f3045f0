//! Sums against a reference that adds one 16-bit word after the other.

mod common;

use outboard_wire::checksum::{Sum, update};
use proptest::collection::vec;
use proptest::prelude::*;

use common::cases;

/// RFC 1071 §4.1, as it stands.
fn naive(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A checksum has two ways to write zero; which one comes out does not matter where it is compared with a field.
fn same(a: u16, b: u16) -> bool {
    a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0)
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_sum_is_the_references(bytes in vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(Sum::of(&bytes).finish(), naive(&bytes));
    }

    #[test]
    fn pieces_of_any_length_join(pieces in vec(vec(any::<u8>(), 0..70), 0..9)) {
        let whole = naive(&pieces.concat());
        let added = pieces.iter().fold(Sum::ZERO, |sum, piece| sum.add(piece));
        prop_assert_eq!(added.finish(), whole);
        let joined = pieces.iter().fold(Sum::ZERO, |sum, piece| sum.join(Sum::of(piece)));
        prop_assert_eq!(joined.finish(), whole);
        let (left, right) = pieces.split_at(pieces.len() / 2);
        let [left, right] = [left, right].map(|half| half.iter().fold(Sum::ZERO, |sum, piece| sum.add(piece)));
        prop_assert_eq!(left.join(right).finish(), whole);
    }

    #[test]
    fn words_are_bytes(before in vec(any::<u8>(), 0..4), word: u16, words: u32) {
        let mut bytes = before.clone();
        bytes.extend_from_slice(&word.to_be_bytes());
        bytes.extend_from_slice(&words.to_be_bytes());
        prop_assert_eq!(Sum::of(&before).add_u16(word).add_u32(words).finish(), naive(&bytes));
    }

    #[test]
    fn copying_sums(before in vec(any::<u8>(), 0..3), bytes in vec(any::<u8>(), 0..10_000), at in 0usize..40, spare in 0usize..5) {
        let mut copy = vec![0; at + bytes.len() + spare];
        let sum = Sum::of(&before).copy_and_add(&mut copy[at..], &bytes);
        let end = at + bytes.len();
        prop_assert_eq!(&copy[at..end], &bytes[..]);
        prop_assert!(copy[..at].iter().chain(&copy[end..]).all(|&byte| byte == 0));
        prop_assert_eq!(sum.finish(), naive(&[before, bytes].concat()));
    }

    #[test]
    fn copying_from_two_places_to_two_sums(bytes in vec(any::<u8>(), 0..3000), cuts: [prop::sample::Index; 2]) {
        let [from, to] = cuts.map(|cut| cut.index(bytes.len() + 1));
        let mut copy = vec![0; bytes.len()];
        let sum = Sum::of(&[7]).copy_across(copy.split_at_mut(to).into(), bytes.split_at(from).into());
        prop_assert_eq!(&copy, &bytes);
        prop_assert_eq!(sum.finish(), naive(&[vec![7], bytes].concat()));
    }

    #[test]
    fn an_update_is_a_new_sum(words in vec(any::<u16>(), 1..30), at: prop::sample::Index, new: u16) {
        let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let before = naive(&bytes(&words));
        let mut changed = words.clone();
        let old = std::mem::replace(&mut changed[at.index(words.len())], new);
        let after = update(before, old, new);
        prop_assert!(same(after, naive(&bytes(&changed))));
        // RFC 1624 §3: with the third equation, data that are not all zero never get the wrong zero.
        if changed.iter().any(|&word| word != 0) && words.iter().any(|&word| word != 0) {
            prop_assert_eq!(after, naive(&bytes(&changed)));
        }
    }
}

#[test]
fn the_largest_words_do_not_overflow() {
    let ones = vec![0xff; 1 << 20];
    assert_eq!(Sum::of(&ones).finish(), 0);
    let mut sum = Sum::ZERO.add(&[0xff]);
    for _ in 0..100 {
        sum = sum.add(&ones).add_u32(u32::MAX);
    }
    assert!(same(sum.finish(), naive(&[0xff, 0])), "adding ones' complement zeroes changes nothing");
}
