//! Step 2: the reset bit (RFC 9293 §3.10.7.4, RFC 5961 §3).

use core::ops::ControlFlow;

use base::Instant;
use wire::tcp::Flags;

use crate::connection::Connection;
use crate::error::Error;
use crate::segment::SegmentIn;
use crate::state::{Event, State};
use crate::verdict::Verdict;

impl Connection {
    /// A reset counts only at exactly RCV.NXT; elsewhere in the window the peer is asked to confirm it.
    pub(crate) fn step_2_reset(&mut self, now: Instant, segment: &SegmentIn<'_>) -> ControlFlow<Verdict> {
        if !segment.header.flags.contains(Flags::RST) {
            return ControlFlow::Continue(());
        }
        if segment.header.seq != self.recv.seq(self.recv.nxt) {
            self.challenge(now);
            return ControlFlow::Break(Verdict::ResetChallenged);
        }
        ControlFlow::Break(match self.state {
            State::SynReceived if self.passive && !self.is_early() => {
                self.on_event(Event::ResetReceived);
                Verdict::ReturnedToListen
            }
            State::SynReceived => {
                self.error = Some(if self.passive { Error::Reset } else { Error::Refused });
                self.on_event(Event::ResetReceived);
                Verdict::ResetAccepted
            }
            State::Closed
            | State::SynSent
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => {
                if self.on_peer_reset() {
                    Verdict::ResetAccepted
                } else {
                    Verdict::ResetIgnored
                }
            }
        })
    }

    /// The peer of a synchronised connection has given it up; whether that ends it.
    pub(crate) fn on_peer_reset(&mut self) -> bool {
        match self.state {
            // Linux tells an owner that still holds the socket in CLOSING and LAST-ACK, too: what was sent may be lost.
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => {
                self.error = Some(Error::Reset);
                self.on_event(Event::ResetReceived);
                true
            }
            // RFC 1337: not in TIME-WAIT.
            State::TimeWait | State::Closed | State::SynSent | State::SynReceived => false,
        }
    }
}
