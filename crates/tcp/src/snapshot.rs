//! A connection as plain bytes, and back: what lets it outlive the process that runs it.
//!
//! The layout is fixed, little-endian and versioned; it ends with a checksum, so that a record torn by a crash is not taken.
//! What was in flight is treated as lost when the connection goes on, and what had come out of order is
//! forgotten: both are recovered by the protocol itself. The clock must go on too: `now` at the restoration is on the same scale
//! as before.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base::{Duration, Instant, SeqNumber};

use crate::challenge_ack::ChallengeLimit;
use crate::config::{CongestionAlgorithm, MtuProbing};
use crate::congestion::{Congestion, CongestionControl};
use crate::connection::Connection;
use crate::ecn::EcnState;
use crate::error::Error;
use crate::handshake::fast_open::FastOpenProgress;
use crate::handshake::negotiate::MAX_WINDOW_SCALE;
use crate::handshake::opening::Opening;
use crate::limited::{Ledger, Limit, LimitedBy};
use crate::output::Pending;
use crate::recovery::rtt::RoundTrip;
use crate::recovery::{Phase, Recovery};
use crate::recv::Receiver;
use crate::segment::{Endpoints, Position};
use crate::send::Sender;
use crate::send::scoreboard::{Fate, Record};
use crate::settings::Settings;
use crate::state::State;
use crate::stats::Counters;
use crate::timer::{Stamp, Timer, Timers};
use crate::urgent::Urgent;

/// The layout's version; another version is not read.
const VERSION: u16 = 4;

/// Longer round trips are cut to this: an echo can say anything, and no timer may be set for never.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(3600);

/// Larger counts, and larger counts of rare events, are cut to this: counting on must not overflow.
const MOST_COUNTED: u64 = 1 << 62;
const MOST_RARE: u32 = 1 << 31;

/// A connection's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    bytes: [u8; Self::SIZE],
}

/// Why bytes are not a snapshot that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// Another version of the layout.
    Version,
    /// The checksum is wrong: the record is torn or was never written.
    Checksum,
    /// The values contradict each other.
    Inconsistent,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "the snapshot has another version",
            Self::Checksum => "the snapshot is damaged",
            Self::Inconsistent => "the snapshot contradicts itself",
        })
    }
}

impl core::error::Error for RestoreError {}

impl Snapshot {
    /// Bytes of a snapshot.
    pub const SIZE: usize = 448;
    const BODY: usize = Self::SIZE - 8;

    /// Takes bytes for a snapshot; [`Connection::restore`] checks them.
    pub const fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Self { bytes }
    }

    /// The bytes to keep.
    pub const fn as_bytes(&self) -> &[u8; Self::SIZE] {
        &self.bytes
    }

    fn checksum(&self) -> u64 {
        // FNV-1a over words: it finds torn writes, not enemies.
        self.bytes[..Self::BODY].chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
        })
    }

    /// The same bytes with a checksum that fits them (for tools and fuzzers that make snapshots of their own).
    pub fn resealed(self) -> Self {
        self.seal()
    }

    pub(crate) fn seal(mut self) -> Self {
        let sum = self.checksum();
        self.bytes[Self::BODY..].copy_from_slice(&sum.to_le_bytes());
        self
    }
}

struct Writer {
    snapshot: Snapshot,
    at: usize,
}

impl Writer {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Self {
        self.snapshot.bytes[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
        self
    }
    fn u8(&mut self, value: u8) -> &mut Self {
        self.put([value])
    }
    fn bool(&mut self, value: bool) -> &mut Self {
        self.put([u8::from(value)])
    }
    fn u16(&mut self, value: u16) -> &mut Self {
        self.put(value.to_le_bytes())
    }
    fn u32(&mut self, value: u32) -> &mut Self {
        self.put(value.to_le_bytes())
    }
    fn u64(&mut self, value: u64) -> &mut Self {
        self.put(value.to_le_bytes())
    }
    fn address(&mut self, address: SocketAddr) -> &mut Self {
        let (family, octets) = match address.ip() {
            IpAddr::V4(ip) => (4, ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => (6, ip.octets()),
        };
        let scope = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
        self.u8(family).u16(address.port()).put(octets).u32(scope)
    }
}

struct Reader<'a> {
    bytes: &'a [u8; Snapshot::SIZE],
    at: usize,
}

impl<'a> Reader<'a> {
    /// At the first field, if the bytes are whole and of this version.
    fn open(snapshot: &'a Snapshot) -> Result<Self, RestoreError> {
        let mut reader = Self { bytes: &snapshot.bytes, at: Snapshot::BODY };
        if reader.u64() != snapshot.checksum() {
            return Err(RestoreError::Checksum);
        }
        reader.at = 0;
        if reader.u16() != VERSION {
            return Err(RestoreError::Version);
        }
        Ok(reader)
    }

