//! What is in flight: one record for each transmission, in sequence order, without gaps from SND.UNA to SND.NXT.
//!
//! A record covers everything that one header carried, up to a super-segment; acknowledgements and losses that cover a
//! part of it split it. Selective acknowledgements (RFC 2018, RFC 6675), RACK's transmission times (RFC 8985) and the
//! retransmission of what was lost all live on these records. Neighbouring records that were selectively acknowledged are
//! joined, so that the queue stays short. When nothing is in flight it holds no memory.

use std::collections::VecDeque;

use base::Instant;

use crate::recovery::rate::SendState;
use crate::segment::Position;

/// What is known of a range in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Sent, and believed to be on its way.
    InFlight,
    /// Believed to be lost and not yet sent again.
    Lost,
    /// Selectively acknowledged.
    Sacked,
}

/// One transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) start: Position,
    pub(crate) len: u32,
    pub(crate) fate: Fate,
    /// How often it was transmitted, saturating.
    pub(crate) transmissions: u8,
    /// When it was last transmitted.
    pub(crate) sent_at: Instant,
    /// How the flight stood then.
    pub(crate) sent: SendState,
}

impl Record {
    /// A range that is transmitted for the first time.
    pub(crate) fn new(start: Position, len: u32, now: Instant) -> Self {
        Self { start, len, fate: Fate::InFlight, transmissions: 1, sent_at: now, sent: SendState::default() }
    }

    #[inline]
    pub(crate) fn end(&self) -> Position {
        self.start + u64::from(self.len)
    }

    /// Karn's rule asks (RFC 6298 §3).
    pub(crate) fn was_retransmitted(&self) -> bool {
        self.transmissions > 1
    }
}

/// What is in flight; a box only while something is.
#[derive(Clone, Debug)]
pub(crate) struct Scoreboard {
    board: Option<Box<Board>>,
}

/// The records, and the bytes in each state.
#[derive(Clone, Debug)]
struct Board {
    records: VecDeque<Record>,
    in_flight: u32,
    lost: u32,
    sacked: u32,
    /// No record before this position is lost.
    lost_from: Position,
    /// Bytes ever marked lost, modulo 2³² (C.lost).
    lost_total: u32,
    /// When something was last delivered (C.delivered_time).
    delivered_at: Instant,
    /// When the first transmission of the present rate sample left (C.first_send_time).
    first_sent_at: Instant,
    /// The rate is written down again when something is delivered that was sent after this much had been.
    rate_round: Position,
    /// Until this is delivered, the application limits the rate (C.app_limited); 0: it does not.
    app_limited_to: Position,
    /// Bytes that duplicate acknowledgements of a peer without SACK show to have been delivered, nobody knows which.
    presumed: u32,
}

impl Scoreboard {
    pub(crate) const fn new() -> Self {
        Self { board: None }
    }

