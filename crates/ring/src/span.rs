//! Where a range of a byte stream lies in a ring: position = stream offset modulo the ring's size.

/// A piece of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Position of its first byte, below the ring's size.
    pub start: usize,
    /// Its length.
    pub len: usize,
}

/// The stream's bytes `[offset, offset + len)` in a ring of `size` bytes, a power of two: up to the ring's end, then
/// from its start. `len` is cut to `size`.
pub fn spans(offset: u64, len: usize, size: usize) -> [Span; 2] {
    debug_assert!(size.is_power_of_two());
    let start = offset as usize & (size - 1);
    let len = len.min(size);
    let first = len.min(size - start);
    [Span { start, len: first }, Span { start: 0, len: len - first }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_has_its_place(offset: u64, len in 0usize..5000, log2 in 0u32..13) {
            let size = 1usize << log2;
            let [first, second] = spans(offset, len, size);
            prop_assert_eq!(first.len + second.len, len.min(size));
            prop_assert!(first.start + first.len <= size && second.start + second.len <= size);
            for at in 0..first.len + second.len {
                let place = if at < first.len { first.start + at } else { second.start + at - first.len };
                prop_assert_eq!(place as u64, offset.wrapping_add(at as u64) % size as u64);
            }
        }
    }
}
