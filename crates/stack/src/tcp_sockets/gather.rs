//! Gathers the segments of a run: placed one by one, told to the connection together.
//!
//! What is compared, summed and asked for each is only what can differ: after a segment that continued a run, the
//! connection has said how many bytes of such segments it would take one after the other. Whatever is not exactly
//! such a segment changes nothing here; the connection is told of what was gathered before it, and it goes the usual way.

use base::Instant;
use wire::checksum::Sum;
use wire::tcp::{CHECKSUM_OFFSET, FLAGS_OFFSET, SEQ_OFFSET};
use wire::{ethernet, ipv4};

use super::Glance;
use super::run::{HEADERS, SAME, Split, is_alike};
use crate::InterfaceId;
use crate::buffers::BufferFamily;
use crate::stack::Stack;
use tcp::ReceiveBuffer as _;

/// Where the headers' fields stand that differ from one segment to the next.
const IDENT: usize = 4;
const IP_CHECKSUM: usize = ipv4::CHECKSUM_OFFSET;
const SEQ: usize = ipv4::HEADER_LEN + SEQ_OFFSET;
const FLAGS: usize = ipv4::HEADER_LEN + FLAGS_OFFSET - 1;
const CHECKSUM: usize = ipv4::HEADER_LEN + CHECKSUM_OFFSET;
/// Bytes of the headers that are the same in all of them: what is within a run, and the length.
const SAME_AND_LENGTH: [u8; HEADERS] = {
    let mut same = SAME;
    [same[2], same[3]] = [0xff; 2];
    same
};

/// Segments of a run, all of one size, that are placed and not told yet; at first none.
pub(crate) struct Gathered {
    interface: InterfaceId,
    arrival: Instant,
    index: u32,
    /// The first bytes of their frames: the link header, if there is one, and that of the run.
    link: [u8; ethernet::HEADER_LEN],
    pub(crate) link_len: usize,
    headers: [u8; HEADERS],
    frame_len: usize,
    size: u16,
    /// What the IPv4 header's identification and checksum add up to: all else in it is the same.
    ip_sum: u32,
    /// The sum of all that the TCP checksum covers but the payload, without what differs.
    tcp_sum: Sum,
    pub(super) count: u16,
    /// Where the next one stands.
    seq: u32,
    offset: u64,
    /// How much of the window is left.
    room: u64,
}

impl Gathered {
    /// Whether a frame comes next: then the sum of all that its checksum covers but the payload.
    #[inline(always)]
    fn next(&self, frame: &Split<'_>) -> Option<Sum> {
        let headers = frame.headers;
        let seq = long(headers, SEQ);
        let fits = frame.payload.len() == usize::from(self.size)
            && frame.rest.is_empty()
            && is_alike(headers, &self.headers, &SAME_AND_LENGTH)
            && (self.link_len == 0 || *frame.link == self.link[..self.link_len])
            && seq == self.seq
            && ip_sum(headers) == self.ip_sum
            && self.room >= u64::from(self.size)
            && self.count < u16::MAX;
        let rest = u32::from(word(headers, FLAGS)) << 16 | u32::from(word(headers, CHECKSUM));
        fits.then(|| self.tcp_sum.add_u32(seq).add_u32(rest))
    }
}

#[inline]
fn word(headers: &[u8; HEADERS], at: usize) -> u16 {
    u16::from_be_bytes([headers[at], headers[at + 1]])
}

#[inline]
fn long(headers: &[u8; HEADERS], at: usize) -> u32 {
    u32::from_be_bytes([headers[at], headers[at + 1], headers[at + 2], headers[at + 3]])
}

/// The one's complement sum of what differs in the IPv4 header. Of headers that are the same beside, those with the sum of a right one
/// are right. (The two zeroes of this arithmetic are told apart: then the segment goes the usual way.)
#[inline]
fn ip_sum(headers: &[u8; HEADERS]) -> u32 {
    let sum = u32::from(word(headers, IDENT)) + u32::from(word(headers, IP_CHECKSUM));
    (sum & 0xffff) + (sum >> 16)
}