    /// Sequence space believed to be on its way (RFC 6675's pipe).
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.board.as_ref().map_or(0, |board| board.in_flight)
    }

    /// Sequence space that is lost and waits for its retransmission.
    #[inline]
    pub(crate) fn lost(&self) -> u32 {
        self.board.as_ref().map_or(0, |board| board.lost)
    }

    /// Sequence space that the peer holds out of order.
    #[inline]
    pub(crate) fn sacked(&self) -> u32 {
        self.board.as_ref().map_or(0, |board| board.sacked)
    }

    /// Sequence space that was retransmitted and is believed to be on its way. Walks the records.
    pub(crate) fn retransmitted(&self) -> u32 {
        let records = self.board.iter().flat_map(|board| &board.records);
        records
            .filter(|record| record.fate == Fate::InFlight && record.was_retransmitted())
            .map(|it| it.len)
            .sum()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.board.is_none()
    }

    /// The oldest record.
    #[inline]
    pub(crate) fn front(&self) -> Option<&Record> {
        self.board.as_ref().and_then(|board| board.records.front())
    }

    /// A first transmission, after all others.
    pub(crate) fn push(&mut self, record: Record) {
        self.board.get_or_insert_with(|| Box::new(Board::new(record.start))).push(record);
    }

    /// Bytes ever marked lost in this flight, modulo 2³².
    pub(crate) fn lost_total(&self) -> u32 {
        self.board.as_ref().map_or(0, |board| board.lost_total)
    }

    /// An acknowledgement delivered something, most recently what was sent at `sent_at`; `delivered` is all so far.
    pub(crate) fn note_delivered(&mut self, now: Instant, sent_at: Instant, delivered: Position) {
        if let Some(board) = &mut self.board {
            board.delivered_at = now;
            board.first_sent_at = sent_at;
            if delivered > board.app_limited_to {
                board.app_limited_to = 0;
            }
        }
    }

    /// Whether a round trip has passed since this last said so: what was just delivered, sent when `sent` had been, began
    /// after it. `delivered` is all so far.
    pub(crate) fn begins_round(&mut self, sent: Position, delivered: Position) -> bool {
        let Some(board) = self.board.as_mut().filter(|board| sent >= board.rate_round) else { return false };
        board.rate_round = delivered;
        true
    }

    /// The application has no more to send, or the peer takes no more, although more could be sent.
    pub(crate) fn note_app_limited(&mut self) {
        if let Some(board) = &mut self.board {
            board.app_limited_to = board.delivered() + Position::from(board.in_flight);
        }
    }

    /// All that is delivered when everything before `una` is, as a position (C.delivered).
    pub(crate) fn delivered(&self, una: Position) -> Position {
        self.board.as_ref().map_or(una, |board| una + Position::from(board.sacked + board.presumed))
    }

    /// A duplicate acknowledgement of a peer without SACK stands for `len` bytes.
    pub(crate) fn presume(&mut self, len: u32) {
        if let Some(board) = &mut self.board {
            board.presumed = board.presumed.saturating_add(len).min(board.in_flight + board.lost);
        }
    }

    /// Of `len` bytes now acknowledged, how many duplicate acknowledgements have stood for. Before [`Self::acknowledge`].
    #[inline]
    pub(crate) fn confirm(&mut self, len: u32) -> u32 {
        let Some(board) = &mut self.board else { return 0 };
        let known = board.presumed.min(len);
        board.presumed -= known;
        known
    }

    /// Takes off everything before `una`; `visit` sees each part that goes.
    #[inline]
    pub(crate) fn acknowledge(&mut self, una: Position, visit: impl FnMut(&Record)) {
        if let Some(board) = &mut self.board {
            board.acknowledge(una, visit);
            if board.records.is_empty() {
                self.board = None;
            }
        }
    }

    /// Marks `[start, end)` as received; `visit` sees each record that was not known to be. At most `max_records` records
    /// result: a peer that acknowledges odd single bytes cannot make the scoreboard grow without bound.
    pub(crate) fn sack(
        &mut self,
        start: Position,
        end: Position,
        max_records: usize,
        visit: impl FnMut(&Record),
    ) {
        if let Some(board) = &mut self.board {
            board.sack(start, end, max_records, visit);
        }
    }

    /// Marks as lost every record in flight for which `is_lost` says so; stops where it says `None`. Returns the bytes.
    pub(crate) fn mark_lost_where(&mut self, is_lost: impl FnMut(&Record) -> Option<bool>) -> u32 {
        self.board.as_mut().map_or(0, |board| board.mark_lost_where(is_lost))
    }

    /// Marks the first `len` bytes as lost (a full segment, for a peer without SACK). Returns the bytes newly marked.
    pub(crate) fn mark_head_lost(&mut self, len: u32) -> u32 {
        self.board.as_mut().map_or(0, |board| board.mark_head_lost(len))
    }

    /// Everything in flight before `position` goes out again. `missing` bytes of it are lost, nobody knows which.
    pub(crate) fn mark_lost_before(&mut self, position: Position, missing: u32) {
        if let Some(board) = &mut self.board {
            let lost_total = board.lost_total.wrapping_add(missing);
            board.mark_lost_where(|record| (record.end() <= position).then_some(true));
            board.lost_total = lost_total;
        }
    }

    /// Everything that is not selectively acknowledged is lost (RFC 6298 §5, RFC 8985 §6.3). If the oldest record is
    /// selectively acknowledged, the peer has gone back on its word (RFC 2018 §8) and all of it is lost.
    pub(crate) fn mark_all_lost(&mut self) {
        if let Some(board) = &mut self.board {
            board.mark_all_lost();
        }
    }

    /// Takes back the marks of loss: what was marked is in flight after all.
    pub(crate) fn unmark_lost(&mut self) {
        if let Some(board) = &mut self.board {
            board.unmark_lost();
        }
    }

    /// Of what lies in `[start, end)`, the bytes that are lost and wait.
    pub(crate) fn lost_within(&self, start: Position, end: Position) -> u32 {
        self.board.as_ref().map_or(0, |board| board.lost_within(start, end))
    }

    /// Marks what is in flight of `[start, end)` as lost, but not as ever lost: it says nothing about the path's capacity.
    pub(crate) fn mark_range_lost(&mut self, start: Position, end: Position) {
        let marked = self.mark_lost_where(|record| {
            if record.start >= end { None } else { Some(record.start >= start && record.end() <= end) }
        });
        self.forgive_lost(marked);
    }

    /// `len` bytes of what was marked lost do not count as ever lost.
    pub(crate) fn forgive_lost(&mut self, len: u32) {
        if let Some(board) = &mut self.board {
            board.lost_total = board.lost_total.wrapping_sub(len);
        }
    }

    /// The first record that is lost and waits.
    #[inline]
    pub(crate) fn next_lost(&self) -> Option<Record> {
        let board = self.board.as_ref().filter(|board| board.lost > 0)?;
        board.next_lost_index().map(|index| board.records[index])
    }

    /// The first lost record goes out again, at most `max_len` of it. Returns what goes.
    pub(crate) fn retransmit_lost(&mut self, max_len: u32, now: Instant) -> Option<Record> {
        self.board.as_mut()?.retransmit_lost(max_len, now)
    }

    /// The last `max_len` bytes go out again, as a probe.
    pub(crate) fn retransmit_last(&mut self, max_len: u32, now: Instant) -> Option<Record> {
        self.board.as_mut()?.retransmit_last(max_len, now)
    }

    /// Whether the counters agree with the records and the records cover `[una, nxt)` (checked by `check_invariants`).
    pub(crate) fn is_consistent(&self, una: Position, nxt: Position) -> bool {
        self.board.as_ref().map_or(una == nxt, |board| board.is_consistent(una, nxt))
    }
}

