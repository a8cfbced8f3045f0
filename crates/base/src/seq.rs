//! TCP sequence numbers: 32 bits that wrap, compared by distance (RFC 9293 §3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence number.
///
/// It has no `Ord`: "less" is only meaningful between numbers less than 2³¹ apart, which the names
/// [`before`](Self::before) and [`after`](Self::after) say and an operator would hide.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Whether `self` comes strictly before `other` in sequence space.
    pub const fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` comes strictly after `other` in sequence space.
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// Whether `self` lies in the half-open range `[start, start + length)`.
    pub const fn within(self, start: Self, length: u32) -> bool {
        self.0.wrapping_sub(start.0) < length
    }

    /// How many sequence numbers `self` is ahead of `earlier`, modulo 2³².
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The later of two sequence numbers.
    pub const fn later(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The earlier of two sequence numbers.
    pub const fn earlier(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;
    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;
    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

impl fmt::Debug for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_survives_the_wrap() {
        let last = SeqNumber(u32::MAX);
        let first = last + 1;
        assert_eq!(first, SeqNumber(0));
        assert!(last.before(first));
        assert!(first.after(last));
        assert!(!first.before(first));
        assert_eq!(first.distance_from(last), 1);
        assert_eq!(last.later(first), first);
        assert_eq!(last.earlier(first), last);
    }

    #[test]
    fn a_range_is_half_open() {
        let start = SeqNumber(u32::MAX - 1);
        assert!(start.within(start, 4));
        assert!((start + 3).within(start, 4));
        assert!(!(start + 4).within(start, 4));
        assert!(!start.within(start, 0));
    }
}
