//! Where a peer's urgent byte is, in one word of a socket's record.

use tcp::UrgentMark;

use crate::layout::MAX_RING;

/// Stream offsets are cut to their low bits: what counts is never farther from the reader than a ring is large, and a mark is
/// taken back soon after the reader has passed it.
const OFFSET_BITS: u32 = 28;
const OFFSET_SHIFT: u32 = 64 - OFFSET_BITS;
const PASSED_BITS: u32 = 26;
const PASSED_SHIFT: u32 = OFFSET_SHIFT - PASSED_BITS;
const HAS_OFFSET: u64 = 1 << 9;
const HAS_BYTE: u64 = 1 << 8;

const _: () = assert!(PASSED_SHIFT == 10);
const _: () = assert!(MAX_RING < 1 << (PASSED_BITS - 1) && MAX_RING < 1 << (OFFSET_BITS - 2));

/// A [`UrgentMark`] as the record holds it; 0: nothing urgent was ever received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UrgentWord(pub(crate) u64);

impl UrgentWord {
    pub(crate) fn new(mark: UrgentMark) -> Self {
        let byte = mark.byte.map_or(0, |byte| HAS_BYTE | u64::from(byte));
        let offset = mark.offset.map_or(0, |offset| HAS_OFFSET | offset << OFFSET_SHIFT);
        let passed = (mark.passed_to & ((1 << PASSED_BITS) - 1)) << PASSED_SHIFT;
        Self(byte | offset | passed)
    }

    /// The stream offset of the urgent byte, if a reader that has read up to `consumed` has not passed it.
    pub(crate) fn offset(self, consumed: u64) -> Option<u64> {
        let distance = (self.0 >> OFFSET_SHIFT).wrapping_sub(consumed) << OFFSET_SHIFT >> OFFSET_SHIFT;
        let is_ahead = self.0 & HAS_OFFSET != 0 && distance < 1 << (OFFSET_BITS - 1);
        is_ahead.then(|| consumed.saturating_add(distance))
    }

    /// The urgent byte, once it has come.
    pub(crate) fn byte(self) -> Option<u8> {
        (self.0 & HAS_BYTE != 0).then_some(self.0 as u8)
    }

    /// Which bytes were passed over last; to be compared only.
    pub(crate) fn passed(self) -> u32 {
        (self.0 << OFFSET_BITS >> (64 - PASSED_BITS)) as u32
    }

    /// How many bytes from `consumed` on are to be passed over.
    pub(crate) fn to_pass(self, consumed: u64) -> u64 {
        let distance = u64::from(self.passed()).wrapping_sub(consumed) & ((1 << PASSED_BITS) - 1);
        if distance < 1 << (PASSED_BITS - 1) { distance } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_mark_survives_the_word(consumed in 0u64..1 << 62, ahead in 0u64..1 << 25, byte: Option<u8>,
                                    passed in 0u64..1 << 24) {
            let mark = UrgentMark { offset: Some(consumed + ahead), byte, passed_to: consumed + passed };
            let word = UrgentWord::new(mark);
            prop_assert_eq!((word.offset(consumed), word.byte()), (mark.offset, mark.byte));
            prop_assert_eq!(word.to_pass(consumed), passed);
            prop_assert_eq!(word.to_pass(consumed + passed + 1), 0);
            prop_assert_eq!(word.offset(consumed + ahead + 1), None);
            let passed = UrgentWord::new(UrgentMark { offset: None, ..mark });
            prop_assert_eq!((passed.offset(consumed), passed.byte()), (None, mark.byte));
        }

        #[test]
        fn any_word_means_something(word: u64, consumed: u64) {
            let word = UrgentWord(word);
            prop_assert!(word.offset(consumed).is_none_or(|offset| offset >= consumed));
            prop_assert!(word.to_pass(consumed) < 1 << PASSED_BITS);
        }
    }

    #[test]
    fn no_word_is_no_mark() {
        assert_eq!(
            (UrgentWord(0).offset(0), UrgentWord(0).byte(), UrgentWord(0).to_pass(0)),
            (None, None, 0)
        );
    }
}
