//! `struct tcp_info`: a connection in numbers, under the kernel's names and in the kernel's units.
//!
//! The names are those of `<linux/tcp.h>` (Linux 6.7) without their prefix; what Linux counts in packets is counted in
//! full segments here, rounded up. What this stack does not know is zero. Behind the kernel's fields stand ours.
//! [`TcpInfo::to_bytes`] lays all of it out as the kernel does, so that its first [`TcpInfo::KERNEL_SIZE`] bytes can be given
//! to a program that asks for `TCP_INFO`.

use base::{Duration, Instant};

use crate::config::CongestionAlgorithm;
use crate::congestion::CongestionControl;
use crate::connection::Connection;
use crate::handshake::fast_open::FastOpenProgress;
use crate::limited::{Limit, LimitedBy};
use crate::recovery::Phase;
use crate::state::State;

/// What Linux tells of a connection, and what limits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the kernel's fields; <linux/tcp.h> and tcp(7) tell of them, remarks where we differ"
)]
pub struct TcpInfo {
    pub state: u8,
    /// 0 open, 1 disorder, 3 recovery, 4 loss.
    pub ca_state: u8,
    pub retransmits: u8,
    pub probes: u8,
    pub backoff: u8,
    /// Bits: 1 timestamps, 2 SACK, 4 window scaling, 8 ECN.
    pub options: u8,
    /// Four bits.
    pub snd_wscale: u8,
    /// Four bits.
    pub rcv_wscale: u8,
    pub delivery_rate_app_limited: bool,
    /// Microseconds, as all round trips.
    pub rto: u32,
    pub ato: u32,
    /// Bytes.
    pub snd_mss: u32,
    pub rcv_mss: u32,
    /// Segments; of a listener, connections that wait to be accepted.
    pub unacked: u32,
    /// Segments; of a listener, how many may wait.
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub fackets: u32,
    /// Milliseconds, as the next three.
    pub last_data_sent: u32,
    pub last_ack_sent: u32,
    pub last_data_recv: u32,
    /// Since any segment came.
    pub last_ack_recv: u32,
    pub pmtu: u32,
    /// The most that the receive window may be at present.
    pub rcv_ssthresh: u32,
    pub rtt: u32,
    pub rttvar: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub reordering: u32,
    /// The round trip by which the receive window's growth is measured.
    pub rcv_rtt: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    /// Bytes a second; all ones: not paced.
    pub pacing_rate: u64,
    pub max_pacing_rate: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub notsent_bytes: u32,
    pub min_rtt: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    /// Bytes a second, of the last round trip measured.
    pub delivery_rate: u64,
    /// Microseconds in which anything but the application limited sending.
    pub busy_time: u64,
    pub rwnd_limited: u64,
    pub sndbuf_limited: u64,
    pub delivered: u32,
    /// Reductions of the window because of marks: a classic echo does not tell how many packets were marked.
    pub delivered_ce: u32,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub dsack_dups: u32,
    /// Whether reordering was ever seen.
    pub reord_seen: u32,
    pub rcv_ooopack: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub rehash: u32,
    pub total_rto: u16,
    pub total_rto_recoveries: u16,
    pub total_rto_time: u32,
    /// Ours: how long each reason limited sending since the connection was established.
    pub limited_by: LimitedBy,
    /// Ours: the congestion window in bytes.
    pub snd_cwnd_bytes: u32,
    /// Ours: what limits sending at present.
    pub limit: Limit,
    /// Ours: the congestion control.
    pub congestion: CongestionAlgorithm,
}

/// Linux' number of a state.
const fn linux_state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => TcpInfo::CLOSE,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// Linux' threshold before the first loss (`TCP_INFINITE_SSTHRESH`).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// RFC 9293 §3.7.1: the MSS of a peer that announces none; and Linux' least.
const DEFAULT_MSS: u16 = 536;
const LEAST_MSS: u16 = 88;

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

impl Connection {
    /// Everything that Linux tells of a connection, and what limits it.
    pub fn tcp_info(&self, now: Instant) -> TcpInfo {
        let mut info = TcpInfo {
            state: linux_state(self.state),
            retransmits: self.recovery.timeouts,
            probes: self.pending.probes,
            backoff: self.rtt.backoff.max(self.pending.persist_backoff),
            limit: self.limit,
            congestion: self.congestion.algorithm(),
            ..TcpInfo::default()
        };
        self.tell_path(now, &mut info);
        self.tell_flight(&mut info);
        self.tell_streams(&mut info);
        self.tell_limits(now, &mut info);
        info
    }

