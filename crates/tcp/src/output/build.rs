//! Headers.

use base::Instant;
use wire::tcp::{Flags, Header, Options, SackBlock, Timestamps};

use crate::connection::Connection;
use crate::segment::{Ecn, Position, SegmentOut, position_of};
use crate::state::State;

impl Connection {
    /// A SYN, or in SYN-RECEIVED a SYN-ACK, with the first `data` bytes of the stream.
    pub(crate) fn build_syn(&mut self, now: Instant, data: u32) -> SegmentOut {
        let answers = self.state == State::SynReceived;
        let flags = if answers { Flags::SYN | Flags::ACK } else { Flags::SYN } | self.ecn_of_syn(answers);
        let window = self.syn_window();
        if answers {
            self.recv.right_edge = self.recv.right_edge.max(self.recv.nxt + u64::from(window));
            self.note_ack_sent();
        }
        let header = Header {
            src_port: self.ends.local_port,
            dst_port: self.ends.remote_port,
            seq: self.send.iss,
            ack: if answers { self.recv.seq(self.recv.nxt) } else { base::SeqNumber(0) },
            flags,
            window,
            urgent: 0,
            options: self.syn_options(now),
        };
        let segment_size = (data as u16).max(1); // it fits a segment
        SegmentOut { header, offset: 0, len: data, segment_size, ecn: Ecn::NotEct }
    }

    /// A segment with `len` positions from `start`: data, the FIN, or both.
    pub(crate) fn build_data(&mut self, now: Instant, start: Position, len: u32) -> SegmentOut {
        let payload = self.send.payload_in(start, len);
        let end = start + u64::from(len);
        let mut flags = Flags::ACK;
        if end > self.send.queued && self.send.fin_queued {
            flags |= Flags::FIN;
        }
        if payload > 0 && end >= self.send.queued {
            flags |= Flags::PSH; // RFC 9293 §3.9.1: the last of what is queued
        }
        let duplicate = self.recv.duplicate;
        let mut segment = self.build(now, start, flags);
        segment.offset = Self::offset_of(start);
        segment.len = payload;
        // SACK blocks beside data take room that the MSS did not count on.
        let blocks = segment.header.options.sack.len() as u16;
        let taken = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        let room = self.send.mss.saturating_sub(taken).max(1);
        if payload > u32::from(room) && payload <= u32::from(self.send.mss) {
            // Nobody may be there to cut it: the blocks travel in an acknowledgement of their own, right behind.
            segment.header.options.sack.clear();
            self.recv.duplicate = duplicate;
            self.pending.ack = true;
            segment.segment_size = self.send.mss;
        } else {
            segment.segment_size = room;
        }
        segment
    }

    /// A segment without payload.
    pub(crate) fn build(&mut self, now: Instant, seq: Position, flags: Flags) -> SegmentOut {
        let window = self.recv.advertise(self.settings.window_scaling);
        self.note_ack_sent();
        let mut options = Options::default();
        if self.settings.timestamps {
            options.timestamps = Some(Timestamps { value: self.timestamp(now), echo: self.recv.ts_recent });
        }
        if self.settings.sack && (self.recv.reassembly.is_some() || self.has_duplicate()) {
            self.add_sack_blocks(&mut options);
        }
        let flags = flags | self.ecn_of_segment(flags);
        let mut header = Header {
            src_port: self.ends.local_port,
            dst_port: self.ends.remote_port,
            seq: self.send.seq(seq),
            ack: self.recv.seq(self.recv.nxt),
            flags,
            window,
            urgent: 0,
            options,
        };
        if self.urgent.is_some() {
            self.set_urgent_pointer(seq, &mut header);
        }
        SegmentOut { header, offset: 0, len: 0, segment_size: 1, ecn: Ecn::NotEct }
    }

    /// RFC 2018 §4 and RFC 2883 §4: a duplicate first, then the ranges, the newest first.
    fn add_sack_blocks(&mut self, options: &mut Options) {
        let room = if self.settings.timestamps { 3 } else { 4 };
        let duplicate = core::mem::take(&mut self.recv.duplicate);
        let block = |range: crate::recv::reassembly::Range| SackBlock {
            start: self.recv.seq(range.start),
            end: self.recv.seq(range.end),
        };
        if duplicate.start != duplicate.end {
            let start = position_of(duplicate.start, self.recv.irs, self.recv.nxt).max(0) as Position;
            options.sack.push(duplicate);
            // RFC 2883 §4.2: the range that contains the duplicate comes next.
            let around = self.recv.reassembly.as_ref().and_then(|kept| kept.range_at(start));
            if let Some(around) = around {
                options.sack.push(block(around));
            }
        }
        let Some(reassembly) = &self.recv.reassembly else { return };
        for range in reassembly.recent_ranges() {
            if options.sack.len() >= room {
                break;
            }
            let next = block(range);
            if options.sack.get(1) != Some(&next) {
                options.sack.push(next);
            }
        }
    }
}
