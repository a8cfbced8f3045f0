//! Urgent data (RFC 9293 §3.8.5, RFC 6093), with the semantics of Linux.
//!
//! A sender's urgent pointer says how far its stream is urgent: up to the position that it names, not including it (RFC 6093 §4;
//! Linux: `tcp_stdurg` 0). What Linux makes of that is *one* urgent byte, the last one before that position, and a mark there.
//! The stream itself carries the byte like every other. What its owner does with it (taking it out of the line, stopping a read
//! at the mark) is the owner's; here stands where the mark is and which byte, as soon as that has come.
//!
//! The pointer goes with every segment before the mark, so such segments are sent one by one: a device that cut them would
//! copy the pointer into each piece. While the window is closed a probe carries it.

use wire::tcp::{Flags, Header};

use crate::connection::Connection;
use crate::input::acceptable::Text;
use crate::segment::{Position, ReceiveBuffer, SegmentIn, position_of};
use crate::state::State;

/// The farthest that a pointer reaches.
const REACH: u64 = 0xffff;

/// Where a peer's urgent byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UrgentMark {
    /// Its stream offset; `None`: there is none ahead that was not passed.
    pub offset: Option<u64>,
    /// The byte, once it has come.
    pub byte: Option<u8>,
    /// The offset behind the last urgent byte that was there, and the next to be read, when the pointer went on; 0: none. A
    /// reader that takes urgent bytes out of the line passes over it (as Linux does; older ones elsewhere stay in the line).
    pub passed_to: u64,
}

/// Both directions; exists once anything urgent was sent or received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Urgent {
    /// SND.UP: the position after the urgent byte that was queued last; 0: none.
    pub(crate) up: Position,
    /// A probe has told it since the last ordinary one.
    pub(crate) told: bool,
    /// The position of the peer's urgent byte; 0: none.
    pub(crate) mark: Position,
    /// The byte has not come yet.
    pub(crate) waiting: bool,
    pub(crate) byte: Option<u8>,
    /// Up to where the reader was told to pass over.
    pub(crate) passed_to: Position,
    pub(crate) changes: u32,
}

impl Connection {
    /// As [`handle_send`](Self::handle_send), and the byte before the offset `urgent_to` is urgent (`MSG_OOB`): nothing holds
    /// it back but the windows.
    pub fn handle_send_urgent(&mut self, queued_to: u64, urgent_to: u64) {
        if self.send.fin_queued || self.state == State::Closed {
            return;
        }
        self.handle_send(queued_to);
        let urgent = self.urgent.get_or_insert_default();
        urgent.up = urgent.up.max(urgent_to.saturating_add(1));
        urgent.told = false;
    }

    /// The peer's urgent data, if it ever sent any.
    pub fn urgent(&self) -> Option<UrgentMark> {
        let urgent = self.urgent.as_deref()?;
        (urgent.mark > 0).then(|| UrgentMark {
            offset: (urgent.mark >= self.recv.consumed).then(|| Self::offset_of(urgent.mark)),
            byte: urgent.byte,
            passed_to: Self::offset_of(urgent.passed_to),
        })
    }

    /// Changes whenever the peer's urgent data do.
    #[inline]
    pub fn urgent_changes(&self) -> u32 {
        self.urgent.as_ref().map_or(0, |urgent| urgent.changes)
    }

    /// Urgent mode of the sender: SND.UP is ahead of what is acknowledged.
    #[inline]
    pub(crate) fn sends_urgent(&self) -> bool {
        self.urgent.as_ref().is_some_and(|urgent| urgent.up > self.send.una)
    }

    /// The pointer of a segment that begins at `seq`. Beyond its reach it says that there is more, once the segment is near
    /// enough to the end of what was sent for that to be of use (as in Linux).
    pub(crate) fn set_urgent_pointer(&self, seq: Position, header: &mut Header) {
        let Some(urgent) = &self.urgent else { return };
        if urgent.up <= self.send.una || urgent.up <= seq || header.flags.contains(Flags::RST) {
            return;
        }
        let ahead = urgent.up - seq;
        if ahead <= REACH || seq + REACH > self.send.nxt {
            header.flags |= Flags::URG;
            header.urgent = ahead.min(REACH) as u16;
        }
    }

    /// Whether a probe of a closed window has to tell of urgent data first: by a segment that the peer takes, which an ordinary
    /// probe is not.
    pub(crate) fn takes_urgent_probe(&mut self) -> bool {
        let una = self.send.una;
        let Some(urgent) = &mut self.urgent else { return false };
        urgent.told = !urgent.told && urgent.up > una && urgent.up - una <= REACH;
        urgent.told
    }

    /// The peer's urgent byte is still to come.
    #[inline]
    pub(crate) fn awaits_urgent_byte(&self) -> bool {
        self.urgent.as_ref().is_some_and(|urgent| urgent.waiting)
    }

    /// Step 6: the urgent pointer, and the byte that it is about.
    #[inline]
    pub(crate) fn step_6_urgent(
        &mut self,
        segment: &SegmentIn<'_>,
        text: &Text,
        receive: &mut impl ReceiveBuffer,
    ) {
        if segment.header.flags.contains(Flags::URG) && self.state.receives_data() && !self.orphaned {
            let start = position_of(segment.header.seq, self.recv.irs, self.recv.nxt);
            // A pointer of 0 is as wrong as can be; Linux takes it for the first byte.
            let mark = start + i64::from(segment.header.urgent.saturating_sub(1));
            // What was received was read without a mark: it cannot become urgent any more.
            if mark >= self.recv.nxt as i64 {
                self.note_urgent_mark(mark as Position, receive);
            }
        }
        if self.awaits_urgent_byte() {
            self.look_for_urgent_byte(
                text.start,
                &segment.payload[text.skip.min(segment.payload.len())..],
                text.end,
            );
        }
    }

    /// The peer points at `mark`, which nothing has been received of yet.
    pub(crate) fn note_urgent_mark(&mut self, mark: Position, receive: &mut impl ReceiveBuffer) {
        let consumed = receive.consumed().map_or(self.recv.consumed, |offset| offset.saturating_add(1));
        let nxt = self.recv.nxt;
        let urgent = self.urgent.get_or_insert_default();
        if mark <= urgent.mark {
            return; // known, or older
        }
        let reader = consumed.max(urgent.passed_to);
        if urgent.mark > 0 && reader == urgent.mark && nxt > reader {
            urgent.passed_to = reader + 1;
        }
        urgent.mark = mark;
        urgent.byte = None;
        urgent.waiting = true;
        urgent.changes = urgent.changes.wrapping_add(1);
    }

    /// Whether the urgent byte is among `bytes`, which lie from `start` on and of which those before `end` count.
    pub(crate) fn look_for_urgent_byte(&mut self, start: Position, bytes: &[u8], end: Position) {
        let Some(urgent) = &mut self.urgent else { return };
        if !urgent.waiting || urgent.mark < start || urgent.mark >= end {
            return;
        }
        if let Some(&byte) = bytes.get((urgent.mark - start) as usize) {
            urgent.byte = Some(byte);
            urgent.waiting = false;
            urgent.changes = urgent.changes.wrapping_add(1);
        }
    }
}
