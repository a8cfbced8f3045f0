//! ICMP for IPv4: echo, errors in, errors out.
//!
//! An error that comes in is believed as far as the quoted packet can be one of ours: its flow must exist, and for TCP
//! its sequence number must be in flight (RFC 5927 §4.1). Errors go out at a limited rate and never about errors, about
//! packets to many or from many, or about later fragments (RFC 1122 §3.2.2).

use base::{Instant, SeqNumber};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use wire::Malformed;
use wire::icmpv4::{self, Message, exceeded, unreachable};
use wire::ip::Protocol;
use wire::ipv4;

use crate::buffers::BufferFamily;
use crate::egress::Outgoing;
use crate::error::SocketError;
use crate::flow::{FourTuple, Target};
use crate::ingress::Packet;
use crate::remembered::{MIN_PATH_MTU, PathMtus};
use crate::stack::Stack;

/// An error quotes so much that it is no longer than this in all (RFC 1812 §4.3.2.3).
const MAX_ERROR_LEN: usize = 576;

/// The errors that this host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpKind {
    ProtocolUnreachable,
    PortUnreachable,
    ReassemblyTimeExceeded,
    /// The byte of the header that makes no sense.
    ParameterProblem(u8),
}

/// A packet of ours, as an error quotes it.
struct Quoted {
    tuple: FourTuple,
    protocol: Protocol,
    /// Of the whole packet.
    total_len: u16,
    /// The four bytes after the ports: TCP's sequence number.
    seq: SeqNumber,
}

