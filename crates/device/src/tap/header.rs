//! The virtio-net header that precedes every frame on a TAP device (virtio 1.2 §5.1.6).

use wire::frame::{ChecksumIn, ChecksumOut, Medium, Segmentation, TxFrame};

/// Length of the header without the field for merged buffers, which TAP does not use.
pub(super) const HEADER_LEN: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Where CWR stands in the TCP header: byte 13, bit 7 (RFC 9293 §3.1).
const TCP_FLAGS_OFFSET: usize = 13;
const TCP_CWR: u8 = 0x80;

/// One virtio-net header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl VnetHeader {
    /// A frame that is complete as it stands.
    pub(super) const PLAIN: Self = Self {
        flags: 0,
        gso_type: GSO_NONE,
        header_len: 0,
        gso_size: 0,
        checksum_start: 0,
        checksum_offset: 0,
    };

    /// The header that hands `frame` on as it is.
    pub(super) fn for_frame(frame: &TxFrame<'_>, medium: Medium) -> Self {
        let mut header = Self::PLAIN;
        if let ChecksumOut::Partial { start, offset } = frame.checksum {
            header.flags = F_NEEDS_CSUM;
            header.checksum_start = start;
            header.checksum_offset = offset;
        }
        let (gso_type, size) = match frame.segmentation {
            Segmentation::None => return header,
            Segmentation::Tcp4 { segment_size } => (GSO_TCPV4, segment_size),
            Segmentation::Tcp6 { segment_size } => (GSO_TCPV6, segment_size),
            Segmentation::Udp { segment_size } => (GSO_UDP_L4, segment_size),
        };
        header.gso_type = gso_type;
        header.gso_size = size;
        header.header_len = frame.headers.len() as u16;
        let flags = usize::from(header.checksum_start) + TCP_FLAGS_OFFSET;
        if gso_type != GSO_UDP_L4 && frame.headers.get(flags).is_some_and(|flags| flags & TCP_CWR != 0) {
            header.gso_type |= GSO_ECN;
        }
        debug_assert!(medium == Medium::Ip || frame.headers.len() > 14, "an Ethernet frame has its header");
        header
    }

    /// Splits what was read into header and frame; `None` if it is too short.
    pub(super) fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, frame) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let parsed = Self {
            flags: header[0],
            gso_type: header[1],
            header_len: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        };
        Some((parsed, frame))
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        for (at, word) in
            [(2, self.header_len), (4, self.gso_size), (6, self.checksum_start), (8, self.checksum_offset)]
        {
            bytes[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What the sender says about the checksum.
    pub(super) fn checksum_in(&self) -> ChecksumIn {
        if self.flags & F_NEEDS_CSUM != 0 {
            ChecksumIn::Partial
        } else if self.flags & F_DATA_VALID != 0 {
            ChecksumIn::Verified
        } else {
            ChecksumIn::Unknown
        }
    }

    /// Payload bytes of each segment of a super-segment; zero for an ordinary frame.
    pub(super) fn segment_size(&self) -> u16 {
        if self.gso_type == GSO_NONE { 0 } else { self.gso_size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_round_trip() {
        let header = VnetHeader {
            flags: F_NEEDS_CSUM,
            gso_type: GSO_TCPV4 | GSO_ECN,
            header_len: 66,
            gso_size: 1448,
            checksum_start: 34,
            checksum_offset: 16,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend_from_slice(b"frame");
        assert_eq!(VnetHeader::split(&bytes), Some((header, &b"frame"[..])));
        assert_eq!(header.checksum_in(), ChecksumIn::Partial);
        assert_eq!(header.segment_size(), 1448);
    }

    #[test]
    fn a_short_read_is_refused() {
        assert_eq!(VnetHeader::split(&[0; HEADER_LEN - 1]), None);
    }

    #[test]
    fn cwr_in_the_template_asks_for_the_ecn_kind() {
        let mut headers = [0u8; 54];
        headers[34 + TCP_FLAGS_OFFSET] = TCP_CWR;
        let frame = TxFrame {
            headers: &headers,
            payload: [&[0; 3000], &[]],
            checksum: ChecksumOut::Partial { start: 34, offset: 16 },
            segmentation: Segmentation::Tcp4 { segment_size: 1460 },
        };
        assert_eq!(VnetHeader::for_frame(&frame, Medium::Ethernet).gso_type, GSO_TCPV4 | GSO_ECN);
    }
}
