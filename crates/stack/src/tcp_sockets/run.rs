//! Runs: segments of one flow that come one behind the other and whose headers differ only as those of neighbours in a
//! stream do.
//!
//! Such a segment has passed all that a packet is asked in front of TCP when the one before it did: the checks of its
//! addresses, the search for its connection. So after a segment that was just the next data, the headers of the following
//! one are compared with those of that one, and if they fit, it goes straight to the connection. It is the condition under
//! which receive coalescing would merge the two; but here nothing is held back or merged, and TCP sees the same segments.
//!
//! A run ends with whatever else arrives, and whenever the own addresses or the table of flows change.

use base::Instant;
use wire::checksum::Sum;
use wire::frame::{ChecksumIn, RxFrame};
use wire::ip::Protocol;
use wire::ipv4;
use wire::tcp::{Flags, HEADER_LEN, Header, Options};

use crate::InterfaceId;
use crate::buffers::BufferFamily;
use crate::flow::FlowTable;
use crate::ingress::Packet;
use crate::stack::Stack;

/// An IPv4 header without options, and a TCP header with timestamps: what nearly every segment with data has.
pub(super) const HEADERS: usize = ipv4::HEADER_LEN + HEADER_LEN + 12;
/// Bytes of these headers that are the same in all segments of a run: not the IPv4 header's length, identification and
/// checksum, nor the sequence number, the flags and the checksum, which are looked at one by one.
pub(super) const SAME: [u8; HEADERS] = {
    let mut same = [0xff; HEADERS];
    let mut own: &[usize] = &[2, 3, 4, 5, 10, 11, 24, 25, 26, 27, 36, 37];
    while let [at, rest @ ..] = own {
        same[*at] = 0;
        own = rest;
    }
    // PSH may be set in any of them.
    same[33] = !(Flags::PSH.bits() as u8);
    same
};

/// Whether two headers are the same in the bytes that `mask` has.
#[inline]
pub(super) fn is_alike(own: &[u8; HEADERS], first: &[u8; HEADERS], mask: &[u8; HEADERS]) -> bool {
    let words = |bytes: &[u8; HEADERS]| {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut all = [0; HEADERS.div_ceil(8)];
        for (to, word) in all.iter_mut().zip(words) {
            *to = u64::from_ne_bytes(*word);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        all[HEADERS / 8] = u64::from_ne_bytes(last);
        all
    };
    let (own, first, mask) = (words(own), words(first), words(mask));
    (0..mask.len()).fold(0, |sum, at| sum | ((own[at] ^ first[at]) & mask[at])) == 0
}

/// A frame that may be of a run: what stands in front of the IP packet, headers as long as a run's, and the payload. They need
/// not stand in one place.
#[derive(Clone, Copy)]
pub(crate) struct Split<'a> {
    pub(super) link: &'a [u8],
    pub(super) headers: &'a [u8; HEADERS],
    pub(super) payload: &'a [u8],
    /// What follows of the payload in another place; empty as a rule.
    pub(super) rest: &'a [u8],
}

impl<'a> Split<'a> {
    /// A frame with a link header of so many bytes; none if it is too short, or if something is known of it.
    #[inline]
    pub(crate) fn of(frame: &RxFrame<'a>, link_len: usize) -> Option<Self> {
        let plain = frame.checksum == ChecksumIn::Unknown && frame.segment_size == 0;
        let (link, packet) = frame.bytes.split_at_checked(link_len).filter(|_| plain)?;
        let (headers, payload) = packet.split_first_chunk()?;
        Some(Self { link, headers, payload, rest: &[] })
    }

    /// A frame whose headers, as long as those of a run, and payload stand apart.
    #[inline]
    pub(crate) fn apart(headers: &'a [u8], payload: [&'a [u8]; 2], link_len: usize) -> Option<Self> {
        let (link, headers) = headers.split_at_checked(link_len)?;
        let [payload, rest] = payload;
        Some(Self { link, headers: headers.try_into().ok()?, payload, rest })
    }

    const fn payload_len(&self) -> usize {
        self.payload.len() + self.rest.len()
    }

    pub(crate) const fn frame_len(&self) -> usize {
        self.link.len() + HEADERS + self.payload_len()
    }
}

