//! Step 5: the acknowledgement (RFC 9293 §3.10.7.4, RFC 5961 §5), with the SACK blocks and the window that come with it.

use core::ops::ControlFlow;

use arrayvec::ArrayVec;
use base::{Duration, Instant, SeqNumber};
use wire::tcp::{Flags, Header, SackBlock};

use crate::congestion::{AckSample, CongestionControl};
use crate::connection::Connection;
use crate::recovery::rate::RateSample;
use crate::recovery::{AckSummary, Phase, Repair};
use crate::segment::{Position, SegmentIn, position_of};
use crate::send::scoreboard::{Fate, Record};
use crate::state::{Event, State};
use crate::timer::Timer;
use crate::verdict::Verdict;

impl Connection {
    pub(crate) fn step_5_ack(&mut self, now: Instant, segment: &SegmentIn<'_>) -> ControlFlow<Verdict> {
        if !segment.header.flags.contains(Flags::ACK) {
            return ControlFlow::Break(Verdict::NoAck);
        }
        let ack = position_of(segment.header.ack, self.send.iss, self.send.una);
        if self.state == State::SynReceived {
            self.on_ack_in_syn_received(now, segment, ack)?;
        }
        // A segment whose acknowledgement is not believed leaves no timestamp behind either.
        let start = position_of(segment.header.seq, self.recv.irs, self.recv.nxt);
        // RFC 5961 §5: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT.
        if ack > self.send.nxt as i64 {
            self.challenge(now);
            return ControlFlow::Break(Verdict::AckTooNew);
        }
        if ack < self.send.una as i64 {
            // Nothing before the SYN's acknowledgement was ever acknowledged.
            if ack < (self.send.una as i64 - i64::from(self.send.max_window)).max(1) {
                self.challenge(now);
                return ControlFlow::Break(Verdict::AckTooOld);
            }
            self.update_ts_recent(now, &segment.header, start);
            self.on_old_ack(now, segment, ack as Position);
            return ControlFlow::Continue(()); // its text may still be new
        }
        self.update_ts_recent(now, &segment.header, start);
        self.on_acceptable_ack(now, segment, ack as Position);
        ControlFlow::Continue(())
    }

    fn on_ack_in_syn_received(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        ack: i64,
    ) -> ControlFlow<Verdict> {
        if ack <= self.send.una as i64 || ack > self.send.nxt as i64 {
            return ControlFlow::Break(Verdict::HandshakeReset);
        }
        if self.defers(segment) {
            return ControlFlow::Break(Verdict::AcceptanceDeferred);
        }
        self.on_handshake_feedback(segment);
        self.on_syn_acknowledged(now, segment);
        self.on_event(Event::SynAcknowledged);
        self.on_established(now);
        ControlFlow::Continue(())
    }

    /// An acknowledgement that advances SND.UNA, without SACK blocks, while nothing is being recovered.
    pub(crate) fn on_new_ack(&mut self, now: Instant, segment: &SegmentIn<'_>, ack: Position) {
        self.update_window(&segment.header);
        let mut summary = AckSummary {
            prior_in_flight: self.pipe(),
            lost_total: self.send.scoreboard.lost_total(),
            echo: self.echo_of(segment),
            ..AckSummary::default()
        };
        self.advance_una(segment, ack, &mut summary);
        self.measure_round_trip(now, segment, &summary);
        self.grow_window(segment.arrival, &summary);
        self.after_ack(now, &summary);
    }

    /// SND.UNA <= SEG.ACK <= SND.NXT.
    fn on_acceptable_ack(&mut self, now: Instant, segment: &SegmentIn<'_>, ack: Position) {
        let window_changed = self.update_window(&segment.header);
        let mut summary = AckSummary {
            prior_in_flight: self.pipe(),
            lost_total: self.send.scoreboard.lost_total(),
            echo: self.echo_of(segment),
            is_duplicate: ack == self.send.una
                && !self.send.scoreboard.is_empty()
                && segment.sequence_len() == 0
                && !window_changed,
            ..AckSummary::default()
        };
        // In the order of the sequence space, so that RACK does not take one acknowledgement for reordering.
        self.advance_una(segment, ack, &mut summary);
        if self.settings.sack && !segment.header.options.sack.is_empty() {
            self.on_sack_blocks(segment, ack, &mut summary);
        }
        self.on_ecn_of_ack(now, segment, &summary);
        self.measure_round_trip(now, segment, &summary);
        let relevant = summary.delivered > 0 || summary.is_duplicate || summary.duplicate_sack;
        if relevant {
            self.on_ack_of_probe(now, &summary);
            self.on_ack_evidence(now, segment.arrival, &mut summary);
            self.grow_window(segment.arrival, &summary);
        }
        self.after_ack(now, &summary);
    }

