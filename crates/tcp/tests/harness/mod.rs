//! What the tests of this crate share: a world of two connections on virtual time, and a hand-driven peer.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of the harness")]
#![allow(clippy::unwrap_used, reason = "a broken harness is a failed test")]

pub mod peer;
pub mod world;

use std::collections::BTreeMap;

use tcp::{NoMemory, ReceiveBuffer};

/// The byte at `offset` of the stream that `side` sends.
pub fn pattern(side: usize, offset: u64) -> u8 {
    let mixed = offset.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + side as u64 * 2);
    (mixed >> 56) as u8
}

/// A receive buffer that keeps no bytes: it checks each against the pattern and remembers which offsets were placed.
pub struct CheckedBuffer {
    sender: usize,
    ranges: BTreeMap<u64, u64>,
    /// No byte may be placed at or beyond this offset.
    pub limit: u64,
    /// The bytes are compared with the pattern.
    pub checks: bool,
    /// Refuse everything.
    pub full: bool,
    /// How far the reader has read, if it tells.
    pub consumed: Option<u64>,
}

impl CheckedBuffer {
    pub fn new(sender: usize) -> Self {
        Self { sender, ranges: BTreeMap::new(), limit: u64::MAX, checks: true, full: false, consumed: None }
    }

    /// Whether everything before `offset` was placed.
    pub fn covers(&self, offset: u64) -> bool {
        offset == 0 || self.ranges.get(&0).is_some_and(|&end| end >= offset)
    }

    /// Forgets what lies beyond `offset` (after a restart).
    pub fn forget_beyond(&mut self, offset: u64) {
        self.ranges.retain(|&start, _| start < offset);
        for end in self.ranges.values_mut() {
            *end = (*end).min(offset);
        }
    }
}

impl ReceiveBuffer for CheckedBuffer {
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        if self.full {
            return Err(NoMemory);
        }
        assert!(!bytes.is_empty());
        let mut end = offset + bytes.len() as u64;
        assert!(end <= self.limit, "placed up to {end}, beyond the limit {}", self.limit);
        for (i, &byte) in bytes.iter().enumerate().filter(|_| self.checks) {
            assert_eq!(byte, pattern(self.sender, offset + i as u64), "corrupt at {}", offset + i as u64);
        }
        let mut start = offset;
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back().filter(|&(_, &e)| e >= start) {
            start = start.min(s);
            end = end.max(e);
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
        Ok(())
    }

    fn consumed(&mut self) -> Option<u64> {
        self.consumed
    }
}
