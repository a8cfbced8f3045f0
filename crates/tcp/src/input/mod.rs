//! Input: the numbered order of RFC 9293 §3.10.7.4, one call a step.
//!
//! Each step either goes on or breaks off with a [`Verdict`]. In front of them stands header prediction ([`predict`]),
//! which does the same work for the two segments that a bulk transfer is made of.

pub(crate) mod acceptable;
mod ack;
mod fin;
mod predict;
mod reset;
mod text;

use core::ops::ControlFlow;

use base::Instant;
use wire::checksum::Sum;
use wire::tcp::{Flags, Header};

use crate::connection::Connection;
use crate::input::predict::Foreseen;
use crate::segment::{Gathered, ReceiveBuffer, SegmentIn};
use crate::state::{Event, State};
use crate::timer::Stamp;
use crate::verdict::Verdict;

/// What became of a segment whose checksum was not verified before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// It was right, and this is its verdict.
    Taken(Verdict),
    /// Its checksum is wrong: nothing has changed.
    Damaged,
    /// It is not what was expected: nothing has changed. It is to be verified and given to
    /// [`handle_segment`](Connection::handle_segment).
    NotTaken,
}

impl Connection {
    /// Takes a received segment. Payload that fits is placed into `receive`. The verdict says what became of the segment;
    /// if it [wants a reset](Verdict::wants_reset), the caller answers with [`crate::reset_for`].
    pub fn handle_segment(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        receive: &mut impl ReceiveBuffer,
    ) -> Verdict {
        self.count_in(now, segment.segment_count, segment.payload.len());
        match self.state {
            State::Closed => Verdict::Closed,
            State::SynSent => self.on_segment_in_syn_sent(now, segment, receive),
            State::Established => match self.predict(now, segment, receive) {
                Some(verdict) => verdict,
                None => self.on_segment(now, segment, receive),
            },
            State::SynReceived
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.on_segment(now, segment, receive),
        }
    }

    /// Takes a received segment whose checksum was not verified, if it is nothing but the data that is expected next: its
    /// payload is placed and summed in one pass. `rest` is payload that follows the segment's in another place, empty as a
    /// rule; `sum` is that of all that the checksum covers but the payload.
    pub fn handle_unverified(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        rest: &[u8],
        sum: Sum,
        receive: &mut impl ReceiveBuffer,
    ) -> Unverified {
        let len = segment.payload.len() + rest.len();
        if self.state != State::Established || self.foresee(segment, len) != Some(Foreseen::Data) {
            return Unverified::NotTaken;
        }
        let placed = receive.place_verified(self.received_to(), [segment.payload, rest], sum);
        if placed == Ok(false) {
            return Unverified::Damaged;
        }
        self.count_in(now, segment.segment_count, len);
        Unverified::Taken(self.on_predicted_data(now, segment, len, placed.map(|_| ())))
    }

    /// How many bytes of payload may be [gathered](Self::handle_gathered) of segments that are like this one, which is the
    /// next, in all but sequence number, PSH and what they carry, which is as much but for the last: each would be predicted, and
    /// the result be the same. Zero where one by one they could come to something else.
    pub fn may_gather(&self, segment: &SegmentIn<'_>) -> u64 {
        let is_usual = self.state == State::Established
            && self.settings.timestamps
            && segment.segment_count == 1
            // A full one: the size of the peer's segments is known, or will be after the first.
            && segment.payload.len() >= usize::from(self.recv.segment_size)
            && self.foresee(segment, segment.payload.len()) == Some(Foreseen::Data);
        if is_usual { self.recv.window() } else { 0 }
    }

    /// Takes segments at once of which [`may_gather`](Self::may_gather) has said that it can be, and whose payloads have been
    /// verified and placed. `last` is the header of the last; nothing else has happened to the connection since it was asked.
    pub fn handle_gathered(&mut self, now: Instant, last: &Header, gathered: Gathered) -> Verdict {
        debug_assert!(gathered.bytes() <= self.recv.window());
        let count = gathered.segments();
        self.stats.segments_in += u64::from(count);
        self.stats.data_in = self.stats.data_in.wrapping_add(count);
        self.stats.data_at = Stamp::at(now);
        self.on_gathered_data(now, last, gathered)
    }

    #[inline]
    fn count_in(&mut self, now: Instant, segment_count: u16, payload_len: usize) {
        let count = segment_count.max(1);
        self.stats.segments_in += u64::from(count);
        if payload_len > 0 {
            self.stats.data_in = self.stats.data_in.wrapping_add(count.into());
            self.stats.data_at = Stamp::at(now);
        }
    }

    fn on_segment(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        receive: &mut impl ReceiveBuffer,
    ) -> Verdict {
        let (ControlFlow::Continue(verdict) | ControlFlow::Break(verdict)) =
            self.on_segment_in_steps(now, segment, receive);
        self.account(now);
        verdict
    }

    fn on_segment_in_steps(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        receive: &mut impl ReceiveBuffer,
    ) -> ControlFlow<Verdict, Verdict> {
        if self.state == State::SynReceived {
            self.on_segment_in_syn_received(now, segment)?;
        }
        let text = self.step_1_sequence_number(now, segment)?;
        self.step_2_reset(now, segment)?;
        // Step 3, security and precedence, does not apply (RFC 9293 §3.10.7.4, appendix A.1).
        self.step_4_syn(now, segment)?;
        self.note_heard(now);
        self.step_5_ack(now, segment)?;
        self.step_6_urgent(segment, &text, receive);
        self.on_ecn_of_data(segment);
        let verdict = self.step_7_text(now, segment, &text, receive)?;
        self.step_8_fin(now);
        ControlFlow::Continue(verdict)
    }

    /// Step 4: a SYN on a synchronised connection is answered with a challenge acknowledgement, wherever it lies
    /// (RFC 5961 §4). In SYN-RECEIVED after a passive open it ends the attempt.
    fn step_4_syn(&mut self, now: Instant, segment: &SegmentIn<'_>) -> ControlFlow<Verdict> {
        if !segment.header.flags.contains(Flags::SYN) {
            return ControlFlow::Continue(());
        }
        let offset = segment.header.seq.distance_from(self.recv.seq(self.recv.nxt));
        if self.state == State::SynReceived && self.passive && u64::from(offset) < self.recv.window() {
            self.on_event(Event::ResetReceived);
            return ControlFlow::Break(Verdict::ReturnedToListen);
        }
        self.challenge(now);
        ControlFlow::Break(Verdict::SynChallenged)
    }

    /// The peer lives: keepalive starts anew.
    #[inline]
    pub(crate) fn note_heard(&mut self, now: Instant) {
        self.heard_at = Stamp::at(now);
        self.pending.keepalives = 0;
    }

    /// Sends an acknowledgement that a peer or an attacker provoked, within the limit (RFC 5961 §7).
    pub(crate) fn challenge(&mut self, now: Instant) {
        if self.challenges.permit(now) {
            self.stats.rare().challenges += 1;
            self.pending.ack = true;
        }
    }
}
