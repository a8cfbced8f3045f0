//! Output: the one place that decides what to send next.
//!
//! In order: a reset; the handshake; what is lost; new data; a probe; an acknowledgement. Every segment carries the
//! latest acknowledgement and window, so a batch of received segments is answered once.

mod ack_policy;
mod build;
mod nagle;
mod probe;

use base::Instant;
use wire::tcp::Flags;

use crate::congestion::CongestionControl;
use crate::connection::Connection;
use crate::recovery::Phase;
use crate::recovery::spurious::Forward;
use crate::segment::{OutputLimit, Position, SegmentOut};
use crate::send::scoreboard::Record;
use crate::state::State;
use crate::timer::{Stamp, Timer};

/// What waits to be sent besides data.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// An acknowledgement is due now.
    pub(crate) ack: bool,
    /// A reset is to be sent; the connection is closed.
    pub(crate) reset: bool,
    /// A window or keepalive probe is due.
    pub(crate) probe: bool,
    /// Nagle and silly-window avoidance are overridden once (RFC 1122 §4.2.3.4).
    pub(crate) force: bool,
    /// What follows the last of what is queued is on its way (`MSG_MORE`): a small segment waits for it.
    pub(crate) more: bool,
    /// What is queued goes whatever `TCP_CORK` says, once.
    pub(crate) push: bool,
    /// SND.NXT when the congestion window last stopped output: until that is acknowledged, the flight is limited by it.
    pub(crate) limited_to: Position,
    /// The most that was in flight at a time since nothing was.
    pub(crate) peak: u32,
    /// Full wire segments received since the last acknowledgement went out.
    pub(crate) unacknowledged: u16,
    /// How many acknowledgements are still sent at once at the start of a connection.
    pub(crate) quick_acks: u8,
    /// Window probes sent without an answer.
    pub(crate) probes: u8,
    /// Window probes sent since the window closed: each doubles the time to the next, answered or not.
    pub(crate) persist_backoff: u8,
    /// Keepalive probes sent without an answer.
    pub(crate) keepalives: u8,
}

impl Pending {
    pub(crate) const fn new() -> Self {
        Self {
            ack: false,
            reset: false,
            probe: false,
            force: false,
            more: false,
            push: false,
            limited_to: 0,
            peak: 0,
            unacknowledged: 0,
            quick_acks: 0,
            probes: 0,
            persist_backoff: 0,
            keepalives: 0,
        }
    }
}

impl Connection {
    /// The next segment to transmit; call until there is none. At most `limit.max_payload` bytes of payload, in multiples
    /// of the MSS where more follows.
    pub fn poll_segment(&mut self, now: Instant, limit: &OutputLimit) -> Option<SegmentOut> {
        let segment = match self.state {
            State::Closed => self.poll_reset(now),
            State::SynSent | State::SynReceived => self.poll_handshake(now, limit),
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.poll_synchronised(now, limit),
        };
        match &segment {
            Some(segment) => {
                let pieces = segment.len.div_ceil(u32::from(segment.segment_size)).max(1);
                self.stats.segments_out += u64::from(pieces);
                if segment.len > 0 {
                    self.stats.data_out = self.stats.data_out.wrapping_add(pieces);
                }
            }
            None => self.settle(now),
        }
        segment
    }

    /// Whether a poll now would give a segment, or would arm a timer that is missing. Cheap.
    #[inline]
    pub fn wants_output(&self, now: Instant) -> bool {
        if self.cut_through {
            return self.has_to_carry();
        }
        match self.state {
            State::Closed => self.pending.reset,
            State::SynSent | State::SynReceived => {
                (self.send.nxt == 0 && !self.awaits_data())
                    || self.syn_is_lost()
                    || self.pending.ack
                    || (self.is_early() && self.sendable(0) > 0 && !self.pacing_blocks(now))
            }
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => {
                self.pending.ack
                    || self.pending.probe
                    || self.recovery.probe.due
                    || (self.may_send_data(now) && (self.retransmission_len(0) > 0 || self.sendable(0) > 0))
                    || self.lacks_persist_timer()
            }
        }
    }