impl Board {
    /// A flight that begins at `start`. After an idle time it was the application that limited the rate.
    const fn new(start: Position) -> Self {
        Self {
            records: VecDeque::new(),
            in_flight: 0,
            lost: 0,
            sacked: 0,
            lost_from: 0,
            lost_total: 0,
            delivered_at: Instant::ZERO,
            first_sent_at: Instant::ZERO,
            rate_round: 0,
            app_limited_to: if start > 1 { start } else { 0 },
            presumed: 0,
        }
    }

    /// All that was ever delivered, as a position (C.delivered).
    fn delivered(&self) -> Position {
        self.records.front().map_or(0, |front| front.start) + Position::from(self.sacked + self.presumed)
    }

    /// What a transmission of `len` at `now` has to remember.
    fn send_state(&mut self, start: Position, len: u32, now: Instant) -> SendState {
        if self.in_flight == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        let una = self.records.front().map_or(start, |front| front.start);
        SendState {
            delivered: una + Position::from(self.sacked + self.presumed),
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight: (self.in_flight + len).saturating_sub(self.presumed),
            lost: self.lost_total,
            app_limited: self.app_limited_to != 0,
        }
    }

    fn push(&mut self, mut record: Record) {
        record.sent = self.send_state(record.start, record.len, record.sent_at);
        debug_assert!(
            self.records.back().is_none_or(|back| back.end() == record.start),
            "records leave no gap"
        );
        self.count(record.fate, record.len);
        self.records.push_back(record);
    }