    /// An acknowledgement that another one overtook: what it reports selectively may still be news (Linux takes it, too).
    fn on_old_ack(&mut self, now: Instant, segment: &SegmentIn<'_>, ack: Position) {
        if !self.settings.sack || segment.header.options.sack.is_empty() {
            return;
        }
        let mut summary = AckSummary {
            prior_in_flight: self.pipe(),
            lost_total: self.send.scoreboard.lost_total(),
            echo: self.echo_of(segment),
            ..AckSummary::default()
        };
        self.on_sack_blocks(segment, ack, &mut summary);
        if summary.delivered > 0 || summary.duplicate_sack {
            self.on_ack_of_probe(now, &summary);
            self.on_ack_evidence(now, segment.arrival, &mut summary);
            self.grow_window(segment.arrival, &summary);
        }
    }

    /// The peer's window, if this segment is newer than the one it was last taken from. Returns whether it changed.
    ///
    /// Call it before SND.UNA advances. A segment that acknowledges new data is newer by that alone, even if another one
    /// from further ahead in the stream overtook it: keeping the old window while SND.UNA moves would move the right edge
    /// beyond what the peer ever offered.
    pub(crate) fn update_window(&mut self, header: &Header) -> bool {
        let seq = position_of(header.seq, self.recv.irs, self.recv.nxt).max(0) as Position;
        let advances = self.send.seq(self.send.una).before(header.ack);
        // SND.WL2 is never ahead of SND.UNA, so the comparison with SEG.ACK always holds here.
        if seq < self.send.window_seq && !advances {
            return false;
        }
        self.send.window_seq = seq;
        let window = u32::from(header.window) << self.send.scale;
        let changed = window != self.send.window;
        self.send.window = window;
        self.send.max_window = self.send.max_window.max(window);
        changed
    }

    fn echo_of(&self, segment: &SegmentIn<'_>) -> Option<u32> {
        if !self.settings.timestamps {
            return None;
        }
        segment.header.options.timestamps.map(|stamps| stamps.echo)
    }

    /// Selective acknowledgements (RFC 2018) and, in the first block, duplicate reports (RFC 2883).
    fn on_sack_blocks(&mut self, segment: &SegmentIn<'_>, ack: Position, summary: &mut AckSummary) {
        let blocks = &segment.header.options.sack;
        let mut ranges = ArrayVec::<(Position, Position), 4>::new();
        for (index, block) in blocks.iter().enumerate() {
            let Some((start, end)) = self.block_positions(block) else { continue };
            let inside_next = blocks
                .get(1)
                .and_then(|next| self.block_positions(next))
                .is_some_and(|(s, e)| start >= s && end <= e);
            if index == 0 && (end <= ack || inside_next) {
                summary.duplicate_sack = true;
                self.stats.rare().duplicate_sacks += 1;
                self.note_duplicate_sack((end - start) as u32);
                self.recovery.rack.on_duplicate_sack(ack, self.send.nxt);
                continue;
            }
            let first = start.max(self.send.una); // an old one may report what is acknowledged by now
            if start >= ack && first < end && end <= self.send.nxt {
                ranges.push((first, end));
            }
        }
        ranges.sort_unstable();
        for (start, end) in ranges {
            self.on_sack_block(segment, start, end, summary);
        }
    }

    /// The positions of a block that makes sense: not empty, not beyond what was sent, not absurdly old.
    fn block_positions(&self, block: &SackBlock) -> Option<(Position, Position)> {
        let at = |seq: SeqNumber| position_of(seq, self.send.iss, self.send.una);
        let (start, end) = (at(block.start), at(block.end));
        let oldest = (self.send.una as i64 - i64::from(self.send.max_window)).max(1);
        (start >= oldest && start < end && end <= self.send.nxt as i64)
            .then_some((start as Position, end as Position))
    }

