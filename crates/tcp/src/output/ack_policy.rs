//! When to acknowledge (RFC 1122 §4.2.3.2, RFC 5681 §4.2).

use base::{Duration, Instant};
use wire::tcp::{Flags, Header, SackBlock};

use crate::connection::Connection;
use crate::recv::reassembly::Range;
use crate::segment::{SegmentIn, SegmentOut, position_of};
use crate::timer::Timer;

/// How many acknowledgements are sent at once at the start of a connection and after it was idle, while the peer is in
/// slow start and each one counts.
const QUICK_ACKS: u8 = 16;

impl Connection {
    /// The start of a connection, or of a burst after an idle time.
    pub(crate) fn restart_quick_acks(&mut self) {
        self.pending.quick_acks = QUICK_ACKS;
    }

    /// Data arrived in order: an acknowledgement now, or soon.
    #[inline]
    pub(crate) fn on_data_in_order(&mut self, now: Instant, segment: &SegmentIn<'_>) {
        let (size, count) = self.measure_segment_size(segment.segment_count, segment.payload.len());
        self.on_segments_in_order(now, &segment.header, size, count);
    }

    /// The same of so many segments of this size, the last of which had this header.
    #[inline]
    pub(crate) fn on_segments_in_order(&mut self, now: Instant, header: &Header, size: u16, count: u16) {
        self.measure_receive_round_trip(now, header);
        // RFC 5681 §4.2: at least every second full-sized segment, counted as they were on the wire.
        let full = if size >= self.recv.segment_size { count } else { count - 1 };
        self.pending.unacknowledged = self.pending.unacknowledged.saturating_add(full);
        let unacknowledged = self.recv.nxt - self.recv.last_ack_sent;
        if self.pending.unacknowledged >= 2
            || unacknowledged >= 2 * u64::from(self.recv.segment_size)
            || self.pending.quick_acks > 0
            || self.settings.quickack
        {
            self.pending.ack = true;
        } else if !self.pending.ack && !self.timers.is_set(Timer::DelayedAck) {
            let wait = Duration::from_micros(self.settings.delayed_ack_us.into());
            self.timers.set(Timer::DelayedAck, now + wait);
        }
    }

    /// Learns from data that came in order how long the round trip is, for the receive window's growth.
    #[inline]
    fn measure_receive_round_trip(&mut self, now: Instant, header: &Header) {
        match header.options.timestamps {
            Some(stamps) if self.settings.timestamps => {
                let clock = self.timestamp(now);
                self.recv.round_trip.on_echo(stamps.echo, clock);
            }
            _ => self.recv.round_trip.on_data(now, self.recv.nxt, self.recv.window()),
        }
    }

    /// Learns from a segment how large its peer's are: its size, or of each of those that it was put together from, and how many.
    #[inline]
    pub(crate) fn measure_segment_size(&mut self, segment_count: u16, payload_len: usize) -> (u16, u16) {
        let count = segment_count.max(1);
        let size = payload_len.div_ceil(usize::from(count)).min(usize::from(u16::MAX)) as u16;
        self.note_segment_size(size, count);
        (size, count)
    }

    /// Follows the size of the peer's full segments: up at once, down when a super-segment shows it or slowly.
    #[inline]
    pub(crate) fn note_segment_size(&mut self, size: u16, count: u16) {
        let known = self.recv.segment_size;
        if size > known || count > 2 {
            self.recv.segment_size = size;
        } else if size < known {
            self.recv.segment_size -= (known - size).div_ceil(64);
        }
    }

    /// Data goes out soon after data came in: the peer talks with us, and an acknowledgement can ride along.
    pub(crate) fn note_interaction(&mut self, now: Instant) {
        let wait = Duration::from_micros(self.settings.delayed_ack_us.into());
        if self.timers.is_set(Timer::DelayedAck) || (self.recv.nxt > 1 && self.heard_at.elapsed(now) < wait) {
            self.pending.quick_acks = 0;
        }
    }

    pub(crate) fn poll_ack(&mut self, now: Instant) -> Option<SegmentOut> {
        if !self.pending.ack {
            return None;
        }
        self.pending.quick_acks = self.pending.quick_acks.saturating_sub(1);
        Some(self.build(now, self.send.nxt, Flags::ACK))
    }

    /// A segment with an acknowledgement goes out: none is owed any more.
    #[inline]
    pub(crate) fn note_ack_sent(&mut self) {
        self.pending.ack = false;
        self.pending.unacknowledged = 0;
        self.recv.last_ack_sent = self.recv.nxt;
        self.timers.clear(Timer::DelayedAck);
    }

    /// A segment lay wholly before the window: what of it was data is reported as a duplicate (RFC 2883).
    pub(crate) fn note_duplicate_data(&mut self, segment: &SegmentIn<'_>) {
        let start = position_of(segment.header.seq, self.recv.irs, self.recv.nxt);
        let end = (start + segment.payload.len() as i64).min(self.recv.nxt as i64);
        if start > 0 && start < end {
            self.note_duplicate_range(Range { start: start as u64, end: end as u64 });
        }
    }

    pub(crate) fn note_duplicate_range(&mut self, range: Range) {
        if self.settings.sack {
            self.recv.duplicate =
                SackBlock { start: self.recv.seq(range.start), end: self.recv.seq(range.end) };
        }
    }

    pub(crate) fn has_duplicate(&self) -> bool {
        self.recv.duplicate.start != self.recv.duplicate.end
    }
}
