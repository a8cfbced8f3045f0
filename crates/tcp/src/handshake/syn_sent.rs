//! SYN-SENT (RFC 9293 §3.10.7.3).

use base::Instant;
use wire::tcp::Flags;

use crate::connection::Connection;
use crate::error::Error;
use crate::segment::{Position, ReceiveBuffer, SegmentIn, position_of};
use crate::state::Event;
use crate::verdict::Verdict;

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
            return if flags.contains(Flags::RST) {
                Verdict::HandshakeIgnored
            } else {
                Verdict::HandshakeReset
            };
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
}
