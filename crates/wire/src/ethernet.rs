//! Ethernet II frames (IEEE 802.3 §3.2, RFC 894): two addresses and a type, no VLAN tags, no 802.3 length form.

use core::fmt;
use core::str::FromStr;

use crate::Malformed;

/// Length of an Ethernet header.
pub const HEADER_LEN: usize = 14;

/// A 48-bit MAC address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EthernetAddress(pub [u8; 6]);

impl EthernetAddress {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zeroes: no address.
    pub const UNSPECIFIED: Self = Self([0; 6]);

    /// Whether this is the broadcast address.
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Whether this is a group address (broadcast included).
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether a station can have this address: neither a group's nor zero.
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// A locally administered unicast address made from the low 46 bits of `seed` that are free to choose.
    pub const fn locally_administered(seed: u64) -> Self {
        let [_, _, first, b1, b2, b3, b4, b5] = seed.to_be_bytes();
        Self([(first & !1) | 2, b1, b2, b3, b4, b5])
    }
}

impl fmt::Display for EthernetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for EthernetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not six hexadecimal bytes with colons between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseAddressError;

impl fmt::Display for ParseAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a MAC address, as in 02:00:5e:10:00:01")
    }
}

impl core::error::Error for ParseAddressError {}

impl FromStr for EthernetAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let mut address = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut address {
            let part = parts.next().ok_or(ParseAddressError)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(ParseAddressError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| ParseAddressError)?;
        }
        if parts.next().is_some() { Err(ParseAddressError) } else { Ok(Self(address)) }
    }
}

/// What an Ethernet frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// IPv6 (RFC 2464 §3).
    pub const IPV6: Self = Self(0x86dd);
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// An Ethernet II header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who the frame is for.
    pub destination: EthernetAddress,
    /// Who sent it.
    pub source: EthernetAddress,
    /// What it carries.
    pub ethertype: EtherType,
}

impl Header {
    /// Splits a frame into header and payload (padding included).
    ///
    /// # Errors
    /// `Truncated`: there is no whole header.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (bytes, payload) = frame.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *bytes;
        let header = Self {
            destination: EthernetAddress([d0, d1, d2, d3, d4, d5]),
            source: EthernetAddress([s0, s1, s2, s3, s4, s5]),
            ethertype: EtherType(u16::from_be_bytes([t0, t1])),
        };
        Ok((header, payload))
    }

    /// Writes the header at the start of `out`; returns its length, [`HEADER_LEN`].
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        out[..6].copy_from_slice(&self.destination.0);
        out[6..12].copy_from_slice(&self.source.0);
        out[12..HEADER_LEN].copy_from_slice(&self.ethertype.0.to_be_bytes());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_know_their_kind() {
        assert!(EthernetAddress::BROADCAST.is_broadcast() && EthernetAddress::BROADCAST.is_multicast());
        assert!(!EthernetAddress::UNSPECIFIED.is_unicast());
        let own = EthernetAddress::locally_administered(u64::MAX);
        assert!(own.is_unicast());
        assert_eq!(own.0[0] & 3, 2);
        assert_ne!(EthernetAddress::locally_administered(1), EthernetAddress::locally_administered(2));
    }

    #[test]
    fn an_address_survives_as_text() {
        let text = "02:00:5e:10:0a:ff";
        assert_eq!(text.parse::<EthernetAddress>().unwrap().to_string(), text);
        for bad in ["", "02:00:5e:10:0a", "02:00:5e:10:0a:ff:00", "2:0:5e:10:0a:ff", "+2:00:5e:10:0a:ff"] {
            assert_eq!(bad.parse::<EthernetAddress>(), Err(ParseAddressError), "{bad}");
        }
    }
}