    fn get<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        bytes
    }
    fn u8(&mut self) -> u8 {
        self.get::<1>()[0]
    }
    fn bool(&mut self) -> bool {
        self.u8() != 0
    }
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.get())
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.get())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.get())
    }
    fn address(&mut self) -> SocketAddr {
        let (family, port, octets, scope) = (self.u8(), self.u16(), self.get::<16>(), self.u32());
        let ip = Ipv6Addr::from(octets);
        match ip.to_ipv4_mapped() {
            Some(v4) if family == 4 => SocketAddr::new(IpAddr::V4(Ipv4Addr::from(v4.octets())), port),
            _ => SocketAddr::V6(core::net::SocketAddrV6::new(ip, port, 0, scope)),
        }
    }
}

impl Connection {
    /// The connection as plain bytes. Take it after polling output and before letting that output leave: then it knows
    /// everything that a peer may have seen.
    pub fn snapshot(&self) -> Snapshot {
        let mut writer = Writer { snapshot: Snapshot { bytes: [0; Snapshot::SIZE] }, at: 0 };
        writer.u16(VERSION).u8(self.state as u8).u8(self.error.map_or(0, |error| error as u8));
        writer.u8(self.soft_error.map_or(0, |error| error as u8)).bool(self.passive).bool(self.orphaned);
        writer.address(self.local()).address(self.remote());
        self.write_settings(&mut writer);
        let send = &self.send;
        writer.u32(send.iss.0).u64(send.una).u64(send.nxt).u64(send.queued).bool(send.fin_queued);
        writer.u32(send.window).u32(send.max_window).u64(send.window_seq).u8(send.scale);
        writer.u16(send.peer_mss).u16(send.path_mss).u16(send.verified_mss);
        let recv = &self.recv;
        writer.u32(recv.irs.0).u64(recv.nxt).u64(recv.right_edge).u64(recv.consumed);
        writer.u32(recv.limit).u32(recv.max_limit).u8(recv.scale).u64(recv.fin).u16(recv.segment_size);
        writer.u32(recv.ts_recent).u32(recv.ts_recent_s);
        writer.u64(self.rtt.srtt.as_nanos()).u64(self.rtt.rttvar.as_nanos()).u64(self.rtt.min_rtt.as_nanos());
        writer.u8(self.congestion.algorithm() as u8);
        writer.u32(self.congestion.window()).u32(self.congestion.ssthresh());
        writer.u64(self.timers.at(Timer::Linger).unwrap_or(Instant::FAR_FUTURE).as_nanos());
        writer.u32(self.heard_at.millis()).u64(self.recovery.progress_at.as_nanos());
        writer.bool(self.pending.reset).u8(self.recovery.timeouts).u8(self.rtt.backoff);
        self.write_opening(&mut writer);
        writer.put(self.ecn.record());
        self.write_books(&mut writer);
        self.write_urgent(&mut writer);
        debug_assert!(writer.at <= Snapshot::BODY);
        writer.snapshot.seal()
    }

    /// What was counted and what limited, the span that runs included up to when the connection was last heard of.
    fn write_books(&self, writer: &mut Writer) {
        let stats = self.stats.totals();
        writer.u64(stats.segments_in).u64(stats.segments_out).u64(stats.bytes_retransmitted);
        writer
            .u32(stats.retransmissions)
            .u32(stats.timeouts)
            .u32(self.stats.data_in)
            .u32(self.stats.data_out);
        writer.bool(self.ledger.is_some()).u8(self.limit as u8);
        let (since, spent) = self.ledger.as_ref().map_or_else(Default::default, |ledger| ledger.books());
        writer.u64(since.as_nanos());
        for nanos in spent.to_nanos() {
            writer.u64(nanos);
        }
    }

