//! Decisions taken from bytes.

/// A cursor over an input. What is missing at the end is zero.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// At the beginning of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether nothing is left.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `bound` (at most 256), from one byte.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    /// One of two.
    pub fn bit(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// A number of a kind that breaks things, or any other.
    pub fn nasty(&mut self) -> u64 {
        let kind = self.byte();
        let low = u64::from(kind >> 3);
        match kind & 7 {
            0 => low,
            1 => 1 << (low * 2),
            2 => u64::MAX - low,
            3 => u64::from(u32::MAX) - 16 + low,
            4 => u64::from(self.u16()),
            5 => u64::from(self.u32()),
            6 => (1 << 31) - 16 + low,
            _ => self.u64(),
        }
    }

    /// At most `count` bytes, fewer at the end.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(self.bytes.len())
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}
