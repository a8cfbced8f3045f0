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
use crate::config::MtuDiscovery;
use crate::egress::Outgoing;
use crate::error::SocketError;
use crate::flow::{FourTuple, Target};
use crate::ingress::Packet;
use crate::queued_error::{Report, Told};
use crate::remembered::{MIN_PATH_MTU, PathMtus};
use crate::socket::Kind;
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
    /// Of its IP header.
    header_len: usize,
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
                let code = unreachable::FRAGMENTATION_NEEDED;
                let report = report_of(packet, (UNREACHABLE, code, next_hop_mtu.into()), data);
                self.on_fragmentation_needed(now, &report, next_hop_mtu);
            }
            Message::Unreachable { code, .. } => {
                let error = unreachable_error(code);
                self.on_error(now, &report_of(packet, (UNREACHABLE, code, 0), data), error);
            }
            Message::TimeExceeded { code } => {
                let report = report_of(packet, (TIME_EXCEEDED, code, 0), data);
                self.on_error(now, &report, tcp::IcmpError::TimeExceeded);
            }
            Message::ParameterProblem { code, pointer } => {
                let report = report_of(packet, (PARAMETER_PROBLEM, code, pointer.into()), data);
                self.on_error(now, &report, tcp::IcmpError::ParameterProblem);
            }
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
    fn on_error(&mut self, now: Instant, report: &Report<'_>, error: tcp::IcmpError) {
        let taken = match Quoted::read(report.quote) {
            Some(quoted) if quoted.protocol == Protocol::TCP => {
                self.on_tcp_error(now, &quoted, report, error)
            }
            Some(quoted) if quoted.protocol == Protocol::UDP => {
                let (error, is_hard) = datagram_error(report.kind, report.code);
                self.on_udp_error(&quoted, report, error, is_hard)
            }
            _ => false,
        };
        if taken {
            self.stats.icmp_errors_in += 1;
        } else {
            self.stats.drop_icmp_unmatched += 1;
        }
    }

    /// As Linux (`tcp_v4_err`): what befalls an attempt is queued; a connection goes on, and its owner hears of it if he asked.
    fn on_tcp_error(
        &mut self,
        now: Instant,
        quoted: &Quoted,
        report: &Report<'_>,
        error: tcp::IcmpError,
    ) -> bool {
        let Some(Target::Socket(index)) = self.find_tcp(&quoted.tuple) else { return false };
        let Some(socket) = self.sockets.get_index(index) else { return false };
        let (queues, state) = (socket.wants.errors(), socket.tcp().map(|tcp| tcp.connection.state()));
        if !self.with_tcp(now, index, |connection| connection.handle_icmp_error(error, quoted.seq)) {
            return false;
        }
        let errno = datagram_error(report.kind, report.code).0.errno();
        match state {
            Some(tcp::State::SynSent | tcp::State::SynReceived) => {
                let entry = report.entry(errno, quoted.tuple.remote, quoted.header_len);
                self.tell(index, Told::Queued(entry));
            }
            None => {}
            Some(_) if queues => self.tell(index, Told::Passing(errno)),
            Some(_) => {}
        }
        true
    }

    /// As Linux (`__udp4_lib_err`): a connected socket hears of what will not pass, and one that queues errors of everything.
    fn on_udp_error(
        &mut self,
        quoted: &Quoted,
        report: &Report<'_>,
        error: SocketError,
        is_hard: bool,
    ) -> bool {
        let Some(index) = self.find_udp(&quoted.tuple) else { return false };
        let Some(socket) = self.sockets.get_index(index) else { return false };
        let is_connected = matches!(&socket.kind, Kind::Udp(udp) if udp.connected.is_some());
        if socket.wants.errors() {
            let skipped = quoted.header_len + wire::udp::HEADER_LEN;
            let entry = report.entry(error.errno(), quoted.tuple.remote, skipped);
            self.tell(index, Told::Queued(entry));
        } else if !is_hard || !is_connected {
            return is_connected;
        }
        self.set_udp_error(index, error);
        true
    }

    /// RFC 1191 §6: the way is narrower than we thought.
    fn on_fragmentation_needed(&mut self, now: Instant, report: &Report<'_>, next_hop_mtu: u16) {
        let Some(quoted) = Quoted::read(report.quote) else {
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
                Some(Target::Socket(index)) if self.may_fragment(index) => false,
                Some(Target::Socket(index)) => {
                    let verdict = self
                        .with_tcp(now, index, |connection| connection.handle_too_big(now, mtu, quoted.seq));
                    self.stats.icmp_too_big_deferred += u64::from(verdict == tcp::TooBigVerdict::Deferred);
                    verdict == tcp::TooBigVerdict::Taken
                }
                Some(Target::TimeWait(_)) | None => false,
            },
            Protocol::UDP => {
                let teller = self.find_udp(&quoted.tuple);
                if teller.is_some_and(|index| !self.is_deaf(index)) {
                    self.on_udp_error(&quoted, report, SocketError::MessageTooLong, true);
                }
                self.has_udp_at(quoted.tuple.local)
            }
            _ => false,
        };
        if taken {
            self.stats.icmp_errors_in += 1;
            self.note_path_mtu(now, quoted.tuple.remote.ip(), mtu);
        } else {
            self.stats.drop_icmp_unmatched += 1;
        }
    }

    /// Whether a socket's packets may be fragmented on their way.
    fn may_fragment(&self, index: u32) -> bool {
        self.sockets.get_index(index).is_some_and(|socket| socket.mtu_discovery.may_fragment())
    }

    /// Whether a datagram socket does not want to hear that its packets are too big.
    fn is_deaf(&self, index: u32) -> bool {
        self.sockets.get_index(index).is_some_and(|socket| socket.mtu_discovery == MtuDiscovery::Dont)
    }

    /// A segment of a connection attempt could not be delivered since its next hop does not answer.
    pub(crate) fn on_attempt_undeliverable(&mut self, index: u32, tuple: &FourTuple, segment: &[u8]) {
        let IpAddr::V4(own) = tuple.local.ip() else { return };
        let report = self.own_report(own, segment);
        let errno = SocketError::HostUnreachable.errno();
        self.tell(index, Told::Queued(report.entry(errno, tuple.remote, 0)));
    }

    /// What this host would have said of a packet that its next hop does not take.
    fn own_report<'a>(&self, own: Ipv4Addr, quote: &'a [u8]) -> Report<'a> {
        let (kind, code, ttl) = (UNREACHABLE, unreachable::HOST, self.config.ttl);
        Report { kind, code, info: 0, from: own, to: own, ttl, tos: 0xc0, quote }
    }

    /// A frame of ours could not be delivered since its next hop does not answer: a UDP socket may want to know. As Linux, this
    /// host then tells itself what a router would have said.
    pub(crate) fn on_undeliverable(&mut self, frame: &[u8]) {
        let packet = frame.get(wire::ethernet::HEADER_LEN..).unwrap_or(&[]);
        let Some(quoted) = Quoted::read(packet).filter(|quoted| quoted.protocol == Protocol::UDP) else {
            return;
        };
        let IpAddr::V4(own) = quoted.tuple.local.ip() else { return };
        let report = self.own_report(own, packet);
        self.on_udp_error(&quoted, &report, SocketError::HostUnreachable, false);
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
            header_len: 4 * usize::from(quote.first()? & 0x0f),
            total_len: header.total_len,
            seq: SeqNumber(u32::from_be_bytes(seq)),
        })
    }
}

