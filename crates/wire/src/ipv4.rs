//! The IPv4 header (RFC 791 §3.1). Options are handed out uninterpreted and never emitted.

use core::net::Ipv4Addr;

use crate::Malformed;
use crate::checksum::Sum;
use crate::ip::{Ecn, Protocol};

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;
/// Length of the longest header.
pub const MAX_HEADER_LEN: usize = 60;
/// Where the header's checksum stands.
pub const CHECKSUM_OFFSET: usize = 10;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// An IPv4 header, without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Differentiated services codepoint, six bits (RFC 2474).
    pub dscp: u8,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Length of header and payload in bytes.
    pub total_len: u16,
    /// Identification: the same in all fragments of a datagram.
    pub ident: u16,
    /// DF: routers must not fragment it.
    pub dont_fragment: bool,
    /// MF: this is not the last fragment.
    pub more_fragments: bool,
    /// Where this fragment's payload stands in the datagram's, in bytes: a multiple of eight.
    pub fragment_offset: u16,
    /// How many more hops it may take.
    pub ttl: u8,
    /// What it carries.
    pub protocol: Protocol,
    /// Who sent it.
    pub source: Ipv4Addr,
    /// Who it is for.
    pub destination: Ipv4Addr,
}

/// A packet taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The fixed header.
    pub header: Header,
    /// The options, as they stand.
    pub options: &'a [u8],
    /// The payload; it ends where the header says that the packet does.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Takes a packet apart and verifies its header's checksum.
    ///
    /// # Errors
    /// Not version 4, a header or total length that cannot be, fewer bytes than promised, or a wrong checksum.
    #[inline]
    pub fn parse(packet: &'a [u8]) -> Result<Self, Malformed> {
        let (header, header_len) = Header::fields(packet)?;
        let total_len = usize::from(header.total_len);
        if total_len < header_len {
            return Err(Malformed::Length);
        }
        let payload = packet.get(header_len..total_len).ok_or(Malformed::Truncated)?;
        let (checked, _) = packet.split_at(header_len);
        // RFC 1122 §3.2.1.2: a host verifies the checksum of every packet and discards the bad ones silently.
        // Nearly none has options, and a length that the compiler knows makes a short sum of it.
        let sum = match packet.first_chunk::<HEADER_LEN>() {
            Some(fixed) if header_len == HEADER_LEN => Sum::of(fixed),
            _ => Sum::of(checked),
        };
        if sum.finish() != 0 {
            return Err(Malformed::Checksum);
        }
        Ok(Self { header, options: &checked[HEADER_LEN..], payload })
    }

    /// Takes apart what an ICMP error quotes of a packet: the payload may be cut short, and the checksum may be out of
    /// date, since routers change the TTL.
    ///
    /// # Errors
    /// Not version 4, a header length that cannot be, or not even a whole header.
    pub fn parse_quoted(quoted: &'a [u8]) -> Result<Self, Malformed> {
        let (header, header_len) = Header::fields(quoted)?;
        let end = usize::from(header.total_len).min(quoted.len()).max(header_len);
        let options = quoted.get(HEADER_LEN..header_len).ok_or(Malformed::Truncated)?;
        let payload = quoted.get(header_len..end).ok_or(Malformed::Truncated)?;
        Ok(Self { header, options, payload })
    }
}

impl Header {
    /// Writes the header with its checksum at the start of `out`; returns its length, [`HEADER_LEN`].
    ///
    /// # Panics
    /// If `out` is shorter than that.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = 0x45;
        bytes[1] = self.dscp << 2 | self.ecn.bits();
        bytes[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.ident.to_be_bytes());
        let mut fragment = self.fragment_offset >> 3;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            fragment |= MORE_FRAGMENTS;
        }
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[8] = self.ttl;
        bytes[9] = self.protocol.0;
        bytes[12..16].copy_from_slice(&self.source.octets());
        bytes[16..20].copy_from_slice(&self.destination.octets());
        let checksum = Sum::of(&bytes).finish();
        bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
        out[..HEADER_LEN].copy_from_slice(&bytes);
        HEADER_LEN
    }

    /// Whether this is a part of a datagram, not the whole.
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// The fixed header and the length of the whole.
    #[inline]
    fn fields(packet: &[u8]) -> Result<(Self, usize), Malformed> {
        let bytes = packet.first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
        if bytes[0] >> 4 != 4 {
            return Err(Malformed::Unsupported);
        }
        let header_len = usize::from(bytes[0] & 0x0f) * 4;
        if header_len < HEADER_LEN {
            return Err(Malformed::Length);
        }
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let fragment = word(6);
        let header = Self {
            dscp: bytes[1] >> 2,
            ecn: Ecn::from_bits(bytes[1]),
            total_len: word(2),
            ident: word(4),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: (fragment & OFFSET_MASK) << 3,
            ttl: bytes[8],
            protocol: Protocol(bytes[9]),
            source: Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]),
            destination: Ipv4Addr::new(bytes[16], bytes[17], bytes[18], bytes[19]),
        };
        Ok((header, header_len))
    }
}
