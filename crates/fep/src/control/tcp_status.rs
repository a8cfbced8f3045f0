//! A TCP connection in a listing: `struct tcp_info` under the kernel's names, with the units in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tcp::{Limit, TcpInfo};

/// What `TCP_INFO` tells of a connection, and how long each reason limited it since it was established.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpStatus {
    /// The congestion control.
    pub congestion_control: String,
    /// What limits sending at present.
    pub limit: String,
    /// How long each reason limited sending since the connection was established; the sum is its age.
    pub limited_by_ns: BTreeMap<String, u64>,
    /// `open`, `disorder`, `recovery` or `loss`.
    pub ca_state: String,
    /// Timeouts in a row.
    pub retransmits: u8,
    /// Window probes without an answer.
    pub probes: u8,
    /// How often the timeout is doubled.
    pub backoff: u8,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// Selective acknowledgements are in use.
    pub sack: bool,
    /// Window scaling is in use.
    pub wscale: bool,
    /// Explicit congestion notification is in use.
    pub ecn: bool,
    /// The peer's window shift.
    pub snd_wscale: u8,
    /// Our window shift.
    pub rcv_wscale: u8,
    /// The retransmission timeout.
    pub rto_us: u32,
    /// How long an acknowledgement is held back at most.
    pub ato_us: u32,
    /// Payload of a full segment.
    pub snd_mss_bytes: u32,
    /// Payload of the peer's segments.
    pub rcv_mss_bytes: u32,
    /// The MSS announced, less the options.
    pub advmss_bytes: u32,
    /// The largest packet of the path.
    pub pmtu_bytes: u32,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// Of these, held by the peer out of order.
    pub sacked_segments: u32,
    /// Of these, taken for lost.
    pub lost_segments: u32,
    /// Of these, retransmitted.
    pub retrans_segments: u32,
    /// Since data was last sent.
    pub last_data_sent_ms: u32,
    /// Since data last came.
    pub last_data_recv_ms: u32,
    /// Since anything last came.
    pub last_ack_recv_ms: u32,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Its variation.
    pub rttvar_us: u32,
    /// The smallest recent round trip.
    pub min_rtt_us: u32,
    /// Slow-start threshold.
    pub snd_ssthresh_segments: u32,
    /// Congestion window.
    pub snd_cwnd_segments: u32,
    /// Congestion window.
    pub snd_cwnd_bytes: u32,
    /// The peer's window.
    pub snd_wnd_bytes: u32,
    /// Our window as the peer was told.
    pub rcv_wnd_bytes: u32,
    /// The most that our window may be at present.
    pub rcv_ssthresh_bytes: u32,
    /// All ones: not paced.
    pub pacing_rate_bytes_per_second: u64,
    /// The last delivery rate measured.
    pub delivery_rate_bytes_per_second: u64,
    /// The application limited it.
    pub delivery_rate_app_limited: bool,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes retransmitted.
    pub bytes_retrans: u64,
    /// Bytes queued and never sent.
    pub notsent_bytes: u32,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Segments with data sent.
    pub data_segs_out: u32,
    /// Segments with data received.
    pub data_segs_in: u32,
    /// Segments retransmitted.
    pub total_retrans_segments: u32,
    /// Retransmission timeouts.
    pub total_rto: u16,
    /// Duplicates that the peer reported.
    pub dsack_dups: u32,
    /// Segments received out of order.
    pub rcv_ooopack: u32,
    /// Reordering was seen.
    pub reordering_seen: bool,
    /// Time in which anything but the application limited sending.
    pub busy_time_us: u64,
    /// Time in which the peer's window did.
    pub rwnd_limited_us: u64,
    /// Time in which the send buffer did.
    pub sndbuf_limited_us: u64,
}

impl From<&TcpInfo> for TcpStatus {
    fn from(info: &TcpInfo) -> Self {
        let reasons = Limit::ALL.into_iter();
        let times = reasons.map(|limit| (limit.name().to_owned(), info.limited_by.time(limit).as_nanos()));
        let mut status = Self {
            congestion_control: info.congestion.name().to_owned(),
            limit: info.limit.name().to_owned(),
            limited_by_ns: times.collect(),
            ..Self::default()
        };
        status.take_state(info);
        status.take_path(info);
        status.take_counts(info);
        status
    }
}

impl TcpStatus {
    fn take_state(&mut self, info: &TcpInfo) {
        self.ca_state = ca_state(info.ca_state).to_owned();
        self.retransmits = info.retransmits;
        self.probes = info.probes;
        self.backoff = info.backoff;
        self.timestamps = info.options & 1 != 0;
        self.sack = info.options & 2 != 0;
        self.wscale = info.options & 4 != 0;
        self.ecn = info.options & 8 != 0;
        self.snd_wscale = info.snd_wscale;
        self.rcv_wscale = info.rcv_wscale;
        self.rto_us = info.rto;
        self.ato_us = info.ato;
        self.snd_mss_bytes = info.snd_mss;
        self.rcv_mss_bytes = info.rcv_mss;
        self.advmss_bytes = info.advmss;
        self.pmtu_bytes = info.pmtu;
        self.unacked_segments = info.unacked;
        self.sacked_segments = info.sacked;
        self.lost_segments = info.lost;
        self.retrans_segments = info.retrans;
        self.last_data_sent_ms = info.last_data_sent;
    }

    fn take_path(&mut self, info: &TcpInfo) {
        self.last_data_recv_ms = info.last_data_recv;
        self.last_ack_recv_ms = info.last_ack_recv;
        self.rtt_us = info.rtt;
        self.rttvar_us = info.rttvar;
        self.min_rtt_us = info.min_rtt;
        self.snd_ssthresh_segments = info.snd_ssthresh;
        self.snd_cwnd_segments = info.snd_cwnd;
        self.snd_cwnd_bytes = info.snd_cwnd_bytes;
        self.snd_wnd_bytes = info.snd_wnd;
        self.rcv_wnd_bytes = info.rcv_wnd;
        self.rcv_ssthresh_bytes = info.rcv_ssthresh;
        self.pacing_rate_bytes_per_second = info.pacing_rate;
        self.delivery_rate_bytes_per_second = info.delivery_rate;
        self.delivery_rate_app_limited = info.delivery_rate_app_limited;
        self.bytes_acked = info.bytes_acked;
    }

    fn take_counts(&mut self, info: &TcpInfo) {
        self.bytes_received = info.bytes_received;
        self.bytes_sent = info.bytes_sent;
        self.bytes_retrans = info.bytes_retrans;
        self.notsent_bytes = info.notsent_bytes;
        self.segs_out = info.segs_out;
        self.segs_in = info.segs_in;
        self.data_segs_out = info.data_segs_out;
        self.data_segs_in = info.data_segs_in;
        self.total_retrans_segments = info.total_retrans;
        self.total_rto = info.total_rto;
        self.dsack_dups = info.dsack_dups;
        self.rcv_ooopack = info.rcv_ooopack;
        self.reordering_seen = info.reord_seen != 0;
        self.busy_time_us = info.busy_time;
        self.rwnd_limited_us = info.rwnd_limited;
        self.sndbuf_limited_us = info.sndbuf_limited;
    }
}

/// The states of Linux' congestion avoidance.
fn ca_state(code: u8) -> &'static str {
    match code {
        0 => "open",
        1 => "disorder",
        2 => "cwr",
        3 => "recovery",
        _ => "loss",
    }
}
