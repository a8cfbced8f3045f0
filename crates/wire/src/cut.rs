//! Cuts a super-segment into frames for the wire, as a device with segmentation offload would.
//!
//! The headers of the super-segment are the template of each piece's. What differs is written into a copy on the stack:
//! lengths, IPv4 identification, TCP sequence number and flags, checksums. It serves all pieces, one after the other. The payload
//! is not copied, only summed.

use core::fmt;

use crate::checksum::{self, Sum};
use crate::frame::{ChecksumOut, Medium, Segmentation, TxFrame};
use crate::ip::Protocol;
use crate::tcp::Flags;
use crate::{ethernet, ipv4, ipv6, tcp, udp};

/// The longest headers that can be cut: Ethernet, IPv4 with options (IPv6 is shorter), TCP with options.
pub const MAX_HEADERS: usize = ethernet::HEADER_LEN + ipv4::MAX_HEADER_LEN + tcp::MAX_HEADER_LEN;

const SEQ: usize = tcp::SEQ_OFFSET;

/// The headers of a frame contradict its metadata, are too long, or are not of the kind that can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncuttable;

impl fmt::Display for Uncuttable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the frame's headers are not those that its segmentation or checksum metadata describe")
    }
}

impl core::error::Error for Uncuttable {}

/// Hands `give` the frames that `frame` is cut into, headers and payload slices, with every checksum filled in, and
/// returns how many there were. A frame without segmentation comes out as one.
///
/// # Errors
/// The frame cannot be cut; `give` was not called.
pub fn cut(
    frame: &TxFrame<'_>,
    medium: Medium,
    mut give: impl FnMut(&[u8], [&[u8]; 2]),
) -> Result<usize, Uncuttable> {
    if frame.segmentation == Segmentation::None {
        return whole(frame, give);
    }
    pieces(frame, medium, true, |_, headers, payload| give(headers, payload))
}

/// The same for a device that sums, but does not cut: every frame is handed on with its partial checksum.
///
/// # Errors
/// The frame cannot be cut; `give` was not called.
pub fn cut_unsummed(
    frame: &TxFrame<'_>,
    medium: Medium,
    mut give: impl FnMut(&TxFrame<'_>),
) -> Result<usize, Uncuttable> {
    if frame.segmentation == Segmentation::None {
        give(frame);
        return Ok(1);
    }
    pieces(frame, medium, false, |checksum, headers, payload| {
        give(&TxFrame { headers, payload, checksum, segmentation: Segmentation::None });
    })
}

fn pieces(
    frame: &TxFrame<'_>,
    medium: Medium,
    summed: bool,
    mut give: impl FnMut(ChecksumOut, &[u8], [&[u8]; 2]),
) -> Result<usize, Uncuttable> {
    let template = Template::read(frame, medium)?;
    let checksum = if summed { ChecksumOut::Complete } else { template.partial_checksum() };
    let total = frame.payload_len();
    let segment_size = match usize::from(frame.segmentation.segment_size()) {
        0 => total,
        size => size.min(total),
    };
    if template.headers.len() - template.ip + segment_size > usize::from(u16::MAX) {
        return Err(Uncuttable);
    }
    let mut headers = [0; MAX_HEADERS];
    let headers = &mut headers[..frame.headers.len()];
    let mut writer = template.begin(headers);
    let mut at = 0;
    let mut count = 0;
    loop {
        let length = segment_size.min(total - at);
        let payload = slice(frame.payload, at, length);
        let piece = Piece { index: count, at, payload, is_last: at + length == total };
        template.write(headers, &mut writer, &piece, summed);
        give(checksum, headers, payload);
        count += 1;
        at += length;
        if at >= total {
            return Ok(count);
        }
    }
}

/// The bytes `[at, at + length)` of a payload in two slices, the second empty where one suffices; fewer bytes where the payload
/// ends before.
pub fn slice(payload: [&[u8]; 2], at: usize, length: usize) -> [&[u8]; 2] {
    let [first, second] = payload;
    if let Some(inside) = at.checked_add(length).and_then(|end| first.get(at..end)) {
        return [inside, &[]];
    }
    let (_, in_first) = first.split_at(at.min(first.len()));
    let from = at.saturating_sub(first.len()).min(second.len());
    let (in_second, _) = second[from..].split_at((length - in_first.len()).min(second.len() - from));
    if in_first.is_empty() { [in_second, &[]] } else { [in_first, in_second] }
}

/// Gives out a frame that is not to be cut, with its checksum completed.
fn whole(frame: &TxFrame<'_>, mut give: impl FnMut(&[u8], [&[u8]; 2])) -> Result<usize, Uncuttable> {
    let ChecksumOut::Partial { start, offset } = frame.checksum else {
        give(frame.headers, frame.payload);
        return Ok(1);
    };
    let mut headers = [0; MAX_HEADERS];
    let headers = headers.get_mut(..frame.headers.len()).ok_or(Uncuttable)?;
    headers.copy_from_slice(frame.headers);
    let (start, offset) = (usize::from(start), usize::from(offset));
    let summed = headers.get(start..).ok_or(Uncuttable)?;
    let sum = Sum::of(summed).add(frame.payload[0]).add(frame.payload[1]);
    let field = headers.get_mut(start + offset..start + offset + 2).ok_or(Uncuttable)?;
    // An all-ones checksum is as good as zero for TCP, and UDP asks for it (RFC 768).
    field.copy_from_slice(&udp::transmitted(sum.finish()).to_be_bytes());
    give(headers, frame.payload);
    Ok(1)
}

/// The headers of a super-segment, and where in them which header stands.
struct Template<'a> {
    headers: &'a [u8],
    ip: usize,
    transport: usize,
    is_tcp: bool,
    is_v4: bool,
}

