//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::Malformed;
use crate::ethernet::EthernetAddress;

/// Length of a packet.
pub const PACKET_LEN: usize = 28;

/// Hardware type Ethernet, protocol type IPv4, address lengths 6 and 4.
const FIXED: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// What an ARP packet wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Who has the target's protocol address?
    Request,
    /// The sender has.
    Reply,
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's MAC address.
    pub sender_hardware: EthernetAddress,
    /// The sender's IPv4 address; unspecified in a probe (RFC 5227 §1.1).
    pub sender_protocol: Ipv4Addr,
    /// The target's MAC address; of no meaning in a request.
    pub target_hardware: EthernetAddress,
    /// The target's IPv4 address.
    pub target_protocol: Ipv4Addr,
}

impl Packet {
    /// Reads a packet; bytes after it are padding.
    ///
    /// # Errors
    /// Truncated, another hardware or protocol than Ethernet and IPv4, or another operation than request and reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes = bytes.first_chunk::<PACKET_LEN>().ok_or(Malformed::Truncated)?;
        let operation = match (bytes.starts_with(&FIXED), bytes[6], bytes[7]) {
            (true, 0, 1) => Operation::Request,
            (true, 0, 2) => Operation::Reply,
            _ => return Err(Malformed::Unsupported),
        };
        let hardware = |at: usize| {
            let mut address = [0; 6];
            address.copy_from_slice(&bytes[at..at + 6]);
            EthernetAddress(address)
        };
        let protocol = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        Ok(Self {
            operation,
            sender_hardware: hardware(8),
            sender_protocol: protocol(14),
            target_hardware: hardware(18),
            target_protocol: protocol(24),
        })
    }

    /// Writes the packet at the start of `out`; returns its length, [`PACKET_LEN`].
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        out[..6].copy_from_slice(&FIXED);
        let operation = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        out[6..8].copy_from_slice(&[0, operation]);
        out[8..14].copy_from_slice(&self.sender_hardware.0);
        out[14..18].copy_from_slice(&self.sender_protocol.octets());
        out[18..24].copy_from_slice(&self.target_hardware.0);
        out[24..PACKET_LEN].copy_from_slice(&self.target_protocol.octets());
        PACKET_LEN
    }
}
