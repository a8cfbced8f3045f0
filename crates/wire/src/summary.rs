//! One line about a frame, in the manner of tcpdump, for logs and for what a failing test prints.

use core::fmt;
use core::net::IpAddr;

use crate::arp::Operation;
use crate::ethernet::EtherType;
use crate::frame::Medium;
use crate::icmpv4::Message;
use crate::ip::{Ecn, Protocol};
use crate::tcp::Flags;
use crate::view::{Network, Transport, View};
use crate::{ipv4, tcp};

/// A frame whose `Display` is one line, such as
/// `10.0.0.1:80 > 10.0.0.2:99 S. 1:1(0) ack 8 win 65535 <mss 1460,sackOK>`.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    frame: &'a [u8],
    medium: Medium,
}

impl<'a> Summary<'a> {
    /// A line about `frame`, which may be anything.
    pub const fn of(frame: &'a [u8], medium: Medium) -> Self {
        Self { frame, medium }
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = match View::parse(self.frame, self.medium) {
            Ok(view) => view,
            Err(reason) => return write!(f, "{} bytes, {reason}", self.frame.len()),
        };
        match view.network {
            Network::Arp(packet) => match packet.operation {
                Operation::Request => {
                    write!(f, "arp who-has {} tell {}", packet.target_protocol, packet.sender_protocol)
                }
                Operation::Reply => {
                    write!(f, "arp {} is-at {}", packet.sender_protocol, packet.sender_hardware)
                }
            },
            Network::Ipv4(header) => {
                let ends = (header.source.into(), header.destination.into());
                transport(f, &view, ends, header.protocol)?;
                ipv4_marks(f, &header)
            }
            Network::Ipv6(header) => {
                let ends = (header.source.into(), header.destination.into());
                transport(f, &view, ends, header.next_header)?;
                ecn_mark(f, header.ecn)
            }
            Network::Other => {
                let ethertype = view.ethernet.map_or(EtherType(0), |header| header.ethertype);
                write!(f, "ethertype {ethertype:?}, {} bytes", view.payload.len())
            }
        }
    }
}

/// A TCP header and the length of its payload, as one line without addresses: `80 > 99 S 1:1(0) win 65535`.
#[derive(Clone, Copy, Debug)]
pub struct TcpSummary<'a> {
    /// The header.
    pub header: &'a tcp::Header,
    /// Bytes of payload.
    pub payload_len: usize,
}

impl fmt::Display for TcpSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} ", self.header.src_port, self.header.dst_port)?;
        tcp_text(f, self.header, self.payload_len)
    }
}

fn transport(
    f: &mut fmt::Formatter<'_>,
    view: &View<'_>,
    (source, destination): (IpAddr, IpAddr),
    protocol: Protocol,
) -> fmt::Result {
    let len = view.payload.len();
    match &view.transport {
        Transport::Tcp(header) => {
            ends(f, (source, header.src_port), (destination, header.dst_port))?;
            tcp_text(f, header, len)
        }
        Transport::Udp(header) => {
            ends(f, (source, header.src_port), (destination, header.dst_port))?;
            write!(f, "udp {len}")
        }
        Transport::Icmpv4(message) => {
            write!(f, "{source} > {destination} icmp ")?;
            icmp_text(f, message, len)
        }
        Transport::Fragment | Transport::Other => write!(f, "{source} > {destination} {protocol:?} {len}"),
    }
}

fn ends(f: &mut fmt::Formatter<'_>, source: (IpAddr, u16), destination: (IpAddr, u16)) -> fmt::Result {
    let [source, destination] =
        [source, destination].map(|(address, port)| core::net::SocketAddr::new(address, port));
    write!(f, "{source} > {destination} ")
}

fn tcp_text(f: &mut fmt::Formatter<'_>, header: &tcp::Header, payload_len: usize) -> fmt::Result {
    let end = header.seq + payload_len as u32;
    write!(f, "{} {}:{}({payload_len})", header.flags, header.seq.0, end.0)?;
    if header.flags.contains(Flags::ACK) {
        write!(f, " ack {}", header.ack.0)?;
    }
    write!(f, " win {}", header.window)?;
    if header.flags.contains(Flags::URG) {
        write!(f, " urg {}", header.urgent)?;
    }
    if header.options != tcp::Options::default() {
        write!(f, " {}", header.options)?;
    }
    Ok(())
}

fn icmp_text(f: &mut fmt::Formatter<'_>, message: &Message, len: usize) -> fmt::Result {
    match *message {
        Message::EchoRequest { identifier, sequence } => {
            write!(f, "echo request, id {identifier}, seq {sequence}, {len} bytes")
        }
        Message::EchoReply { identifier, sequence } => {
            write!(f, "echo reply, id {identifier}, seq {sequence}, {len} bytes")
        }
        Message::Unreachable { code, next_hop_mtu: 0 } => write!(f, "unreachable, code {code}"),
        Message::Unreachable { code, next_hop_mtu } => {
            write!(f, "unreachable, code {code}, mtu {next_hop_mtu}")
        }
        Message::TimeExceeded { code } => write!(f, "time exceeded, code {code}"),
        Message::ParameterProblem { code, pointer } => {
            write!(f, "parameter problem, code {code}, pointer {pointer}")
        }
        Message::Other { kind, code, .. } => write!(f, "type {kind}, code {code}, {len} bytes"),
    }
}

fn ipv4_marks(f: &mut fmt::Formatter<'_>, header: &ipv4::Header) -> fmt::Result {
    if header.is_fragment() {
        let more = if header.more_fragments { "+" } else { "" };
        write!(f, " (frag {}@{}{more})", header.ident, header.fragment_offset)?;
    }
    ecn_mark(f, header.ecn)
}

fn ecn_mark(f: &mut fmt::Formatter<'_>, ecn: Ecn) -> fmt::Result {
    match ecn {
        Ecn::NotEct => Ok(()),
        Ecn::Ect0 => f.write_str(" [ect0]"),
        Ecn::Ect1 => f.write_str(" [ect1]"),
        Ecn::Ce => f.write_str(" [ce]"),
    }
}
