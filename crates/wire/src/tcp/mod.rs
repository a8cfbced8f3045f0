//! The TCP header (RFC 9293 §3.1) and its options.
//!
//! The header that nearly every segment of an established connection has, with timestamps and no other option, takes a
//! short way through parser and emitter.

mod flags;
mod options;

pub use flags::Flags;
pub use options::{Options, SackBlock, Timestamps};

use base::SeqNumber;

use crate::Malformed;

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;
/// Length of the longest header.
pub const MAX_HEADER_LEN: usize = 60;
/// Room for options in a header.
pub const MAX_OPTIONS_LEN: usize = MAX_HEADER_LEN - HEADER_LEN;
/// Where the checksum stands in the header.
pub const CHECKSUM_OFFSET: usize = 16;
/// Where the sequence number stands in the header.
pub const SEQ_OFFSET: usize = 4;
/// Where the byte of the lower eight flags stands in the header.
pub const FLAGS_OFFSET: usize = 13;

/// A TCP header. Its checksum is not part of it: see [`checksum`](crate::checksum).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Sequence number of the first byte, or of SYN.
    pub seq: SeqNumber,
    /// The next sequence number that the sender expects; of meaning with ACK only.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: Flags,
    /// The window as it stands in the header, unscaled.
    pub window: u16,
    /// The urgent pointer; of meaning with URG only.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Splits a segment into header and payload. Options that are unknown or of a wrong length are skipped; from one
    /// that cannot be skipped on, the rest of the options are ignored.
    ///
    /// # Errors
    /// Truncated, or a data offset below the fixed header's length.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let bytes = segment.first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
        let header_len = usize::from(bytes[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(Malformed::Length);
        }
        let options = segment.get(HEADER_LEN..header_len).ok_or(Malformed::Truncated)?;
        let payload = segment.get(header_len..).ok_or(Malformed::Truncated)?;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Self {
            src_port: word(0),
            dst_port: word(2),
            seq: SeqNumber(number(SEQ_OFFSET)),
            ack: SeqNumber(number(8)),
            flags: Flags::from_bits_truncate(word(12)),
            window: word(14),
            urgent: word(18),
            options: Options::parse(options),
        };
        Ok((header, payload))
    }

    /// Length of the header as emitted.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.emitted_len()
    }

    /// Writes the header at the start of `out`, its checksum zero; returns its length, [`header_len`](Self::header_len).
    ///
    /// # Panics
    /// If `out` is shorter than that; [`MAX_HEADER_LEN`] is always enough.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let header_len = self.header_len();
        let (fixed, options) = out[..header_len].split_at_mut(HEADER_LEN);
        fixed[..2].copy_from_slice(&self.src_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        let offset_and_flags = (header_len as u16 / 4) << 12 | self.flags.bits();
        fixed[12..14].copy_from_slice(&offset_and_flags.to_be_bytes());
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].copy_from_slice(&[0, 0]);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        self.options.emit(options);
        header_len
    }
}
