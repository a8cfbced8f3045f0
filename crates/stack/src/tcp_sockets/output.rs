//! Segments out: one header, and slices of the send buffer behind it.

use base::Instant;
use tcp::{ReceiveBuffer as _, SendBuffer as _};
use wire::checksum::Sum;
use wire::frame::{ChecksumOut, Segmentation, TxFrame};
use wire::ip::Protocol;
use wire::tcp::{CHECKSUM_OFFSET, MAX_HEADER_LEN};
use wire::{ethernet, ipv4};

use super::Glance;
use crate::InterfaceId;
use crate::buffers::BufferFamily;
use crate::egress::Outgoing;
use crate::flow::FourTuple;
use crate::interface::{FrameSink, SinkFull};
use crate::path::CachedPath;
use crate::stack::{Stack, v4};
use crate::stats::Stats;
use crate::transmit::{Budget, Link, Turn};

/// Room for all headers of a segment.
const MAX_HEADERS: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + MAX_HEADER_LEN;
/// Of an IP packet, what headers may take.
const IP_AND_TCP_HEADERS: u32 = (ipv4::HEADER_LEN + MAX_HEADER_LEN) as u32;

/// The most payload that is made with one header to be cut here.
const MAX_CUT: u32 = 256 << 10;

impl<B: BufferFamily> Stack<B> {
    /// The interface over which a connection sends; its way is found if it has none. If there is none, what it has to
    /// send is lost.
    pub(crate) fn tcp_interface(&mut self, now: Instant, index: u32) -> Option<InterfaceId> {
        let tcp = self.sockets.get_index(index)?.tcp()?;
        if let Some(path) = self.valid_path(tcp.path) {
            return Some(path.interface);
        }
        let tuple = tcp.tuple();
        let epoch = self.routes.epoch();
        match self.find_path(now, tuple.local.ip(), tuple.remote.ip()) {
            Ok((path, _)) => {
                let tcp = self.sockets.get_index_mut(index)?.tcp_mut()?;
                tcp.path = Some(CachedPath { path, epoch });
                Some(path.interface)
            }
            Err(_) => {
                self.stats.drop_no_route += 1;
                self.on_unreachable(now, index, tcp::IcmpError::NetworkUnreachable);
                None
            }
        }
    }

    /// A connection's turn on its interface.
    pub(crate) fn transmit_tcp(
        &mut self,
        now: Instant,
        index: u32,
        interface: InterfaceId,
        sink: &mut impl FrameSink,
        budget: &mut Budget,
    ) -> Turn {
        let Some(tcp) = self.sockets.get_index(index).and_then(|socket| socket.tcp()) else {
            return Turn::Done;
        };
        let Some(path) = self.valid_path(tcp.path).filter(|path| path.interface == interface) else {
            return Turn::Reroute;
        };
        let link = match self.open_link(now, path) {
            Ok(link) => link,
            Err(turn) => {
                if let (Turn::Reroute, Some(tcp)) =
                    (turn, self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()))
                {
                    tcp.path = None;
                }
                return turn;
            }
        };
        let Some(socket) = self.sockets.get_index_mut(index) else { return Turn::Done };
        let packet = |tuple: &FourTuple| {
            let (source, destination) = v4(tuple)?;
            let (ttl, tos, dont_fragment) =
                (socket.ttl, socket.tos & !3, !socket.mtu_discovery.may_fragment());
            Some(Outgoing { source, destination, protocol: Protocol::TCP, ttl, tos, dont_fragment })
        };
        let Some(packet) = socket.tcp().and_then(|tcp| packet(&tcp.tuple())) else { return Turn::Done };
        let tells_sent = socket.wants.sent();
        let Some(tcp) = socket.tcp_mut() else { return Turn::Done };
        let before = Glance::at(&tcp.connection);
        tcp.connection.set_window_share(tcp.stream.share());
        let turn = loop {
            if budget.turn_is_over() || !sink.ready(interface) {
                break Turn::More;
            }
            let limit = tcp::OutputLimit { max_payload: max_payload(&link, &tcp.connection, budget, sink) };
            let Some(segment) = tcp.connection.poll_segment(now, &limit) else { break Turn::Done };
            let payload = tcp.stream.peek(segment.offset, segment.len as usize);
            let mut buffer = [0; MAX_HEADERS];
            let frame = frame_of(&link, &packet, &segment, payload, &mut buffer);
            self.stats.tcp_out += 1;
            let frames = give(&mut self.stats, &link, sink, &frame);
            budget.spend(frames, frame.frame_len());
        };
        let has_more = turn == Turn::More && tcp.connection.wants_output(now);
        if tells_sent {
            self.note_sent(index);
        }
        if has_more {
            self.sync_timer(index);
            return Turn::More;
        }
        self.settle_with(now, index, before, true);
        Turn::Done
    }

    /// Sends a segment that belongs to no connection.
    pub(crate) fn send_bare_segment(&mut self, now: Instant, tuple: &FourTuple, segment: &tcp::SegmentOut) {
        let Some((source, destination)) = v4(tuple) else { return };
        let (ttl, tos) = (self.config.ttl, 0);
        let packet = Outgoing { source, destination, protocol: Protocol::TCP, ttl, tos, dont_fragment: true };
        let mut buffer = [0; MAX_HEADER_LEN];
        let length = segment.header.emit(&mut buffer);
        let header = &mut buffer[..length];
        let sum = Sum::pseudo_header_v4(source, destination, Protocol::TCP, length as u32).add(header);
        header[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
        self.stats.tcp_out += 1;
        self.send_packet(now, packet, &[header]);
    }
}