    fn write_urgent(&self, writer: &mut Writer) {
        let urgent = self.urgent.as_deref().cloned().unwrap_or_default();
        writer.u64(urgent.up).u64(urgent.mark).u64(urgent.passed_to);
        writer.bool(urgent.waiting).bool(urgent.byte.is_some()).u8(urgent.byte.unwrap_or(0));
    }

    /// The cookie is left out: an active open that has not sent its SYN yet goes on as an ordinary one.
    fn write_opening(&self, writer: &mut Writer) {
        let opening = self.opening.as_deref().cloned().unwrap_or_default();
        writer.u8(self.fast_open as u8).bool(opening.held).bool(opening.early);
        writer.u8(opening.deferred_until).bool(opening.deferred);
    }

    fn write_settings(&self, writer: &mut Writer) {
        let s = &self.settings;
        writer.u32(s.rto_initial_ms).u32(s.rto_min_ms).u32(s.rto_max_ms).u32(s.delayed_ack_us);
        writer.u32(s.granularity_us).u32(s.fin_wait_2_ms).u32(s.time_wait_ms).u32(s.user_timeout_ms);
        writer.u16(s.keepalive_idle_s).u16(s.keepalive_interval_s).u32(s.timestamp_offset);
        writer.u16(s.announced_mss).u8(s.keepalive_count).u8(s.syn_retries).u8(s.retries);
        writer.u8(s.initial_congestion_window).bool(s.timestamps).bool(s.window_scaling).bool(s.sack);
        writer.bool(s.ecn).bool(s.pacing).bool(s.nodelay).bool(s.cork).bool(s.quickack);
        writer.u8(s.mtu_probing as u8).bool(s.user_timeout_option);
    }

    /// Goes on from a snapshot.
    ///
    /// # Errors
    /// The bytes are damaged, of another version, or contradict themselves.
    pub fn restore(snapshot: &Snapshot, now: Instant) -> Result<Self, RestoreError> {
        let mut reader = Reader::open(snapshot)?;
        let state = State::from_code(reader.u8()).ok_or(RestoreError::Inconsistent)?;
        let (error, soft_error) = (Error::from_code(reader.u8()), Error::from_code(reader.u8()));
        let (passive, orphaned) = (reader.bool(), reader.bool());
        let (local, remote) = (reader.address(), reader.address());
        let settings = read_settings(&mut reader);
        let send = read_sender(&mut reader);
        let recv = read_receiver(&mut reader);
        let mut rtt = RoundTrip::new();
        for time in [&mut rtt.srtt, &mut rtt.rttvar, &mut rtt.min_rtt] {
            *time = Duration::from_nanos(reader.u64()).min(LONGEST_ROUND_TRIP);
        }
        let algorithm = CongestionAlgorithm::from_code(reader.u8()).ok_or(RestoreError::Inconsistent)?;
        let (window, ssthresh) = (reader.u32(), reader.u32());
        let linger = Instant::from_nanos(reader.u64());
        let heard_at = Stamp::from_millis(reader.u32());
        let mut recovery = Recovery::new();
        recovery.progress_at = Instant::from_nanos(reader.u64());
        let mut pending = Pending::new();
        pending.reset = reader.bool();
        recovery.timeouts = reader.u8();
        rtt.backoff = reader.u8().min(32);
        let fast_open = FastOpenProgress::from_code(reader.u8()).ok_or(RestoreError::Inconsistent)?;
        let opening = read_opening(&mut reader).filter(|_| !state.is_synchronised());
        let ecn = reader.get();
        let mut timers = Timers::new();
        timers.set(Timer::Linger, linger);
        let mut limit = Limit::default();
        let mut connection = Self {
            ends: Endpoints::new(local, remote),
            send,
            recv,
            recovery,
            rtt,
            congestion: Congestion::new(algorithm, window),
            timers,
            pending,
            settings,
            challenges: ChallengeLimit::new(),
            ecn: EcnState::restored(ecn),
            search: None,
            stats: read_stats(&mut reader, now),
            ledger: read_ledger(&mut reader, &mut limit),
            urgent: read_urgent(&mut reader),
            opening,
            heard_at,
            sent_at: Stamp::at(now),
            paced_until: Instant::ZERO,
            state,
            limit,
            error,
            soft_error,
            fast_open,
            passive,
            orphaned,
            cut_through: false,
        };
        if !connection.is_plausible() {
            return Err(RestoreError::Inconsistent);
        }
        connection.resume(now, window, ssthresh);
        if connection.check_invariants().is_err() {
            return Err(RestoreError::Inconsistent);
        }
        Ok(connection)
    }

