//! Frames by hand: everything that a header can say, wrong values included.

use std::net::Ipv4Addr;

use base::SeqNumber;
use wire::checksum::Sum;
use wire::ethernet::EtherType;
use wire::ip::{Ecn, Protocol};
use wire::tcp::{Flags, Options, SackBlock, Timestamps};
use wire::{ethernet, icmpv4, ipv4, tcp, udp};

use crate::subject::{HOST, PEER};

/// A TCP segment to inject. Numbers count from the sender's SYN, which is 0.
#[derive(Clone)]
pub(crate) struct Seg {
    pub(crate) flags: Flags,
    /// `None`: where the peer's stream stands.
    pub(crate) seq: Option<i64>,
    /// Instead: so far from where the peer's stream stands.
    pub(crate) offset: Option<i64>,
    /// `None`: all that was received.
    pub(crate) ack: Option<i64>,
    /// `None`: as the connection says.
    pub(crate) window: Option<u16>,
    pub(crate) urgent: u16,
    pub(crate) data: Vec<u8>,
    pub(crate) options: Options,
    /// SACK blocks in relative numbers.
    pub(crate) sack: Vec<(i64, i64)>,
    /// Options byte by byte instead.
    pub(crate) raw_options: Option<Vec<u8>>,
    /// Whether the connection's timestamps are left out.
    pub(crate) without_timestamps: bool,
    pub(crate) bad_checksum: bool,
    /// The data offset, if it is not the true one.
    pub(crate) data_offset: Option<u8>,
}

/// A segment with flags as tcpdump writes them: `S`, `S.`, `.`, `P.`, `F.`, `R`, `R.`, `U`.
pub(crate) fn seg(letters: &str) -> Seg {
    let flags = letters.chars().fold(Flags::empty(), |flags, letter| {
        flags
            | match letter {
                'S' => Flags::SYN,
                'F' => Flags::FIN,
                'R' => Flags::RST,
                'P' => Flags::PSH,
                'U' => Flags::URG,
                'E' => Flags::ECE,
                'W' => Flags::CWR,
                '.' => Flags::ACK,
                other => panic!("no flag is written {other}"),
            }
    });
    Seg {
        flags,
        seq: None,
        offset: None,
        ack: None,
        window: None,
        urgent: 0,
        data: Vec::new(),
        options: Options::default(),
        sack: Vec::new(),
        raw_options: None,
        without_timestamps: false,
        bad_checksum: false,
        data_offset: None,
    }
}

impl Seg {
    pub(crate) fn seq(mut self, seq: i64) -> Self {
        self.seq = Some(seq);
        self
    }