impl<B: BufferFamily> Stack<B> {
    /// Takes an ICMP message in.
    pub(crate) fn handle_icmp(&mut self, now: Instant, packet: &Packet<'_>) {
        self.stats.icmp_in += 1;
        let (message, data) = match Message::parse(packet.payload) {
            Ok(parts) => parts,
            Err(Malformed::Checksum) => {
                self.stats.drop_icmp_checksum += 1;
                return;
            }
            Err(Malformed::Truncated | Malformed::Length | Malformed::Unsupported) => {
                self.stats.drop_icmp_malformed += 1;
                return;
            }
        };
        match message {
            Message::EchoRequest { identifier, sequence } => {
                self.answer_echo(now, packet, identifier, sequence, data);
            }
            Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, next_hop_mtu } => {
                self.on_fragmentation_needed(now, data, next_hop_mtu);
            }
            Message::Unreachable { code, .. } => self.on_error(now, data, unreachable_error(code)),
            Message::TimeExceeded { .. } => self.on_error(now, data, tcp::IcmpError::TimeExceeded),
            Message::ParameterProblem { .. } => self.on_error(now, data, tcp::IcmpError::ParameterProblem),
            Message::EchoReply { .. } | Message::Other { .. } => self.stats.drop_icmp_kind += 1,
        }
    }

    fn answer_echo(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        identifier: u16,
        sequence: u16,
        data: &[u8],
    ) {
        // RFC 1122 §3.2.2.6 lets a host ignore echo requests to all, and everybody does.
        if packet.to_group {
            self.stats.drop_echo_broadcast += 1;
            return;
        }
        if !self.config.answer_echo {
            self.stats.drop_icmp_kind += 1;
            return;
        }
        self.stats.echo_replies += 1;
        let mut head = [0; icmpv4::HEADER_LEN];
        Message::EchoReply { identifier, sequence }.emit(&mut head, data);
        let reply = Outgoing {
            source: packet.header.destination,
            destination: packet.header.source,
            protocol: Protocol::ICMP,
            ttl: self.config.ttl,
            // As on Linux, the reply has the request's type of service.
            tos: packet.tos(),
            dont_fragment: false,
        };
        self.send_packet(now, reply, &[&head, data]);
    }

    /// Tells the sender of `packet` that it could not be taken.
    pub(crate) fn send_icmp_error(&mut self, now: Instant, packet: &Packet<'_>, kind: IcmpKind) {
        if !packet.to_group && !packet.quote.is_empty() {
            self.send_icmp_error_quoting(now, packet.quote, kind);
        }
    }

    /// The same, given the packet's beginning.
    pub(crate) fn send_icmp_error_quoting(&mut self, now: Instant, original: &[u8], kind: IcmpKind) {
        let Some(quoted) = original.first_chunk::<{ ipv4::HEADER_LEN }>() else { return };
        let address = |at: usize| Ipv4Addr::new(quoted[at], quoted[at + 1], quoted[at + 2], quoted[at + 3]);
        let (source, destination) = (address(12), address(16));
        if self.is_broadcast(destination) || destination.is_multicast() || source.is_unspecified() {
            return;
        }
        if !self.error_limit.take(now) {
            self.stats.icmp_rate_limited += 1;
            return;
        }
        let message = match kind {
            IcmpKind::ProtocolUnreachable => {
                Message::Unreachable { code: unreachable::PROTOCOL, next_hop_mtu: 0 }
            }
            IcmpKind::PortUnreachable => Message::Unreachable { code: unreachable::PORT, next_hop_mtu: 0 },
            IcmpKind::ReassemblyTimeExceeded => Message::TimeExceeded { code: exceeded::REASSEMBLY },
            IcmpKind::ParameterProblem(pointer) => Message::ParameterProblem { code: 0, pointer },
        };
        let room = MAX_ERROR_LEN - ipv4::HEADER_LEN - icmpv4::HEADER_LEN;
        let quote = &original[..original.len().min(room)];
        let mut head = [0; icmpv4::HEADER_LEN];
        message.emit(&mut head, quote);
        let error = Outgoing {
            source: destination,
            destination: source,
            protocol: Protocol::ICMP,
            ttl: self.config.ttl,
            // RFC 1812 §4.3.2.5: internetwork control.
            tos: 0xc0,
            dont_fragment: false,
        };
        self.stats.icmp_errors_out += 1;
        self.send_packet(now, error, &[&head, quote]);
    }

    /// An error about a packet that seems to be ours.
    fn on_error(&mut self, now: Instant, quote: &[u8], error: tcp::IcmpError) {
        let taken = match Quoted::read(quote) {
            Some(quoted) if quoted.protocol == Protocol::TCP => self.on_tcp_error(now, &quoted, error),
            Some(quoted) if quoted.protocol == Protocol::UDP => self.on_udp_error(&quoted.tuple, error),
            _ => false,
        };
        if taken {
            self.stats.icmp_errors_in += 1;
        } else {
            self.stats.drop_icmp_unmatched += 1;
        }
    }

    fn on_tcp_error(&mut self, now: Instant, quoted: &Quoted, error: tcp::IcmpError) -> bool {
        let Some(Target::Socket(index)) = self.find_tcp(&quoted.tuple) else { return false };
        self.with_tcp(now, index, |connection| connection.handle_icmp_error(error, quoted.seq))
    }

    fn on_udp_error(&mut self, tuple: &FourTuple, error: tcp::IcmpError) -> bool {
        let error = match error {
            tcp::IcmpError::PortUnreachable => SocketError::ConnectionRefused,
            tcp::IcmpError::ProtocolUnreachable => SocketError::ProtocolUnreachable,
            // As on Linux, what may pass is not told to a socket that did not ask for it.
            tcp::IcmpError::NetworkUnreachable
            | tcp::IcmpError::HostUnreachable
            | tcp::IcmpError::SourceRouteFailed
            | tcp::IcmpError::HostUnknown
            | tcp::IcmpError::HostIsolated
            | tcp::IcmpError::TimeExceeded
            | tcp::IcmpError::ParameterProblem => return self.find_udp_connected(tuple).is_some(),
        };
        let Some(index) = self.find_udp_connected(tuple) else { return false };
        self.set_udp_error(index, error);
        true
    }

    /// RFC 1191 §6: the way is narrower than we thought.
    fn on_fragmentation_needed(&mut self, now: Instant, quote: &[u8], next_hop_mtu: u16) {
        let Some(quoted) = Quoted::read(quote) else {
            self.stats.drop_icmp_unmatched += 1;
            return;
        };
        let mtu = match next_hop_mtu {
            0 => PathMtus::plateau_below(quoted.total_len),
            mtu => mtu,
        };
        let mtu = mtu.max(MIN_PATH_MTU);
        let taken = match quoted.protocol {
            Protocol::TCP => match self.find_tcp(&quoted.tuple) {
                // It does not send what may not be fragmented: a message from long ago, or a forged one.
                Some(Target::Socket(index))
                    if self.sockets.get_index(index).is_some_and(|socket| socket.may_fragment) =>
                {
                    false
                }
                Some(Target::Socket(index)) => {
                    let verdict = self
                        .with_tcp(now, index, |connection| connection.handle_too_big(now, mtu, quoted.seq));
                    self.stats.icmp_too_big_deferred += u64::from(verdict == tcp::TooBigVerdict::Deferred);
                    verdict == tcp::TooBigVerdict::Taken
                }
                Some(Target::TimeWait(_)) | None => false,
            },
            Protocol::UDP => self.has_udp_at(quoted.tuple.local),
            _ => false,
        };
        if taken {
            self.stats.icmp_errors_in += 1;
            self.path_mtus.set(now, quoted.tuple.remote.ip(), mtu);
        } else {
            self.stats.drop_icmp_unmatched += 1;
        }
    }

    /// A frame of ours could not be delivered since its next hop does not answer: a UDP socket may want to know.
    pub(crate) fn on_undeliverable(&mut self, frame: &[u8]) {
        let packet = frame.get(wire::ethernet::HEADER_LEN..).unwrap_or(&[]);
        let Some(quoted) = Quoted::read(packet).filter(|quoted| quoted.protocol == Protocol::UDP) else {
            return;
        };
        if let Some(index) = self.find_udp_connected(&quoted.tuple) {
            self.set_udp_error(index, SocketError::HostUnreachable);
        }
    }
}

