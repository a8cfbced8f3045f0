//! Merges received segments into super-segments, as a device with receive coalescing does.
//!
//! Only segments that one sender cut from one are merged: same headers but for length, sequence number, identification,
//! checksums and PSH, and payloads of one size but for the last.

use std::collections::VecDeque;

use wire::checksum::Sum;
use wire::ipv4;
use wire::tcp::{self, Flags};

use crate::frame::SimFrame;

/// The longest IP packet that is merged.
const LONGEST: usize = 65_535;

/// Where the parts of a TCP segment in a frame lie.
struct Parts {
    ip: usize,
    tcp: usize,
    payload: usize,
    payload_len: usize,
}

/// Assembles the first frame of `inbox` into `scratch`, with those after it that belong to it. Returns the frame, and the
/// size of its segments if there are several.
pub(crate) fn take(inbox: &mut VecDeque<SimFrame>, scratch: &mut Vec<u8>) -> Option<(SimFrame, u16)> {
    let first = inbox.pop_front()?;
    first.assemble(scratch);
    let Some(parts) = mergeable(&first) else { return Some((first, 0)) };
    let size = parts.payload_len;
    let (mut merged, mut last_len) = (0_u16, size);
    while last_len == size
        && let Some(next) = inbox.front()
        && let Some(next_parts) = mergeable(next)
        && next_parts.payload_len <= size
        && scratch.len() - parts.ip + next_parts.payload_len <= LONGEST
        && follows(scratch, &parts, next, &next_parts, u32::from(merged) + 1)
    {
        last_len = next_parts.payload_len;
        scratch[parts.tcp + tcp::FLAGS_OFFSET] |= next.head()[parts.tcp + tcp::FLAGS_OFFSET];
        scratch.extend_from_slice(&next.head()[next_parts.payload..]);
        scratch.extend_from_slice(next.payload());
        merged += 1;
        inbox.pop_front();
    }
    if merged == 0 {
        return Some((first, 0));
    }
    let total_len = (scratch.len() - parts.ip) as u16;
    scratch[parts.ip + 2..parts.ip + 4].copy_from_slice(&total_len.to_be_bytes());
    let checksum = parts.ip + ipv4::CHECKSUM_OFFSET;
    scratch[checksum..checksum + 2].copy_from_slice(&[0, 0]);
    let sum = Sum::of(&scratch[parts.ip..parts.tcp]).finish();
    scratch[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
    Some((first, size as u16))
}

/// The parts of a frame that carries data and no flag but ACK and PSH; PSH ends a super-segment.
fn mergeable(frame: &SimFrame) -> Option<Parts> {
    let head = frame.head();
    let ip = frame.medium().header_len();
    let is_tcp = *head.get(ip)? == 0x45 && *head.get(ip + 9)? == wire::ip::Protocol::TCP.0;
    let is_fragment = u16::from_be_bytes([*head.get(ip + 6)?, *head.get(ip + 7)?]) & 0x3fff != 0;
    let tcp = ip + ipv4::HEADER_LEN;
    let flags = u16::from(*head.get(tcp + tcp::FLAGS_OFFSET)?);
    let plain = flags & !Flags::PSH.bits() == Flags::ACK.bits();
    let payload = tcp + usize::from(*head.get(tcp + 12)? >> 4) * 4;
    let payload_len = frame.len().checked_sub(payload)?;
    (is_tcp && !is_fragment && plain && !frame.corrupt && payload_len > 0 && head.len() >= payload)
        .then_some(Parts { ip, tcp, payload, payload_len })
}

/// Whether `next` continues what has been merged so far, of which it would be piece number `index`.
fn follows(merged: &[u8], parts: &Parts, next: &SimFrame, next_parts: &Parts, index: u32) -> bool {
    let head = next.head();
    if next_parts.payload != parts.payload
        || merged[parts.tcp + tcp::FLAGS_OFFSET] & Flags::PSH.bits() as u8 != 0
    {
        return false;
    }
    let seq = |bytes: &[u8]| {
        let at = parts.tcp + tcp::SEQ_OFFSET;
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let expected = seq(merged).wrapping_add(index * parts.payload_len as u32);
    // Equal but for length, identification and the IP checksum; then for the sequence number; then for flags and the
    // checksum, which stand apart from the rest.
    let ip = parts.ip;
    let ranges = [
        ip + 1..ip + 2,
        ip + 6..ip + 10,
        ip + 12..parts.tcp + tcp::SEQ_OFFSET,
        parts.tcp + 8..parts.tcp + tcp::FLAGS_OFFSET,
        parts.tcp + 14..parts.tcp + 16,
        parts.tcp + 18..parts.payload,
    ];
    seq(head) == expected && ranges.into_iter().all(|range| merged[range.clone()] == head[range])
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SeqNumber;
    use core::net::Ipv4Addr;
    use wire::frame::Medium;
    use wire::ip::{Ecn, Protocol};
    use wire::tcp::Header;

    fn segment(seq: u32, payload: &[u8], flags: Flags) -> SimFrame {
        let header = Header { seq: SeqNumber(seq), flags, window: 7, ..Header::default() };
        let mut bytes = [0; 40];
        let ip = ipv4::Header {
            dscp: 0,
            ecn: Ecn::NotEct,
            total_len: 40 + payload.len() as u16,
            ident: seq as u16,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: Protocol::TCP,
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
        };
        ip.emit(&mut bytes);
        header.emit(&mut bytes[20..]);
        SimFrame::new(Medium::Ip, (0, 1), &bytes, [payload, &[]])
    }

    #[test]
    fn what_one_sender_cut_comes_together_again() {
        let mut inbox: VecDeque<_> = [
            segment(100, &[1; 10], Flags::ACK),
            segment(110, &[2; 10], Flags::ACK),
            segment(120, &[3; 4], Flags::ACK | Flags::PSH),
            segment(124, &[4; 10], Flags::ACK),
            segment(144, &[5; 10], Flags::ACK),
            segment(154, &[], Flags::ACK),
        ]
        .into();
        let mut scratch = Vec::new();
        let (_, size) = take(&mut inbox, &mut scratch).unwrap();
        assert_eq!((size, inbox.len()), (10, 3));
        let packet = ipv4::Packet::parse(&scratch).unwrap();
        let (header, payload) = Header::parse(packet.payload).unwrap();
        assert_eq!((header.seq.0, header.flags), (100, Flags::ACK | Flags::PSH));
        assert_eq!(payload, [&[1; 10][..], &[2; 10], &[3; 4]].concat());
        // A gap, then a segment without data: nothing to merge.
        let sizes: Vec<u16> =
            core::iter::from_fn(|| take(&mut inbox, &mut scratch)).map(|(_, size)| size).collect();
        assert_eq!(sizes, [0, 0, 0]);
    }
}
