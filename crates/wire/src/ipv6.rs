//! The IPv6 header (RFC 8200 §3). Extension headers are the payload's business.

use core::net::Ipv6Addr;

use crate::Malformed;
use crate::ip::{Ecn, Protocol};

/// Length of the header.
pub const HEADER_LEN: usize = 40;

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Differentiated services codepoint, six bits (RFC 2474).
    pub dscp: u8,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// Length of what follows the header, in bytes.
    pub payload_len: u16,
    /// What follows the header.
    pub next_header: Protocol,
    /// How many more hops it may take.
    pub hop_limit: u8,
    /// Who sent it.
    pub source: Ipv6Addr,
    /// Who it is for.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Splits a packet into header and payload, which ends where the header says it does.
    ///
    /// # Errors
    /// Not version 6, or fewer bytes than promised.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (bytes, rest) = packet.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if first >> 28 != 6 {
            return Err(Malformed::Unsupported);
        }
        let payload_len = u16::from_be_bytes([bytes[4], bytes[5]]);
        let payload = rest.get(..usize::from(payload_len)).ok_or(Malformed::Truncated)?;
        let traffic_class = (first >> 20) as u8;
        let mut source = [0; 16];
        source.copy_from_slice(&bytes[8..24]);
        let mut destination = [0; 16];
        destination.copy_from_slice(&bytes[24..40]);
        let header = Self {
            dscp: traffic_class >> 2,
            ecn: Ecn::from_bits(traffic_class),
            flow_label: first & 0x000f_ffff,
            payload_len,
            next_header: Protocol(bytes[6]),
            hop_limit: bytes[7],
            source: source.into(),
            destination: destination.into(),
        };
        Ok((header, payload))
    }

    /// Writes the header at the start of `out`; returns its length, [`HEADER_LEN`].
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let traffic_class = self.dscp << 2 | self.ecn.bits();
        let first = 6 << 28 | u32::from(traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header.0;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.source.octets());
        out[24..HEADER_LEN].copy_from_slice(&self.destination.octets());
        HEADER_LEN
    }
}
