//! Merges received TCP segments into super-segments, in software, for devices that do not.
//!
//! A stack spends its time per segment, not per byte. [`Coalesce`] wraps a device and merges what one call of
//! [`Device::receive`] brings: consecutive segments of a connection that differ in nothing but their place (same
//! acknowledgement, window and options) become one frame of up to 64 KiB. Nothing is held beyond the call, so no
//! segment waits for another. The order of segments within a connection stays; frames of different connections may
//! change places.
//!
//! Merging takes a copy. The checksum is verified in the same pass, so that a merged frame is `Verified`; the field in
//! its header is the first segment's. A capture therefore belongs beneath this device, not around it.

use std::io;
use std::os::fd::BorrowedFd;

use wire::checksum::Sum;
use wire::frame::{Capabilities, ChecksumIn, Medium, RxFrame, TxFrame};
use wire::ip::Protocol;
use wire::tcp::Flags;
use wire::{ipv4, tcp};

use crate::{Device, DeviceStats, NoiseFilter};

/// Connections that are merged at the same time; of more, the oldest is let go.
const FLOWS: usize = 8;
/// The longest IP packet.
const MAX_PACKET: usize = u16::MAX as usize;

/// A device whose received TCP segments are merged.
#[derive(Debug)]
pub struct Coalesce<D> {
    device: D,
    merger: Merger,
}

impl<D: Device> Coalesce<D> {
    /// Merges what `device` receives.
    pub fn new(device: D) -> Self {
        let medium = device.capabilities().medium;
        Self { device, merger: Merger { medium, flows: Vec::with_capacity(FLOWS), next_slot: 0, merged: 0 } }
    }

    /// The device beneath.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Segments that were appended to another.
    pub fn merged(&self) -> u64 {
        self.merger.merged
    }
}

