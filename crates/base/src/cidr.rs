//! An IP address with the length of its network prefix (RFC 4632).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address and the length of its prefix, in bits: at most 32 for IPv4, 128 for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpCidr {
    address: IpAddr,
    prefix_len: u8,
}

/// Why a text is not an address with a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseCidrError {
    /// There is no `/` between an address and a prefix length.
    MissingPrefix,
    /// The part before the `/` is not an IP address.
    Address,
    /// The part after the `/` is not a number that the address family allows.
    PrefixLength,
}

impl IpCidr {
    /// `address/prefix_len`, or `None` if the family has no prefix that long.
    pub const fn new(address: IpAddr, prefix_len: u8) -> Option<Self> {
        let longest = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        if prefix_len <= longest { Some(Self { address, prefix_len }) } else { None }
    }

    /// The address, host bits included.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    pub const fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// Whether `address` is of this family and shares this prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_len)).unwrap_or(0);
                (network.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(network), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_len)).unwrap_or(0);
                (network.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }

    /// The first address of the prefix (host bits zero).
    pub fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }

    /// The directed broadcast address of an IPv4 prefix of at most 30 bits (RFC 919 §7, RFC 3021).
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.prefix_len <= 30 => {
                let hosts = u32::MAX.checked_shr(u32::from(self.prefix_len)).unwrap_or(0);
                Some(Ipv4Addr::from_bits(address.to_bits() | hosts))
            }
            _ => None,
        }
    }
}

impl FromStr for IpCidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, ParseCidrError> {
        let (address, prefix_len) = text.split_once('/').ok_or(ParseCidrError::MissingPrefix)?;
        let address = address.parse().map_err(|_| ParseCidrError::Address)?;
        let prefix_len = prefix_len.parse().map_err(|_| ParseCidrError::PrefixLength)?;
        Self::new(address, prefix_len).ok_or(ParseCidrError::PrefixLength)
    }
}

impl fmt::Display for IpCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl fmt::Display for ParseCidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MissingPrefix => "give the prefix length too, as in 10.0.0.2/24",
            Self::Address => "the part before the '/' is not an IP address, as in 10.0.0.2/24",
            Self::PrefixLength => {
                "the part after the '/' is not a prefix length: 0 to 32 for IPv4, 0 to 128 for IPv6"
            }
        })
    }
}

impl core::error::Error for ParseCidrError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> IpCidr {
        text.parse().unwrap()
    }

    #[test]
    fn membership_follows_the_prefix() {
        assert!(cidr("10.1.2.3/24").contains("10.1.2.200".parse().unwrap()));
        assert!(!cidr("10.1.2.3/24").contains("10.1.3.3".parse().unwrap()));
        assert!(cidr("0.0.0.0/0").contains("255.1.2.3".parse().unwrap()));
        assert!(cidr("fe80::1/64").contains("fe80::2".parse().unwrap()));
        assert!(!cidr("0.0.0.0/0").contains("::1".parse().unwrap()));
    }

    #[test]
    fn broadcast_and_network_are_the_ends_of_the_prefix() {
        assert_eq!(cidr("10.1.2.3/24").broadcast(), Some(Ipv4Addr::new(10, 1, 2, 255)));
        assert_eq!(cidr("10.1.2.3/31").broadcast(), None);
        assert_eq!(cidr("10.1.2.3/24").network(), "10.1.2.0".parse::<IpAddr>().unwrap());
        assert_eq!(cidr("0.0.0.0/0").broadcast(), Some(Ipv4Addr::BROADCAST));
    }

    #[test]
    fn bad_text_says_what_is_wrong() {
        assert_eq!("10.0.0.1".parse::<IpCidr>(), Err(ParseCidrError::MissingPrefix));
        assert_eq!("10.0.0/8".parse::<IpCidr>(), Err(ParseCidrError::Address));
        assert_eq!("10.0.0.1/33".parse::<IpCidr>(), Err(ParseCidrError::PrefixLength));
    }
}
