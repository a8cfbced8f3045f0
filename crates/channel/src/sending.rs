//! What the FEP tells of a stream's way out beside its acknowledgement, in one word of the socket's record.
//!
//! ```text
//!   bits 0..5: the logarithm of the ring that is of use · 5..30: bytes not sent yet · 30..55: the end of what the FEP has heard of
//! ```
//! Offsets are cut to 25 bits: no ring holds more than 16 MiB, so the distances between those that are compared survive that.

use crate::layout::MAX_RING_LOG2;

const OFFSET_BITS: u32 = 25;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const TARGET_BITS: u32 = 5;

const _: () = assert!(OFFSET_BITS > MAX_RING_LOG2 && MAX_RING_LOG2 < 1 << TARGET_BITS);

/// The word. All zeroes: nothing is known, as of a stream of which nothing was queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendWord(pub(crate) u64);

impl SendWord {
    /// The same with another ring of use.
    pub(crate) fn with_target(self, log2: u8) -> Self {
        let mask = (1 << TARGET_BITS) - 1;
        Self(self.0 & !mask | u64::from(log2).min(mask))
    }

    /// The same after the FEP has heard that the stream is queued up to `queued` and has sent it up to `sent`.
    pub(crate) fn with_sent(self, queued: u64, sent: u64) -> Self {
        let unsent = queued.saturating_sub(sent).min(1 << MAX_RING_LOG2);
        let target = self.0 & ((1 << TARGET_BITS) - 1);
        Self(target | unsent << TARGET_BITS | (queued & OFFSET_MASK) << (TARGET_BITS + OFFSET_BITS))
    }

    /// The logarithm of the size of a send ring that is of use; 0: not known.
    pub(crate) fn target(self) -> u32 {
        (self.0 & ((1 << TARGET_BITS) - 1)) as u32
    }

    /// Bytes before the offset `queued` that are not sent, as far as the FEP has told, and whether it has heard of all of them.
    pub(crate) fn unsent(self, queued: u64) -> (u64, bool) {
        let unheard = queued.wrapping_sub(self.heard()) & OFFSET_MASK;
        ((self.0 >> TARGET_BITS & OFFSET_MASK) + unheard, unheard == 0)
    }

    /// Whether the stream is sent up to the offset `mark`, which is not beyond what is queued.
    pub(crate) fn has_sent(self, mark: u64) -> bool {
        let sent = self.heard().wrapping_sub(self.0 >> TARGET_BITS & OFFSET_MASK);
        sent.wrapping_sub(mark) & OFFSET_MASK <= OFFSET_MASK / 2
    }

    fn heard(self) -> u64 {
        self.0 >> (TARGET_BITS + OFFSET_BITS) & OFFSET_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_in_comes_out(log2 in 0u8..=24, sent: u32, base in 0u64..1 << 40, unsent in 0u64..=1 << 24,
                                    later in 0u64..1 << 24, back in 0u64..1 << 24) {
            let sent = base + u64::from(sent);
            let queued = sent + unsent;
            let word = SendWord::default().with_sent(queued, sent).with_target(log2);
            prop_assert_eq!(word.with_sent(queued, sent), word);
            prop_assert_eq!(word.target(), u32::from(log2));
            prop_assert_eq!(word.unsent(queued), (unsent, true));
            prop_assert_eq!(word.unsent(queued + later), (unsent + later, later == 0));
            prop_assert!(word.has_sent(sent) && word.has_sent(sent.saturating_sub(back)));
            prop_assert!(later == 0 || !word.has_sent(sent + later));
        }
    }

    #[test]
    fn nothing_is_known_of_a_fresh_stream() {
        let word = SendWord::default();
        assert_eq!((word.target(), word.unsent(0), word.unsent(10)), (0, (0, true), (10, false)));
        assert!(word.has_sent(0) && !word.has_sent(1));
    }
}