/// Types of messages, as sockets are told of them.
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// The message that a packet carries: its type, its code and what it says beyond them.
fn report_of<'a>(packet: &Packet<'_>, (kind, code, info): (u8, u8, u32), quote: &'a [u8]) -> Report<'a> {
    let (from, to) = (packet.header.source, packet.header.destination);
    Report { kind, code, info, from, to, ttl: packet.header.ttl, tos: packet.tos(), quote }
}

/// What a message means to who sends datagrams, and whether that will not pass (Linux: `icmp_err_convert`).
fn datagram_error(kind: u8, code: u8) -> (SocketError, bool) {
    match (kind, code) {
        (PARAMETER_PROBLEM, _) => (SocketError::ProtocolError, true),
        (UNREACHABLE, unreachable::NET | 11) => (SocketError::NetworkUnreachable, false),
        (UNREACHABLE, 6 | 9) => (SocketError::NetworkUnreachable, true),
        (UNREACHABLE, unreachable::PROTOCOL) => (SocketError::ProtocolUnreachable, true),
        (UNREACHABLE, unreachable::PORT) => (SocketError::ConnectionRefused, true),
        (UNREACHABLE, unreachable::SOURCE_ROUTE) => (SocketError::NotSupported, false),
        (UNREACHABLE, unreachable::HOST_UNKNOWN) => (SocketError::HostUnknown, true),
        (UNREACHABLE, unreachable::SOURCE_ISOLATED) => (SocketError::HostIsolated, true),
        (UNREACHABLE, 10 | unreachable::PROHIBITED | 14 | 15) => (SocketError::HostUnreachable, true),
        _ => (SocketError::HostUnreachable, false),
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
