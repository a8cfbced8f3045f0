//! A frame on its way through the simulated network: its headers, and where its payload is to be found.

use arrayvec::ArrayVec;
use base::Instant;
use netem::frame::{ip_start, mark_congestion};
use wire::cut::MAX_HEADERS;
use wire::frame::Medium;

use crate::pattern;

/// A wire frame between two hosts.
///
/// Payload that is a slice of the pattern table is only named, so that gigabytes cross a simulated path without being
/// copied into frames; it is put together with the headers when a host receives it.
#[derive(Clone, Debug)]
pub struct SimFrame {
    /// The sending host.
    pub source: u16,
    /// The receiving host.
    pub destination: u16,
    /// How many paths of its route it has been through.
    pub hop: u8,
    /// A bit was flipped on the way: the receiver must not believe it.
    pub corrupt: bool,
    /// Its transport checksum was left to the device.
    pub partial_checksum: bool,
    /// When it reached its host.
    pub arrival: Instant,
    medium: Medium,
    head: ArrayVec<u8, MAX_HEADERS>,
    payload: Payload,
}

#[derive(Clone, Debug)]
enum Payload {
    Pattern { at: u32, len: u32 },
    Bytes(Box<[u8]>),
}

impl SimFrame {
    /// A frame of `medium` from `headers` and a payload in two slices, from one host to another.
    pub fn new(medium: Medium, ends: (u16, u16), headers: &[u8], payload: [&[u8]; 2]) -> Self {
        let (head, rest) = headers.split_at(headers.len().min(MAX_HEADERS));
        let payload = match payload {
            [bytes, []] | [[], bytes] if rest.is_empty() => match pattern::place_of(bytes) {
                Some(at) => Payload::Pattern { at, len: bytes.len() as u32 },
                None => Payload::Bytes(bytes.into()),
            },
            [first, second] => Payload::Bytes([rest, first, second].concat().into()),
        };
        Self {
            source: ends.0,
            destination: ends.1,
            hop: 0,
            corrupt: false,
            partial_checksum: false,
            arrival: Instant::ZERO,
            medium,
            head: head.iter().copied().collect(),
            payload,
        }
    }

    /// What it starts with.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// The headers, and in a frame without payload slices everything.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// What follows the head.
    pub fn payload(&self) -> &[u8] {
        match &self.payload {
            Payload::Pattern { at, len } => pattern::table(*at, *len),
            Payload::Bytes(bytes) => bytes,
        }
    }

    /// Length in bytes, link header included.
    pub fn len(&self) -> usize {
        self.head.len() + self.payload_len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the whole frame into `scratch`, replacing what was there.
    pub fn assemble(&self, scratch: &mut Vec<u8>) {
        scratch.clear();
        scratch.extend_from_slice(&self.head);
        scratch.extend_from_slice(self.payload());
    }

    fn payload_len(&self) -> usize {
        match &self.payload {
            Payload::Pattern { len, .. } => *len as usize,
            Payload::Bytes(bytes) => bytes.len(),
        }
    }
}

impl netem::Frame for SimFrame {
    fn wire_len(&self) -> u32 {
        (self.len() - ip_start(self.medium).min(self.len())) as u32
    }

    fn mark_congestion(&mut self) -> bool {
        self.head.get_mut(ip_start(self.medium)..).is_some_and(mark_congestion)
    }

    fn flip_bit(&mut self, bit: u64) {
        self.corrupt = true;
        let index = ip_start(self.medium) + (bit / 8) as usize;
        let mask = 1 << (bit % 8);
        if let Some(byte) = self.head.get_mut(index) {
            *byte ^= mask;
            return;
        }
        let mut bytes: Box<[u8]> = self.payload().into();
        if let Some(byte) = bytes.get_mut(index - self.head.len()) {
            *byte ^= mask;
        }
        self.payload = Payload::Bytes(bytes);
    }

    fn duplicate(&mut self) -> Option<Self> {
        Some(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Phase;
    use netem::Frame;

    #[test]
    fn payload_is_named_until_it_is_damaged() {
        let bytes = pattern::slice(Phase::of_stream(3), 77, 1000);
        let mut frame = SimFrame::new(Medium::Ip, (0, 1), &[0x45; 40], [bytes, &[]]);
        assert!(matches!(frame.payload, Payload::Pattern { .. }));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        frame.assemble(&mut before);
        assert_eq!(before.len(), 1040);
        frame.flip_bit(40 * 8 + 1);
        frame.assemble(&mut after);
        assert!(frame.corrupt);
        assert_eq!(after[40], before[40] ^ 2);
        after[40] ^= 2;
        assert_eq!(after, before);
    }

    #[test]
    fn long_heads_and_two_slices_keep_their_order() {
        let headers: Vec<u8> = (0..200).collect();
        let frame = SimFrame::new(Medium::Ip, (0, 1), &headers, [b"ab", b"cd"]);
        let mut whole = Vec::new();
        frame.assemble(&mut whole);
        assert_eq!(whole, [headers.as_slice(), b"abcd"].concat());
    }
}