impl<D: Device> Device for Coalesce<D> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    /// The count is that of the device beneath: segments, not merged frames.
    fn receive(&mut self, budget: usize, handle: &mut dyn FnMut(&RxFrame<'_>)) -> io::Result<usize> {
        let Self { device, merger } = self;
        let answer = device.receive(budget, &mut |frame| merger.take(frame, handle));
        merger.release_all(handle);
        answer
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> io::Result<()> {
        self.device.transmit(frame)
    }

    fn is_ready(&self) -> bool {
        self.device.is_ready()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.descriptor()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    fn noise_filter(&self) -> Option<Box<dyn NoiseFilter>> {
        self.device.noise_filter()
    }
}

/// The frames that are being merged.
#[derive(Debug)]
struct Merger {
    medium: Medium,
    flows: Vec<Flow>,
    /// The slot that is used next when all are taken: the oldest.
    next_slot: usize,
    merged: u64,
}

impl Merger {
    fn take(&mut self, frame: &RxFrame<'_>, handle: &mut dyn FnMut(&RxFrame<'_>)) {
        let Some(segment) = Segment::read(frame, self.medium) else { return handle(frame) };
        if let Some(flow) = self.flows.iter_mut().find(|flow| flow.is_of(&segment)) {
            if flow.is_continued_by(&segment) && flow.append(&segment) {
                self.merged += 1;
                if flow.is_ended_by(&segment) {
                    flow.release(handle);
                }
                return;
            }
            flow.release(handle);
        }
        let held = segment.may_begin() && self.free_flow(handle).begin(&segment);
        if !held {
            handle(frame);
        }
    }

    /// A flow that holds nothing, if need be since the oldest was let go.
    fn free_flow(&mut self, handle: &mut dyn FnMut(&RxFrame<'_>)) -> &mut Flow {
        let slot = match self.flows.iter().position(|flow| flow.segments == 0) {
            Some(slot) => slot,
            None if self.flows.len() < FLOWS => {
                self.flows.push(Flow::new());
                self.flows.len() - 1
            }
            None => {
                self.next_slot = (self.next_slot + 1) % FLOWS;
                self.flows[self.next_slot].release(handle);
                self.next_slot
            }
        };
        &mut self.flows[slot]
    }

    fn release_all(&mut self, handle: &mut dyn FnMut(&RxFrame<'_>)) {
        self.flows.iter_mut().for_each(|flow| flow.release(handle));
    }
}

/// A TCP segment over IPv4, unfragmented and without IP options.
struct Segment<'a> {
    /// The frame without padding.
    bytes: &'a [u8],
    /// Where the IP, the TCP header and the payload start.
    ip: usize,
    transport: usize,
    payload: usize,
    seq: u32,
    flags: Flags,
    checksum: ChecksumIn,
    is_super: bool,
}

impl<'a> Segment<'a> {
    fn read(frame: &RxFrame<'a>, medium: Medium) -> Option<Self> {
        let ip = medium.header_len();
        if medium == Medium::Ethernet && frame.bytes.get(12..14)? != [0x08, 0x00] {
            return None;
        }
        let header = frame.bytes.get(ip..)?.first_chunk::<{ ipv4::HEADER_LEN }>()?;
        let is_plain_tcp = header[0] == 0x45 && header[9] == Protocol::TCP.0;
        let is_fragment = header[6] & 0x3f != 0 || header[7] != 0;
        // A packet with a wrong header checksum is the stack's to count.
        if !is_plain_tcp || is_fragment || Sum::of(header).finish() != 0 {
            return None;
        }
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let bytes = frame.bytes.get(..ip + total_len)?;
        let transport = ip + ipv4::HEADER_LEN;
        let fixed = bytes.get(transport..)?.first_chunk::<{ tcp::HEADER_LEN }>()?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        // A malformed segment passes in its place, as one without data.
        let payload = match transport + header_len {
            payload if header_len >= tcp::HEADER_LEN && payload <= bytes.len() => payload,
            _ => bytes.len(),
        };
        Some(Self {
            bytes,
            ip,
            transport,
            payload,
            seq: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            flags: Flags::from_bits_truncate(u16::from_be_bytes([fixed[12], fixed[13]])),
            checksum: frame.checksum,
            is_super: frame.segment_size != 0,
        })
    }

    fn payload_len(&self) -> usize {
        self.bytes.len() - self.payload
    }

    /// Whether it is an ordinary data segment.
    fn is_data(&self) -> bool {
        let odd = Flags::SYN | Flags::FIN | Flags::RST | Flags::URG | Flags::CWR;
        self.payload_len() > 0
            && !self.is_super
            && self.flags.contains(Flags::ACK)
            && !self.flags.intersects(odd)
    }

    /// Whether others may be appended. One that is pushed is the last of its kind and not worth a copy.
    fn may_begin(&self) -> bool {
        self.is_data() && !self.flags.contains(Flags::PSH)
    }

    /// The sum of everything but the payload; the checksum field is part of it.
    fn sum_of_headers(&self) -> Sum {
        let addresses = &self.bytes[self.ip + 12..self.ip + ipv4::HEADER_LEN];
        let segment_len = (self.bytes.len() - self.transport) as u32;
        let pseudo_header = Sum::of(addresses).add_u16(u16::from(Protocol::TCP.0)).add_u32(segment_len);
        pseudo_header.add(&self.bytes[self.transport..self.payload])
    }
}

/// The segments of one connection that were merged so far. Without any it holds nothing.
#[derive(Debug)]
struct Flow {
    bytes: Box<[u8]>,
    len: usize,
    ip: usize,
    transport: usize,
    payload: usize,
    next_seq: u32,
    /// Payload bytes of the first segment, and of all but the last.
    segment_size: usize,
    segments: u32,
}

impl Flow {
    fn new() -> Self {
        Self {
            bytes: vec![0; MAX_PACKET + Medium::Ethernet.header_len()].into_boxed_slice(),
            len: 0,
            ip: 0,
            transport: 0,
            payload: 0,
            next_seq: 0,
            segment_size: 0,
            segments: 0,
        }
    }

    /// Holds the first segment; false if its checksum is wrong.
    fn begin(&mut self, segment: &Segment<'_>) -> bool {
        self.bytes[..segment.payload].copy_from_slice(&segment.bytes[..segment.payload]);
        self.len = segment.payload;
        self.ip = segment.ip;
        self.transport = segment.transport;
        self.payload = segment.payload;
        self.segment_size = segment.payload_len();
        self.append(segment)
    }

    /// Whether this is the segment's connection: addresses and ports.
    fn is_of(&self, segment: &Segment<'_>) -> bool {
        let key = |bytes: &[u8], ip: usize| -> Option<[u8; 12]> {
            bytes.get(ip + 12..ip + 24).and_then(|key| key.try_into().ok())
        };
        self.segments > 0 && key(&self.bytes, self.ip) == key(segment.bytes, segment.ip)
    }

    /// Whether the segment differs from the first in nothing but what cutting would make different.
    fn is_continued_by(&self, segment: &Segment<'_>) -> bool {
        // No options in the IP header, so its end, and with it the start of the TCP header, is where it is in the first.
        if segment.payload != self.payload || !segment.is_data() || segment.seq != self.next_seq {
            return false;
        }
        let (ip, tcp) = (self.ip, self.transport);
        // In order: link header, version to TOS, fragment bits to protocol; acknowledgement number, data offset and
        // upper flags, window, urgent pointer and options. In between: lengths, identification, checksums, sequence.
        let same =
            [0..ip + 2, ip + 6..ip + 10, tcp + 8..tcp + 13, tcp + 14..tcp + 16, tcp + 18..self.payload];
        let has_same_flags =
            (self.bytes[tcp + 13] ^ segment.bytes[tcp + 13]) & !(Flags::PSH.bits() as u8) == 0;
        has_same_flags
            && same.into_iter().all(|range| self.bytes[range.clone()] == segment.bytes[range])
            && segment.payload_len() <= self.segment_size
            && self.len - self.ip + segment.payload_len() <= MAX_PACKET
    }

    /// Appends the segment's payload; false, and nothing changed, if its checksum is wrong.
    fn append(&mut self, segment: &Segment<'_>) -> bool {
        let payload = &segment.bytes[segment.payload..];
        let room = &mut self.bytes[self.len..];
        match segment.checksum {
            ChecksumIn::Unknown => {
                if segment.sum_of_headers().copy_and_add(room, payload).finish() != 0 {
                    return false;
                }
            }
            ChecksumIn::Verified | ChecksumIn::Partial => room[..payload.len()].copy_from_slice(payload),
        }
        self.bytes[self.transport + tcp::FLAGS_OFFSET] |= segment.flags.bits() as u8;
        self.len += payload.len();
        self.next_seq = segment.seq.wrapping_add(payload.len() as u32);
        self.segments += 1;
        true
    }

    /// Whether nothing can follow the segment, which was appended.
    fn is_ended_by(&self, segment: &Segment<'_>) -> bool {
        segment.flags.contains(Flags::PSH)
            || segment.payload_len() < self.segment_size
            || self.len - self.ip + self.segment_size > MAX_PACKET
    }

    /// Hands over what was merged, if anything was.
    fn release(&mut self, handle: &mut dyn FnMut(&RxFrame<'_>)) {
        if self.segments == 0 {
            return;
        }
        let segment_size = if self.segments > 1 { self.segment_size as u16 } else { 0 };
        if self.segments > 1 {
            let total_len = (self.len - self.ip) as u16;
            let header = &mut self.bytes[self.ip..self.transport];
            header[2..4].copy_from_slice(&total_len.to_be_bytes());
            let field = ipv4::CHECKSUM_OFFSET..ipv4::CHECKSUM_OFFSET + 2;
            header[field.clone()].copy_from_slice(&[0, 0]);
            let checksum = Sum::of(header).finish();
            header[field].copy_from_slice(&checksum.to_be_bytes());
        }
        self.segments = 0;
        handle(&RxFrame { bytes: &self.bytes[..self.len], checksum: ChecksumIn::Verified, segment_size });
    }
}