impl<B: BufferFamily> Stack<B> {
    /// After this frame, which continued the run: what the next ones must be to be gathered, if they can be.
    pub(crate) fn begin_gathering(
        &mut self,
        arrival: Instant,
        interface: InterfaceId,
        frame: &Split<'_>,
    ) -> Option<Gathered> {
        let run = self.run.as_ref()?;
        let Split { headers, payload, .. } = *frame;
        let tcp = self.sockets.get_index(run.index)?.tcp()?;
        let header = run.next.clone();
        let ecn = tcp::Ecn::from_bits(headers[1]);
        let seq = header.seq.0;
        let like_it = tcp::SegmentIn { header, payload, arrival, segment_count: 1, ecn };
        let room = tcp.connection.may_gather(&like_it);
        if room == 0 {
            return None;
        }
        let mut link = [0; ethernet::HEADER_LEN];
        link.get_mut(..frame.link.len())?.copy_from_slice(frame.link);
        let mut fixed = *headers;
        for (field, len) in [(SEQ, 4), (FLAGS, 2), (CHECKSUM, 2)] {
            fixed[field..field + len].fill(0);
        }
        let tcp_header = &fixed[ipv4::HEADER_LEN..];
        Some(Gathered {
            interface,
            arrival,
            index: run.index,
            link,
            link_len: frame.link.len(),
            headers: *headers,
            frame_len: frame.frame_len(),
            size: payload.len() as u16,
            ip_sum: ip_sum(headers),
            tcp_sum: run.ends.add_u32((tcp_header.len() + payload.len()) as u32).add(tcp_header),
            count: 0,
            seq,
            offset: tcp.connection.received_to(),
            room,
        })
    }

    /// Takes a frame that is a segment like those; `false`: it is not, or not whole, and nothing has changed.
    #[inline(always)]
    pub(crate) fn gather(
        &mut self,
        gathered: &mut Gathered,
        arrival: Instant,
        interface: InterfaceId,
        frame: &Split<'_>,
    ) -> bool {
        if arrival != gathered.arrival || interface != gathered.interface {
            return false;
        }
        let Some(sum) = gathered.next(frame) else { return false };
        let socket = self.sockets.get_index_mut(gathered.index);
        let Some(tcp) = socket.and_then(|socket| socket.tcp_mut()) else { return false };
        if tcp.stream.place_verified(gathered.offset, [frame.payload, &[]], sum) != Ok(true) {
            return false;
        }
        gathered.count += 1;
        gathered.seq = gathered.seq.wrapping_add(u32::from(gathered.size));
        gathered.offset += u64::from(gathered.size);
        gathered.room -= u64::from(gathered.size);
        true
    }

    /// Tells the connection of what was gathered, and settles what follows.
    pub(crate) fn tell_gathered(&mut self, now: Instant, gathered: &Gathered) {
        let Gathered { index, size, count, .. } = *gathered;
        if count == 0 {
            return;
        }
        let (Some(run), Some(socket)) = (&mut self.run, self.sockets.get_index_mut(index)) else { return };
        let Some(tcp) = socket.tcp_mut() else { return };
        run.next.seq = base::SeqNumber(gathered.seq.wrapping_sub(size.into()));
        let received_to = tcp.connection.received_to();
        let verdict = tcp.connection.handle_gathered(now, &run.next, size, count);
        run.next.seq = base::SeqNumber(gathered.seq);
        self.stats.frames_in += u64::from(count);
        self.stats.bytes_in += u64::from(count) * gathered.frame_len as u64;
        self.stats.tcp_in += u64::from(count);
        self.stats.verdicts.add_many(verdict, count);
        self.tcp_flows.count_known(count);
        if !socket.is_settled_after_data(now)
            && let Some(tcp) = socket.tcp()
        {
            let before = Glance { received_to, ..Glance::at(&tcp.connection) };
            self.settle(now, index, before);
        }
    }
}
