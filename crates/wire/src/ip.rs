//! What IPv4 and IPv6 have in common: the number of the carried protocol and the ECN codepoint.

use core::fmt;

/// The protocol that an IP packet carries (IANA's assigned numbers).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: Self = Self(1);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ICMP => f.write_str("ICMP"),
            Self::TCP => f.write_str("TCP"),
            Self::UDP => f.write_str("UDP"),
            Self::ICMPV6 => f.write_str("ICMPv6"),
            Self(number) => write!(f, "protocol {number}"),
        }
    }
}

/// The ECN codepoint in the low two bits of the TOS or traffic class (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not do ECN.
    #[default]
    NotEct = 0,
    /// ECN-capable, codepoint 1 (RFC 9331: L4S).
    Ect1 = 1,
    /// ECN-capable, codepoint 0.
    Ect0 = 2,
    /// Congestion experienced on the way.
    Ce = 3,
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS or traffic class.
    pub const fn from_bits(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }
}
