//! A connection under test with a peer driven by hand, segment by segment.

use base::{Duration, Instant, SeqNumber};
use tcp::{Config, Connection, Ecn, OutputLimit, SegmentIn, SegmentOut, State, Verdict};
use wire::tcp::{Flags, Header, Options, SackBlock, Timestamps};

use super::world::addresses;
use super::{CheckedBuffer, pattern};

/// The peer's initial sequence number, near the wrap so that every test crosses it.
pub const IRS: u32 = u32::MAX - 50;
/// Ours.
pub const ISS: u32 = u32::MAX - 100;

pub const SYN: Flags = Flags::SYN;
pub const ACK: Flags = Flags::ACK;
pub const FIN_ACK: Flags = Flags::FIN.union(Flags::ACK);
pub const SYN_ACK: Flags = Flags::SYN.union(Flags::ACK);
pub const RST: Flags = Flags::RST;

pub struct Peer {
    pub conn: Connection,
    pub now: Instant,
    pub buffer: CheckedBuffer,
    /// The window field that the peer sends.
    pub window: u16,
    /// The stream offset that the peer sends next.
    pub sent: u64,
    /// The timestamp it sends, if it uses the option.
    pub timestamp: Option<u32>,
    pub max_payload: u32,
    pub sack: Vec<(u64, u64)>,
    pub ecn: Ecn,
}

/// A segment that came out, in stream terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub flags: Flags,
    /// Stream offset of the sequence number (−1: the SYN).
    pub seq: i64,
    pub len: u32,
    /// Stream offset acknowledged.
    pub ack: i64,
    pub window: u16,
    pub sack: Vec<(u64, u64)>,
}

impl Peer {
    /// Around a connection that the test has made, at the harness' start of time.
    pub fn around(conn: Connection) -> Self {
        Self {
            conn,
            now: Instant::from_millis(100_000),
            buffer: CheckedBuffer::new(0),
            window: 60_000,
            sent: 0,
            timestamp: None,
            max_payload: 0,
            sack: Vec::new(),
            ecn: Ecn::NotEct,
        }
    }

    /// In SYN-SENT, the SYN already taken out.
    pub fn syn_sent(config: &Config) -> Self {
        let now = Instant::from_millis(100_000);
        let [local, remote] = addresses();
        let mut peer = Self::around(Connection::connect(now, config, local, remote, SeqNumber(ISS), 7));
        let syn = peer.poll().expect("a SYN");
        assert_eq!(syn.flags.difference(Flags::ECE | Flags::CWR), SYN);
        peer
    }

    /// In SYN-RECEIVED by a passive open, the SYN-ACK taken out.
    pub fn syn_received(config: &Config, options: Options) -> Self {
        let now = Instant::from_millis(100_000);
        let [local, remote] = addresses();
        let mut header = blank(SYN);
        header.seq = SeqNumber(IRS);
        header.window = 60_000;
        header.options = options;
        let syn = SegmentIn { header, payload: &[], arrival: now, segment_count: 1, ecn: Ecn::NotEct };
        let mut peer = Self::around(Connection::accept(now, config, local, remote, SeqNumber(ISS), 7, &syn));
        peer.poll().expect("a SYN-ACK");
        peer
    }

    /// Established with a plain peer: MSS 1000, no other option.
    pub fn established(config: &Config) -> Self {
        Self::established_with(config, Options { mss: Some(1000), ..Options::default() })
    }

    /// Established by our active open, the peer's SYN-ACK carrying `options`. No quick acknowledgements are left.
    pub fn established_with(config: &Config, options: Options) -> Self {
        Self::established_after(config, options, Duration::ZERO)
    }

    /// The same over a path with a round trip of `rtt`.
    pub fn established_after(config: &Config, options: Options, rtt: Duration) -> Self {
        let mut peer = Self::syn_sent(config);
        peer.now += rtt;
        peer.timestamp = options.timestamps.map(|stamps| stamps.value);
        let mut header = blank(SYN_ACK);
        header.seq = SeqNumber(IRS);
        header.ack = SeqNumber(ISS) + 1;
        header.window = peer.window;
        header.options = options;
        peer.give(header, &[]);
        assert_eq!(peer.conn.state(), State::Established);
        assert_eq!(peer.poll().expect("the handshake's last acknowledgement").flags, ACK);
        peer
    }

    /// Time passes; expired timers act.
    pub fn wait(&mut self, span: Duration) -> &mut Self {
        let end = self.now + span;
        while let Some(at) = self.conn.deadline().filter(|&at| at <= end) {
            self.now = at.max(self.now);
            self.conn.handle_deadline(self.now);
            if self.conn.wants_output(self.now) {
                return self;
            }
        }
        self.now = end;
        self
    }

