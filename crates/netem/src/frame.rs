//! What a path carries: anything with a length, an ECN field and bits that can flip.

use wire::frame::Medium;

/// A frame on an emulated path.
pub trait Frame: Sized {
    /// The length of the IP packet in bytes; link framing is the bottleneck's to add.
    fn wire_len(&self) -> u32;

    /// Sets Congestion Experienced (RFC 3168 §5) if the packet is ECN-capable; otherwise changes nothing and says so
    /// with `false`.
    fn mark_congestion(&mut self) -> bool;

    /// Inverts one bit of the packet; `bit` is below eight times [`wire_len`](Self::wire_len).
    fn flip_bit(&mut self, bit: u64);

    /// A second copy of the frame, or `None` if there is no room for one.
    fn duplicate(&mut self) -> Option<Self>;
}

/// A frame that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    medium: Medium,
    bytes: Vec<u8>,
}

impl Packet {
    /// A frame of `medium` made of `bytes`.
    pub fn new(medium: Medium, bytes: Vec<u8>) -> Self {
        Self { medium, bytes }
    }

    /// The bytes, link header included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, for re-use of their memory.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Frame for Packet {
    fn wire_len(&self) -> u32 {
        (self.bytes.len() - ip_start(self.medium).min(self.bytes.len())) as u32
    }

    fn mark_congestion(&mut self) -> bool {
        self.bytes.get_mut(ip_start(self.medium)..).is_some_and(mark_congestion)
    }

    fn flip_bit(&mut self, bit: u64) {
        let index = ip_start(self.medium) + (bit / 8) as usize;
        if let Some(byte) = self.bytes.get_mut(index) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn duplicate(&mut self) -> Option<Self> {
        Some(self.clone())
    }
}

/// Where the IP header starts in a frame of `medium`.
pub const fn ip_start(medium: Medium) -> usize {
    match medium {
        Medium::Ethernet => 14,
        Medium::Ip => 0,
    }
}

/// Sets Congestion Experienced in the IP header that `packet` starts with, if its sender declared ECN (RFC 3168 §5).
/// The IPv4 header checksum is updated in place (RFC 1624 equation 3).
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    const CE: u8 = 0b11;
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => {
            let before = packet[1];
            if before & CE == 0 {
                return false;
            }
            packet[1] = before | CE;
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            let sum = update_checksum(sum, u16::from(before), u16::from(before | CE));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            true
        }
        Some(6) if packet.len() >= 40 => {
            // The traffic class straddles the first two bytes; its lowest two bits are bits 4 and 5 of byte 1.
            if packet[1] & (CE << 4) == 0 {
                return false;
            }
            packet[1] |= CE << 4;
            true
        }
        _ => false,
    }
}

/// RFC 1624 equation 3: HC' = ~(~HC + ~m + m').
fn update_checksum(sum: u16, before: u16, after: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(header: &[u8]) -> u16 {
        let mut sum: u32 =
            header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn marking_keeps_the_ipv4_header_checksum_right() {
        for ecn in [1u8, 2, 3] {
            let mut header = [0u8; 20];
            header[..9].copy_from_slice(&[0x45, 0xb8 | ecn, 0, 20, 1, 2, 0x40, 0, 64]);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            let mut packet = Packet::new(Medium::Ip, header.to_vec());
            assert!(packet.mark_congestion());
            assert_eq!(packet.bytes()[1], 0xbb);
            assert_eq!(checksum(packet.bytes()), 0);
        }
    }

    #[test]
    fn a_packet_without_ecn_is_not_marked() {
        let mut packet = Packet::new(Medium::Ip, [0x45; 1].into_iter().chain([0; 19]).collect());
        assert!(!packet.mark_congestion());
        let mut version_6 = vec![0u8; 40];
        version_6[0] = 0x60;
        assert!(!mark_congestion(&mut version_6));
        version_6[1] = 0x20;
        assert!(mark_congestion(&mut version_6));
        assert_eq!(version_6[1], 0x30);
        assert!(!mark_congestion(&mut []));
    }

    #[test]
    fn bits_flip_behind_the_link_header() {
        let mut packet = Packet::new(Medium::Ethernet, vec![0; 34]);
        assert_eq!(packet.wire_len(), 20);
        packet.flip_bit(9);
        assert_eq!(packet.bytes()[15], 2);
    }
}
