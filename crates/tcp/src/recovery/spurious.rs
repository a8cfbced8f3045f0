//! Recoveries that were not needed: found by timestamps (Eifel, RFC 3522), by D-SACK (RFC 2883, RFC 3708) and, after a
//! timeout, by what is acknowledged next (F-RTO, RFC 5682); undone (RFC 4015).

use base::Instant;

use super::{AckSummary, Phase};
use crate::congestion::CongestionControl;
use crate::connection::Connection;

/// How far F-RTO has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Forward {
    /// Not in use.
    Off,
    /// The head was retransmitted; the first acknowledgement decides how to go on (RFC 5682 §2.1 step 2).
    HeadSent,
    /// New data may go out before any other retransmission (step 2b); the next acknowledgement decides.
    NewDataAllowed,
}

/// What is needed to see that a recovery was spurious.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    /// A reduction can be undone.
    pub(crate) active: bool,
    /// Bytes retransmitted in this recovery that no D-SACK has reported yet.
    outstanding: u32,
    /// Something was retransmitted in this recovery.
    retransmitted: bool,
    /// The timestamp of the first retransmission of this recovery.
    stamp: u32,
    /// F-RTO's state.
    pub(crate) forward: Forward,
}

impl Undo {
    pub(crate) const fn new() -> Self {
        Self { active: false, outstanding: 0, retransmitted: false, stamp: 0, forward: Forward::Off }
    }
}

impl Connection {
    pub(crate) fn begin_undo(&mut self) {
        if self.recovery.phase == Phase::Open {
            self.recovery.undo = Undo { active: true, ..Undo::new() };
            self.congestion.save();
        }
    }

    /// Nothing can be undone any more.
    pub(crate) fn end_undo(&mut self) {
        if !self.recovery.undo.active {
            return;
        }
        self.recovery.undo = Undo::new();
        self.congestion.forget();
    }

    /// After a first timeout, F-RTO watches (RFC 5682 §2.1 step 1).
    pub(crate) fn begin_forward_recovery(&mut self, first: bool) {
        self.recovery.undo.forward =
            if first && self.settings.sack { Forward::HeadSent } else { Forward::Off };
    }

    /// Something was retransmitted.
    pub(crate) fn note_retransmission(&mut self, now: Instant, len: u32) {
        let stamp = self.timestamp(now);
        let undo = &mut self.recovery.undo;
        if !undo.retransmitted {
            undo.retransmitted = true;
            undo.stamp = stamp;
        }
        undo.outstanding = undo.outstanding.saturating_add(len);
    }

    /// A D-SACK block of `len` bytes came.
    pub(crate) fn note_duplicate_sack(&mut self, len: u32) {
        self.recovery.undo.outstanding = self.recovery.undo.outstanding.saturating_sub(len);
    }

    /// Looks at an acknowledgement for signs that the recovery in progress was needless.
    pub(crate) fn on_undo_evidence(&mut self, now: Instant, ack: &AckSummary) {
        let undo = &self.recovery.undo;
        if !undo.active {
            return;
        }
        // RFC 3522 §3.2: what was acknowledged had been sent before the retransmission.
        let older_echo = ack.advanced > 0
            && undo.retransmitted
            && ack.echo.is_some_and(|echo| (echo.wrapping_sub(undo.stamp) as i32) < 0);
        // RFC 3708: every retransmission was reported as a duplicate.
        let all_duplicates = ack.duplicate_sack && undo.retransmitted && undo.outstanding == 0;
        // RFC 5682 §3.1: something from before the timeout came through that was never sent again.
        let forward = undo.forward != Forward::Off && ack.earlier_original_delivered;
        let spurious = match self.recovery.phase {
            Phase::Open => all_duplicates,
            // A partial acknowledgement by an original segment says nothing about the other holes.
            Phase::Fast => all_duplicates || (older_echo && self.send.una >= self.recovery.high),
            Phase::Timeout => all_duplicates || older_echo || forward,
        };
        if spurious {
            self.on_spurious_recovery(now);
        } else if undo.forward != Forward::Off {
            self.step_forward_recovery(ack);
        }
    }

    /// RFC 5682 §2.1 steps 2 and 3.
    fn step_forward_recovery(&mut self, ack: &AckSummary) {
        let undo = &mut self.recovery.undo;
        undo.forward = match undo.forward {
            Forward::HeadSent if ack.advanced > 0 => Forward::NewDataAllowed,
            Forward::HeadSent | Forward::NewDataAllowed | Forward::Off => Forward::Off,
        };
    }

    /// RFC 4015: back to where things were.
    fn on_spurious_recovery(&mut self, now: Instant) {
        self.stats.rare().undone += 1;
        self.congestion.on_undo(now);
        self.send.scoreboard.unmark_lost();
        self.recovery.phase = Phase::Open;
        self.recovery.dup_acks = 0;
        self.recovery.timeouts = 0;
        self.rtt.backoff = 0;
        self.end_undo();
    }
}
