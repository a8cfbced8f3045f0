//! Step 1: is the segment in the window, and is it new enough (RFC 9293 §3.10.7.4, RFC 7323 §5)?

use core::ops::ControlFlow;

use base::Instant;
use wire::tcp::{Flags, Header};

use crate::connection::Connection;
use crate::segment::{Position, SegmentIn, position_of};
use crate::verdict::Verdict;

/// How long TS.Recent is believed: a 1 ms clock wraps its sign in 24.8 days (RFC 7323 §5.5).
const TS_RECENT_LIFETIME_S: u32 = 24 * 24 * 3600;

/// By so many ticks of the peer's clock a segment that fills a gap may be older than TS.Recent.
const REORDERING_TICKS: i32 = 16;

pub(crate) fn seconds(now: Instant) -> u32 {
    (now.as_millis() / 1000) as u32
}

/// The part of a segment that lies in the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    /// The position of the first payload byte to use.
    pub(crate) start: Position,
    /// The position after the last.
    pub(crate) end: Position,
    /// Payload bytes before `start`, seen before.
    pub(crate) skip: usize,
    /// The position of the FIN, if the segment has one and it lies in the window.
    pub(crate) fin: Option<Position>,
}

impl Connection {
    pub(crate) fn step_1_sequence_number(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
    ) -> ControlFlow<Verdict, Text> {
        let flags = segment.header.flags;
        let is_reset = flags.contains(Flags::RST);
        // RFC 7323 §5.2: a reset is not subject to PAWS.
        if !is_reset && self.is_older_than_recent(now, segment) {
            // A bare acknowledgement that was overtaken on the way is no reason to answer (as in Linux).
            if segment.sequence_len() > 0 {
                self.answer_unacceptable(now, segment);
            }
            return ControlFlow::Break(Verdict::PawsRejected);
        }
        let start = position_of(segment.header.seq, self.recv.irs, self.recv.nxt);
        let length = i64::from(segment.sequence_len());
        let (nxt, edge) = (self.recv.nxt as i64, self.recv.right_edge as i64);
        if flags.contains(Flags::SYN) {
            // RFC 5961 §4: challenged in step 4 irrespective of its number.
            return ControlFlow::Continue(Text { start: 0, end: 0, skip: 0, fin: None });
        }
        let acceptable = if length == 0 {
            // The right edge itself too: a peer that has filled the window sends its acknowledgements from there.
            start >= nxt && start <= edge
        } else {
            // A segment at RCV.NXT counts although the window is closed: its acknowledgement is wanted (§3.10.7.4).
            (start + length > nxt && start < edge) || start == nxt
        };
        if !acceptable {
            if is_reset {
                return ControlFlow::Break(Verdict::ResetIgnored);
            }
            self.answer_unacceptable(now, segment);
            let old = start < nxt;
            return ControlFlow::Break(if old { Verdict::Duplicate } else { Verdict::BeyondWindow });
        }
        ControlFlow::Continue(self.trim(segment, start))
    }

    /// Cuts off what was received before and what lies beyond the window.
    fn trim(&self, segment: &SegmentIn<'_>, start: i64) -> Text {
        let payload_end = start + segment.payload.len() as i64;
        let used_start = start.max(self.recv.nxt as i64);
        let used_end = payload_end.min(self.recv.right_edge as i64).max(used_start);
        let has_fin = segment.header.flags.contains(Flags::FIN);
        // A FIN takes no buffer space, so it may stand at the right edge.
        let fin_fits = payload_end >= self.recv.nxt as i64 && payload_end <= self.recv.right_edge as i64;
        Text {
            start: used_start as Position,
            end: used_end as Position,
            skip: (used_start - start) as usize,
            fin: (has_fin && fin_fits).then_some(payload_end as Position),
        }
    }

    /// PAWS (RFC 7323 §5.3 R1): older than the newest timestamp that counts, unless that has expired.
    ///
    /// A deviation: where a gap is being filled, a little older is new enough. A retransmission that fills one gap raises
    /// TS.Recent above what was sent before it and is still on its way, held back by a few milliseconds; R1 would lose all
    /// of that. PAWS is there for segments of before the last wrap, and the sequence space does not wrap in 16 ticks.
    fn is_older_than_recent(&self, now: Instant, segment: &SegmentIn<'_>) -> bool {
        match segment.header.options.timestamps {
            Some(stamps) if self.settings.timestamps => {
                let tolerated = if self.recv.reassembly.is_some() { REORDERING_TICKS } else { 0 };
                (stamps.value.wrapping_sub(self.recv.ts_recent) as i32) < -tolerated
                    && seconds(now).wrapping_sub(self.recv.ts_recent_s) < TS_RECENT_LIFETIME_S
            }
            // RFC 7323 §3.2 would have segments without the option dropped; Linux takes them, and so do we: middle
            // boxes send keepalives without it.
            _ => false,
        }
    }

    /// Slightly older than TS.Recent, which such a segment does not take back.
    #[inline]
    fn is_reordered(&self, value: u32) -> bool {
        let age = self.recv.ts_recent.wrapping_sub(value) as i32;
        age > 0 && age <= REORDERING_TICKS
    }

    /// RFC 7323 §4.3 (2): a segment that covers Last.ACK.sent, or is older, brings the timestamp to echo.
    #[inline]
    pub(crate) fn update_ts_recent(&mut self, now: Instant, header: &Header, start: i64) {
        if let (true, Some(stamps)) = (self.settings.timestamps, header.options.timestamps)
            && start <= self.recv.last_ack_sent as i64
            && !self.is_reordered(stamps.value)
        {
            self.recv.ts_recent = stamps.value;
            self.recv.ts_recent_s = seconds(now);
        }
    }

    /// An unacceptable segment is acknowledged. One with data is a retransmission that must be answered; one without
    /// can be part of a loop between two confused ends, so the answers are limited.
    fn answer_unacceptable(&mut self, now: Instant, segment: &SegmentIn<'_>) {
        if segment.sequence_len() > 0 {
            self.note_duplicate_data(segment);
            self.pending.ack = true;
        } else {
            self.challenge(now);
        }
    }
}
