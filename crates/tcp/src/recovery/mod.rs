//! Loss: its evidence, its recovery, and the end of recovery.
//!
//! Owns the phases of recovery and decides when one begins and ends. The evidence comes from RACK ([`rack`], with the
//! duplicate threshold inside it) where the peer sends SACK, and from counting duplicate acknowledgements (RFC 5681,
//! RFC 6582) where it does not. How much may be sent during fast recovery is [`prr`]'s; by how much the window is reduced is the
//! congestion control's. A fast retransmit and a timeout are different events to it.

pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod rate;
pub(crate) mod rto;
pub(crate) mod rtt;
pub(crate) mod spurious;
pub(crate) mod tlp;

use base::{Duration, Instant};

use crate::congestion::{CongestionControl, LostSample};
use crate::connection::Connection;
use crate::segment::Position;
use crate::send::scoreboard::Record;
use crate::timer::Timer;
use prr::Prr;
use rack::{Circumstances, DUP_THRESHOLD, Rack};
use spurious::Undo;
use tlp::LossProbe;

/// So many holes are always filled one by one: the burst of three that a queue or a link is wont to lose.
const MOST_HOLES: u64 = 3;

/// Where recovery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery: a loss was found by acknowledgements.
    Fast,
    /// After a retransmission timeout.
    Timeout,
}

/// How the holes of a flight are filled when the peer does not tell where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Repair {
    /// How many there are is not known yet.
    Unknown,
    /// One for each partial acknowledgement (RFC 6582).
    OneByOne,
    /// Everything that was in flight goes out again.
    All,
}

/// The state of recovery.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    /// Recovery ends when this is acknowledged (RecoveryPoint; RFC 6582's recover).
    pub(crate) high: Position,
    /// Duplicate acknowledgements in a row, from a peer without SACK: segments that have left the network.
    pub(crate) dup_acks: u16,
    /// How the holes of a peer without SACK are filled.
    pub(crate) repair: Repair,
    /// Duplicate acknowledgements still to come of segments that the peer had and got again.
    pub(crate) echoes: u16,
    /// Consecutive timeouts without progress.
    pub(crate) timeouts: u8,
    /// When SND.UNA last advanced, or data was sent into an empty flight: the user timeout runs from here.
    pub(crate) progress_at: Instant,
    pub(crate) prr: Prr,
    pub(crate) rack: Rack,
    pub(crate) probe: LossProbe,
    pub(crate) undo: Option<Box<Undo>>,
}

/// What one acknowledgement told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckSummary {
    /// Bytes by which SND.UNA advanced.
    pub(crate) advanced: u32,
    /// Bytes newly known to be delivered, cumulatively or selectively.
    pub(crate) delivered: u32,
    /// When the most recently sent of the newly delivered records was sent, if that is unambiguous.
    pub(crate) sent_at: Option<Instant>,
    /// Something was delivered that had never been retransmitted.
    pub(crate) original_delivered: bool,
    /// So was something sent before the recovery in progress began.
    pub(crate) earlier_original_delivered: bool,
    /// The most recently sent of the records it delivered.
    pub(crate) newest: Option<Record>,
    /// Something was delivered that had been retransmitted.
    pub(crate) retransmitted_delivered: bool,
    /// How many bytes of that were cumulatively acknowledged.
    pub(crate) retransmitted_advanced: u32,
    /// What was in flight before.
    pub(crate) prior_in_flight: u32,
    /// Bytes that had been found lost in this flight before, modulo 2³².
    pub(crate) lost_total: u32,
    /// It is a duplicate acknowledgement by RFC 5681 §2.
    pub(crate) is_duplicate: bool,
    /// It carried a D-SACK block.
    pub(crate) duplicate_sack: bool,
    /// The echoed timestamp, if it carried one.
    pub(crate) echo: Option<u32>,
    /// The longest record newly delivered.
    pub(crate) largest: u32,
    /// It carried SACK blocks with something new.
    pub(crate) newly_sacked: u32,
}