    fn on_sack_block(
        &mut self,
        segment: &SegmentIn<'_>,
        start: Position,
        end: Position,
        summary: &mut AckSummary,
    ) {
        let max_records = 2 * (self.send.outstanding() as usize / usize::from(self.send.mss)) + 64;
        let (rtt_floor, echo, offset) = (self.rtt.min_rtt, summary.echo, self.settings.timestamp_offset);
        let high = self.recovery.high;
        let rack = &mut self.recovery.rack;
        let delivery = &mut self.send.scoreboard;
        delivery.sack(start, end, max_records, |record| {
            summary.delivered += record.len;
            summary.newly_sacked += record.len;
            note_delivery(record, high, summary);
            rack.on_delivered(record, segment.arrival, rtt_floor, echo_is_older(echo, record, offset));
        });
    }

    /// Takes what is cumulatively acknowledged off the scoreboard.
    fn advance_una(&mut self, segment: &SegmentIn<'_>, ack: Position, summary: &mut AckSummary) {
        if ack == self.send.una {
            return;
        }
        summary.advanced = (ack - self.send.una) as u32;
        self.send.una = ack;
        // Without SACK: one segment filled the hole, what stood behind it had been counted as delivered.
        let known = self.send.scoreboard.confirm(summary.advanced.saturating_sub(u32::from(self.send.mss)));
        let (rtt_floor, echo, offset) = (self.rtt.min_rtt, summary.echo, self.settings.timestamp_offset);
        let high = self.recovery.high;
        let rack = &mut self.recovery.rack;
        self.send.scoreboard.acknowledge(ack, |record| {
            if record.fate == Fate::Sacked {
                return; // known before
            }
            summary.delivered += record.len;
            if record.was_retransmitted() {
                summary.retransmitted_advanced += record.len;
            }
            note_delivery(record, high, summary);
            rack.on_delivered(record, segment.arrival, rtt_floor, echo_is_older(echo, record, offset));
        });
        summary.delivered = summary.delivered.saturating_sub(known);
    }

    /// RFC 6298 §3 and §4: from an unambiguous transmission, else from the echoed timestamp (RFC 7323 §4).
    #[inline]
    pub(crate) fn measure_round_trip(&mut self, now: Instant, segment: &SegmentIn<'_>, summary: &AckSummary) {
        let granularity = self.settings.granularity();
        // Karn's rule for the whole acknowledgement: behind a retransmission, the originals had to wait for it.
        let unambiguous = summary.sent_at.filter(|_| !summary.retransmitted_delivered);
        let sample = match (unambiguous, summary.echo) {
            (Some(sent_at), _) => segment.arrival.saturating_since(sent_at),
            (None, Some(echo)) if summary.advanced > 0 && echo != 0 => {
                let elapsed = self.timestamp(segment.arrival).wrapping_sub(echo);
                if elapsed > i32::MAX as u32 {
                    return;
                }
                Duration::from_millis(elapsed.max(1).into())
            }
            _ => return,
        };
        self.rtt.on_sample(now, sample, granularity);
        self.rtt.backoff = 0; // RFC 6298 §5.7: a valid sample ends the back-off
    }

    /// The congestion window grows by what was delivered, outside fast recovery.
    #[inline]
    pub(crate) fn grow_window(&mut self, now: Instant, summary: &AckSummary) {
        // Duplicates alone do not make it grow (RFC 3042 §2), unless they are known to come from reordering.
        let progress =
            summary.advanced > 0 || (summary.newly_sacked > 0 && self.recovery.rack.reordering_seen);
        let rate = self.sample_rate(now, summary);
        let is_model_based = self.congestion.is_model_based();
        if !is_model_based && (summary.delivered == 0 || !progress || self.recovery.phase == Phase::Fast) {
            return;
        }
        let window_limited = self.send.una <= self.pending.limited_to
            || (self.congestion.window() < self.congestion.ssthresh()
                && self.congestion.window() / 2 < self.pending.peak.max(summary.prior_in_flight));
        self.congestion.on_ack(&AckSample {
            now,
            delivered: summary.delivered,
            window_limited,
            mss: u32::from(self.send.mss),
            una: self.send.una,
            nxt: self.send.nxt,
            rtt: self.recovery.rack.rtt,
            srtt: self.rtt.srtt,
            in_flight: self.pipe(),
            rate,
        });
        if is_model_based && self.sends_below_its_means() {
            self.send.scoreboard.note_app_limited();
        }
    }