/// One frame of those that a super-segment is cut into.
struct Piece<'a> {
    index: usize,
    /// Where its payload stands in the whole's.
    at: usize,
    payload: [&'a [u8]; 2],
    is_last: bool,
}

/// What is known of the headers from one piece to the next.
struct Writer {
    /// The first piece's IPv4 identification.
    ident: u16,
    /// The sum of the IPv4 header without length, identification and checksum,
    ip_sum: Sum,
    /// and the same with the length of the latest piece.
    sized_ip_sum: Sum,
    /// The first piece's sequence number and flags.
    seq: u32,
    flags: u8,
    /// The sum of a TCP header without sequence number, flags with their neighbour, and checksum,
    tcp_sum: Sum,
    /// and the same with the pseudo-header of the latest piece.
    sized_tcp_sum: Sum,
    /// The sum of the pseudo-header without the length.
    ends: Sum,
    /// The same with the length of the latest piece, the transport header included.
    pseudo_header: Sum,
    transport_len: Option<usize>,
}

impl<'a> Template<'a> {
    fn read(frame: &TxFrame<'a>, medium: Medium) -> Result<Self, Uncuttable> {
        let headers = frame.headers;
        let ip = medium.header_len();
        let place = checksum::locate(headers, medium).ok_or(Uncuttable)?;
        let is_v4 = headers.get(ip).is_some_and(|first| first >> 4 == 4);
        let is_tcp = place.protocol == Protocol::TCP;
        let agrees = match frame.segmentation {
            Segmentation::None => true,
            Segmentation::Tcp4 { .. } => is_tcp && is_v4,
            Segmentation::Tcp6 { .. } => is_tcp && !is_v4,
            Segmentation::Udp { .. } => !is_tcp,
        };
        let least = if is_tcp { tcp::HEADER_LEN } else { udp::HEADER_LEN };
        let fits = headers.len() >= place.start + least && headers.len() <= MAX_HEADERS;
        if agrees && fits {
            Ok(Self { headers, ip, transport: place.start, is_tcp, is_v4 })
        } else {
            Err(Uncuttable)
        }
    }

    /// Writes what is the same in all pieces, and sums it.
    fn begin(&self, headers: &mut [u8]) -> Writer {
        headers.copy_from_slice(self.headers);
        let addresses = if self.is_v4 { self.ip + 12..self.ip + 20 } else { self.ip + 8..self.ip + 40 };
        let protocol = if self.is_tcp { Protocol::TCP } else { Protocol::UDP };
        let ends = Sum::of(&headers[addresses]).add_u16(u16::from(protocol.0));
        let (mut ident, mut ip_sum) = (0, Sum::ZERO);
        if self.is_v4 {
            let ip = &mut headers[self.ip..self.transport];
            ident = u16::from_be_bytes([ip[4], ip[5]]);
            for field in [2, 4, ipv4::CHECKSUM_OFFSET] {
                ip[field..field + 2].copy_from_slice(&[0, 0]);
            }
            ip_sum = Sum::of(ip);
        }
        let (mut seq, mut flags, mut tcp_sum) = (0, 0, Sum::ZERO);
        if let (true, Some((tcp, options))) =
            (self.is_tcp, headers[self.transport..].split_first_chunk::<{ tcp::HEADER_LEN }>())
        {
            seq = u32::from_be_bytes([tcp[SEQ], tcp[SEQ + 1], tcp[SEQ + 2], tcp[SEQ + 3]]);
            flags = tcp[tcp::FLAGS_OFFSET];
            let mut same = *tcp;
            for (field, len) in [(SEQ, 4), (tcp::FLAGS_OFFSET - 1, 2), (tcp::CHECKSUM_OFFSET, 2)] {
                same[field..field + len].fill(0);
            }
            tcp_sum = Sum::of(&same).add(options);
        }
        let (pseudo_header, sized_ip_sum, sized_tcp_sum) = (Sum::ZERO, Sum::ZERO, Sum::ZERO);
        Writer {
            ident,
            ip_sum,
            sized_ip_sum,
            seq,
            flags,
            tcp_sum,
            sized_tcp_sum,
            ends,
            pseudo_header,
            transport_len: None,
        }
    }