impl Recovery {
    pub(crate) const fn new() -> Self {
        Self {
            phase: Phase::Open,
            high: 0,
            dup_acks: 0,
            repair: Repair::Unknown,
            echoes: 0,
            timeouts: 0,
            progress_at: Instant::ZERO,
            prr: Prr::new(),
            rack: Rack::new(),
            probe: LossProbe::new(),
            undo: None,
        }
    }
}

impl Connection {
    /// Sequence space believed to be in the network (RFC 6675's pipe; RFC 5681's FlightSize less what duplicate
    /// acknowledgements say has left, for a peer without SACK).
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        let in_flight = self.send.scoreboard.in_flight();
        if self.recovery.dup_acks == 0 {
            return in_flight;
        }
        in_flight.saturating_sub(u32::from(self.recovery.dup_acks) * u32::from(self.send.mss))
    }

    /// RFC 5681's FlightSize before an acknowledgement that advanced SND.UNA by `advanced`: what is not cumulatively
    /// acknowledged, less what limited transmit sent beyond the window (RFC 5681 §3.2 step 2).
    pub(crate) fn flight_size(&self, advanced: u32) -> u32 {
        let outstanding = self.send.outstanding() as u32 + advanced;
        outstanding.min(self.congestion.window())
    }

    /// The congestion window that counts now.
    #[inline]
    pub(crate) fn effective_window(&self) -> u32 {
        match self.recovery.phase {
            Phase::Fast if self.congestion.uses_prr() => self.recovery.prr.window,
            Phase::Open | Phase::Fast | Phase::Timeout => self.congestion.window(),
        }
    }

    pub(crate) fn circumstances(&self) -> Circumstances {
        Circumstances {
            min_rtt: self.rtt.min_rtt,
            srtt: self.rtt.srtt,
            granularity: self.settings.granularity(),
            in_recovery: self.recovery.phase != Phase::Open,
            mss: u32::from(self.send.mss),
        }
    }

    /// The part of RFC 5681, 6582, 6675 and 8985 that follows every acknowledgement that told something.
    pub(crate) fn on_ack_evidence(&mut self, now: Instant, arrival: Instant, ack: &mut AckSummary) {
        self.on_undo_evidence(now, ack);
        let newly_lost = if self.settings.sack {
            self.detect_by_time(arrival)
        } else {
            self.detect_by_duplicates(arrival, ack)
        };
        match self.recovery.phase {
            Phase::Open if newly_lost > 0 => self.on_loss_found(now, ack),
            Phase::Open => {}
            Phase::Fast | Phase::Timeout if self.send.una >= self.recovery.high => {
                self.on_recovered(now);
                if newly_lost > 0 || self.holds_another_hole() {
                    // One recovery ended, but the same acknowledgement shows another loss.
                    self.on_loss_found(now, ack);
                }
            }
            Phase::Fast | Phase::Timeout => {}
        }
        if self.recovery.phase == Phase::Fast {
            let safe = ack.advanced > 0 && newly_lost == 0;
            let (pipe, ssthresh, mss) = (self.pipe(), self.congestion.ssthresh(), u32::from(self.send.mss));
            self.recovery.prr.on_ack(ack.delivered, pipe, ssthresh, mss, safe);
        }
    }

    /// RFC 8985 §6.2 step 5, on an acknowledgement or when the reordering timer expires. Returns the bytes newly lost.
    pub(crate) fn detect_by_time(&mut self, now: Instant) -> u32 {
        let on = self.circumstances();
        let detected = self.recovery.rack.detect(now, &mut self.send.scoreboard, &on);
        match detected.next_check {
            Some(at) => self.timers.set(Timer::Reordering, at),
            None => self.timers.clear(Timer::Reordering),
        }
        if detected.lost > 0 && self.is_only_probe_lost(now) {
            return 0;
        }
        if let Some(record) = detected.latest.filter(|_| self.congestion.is_model_based()) {
            self.congestion.on_lost(&LostSample {
                now,
                len: detected.lost,
                ranges: 1,
                lost_since: self.send.scoreboard.lost_total().wrapping_sub(record.sent.lost),
                in_flight: record.sent.in_flight,
                app_limited: record.sent.app_limited,
                mss: on.mss,
            });
        }
        detected.lost
    }

    /// A peer without SACK: three duplicate acknowledgements, or a partial one during recovery (RFC 6582 §3.2).
    fn detect_by_duplicates(&mut self, now: Instant, ack: &mut AckSummary) -> u32 {
        let mss = u32::from(self.send.mss);
        if self.recovery.repair == Repair::All && self.is_echo(ack) {
            return 0;
        }
        if ack.is_duplicate {
            let most =
                (self.send.outstanding() / u64::from(mss)).saturating_sub(1).min(u64::from(u16::MAX)) as u16;
            let counted = self.recovery.dup_acks.saturating_add(1).min(most.max(1));
            if counted > self.recovery.dup_acks {
                ack.delivered += mss;
                self.send.scoreboard.presume(mss);
            }
            self.recovery.dup_acks = counted;
        } else if ack.advanced > 0 {
            if self.recovery.phase == Phase::Fast && self.recovery.repair == Repair::Unknown {
                self.choose_repair(now, ack.advanced);
            }
            // What the duplicates stood for is now acknowledged; one segment filled the hole.
            let segments = (ack.advanced / mss).saturating_sub(1).min(u32::from(u16::MAX)) as u16;
            self.recovery.dup_acks = self.recovery.dup_acks.saturating_sub(segments);
        }
        match self.recovery.phase {
            // RFC 6582 §3.2 step 2: not for duplicates of a window that was already repaired.
            Phase::Open if ack.is_duplicate && u32::from(self.recovery.dup_acks) >= DUP_THRESHOLD => {
                let repaired = self.send.una <= self.recovery.high && self.recovery.high != 0;
                if !repaired || self.recovery.repair == Repair::All {
                    self.tell_lost(now, mss, 1);
                    self.send.scoreboard.mark_head_lost(mss)
                } else {
                    0
                }
            }
            // RFC 6582 §3.2 step 3: a partial acknowledgement shows the next hole.
            Phase::Fast
                if ack.advanced > 0
                    && self.send.una < self.recovery.high
                    && self.recovery.repair != Repair::All =>
            {
                self.send.scoreboard.mark_head_lost(mss)
            }
            Phase::Open | Phase::Fast | Phase::Timeout => 0,
        }
    }

    /// The first acknowledgement of new data in a recovery without SACK: a round trip is over, and of all that was in
    /// flight each segment that arrived has brought a duplicate. So it is known how many are missing, though not which.
    ///
    /// RFC 6582 fills one hole a round trip. If the peer's window does not last for so many round trips, everything goes
    /// out again instead, at the pace of the recovery: after the overflow of a queue with hundreds of holes that takes one
    /// or two round trips instead of hundreds in which nothing else could be sent.
    fn choose_repair(&mut self, now: Instant, advanced: u32) {
        let mss = u32::from(self.send.mss);
        let flight = self.recovery.high.saturating_sub(self.send.una - u64::from(advanced));
        let arrived = u64::from(self.recovery.dup_acks) * u64::from(mss);
        let missing = flight.saturating_sub(arrived).max(mss.into());
        let rounds = missing / u64::from(mss);
        let round = flight.min(self.congestion.ssthresh().into());
        let still_missing = (missing as u32).saturating_sub(mss);
        if still_missing > 0 {
            self.tell_lost(now, still_missing, (rounds - 1) as u32);
        }
        self.recovery.repair = Repair::OneByOne;
        if rounds > MOST_HOLES && rounds * round > u64::from(self.send.window) {
            self.recovery.repair = Repair::All;
            self.recovery.dup_acks = 0;
            self.send.scoreboard.mark_lost_before(self.recovery.high, still_missing);
        }
    }

    /// A recovery without SACK ended with SND.UNA behind data that has brought duplicates enough during it: without new
    /// ones to come, only a timeout would find that hole.
    fn holds_another_hole(&mut self) -> bool {
        if self.settings.sack || u32::from(self.recovery.dup_acks) < DUP_THRESHOLD {
            return false;
        }
        self.send.scoreboard.mark_head_lost(self.send.mss.into()) > 0
    }

    /// While everything goes out again, much of it is there already, and each such segment brings a duplicate that says
    /// nothing about loss. How many there are follows from how far SND.UNA jumps. Whether this is one of them.
    fn is_echo(&mut self, ack: &AckSummary) -> bool {
        let mss = u32::from(self.send.mss);
        let echoes = &mut self.recovery.echoes;
        if self.recovery.phase == Phase::Open && self.send.una > self.recovery.high {
            *echoes = 0;
        }
        if ack.is_duplicate && *echoes > 0 {
            *echoes -= 1;
            return true;
        }
        let there = ack.retransmitted_advanced.saturating_sub(mss) / mss;
        *echoes = echoes.saturating_add(u16::try_from(there).unwrap_or(u16::MAX));
        false
    }

    /// A model of the path hears of losses that are known by number only, or of the oldest record's.
    fn tell_lost(&mut self, now: Instant, len: u32, ranges: u32) {
        if !self.congestion.is_model_based() {
            return;
        }
        let Some(record) = self.send.scoreboard.front() else { return };
        self.congestion.on_lost(&LostSample {
            now,
            len,
            ranges,
            lost_since: self.send.scoreboard.lost_total().wrapping_sub(record.sent.lost).saturating_add(len),
            in_flight: record.sent.in_flight,
            app_limited: record.sent.app_limited,
            mss: u32::from(self.send.mss),
        });
    }

    /// A loss was found while nothing was being recovered: fast recovery begins (RFC 5681 §3.2).
    pub(crate) fn on_loss_found(&mut self, now: Instant, ack: &AckSummary) {
        self.stats.rare().fast_recoveries += 1;
        self.begin_undo();
        self.recovery.high = self.send.nxt;
        self.recovery.phase = Phase::Fast;
        self.recovery.repair = Repair::Unknown;
        self.recovery.echoes = 0;
        let mss = u32::from(self.send.mss);
        let flight = self.flight_size(ack.advanced);
        self.congestion.on_loss_found(now, flight, mss);
        // RFC 9937 §6.2: what was selectively acknowledged before does not count, what this acknowledgement did does.
        let dup_acked = u32::from(self.recovery.dup_acks).saturating_sub(1) * mss;
        let already = self.send.scoreboard.sacked().saturating_sub(ack.newly_sacked) + dup_acked;
        let flight = (self.send.outstanding() as u32).saturating_sub(already) + ack.advanced;
        self.recovery.prr.start(flight);
        // The fast retransmit itself may go whatever the acknowledgement delivered.
        self.recovery.prr.window = self.pipe() + mss;
        self.timers.clear(Timer::LossProbe);
    }

    /// The point at which recovery ends has been acknowledged.
    pub(crate) fn on_recovered(&mut self, now: Instant) {
        let phase = core::mem::replace(&mut self.recovery.phase, Phase::Open);
        if phase == Phase::Fast && self.recovery.repair == Repair::All {
            self.recovery.dup_acks = 0;
            // What went out needlessly still brings duplicates, until here.
            self.recovery.high = self.send.nxt;
        }
        self.recovery.rack.on_recovered();
        let (pipe, mss) = (self.pipe(), u32::from(self.send.mss));
        match phase {
            Phase::Fast => self.congestion.on_recovered(now, pipe, mss),
            Phase::Timeout => self.congestion.on_timeout_recovered(),
            Phase::Open => {}
        }
        // The last D-SACK may still be on its way: what can be undone stays so until it has come or cannot.
        self.end_forward_recovery();
    }

    /// The user timeout's remaining part bounds how long a timer may wait (RFC 5482 §3.1).
    pub(crate) fn bounded_by_user_timeout(&self, now: Instant, wait: Duration) -> Duration {
        match self.settings.user_timeout() {
            Some(limit) => {
                let remaining = (self.recovery.progress_at + limit).saturating_since(now);
                wait.min(remaining.max(Duration::from_millis(1)))
            }
            None => wait,
        }
    }
}