    /// The relations that every connection keeps.
    fn is_plausible(&self) -> bool {
        const FARTHEST: Position = 1 << 62;
        /// The SYN with its data, or what follows a SYN-ACK within the unscaled window.
        const MOST_EARLY: Position = 1 << 17;
        let (send, recv) = (&self.send, &self.recv);
        let opened = self.state.is_synchronised();
        send.una <= send.nxt
            && send.nxt <= send.end().max(1)
            && send.queued >= 1
            && send.queued < FARTHEST
            && send.nxt - send.una <= 1 << 30
            && send.scale <= MAX_WINDOW_SCALE
            && recv.scale <= MAX_WINDOW_SCALE
            && send.window <= 65_535 << MAX_WINDOW_SCALE
            && recv.nxt < FARTHEST
            && recv.consumed >= 1
            && recv.consumed <= recv.data_end().max(1)
            && (recv.right_edge >= recv.nxt || recv.right_edge == 0)
            && recv.right_edge < FARTHEST
            && (!opened || (send.una >= 1 && recv.nxt >= 1))
            && (opened || self.state == State::Closed || (send.una == 0 && send.nxt <= MOST_EARLY))
            && (self.state != State::SynSent || recv.nxt == 0)
            && self.has_plausible_times()
    }

    /// No timer can spin.
    fn has_plausible_times(&self) -> bool {
        let settings = &self.settings;
        settings.rto_initial_ms > 0
            && settings.rto_max_ms > 0
            && settings.initial_congestion_window > 0
            && (settings.keepalive_idle_s == 0
                || (settings.keepalive_interval_s > 0 && settings.keepalive_count > 0))
    }

    /// Treats what was in flight as lost and slow-starts towards the window of before.
    fn resume(&mut self, now: Instant, window: u32, ssthresh: u32) {
        self.on_mss_changed();
        self.recv.last_ack_sent = self.recv.nxt;
        let outstanding = self.send.outstanding() as u32;
        let initial = u32::from(self.settings.initial_congestion_window) * u32::from(self.send.mss);
        let algorithm = self.congestion.algorithm();
        let threshold = if outstanding > 0 { window.max(2 * u32::from(self.send.mss)) } else { ssthresh };
        self.congestion = Congestion::restored(algorithm, window.min(initial), threshold.min(ssthresh));
        if self.state == State::Closed {
            return;
        }
        if outstanding > 0 {
            self.send.scoreboard.push(Record {
                start: self.send.una,
                len: outstanding,
                fate: Fate::Lost,
                ..Record::new(0, 0, now)
            });
            self.recovery.phase = Phase::Timeout;
            self.recovery.high = self.send.nxt;
            self.restart_retransmit_timer(now);
        }
        if self.state.is_synchronised() {
            self.resume_mtu_search(now);
            self.pending.ack = true; // tells the peer where we stand
            self.arm_keepalive(now);
        }
    }
}

fn read_stats(reader: &mut Reader<'_>, now: Instant) -> Counters {
    let mut stats = Counters::new(now);
    stats.segments_in = reader.u64().min(MOST_COUNTED);
    stats.segments_out = reader.u64().min(MOST_COUNTED);
    let bytes = reader.u64().min(MOST_COUNTED);
    let [retransmissions, timeouts] = [reader.u32(), reader.u32()].map(|count| count.min(MOST_RARE));
    if retransmissions > 0 || timeouts > 0 {
        let rare = stats.rare();
        (rare.bytes_retransmitted, rare.retransmissions, rare.timeouts) = (bytes, retransmissions, timeouts);
    }
    stats.data_in = reader.u32();
    stats.data_out = reader.u32();
    stats
}

