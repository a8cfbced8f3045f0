//! Datagrams out: straight from the socket's buffer where the link takes them whole and the way is open; copied into
//! fragments, or into the waiting room of a neighbour, where not.

use base::Instant;
use core::net::{IpAddr, SocketAddr};
use wire::checksum::Sum;
use wire::frame::{ChecksumOut, Segmentation, TxFrame};
use wire::ip::Protocol;
use wire::udp::{CHECKSUM_OFFSET, HEADER_LEN, Header, transmitted};
use wire::{ethernet, ipv4};

use crate::InterfaceId;
use crate::buffers::{BufferFamily, DatagramBuffer, DatagramMeta, Full};
use crate::egress::Outgoing;
use crate::error::SocketError;
use crate::flow::FourTuple;
use crate::interface::{FrameSink, SinkFull};
use crate::path::{CachedPath, Path};
use crate::socket::{Kind, UdpSocket};
use crate::stack::{Stack, canonical};
use crate::transmit::{Budget, Link, Turn};

/// The longest payload: what an IP packet can carry, less the header.
const MAX_PAYLOAD: usize = u16::MAX as usize - ipv4::HEADER_LEN - HEADER_LEN;
/// The most datagrams in one run (Linux: `UDP_MAX_SEGMENTS`).
const MAX_RUN: usize = 128;
const MAX_HEADERS: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + HEADER_LEN;

/// A datagram about to be sent.
struct Plan {
    packet: Outgoing,
    path: Path,
    src_port: u16,
    dst_port: u16,
    /// Where the payload begins in what stands in front, and its length.
    start: usize,
    payload_len: usize,
    /// What is in front is sent with it.
    is_last: bool,
    /// What is narrower than the link on the way does not matter.
    goes_by_link: bool,
}

impl<B: BufferFamily> Stack<B> {
    /// The interface over which a socket's next datagram goes. Those that cannot go at all are dropped.
    pub(crate) fn udp_interface(&mut self, index: u32) -> Option<InterfaceId> {
        loop {
            let socket = self.sockets.get_index_mut(index)?;
            let orphan = socket.orphan;
            let Kind::Udp(udp) = &mut socket.kind else { return None };
            let Some((meta, _)) = udp.buffers.front() else {
                if orphan {
                    self.release(index);
                }
                return None;
            };
            let source = udp.connected.map_or(udp.bound.ip(), |tuple| tuple.local.ip());
            let remote = destination_of(udp, &meta);
            match remote.and_then(|remote| self.route_to(source, remote.ip())) {
                Ok((interface, _, _)) => return Some(interface),
                Err(error) => self.refuse_datagram(index, error),
            }
        }
    }

    /// A socket's turn on an interface.
    pub(crate) fn transmit_udp(
        &mut self,
        now: Instant,
        index: u32,
        interface: InterfaceId,
        sink: &mut impl FrameSink,
        budget: &mut Budget,
    ) -> Turn {
        loop {
            let Some(socket) = self.sockets.get_index_mut(index) else { return Turn::Done };
            let orphan = socket.orphan;
            let Some((meta, payload_len)) = socket.udp_mut().and_then(|udp| {
                let (meta, payload) = udp.buffers.front()?;
                Some((meta, payload[0].len() + payload[1].len()))
            }) else {
                if orphan {
                    self.release(index);
                }
                return Turn::Done;
            };
            if budget.turn_is_over() || !sink.ready(interface) {
                return Turn::More;
            }
            let plan = match self.plan_datagram(now, index, &meta, payload_len) {
                Ok(plan) => plan,
                Err(error) => {
                    self.refuse_datagram(index, error);
                    continue;
                }
            };
            if plan.path.interface != interface {
                return Turn::Reroute;
            }
            budget.spend(1, plan.payload_len + MAX_HEADERS);
            self.stats.udp_out += 1;
            if interface == InterfaceId::LOOPBACK
                && let Some(all) = self.hand_over(now, index, &plan, meta.segment)
            {
                self.advance(index, &plan, all);
                continue;
            }
            let destination = plan.packet.destination;
            let mtu = usize::from(match plan.goes_by_link {
                true => self.link_mtu(interface, destination.into()),
                false => self.mtu_towards(now, interface, destination),
            });
            let whole = ipv4::HEADER_LEN + HEADER_LEN + plan.payload_len <= mtu;
            match self.open_link(now, plan.path) {
                Ok(link) if whole => self.send_from_buffer(index, &link, &plan, sink),
                Ok(_) | Err(Turn::Wait(_)) => self.send_copied(now, index, &plan, whole),
                Err(_) => {
                    if let Some(udp) = self.sockets.get_index_mut(index).and_then(|socket| socket.udp_mut()) {
                        udp.path = None;
                    }
                    return Turn::Reroute;
                }
            }
            self.advance(index, &plan, false);
        }
    }