    fn poll_synchronised(&mut self, now: Instant, limit: &OutputLimit) -> Option<SegmentOut> {
        if self.ecn.owes_handshake_feedback() {
            return self.poll_ack(now);
        }
        let mut limit = *limit;
        // The urgent pointer counts from each segment's own number.
        if self.ecn.forbids_cutting() || self.sends_urgent() {
            limit.max_payload = 0;
        }
        let limit = &limit;
        if self.forward() == Forward::NewDataAllowed
            && let Some(segment) = self.poll_new_data(now, limit)
        {
            return Some(segment); // RFC 5682 §2.1 step 2b: new data before further retransmissions
        }
        self.poll_retransmission(now, limit)
            .or_else(|| self.poll_loss_probe(now))
            .or_else(|| self.poll_new_data(now, limit))
            .or_else(|| self.poll_probe(now))
            .or_else(|| self.poll_ack(now))
    }

    /// Pacing lets data go, or nothing would wake us when it does.
    #[inline]
    fn may_send_data(&self, now: Instant) -> bool {
        !self.pacing_blocks(now) || !self.timers.is_set(Timer::Pacing)
    }

    /// What the congestion window leaves.
    #[inline]
    pub(crate) fn congestion_allowance(&self) -> u32 {
        let (window, pipe) = (self.effective_window(), self.pipe());
        // A segment size that has grown beyond the window must not close it for good.
        let window = if pipe == 0 { window.max(self.send.mss.into()) } else { window };
        window.saturating_sub(pipe)
    }

    /// How much of the first lost range may be sent again now; 0: nothing is lost, or the window does not allow it.
    #[inline]
    fn retransmission_len(&self, max_payload: u32) -> u32 {
        let Some(lost) = self.send.scoreboard.next_lost() else { return 0 };
        let mss = u32::from(self.send.mss);
        let pipe = self.pipe();
        // With nothing in flight one segment may always go: a window can never be closed for good.
        let allowance =
            if pipe == 0 { self.congestion_allowance().max(mss) } else { self.congestion_allowance() };
        if allowance < lost.len.min(mss) {
            return 0;
        }
        // A peer that has taken its window back still gets the first segment (RFC 9293 §3.8.6).
        let edge = self.send.right_edge();
        if lost.start >= edge && lost.start > self.send.una {
            return 0;
        }
        let most = max_payload.max(mss).min(allowance);
        let most = if most >= mss { most / mss * mss } else { most };
        lost.len.min(most)
    }

    fn poll_retransmission(&mut self, now: Instant, limit: &OutputLimit) -> Option<SegmentOut> {
        let len = self.retransmission_len(limit.max_payload);
        if len == 0 || self.pacing_blocks(now) {
            return None;
        }
        let record = self.send.scoreboard.retransmit_lost(len, now)?;
        if record.start == self.send.una && self.recovery.phase == Phase::Fast {
            // What would acknowledge it is a round trip away again, as after a partial acknowledgement (RFC 6582 §3.2 step 3).
            self.restart_retransmit_timer(now);
        }
        Some(self.build_retransmission(now, &record))
    }

    pub(crate) fn build_retransmission(&mut self, now: Instant, record: &Record) -> SegmentOut {
        let payload = self.send.payload_in(record.start, record.len);
        self.stats.rare().retransmissions += 1;
        self.stats.rare().bytes_retransmitted += u64::from(payload);
        self.note_retransmission(now, record);
        self.recovery.prr.on_sent(record.len);
        self.note_paced(now, record.len);
        self.after_data_sent(now);
        self.build_data(now, record.start, record.len)
    }

    fn poll_new_data(&mut self, now: Instant, limit: &OutputLimit) -> Option<SegmentOut> {
        if self.sendable(limit.max_payload) == 0 || self.pacing_blocks(now) {
            return None;
        }
        if self.send.scoreboard.is_empty() {
            self.restart_after_idle(now);
        }
        if self.search.is_some()
            && let Some(probe) = self.poll_mtu_probe(now)
        {
            return Some(probe);
        }
        if self.is_held_for_probe() {
            return None;
        }
        let len = self.sendable(limit.max_payload);
        (len > 0).then(|| self.send_new(now, len))
    }

