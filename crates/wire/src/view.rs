//! A frame taken apart layer by layer: for tests, logs and captures, where convenience counts more than speed.

use crate::frame::Medium;
use crate::ip::Protocol;
use crate::{Malformed, arp, ethernet, icmpv4, ipv4, ipv6, tcp, udp};

/// The network layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// An ARP packet: nothing follows.
    Arp(arp::Packet),
    /// IPv4.
    Ipv4(ipv4::Header),
    /// IPv6.
    Ipv6(ipv6::Header),
    /// Something else.
    Other,
}

/// What an IP packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp(tcp::Header),
    /// UDP.
    Udp(udp::Header),
    /// ICMP for IPv4.
    Icmpv4(icmpv4::Message),
    /// A later fragment of an IPv4 datagram, which has no transport header.
    Fragment,
    /// Something else, or nothing.
    Other,
}

/// A frame taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The Ethernet header, if the medium has one.
    pub ethernet: Option<ethernet::Header>,
    /// The network layer.
    pub network: Network,
    /// The transport layer.
    pub transport: Transport,
    /// What the innermost header that was understood is followed by.
    pub payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes a frame apart. Transport checksums are not verified, so that frames with partial ones can be looked at.
    ///
    /// # Errors
    /// A header that is there is malformed.
    pub fn parse(frame: &'a [u8], medium: Medium) -> Result<Self, Malformed> {
        let (ethernet, packet) = match medium {
            Medium::Ethernet => {
                let (header, packet) = ethernet::Header::parse(frame)?;
                (Some(header), packet)
            }
            Medium::Ip => (None, frame),
        };
        let ethertype = match (ethernet, packet.first().map(|first| first >> 4)) {
            (Some(header), _) => header.ethertype,
            (None, Some(4)) => ethernet::EtherType::IPV4,
            (None, Some(6)) => ethernet::EtherType::IPV6,
            (None, _) => return Err(Malformed::Unsupported),
        };
        let (network, protocol, payload) = match ethertype {
            ethernet::EtherType::IPV4 => {
                let packet = ipv4::Packet::parse(packet)?;
                let is_later_fragment = packet.header.fragment_offset != 0;
                let protocol = (!is_later_fragment).then_some(packet.header.protocol);
                (Network::Ipv4(packet.header), protocol, packet.payload)
            }
            ethernet::EtherType::IPV6 => {
                let (header, payload) = ipv6::Header::parse(packet)?;
                (Network::Ipv6(header), Some(header.next_header), payload)
            }
            ethernet::EtherType::ARP => {
                (Network::Arp(arp::Packet::parse(packet)?), Some(Protocol(0)), &[][..])
            }
            _ => (Network::Other, Some(Protocol(0)), packet),
        };
        let (transport, payload) = match protocol {
            None => (Transport::Fragment, payload),
            Some(protocol) => Transport::parse(protocol, payload)?,
        };
        Ok(Self { ethernet, network, transport, payload })
    }

    /// The TCP header, if that is what the frame carries.
    pub const fn tcp(&self) -> Option<&tcp::Header> {
        match &self.transport {
            Transport::Tcp(header) => Some(header),
            Transport::Udp(_) | Transport::Icmpv4(_) | Transport::Fragment | Transport::Other => None,
        }
    }

    /// The IPv4 header, if there is one.
    pub const fn ipv4(&self) -> Option<&ipv4::Header> {
        match &self.network {
            Network::Ipv4(header) => Some(header),
            Network::Arp(_) | Network::Ipv6(_) | Network::Other => None,
        }
    }
}

impl Transport {
    fn parse(protocol: Protocol, payload: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        Ok(match protocol {
            Protocol::TCP => {
                let (header, payload) = tcp::Header::parse(payload)?;
                (Self::Tcp(header), payload)
            }
            Protocol::UDP => {
                let (header, payload) = udp::Header::parse(payload)?;
                (Self::Udp(header), payload)
            }
            Protocol::ICMP => {
                let (message, data) = icmpv4::Message::parse_quoted(payload)?;
                (Self::Icmpv4(message), data)
            }
            _ => (Self::Other, payload),
        })
    }
}
