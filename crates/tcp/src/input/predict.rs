//! Header prediction: the two segments that a bulk transfer is made of, without the numbered steps.
//!
//! Either nothing is new but the acknowledgement, or nothing but data that is next in order. Whatever is not exactly that
//! goes through the steps; the result is the same.

use base::Instant;
use wire::tcp::{Flags, Header};

use crate::connection::Connection;
use crate::recovery::Phase;
use crate::segment::{Gathered, NoMemory, Position, ReceiveBuffer, SegmentIn};
use crate::timer::Timer;
use crate::verdict::Verdict;

/// What a segment is that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreseen {
    /// It acknowledges up to here, and does nothing else.
    Ack(Position),
    /// The next data, and nothing else.
    Data,
}

impl Connection {
    /// Processes the segment if it is as expected in ESTABLISHED; else `None`, and nothing has changed.
    #[inline]
    pub(crate) fn predict(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        receive: &mut impl ReceiveBuffer,
    ) -> Option<Verdict> {
        match self.foresee(segment, segment.payload.len())? {
            Foreseen::Ack(ack) => {
                self.on_predicted_ack(now, segment, ack);
                Some(Verdict::Predicted)
            }
            Foreseen::Data => {
                let placed = receive.place(Self::offset_of(self.recv.nxt), segment.payload);
                Some(self.on_predicted_data(now, segment, segment.payload.len(), placed))
            }
        }
    }

    /// Whether the segment, with so much payload, is as expected in ESTABLISHED, and what it is then.
    #[inline]
    pub(crate) fn foresee(&self, segment: &SegmentIn<'_>, payload_len: usize) -> Option<Foreseen> {
        let header = &segment.header;
        if header.flags.difference(Flags::PSH) != self.ecn.quiet_flags()
            || header.seq != self.recv.seq(self.recv.nxt)
            || !header.options.sack.is_empty()
            || self.recovery.phase != Phase::Open
            || self.recv.reassembly.is_some()
            || self.send.scoreboard.sacked() > 0
            || self.send.scoreboard.lost() > 0
            || self.recovery.dup_acks > 0
            || self.recovery.probe.end != 0
            || self.awaits_urgent_byte()
            || segment.ecn == crate::segment::Ecn::Ce
        {
            return None;
        }
        match header.options.timestamps {
            Some(stamps) if self.settings.timestamps => {
                if (stamps.value.wrapping_sub(self.recv.ts_recent) as i32) < 0 {
                    return None;
                }
            }
            None if !self.settings.timestamps => {}
            _ => return None,
        }
        let advanced = header.ack.distance_from(self.send.seq(self.send.una));
        if payload_len == 0 {
            if advanced == 0 || u64::from(advanced) > self.send.outstanding() {
                return None;
            }
            return Some(Foreseen::Ack(self.send.una + u64::from(advanced)));
        }
        let fits = payload_len as u64 <= self.recv.window();
        if advanced != 0 || !fits || self.orphaned || self.recv.fin != Position::MAX {
            return None;
        }
        Some(Foreseen::Data)
    }

    fn on_predicted_ack(&mut self, now: Instant, segment: &SegmentIn<'_>, ack: Position) {
        let start = self.recv.nxt as i64;
        self.update_ts_recent(now, &segment.header, start);
        self.note_heard(now);
        self.on_new_ack(now, segment, ack);
    }

    /// `placed`: whether there was memory for the payload.
    pub(crate) fn on_predicted_data(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        payload_len: usize,
        placed: Result<(), NoMemory>,
    ) -> Verdict {
        if placed.is_err() {
            self.pending.ack = true;
            return Verdict::NoMemory;
        }
        self.on_placed_data(now, &segment.header, payload_len as u64);
        let (size, count) = self.measure_segment_size(segment.segment_count, payload_len);
        self.on_segments_in_order(now, &segment.header, size, count);
        Verdict::Predicted
    }

    /// Several such segments whose payloads are placed, in one go.
    pub(crate) fn on_gathered_data(&mut self, now: Instant, last: &Header, gathered: Gathered) -> Verdict {
        let Gathered { count, size, tail } = gathered;
        // The first may start a delayed acknowledgement, and the second ask for one at once.
        self.on_placed_data(now, last, size.into());
        self.note_segment_size(size, 1);
        self.on_segments_in_order(now, last, size, 1);
        if count > 1 {
            self.recv.nxt += u64::from(size) * u64::from(count - 1);
            self.on_segments_in_order(now, last, size, count - 1);
        }
        if tail > 0 {
            self.recv.nxt += u64::from(tail);
            self.note_segment_size(tail, 1);
            self.on_segments_in_order(now, last, tail, 1);
        }
        Verdict::Predicted
    }

    /// What a segment with the next data brings beside it; of several, the timestamp is that of all, and the window the last's.
    #[inline]
    fn on_placed_data(&mut self, now: Instant, last: &Header, len: u64) {
        let start = self.recv.nxt as i64;
        self.update_ts_recent(now, last, start);
        self.note_heard(now);
        if self.update_window(last) && self.send.window > 0 {
            self.pending.probes = 0;
            self.pending.persist_backoff = 0;
            self.timers.clear(Timer::Persist);
        }
        self.recv.nxt += len;
        self.ecn.note_unmarked();
    }
}