impl Quoted {
    /// Reads the beginning of a packet of ours, of which an error may have kept only eight bytes after the header.
    fn read(quote: &[u8]) -> Option<Self> {
        let packet = ipv4::Packet::parse_quoted(quote).ok()?;
        let header = packet.header;
        if header.fragment_offset != 0 {
            return None;
        }
        let [s0, s1, d0, d1, seq @ ..] = *packet.payload.first_chunk::<8>()?;
        Some(Self {
            tuple: FourTuple {
                local: SocketAddr::new(IpAddr::V4(header.source), u16::from_be_bytes([s0, s1])),
                remote: SocketAddr::new(IpAddr::V4(header.destination), u16::from_be_bytes([d0, d1])),
            },
            protocol: header.protocol,
            total_len: header.total_len,
            seq: SeqNumber(u32::from_be_bytes(seq)),
        })
    }
}

/// RFC 1122 §4.2.3.9, RFC 1812 §5.2.7.1, and Linux's table for the rest.
fn unreachable_error(code: u8) -> tcp::IcmpError {
    match code {
        unreachable::PROTOCOL => tcp::IcmpError::ProtocolUnreachable,
        unreachable::PORT => tcp::IcmpError::PortUnreachable,
        unreachable::NET | 6 | 9 | 11 => tcp::IcmpError::NetworkUnreachable,
        unreachable::SOURCE_ROUTE => tcp::IcmpError::SourceRouteFailed,
        unreachable::HOST_UNKNOWN => tcp::IcmpError::HostUnknown,
        unreachable::SOURCE_ISOLATED => tcp::IcmpError::HostIsolated,
        _ => tcp::IcmpError::HostUnreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_of_any_length_are_read_or_refused() {
        let mut quote = [0u8; 28];
        quote[0] = 0x45;
        quote[3] = 40;
        quote[9] = 6;
        quote[12..16].copy_from_slice(&[10, 0, 0, 1]);
        quote[20..24].copy_from_slice(&[0, 80, 0x12, 0x34]);
        quote[24..28].copy_from_slice(&7u32.to_be_bytes());
        for length in 0..28 {
            assert!(Quoted::read(&quote[..length]).is_none());
        }
        let read = Quoted::read(&quote).unwrap();
        assert_eq!(read.tuple.local, "10.0.0.1:80".parse().unwrap());
        assert_eq!(read.seq, SeqNumber(7));
        quote[0] = 0x4f;
        assert!(Quoted::read(&quote).is_none());
    }
}