    /// A datagram is sent, or `all` of the run that it begins.
    fn advance(&mut self, index: u32, plan: &Plan, all: bool) {
        if all || plan.is_last {
            self.pop_datagram(index);
        } else if let Some(udp) = self.sockets.get_index_mut(index).and_then(|socket| socket.udp_mut()) {
            udp.sent_of_run += plan.payload_len;
        }
    }

    fn plan_datagram(
        &mut self,
        now: Instant,
        index: u32,
        meta: &DatagramMeta,
        payload_len: usize,
    ) -> Result<Plan, SocketError> {
        let epoch = self.routes.epoch();
        let socket = self.sockets.get_index_mut(index).ok_or(SocketError::NoSuchSocket)?;
        let (ttl, tos, discovery) = (socket.ttl, socket.tos, socket.mtu_discovery);
        let Kind::Udp(udp) = &mut socket.kind else { return Err(SocketError::NotSupported) };
        let remote = destination_of(udp, meta)?;
        let IpAddr::V4(destination) = remote.ip() else { return Err(SocketError::NetworkUnreachable) };
        if payload_len > MAX_PAYLOAD {
            return Err(SocketError::MessageTooLong);
        }
        let segment = usize::from(meta.segment);
        if segment > 0 && payload_len > segment * MAX_RUN {
            return Err(SocketError::InvalidArgument);
        }
        let start = udp.sent_of_run.min(payload_len);
        let left = payload_len - start;
        let payload_len = if segment > 0 { left.min(segment) } else { left };
        let is_last = payload_len == left;
        let mut local = udp.connected.map_or(udp.bound, |tuple| tuple.local);
        let (broadcast, to_peer) = (udp.broadcast, udp.connected.is_some_and(|tuple| tuple.remote == remote));
        let cached = udp.path;
        if self.is_broadcast(destination) && !broadcast {
            return Err(SocketError::PermissionDenied);
        }
        let chosen = meta.local.ip().to_canonical();
        if !chosen.is_unspecified() && self.is_local(chosen) {
            local.set_ip(chosen);
        }
        // A socket bound to a broadcast address sends from an address of its own.
        if !self.is_local(local.ip()) {
            local.set_ip(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED));
        }
        let (path, source) = match self.valid_path(cached).filter(|_| to_peer) {
            Some(path) => (path, local.ip()),
            None => self.find_path(now, local.ip(), remote.ip())?,
        };
        let IpAddr::V4(source) = source else { return Err(SocketError::NetworkUnreachable) };
        if to_peer && let Some(udp) = self.sockets.get_index_mut(index).and_then(|socket| socket.udp_mut()) {
            udp.path = Some(CachedPath { path, epoch });
        }
        let packet = Outgoing {
            source,
            destination,
            protocol: Protocol::UDP,
            ttl: if meta.ttl == 0 { ttl } else { meta.ttl },
            tos: if meta.tos == 0 { tos } else { meta.tos },
            // As on Linux: what fits is not to be cut on the way, so that a narrow path makes itself known.
            dont_fragment: !discovery.may_fragment(),
        };
        let (src_port, dst_port) = (local.port(), remote.port());
        let goes_by_link = discovery.goes_by_link();
        Ok(Plan { packet, path, src_port, dst_port, start, payload_len, is_last, goes_by_link })
    }

    /// The shortest way: from this socket's buffer into that of another one here. False: there is none, or the payload does
    /// not stand in one piece; then a packet finds out. `Some(true)`: a receiver of runs has got all of one.
    fn hand_over(&mut self, now: Instant, index: u32, plan: &Plan, segment: u16) -> Option<bool> {
        let packet = &plan.packet;
        let tuple = FourTuple {
            local: SocketAddr::new(packet.destination.into(), plan.dst_port),
            remote: SocketAddr::new(packet.source.into(), plan.src_port),
        };
        let receiver = self.find_udp(&tuple)?;
        let [from, to] = self.sockets.pair_mut(index, receiver)?;
        let (from, to) = (from.udp_mut()?, to.udp_mut()?);
        let (_, [payload, []]) = from.buffers.front()? else { return None };
        let all = to.receives_runs && plan.start == 0 && !plan.is_last;
        let segment = if all { segment } else { 0 };
        let payload = if all { payload } else { payload.get(plan.range())? };
        let (remote, local) = (tuple.remote, tuple.local);
        let meta = DatagramMeta { remote, local, ttl: packet.ttl, tos: packet.tos, segment };
        let pushed = to.buffers.push(now, &meta, payload);
        self.stats.udp_in += 1;
        self.stats.udp_cut_through += 1;
        match pushed {
            Ok(()) => self.mark_changed(receiver),
            Err(Full) => self.stats.drop_udp_queue_full += 1,
        }
        Some(all)
    }

    /// The fast way: headers on the stack, payload in place.
    fn send_from_buffer(&mut self, index: u32, link: &Link, plan: &Plan, sink: &mut impl FrameSink) {
        // RFC 6864 §4.2: what may be cut on the way needs one.
        let ident = if plan.packet.dont_fragment { 0 } else { self.next_identification(&plan.packet) };
        let Some(udp) = self.sockets.get_index_mut(index).and_then(|socket| socket.udp_mut()) else { return };
        let Some((_, front)) = udp.buffers.front() else { return };
        let payload = plan.part_of(front);
        let mut buffer = [0; MAX_HEADERS];
        let ip = link.emit(&mut buffer);
        let transport = ip + ipv4::HEADER_LEN;
        let length = HEADER_LEN + plan.payload_len;
        let mut header = plan.packet.header(length);
        if !plan.packet.dont_fragment {
            header.ident = ident;
        }
        header.emit(&mut buffer[ip..transport]);
        plan.header().emit(&mut buffer[transport..]);
        let sum = plan.pseudo_header();
        let (field, checksum) = if link.capabilities.checksum_tx {
            let partial = ChecksumOut::Partial { start: transport as u16, offset: CHECKSUM_OFFSET as u16 };
            (sum.fold(), partial)
        } else {
            let header = &buffer[transport..transport + HEADER_LEN];
            (transmitted(sum.add(header).add(payload[0]).add(payload[1]).finish()), ChecksumOut::Complete)
        };
        let at = transport + CHECKSUM_OFFSET;
        buffer[at..at + 2].copy_from_slice(&field.to_be_bytes());
        let headers = &buffer[..transport + HEADER_LEN];
        let frame = TxFrame { headers, payload, checksum, segmentation: Segmentation::None };
        let length = frame.frame_len() as u64;
        match sink.transmit(link.interface, &frame) {
            Ok(()) => {
                self.stats.frames_out += 1;
                self.stats.bytes_out += length;
            }
            Err(SinkFull) => self.stats.transmit_refused += 1,
        }
    }

    /// The slow way: a copy, in fragments or to wait for a neighbour.
    fn send_copied(&mut self, now: Instant, index: u32, plan: &Plan, whole: bool) {
        let mut payload = core::mem::take(&mut self.scratch);
        payload.clear();
        if let Some(udp) = self.sockets.get_index_mut(index).and_then(|socket| socket.udp_mut())
            && let Some((_, slices)) = udp.buffers.front()
        {
            let [first, second] = plan.part_of(slices);
            payload.extend_from_slice(first);
            payload.extend_from_slice(second);
        }
        let mut header = [0; HEADER_LEN];
        plan.header().emit(&mut header);
        let checksum = transmitted(plan.pseudo_header().add(&header).add(&payload).finish());
        header[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_be_bytes());
        let packet = Outgoing { dont_fragment: whole && plan.packet.dont_fragment, ..plan.packet };
        self.send_along(now, plan.path, packet, &[&header, &payload]);
        self.scratch = payload;
    }

    /// The first datagram cannot be sent: its sender is told.
    fn refuse_datagram(&mut self, index: u32, error: SocketError) {
        self.stats.drop_udp_refused += 1;
        self.set_udp_error(index, error);
        self.pop_datagram(index);
    }

    fn pop_datagram(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        let orphan = socket.orphan;
        if let Some(udp) = socket.udp_mut() {
            udp.buffers.pop();
            udp.sent_of_run = 0;
            if !orphan {
                self.mark_changed(index);
            }
        }
    }
}

