//! A capture of a simulated world as pcapng bytes (draft-ietf-opsawg-pcapng), an interface for each host.

use base::Instant;
use wire::frame::Medium;

/// The bytes of a frame that are kept: all headers and the start of the payload.
const SNAP_LENGTH: usize = 160;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const LINKTYPE_ETHERNET: u16 = 1;
const LINKTYPE_RAW: u16 = 101;

/// A capture, growing in memory.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
}

impl Capture {
    /// A capture of hosts with these names, whose frames are of `medium`.
    pub fn new(medium: Medium, hosts: &[String]) -> Self {
        let mut capture = Self { bytes: Vec::new() };
        let mut section = Vec::new();
        section.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        section.extend_from_slice(&[1, 0, 0, 0]);
        section.extend_from_slice(&u64::MAX.to_le_bytes());
        capture.block(SECTION, &[&section]);
        for name in hosts {
            let link_type = match medium {
                Medium::Ethernet => LINKTYPE_ETHERNET,
                Medium::Ip => LINKTYPE_RAW,
            };
            let mut interface = Vec::new();
            interface.extend_from_slice(&u32::from(link_type).to_le_bytes());
            interface.extend_from_slice(&0_u32.to_le_bytes());
            option(&mut interface, 2, name.as_bytes());
            // Times are in units of 10⁻⁹ s.
            option(&mut interface, 9, &[9]);
            option(&mut interface, 0, &[]);
            capture.block(INTERFACE, &[&interface]);
        }
        capture
    }

    /// A frame that `host` sent or received at `at`.
    pub fn frame(&mut self, at: Instant, host: usize, inbound: bool, head: &[u8], payload: &[u8]) {
        let kept_head = &head[..head.len().min(SNAP_LENGTH)];
        let kept_payload = &payload[..payload.len().min(SNAP_LENGTH - kept_head.len())];
        let kept = kept_head.len() + kept_payload.len();
        let nanos = at.as_nanos();
        let mut start = Vec::with_capacity(20);
        for word in [
            host as u32,
            (nanos >> 32) as u32,
            nanos as u32,
            kept as u32,
            (head.len() + payload.len()) as u32,
        ] {
            start.extend_from_slice(&word.to_le_bytes());
        }
        let padding = [0; 3];
        let mut options = Vec::with_capacity(12);
        option(&mut options, 2, &u32::from(if inbound { 1_u8 } else { 2 }).to_le_bytes());
        option(&mut options, 0, &[]);
        let pad = &padding[..kept.next_multiple_of(4) - kept];
        self.block(ENHANCED_PACKET, &[&start, kept_head, kept_payload, pad, &options]);
    }

    /// The file's bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none; never so, since a capture starts with its section header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn block(&mut self, kind: u32, pieces: &[&[u8]]) {
        let len = 12 + pieces.iter().map(|piece| piece.len()).sum::<usize>() as u32;
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(&len.to_le_bytes());
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        self.bytes.extend_from_slice(&len.to_le_bytes());
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_and_their_lengths_agree() {
        let mut capture = Capture::new(Medium::Ip, &["client".into(), "server".into()]);
        capture.frame(Instant::from_millis(3), 1, true, &[0x45; 41], &[7; 1000]);
        capture.frame(Instant::from_millis(4), 0, false, &[0x45; 300], &[]);
        let bytes = capture.into_bytes();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, Vec::new());
        while at < bytes.len() {
            let len = word(at + 4) as usize;
            assert!(len.is_multiple_of(4) && word(at + len - 4) as usize == len);
            kinds.push(word(at));
            at += len;
        }
        assert_eq!(kinds, [SECTION, INTERFACE, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET]);
    }
}