    #[inline]
    fn acknowledge(&mut self, una: Position, mut visit: impl FnMut(&Record)) {
        while let Some(front) = self.records.front_mut() {
            if front.end() <= una {
                let record = *front;
                self.records.pop_front();
                self.uncount(record.fate, record.len);
                visit(&record);
                continue;
            }
            if front.start < una {
                let mut part = *front;
                part.len = (una - front.start) as u32;
                front.start = una;
                front.len -= part.len;
                self.uncount(part.fate, part.len);
                visit(&part);
            }
            break;
        }
    }

    fn sack(&mut self, start: Position, end: Position, max_records: usize, mut visit: impl FnMut(&Record)) {
        let mut index = self.records.partition_point(|record| record.end() <= start);
        while let Some(&record) = self.records.get(index) {
            if record.start >= end {
                break;
            }
            if record.fate == Fate::Sacked {
                index += 1;
                continue;
            }
            let partial = record.start < start || record.end() > end;
            if partial && self.records.len() >= max_records {
                index += 1;
                continue;
            }
            if record.start < start {
                self.split(index, start);
                index += 1;
                continue;
            }
            if record.end() > end {
                self.split(index, end);
            }
            self.set_fate(index, Fate::Sacked);
            visit(&self.records[index]);
            index = self.join_sacked(index);
        }
    }

    /// Joins the sacked record at `index` with sacked neighbours; returns the index after the result.
    fn join_sacked(&mut self, index: usize) -> usize {
        let mut index = index;
        if self.records.get(index + 1).is_some_and(|next| next.fate == Fate::Sacked) {
            self.absorb_next(index);
        }
        if index > 0 && self.records[index - 1].fate == Fate::Sacked {
            index -= 1;
            self.absorb_next(index);
        }
        index + 1
    }

    fn absorb_next(&mut self, index: usize) {
        if let Some(next) = self.records.remove(index + 1) {
            let record = &mut self.records[index];
            record.len += next.len;
            record.sent_at = record.sent_at.max(next.sent_at);
            record.transmissions = record.transmissions.max(next.transmissions);
        }
    }

    fn mark_lost_where(&mut self, mut is_lost: impl FnMut(&Record) -> Option<bool>) -> u32 {
        let mut marked = 0;
        for index in 0..self.records.len() {
            let record = self.records[index];
            match is_lost(&record) {
                None => break,
                Some(true) if record.fate == Fate::InFlight => {
                    self.set_fate(index, Fate::Lost);
                    marked += record.len;
                }
                Some(_) => {}
            }
        }
        marked
    }

    fn mark_head_lost(&mut self, len: u32) -> u32 {
        match self.records.front() {
            Some(front) if front.fate == Fate::InFlight => {
                if front.len > len {
                    self.split(0, front.start + u64::from(len));
                }
                self.set_fate(0, Fate::Lost);
                self.records[0].len
            }
            _ => 0,
        }
    }

    fn mark_all_lost(&mut self) {
        let reneged = self.records.front().is_some_and(|front| front.fate == Fate::Sacked);
        for index in 0..self.records.len() {
            let fate = self.records[index].fate;
            if fate == Fate::InFlight || (reneged && fate == Fate::Sacked) {
                self.set_fate(index, Fate::Lost);
            }
        }
    }

