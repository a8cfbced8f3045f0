//! Explicit congestion notification, classic (RFC 3168 §6.1).
//!
//! The receiver echoes a mark in every acknowledgement until the sender says that it has reduced its window. The sender
//! reduces once for a window of data, without retransmitting anything. Only new data is sent as ECN-capable: not
//! acknowledgements, not retransmissions, not probes.

use base::{Instant, SeqNumber};
use wire::tcp::Flags;

use crate::congestion::CongestionControl;
use crate::connection::Connection;
use crate::recovery::Phase;
use crate::segment::{Ecn, SegmentIn};

/// What both roles remember.
#[derive(Clone, Debug)]
pub(crate) struct EcnState {
    /// SND.NXT at the last reduction: echoes of what was sent before mean nothing new.
    reduced_to: SeqNumber,
    /// There was a reduction.
    reduced: bool,
    /// Our acknowledgements carry ECE.
    pub(crate) echoes: bool,
    /// The next new data carries CWR.
    owes_cwr: bool,
}

impl EcnState {
    pub(crate) const fn new() -> Self {
        Self { reduced_to: SeqNumber(0), reduced: false, echoes: false, owes_cwr: false }
    }
}

impl Connection {
    /// Receiver: a mark begins the echo, CWR ends it (RFC 3168 §6.1.3).
    pub(crate) fn on_ecn_of_data(&mut self, segment: &SegmentIn<'_>) {
        if !self.settings.ecn || segment.payload.is_empty() {
            return;
        }
        if segment.header.flags.contains(Flags::CWR) {
            self.ecn.echoes = false;
        }
        if segment.ecn == Ecn::Ce {
            self.stats.rare().congestion_marks += 1;
            self.ecn.echoes = true;
        }
    }

    /// Sender: an echo reduces the window, once for a window of data (RFC 3168 §6.1.2).
    pub(crate) fn on_ecn_of_ack(&mut self, now: Instant, segment: &SegmentIn<'_>, advanced: u32) {
        if !self.settings.ecn
            || !segment.header.flags.contains(Flags::ECE)
            || (self.ecn.reduced && self.send.seq(self.send.una).before(self.ecn.reduced_to))
            || self.send.una + u64::from(advanced) <= 1
        {
            return;
        }
        self.stats.rare().congestion_echoes += 1;
        self.ecn.reduced = true;
        self.ecn.reduced_to = self.send.seq(self.send.nxt.max(self.send.una + 1));
        self.ecn.owes_cwr = true;
        if self.recovery.phase == Phase::Open {
            let mss = u32::from(self.send.mss);
            let flight = self.flight_size(advanced);
            self.congestion.on_loss_found(now, flight, mss);
            let pipe = self.pipe();
            self.congestion.on_recovered(now, pipe, mss);
        }
    }

    /// The IP header's field, and CWR if it is owed, for new data.
    pub(crate) fn ecn_for_new_data(&mut self) -> (Ecn, Flags) {
        if !self.settings.ecn {
            return (Ecn::NotEct, Flags::empty());
        }
        let flags = if core::mem::take(&mut self.ecn.owes_cwr) { Flags::CWR } else { Flags::empty() };
        (Ecn::Ect0, flags)
    }
}