    pub(crate) fn at(mut self, offset: i64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub(crate) fn ack(mut self, ack: i64) -> Self {
        self.ack = Some(ack);
        self
    }

    pub(crate) fn win(mut self, window: u16) -> Self {
        self.window = Some(window);
        self
    }

    pub(crate) fn data(mut self, data: impl AsRef<[u8]>) -> Self {
        self.data = data.as_ref().to_vec();
        self
    }

    /// So many bytes of data.
    pub(crate) fn len(self, length: usize) -> Self {
        self.data(vec![b'x'; length])
    }

    pub(crate) fn urgent(mut self, pointer: u16) -> Self {
        self.urgent = pointer;
        self
    }

    pub(crate) fn mss(mut self, mss: u16) -> Self {
        self.options.mss = Some(mss);
        self
    }

    pub(crate) fn scale(mut self, scale: u8) -> Self {
        self.options.window_scale = Some(scale);
        self
    }

    pub(crate) fn sack_permitted(mut self) -> Self {
        self.options.sack_permitted = true;
        self
    }

    pub(crate) fn sack(mut self, blocks: &[(i64, i64)]) -> Self {
        self.sack = blocks.to_vec();
        self
    }

    pub(crate) fn stamps(mut self, value: u32, echo: u32) -> Self {
        self.options.timestamps = Some(Timestamps { value, echo });
        self
    }

    pub(crate) fn without_stamps(mut self) -> Self {
        self.without_timestamps = true;
        self
    }

    pub(crate) fn raw_options(mut self, bytes: &[u8]) -> Self {
        self.raw_options = Some(bytes.to_vec());
        self
    }

    pub(crate) fn bad_checksum(mut self) -> Self {
        self.bad_checksum = true;
        self
    }

    pub(crate) fn data_offset(mut self, words: u8) -> Self {
        self.data_offset = Some(words);
        self
    }

    /// The bytes of the segment, given what the connection adds.
    pub(crate) fn emit(&self, ports: (u16, u16), seq: u32, ack: u32, sack_base: u32) -> Vec<u8> {
        let mut options = self.options.clone();
        for (start, end) in &self.sack {
            let at = |position: i64| SeqNumber(sack_base.wrapping_add(position as u32));
            options.sack.push(SackBlock { start: at(*start), end: at(*end) });
        }
        let header = tcp::Header {
            src_port: ports.0,
            dst_port: ports.1,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags: self.flags,
            window: self.window.unwrap_or(u16::MAX),
            urgent: self.urgent,
            options,
        };
        let mut bytes = vec![0; tcp::MAX_HEADER_LEN];
        let mut length = header.emit(&mut bytes);
        bytes.truncate(length);
        if let Some(raw) = &self.raw_options {
            bytes.truncate(tcp::HEADER_LEN);
            bytes.extend_from_slice(raw);
            while !bytes.len().is_multiple_of(4) {
                bytes.push(0);
            }
            length = bytes.len();
        }
        let words = self.data_offset.unwrap_or((length / 4) as u8);
        bytes[12] = bytes[12] & 0x0f | words << 4;
        bytes.extend_from_slice(&self.data);
        let sum = Sum::pseudo_header(PEER.into(), HOST.into(), Protocol::TCP, bytes.len() as u32);
        let checksum = sum.add(&bytes).finish() ^ if self.bad_checksum { 0x5555 } else { 0 };
        bytes[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// An IPv4 packet to inject; every field can be set.
#[derive(Clone)]
pub(crate) struct Ip {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) ident: u16,
    pub(crate) fragment: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    /// Version and header length, if not the true ones.
    pub(crate) first_byte: Option<u8>,
    /// The total length, if not the true one.
    pub(crate) total_len: Option<u16>,
    pub(crate) bad_checksum: bool,
}

impl Ip {
    pub(crate) fn new(protocol: u8, payload: Vec<u8>) -> Self {
        Self {
            source: PEER,
            destination: HOST,
            protocol,
            ttl: 64,
            tos: 0,
            ident: 0x1234,
            fragment: 0,
            options: Vec::new(),
            payload,
            first_byte: None,
            total_len: None,
            bad_checksum: false,
        }
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut options = self.options.clone();
        while !options.len().is_multiple_of(4) {
            options.push(0);
        }
        let header_len = ipv4::HEADER_LEN + options.len();
        let header = ipv4::Header {
            dscp: self.tos >> 2,
            ecn: Ecn::from_bits(self.tos),
            total_len: self.total_len.unwrap_or((header_len + self.payload.len()) as u16),
            ident: self.ident,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: self.ttl,
            protocol: Protocol(self.protocol),
            source: self.source,
            destination: self.destination,
        };
        let mut bytes = vec![0; ipv4::HEADER_LEN];
        header.emit(&mut bytes);
        bytes[0] = self.first_byte.unwrap_or(0x40 | (header_len / 4) as u8);
        bytes[6..8].copy_from_slice(&self.fragment.to_be_bytes());
        bytes.extend_from_slice(&options);
        bytes[10..12].fill(0);
        let checksum = Sum::of(&bytes).finish() ^ if self.bad_checksum { 0x5555 } else { 0 };
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// An Ethernet frame.
pub(crate) fn frame(
    to: ethernet::EthernetAddress,
    from: ethernet::EthernetAddress,
    ethertype: EtherType,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::HEADER_LEN];
    ethernet::Header { destination: to, source: from, ethertype }.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// An ICMP message with its data.
pub(crate) fn icmp(message: icmpv4::Message, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; icmpv4::HEADER_LEN];
    message.emit(&mut bytes, data);
    bytes.extend_from_slice(data);
    bytes
}

/// An echo request.
pub(crate) fn ping(identifier: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    icmp(icmpv4::Message::EchoRequest { identifier, sequence }, data)
}

/// A UDP datagram between the usual addresses.
pub(crate) fn datagram(ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let len = (udp::HEADER_LEN + data.len()) as u16;
    let mut bytes = vec![0; udp::HEADER_LEN];
    udp::Header { src_port: ports.0, dst_port: ports.1, len, checksum: 0 }.emit(&mut bytes);
    bytes.extend_from_slice(data);
    let sum = Sum::pseudo_header(PEER.into(), HOST.into(), Protocol::UDP, bytes.len() as u32).add(&bytes);
    let checksum = udp::transmitted(sum.finish());
    bytes[udp::CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}
