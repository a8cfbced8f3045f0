//! Segments in: checksum, flow, connection or listener or TIME-WAIT record, and a reset for what belongs to none.

use base::Instant;
use core::net::SocketAddr;
use wire::checksum::{self, Sum};
use wire::frame::ChecksumIn;
use wire::ip::Protocol;
use wire::tcp::{Flags, Header};

use super::Glance;
use crate::buffers::BufferFamily;
use crate::flow::{FourTuple, Target};
use crate::ingress::Packet;
use crate::socket::Stage;
use crate::stack::Stack;

/// From so much payload on, copying and summing in one pass is worth its while.
const LARGE: usize = 256;

impl<B: BufferFamily> Stack<B> {
    /// Takes a TCP segment in.
    pub(crate) fn handle_tcp(&mut self, now: Instant, packet: &Packet<'_>) {
        self.stats.tcp_in += 1;
        // RFC 1122 §4.2.3.10: no connection is to or from a group.
        if packet.to_group {
            self.stats.drop_tcp_broadcast += 1;
            return;
        }
        let verify = || {
            packet.checksum != ChecksumIn::Unknown
                || checksum::verify_tcp(packet.source(), packet.destination(), packet.payload)
        };
        let Ok((header, payload)) = Header::parse(packet.payload) else {
            let reason =
                if verify() { &mut self.stats.drop_tcp_malformed } else { &mut self.stats.drop_tcp_checksum };
            *reason += 1;
            return;
        };
        let tuple = FourTuple {
            local: SocketAddr::new(packet.destination(), header.dst_port),
            remote: SocketAddr::new(packet.source(), header.src_port),
        };
        let pieces = match packet.segment_size {
            0 => 1,
            size => payload.len().div_ceil(usize::from(size)).clamp(1, usize::from(u16::MAX)),
        };
        let segment = tcp::SegmentIn {
            header,
            payload,
            arrival: packet.arrival,
            segment_count: pieces as u16,
            ecn: tcp::Ecn::from_bits(packet.tos()),
        };
        let target = self.find_tcp(&tuple);
        if let Some(Target::Socket(index)) = target
            && packet.checksum == ChecksumIn::Unknown
            && payload.len() >= LARGE
        {
            let (tcp_header, _) = packet.payload.split_at(packet.payload.len() - payload.len());
            let (source, destination) = (packet.header.source, packet.header.destination);
            let length = packet.payload.len() as u32;
            let sum = Sum::pseudo_header_v4(source, destination, Protocol::TCP, length).add(tcp_header);
            match self.give_unverified(now, index, sum, &segment, &[]) {
                tcp::Unverified::Taken(tcp::Verdict::Predicted) => {
                    self.begin_run(index, packet, &segment);
                    return;
                }
                tcp::Unverified::Taken(_) | tcp::Unverified::Damaged => return,
                tcp::Unverified::NotTaken => {}
            }
        }
        if !verify() {
            self.stats.drop_tcp_checksum += 1;
            return;
        }
        match target {
            Some(Target::Socket(index)) => self.give_segment(now, index, &tuple, &segment),
            Some(Target::TimeWait(index)) => self.give_time_wait(now, index, &tuple, &segment),
            None => self.handle_unclaimed(now, &tuple, &segment, None),
        }
    }

    /// Gives a connection a segment that is verified while its payload is placed, with the `rest` of it; `sum` is that of all
    /// that the checksum covers but the payload.
    pub(super) fn give_unverified(
        &mut self,
        now: Instant,
        index: u32,
        sum: Sum,
        segment: &tcp::SegmentIn<'_>,
        rest: &[u8],
    ) -> tcp::Unverified {
        let Some(socket) = self.sockets.get_index_mut(index) else { return tcp::Unverified::NotTaken };
        let Some(tcp) = socket.tcp_mut() else { return tcp::Unverified::NotTaken };
        let received_to = tcp.connection.received_to();
        let given = tcp.connection.handle_unverified(now, segment, rest, sum, &mut tcp.stream);
        match given {
            tcp::Unverified::Taken(verdict) => {
                self.stats.verdicts.add(verdict);
                if !socket.is_settled_after_data(now)
                    && let Some(tcp) = socket.tcp()
                {
                    // Data that was expected changes nothing else that an owner can see.
                    let before = Glance { received_to, ..Glance::at(&tcp.connection) };
                    self.settle(now, index, before);
                }
            }
            tcp::Unverified::Damaged => self.stats.drop_tcp_checksum += 1,
            tcp::Unverified::NotTaken => {}
        }
        given
    }

    pub(crate) fn give_segment(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &FourTuple,
        segment: &tcp::SegmentIn<'_>,
    ) {
        let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) else { return };
        let flags = segment.header.flags;
        if tcp.connection.state() == tcp::State::TimeWait
            && flags & (Flags::ACK | Flags::RST | Flags::SYN) == Flags::SYN
            && self.succeed_held(now, index, tuple, segment)
        {
            return;
        }
        let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) else { return };
        if tcp.stage == Stage::HalfOpen && flags & (Flags::ACK | Flags::RST | Flags::SYN) == Flags::ACK {
            let parent = tcp.parent;
            if self.accept_is_full(parent) {
                self.stats.drop_accept_overflow += 1;
                return;
            }
        }
        let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) else { return };
        let before = Glance::at(&tcp.connection);
        let verdict = tcp.connection.handle_segment(now, segment, &mut tcp.stream);
        self.stats.verdicts.add(verdict);
        if before.is_opening() {
            self.note_fast_open(now, index, tuple, segment);
        }
        self.settle(now, index, before);
        if verdict.wants_reset() {
            self.send_reset(now, tuple, segment);
        }
    }

    /// A segment for which there is no connection: a listener's, or nobody's.
    pub(crate) fn handle_unclaimed(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        segment: &tcp::SegmentIn<'_>,
        at_least: Option<base::SeqNumber>,
    ) {
        let Some(listener) = self.find_listener(tuple) else {
            self.stats.tcp_no_socket += 1;
            self.send_reset(now, tuple, segment);
            return;
        };
        match tcp::listen::classify(segment) {
            tcp::ListenVerdict::Open => {
                self.open_half(now, listener, *tuple, segment, at_least);
            }
            tcp::ListenVerdict::Reset if self.open_by_cookie(now, listener, tuple, segment) => {}
            tcp::ListenVerdict::Reset => {
                self.stats.drop_listen_segment += 1;
                self.send_reset(now, tuple, segment);
            }
            tcp::ListenVerdict::Ignore => self.stats.drop_listen_segment += 1,
        }
    }

    /// RFC 9293 §3.10.7.1: the answer to a segment without a connection. As on Linux there is no limit to their rate: each
    /// is smaller than most that ask for it, and the queue that it joins is bounded.
    fn send_reset(&mut self, now: Instant, tuple: &FourTuple, segment: &tcp::SegmentIn<'_>) {
        let Some(reset) = tcp::reset_for(segment) else { return };
        self.stats.resets_out += 1;
        self.send_bare_segment(now, tuple, &reset);
    }
}
