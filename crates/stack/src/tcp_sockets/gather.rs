//! Gathers the segments of a run: placed one by one, told to the connection together.
//!
//! What is compared, summed and asked for each is only what can differ: when the first one continues a run, the connection
//! says how many bytes of such segments it would take one after the other. The last one may be shorter. Whatever is not exactly
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
const LENGTH: usize = 2;
const IDENT: usize = 4;
const IP_CHECKSUM: usize = ipv4::CHECKSUM_OFFSET;
const SEQ: usize = ipv4::HEADER_LEN + SEQ_OFFSET;
const FLAGS: usize = ipv4::HEADER_LEN + FLAGS_OFFSET - 1;
const CHECKSUM: usize = ipv4::HEADER_LEN + CHECKSUM_OFFSET;
/// Bytes of the headers that are the same in all of one size: what is within a run, and the length.
const SAME_AND_LENGTH: [u8; HEADERS] = {
    let mut same = SAME;
    [same[LENGTH], same[LENGTH + 1]] = [0xff; 2];
    same
};
/// Segments of a run, all of one size but the last, that are placed and not told yet; at first none.
pub(crate) struct Gathered {
    interface: InterfaceId,
    arrival: Instant,
    index: u32,
    /// The first bytes of their frames: the link header, if there is one, and that of the run.
    link: [u8; ethernet::HEADER_LEN],
    pub(crate) link_len: usize,
    headers: [u8; HEADERS],
    size: u16,
    /// What the IPv4 header's identification and checksum add up to: all else in it is the same in those of one size.
    ip_sum: u32,
    /// The sum of all that the TCP checksum covers but the payload, without what differs in those of one size,
    tcp_sum: Sum,
    /// and in the last one too.
    tail_sum: Sum,
    pub(super) count: u16,
    /// The size of the last one, when that is shorter; then nothing comes behind it.
    pub(super) tail: u16,
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
        let is_full = frame.payload.len() == usize::from(self.size)
            && is_alike(headers, &self.headers, &SAME_AND_LENGTH)
            && ip_sum(headers) == self.ip_sum;
        if is_full && self.follows(frame) {
            return Some(self.tcp_sum.add_u64(own_words(headers)));
        }
        self.last(frame)
    }

    /// The same of one that is shorter, behind which nothing comes.
    #[inline(never)]
    fn last(&self, frame: &Split<'_>) -> Option<Sum> {
        let (headers, len) = (frame.headers, frame.payload.len());
        let length = word(headers, LENGTH);
        let fits = (1..usize::from(self.size)).contains(&len)
            && self.count > 0
            && usize::from(length) == HEADERS + len
            && is_alike(headers, &self.headers, &SAME)
            && Sum::of(&headers[..ipv4::HEADER_LEN]).finish() == 0
            && self.follows(frame);
        let length = length.wrapping_sub(ipv4::HEADER_LEN as u16);
        fits.then(|| self.tail_sum.add_u16(length).add_u64(own_words(headers)))
    }

    /// Whether a frame, like the others in what is the same, follows right behind them, and there is room for it.
    #[inline(always)]
    fn follows(&self, frame: &Split<'_>) -> bool {
        frame.rest.is_empty()
            && long(frame.headers, SEQ) == self.seq
            && (self.link_len == 0 || *frame.link == self.link[..self.link_len])
            && self.room >= frame.payload.len() as u64
            && self.count < u16::MAX
            && self.tail == 0
    }

    /// A frame was placed that came next, with so much payload.
    #[inline(always)]
    fn add(&mut self, len: u16) {
        if len == self.size {
            self.count += 1;
        } else {
            self.tail = len;
        }
        self.seq = self.seq.wrapping_add(u32::from(len));
        self.offset += u64::from(len);
        self.room -= u64::from(len);
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

/// What differs in the TCP header: the sequence number, the flags and their neighbours, the checksum.
#[inline]
fn own_words(headers: &[u8; HEADERS]) -> u64 {
    let rest = u64::from(word(headers, FLAGS)) << 16 | u64::from(word(headers, CHECKSUM));
    u64::from(long(headers, SEQ)) << 32 | rest
}

/// The one's complement sum of what differs in the IPv4 header. Of headers that are the same beside, those with the sum of a right one
/// are right. (The two zeroes of this arithmetic are told apart: then the segment goes the usual way.)
#[inline]
fn ip_sum(headers: &[u8; HEADERS]) -> u32 {
    let sum = u32::from(word(headers, IDENT)) + u32::from(word(headers, IP_CHECKSUM));
    (sum & 0xffff) + (sum >> 16)
}

impl<B: BufferFamily> Stack<B> {
    /// Takes a frame that continues the run and begins to gather those behind it, if it and they can be; `None`: nothing has
    /// changed.
    pub(crate) fn begin_gathering(
        &mut self,
        arrival: Instant,
        interface: InterfaceId,
        frame: &Split<'_>,
    ) -> Option<Gathered> {
        let run = self.run.as_ref().filter(|run| run.fits(interface, frame))?;
        let Split { headers, payload, .. } = *frame;
        let is_right = run.is_of(&self.tcp_flows)
            && self.link_header_fits(interface, frame.link)
            && Sum::of(&headers[..ipv4::HEADER_LEN]).finish() == 0;
        if !is_right {
            return None;
        }
        let tcp = self.sockets.get_index(run.index)?.tcp()?;
        let header = run.next.clone();
        let ecn = tcp::Ecn::from_bits(headers[1]);
        let segment = tcp::SegmentIn { header, payload, arrival, segment_count: 1, ecn };
        let room = tcp.connection.may_gather(&segment);
        if room == 0 {
            return None;
        }
        let mut link = [0; ethernet::HEADER_LEN];
        link.get_mut(..frame.link.len())?.copy_from_slice(frame.link);
        let mut same = *headers;
        for (field, len) in [(SEQ, 4), (FLAGS, 2), (CHECKSUM, 2)] {
            same[field..field + len].fill(0);
        }
        let tail_sum = run.ends.add(&same[ipv4::HEADER_LEN..]);
        let mut gathered = Gathered {
            interface,
            arrival,
            index: run.index,
            link,
            link_len: frame.link.len(),
            headers: *headers,
            size: payload.len() as u16,
            ip_sum: ip_sum(headers),
            tcp_sum: tail_sum.add_u16((HEADERS - ipv4::HEADER_LEN + payload.len()) as u16),
            tail_sum,
            count: 0,
            tail: 0,
            seq: run.next.seq.0,
            offset: tcp.connection.received_to(),
            room,
        };
        self.gather(&mut gathered, arrival, interface, frame).then_some(gathered)
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
        gathered.add(frame.payload.len() as u16);
        true
    }

    /// Tells the connection of what was gathered, and settles what follows.
    pub(crate) fn tell_gathered(&mut self, now: Instant, gathered: &Gathered) {
        let Gathered { index, size, count, tail, seq, .. } = *gathered;
        let (Some(run), Some(socket)) = (&mut self.run, self.sockets.get_index_mut(index)) else { return };
        let Some(tcp) = socket.tcp_mut() else { return };
        let last = if tail > 0 { tail } else { size };
        run.next.seq = base::SeqNumber(seq.wrapping_sub(last.into()));
        let received_to = tcp.connection.received_to();
        let told = tcp::Gathered { count, size, tail };
        let verdict = tcp.connection.handle_gathered(now, &run.next, told);
        run.next.seq = base::SeqNumber(seq);
        let segments = told.segments();
        self.stats.frames_in += u64::from(segments);
        self.stats.bytes_in += u64::from(segments) * (gathered.link_len + HEADERS) as u64 + told.bytes();
        self.stats.tcp_in += u64::from(segments);
        self.stats.verdicts.add_many(verdict, segments);
        self.tcp_flows.count_known(segments);
        if !socket.is_settled_after_data(now)
            && let Some(tcp) = socket.tcp()
        {
            let before = Glance { received_to, ..Glance::at(&tcp.connection) };
            self.settle(now, index, before);
        }
    }
}
