//! Header prediction: the two segments that a bulk transfer is made of, without the numbered steps.
//!
//! Either nothing is new but the acknowledgement, or nothing but data that is next in order. Whatever is not exactly that
//! goes through the steps; the result is the same.

use base::Instant;
use wire::tcp::Flags;

use crate::connection::Connection;
use crate::recovery::Phase;
use crate::segment::{Position, ReceiveBuffer, SegmentIn};
use crate::timer::Timer;
use crate::verdict::Verdict;

impl Connection {
    /// Processes the segment if it is as expected in ESTABLISHED; else `None`, and nothing has changed.
    #[inline]
    pub(crate) fn predict(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        receive: &mut impl ReceiveBuffer,
    ) -> Option<Verdict> {
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
        if segment.payload.is_empty() {
            if advanced == 0 || u64::from(advanced) > self.send.outstanding() {
                return None;
            }
            self.on_predicted_ack(now, segment, self.send.una + u64::from(advanced));
            return Some(Verdict::Predicted);
        }
        let fits = segment.payload.len() as u64 <= self.recv.window();
        if advanced != 0 || !fits || self.orphaned || self.recv.fin != Position::MAX {
            return None;
        }
        self.on_predicted_data(now, segment, receive)
    }

    fn on_predicted_ack(&mut self, now: Instant, segment: &SegmentIn<'_>, ack: Position) {
        let start = self.recv.nxt as i64;
        self.update_ts_recent(now, segment, start);
        self.note_heard(now);
        self.on_new_ack(now, segment, ack);
    }

    fn on_predicted_data(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        receive: &mut impl ReceiveBuffer,
    ) -> Option<Verdict> {
        if receive.place(Self::offset_of(self.recv.nxt), segment.payload).is_err() {
            self.pending.ack = true;
            return Some(Verdict::NoMemory);
        }
        let start = self.recv.nxt as i64;
        self.update_ts_recent(now, segment, start);
        self.note_heard(now);
        if self.update_window(segment) && self.send.window > 0 {
            self.pending.probes = 0;
            self.timers.clear(Timer::Persist);
        }
        self.recv.nxt += segment.payload.len() as u64;
        self.ecn.note_unmarked();
        self.on_data_in_order(now, segment);
        Some(Verdict::Predicted)
    }
}