    /// Time passes up to the next deadline. Returns how long that was.
    pub fn wait_for_deadline(&mut self) -> Duration {
        let at = self.conn.deadline().expect("a deadline");
        let span = at.saturating_since(self.now);
        self.now = self.now.max(at);
        self.conn.handle_deadline(self.now);
        span
    }

    pub fn give(&mut self, header: Header, payload: &[u8]) -> Verdict {
        self.give_counted(header, payload, 1)
    }

    pub fn give_counted(&mut self, header: Header, payload: &[u8], segment_count: u16) -> Verdict {
        let segment = SegmentIn { header, payload, arrival: self.now, segment_count, ecn: self.ecn };
        let verdict = self.conn.handle_segment(self.now, &segment, &mut self.buffer);
        self.conn.check_invariants().unwrap();
        verdict
    }

    /// A header with everything filled in: `seq` and `ack` as stream offsets.
    pub fn header(&self, flags: Flags, seq: i64, ack: i64) -> Header {
        let mut header = blank(flags);
        header.seq = SeqNumber(IRS) + (seq + 1) as u32;
        header.ack = SeqNumber(ISS) + (ack + 1) as u32;
        header.window = self.window;
        header.options.timestamps = self.timestamp.map(|value| Timestamps { value, echo: 0 });
        for &(start, end) in &self.sack {
            header.options.sack.push(SackBlock {
                start: SeqNumber(ISS) + start.wrapping_add(1) as u32,
                end: SeqNumber(ISS) + end.wrapping_add(1) as u32,
            });
        }
        header
    }

    /// The peer acknowledges the stream up to an offset.
    pub fn ack(&mut self, ack: u64) -> Verdict {
        let header = self.header(ACK, self.sent as i64, ack as i64);
        self.give(header, &[])
    }

    /// The peer sends the bytes `[from, from + len)` of its stream.
    pub fn data(&mut self, from: u64, len: usize) -> Verdict {
        let acked = self.conn.acked_to() as i64;
        let header = self.header(ACK, from as i64, acked);
        let payload: Vec<u8> = (0..len as u64).map(|i| pattern(0, from + i)).collect();
        self.sent = self.sent.max(from + len as u64);
        self.give(header, &payload)
    }

    /// The peer's next bytes, in order.
    pub fn more(&mut self, len: usize) -> Verdict {
        self.data(self.sent, len)
    }

    /// The peer's FIN behind what it sent.
    pub fn fin(&mut self) -> Verdict {
        let acked = self.conn.acked_to() as i64;
        let header = self.header(FIN_ACK, self.sent as i64, acked);
        let verdict = self.give(header, &[]);
        self.sent += 1;
        verdict
    }

    pub fn poll_raw(&mut self) -> Option<SegmentOut> {
        let wanted = self.conn.wants_output(self.now);
        let segment = self.conn.poll_segment(self.now, &OutputLimit { max_payload: self.max_payload });
        assert!(wanted || segment.is_none(), "output without wants_output");
        self.conn.check_invariants().unwrap();
        segment
    }

    pub fn poll(&mut self) -> Option<Seen> {
        let segment = self.poll_raw()?;
        let header = segment.header;
        let at = |seq: SeqNumber, base: u32| i64::from(seq.distance_from(SeqNumber(base)) as i32) - 1;
        let seen = Seen {
            flags: header.flags,
            seq: at(header.seq, ISS),
            len: segment.len,
            ack: if header.flags.contains(ACK) { at(header.ack, IRS) } else { 0 },
            window: header.window,
            sack: header
                .options
                .sack
                .iter()
                .map(|block| (at(block.start, IRS) as u64, at(block.end, IRS) as u64))
                .collect(),
        };
        assert!(seen.len == 0 || segment.offset == seen.seq as u64);
        Some(seen)
    }

    /// Everything that wants to go out: `(seq, len)`.
    pub fn drain(&mut self) -> Vec<(i64, u32)> {
        core::iter::from_fn(|| self.poll()).map(|seen| (seen.seq, seen.len)).collect()
    }

    /// The application queues up to an offset.
    pub fn send(&mut self, queued_to: u64) {
        self.conn.handle_send(queued_to);
    }
}

pub fn blank(flags: Flags) -> Header {
    Header {
        src_port: 80,
        dst_port: 40_000,
        seq: SeqNumber(0),
        ack: SeqNumber(0),
        flags,
        window: 0,
        urgent: 0,
        options: Options::default(),
    }
}
