//! SYN-SENT (RFC 9293 §3.10.7.3).

use base::{Duration, Instant};
use wire::tcp::Flags;

use crate::connection::Connection;
use crate::error::Error;
use crate::segment::{Position, ReceiveBuffer, SegmentIn, position_of};
use crate::state::Event;
use crate::timer::Timer;
use crate::verdict::Verdict;

/// From a reset that ends the peer's old connection to the SYN that opens a new one.
const AFTER_RESET: Duration = Duration::from_millis(5);

impl Connection {
    /// Takes a segment in SYN-SENT.
    pub(crate) fn on_segment_in_syn_sent(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        receive: &mut impl ReceiveBuffer,
    ) -> Verdict {
        let flags = segment.header.flags;
        // First: the ACK bit.
        let acknowledges = flags.contains(Flags::ACK);
        let ack = position_of(segment.header.ack, self.send.iss, self.send.una);
        if acknowledges && (ack <= 0 || ack > self.send.nxt as i64) {
            if flags.contains(Flags::RST) {
                return Verdict::HandshakeIgnored;
            }
            self.hasten_syn(now);
            return Verdict::HandshakeReset;
        }
        // Second: the RST bit. Only a reset that acknowledges our SYN is believed (RFC 5961 §3).
        if flags.contains(Flags::RST) {
            if !acknowledges {
                return Verdict::HandshakeIgnored;
            }
            self.error = Some(Error::Refused);
            self.on_event(Event::ResetReceived);
            return Verdict::ResetAccepted;
        }
        // Fourth: the SYN bit. (Third, security, does not apply.)
        if !flags.contains(Flags::SYN) {
            return Verdict::HandshakeIgnored;
        }
        self.on_peer_syn(now, segment);
        if acknowledges {
            self.on_syn_acknowledged(now, segment);
            self.on_syn_data_answered(ack as Position);
            self.on_event(Event::SynAckReceived);
            self.on_established(now);
            self.take_text_of_syn_ack(now, segment, receive);
        } else {
            self.on_event(Event::SynReceived);
        }
        // Text on a bare SYN is not taken, nor a FIN; the peer sends it again (it is not acknowledged).
        Verdict::Accepted
    }

    /// The peer still has an old connection between these ports, which our reset ends: the SYN is worth repeating at once
    /// (RFC 9293 §3.5 figure 9; Linux waits two ticks, too). Only once, or a third host could make many of one.
    fn hasten_syn(&mut self, now: Instant) {
        let soon = now + AFTER_RESET;
        if self.recovery.timeouts == 0 && self.timers.at(Timer::Retransmit).is_some_and(|at| at > soon) {
            self.timers.set(Timer::Retransmit, soon);
        }
    }
}