    /// Round trips, sizes, what was negotiated.
    fn tell_path(&self, now: Instant, info: &mut TcpInfo) {
        let settings = &self.settings;
        info.options = u8::from(settings.timestamps)
            | u8::from(settings.sack) << 1
            | u8::from(settings.window_scaling) << 2
            | u8::from(settings.ecn) << 3
            | u8::from(matches!(self.fast_open, FastOpenProgress::Acknowledged | FastOpenProgress::Taken))
                << 5
            | u8::from(matches!(self.fast_open, FastOpenProgress::Taken | FastOpenProgress::Begun)) << 7;
        if settings.window_scaling {
            (info.snd_wscale, info.rcv_wscale) = (self.send.scale, self.recv.scale);
        }
        info.rto = micros(self.rtt.rto(&self.rto_bounds()));
        info.ato = settings.delayed_ack_us;
        info.rtt = micros(self.rtt.srtt);
        info.rttvar = micros(self.rtt.rttvar);
        info.rcv_rtt = micros(self.recv.round_trip.get());
        info.min_rtt = if self.rtt.has_sample() { micros(self.rtt.min_rtt) } else { u32::MAX };
        info.snd_mss = match self.awaits_data() {
            true => self.syn_payload_len(0), // what the first send may be
            false => self.send.mss.into(),
        };
        info.rcv_mss = self.recv.segment_size.max(self.least_receive_mss()).into();
        info.pmtu = u32::from(self.send.path_mss) + if self.ends.is_ipv4() { 40 } else { 60 };
        info.advmss =
            u32::from(settings.announced_mss.saturating_sub(if settings.timestamps { 12 } else { 0 }));
        info.last_data_sent = millis(self.sent_at.elapsed(now));
        info.last_data_recv = millis(self.stats.data_at.elapsed(now));
        info.last_ack_recv = millis(self.heard_at.elapsed(now));
        info.reordering = 3;
        info.reord_seen = self.recovery.rack.reordering_seen.into();
    }

    /// What Linux takes for the size of the peer's segments before it has seen larger ones (`tcp_initialize_rcv_mss`).
    fn least_receive_mss(&self) -> u16 {
        let window = u16::try_from(self.recv.limit / 2).unwrap_or(u16::MAX);
        DEFAULT_MSS.min(self.settings.announced_mss).min(self.send.mss).min(window).max(LEAST_MSS)
    }

    /// What is on its way, by the congestion control and by recovery.
    fn tell_flight(&self, info: &mut TcpInfo) {
        let mss = u32::from(self.send.mss);
        let board = &self.send.scoreboard;
        let stats = self.stats.totals();
        info.ca_state = match self.recovery.phase {
            Phase::Open if self.is_reducing() => 2,
            Phase::Open => u8::from(board.sacked() > 0 || self.recovery.dup_acks > 0),
            Phase::Fast => 3,
            Phase::Timeout => 4,
        };
        info.unacked = (self.send.outstanding() as u32).div_ceil(mss);
        info.sacked = board.sacked().div_ceil(mss);
        info.lost = board.lost().div_ceil(mss);
        // Only a recovery leaves retransmissions in flight; what they repeat counts as lost until it is acknowledged.
        if self.recovery.phase != Phase::Open {
            info.retrans = board.retransmitted().div_ceil(mss);
            info.lost += info.retrans;
        }
        info.snd_cwnd_bytes = self.effective_window();
        info.snd_cwnd = (info.snd_cwnd_bytes / mss).max(1);
        info.snd_ssthresh = match self.congestion.ssthresh() {
            u32::MAX => INFINITE_SSTHRESH,
            bytes => bytes / mss,
        };
        info.pacing_rate = self.pacing_rate();
        info.max_pacing_rate = u64::MAX;
        info.total_retrans = stats.retransmissions.max(stats.bytes_retransmitted.div_ceil(mss.into()) as u32);
        info.bytes_retrans = stats.bytes_retransmitted;
        info.dsack_dups = stats.duplicate_sacks;
        info.delivered_ce = stats.congestion_echoes;
        info.rcv_ooopack = stats.out_of_order;
        info.total_rto = stats.timeouts.min(u16::MAX.into()) as u16;
        let delivered = self.acked_to() + u64::from(board.sacked());
        info.delivered = delivered.div_ceil(mss.into()) as u32;
        if let Some(ledger) = &self.ledger {
            info.delivery_rate = ledger.rate;
            info.delivery_rate_app_limited = ledger.rate_app_limited;
        }
    }

    /// Bytes and segments in both directions, and the windows.
    fn tell_streams(&self, info: &mut TcpInfo) {
        info.bytes_acked = self.acked_to();
        info.bytes_received = self.received_to();
        info.bytes_sent = self.sent_to() + info.bytes_retrans;
        info.notsent_bytes = self.queued_to().saturating_sub(self.sent_to()) as u32;
        // Linux' counters are as wide as these, and wrap.
        info.segs_out = self.stats.segments_out as u32;
        info.segs_in = self.stats.segments_in as u32;
        info.data_segs_out = self.stats.data_out;
        info.data_segs_in = self.stats.data_in;
        info.snd_wnd = self.send.window;
        info.rcv_wnd = self.recv.window() as u32;
        info.rcv_ssthresh = self.recv.room();
        info.rcv_space = self.recv.limit;
    }