/// Gives a frame to the sink; returns in how many. For a device that cuts nothing it is cut here: it was made for several,
/// or options left the segment less room than its MSS.
fn give(stats: &mut Stats, link: &Link, sink: &mut impl FrameSink, frame: &TxFrame<'_>) -> usize {
    let mut one = |frame: &TxFrame<'_>| match sink.transmit(link.interface, frame) {
        Ok(()) => {
            stats.frames_out += 1;
            stats.bytes_out += frame.frame_len() as u64;
        }
        Err(SinkFull) => stats.transmit_refused += 1,
    };
    if frame.segmentation == Segmentation::None || link.capabilities.max_segmentation > 0 {
        one(frame);
        return 1;
    }
    let medium = link.capabilities.medium;
    let cut = if link.capabilities.checksum_tx {
        wire::cut::cut_unsummed(frame, medium, one)
    } else {
        wire::cut::cut(frame, medium, |headers, payload| one(&TxFrame::plain(headers, payload)))
    };
    debug_assert!(cut.is_ok(), "frames made here can be cut");
    cut.unwrap_or(0)
}

/// The most payload in one segment: what the device takes in a super-segment, or what is cut here into as many frames as
/// the turn and the sink have room for; zero: one MSS.
fn max_payload(link: &Link, connection: &tcp::Connection, budget: &Budget, sink: &impl FrameSink) -> u32 {
    let most = link.capabilities.max_segmentation.min(u32::from(u16::MAX));
    if most > 0 {
        return if most > u32::from(link.capabilities.mtu) { most - IP_AND_TCP_HEADERS } else { 0 };
    }
    let mss = u32::from(connection.mss()).max(1);
    // One more may come of it when options take room.
    let room = sink.room(link.interface).saturating_sub(1);
    let pieces = room.min(budget.frames).min(budget.turn_frames) as u32;
    // No header has to tell the length of the whole; but what is paced goes in small bursts.
    let most = if connection.is_paced() { u32::from(u16::MAX) - IP_AND_TCP_HEADERS } else { MAX_CUT };
    let payload = (pieces * mss).min(most / mss * mss).min(budget.turn_bytes.try_into().unwrap_or(u32::MAX));
    if payload > mss { payload } else { 0 }
}

/// Writes the headers into `buffer` and puts the frame together.
fn frame_of<'a>(
    link: &Link,
    packet: &Outgoing,
    segment: &tcp::SegmentOut,
    payload: [&'a [u8]; 2],
    buffer: &'a mut [u8; MAX_HEADERS],
) -> TxFrame<'a> {
    let ip = link.emit(buffer);
    let tcp = ip + ipv4::HEADER_LEN;
    let header_len = segment.header.emit(&mut buffer[tcp..]);
    let payload_len = payload[0].len() + payload[1].len();
    debug_assert_eq!(payload_len, segment.len as usize, "the send buffer holds what is queued");
    let length = header_len + payload_len;
    let tos = packet.tos | segment.ecn.bits();
    Outgoing { tos, ..*packet }.header(length).emit(&mut buffer[ip..tcp]);
    let cut = segment.len > u32::from(segment.segment_size);
    let sum = Sum::pseudo_header_v4(packet.source, packet.destination, Protocol::TCP, length as u32);
    // What is cut gets its checksums where it is cut.
    let partial = cut || link.capabilities.checksum_tx;
    let (field, checksum) = if partial {
        (sum.fold(), ChecksumOut::Partial { start: tcp as u16, offset: CHECKSUM_OFFSET as u16 })
    } else {
        let header = &buffer[tcp..tcp + header_len];
        (sum.add(header).add(payload[0]).add(payload[1]).finish(), ChecksumOut::Complete)
    };
    let at = tcp + CHECKSUM_OFFSET;
    buffer[at..at + 2].copy_from_slice(&field.to_be_bytes());
    let segmentation =
        if cut { Segmentation::Tcp4 { segment_size: segment.segment_size } } else { Segmentation::None };
    TxFrame { headers: &buffer[..tcp + header_len], payload, checksum, segmentation }
}