    /// What is delivered now says little about the path: the round trip is being probed (draft-ietf-ccwg-bbr §4.3.4.4
    /// marks that as limited by the application), or the window starts again from one segment, or what goes out is
    /// partly there already.
    fn sends_below_its_means(&self) -> bool {
        match self.recovery.phase {
            Phase::Open => self.congestion.is_probing_rtt(),
            Phase::Fast => self.congestion.is_probing_rtt() || self.recovery.repair == Repair::All,
            Phase::Timeout => true,
        }
    }

    /// The delivery rate that this acknowledgement shows: to the algorithm if it is based on a model, and once a round
    /// trip to the ledger.
    #[inline]
    fn sample_rate(&mut self, now: Instant, summary: &AckSummary) -> Option<RateSample> {
        let newest = summary.newest?;
        let board = &mut self.send.scoreboard;
        let delivered = board.delivered(self.send.una);
        let due = board.begins_round(newest.sent.delivered, delivered);
        let is_model_based = self.congestion.is_model_based();
        let sample = (due || is_model_based)
            .then(|| RateSample::new(&newest, now, delivered, summary.lost_total, self.rtt.min_rtt));
        board.note_delivered(now, newest.sent_at, delivered);
        if let (true, Some(sample), Some(ledger)) = (due, &sample, &mut self.ledger) {
            ledger.note_rate(sample);
        }
        sample.filter(|_| is_model_based)
    }

    /// Timers and states after an acknowledgement.
    fn after_ack(&mut self, now: Instant, summary: &AckSummary) {
        if self.send.window > 0 {
            self.pending.probes = 0;
            self.pending.persist_backoff = 0;
        }
        if self.send.scoreboard.is_empty() {
            self.congestion.on_flight_end();
            self.pending.peak = 0;
            self.end_undo_without_duplicates();
            self.timers.clear(Timer::Retransmit); // RFC 6298 §5.2
            self.timers.clear(Timer::Reordering);
            self.timers.clear(Timer::LossProbe);
            self.pending.probes = 0; // it answered
            self.recovery.progress_at = if summary.advanced > 0 || self.send.end() == self.send.nxt {
                now
            } else {
                self.recovery.progress_at
            };
            self.account(now); // no send buffer is full any more
        }
        if summary.advanced == 0 {
            return;
        }
        self.pending.more = false;
        self.recovery.timeouts = 0;
        self.recovery.progress_at = now;
        self.soft_error = None;
        self.on_ack_of_sizes(now, summary.largest);
        if self.recovery.phase == Phase::Open && self.recovery.high < self.send.una {
            self.recovery.high = 0; // so that it never lies a wrap behind
        }
        if !self.send.scoreboard.is_empty() {
            self.restart_retransmit_timer(now); // RFC 6298 §5.3
            self.schedule_loss_probe(now);
        }
        if self.send.fin_acknowledged() {
            self.on_fin_acknowledged(now);
        }
    }

    pub(crate) fn on_fin_acknowledged(&mut self, now: Instant) {
        if !self.on_event(Event::FinAcknowledged) {
            return;
        }
        match self.state {
            State::TimeWait => self.enter_time_wait(now),
            State::FinWait2 if self.orphaned => self.start_linger(now),
            State::FinWait2
            | State::Closed
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::CloseWait
            | State::Closing
            | State::LastAck => {}
        }
    }
}

#[inline]
fn note_delivery(record: &Record, high: Position, summary: &mut AckSummary) {
    let is_newer = |newest: Record| (record.sent_at, record.start) >= (newest.sent_at, newest.start);
    if summary.newest.is_none_or(is_newer) {
        summary.newest = Some(*record);
    }
    summary.largest = summary.largest.max(record.len);
    if record.was_retransmitted() {
        summary.retransmitted_delivered = true;
        return;
    }
    summary.original_delivered = true;
    summary.earlier_original_delivered |= record.end() <= high;
    // The oldest one: its time includes what the peer held its acknowledgement back.
    summary.sent_at.get_or_insert(record.sent_at);
}

/// Whether the echoed timestamp is from before the record's last transmission (RFC 8985 §6.2 step 2).
fn echo_is_older(echo: Option<u32>, record: &Record, offset: u32) -> bool {
    let stamp = (record.sent_at.as_millis() as u32).wrapping_add(offset);
    echo.is_some_and(|echo| (echo.wrapping_sub(stamp) as i32) < 0)
}
