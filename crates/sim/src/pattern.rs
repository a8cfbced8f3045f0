//! The bytes that simulated applications send: known at every offset, without being written anywhere.
//!
//! A stream's bytes repeat a table of random bytes from a *phase* of its own. The table's length is prime, so that a
//! byte that ends up anywhere but where it belongs, or in another stream, is seen. Slices of the table stand for
//! payload: a frame that carries one needs to remember only where it starts.

use std::sync::LazyLock;

use base::{Rng, SeededRng};

/// After this many bytes a stream repeats itself: a prime near 64 KiB.
pub const PERIOD: usize = 65_521;
/// The most bytes that [`slice()`] gives at once.
pub const LONGEST: usize = 1 << 16;

static TABLE: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut rng = SeededRng::new(0x0b0a_5d00);
    let period: Vec<u8> = (0..PERIOD).map(|_| rng.next_u64() as u8).collect();
    period.iter().copied().cycle().take(PERIOD + LONGEST).collect()
});

/// Where in the table a stream starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase(u32);

impl Phase {
    /// The phase of the stream with this number; the streams of a world have different ones.
    pub const fn of_stream(number: u64) -> Self {
        // Steps of a third of the period, more or less, keep the phases of neighbours far apart.
        Self((number.wrapping_mul(21_841) % PERIOD as u64) as u32)
    }

    fn at(self, offset: u64) -> usize {
        ((offset + u64::from(self.0)) % PERIOD as u64) as usize
    }
}

/// The bytes `[offset, offset + len)` of a stream; at most [`LONGEST`].
pub fn slice(phase: Phase, offset: u64, len: usize) -> &'static [u8] {
    let at = phase.at(offset);
    &TABLE[at..at + len.min(LONGEST)]
}

/// Whether `bytes` are those of a stream from `offset` on.
pub fn matches(phase: Phase, offset: u64, bytes: &[u8]) -> bool {
    let mut offset = offset;
    bytes.chunks(LONGEST).all(|chunk| {
        let same = slice(phase, offset, chunk.len()) == chunk;
        offset += chunk.len() as u64;
        same
    })
}

/// Where in the table `bytes` lie, if they are a slice of it; [`table`] gives them again.
pub fn place_of(bytes: &[u8]) -> Option<u32> {
    let start = bytes.as_ptr().addr().checked_sub(TABLE.as_ptr().addr())?;
    (start + bytes.len() <= TABLE.len()).then_some(start as u32)
}

/// A part of the table.
pub fn table(at: u32, len: u32) -> &'static [u8] {
    &TABLE[at as usize..(at + len) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_found_again_and_copies_are_not() {
        let phase = Phase::of_stream(5);
        let bytes = slice(phase, 1 << 40, 1460);
        let at = place_of(bytes).unwrap();
        assert_eq!(table(at, 1460), bytes);
        let copy = bytes.to_vec();
        assert_eq!(place_of(&copy), None);
        assert_eq!(place_of(b"elsewhere"), None);
    }

    #[test]
    fn a_displaced_byte_is_seen() {
        let phase = Phase::of_stream(1);
        let bytes: Vec<u8> = [slice(phase, 100, 60_000), slice(phase, 60_100, 50_000)].concat();
        assert!(matches(phase, 100, &bytes));
        assert!(!matches(phase, 101, &bytes));
        assert!(!matches(Phase::of_stream(2), 100, &bytes));
        let mut damaged = bytes;
        damaged[109_999] ^= 1;
        assert!(!matches(phase, 100, &damaged));
    }
}