fn read_ledger(reader: &mut Reader<'_>, limit: &mut Limit) -> Option<Box<Ledger>> {
    let exists = reader.bool();
    *limit = Limit::from_code(reader.u8());
    let since = Instant::from_nanos(reader.u64());
    let spent = LimitedBy::from_nanos(core::array::from_fn(|_| reader.u64()));
    exists.then(|| Ledger::starting(since, spent))
}

fn read_urgent(reader: &mut Reader<'_>) -> Option<Box<Urgent>> {
    /// Farther than any stream goes.
    const FARTHEST: Position = 1 << 62;
    let [up, mark, passed_to] = [reader.u64(), reader.u64(), reader.u64()].map(|at| at.min(FARTHEST));
    let (waiting, is_known, byte) = (reader.bool(), reader.bool(), reader.u8());
    let byte = is_known.then_some(byte);
    let urgent = Urgent { up, mark, passed_to, waiting, byte, ..Urgent::default() };
    (up > 0 || mark > 0).then(|| Box::new(urgent))
}

fn read_opening(reader: &mut Reader<'_>) -> Option<Box<Opening>> {
    let (held, early) = (reader.bool(), reader.bool());
    let (deferred_until, deferred) = (reader.u8(), reader.bool());
    let opening = Opening { held, early, deferred_until, deferred, ..Opening::default() };
    (held || early || deferred_until > 0).then(|| Box::new(opening))
}

fn read_settings(reader: &mut Reader<'_>) -> Settings {
    Settings {
        rto_initial_ms: reader.u32(),
        rto_min_ms: reader.u32(),
        rto_max_ms: reader.u32(),
        delayed_ack_us: reader.u32(),
        granularity_us: reader.u32(),
        fin_wait_2_ms: reader.u32(),
        time_wait_ms: reader.u32(),
        user_timeout_ms: reader.u32(),
        keepalive_idle_s: reader.u16(),
        keepalive_interval_s: reader.u16(),
        timestamp_offset: reader.u32(),
        announced_mss: reader.u16(),
        keepalive_count: reader.u8(),
        syn_retries: reader.u8(),
        retries: reader.u8(),
        initial_congestion_window: reader.u8(),
        timestamps: reader.bool(),
        window_scaling: reader.bool(),
        sack: reader.bool(),
        ecn: reader.bool(),
        pacing: reader.bool(),
        nodelay: reader.bool(),
        cork: reader.bool(),
        quickack: reader.bool(),
        mtu_probing: MtuProbing::from_code(reader.u8()).unwrap_or_default(),
        user_timeout_option: reader.bool(),
    }
}

fn read_sender(reader: &mut Reader<'_>) -> Sender {
    let mut send = Sender::new(SeqNumber(reader.u32()), 0);
    send.una = reader.u64();
    send.nxt = reader.u64();
    send.queued = reader.u64();
    send.fin_queued = reader.bool();
    send.window = reader.u32();
    send.max_window = reader.u32();
    send.window_seq = reader.u64();
    send.scale = reader.u8();
    send.peer_mss = reader.u16();
    send.path_mss = reader.u16();
    send.verified_mss = reader.u16();
    send
}

fn read_receiver(reader: &mut Reader<'_>) -> Receiver {
    let irs = SeqNumber(reader.u32());
    let mut recv = Receiver::new(0, 0, 0);
    recv.irs = irs;
    recv.nxt = reader.u64();
    recv.right_edge = reader.u64();
    recv.consumed = reader.u64();
    recv.limit = reader.u32();
    recv.max_limit = reader.u32();
    recv.scale = reader.u8();
    recv.fin = reader.u64();
    recv.segment_size = reader.u16();
    recv.ts_recent = reader.u32();
    recv.ts_recent_s = reader.u32();
    recv
}
