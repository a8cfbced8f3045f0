//! Copying at full speed, wherever the bytes lie.
//!
//! Long copies of the C library are made by `rep movsb`. Some processors (AMD Zen 3) do that at a fifteenth of their speed when the
//! target lies less than a cache line behind the source, multiples of a page apart: 2 instead of 40 GB/s. Rings begin at
//! pages and large buffers of programs 16 bytes behind one, so it is a common case. Pieces too short for `rep movsb` are
//! copied by other means, at half of the full speed there.

/// Shorter than the C library ever copies by `rep movsb`.
const PIECE: usize = 2040;
const PAGE: usize = 4096;
/// The distances at which it is slow: from 1 byte to less than this.
const NEAR: usize = 64;

/// The pieces in which `bytes` are best copied to `place`: all at once, or little by little.
pub(crate) fn piece_size(place: *const u8, bytes: &[u8]) -> usize {
    let behind = place.addr().wrapping_sub(bytes.as_ptr().addr()) % PAGE;
    if (1..NEAR).contains(&behind) { PIECE } else { bytes.len().max(1) }
}

/// Copies `bytes` to `place`, which is as long.
pub(crate) fn copy(place: &mut [u8], bytes: &[u8]) {
    let size = piece_size(place.as_ptr(), bytes);
    for (to, from) in place.chunks_mut(size).zip(bytes.chunks(size)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_at_every_distance() {
        let source: Vec<u8> = (0..3 * PAGE).map(|index| (index * 7 + index / 256) as u8).collect();
        let mut target = vec![0; 5 * PAGE];
        let mut little_by_little = 0;
        for shift in 0..PAGE {
            for length in [0, 1, PIECE, PIECE + 1, 2 * PAGE + 3] {
                let place = &mut target[shift..shift + length];
                little_by_little += usize::from(piece_size(place.as_ptr(), &source) == PIECE);
                copy(place, &source[..length]);
                assert_eq!(place, &source[..length], "{length} bytes, {shift} further");
                place.fill(0);
            }
        }
        assert_eq!(little_by_little, 5 * (NEAR - 1), "at the near distances, and nowhere else");
        assert!(target.iter().all(|&byte| byte == 0), "nothing beside them");
    }
}
