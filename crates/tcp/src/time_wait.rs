//! TIME-WAIT as a record of its own: all that is needed once both directions are done (RFC 9293 §3.6.1).
//!
//! A busy server has far more connections in TIME-WAIT than alive; each is this small. The record answers
//! retransmissions, lets a new SYN reopen the connection early where that is safe (RFC 1122 §4.2.2.13, RFC 6191), and is not
//! ended by a reset (RFC 1337).

use base::{Duration, Instant, SeqNumber};
use wire::tcp::{Flags, Header, Options, Timestamps};

use crate::connection::Connection;
use crate::segment::{Ecn, SegmentIn, SegmentOut};
use crate::state::State;

/// Answers to segments without data are at least this far apart.
const ANSWER_INTERVAL: Duration = Duration::from_millis(500);
/// Our own timestamps have certainly advanced after this long.
const REUSE_AFTER: Duration = Duration::from_secs(1);
/// A reopened connection's initial sequence number lies at least this far beyond the old one's last, as in Linux.
const REOPEN_GAP: u32 = 65_537;

/// A connection in TIME-WAIT. Its addresses are its owner's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWait {
    deadline: Instant,
    answered_at: Instant,
    duration_ms: u32,
    send_next: SeqNumber,
    receive_next: SeqNumber,
    ts_recent: u32,
    timestamp_offset: u32,
    window: u16,
    timestamps: bool,
}

const _: () = assert!(size_of::<TimeWait>() < 64);

/// What becomes of a segment for a connection in TIME-WAIT.
#[derive(Clone, Debug)]
pub enum TimeWaitVerdict {
    /// Drop it.
    Drop,
    /// Send this acknowledgement.
    Answer(SegmentOut),
    /// A SYN that may open a new connection: forget this record and give the segment to the listener, if there is one.
    /// The new initial sequence number must not be before this one (RFC 1122 §4.2.2.13).
    Reopen(SeqNumber),
}

impl Connection {
    /// The record that can take this connection's place: in TIME-WAIT, with nothing left to be sent.
    pub fn time_wait(&self) -> Option<TimeWait> {
        if self.state() != State::TimeWait || self.pending.ack {
            return None;
        }
        Some(TimeWait {
            deadline: self.deadline()?,
            answered_at: Instant::ZERO,
            duration_ms: self.settings.time_wait_ms,
            send_next: self.send.seq(self.send.nxt),
            receive_next: self.recv.seq(self.recv.nxt),
            ts_recent: self.recv.ts_recent,
            timestamp_offset: self.settings.timestamp_offset,
            window: (self.recv.window() >> self.recv.scale).min(u64::from(u16::MAX)) as u16,
            timestamps: self.settings.timestamps,
        })
    }
}

impl TimeWait {
    /// When the record may be forgotten.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether an active open may use the same pair of addresses again (RFC 6191 §2, as Linux's `tcp_tw_reuse`): with
    /// timestamps, a second after the old connection ended. The new initial sequence number must not be before the one
    /// given.
    pub fn reusable(&self, now: Instant) -> Option<SeqNumber> {
        let began = self.deadline - Duration::from_millis(self.duration_ms.into());
        (self.timestamps && now.saturating_since(began) >= REUSE_AFTER).then(|| self.send_next + REOPEN_GAP)
    }

    /// Takes a segment that belongs to the connection (RFC 9293 §3.10.7.4).
    pub fn handle_segment(&mut self, now: Instant, segment: &SegmentIn<'_>) -> TimeWaitVerdict {
        let header = &segment.header;
        if header.flags.contains(Flags::RST) {
            return TimeWaitVerdict::Drop; // RFC 1337 §3, fix F1
        }
        if header.flags.contains(Flags::SYN) && !header.flags.contains(Flags::ACK) && self.may_reopen(header)
        {
            return TimeWaitVerdict::Reopen(self.send_next + REOPEN_GAP);
        }
        let old_timestamp = self.timestamps
            && header.options.timestamps.is_some_and(|stamps| before(stamps.value, self.ts_recent));
        if header.flags.contains(Flags::FIN) && !old_timestamp {
            // A retransmitted FIN: our last acknowledgement was lost; two more segment lifetimes.
            self.deadline = now + Duration::from_millis(self.duration_ms.into());
            return self.answer(now, segment);
        }
        if segment.sequence_len() == 0 && header.seq == self.receive_next && !old_timestamp {
            return TimeWaitVerdict::Drop; // an acknowledgement where nothing is open: nothing to say
        }
        self.answer(now, segment)
    }

    /// A SYN that could open a new connection where nobody listens: acknowledged as any other segment.
    pub fn refuse(&mut self, now: Instant, segment: &SegmentIn<'_>) -> TimeWaitVerdict {
        self.answer(now, segment)
    }

    /// RFC 6191 §2: a newer timestamp, or without timestamps a sequence number beyond the old connection's.
    fn may_reopen(&self, header: &Header) -> bool {
        match header.options.timestamps {
            Some(stamps) if self.timestamps => {
                before(self.ts_recent, stamps.value)
                    || (stamps.value == self.ts_recent && header.seq.after(self.receive_next))
            }
            Some(_) | None => header.seq.after(self.receive_next),
        }
    }

    fn answer(&mut self, now: Instant, segment: &SegmentIn<'_>) -> TimeWaitVerdict {
        let header = &segment.header;
        // What has data or a FIN is a retransmission and no answer to an answer.
        let may_loop = segment.sequence_len() == 0 || header.flags.contains(Flags::SYN);
        if may_loop
            && self.answered_at != Instant::ZERO
            && now.saturating_since(self.answered_at) < ANSWER_INTERVAL
        {
            return TimeWaitVerdict::Drop;
        }
        self.answered_at = now;
        let stamps = self.timestamps.then(|| Timestamps {
            value: (now.as_millis() as u32).wrapping_add(self.timestamp_offset),
            echo: self.ts_recent,
        });
        TimeWaitVerdict::Answer(SegmentOut {
            header: Header {
                src_port: header.dst_port,
                dst_port: header.src_port,
                seq: self.send_next,
                ack: self.receive_next,
                flags: Flags::ACK,
                window: self.window,
                urgent: 0,
                options: Options { timestamps: stamps, ..Options::default() },
            },
            offset: 0,
            len: 0,
            segment_size: 1,
            ecn: Ecn::NotEct,
        })
    }
}

/// Whether timestamp `a` is older than `b` (RFC 7323 §5.2).
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
