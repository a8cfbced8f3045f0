//! One end: a connection, its buffer, and the laws.

use std::collections::BTreeMap;

use base::Instant;
use tcp::{Connection, NoMemory, OutputLimit, ReceiveBuffer, SegmentOut};
use wire::tcp::Flags;

use super::Flying;

/// The byte at `offset` of the stream that `side` sends.
pub(crate) fn pattern(side: usize, offset: u64) -> u8 {
    (offset.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + side as u64 * 2) >> 56) as u8
}

/// Keeps no bytes: each is compared with the pattern, and what was placed is remembered.
#[derive(Debug)]
pub(crate) struct Buffer {
    sender: usize,
    ranges: BTreeMap<u64, u64>,
    limit: u64,
    /// The bytes are compared.
    pub(crate) checks: bool,
    /// Refuses everything.
    pub(crate) full: bool,
}

impl Buffer {
    fn new(sender: usize) -> Self {
        Self { sender, ranges: BTreeMap::new(), limit: 0, checks: true, full: false }
    }

    /// Everything before `offset` is taken for received, and nothing beyond.
    pub(crate) fn restart(&mut self, offset: u64) {
        self.ranges = BTreeMap::from([(0, offset)]);
    }

    fn covers(&self, offset: u64) -> bool {
        offset == 0 || self.ranges.get(&0).is_some_and(|&end| end >= offset)
    }
}

impl ReceiveBuffer for Buffer {
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        if self.full {
            return Err(NoMemory);
        }
        assert!(!bytes.is_empty(), "nothing is placed");
        let (mut start, mut end) = (offset, offset + bytes.len() as u64);
        assert!(end <= self.limit, "placed up to {end}, beyond {}", self.limit);
        if self.checks {
            let intact = bytes.iter().zip(offset..).all(|(&byte, at)| byte == pattern(self.sender, at));
            assert!(intact, "corrupt between {offset} and {end}");
        }
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back().filter(|&(_, &e)| e >= start) {
            (start, end) = (start.min(s), end.max(e));
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
        Ok(())
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) conn: Connection,
    pub(crate) buffer: Buffer,
    max_payload: u32,
}

impl End {
    pub(crate) fn new(side: usize, conn: Connection, max_payload: u32) -> Self {
        Self { conn, buffer: Buffer::new(1 - side), max_payload }
    }

    /// A segment arrives. The reset that answers it, if there is no connection any more.
    pub(crate) fn take(&mut self, now: Instant, flying: &Flying) -> Option<SegmentOut> {
        let conn = &mut self.conn;
        if flying.forged && flying.header.flags.contains(Flags::SYN) {
            // It may decide where the stream begins: what follows is another stream.
            self.buffer.checks = false;
        }
        self.buffer.limit = conn.consumed_to() + conn.receive_limit();
        let before = (conn.received_to(), conn.acked_to());
        let segment = flying.as_segment(now);
        let verdict = conn.handle_segment(now, &segment, &mut self.buffer);
        let after = (conn.received_to(), conn.acked_to());
        assert!(after.0 >= before.0 && after.1 >= before.1, "{before:?} became {after:?}: {conn:#?}");
        assert!(self.buffer.covers(conn.received_to()), "received what was never placed");
        self.check();
        if verdict.wants_reset() { tcp::reset_for(&segment) } else { None }
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        if self.conn.deadline().is_some_and(|deadline| deadline <= now) {
            self.conn.handle_deadline(now);
            let advanced = self.conn.deadline().is_none_or(|next| next > now);
            assert!(advanced, "a timer did not advance at {now:?}: {:#?}", self.conn);
            self.check();
        }
    }

    pub(crate) fn poll(&mut self, now: Instant) -> Option<SegmentOut> {
        let wanted = self.conn.wants_output(now);
        let segment = self.conn.poll_segment(now, &OutputLimit { max_payload: self.max_payload });
        match &segment {
            Some(_) => assert!(wanted, "output that was not wanted"),
            None => {
                assert!(!self.conn.wants_output(now), "output is wanted, but there is none: {:#?}", self.conn)
            }
        }
        if let Some(segment) = &segment {
            assert!(
                segment.segment_size > 0 && segment.offset + u64::from(segment.len) <= self.conn.queued_to()
            );
        }
        self.check();
        segment
    }

    /// The application reads everything.
    pub(crate) fn read(&mut self, now: Instant) {
        let received = self.conn.received_to();
        self.conn.handle_consumed(now, received);
        self.check();
    }

    fn check(&self) {
        if let Err(law) = self.conn.check_invariants() {
            panic!("{law}: {:#?}", self.conn);
        }
    }
}
