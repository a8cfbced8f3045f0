//! Recoveries that were not needed: found by timestamps (Eifel, RFC 3522), by D-SACK (RFC 2883, RFC 3708) and, after a
//! timeout, by what is acknowledged next (F-RTO, RFC 5682); undone (RFC 4015).

use base::Instant;

use super::{AckSummary, Phase};
use crate::congestion::CongestionControl;
use crate::connection::Connection;
use crate::segment::Position;
use crate::send::scoreboard::Record;

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

/// What is needed to see that a recovery was spurious; there is one only while a reduction can be undone.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    /// Bytes retransmitted in this recovery that no D-SACK has reported yet.
    outstanding: u32,
    /// Something was retransmitted in this recovery.
    retransmitted: bool,
    /// Whether the first retransmission was needed, once it is acknowledged.
    needed: Option<bool>,
    /// The timestamp of the first retransmission of this recovery.
    stamp: u32,
    /// The end of the highest retransmission.
    end: Position,
    /// When all before it is acknowledged, every D-SACK that the retransmissions cause has come.
    until: Position,
    /// F-RTO's state.
    forward: Forward,
}

impl Undo {
    const fn new() -> Self {
        Self {
            outstanding: 0,
            retransmitted: false,
            needed: None,
            stamp: 0,
            end: 0,
            until: 0,
            forward: Forward::Off,
        }
    }

    /// Something was retransmitted, nothing says that it was needed, and there may still come what says that it was not.
    fn may_be_needless(&self, una: Position) -> bool {
        self.retransmitted && self.needed != Some(true) && una <= self.until
    }
}

impl Connection {
    /// A recovery begins. If it is not yet known whether the one before was needless, both are judged together: what was
    /// saved then is still what things go back to.
    pub(crate) fn begin_undo(&mut self) {
        let una = self.send.una;
        let pending = self.recovery.undo.as_ref().is_some_and(|undo| undo.may_be_needless(una));
        if self.recovery.phase == Phase::Open && !pending {
            self.recovery.undo = Some(Box::new(Undo::new()));
            self.congestion.save();
        }
    }

    /// Nothing can be undone any more.
    pub(crate) fn end_undo(&mut self) {
        if self.recovery.undo.take().is_some() {
            self.congestion.forget();
        }
    }

    /// Everything is acknowledged. Nothing can be undone any more, unless a D-SACK is still to come: where the original was
    /// only late, its acknowledgement arrives before the one that reports the retransmission.
    pub(crate) fn end_undo_without_duplicates(&mut self) {
        let awaits = self.settings.sack
            && self.recovery.undo.as_ref().is_some_and(|undo| undo.retransmitted && undo.outstanding > 0);
        if !awaits {
            self.end_undo();
        }
    }

    /// How far F-RTO has come.
    #[inline]
    pub(crate) fn forward(&self) -> Forward {
        self.recovery.undo.as_ref().map_or(Forward::Off, |undo| undo.forward)
    }

    /// After a first timeout, F-RTO watches (RFC 5682 §2.1 step 1).
    pub(crate) fn begin_forward_recovery(&mut self, first: bool) {
        let watches = first && self.settings.sack;
        if let Some(undo) = &mut self.recovery.undo {
            undo.forward = if watches { Forward::HeadSent } else { Forward::Off };
        }
    }

    /// F-RTO has seen enough.
    pub(crate) fn end_forward_recovery(&mut self) {
        if let Some(undo) = &mut self.recovery.undo {
            undo.forward = Forward::Off;
        }
    }

    /// Something was retransmitted.
    pub(crate) fn note_retransmission(&mut self, now: Instant, record: &Record) {
        let stamp = self.timestamp(now);
        // A round trip after the next one at the latest: the retransmission may itself come late.
        let until = self.send.nxt + self.send.outstanding();
        let Some(undo) = &mut self.recovery.undo else { return };
        if !undo.retransmitted {
            undo.retransmitted = true;
            undo.stamp = stamp;
        }
        undo.outstanding = undo.outstanding.saturating_add(record.len);
        undo.end = undo.end.max(record.end());
        undo.until = until;
    }

    /// A D-SACK block of `len` bytes came.
    pub(crate) fn note_duplicate_sack(&mut self, len: u32) {
        if let Some(undo) = &mut self.recovery.undo {
            undo.outstanding = undo.outstanding.saturating_sub(len);
        }
    }

    /// Looks at an acknowledgement for signs that the recovery in progress was needless.
    pub(crate) fn on_undo_evidence(&mut self, now: Instant, ack: &AckSummary) {
        let Some(undo) = &mut self.recovery.undo else { return };
        // No D-SACK came for some retransmission: it was needed.
        if self.recovery.phase == Phase::Open && undo.retransmitted && self.send.una > undo.until {
            self.end_undo();
            return;
        }
        // RFC 3522 §3.2: what was acknowledged had been sent before the retransmission.
        let retransmission_acked = ack.advanced > 0 && undo.retransmitted;
        let older_echo =
            retransmission_acked && ack.echo.is_some_and(|echo| (echo.wrapping_sub(undo.stamp) as i32) < 0);
        if retransmission_acked {
            undo.needed.get_or_insert(!older_echo);
        }
        // RFC 3708: every retransmission was reported as a duplicate.
        let all_duplicates = ack.duplicate_sack && undo.retransmitted && undo.outstanding == 0;
        // RFC 5682 §3.1: something from before the timeout came through that was never sent again.
        let forward = undo.forward != Forward::Off && ack.earlier_original_delivered;
        let spurious = match self.recovery.phase {
            Phase::Open => all_duplicates,
            // An acknowledgement by an original segment says nothing about the holes beyond it. Where there are none, or
            // what filled them had been retransmitted later, the echo would be of a retransmission.
            Phase::Fast => {
                let covers_all = self.send.una >= undo.end && self.send.scoreboard.lost() == 0;
                all_duplicates || (older_echo && (covers_all || self.send.una >= self.recovery.high))
            }
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
        let Some(undo) = &mut self.recovery.undo else { return };
        undo.forward = match undo.forward {
            Forward::HeadSent if ack.advanced > 0 => Forward::NewDataAllowed,
            Forward::HeadSent | Forward::NewDataAllowed | Forward::Off => Forward::Off,
        };
    }

    /// RFC 4015: back to where things were.
    fn on_spurious_recovery(&mut self, now: Instant) {
        self.stats.rare().undone += 1;
        // A retransmission that proved needless is reordering too: the one that RFC 8985 §6.2 step 3 cannot see, because
        // what arrived late had been retransmitted. After a timeout it may as well have been a delay.
        if self.recovery.phase != Phase::Timeout {
            self.recovery.rack.reordering_seen = true;
        }
        self.congestion.on_undo(now);
        self.send.scoreboard.unmark_lost();
        self.recovery.phase = Phase::Open;
        self.recovery.dup_acks = 0;
        self.recovery.timeouts = 0;
        self.rtt.backoff = 0;
        self.end_undo();
    }
}
