//! RACK: loss found by time (RFC 8985 §6).
//!
//! A record is lost when something sent sufficiently later was delivered. "Sufficiently" is the reordering window, which
//! is nothing until reordering has been seen and grows when D-SACK shows retransmissions to have been needless. Times
//! are the packets' arrival times as the caller gives them, never the time of processing; no window is finer than the
//! caller's clock.

use base::{Duration, Instant};

use crate::segment::Position;
use crate::send::scoreboard::{Fate, Record, Scoreboard};

/// DupThresh (RFC 5681).
pub(crate) const DUP_THRESHOLD: u32 = 3;
/// For how many recoveries an enlarged reordering window lasts (RFC 8985 §6.2 step 4).
const PERSIST: u8 = 16;

/// RACK's variables (RFC 8985 §5.3).
#[derive(Clone, Debug)]
pub(crate) struct Rack {
    /// When the most recently sent of all delivered records was sent (RACK.xmit_ts); zero: none yet.
    sent_at: Instant,
    /// Its end (RACK.end_seq).
    end: Position,
    /// Its round trip (RACK.rtt).
    pub(crate) rtt: Duration,
    /// The highest end delivered (RACK.fack).
    fack: Position,
    /// RACK.reordering_seen.
    pub(crate) reordering_seen: bool,
    /// RACK.reo_wnd_mult.
    multiplier: u8,
    /// RACK.reo_wnd_persist.
    persist: u8,
    /// RACK.dsack_round.
    dsack_round: Position,
}

/// What the reordering window depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    pub(crate) min_rtt: Duration,
    pub(crate) srtt: Duration,
    pub(crate) granularity: Duration,
    pub(crate) in_recovery: bool,
    pub(crate) mss: u32,
}

/// What a pass over the records found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detected {
    /// Bytes newly marked as lost.
    pub(crate) lost: u32,
    /// The last of the records newly marked.
    pub(crate) latest: Option<Record>,
    /// When the next record would be lost if nothing more is heard.
    pub(crate) next_check: Option<Instant>,
}

/// RACK_sent_after (RFC 8985 §6.2 step 2).
fn sent_after(at: Instant, end: Position, other_at: Instant, other_end: Position) -> bool {
    at > other_at || (at == other_at && end > other_end)
}

impl Rack {
    pub(crate) const fn new() -> Self {
        Self {
            sent_at: Instant::ZERO,
            end: 0,
            rtt: Duration::ZERO,
            fack: 0,
            reordering_seen: false,
            multiplier: 1,
            persist: 0,
            dsack_round: 0,
        }
    }

    /// Step 2 and 3: a record was delivered by a segment that arrived at `arrival`. `echo_is_older`: the timestamp echo
    /// is older than the record's last transmission, so it was an earlier one that arrived.
    pub(crate) fn on_delivered(
        &mut self,
        record: &Record,
        arrival: Instant,
        min_rtt: Duration,
        echo_is_older: bool,
    ) {
        let end = record.end();
        if end > self.fack {
            self.fack = end;
        } else if end < self.fack && !record.was_retransmitted() {
            self.reordering_seen = true;
        }
        let rtt = arrival.saturating_since(record.sent_at);
        if record.was_retransmitted() && (echo_is_older || rtt < min_rtt) {
            return;
        }
        self.rtt = rtt;
        if sent_after(record.sent_at, end, self.sent_at, self.end) {
            self.sent_at = record.sent_at;
            self.end = end;
        }
    }

    /// Step 4: the reordering window.
    fn reordering_window(&self, sacked: u32, on: &Circumstances) -> Duration {
        if !self.reordering_seen && (on.in_recovery || sacked >= DUP_THRESHOLD * on.mss) {
            return Duration::ZERO;
        }
        let window = Duration::from_nanos(on.min_rtt.as_nanos() / 4 * u64::from(self.multiplier));
        // A clock that ticks coarser than the window would see reordering as loss.
        window.min(on.srtt).max(on.granularity)
    }

    /// Step 4: a D-SACK came.
    pub(crate) fn on_duplicate_sack(&mut self, una: Position, nxt: Position) {
        if una >= self.dsack_round {
            self.dsack_round = nxt;
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = PERSIST;
        }
    }

    /// Step 4: a recovery ended.
    pub(crate) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// Step 5: marks what is lost by `now`.
    pub(crate) fn detect(&self, now: Instant, board: &mut Scoreboard, on: &Circumstances) -> Detected {
        if self.sent_at == Instant::ZERO && self.end == 0 {
            return Detected::default();
        }
        let window = self.reordering_window(board.sacked(), on);
        let mut next_check: Option<Instant> = None;
        let mut latest = None;
        let lost = board.mark_lost_where(|record| {
            if !sent_after(self.sent_at, self.end, record.sent_at, record.end()) {
                // Records are in order of their first transmission: nothing behind one that was never sent again and
                // went out later than RACK's can be older.
                return if record.was_retransmitted() { Some(false) } else { None };
            }
            if record.fate != Fate::InFlight {
                return Some(false);
            }
            let deadline = record.sent_at + self.rtt + window;
            if deadline <= now {
                latest = Some(*record);
                return Some(true);
            }
            next_check = Some(next_check.map_or(deadline, |check| check.max(deadline)));
            Some(false)
        });
        Detected { lost, latest, next_check }
    }
}
