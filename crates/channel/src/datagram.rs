//! Datagrams in a byte ring: records on 8-byte boundaries, a header and then the payload.
//!
//! A record never wraps: where one would, a *pad* of a single word covers the rest of the ring. Since rings are powers
//! of two and only grow by copying to the same stream offsets, what does not wrap in a ring does not wrap in a larger.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::Instant;
use stack::DatagramMeta;

use crate::layout::PAGE;
use crate::record::{ip_from_words, ip_words, socket_address};

/// Words of a record's header.
pub(crate) const HEADER_WORDS: usize = 7;
/// Bytes of a record's header.
pub(crate) const HEADER: usize = HEADER_WORDS * 8;
/// The longest payload: what the IPv4 total length leaves for UDP is less.
pub(crate) const MAX_PAYLOAD: usize = 65_535;

/// Stands for the connected peer, and for the socket's own address.
pub(crate) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

const PAD: u64 = 1 << 32;
const REMOTE: u64 = 1 << 33;
const REMOTE_V6: u64 = 1 << 34;
const LOCAL_V6: u64 = 1 << 35;

/// Bytes of the record of a payload.
pub(crate) const fn record_len(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(8)
}

/// The first word of a pad over `len` bytes.
pub(crate) fn pad_word(len: usize) -> u64 {
    len as u64 | PAD
}

/// What a record's first word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Nothing, over this many bytes.
    Pad(usize),
    /// A payload of this many bytes.
    Payload(usize),
}

/// The kind and length of the record that starts at `offset` of a stream of which `available` bytes from there are
/// written, in a ring of `size` bytes. `None` if no such record can stand there.
pub(crate) fn decode_start(word: u64, offset: u64, available: u64, size: usize) -> Option<Record> {
    let to_end = size - (offset as usize & (size - 1));
    if word & PAD != 0 {
        let length = (word & 0xffff_ffff) as usize;
        // A pad ends where the ring ended when it was written; rings are whole pages. So there is at most one for each
        // page, and pads cannot be used to keep the reader busy.
        let ends_well = length > 0 && (offset + length as u64).is_multiple_of(PAGE as u64);
        let fits = length <= to_end && length as u64 <= available;
        return (ends_well && fits).then_some(Record::Pad(length));
    }
    let length = (word & 0xffff) as usize;
    let whole = record_len(length);
    let fits = whole <= to_end && whole as u64 <= available;
    fits.then_some(Record::Payload(length))
}

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: usize,
    /// The other end; to send: `None` for the connected peer.
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: SocketAddr,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    /// Not 0: it is a run of datagrams of this length.
    pub(crate) segment: u16,
    /// When it came, by the stack's clock; to send: of no meaning.
    pub(crate) arrival: Instant,
}

impl Header {
    /// Of a datagram that was received at `now`.
    pub(crate) fn received(now: Instant, meta: &DatagramMeta, length: usize) -> Self {
        let &DatagramMeta { remote, local, ttl, tos, segment } = meta;
        Self { length, remote: Some(remote), local, ttl, tos, segment, arrival: now }
    }

    /// Of a datagram to send.
    pub(crate) fn to_send(remote: Option<SocketAddr>, length: usize) -> Self {
        Self { length, remote, local: NOBODY, ttl: 0, tos: 0, segment: 0, arrival: Instant::ZERO }
    }

    /// What the stack is told of a datagram to send. The port that it is from is the socket's, whatever the record says; the
    /// address counts if it is one of the stack's.
    pub(crate) fn outgoing(&self) -> DatagramMeta {
        let remote = self.remote.unwrap_or(NOBODY);
        let local = SocketAddr::new(self.local.ip(), 0);
        DatagramMeta { remote, local, ttl: self.ttl, tos: self.tos, segment: self.segment }
    }

    pub(crate) fn encode(&self) -> [u64; HEADER_WORDS] {
        let mut head = self.length as u64 | u64::from(self.segment) << 16;
        let (mut remote, mut scope) = ([0; 2], 0);
        if let Some(address) = self.remote {
            head |= REMOTE | u64::from(address.port()) << 48;
            remote = ip_words(address.ip());
            if let SocketAddr::V6(v6) = address {
                head |= REMOTE_V6;
                scope = v6.scope_id();
            }
        }
        if self.local.is_ipv6() {
            head |= LOCAL_V6;
        }
        let local = ip_words(self.local.ip());
        let tail = u64::from(self.local.port())
            | u64::from(self.ttl) << 16
            | u64::from(self.tos) << 24
            | u64::from(scope) << 32;
        [head, remote[0], remote[1], local[0], local[1], tail, self.arrival.as_nanos()]
    }

    /// From a private copy of the words of a record that [`decode_start`] accepted.
    pub(crate) fn decode(words: [u64; HEADER_WORDS], length: usize) -> Self {
        let [head, remote0, remote1, local0, local1, tail, arrival] = words;
        let ip = |v6: bool, words| {
            let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            ip_from_words(words, if v6 { 6 } else { 4 }).unwrap_or(unspecified)
        };
        let scope = (tail >> 32) as u32;
        let remote = (head & REMOTE != 0).then(|| {
            socket_address(ip(head & REMOTE_V6 != 0, [remote0, remote1]), (head >> 48) as u16, scope)
        });
        let local = socket_address(ip(head & LOCAL_V6 != 0, [local0, local1]), tail as u16, scope);
        let (ttl, tos) = ((tail >> 16) as u8, (tail >> 24) as u8);
        let segment = (head >> 16) as u16;
        Self { length, remote, local, ttl, tos, segment, arrival: Instant::from_nanos(arrival) }
    }
}

/// The header's words as bytes, to be copied into a ring.
pub(crate) fn header_bytes(words: [u64; HEADER_WORDS]) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Where in a ring of `size` bytes a record of `len` bytes goes when the stream is written up to `offset`: the bytes of
/// padding before it.
pub(crate) fn padding(offset: u64, len: usize, size: usize) -> usize {
    let to_end = size - (offset as usize & (size - 1));
    if len <= to_end { 0 } else { to_end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_word_makes_a_record_leave_its_ring(word: u64, offset in 0u64..1 << 40, available in 0u64..1 << 24, log2 in 12u32..=24) {
            let (offset, available, size) = (offset & !7, available & !7, 1usize << log2);
            let available = available.min(size as u64);
            let at = offset as usize & (size - 1);
            match decode_start(word, offset, available, size) {
                Some(Record::Pad(len)) => prop_assert!(len >= 8 && at + len <= size && len as u64 <= available),
                Some(Record::Payload(len)) => prop_assert!(at + record_len(len) <= size && record_len(len) as u64 <= available),
                None => {}
            }
        }

        #[test]
        fn a_header_survives(length in 0usize..=MAX_PAYLOAD, remote: SocketAddr, local: SocketAddr, ttl: u8, tos: u8, segment: u16, arrival: u64, connected: bool) {
            let plain = |address: SocketAddr| SocketAddr::new(address.ip(), address.port());
            let arrival = Instant::from_nanos(arrival);
            let header = Header { length, remote: (!connected).then_some(plain(remote)), local: plain(local), ttl, tos, segment, arrival };
            let words = header.encode();
            prop_assert_eq!(decode_start(words[0], 0, 1 << 20, 1 << 20), Some(Record::Payload(length)));
            prop_assert_eq!(Header::decode(words, length), header);
        }
    }
}
