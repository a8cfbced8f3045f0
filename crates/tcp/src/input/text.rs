//! Step 7: the payload.

use core::ops::ControlFlow;

use base::Instant;

use super::acceptable::Text;
use crate::connection::Connection;
use crate::error::Error;
use crate::recv::reassembly::{Insert, Range, most_ranges};
use crate::segment::{ReceiveBuffer, SegmentIn};
use crate::state::{Event, State};
use crate::verdict::Verdict;

impl Connection {
    pub(crate) fn step_7_text(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        text: &Text,
        receive: &mut impl ReceiveBuffer,
    ) -> ControlFlow<Verdict, Verdict> {
        if !self.state.receives_data() {
            // §3.10.7.4: in the other states text cannot occur, since a FIN was received; it is ignored.
            return self.step_7_after_fin(segment, text);
        }
        let end = text.end.min(self.recv.fin);
        if end <= text.start {
            if let Some(fin) = text.fin {
                self.note_fin(fin);
                self.note_gap(text.start);
            } else if !segment.payload.is_empty() {
                self.pending.ack = true; // a probe into a closed window, or a duplicate
                return ControlFlow::Continue(Verdict::Duplicate);
            }
            return ControlFlow::Continue(Verdict::Accepted);
        }
        if self.orphaned {
            // Nobody will read it: the peer must know (RFC 1122 §4.2.2.13, RFC 2525 §2.17). The reset stands where the peer
            // said that it is, so that it counts even if our FIN is still on its way.
            self.error = Some(Error::Aborted);
            self.on_event(Event::ResetReceived);
            return ControlFlow::Break(Verdict::DataAfterClose);
        }
        let length = (end - text.start) as usize;
        let bytes = &segment.payload[text.skip..text.skip + length];
        let verdict = if text.start == self.recv.nxt {
            self.place_in_order(now, segment, text, bytes, receive)?
        } else {
            self.measure_segment_size(segment.segment_count, segment.payload.len());
            self.place_out_of_order(Range { start: text.start, end }, bytes, receive)?
        };
        if let Some(fin) = text.fin {
            self.note_fin(fin);
        }
        ControlFlow::Continue(verdict)
    }

    fn step_7_after_fin(&mut self, segment: &SegmentIn<'_>, text: &Text) -> ControlFlow<Verdict, Verdict> {
        if segment.sequence_len() > 0 && (text.skip > 0 || self.state == State::TimeWait) {
            self.pending.ack = true; // a retransmission in part, or whatever comes after everything was done
        }
        if text.fin == Some(self.recv.nxt.wrapping_sub(1)) {
            return ControlFlow::Continue(Verdict::Duplicate);
        }
        ControlFlow::Continue(Verdict::Accepted)
    }

    fn place_in_order(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        text: &Text,
        bytes: &[u8],
        receive: &mut impl ReceiveBuffer,
    ) -> ControlFlow<Verdict, Verdict> {
        if receive.place(Self::offset_of(text.start), bytes).is_err() {
            self.pending.ack = true;
            return ControlFlow::Break(Verdict::NoMemory);
        }
        let end = text.start + bytes.len() as u64;
        self.note_seen_before(text, end);
        self.recv.nxt = end;
        let filled = self.advance_over_reassembly();
        if filled {
            self.pending.ack = true; // RFC 5681 §4.2: a segment that fills a gap is acknowledged at once
        }
        self.on_data_in_order(now, segment);
        ControlFlow::Continue(if text.skip > 0 { Verdict::Trimmed } else { Verdict::Accepted })
    }

    /// Goes on over what had come before its time. Returns whether there was, or still is, a gap.
    fn advance_over_reassembly(&mut self) -> bool {
        let Some(reassembly) = &mut self.recv.reassembly else { return false };
        self.recv.nxt = reassembly.advance(self.recv.nxt);
        if reassembly.is_empty() {
            self.recv.reassembly = None;
        }
        true
    }

    fn place_out_of_order(
        &mut self,
        range: Range,
        bytes: &[u8],
        receive: &mut impl ReceiveBuffer,
    ) -> ControlFlow<Verdict, Verdict> {
        self.stats.rare().out_of_order += 1;
        self.pending.ack = true; // RFC 5681 §4.2: at once
        let most = most_ranges(self.recv.limit);
        let reassembly = self.recv.reassembly.get_or_insert_default();
        if !reassembly.has_room_for(range, most) {
            return ControlFlow::Break(Verdict::ReassemblyFull);
        }
        if receive.place(Self::offset_of(range.start), bytes).is_err() {
            if reassembly.is_empty() {
                self.recv.reassembly = None;
            }
            return ControlFlow::Break(Verdict::NoMemory);
        }
        let overlap = reassembly.overlap(range);
        let covered = reassembly.insert(range) == Insert::Covered;
        if let Some(overlap) = overlap {
            self.note_duplicate_range(overlap);
        }
        ControlFlow::Continue(if covered { Verdict::Duplicate } else { Verdict::OutOfOrder })
    }

    /// What of a segment that is next in order had come before is reported as a duplicate (RFC 2883 §4.1).
    #[inline]
    fn note_seen_before(&mut self, text: &Text, end: u64) {
        if text.skip > 0 {
            let start = text.start.saturating_sub(text.skip as u64).max(1);
            self.note_duplicate_range(Range { start, end: text.start });
        } else if let Some(kept) = &self.recv.reassembly
            && let Some(overlap) = kept.overlap(Range { start: text.start, end })
        {
            self.note_duplicate_range(overlap);
        }
    }

    /// A FIN without text beyond a gap wants an acknowledgement at once too.
    fn note_gap(&mut self, start: u64) {
        if start > self.recv.nxt {
            self.pending.ack = true;
        }
    }
}
