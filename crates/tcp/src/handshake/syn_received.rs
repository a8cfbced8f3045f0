//! SYN-RECEIVED, and what both ways of opening do when our SYN is acknowledged.

use core::ops::ControlFlow;

use base::{Duration, Instant};
use wire::tcp::Flags;

use crate::congestion::{Congestion, CongestionControl};
use crate::connection::Connection;
use crate::limited::{Ledger, LimitedBy};
use crate::segment::{Position, SegmentIn, position_of};
use crate::state::{Event, State};
use crate::timer::Stamp;
use crate::verdict::Verdict;

/// RFC 6298 §5.7: after a retransmitted SYN, the first timeout for data.
const FALLBACK_RTO_MS: u32 = 3000;

impl Connection {
    /// What SYN-RECEIVED sees before the numbered steps: a repeated SYN, and the SYN-ACK of a simultaneous open. Both
    /// lie left of the window, where step 1 would answer them with a bare acknowledgement.
    pub(crate) fn on_segment_in_syn_received(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
    ) -> ControlFlow<Verdict> {
        let flags = segment.header.flags;
        let ack = position_of(segment.header.ack, self.send.iss, self.send.una);
        if flags.contains(Flags::ACK)
            && !flags.contains(Flags::RST)
            && (ack <= self.send.una as i64 || ack > self.send.nxt as i64)
        {
            // RFC 9293 §3.5.2, group 2: while not synchronised, an acknowledgement of what was not sent is answered with a
            // reset, wherever the segment lies.
            return ControlFlow::Break(Verdict::HandshakeReset);
        }
        if !flags.contains(Flags::SYN) || segment.header.seq != self.recv.irs || flags.contains(Flags::RST) {
            return ControlFlow::Continue(());
        }
        if !flags.contains(Flags::ACK) {
            // Our SYN-ACK was lost, or is on its way: say it again, within the limit for provoked answers.
            if self.challenges.permit(now) {
                self.repeat_syn();
            }
            return ControlFlow::Break(Verdict::Duplicate);
        }
        // Simultaneous open (RFC 9293 §3.5, figure 8): the SYN was known before, its acknowledgement is new.
        self.send.window = u32::from(segment.header.window);
        self.send.max_window = self.send.max_window.max(self.send.window);
        self.on_syn_acknowledged(now, segment);
        self.on_syn_data_answered(ack as Position);
        self.on_event(Event::SynAckReceived);
        self.on_established(now);
        ControlFlow::Break(Verdict::Accepted)
    }

    /// Our SYN is acknowledged: the first round trip, and the first congestion window.
    pub(crate) fn on_syn_acknowledged(&mut self, now: Instant, segment: &SegmentIn<'_>) {
        let Some(syn) = self.send.scoreboard.front().copied() else { return };
        let granularity = self.settings.granularity();
        self.send.scoreboard.acknowledge(1, |_| {});
        self.send.una = 1;
        if !syn.was_retransmitted() {
            let sample = segment.arrival.saturating_since(syn.sent_at);
            self.rtt.on_sample(now, sample, granularity);
        } else if let (true, Some(stamps)) = (self.settings.timestamps, segment.header.options.timestamps) {
            let sample = self.timestamp(segment.arrival).wrapping_sub(stamps.echo);
            self.rtt.on_sample(now, Duration::from_millis(sample.max(1).into()), granularity);
        } else {
            self.settings.rto_initial_ms = self.settings.rto_initial_ms.max(FALLBACK_RTO_MS);
        }
        self.begin_mtu_search(now);
        // RFC 6928 §2: one segment if the SYN had to be repeated more than once.
        let segments = if syn.transmissions > 2 { 1 } else { self.settings.initial_congestion_window };
        self.open_congestion_window(segments);
        self.rtt.backoff = 0;
        self.recovery.timeouts = 0;
        self.recovery.progress_at = now;
        if self.send.scoreboard.is_empty() {
            self.timers.clear(crate::timer::Timer::Retransmit);
        } else {
            self.restart_retransmit_timer(now); // data went with the SYN, or before its acknowledgement
        }
    }

    /// The first congestion window.
    pub(crate) fn open_congestion_window(&mut self, segments: u8) {
        let window = u32::from(segments) * u32::from(self.send.mss);
        let (algorithm, ssthresh) = (self.congestion.algorithm(), self.congestion.ssthresh());
        self.congestion = Congestion::restored(algorithm, window, ssthresh);
    }

    /// Our SYN, or SYN-ACK, is to go out again; data that went with it or after it waits for what the peer says of it.
    pub(crate) fn repeat_syn(&mut self) {
        self.send.scoreboard.mark_head_lost(1);
    }

    /// Data may flow.
    pub(crate) fn on_established(&mut self, now: Instant) {
        debug_assert_eq!(self.state, State::Established);
        self.opening = None;
        self.restart_quick_acks();
        self.sent_at = Stamp::at(now);
        self.stats.data_at = Stamp::at(now);
        self.ledger = Some(Ledger::starting(now, LimitedBy::default()));
        self.arm_keepalive(now);
        if self.send.fin_queued {
            // The owner shut sending down while the connection was being opened.
            self.on_event(Event::Shutdown);
        }
    }
}