    fn tell_limits(&self, now: Instant, info: &mut TcpInfo) {
        let limited = self.limited_by(now);
        let total = limited.total().as_nanos();
        info.busy_time = (total - limited.time(Limit::Application).as_nanos()) / 1000;
        info.rwnd_limited = limited.time(Limit::PeerWindow).as_micros();
        info.sndbuf_limited = limited.time(Limit::SendBuffer).as_micros();
        info.limited_by = limited;
    }
}

impl TcpInfo {
    /// The length of Linux' structure (6.7).
    pub const KERNEL_SIZE: usize = 248;
    /// The length of all of it.
    pub const SIZE: usize = Self::KERNEL_SIZE + 56;
    /// Linux' number of the state of a socket that is not connected.
    pub const CLOSE: u8 = 7;
    /// Linux' number of the state of a listener.
    pub const LISTEN: u8 = 10;

    /// What Linux tells of a listener.
    pub fn of_listener(waiting: u32, backlog: u32) -> Self {
        Self { state: Self::LISTEN, unacked: waiting, sacked: backlog, ..Self::default() }
    }

    /// What Linux tells of a socket that is neither connected nor listening.
    pub fn of_closed() -> Self {
        Self { state: Self::CLOSE, ..Self::default() }
    }

    /// As the kernel lays it out in memory, with our fields behind.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut out = Layout { bytes: [0; Self::SIZE], at: 0 };
        let scales = self.snd_wscale & 0xf | self.rcv_wscale << 4;
        let flags = u8::from(self.delivery_rate_app_limited);
        out.put([self.state, self.ca_state, self.retransmits, self.probes]);
        out.put([self.backoff, self.options, scales, flags]);
        out.u32s([self.rto, self.ato, self.snd_mss, self.rcv_mss]);
        out.u32s([self.unacked, self.sacked, self.lost, self.retrans, self.fackets]);
        out.u32s([self.last_data_sent, self.last_ack_sent, self.last_data_recv, self.last_ack_recv]);
        out.u32s([self.pmtu, self.rcv_ssthresh, self.rtt, self.rttvar]);
        out.u32s([self.snd_ssthresh, self.snd_cwnd, self.advmss, self.reordering]);
        out.u32s([self.rcv_rtt, self.rcv_space, self.total_retrans]);
        out.u64s([self.pacing_rate, self.max_pacing_rate, self.bytes_acked, self.bytes_received]);
        out.u32s([self.segs_out, self.segs_in, self.notsent_bytes]);
        out.u32s([self.min_rtt, self.data_segs_in, self.data_segs_out]);
        out.u64s([self.delivery_rate, self.busy_time, self.rwnd_limited, self.sndbuf_limited]);
        out.u32s([self.delivered, self.delivered_ce]);
        out.u64s([self.bytes_sent, self.bytes_retrans]);
        out.u32s([self.dsack_dups, self.reord_seen, self.rcv_ooopack, self.snd_wnd, self.rcv_wnd]);
        out.u32s([self.rehash]);
        out.put(self.total_rto.to_ne_bytes());
        out.put(self.total_rto_recoveries.to_ne_bytes());
        out.u32s([self.total_rto_time]);
        out.u64s(self.limited_by.to_nanos());
        out.u32s([self.snd_cwnd_bytes]);
        out.put([self.limit as u8, self.congestion as u8, 0, 0]);
        debug_assert_eq!(out.at, Self::SIZE);
        out.bytes
    }

    /// From what [`to_bytes`](Self::to_bytes) gave.
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let mut from = Layout { bytes: *bytes, at: 0 };
        let mut info = Self::default();
        let scales;
        let flags;
        [info.state, info.ca_state, info.retransmits, info.probes] = from.take();
        [info.backoff, info.options, scales, flags] = from.take();
        (info.snd_wscale, info.rcv_wscale) = (scales & 0xf, scales >> 4);
        info.delivery_rate_app_limited = flags & 1 != 0;
        [info.rto, info.ato, info.snd_mss, info.rcv_mss] = from.take_u32s();
        [info.unacked, info.sacked, info.lost, info.retrans, info.fackets] = from.take_u32s();
        [info.last_data_sent, info.last_ack_sent, info.last_data_recv, info.last_ack_recv] = from.take_u32s();
        [info.pmtu, info.rcv_ssthresh, info.rtt, info.rttvar] = from.take_u32s();
        [info.snd_ssthresh, info.snd_cwnd, info.advmss, info.reordering] = from.take_u32s();
        [info.rcv_rtt, info.rcv_space, info.total_retrans] = from.take_u32s();
        [info.pacing_rate, info.max_pacing_rate, info.bytes_acked, info.bytes_received] = from.take_u64s();
        [info.segs_out, info.segs_in, info.notsent_bytes] = from.take_u32s();
        [info.min_rtt, info.data_segs_in, info.data_segs_out] = from.take_u32s();
        [info.delivery_rate, info.busy_time, info.rwnd_limited, info.sndbuf_limited] = from.take_u64s();
        [info.delivered, info.delivered_ce] = from.take_u32s();
        [info.bytes_sent, info.bytes_retrans] = from.take_u64s();
        [info.dsack_dups, info.reord_seen, info.rcv_ooopack, info.snd_wnd, info.rcv_wnd] = from.take_u32s();
        [info.rehash] = from.take_u32s();
        info.total_rto = u16::from_ne_bytes(from.take());
        info.total_rto_recoveries = u16::from_ne_bytes(from.take());
        [info.total_rto_time] = from.take_u32s();
        info.limited_by = LimitedBy::from_nanos(from.take_u64s());
        [info.snd_cwnd_bytes] = from.take_u32s();
        let [limit, congestion, _, _] = from.take();
        info.limit = Limit::from_code(limit);
        info.congestion = CongestionAlgorithm::from_code(congestion).unwrap_or_default();
        info
    }
}

