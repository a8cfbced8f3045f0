//! What an owner can ask of a connection, and the options it can set.

use core::net::SocketAddr;

use base::{Duration, Instant};

use crate::config::{CongestionAlgorithm, Keepalive};
use crate::congestion::{Congestion, CongestionControl};
use crate::connection::Connection;
use crate::error::Error;
use crate::recovery::Phase;
use crate::state::State;
use crate::stats::Stats;
use crate::timer::Timer;

/// The present state of a connection in numbers (`tcp_info`).
#[derive(Clone, Debug)]
pub struct Info {
    /// The state.
    pub state: State,
    /// Where recovery stands.
    pub phase: Phase,
    /// Smoothed round trip; zero before the first sample.
    pub srtt: Duration,
    /// Its variation.
    pub rttvar: Duration,
    /// The smallest recent round trip.
    pub min_rtt: Duration,
    /// The retransmission timeout, back-off included.
    pub rto: Duration,
    /// How often the timeout is doubled now.
    pub backoff: u8,
    /// Effective MSS: payload bytes of a full segment.
    pub mss: u16,
    /// The size of the segments that the peer sends.
    pub receive_mss: u16,
    /// Congestion window in bytes.
    pub congestion_window: u32,
    /// Slow-start threshold in bytes; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Bytes in flight.
    pub in_flight: u32,
    /// Bytes marked lost and not yet sent again.
    pub lost: u32,
    /// Bytes that the peer holds out of order.
    pub sacked: u32,
    /// The peer's window in bytes.
    pub send_window: u32,
    /// Our window in bytes, as the peer was told.
    pub receive_window: u32,
    /// The most that our window may be at present.
    pub receive_limit: u32,
    /// The peer's window shift, if window scaling is in use.
    pub send_scale: Option<u8>,
    /// Our window shift, if window scaling is in use.
    pub receive_scale: Option<u8>,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// Selective acknowledgements are in use.
    pub sack: bool,
    /// Explicit congestion notification is in use.
    pub ecn: bool,
    /// Its feedback is accurate (RFC 9768).
    pub accurate_ecn: bool,
    /// RACK has seen reordering.
    pub reordering_seen: bool,
}

impl Connection {
    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Our address.
    pub const fn local(&self) -> SocketAddr {
        self.ends.local()
    }

    /// The peer's address.
    pub const fn remote(&self) -> SocketAddr {
        self.ends.remote()
    }

    /// Why the connection ended, if it did not end in order.
    pub const fn error(&self) -> Option<Error> {
        self.error
    }

    /// The error that may pass (an ICMP message), for `SO_ERROR`; forgotten when the peer is heard.
    pub const fn soft_error(&self) -> Option<Error> {
        self.soft_error
    }

    /// The send stream's bytes before this offset are acknowledged: their memory is free.
    pub fn acked_to(&self) -> u64 {
        Self::offset_of(self.send.una.min(self.send.queued))
    }

    /// The send stream's bytes before this offset have been sent at least once.
    pub fn sent_to(&self) -> u64 {
        Self::offset_of(self.send.nxt.min(self.send.queued))
    }

    /// The send stream's bytes before this offset are queued.
    pub fn queued_to(&self) -> u64 {
        Self::offset_of(self.send.queued)
    }

    /// The receive stream's bytes before this offset are in place and in order.
    pub fn received_to(&self) -> u64 {
        Self::offset_of(self.recv.data_end())
    }

    /// The receive stream's bytes before this offset have been read by the application.
    pub fn consumed_to(&self) -> u64 {
        Self::offset_of(self.recv.consumed)
    }

    /// When the application has read up to this offset, the connection wants to hear of it by
    /// [`handle_consumed`](Self::handle_consumed): the peer is to be told of the open window. Hearing of every read is
    /// right too. Ask again after every segment: the offset falls when the window closes, and may then be one that the
    /// application has already passed.
    pub fn consume_notify_at(&self) -> u64 {
        Self::offset_of(self.recv.update_due_at())
    }

    /// The peer's FIN was received, and everything before it.
    pub fn is_peer_closed(&self) -> bool {
        self.recv.is_finished()
    }

    /// We have shut sending down.
    pub const fn is_send_closed(&self) -> bool {
        self.send.fin_queued
    }

    /// Our FIN, and so everything before it, is acknowledged.
    pub fn is_send_acknowledged(&self) -> bool {
        self.send.fin_acknowledged()
    }

    /// It was opened by the peer.
    pub const fn is_passive(&self) -> bool {
        self.passive
    }

    /// The owner has closed it.
    pub const fn is_orphaned(&self) -> bool {
        self.orphaned
    }

    /// Congestion window in bytes.
    pub fn congestion_window(&self) -> u32 {
        self.effective_window()
    }