    /// Sends the next `len` positions for the first time.
    pub(crate) fn send_new(&mut self, now: Instant, len: u32) -> SegmentOut {
        let start = self.send.nxt;
        let payload = self.send.payload_in(start, len);
        if !payload.is_multiple_of(u32::from(self.send.mss)) {
            self.send.small_end = start + u64::from(len);
        }
        if self.send.scoreboard.is_empty() {
            self.recovery.progress_at = now;
        }
        self.send.scoreboard.push(Record::new(start, len, now));
        self.send.nxt += u64::from(len);
        self.recovery.prr.on_sent(len);
        self.note_paced(now, len);
        self.pending.force = false;
        self.timers.clear(Timer::Persist);
        self.note_interaction(now);
        self.after_data_sent(now);
        self.schedule_loss_probe(now);
        let mut segment = self.build_data(now, start, len);
        let (ecn, flags) = self.ecn_for_new_data();
        segment.ecn = ecn;
        segment.header.flags |= flags;
        segment
    }

    /// RFC 6298 §5.1: the timer runs while anything is in flight.
    fn after_data_sent(&mut self, now: Instant) {
        self.sent_at = Stamp::at(now);
        if !self.timers.is_set(Timer::Retransmit) {
            self.restart_retransmit_timer(now);
        }
    }

    /// RFC 5681 §4.1: after an idle time longer than the timeout, the window is no longer known to be right.
    fn restart_after_idle(&mut self, now: Instant) {
        let rto = self.rtt.base_rto(&self.rto_bounds());
        let idle = self.sent_at.elapsed(now);
        if idle > rto {
            let initial = u32::from(self.settings.initial_congestion_window) * u32::from(self.send.mss);
            self.congestion.on_idle(idle, rto, initial);
            self.sent_at = Stamp::at(now);
        }
    }

    /// Nothing more goes out now: remember why, and arm what must wake us.
    fn settle(&mut self, now: Instant) {
        self.account(now);
        if !self.state.sends_data() {
            return;
        }
        let waits = self.send.nxt < self.send.end() || self.send.scoreboard.lost() > 0;
        if self.congestion_allowance() >= u32::from(self.send.mss) && !self.pacing_blocks(now) {
            // The application or the peer's window limits: the rate says nothing about the path.
            self.send.scoreboard.note_app_limited();
        }
        self.note_window_use();
        if waits && self.pacing_blocks(now) && (self.retransmission_len(0) > 0 || self.sendable(0) > 0) {
            self.arm_pacing();
        }
        self.pending.force = false;
        self.pending.push = false;
        if self.lacks_persist_timer() {
            self.begin_persist(now);
        }
    }

    /// How much of the congestion window is in use. A window that is just full is as good as one that holds something back.
    fn note_window_use(&mut self) {
        if self.congestion_allowance() < u32::from(self.send.mss) {
            self.pending.limited_to = self.send.nxt;
        }
        self.pending.peak = self.pending.peak.max(self.pipe());
    }

    fn poll_reset(&mut self, now: Instant) -> Option<SegmentOut> {
        if !core::mem::take(&mut self.pending.reset) {
            return None;
        }
        Some(self.build(now, self.send.nxt, Flags::RST | Flags::ACK))
    }

    /// A SYN or SYN-ACK, the first time or again.
    fn poll_handshake(&mut self, now: Instant, limit: &OutputLimit) -> Option<SegmentOut> {
        let mut data = 0;
        if self.send.nxt == 0 {
            if self.awaits_data() {
                return None;
            }
            data = self.syn_payload_len(self.syn_options(now).emitted_len());
            self.note_syn_sent(now, data);
        } else if let Some(syn) = self.retransmit_syn(now) {
            self.stats.rare().retransmissions += 1;
            self.abandon_fast_open();
            self.fall_back_from_ecn(syn.transmissions);
        } else {
            let data = if self.is_early() { self.poll_new_data(now, limit) } else { None };
            return data.or_else(|| self.poll_ack(now));
        }
        if !self.timers.is_set(Timer::Retransmit) {
            self.restart_retransmit_timer(now);
        }
        Some(self.build_syn(now, data))
    }
}
