//! Ranges received out of order.
//!
//! The bytes themselves were placed straight at their offsets in the receive buffer; only the ranges are kept here,
//! sorted and disjoint, in number bounded by the window ([`most_ranges`]). The order of arrival of the latest ones is kept
//! for the SACK option, whose first block names the newest (RFC 2018 §4).

use std::collections::VecDeque;

use crate::segment::Position;

/// The most separate ranges kept for a receive window of `limit` bytes; what would make one more is treated as not
/// received. One for each 512 bytes lets every second segment of a window be missing, as after the overflow of a queue,
/// and takes a thirty-second of the buffer's memory.
pub(crate) fn most_ranges(limit: u32) -> usize {
    (limit as usize / 512).clamp(LEAST_RANGES, MOST_RANGES)
}

const LEAST_RANGES: usize = 128;
const MOST_RANGES: usize = 8192;
/// How many of the most recently changed ranges are remembered for the SACK option.
const RECENT: usize = 4;

/// `[start, end)` in receive positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: Position,
    pub(crate) end: Position,
}

/// What inserting did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insert {
    /// New bytes are covered now.
    New,
    /// All of it was covered before.
    Covered,
}

/// The ranges beyond RCV.NXT.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    ranges: VecDeque<Range>,
    /// A position inside each of the latest ranges, newest first; `0`: none.
    recent: [Position; RECENT],
}

impl Reassembly {
    /// Whether a range can be inserted where `most` may be kept.
    pub(crate) fn has_room_for(&self, range: Range, most: usize) -> bool {
        self.ranges.len() < most || self.touches(range)
    }

    fn touches(&self, range: Range) -> bool {
        let index = self.ranges.partition_point(|r| r.end < range.start);
        self.ranges.get(index).is_some_and(|r| r.start <= range.end)
    }

    /// Adds a range for which there is room, joined with all that it touches.
    pub(crate) fn insert(&mut self, range: Range) -> Insert {
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        if first == last {
            self.ranges.insert(first, range);
            self.note_recent(range.start);
            return Insert::New;
        }
        let joined = Range {
            start: range.start.min(self.ranges[first].start),
            end: range.end.max(self.ranges[last - 1].end),
        };
        let covered = last - first == 1 && joined == self.ranges[first];
        self.ranges[first] = joined;
        self.ranges.drain(first + 1..last);
        self.note_recent(range.start);
        if covered { Insert::Covered } else { Insert::New }
    }

    fn note_recent(&mut self, position: Position) {
        let range = self.range_at(position);
        // The place of the same range, or of one that is no more, or the last.
        let known = self
            .recent
            .iter()
            .position(|&p| self.range_at(p).is_none_or(|found| Some(found) == range))
            .unwrap_or(RECENT - 1);
        self.recent.copy_within(..known, 1);
        self.recent[0] = position;
    }

    /// The first part of `range` that is covered already.
    pub(crate) fn overlap(&self, range: Range) -> Option<Range> {
        let index = self.ranges.partition_point(|r| r.end <= range.start);
        let known = self.ranges.get(index).filter(|r| r.start < range.end)?;
        Some(Range { start: known.start.max(range.start), end: known.end.min(range.end) })
    }

    /// The range that covers `position`.
    pub(crate) fn range_at(&self, position: Position) -> Option<Range> {
        let index = self.ranges.partition_point(|r| r.end <= position);
        self.ranges.get(index).copied().filter(|r| r.start <= position)
    }

    /// RCV.NXT has come to `nxt`: takes off what it reaches and returns how far it now goes.
    pub(crate) fn advance(&mut self, nxt: Position) -> Position {
        let reached = self.ranges.partition_point(|r| r.start <= nxt);
        let last = reached.checked_sub(1).map(|index| self.ranges[index]);
        let end = last.map_or(nxt, |last| last.end.max(nxt));
        self.ranges.drain(..reached);
        end
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges to report, the most recently changed first.
    pub(crate) fn recent_ranges(&self) -> impl Iterator<Item = Range> + '_ {
        let listed = |upto: usize, range: Range| {
            self.recent[..upto].iter().any(|&p| p != 0 && self.range_at(p) == Some(range))
        };
        self.recent
            .iter()
            .enumerate()
            .filter(|&(_, &p)| p != 0)
            .filter_map(move |(i, &p)| self.range_at(p).filter(|&range| !listed(i, range)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn ranges_join_and_advance() {
        let mut kept = Reassembly::default();
        assert_eq!(kept.insert(range(20, 30)), Insert::New);
        assert_eq!(kept.insert(range(40, 50)), Insert::New);
        assert_eq!(kept.insert(range(42, 48)), Insert::Covered);
        assert_eq!(kept.insert(range(30, 40)), Insert::New);
        assert_eq!(kept.ranges, [range(20, 50)]);
        assert_eq!(kept.advance(10), 10);
        assert_eq!(kept.advance(25), 50);
        assert!(kept.is_empty());
    }

    #[test]
    fn what_overlaps_is_found() {
        let mut kept = Reassembly::default();
        kept.insert(range(20, 30));
        kept.insert(range(40, 50));
        assert_eq!(kept.overlap(range(10, 20)), None);
        assert_eq!(kept.overlap(range(10, 25)), Some(range(20, 25)));
        assert_eq!(kept.overlap(range(25, 60)), Some(range(25, 30)));
        assert_eq!(kept.overlap(range(30, 60)), Some(range(40, 50)));
        assert_eq!(kept.overlap(range(50, 60)), None);
    }

    #[test]
    fn the_newest_range_is_reported_first() {
        let mut kept = Reassembly::default();
        for start in [100, 200, 300, 400, 500] {
            kept.insert(range(start, start + 10));
        }
        kept.insert(range(210, 220));
        let starts: Vec<_> = kept.recent_ranges().map(|r| r.start).collect();
        assert_eq!(starts[..2], [200, 500]);
        assert!(starts.len() <= 4);
    }

    #[test]
    fn ranges_that_were_reached_leave_their_places() {
        let mut kept = Reassembly::default();
        for start in [100, 20, 40] {
            kept.insert(range(start, start + 10));
        }
        assert_eq!(kept.advance(60), 60);
        for start in [200, 300, 400] {
            kept.insert(range(start, start + 10));
        }
        let starts: Vec<_> = kept.recent_ranges().map(|r| r.start).collect();
        assert_eq!(starts, [400, 300, 200, 100]);
    }

    #[test]
    fn one_range_too_many_is_refused() {
        let most = most_ranges(65_535);
        assert_eq!(most, LEAST_RANGES);
        let mut kept = Reassembly::default();
        for i in 0..most as u64 {
            assert!(kept.has_room_for(range(10 * i + 10, 10 * i + 11), most));
            assert_eq!(kept.insert(range(10 * i + 10, 10 * i + 11)), Insert::New);
        }
        assert!(!kept.has_room_for(range(5, 6), most));
        assert!(kept.has_room_for(range(5, 6), most_ranges(16 << 20)), "a large window has room for more");
        assert!(kept.has_room_for(range(11, 12), most), "a range that joins another needs no room");
    }
}