    /// Writes the headers of one piece over those of the one before.
    #[inline(always)]
    fn write(&self, headers: &mut [u8], writer: &mut Writer, piece: &Piece<'_>, summed: bool) {
        let payload_len = piece.payload[0].len() + piece.payload[1].len();
        let transport_len = headers.len() - self.transport + payload_len;
        if writer.transport_len != Some(transport_len) {
            self.write_sizes(headers, writer, transport_len);
        }
        if self.is_v4
            && let Some(ip) = headers[self.ip..].first_chunk_mut::<{ ipv4::HEADER_LEN }>()
        {
            write_ipv4(ip, writer, piece.index);
        }
        let transport = &mut headers[self.transport..];
        if self.is_tcp
            && let Some(tcp) = transport.first_chunk_mut::<{ tcp::HEADER_LEN }>()
        {
            let own = write_tcp(tcp, writer, piece);
            if summed {
                let sum = writer.sized_tcp_sum.add_u64(own).add(piece.payload[0]).add(piece.payload[1]);
                tcp[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2]
                    .copy_from_slice(&sum.finish().to_be_bytes());
            }
        } else if summed {
            write_udp_checksum(transport, writer, piece.payload);
        }
    }

    /// Writes what follows from the length of a piece and its transport header: the first one's, and the last one's.
    #[inline(never)]
    fn write_sizes(&self, headers: &mut [u8], writer: &mut Writer, transport_len: usize) {
        writer.transport_len = Some(transport_len);
        writer.pseudo_header = writer.ends.add_u32(transport_len as u32);
        writer.sized_tcp_sum = writer.pseudo_header.join(writer.tcp_sum);
        let total_len = self.transport - self.ip + transport_len;
        writer.sized_ip_sum = writer.ip_sum.add_u16(total_len as u16);
        self.write_lengths(headers, transport_len);
        let field = self.transport + self.checksum_offset();
        headers[field..field + 2].copy_from_slice(&writer.pseudo_header.fold().to_be_bytes());
    }

    const fn checksum_offset(&self) -> usize {
        if self.is_tcp { tcp::CHECKSUM_OFFSET } else { udp::CHECKSUM_OFFSET }
    }

    const fn partial_checksum(&self) -> ChecksumOut {
        ChecksumOut::Partial { start: self.transport as u16, offset: self.checksum_offset() as u16 }
    }

    fn write_lengths(&self, headers: &mut [u8], transport_len: usize) {
        let ip = &mut headers[self.ip..self.transport];
        if self.is_v4 {
            let total_len = (ip.len() + transport_len) as u16;
            ip[2..4].copy_from_slice(&total_len.to_be_bytes());
        } else {
            let payload_len = ip.len() - ipv6::HEADER_LEN + transport_len;
            ip[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
        }
        if !self.is_tcp {
            headers[self.transport + 4..self.transport + 6]
                .copy_from_slice(&(transport_len as u16).to_be_bytes());
        }
    }
}

/// The checksum of a datagram over header and payload.
fn write_udp_checksum(transport: &mut [u8], writer: &Writer, payload: [&[u8]; 2]) {
    let field = udp::CHECKSUM_OFFSET..udp::CHECKSUM_OFFSET + 2;
    transport[field.clone()].copy_from_slice(&[0, 0]);
    let sum = writer.pseudo_header.add(transport).add(payload[0]).add(payload[1]);
    transport[field].copy_from_slice(&udp::transmitted(sum.finish()).to_be_bytes());
}

/// The identification, which counts the pieces, and the checksum.
#[inline]
fn write_ipv4(ip: &mut [u8; ipv4::HEADER_LEN], writer: &Writer, index: usize) {
    let ident = writer.ident.wrapping_add(index as u16);
    let checksum = writer.sized_ip_sum.add_u16(ident).finish();
    ip[4..6].copy_from_slice(&ident.to_be_bytes());
    ip[ipv4::CHECKSUM_OFFSET..ipv4::CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The sequence number and the flags of one piece: FIN and PSH belong to the last one, CWR to the first (RFC 3168
/// §6.1.2). Returns both as words, the flags with their neighbour, for the checksum.
#[inline]
fn write_tcp(tcp: &mut [u8; tcp::HEADER_LEN], writer: &Writer, piece: &Piece<'_>) -> u64 {
    let seq = writer.seq.wrapping_add(piece.at as u32);
    tcp[SEQ..SEQ + 4].copy_from_slice(&seq.to_be_bytes());
    let mut not_here = Flags::empty();
    if !piece.is_last {
        not_here |= Flags::FIN | Flags::PSH;
    }
    if piece.index > 0 {
        not_here |= Flags::CWR;
    }
    let flags = writer.flags & !(not_here.bits() as u8);
    tcp[tcp::FLAGS_OFFSET] = flags;
    u64::from(seq) << 32 | u64::from(u16::from_be_bytes([tcp[tcp::FLAGS_OFFSET - 1], flags]))
}