    fn unmark_lost(&mut self) {
        for index in 0..self.records.len() {
            if self.records[index].fate == Fate::Lost {
                self.set_fate(index, Fate::InFlight);
            }
        }
    }

    fn lost_within(&self, start: Position, end: Position) -> u32 {
        let from = self.records.partition_point(|record| record.end() <= start);
        let within = self.records.range(from..).take_while(|record| record.start < end);
        within.filter(|record| record.fate == Fate::Lost).map(|record| record.len).sum()
    }

    fn next_lost_index(&self) -> Option<usize> {
        let from = self.records.partition_point(|record| record.end() <= self.lost_from);
        (from..self.records.len()).find(|&index| self.records[index].fate == Fate::Lost)
    }

    fn retransmit_lost(&mut self, max_len: u32, now: Instant) -> Option<Record> {
        let index = self.next_lost_index()?;
        let record = self.retransmit(index, max_len, now);
        self.lost_from = record.end();
        Some(record)
    }

    fn retransmit_last(&mut self, max_len: u32, now: Instant) -> Option<Record> {
        let mut index = self.records.iter().rposition(|record| record.fate != Fate::Sacked)?;
        let record = self.records[index];
        if record.len > max_len {
            self.split(index, record.end() - u64::from(max_len));
            index += 1;
        }
        Some(self.retransmit(index, max_len, now))
    }

    fn retransmit(&mut self, index: usize, max_len: u32, now: Instant) -> Record {
        if self.records[index].len > max_len {
            let at = self.records[index].start + u64::from(max_len);
            self.split(index, at);
        }
        let (start, len) = (self.records[index].start, self.records[index].len);
        let sent = self.send_state(start, len, now);
        self.set_fate(index, Fate::InFlight);
        let record = &mut self.records[index];
        record.sent = sent;
        record.sent_at = now;
        record.transmissions = record.transmissions.saturating_add(1);
        *record
    }

    /// Cuts the record at `index` in two at `position`, which lies inside it.
    fn split(&mut self, index: usize, position: Position) {
        let mut tail = self.records[index];
        let head_len = (position - tail.start) as u32;
        debug_assert!(head_len > 0 && head_len < tail.len);
        self.records[index].len = head_len;
        tail.start = position;
        tail.len -= head_len;
        self.records.insert(index + 1, tail);
    }

    fn set_fate(&mut self, index: usize, fate: Fate) {
        let record = &mut self.records[index];
        let (old, len, start) = (record.fate, record.len, record.start);
        record.fate = fate;
        self.uncount(old, len);
        self.count(fate, len);
        if fate == Fate::Lost {
            self.lost_total = self.lost_total.wrapping_add(len);
            self.lost_from = self.lost_from.min(start);
        }
    }

    #[inline]
    fn count(&mut self, fate: Fate, len: u32) {
        match fate {
            Fate::InFlight => self.in_flight += len,
            Fate::Lost => self.lost += len,
            Fate::Sacked => self.sacked += len,
        }
    }

    #[inline]
    fn uncount(&mut self, fate: Fate, len: u32) {
        match fate {
            Fate::InFlight => self.in_flight -= len,
            Fate::Lost => self.lost -= len,
            Fate::Sacked => self.sacked -= len,
        }
    }

    fn is_consistent(&self, una: Position, nxt: Position) -> bool {
        let sum = |fate| self.records.iter().filter(|r| r.fate == fate).map(|r| r.len).sum::<u32>();
        let mut at = una;
        for record in &self.records {
            if record.start != at || record.len == 0 {
                return false;
            }
            at = record.end();
        }
        at == nxt
            && sum(Fate::InFlight) == self.in_flight
            && sum(Fate::Lost) == self.lost
            && sum(Fate::Sacked) == self.sacked
            && self.records.iter().all(|r| r.fate != Fate::Lost || r.end() > self.lost_from)
    }
}

#[cfg(test)]
mod tests;