    /// Smoothed round trip; `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.has_sample().then_some(self.rtt.srtt)
    }

    /// Effective MSS: the payload bytes of a full segment.
    pub const fn mss(&self) -> u16 {
        self.send.mss
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.stats.totals()
    }

    /// Everything in numbers.
    pub fn info(&self) -> Info {
        let scaled = self.settings.window_scaling;
        Info {
            state: self.state,
            phase: self.recovery.phase,
            srtt: self.rtt.srtt,
            rttvar: self.rtt.rttvar,
            min_rtt: self.rtt.min_rtt,
            rto: self.rtt.rto(&self.rto_bounds()),
            backoff: self.rtt.backoff,
            mss: self.send.mss,
            receive_mss: self.recv.segment_size,
            congestion_window: self.effective_window(),
            ssthresh: self.congestion.ssthresh(),
            in_flight: self.pipe(),
            lost: self.send.scoreboard.lost(),
            sacked: self.send.scoreboard.sacked(),
            send_window: self.send.window,
            receive_window: self.recv.window() as u32,
            receive_limit: self.recv.limit,
            send_scale: scaled.then_some(self.send.scale),
            receive_scale: scaled.then_some(self.recv.scale),
            timestamps: self.settings.timestamps,
            sack: self.settings.sack,
            ecn: self.settings.ecn,
            accurate_ecn: self.settings.ecn && self.ecn.accurate,
            reordering_seen: self.recovery.rack.reordering_seen,
        }
    }

    /// `TCP_NODELAY`: small segments are not held back. Setting it lets go what waits, under `TCP_CORK` too (tcp(7)).
    pub fn set_nodelay(&mut self, on: bool) {
        self.settings.nodelay = on;
        if on {
            self.pending.more = false;
            self.pending.push = true;
        }
    }

    /// Whether `TCP_NODELAY` is set.
    pub const fn nodelay(&self) -> bool {
        self.settings.nodelay
    }

    /// `TCP_CORK`: only full segments go out, for at most 200 ms.
    pub fn set_cork(&mut self, on: bool) {
        self.settings.cork = on;
        if !on {
            self.pending.more = false;
            self.timers.clear(Timer::Persist);
        }
    }

    /// Whether `TCP_CORK` is set.
    pub const fn cork(&self) -> bool {
        self.settings.cork
    }

    /// `TCP_QUICKACK`: acknowledge at once.
    pub fn set_quickack(&mut self, on: bool) {
        self.settings.quickack = on;
        if on && self.timers.is_set(Timer::DelayedAck) {
            self.timers.clear(Timer::DelayedAck);
            self.pending.ack = true;
        }
    }

    /// Whether `TCP_QUICKACK` is set.
    pub const fn quickack(&self) -> bool {
        self.settings.quickack
    }

    /// Keepalive probes: `SO_KEEPALIVE` with its three times.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<Keepalive>) {
        self.settings.set_keepalive(keepalive);
        self.pending.keepalives = 0;
        self.arm_keepalive(now);
    }

    /// The keepalive in use.
    pub fn keepalive(&self) -> Option<Keepalive> {
        self.settings.keepalive()
    }

    /// `TCP_CONGESTION`: another congestion control goes on from the present window and threshold.
    pub fn set_congestion(&mut self, algorithm: CongestionAlgorithm) {
        if algorithm == self.congestion.algorithm() {
            return;
        }
        // What could be undone was the other algorithm's.
        self.end_undo();
        let (window, ssthresh) = (self.congestion.window(), self.congestion.ssthresh());
        self.congestion = Congestion::restored(algorithm, window, ssthresh);
    }

    /// The congestion control in use.
    pub fn congestion(&self) -> CongestionAlgorithm {
        self.congestion.algorithm()
    }

    /// `TCP_LINGER2`: how long FIN-WAIT-2 lasts after the owner has closed; zero: the connection is reset instead.
    pub fn set_linger2(&mut self, time: Duration) {
        self.settings.fin_wait_2_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    }

    /// `TCP_USER_TIMEOUT`.
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        self.settings.set_user_timeout(timeout);
    }

    /// The user timeout in use.
    pub fn user_timeout(&self) -> Option<Duration> {
        self.settings.user_timeout()
    }

    /// The receive window's size in bytes (`SO_RCVBUF`): it is no longer tuned. What was advertised before stays
    /// promised; the window scale was decided with the SYN and bounds it too.
    pub fn set_receive_limit(&mut self, max_window: u32) {
        let scale = if self.settings.window_scaling { self.recv.scale } else { 0 };
        self.recv.max_limit = max_window.clamp(1, 65_535 << scale);
        self.recv.limit = self.recv.max_limit;
    }

    /// What the receive buffer can be counted on for, in bytes: the window promises no more than that beyond what was
    /// promised already. To be told anew before output is polled and when the application has read.
    #[inline]
    pub fn set_window_share(&mut self, bytes: u32) {
        self.recv.share = bytes;
    }

    /// The most bytes beyond [`consumed_to`](Self::consumed_to) that the receive buffer may be asked to hold.
    pub fn receive_limit(&self) -> u64 {
        u64::from(self.recv.limit).max(self.recv.right_edge.saturating_sub(self.recv.consumed))
    }
}