impl Plan {
    /// Which bytes of what stands in front.
    fn range(&self) -> core::ops::Range<usize> {
        self.start..self.start + self.payload_len
    }

    /// These bytes.
    fn part_of<'a>(&self, [first, second]: [&'a [u8]; 2]) -> [&'a [u8]; 2] {
        let core::ops::Range { start, end } = self.range();
        let (split, length) = (first.len(), first.len() + second.len());
        let of_first = &first[start.min(split)..end.min(split)];
        let of_second = &second[start.clamp(split, length) - split..end.clamp(split, length) - split];
        [of_first, of_second]
    }

    fn header(&self) -> Header {
        Header {
            src_port: self.src_port,
            dst_port: self.dst_port,
            len: (HEADER_LEN + self.payload_len) as u16,
            checksum: 0,
        }
    }

    fn pseudo_header(&self) -> Sum {
        let length = (HEADER_LEN + self.payload_len) as u32;
        Sum::pseudo_header_v4(self.packet.source, self.packet.destination, Protocol::UDP, length)
    }
}

/// Where a datagram goes.
fn destination_of<B: BufferFamily>(
    udp: &UdpSocket<B>,
    meta: &DatagramMeta,
) -> Result<core::net::SocketAddr, SocketError> {
    if meta.remote.port() != 0 {
        return canonical(meta.remote, true).map_err(|_| SocketError::NetworkUnreachable);
    }
    match udp.connected {
        Some(tuple) => Ok(tuple.remote),
        None => Err(SocketError::NotConnected),
    }
}