/// The run in progress.
pub(crate) struct Run {
    interface: InterfaceId,
    /// The connection's socket, as the table of flows of this version has it.
    pub(super) index: u32,
    flows: u64,
    /// The headers of its first segment.
    headers: [u8; HEADERS],
    /// The sum of the pseudo-header, all but the length.
    pub(super) ends: Sum,
    /// The TCP header of the next segment, of which timestamps are the only option; its flags are to be read.
    pub(super) next: Header,
}

impl Run {
    /// Whether a packet continues the run.
    #[inline]
    pub(super) fn fits(&self, interface: InterfaceId, packet: &Split<'_>) -> bool {
        let headers = packet.headers;
        let total_len = u16::from_be_bytes([headers[2], headers[3]]);
        let seq = u32::from_be_bytes([headers[24], headers[25], headers[26], headers[27]]);
        is_alike(headers, &self.headers, &SAME)
            && interface == self.interface
            && usize::from(total_len) == HEADERS + packet.payload_len()
            && packet.payload_len() > 0
            && seq == self.next.seq.0
    }

    /// Whether its connection is still where the table of flows had it.
    #[inline]
    pub(super) fn is_of(&self, flows: &FlowTable) -> bool {
        self.flows == flows.version()
    }
}

impl<B: BufferFamily> Stack<B> {
    /// A packet was the next data of this socket's connection: the following one may continue with it.
    pub(crate) fn begin_run(&mut self, index: u32, packet: &Packet<'_>, segment: &tcp::SegmentIn<'_>) {
        let Some(headers) = packet.quote.first_chunk::<HEADERS>() else { return };
        let timestamps = segment.header.options.timestamps;
        let is_usual = packet.quote.len() == HEADERS + segment.payload.len()
            && packet.quote.len() == ipv4::HEADER_LEN + packet.payload.len()
            && segment.header.options == Options { timestamps, ..Options::default() };
        if !is_usual || timestamps.is_none() {
            return;
        }
        let (source, destination) = (packet.header.source, packet.header.destination);
        let mut next = segment.header.clone();
        next.seq += segment.payload.len() as u32;
        self.run = Some(Run {
            interface: packet.interface,
            index,
            flows: self.tcp_flows.version(),
            headers: *headers,
            ends: Sum::pseudo_header_v4(source, destination, Protocol::TCP, 0),
            next,
        });
    }

    /// Takes a packet that continues the run in progress. `false`: it does not, or is none that could, and nothing has changed but
    /// that there is no run any more.
    pub(crate) fn continue_run(
        &mut self,
        now: Instant,
        arrival: Instant,
        interface: InterfaceId,
        packet: Option<Split<'_>>,
    ) -> bool {
        let Some(run) = &mut self.run else { return false };
        if let Some(packet) = packet.filter(|packet| run.fits(interface, packet))
            && let (ip, tcp) = packet.headers.split_at(ipv4::HEADER_LEN)
            && Sum::of(ip).finish() == 0
            && self.tcp_flows.is_still(run.flows)
        {
            let (payload, payload_len) = (packet.payload, packet.payload_len() as u32);
            let sum = run.ends.add_u32(tcp.len() as u32 + payload_len).add(tcp);
            let options = Options { timestamps: run.next.options.timestamps, ..Options::default() };
            let flags = Flags::from_bits_truncate(u16::from_be_bytes([tcp[12], tcp[13]]));
            let header = Header { flags, options, ..run.next };
            let ecn = tcp::Ecn::from_bits(ip[1]);
            let segment = tcp::SegmentIn { header, payload, arrival, segment_count: 1, ecn };
            run.next.seq += payload_len;
            let index = run.index;
            let given = self.give_unverified(now, index, sum, &segment, packet.rest);
            if given == tcp::Unverified::Taken(tcp::Verdict::Predicted) {
                self.stats.tcp_in += 1;
                return true;
            }
            self.run = None;
            self.stats.tcp_in += u64::from(given != tcp::Unverified::NotTaken);
            return given != tcp::Unverified::NotTaken;
        }
        self.run = None;
        false
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests;