/// Fields one behind the other; all of them are aligned where they stand.
struct Layout {
    bytes: [u8; TcpInfo::SIZE],
    at: usize,
}

impl Layout {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
    }

    fn u32s<const N: usize>(&mut self, values: [u32; N]) {
        values.into_iter().for_each(|value| self.put(value.to_ne_bytes()));
    }

    fn u64s<const N: usize>(&mut self, values: [u64; N]) {
        values.into_iter().for_each(|value| self.put(value.to_ne_bytes()));
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        bytes
    }

    fn take_u32s<const N: usize>(&mut self) -> [u32; N] {
        core::array::from_fn(|_| u32::from_ne_bytes(self.take()))
    }

    fn take_u64s<const N: usize>(&mut self) -> [u64; N] {
        core::array::from_fn(|_| u64::from_ne_bytes(self.take()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_both_ways() {
        let mut bytes: [u8; TcpInfo::SIZE] = core::array::from_fn(|at| (at * 37 + 1) as u8);
        // Flags that have one bit, codes that exist, and padding.
        bytes[7] = 1;
        bytes[TcpInfo::SIZE - 4..].copy_from_slice(&[3, 2, 0, 0]);
        assert_eq!(TcpInfo::from_bytes(&bytes).to_bytes(), bytes);
    }

    #[test]
    fn the_fields_stand_where_the_kernel_has_them() {
        let at = |info: TcpInfo| info.to_bytes().iter().position(|&byte| byte != 0).unwrap();
        let none = TcpInfo::default();
        // offsetof(struct tcp_info, ...) of <linux/tcp.h>.
        assert_eq!(at(TcpInfo { rto: u32::MAX, ..none }), 8);
        assert_eq!(at(TcpInfo { unacked: u32::MAX, ..none }), 24);
        assert_eq!(at(TcpInfo { pmtu: u32::MAX, ..none }), 60);
        assert_eq!(at(TcpInfo { rtt: u32::MAX, ..none }), 68);
        assert_eq!(at(TcpInfo { snd_cwnd: u32::MAX, ..none }), 80);
        assert_eq!(at(TcpInfo { total_retrans: u32::MAX, ..none }), 100);
        assert_eq!(at(TcpInfo { pacing_rate: u64::MAX, ..none }), 104);
        assert_eq!(at(TcpInfo { bytes_acked: u64::MAX, ..none }), 120);
        assert_eq!(at(TcpInfo { segs_out: u32::MAX, ..none }), 136);
        assert_eq!(at(TcpInfo { min_rtt: u32::MAX, ..none }), 148);
        assert_eq!(at(TcpInfo { delivery_rate: u64::MAX, ..none }), 160);
        assert_eq!(at(TcpInfo { busy_time: u64::MAX, ..none }), 168);
        assert_eq!(at(TcpInfo { delivered: u32::MAX, ..none }), 192);
        assert_eq!(at(TcpInfo { bytes_sent: u64::MAX, ..none }), 200);
        assert_eq!(at(TcpInfo { dsack_dups: u32::MAX, ..none }), 216);
        assert_eq!(at(TcpInfo { snd_wnd: u32::MAX, ..none }), 228);
        assert_eq!(at(TcpInfo { total_rto: u16::MAX, ..none }), 240);
        let ours = LimitedBy::from_nanos([1; Limit::COUNT]);
        assert_eq!(at(TcpInfo { limited_by: ours, ..none }), TcpInfo::KERNEL_SIZE);
    }
}
