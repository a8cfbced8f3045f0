//! A byte stream that proves itself: what byte `n` must be follows from `n`.
//!
//! The stream is a sequence of 64-bit little-endian words, word `i` being `i · STEP + START`. Making it and checking it
//! costs an addition and a store or a comparison per word, which compilers turn into vector instructions. No run of it
//! repeats within 2⁶⁴ words, so a lost, doubled or swapped byte is seen wherever it happens.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const START: u64 = 0x6f75_7462_6f61_7264;
const WORD: u64 = 8;

/// Word number `index` of the stream.
fn word(index: u64) -> u64 {
    index.wrapping_mul(STEP).wrapping_add(START)
}

/// Byte number `offset` of the stream.
fn byte(offset: u64) -> u8 {
    word(offset / WORD).to_le_bytes()[(offset % WORD) as usize]
}

/// How many bytes from `offset` on belong to a word that began earlier, at most `length`.
fn head(offset: u64, length: usize) -> usize {
    (((WORD - offset % WORD) % WORD) as usize).min(length)
}

/// Writes the stream's bytes from `offset` on.
pub fn fill(bytes: &mut [u8], offset: u64) {
    let (first, rest) = bytes.split_at_mut(head(offset, bytes.len()));
    for (position, out) in (offset..).zip(first.iter_mut()) {
        *out = byte(position);
    }
    let mut position = offset + first.len() as u64;
    let mut next = word(position / WORD);
    let (words, last) = rest.as_chunks_mut::<8>();
    for out in words.iter_mut() {
        *out = next.to_le_bytes();
        next = next.wrapping_add(STEP);
    }
    position += words.len() as u64 * WORD;
    for (position, out) in (position..).zip(last) {
        *out = byte(position);
    }
}

/// Whether these are the stream's bytes from `offset` on.
pub fn check(bytes: &[u8], offset: u64) -> bool {
    let (first, rest) = bytes.split_at(head(offset, bytes.len()));
    let mut right = (offset..).zip(first).all(|(position, seen)| *seen == byte(position));
    let position = offset + first.len() as u64;
    let mut next = word(position / WORD);
    let (words, last) = rest.as_chunks::<8>();
    let mut difference = 0;
    for seen in words {
        difference |= u64::from_le_bytes(*seen) ^ next;
        next = next.wrapping_add(STEP);
    }
    right &= difference == 0;
    let position = position + words.len() as u64 * WORD;
    right && (position..).zip(last).all(|(position, seen)| *seen == byte(position))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_of_the_stream_is_the_same_stream() {
        let whole: Vec<u8> = (0..200).map(byte).collect();
        for start in 0..40 {
            for length in 0..60 {
                let mut piece = vec![0; length];
                fill(&mut piece, start as u64);
                assert_eq!(piece, whole[start..start + length]);
                assert!(check(&piece, start as u64));
            }
        }
    }

    #[test]
    fn one_wrong_bit_anywhere_is_seen() {
        let mut bytes = vec![0; 100];
        fill(&mut bytes, 3);
        for position in 0..bytes.len() {
            bytes[position] ^= 0x10;
            assert!(!check(&bytes, 3), "{position}");
            bytes[position] ^= 0x10;
        }
        assert!(!check(&bytes, 4) && !check(&bytes[8..], 3));
    }
}
