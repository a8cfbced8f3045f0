//! The UDP header (RFC 768).

use core::net::IpAddr;

use crate::Malformed;
use crate::checksum::Sum;
use crate::ip::Protocol;

/// Length of the header.
pub const HEADER_LEN: usize = 8;
/// Where the checksum stands in the header.
pub const CHECKSUM_OFFSET: usize = 6;

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port; zero: no answer is expected.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Length of header and payload in bytes.
    pub len: u16,
    /// The checksum as it stands; zero: the sender made none.
    pub checksum: u16,
}

impl Header {
    /// Splits a datagram into header and payload, which ends where the header says it does. The checksum is not
    /// verified: [`verify`] does that.
    ///
    /// # Errors
    /// Truncated, or a length below that of the header.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let bytes = datagram.first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let header = Self { src_port: word(0), dst_port: word(2), len: word(4), checksum: word(6) };
        let len = usize::from(header.len);
        if len < HEADER_LEN {
            return Err(Malformed::Length);
        }
        let payload = datagram.get(HEADER_LEN..len).ok_or(Malformed::Truncated)?;
        Ok((header, payload))
    }

    /// Writes the header, `checksum` as it stands, at the start of `out`; returns its length, [`HEADER_LEN`].
    ///
    /// # Panics
    /// If `out` is shorter than that.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let words = [self.src_port, self.dst_port, self.len, self.checksum];
        for (slot, word) in out[..HEADER_LEN].as_chunks_mut::<2>().0.iter_mut().zip(words) {
            *slot = word.to_be_bytes();
        }
        HEADER_LEN
    }
}

/// Whether the checksum of a datagram (header and payload, as long as its length field says) is right. Over IPv4 a
/// checksum of zero means that there is none; over IPv6 it is wrong (RFC 8200 §8.1).
pub fn verify(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> bool {
    let Ok((header, payload)) = Header::parse(datagram) else { return false };
    if header.checksum == 0 {
        return source.is_ipv4();
    }
    let covered = &datagram[..HEADER_LEN + payload.len()];
    Sum::pseudo_header(source, destination, Protocol::UDP, covered.len() as u32).add(covered).finish() == 0
}

/// A finished sum as UDP transmits it: zero means "no checksum", so a computed zero is sent as all ones (RFC 768).
pub const fn transmitted(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}
