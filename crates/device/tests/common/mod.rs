//! What the tests against a kernel at the other end of an interface share.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::SeqNumber;
use outboard_device::Device;
use outboard_device::tap::TapOptions;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetAddress};
use wire::frame::{ChecksumIn, ChecksumOut, Medium, RxFrame, Segmentation, TxFrame};
use wire::ip::{Ecn, Protocol};
use wire::{arp, ethernet, ipv4, tcp};

pub(crate) const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
pub(crate) const MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
/// Nothing here should take long, unless the machine stands still; a test that waits this long fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn options(mtu: u16, offload: bool) -> TapOptions {
    TapOptions {
        name: "ob0".to_owned(),
        medium: Medium::Ethernet,
        mtu: Some(mtu),
        offload,
        bring_up: true,
        kernel_address: "10.1.0.1/24".parse().ok(),
        hardware_address: MAC,
    }
}

/// A received frame, kept.
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    pub(crate) checksum: ChecksumIn,
    pub(crate) segment_size: u16,
}

/// Asks who has the kernel's address; the answer says where to send.
pub(crate) fn kernel_hardware(tap: &mut impl Device) -> Result<EthernetAddress> {
    let mut request = vec![0; ethernet::HEADER_LEN + arp::PACKET_LEN];
    ethernet::Header { destination: EthernetAddress::BROADCAST, source: MAC, ethertype: EtherType::ARP }
        .emit(&mut request);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_hardware: MAC,
        sender_protocol: OURS,
        target_hardware: EthernetAddress::default(),
        target_protocol: KERNEL,
    }
    .emit(&mut request[ethernet::HEADER_LEN..]);
    transmit(tap, &request, [&[], &[]], ChecksumOut::Complete, Segmentation::None)?;
    let reply = receive_until(tap, |frame| {
        frame.bytes.get(12..14) == Some(&[8, 6]) && frame.bytes.get(21) == Some(&2)
    })?;
    Ok(source_of(&reply))
}

/// Answers ARP until a frame arrives that `wanted` chooses.
pub(crate) fn receive_until(tap: &mut impl Device, wanted: impl Fn(&Kept) -> bool) -> Result<Kept> {
    let start = Instant::now();
    loop {
        let mut frames = Vec::new();
        tap.receive(64, &mut |frame: &RxFrame<'_>| {
            frames.push(Kept {
                bytes: frame.bytes.to_vec(),
                checksum: frame.checksum,
                segment_size: frame.segment_size,
            });
        })?;
        for frame in frames {
            answer_arp(tap, &frame.bytes)?;
            if wanted(&frame) {
                return Ok(frame);
            }
        }
        ensure!(start.elapsed() < PATIENCE, "the frame never came");
        std::thread::yield_now();
    }
}

pub(crate) fn answer_arp(tap: &mut impl Device, frame: &[u8]) -> Result<()> {
    let Ok((header, payload)) = ethernet::Header::parse(frame) else { return Ok(()) };
    if header.ethertype != EtherType::ARP {
        return Ok(());
    }
    let request = arp::Packet::parse(payload).context("malformed ARP")?;
    if request.target_protocol != OURS {
        return Ok(());
    }
    let mut reply = vec![0; ethernet::HEADER_LEN + arp::PACKET_LEN];
    ethernet::Header { destination: header.source, source: MAC, ethertype: EtherType::ARP }.emit(&mut reply);
    arp::Packet {
        operation: arp::Operation::Reply,
        sender_hardware: MAC,
        sender_protocol: OURS,
        target_hardware: request.sender_hardware,
        target_protocol: request.sender_protocol,
    }
    .emit(&mut reply[ethernet::HEADER_LEN..]);
    transmit(tap, &reply, [&[], &[]], ChecksumOut::Complete, Segmentation::None)
}

pub(crate) fn transmit(
    tap: &mut impl Device,
    headers: &[u8],
    payload: [&[u8]; 2],
    checksum: ChecksumOut,
    segmentation: Segmentation,
) -> Result<()> {
    Ok(tap.transmit(&TxFrame { headers, payload, checksum, segmentation })?)
}

/// Ethernet and IPv4 headers towards the kernel, with room for `transport_len` bytes of transport header behind them.
pub(crate) fn headers(
    to: EthernetAddress,
    protocol: Protocol,
    transport_len: usize,
    payload_len: usize,
) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::HEADER_LEN + ipv4::HEADER_LEN + transport_len];
    ethernet::Header { destination: to, source: MAC, ethertype: EtherType::IPV4 }.emit(&mut bytes);
    ipv4::Header {
        source: OURS,
        destination: KERNEL,
        protocol,
        ttl: 64,
        dscp: 0,
        ecn: Ecn::NotEct,
        ident: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        total_len: (ipv4::HEADER_LEN + transport_len + payload_len) as u16,
    }
    .emit(&mut bytes[ethernet::HEADER_LEN..]);
    bytes
}

pub(crate) fn is_ipv4(frame: &Kept, protocol: Protocol) -> bool {
    frame.bytes.get(12..14) == Some(&[8, 0]) && frame.bytes.get(23) == Some(&protocol.0)
}

pub(crate) fn source_of(frame: &Kept) -> EthernetAddress {
    ethernet::Header::parse(&frame.bytes).map(|(header, _)| header.source).unwrap_or_default()
}

pub(crate) fn tcp_header(port: u16, seq: u32, ack: u32, flags: tcp::Flags, mss: Option<u16>) -> tcp::Header {
    tcp::Header {
        src_port: 5001,
        dst_port: port,
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window: 65_535,
        options: tcp::Options { mss, ..Default::default() },
        ..Default::default()
    }
}

/// A TCP segment of ours towards the kernel, its checksum left to the driver.
pub(crate) fn send_tcp(
    tap: &mut impl Device,
    to: EthernetAddress,
    header: &tcp::Header,
    payload: &[u8],
    cut: u16,
) -> Result<()> {
    let length = header.header_len();
    let mut bytes = headers(to, Protocol::TCP, length, payload.len());
    header.emit(&mut bytes[34..]);
    let pseudo_header = Sum::pseudo_header_v4(OURS, KERNEL, Protocol::TCP, (length + payload.len()) as u32);
    bytes[34 + 16..34 + 18].copy_from_slice(&pseudo_header.fold().to_be_bytes());
    let segmentation = if cut == 0 { Segmentation::None } else { Segmentation::Tcp4 { segment_size: cut } };
    transmit(tap, &bytes, [payload, &[]], ChecksumOut::Partial { start: 34, offset: 16 }, segmentation)
}

pub(crate) fn tcp_of(frame: &Kept) -> Result<(tcp::Header, usize)> {
    let (header, payload) = tcp::Header::parse(&frame.bytes[34..]).ok().context("malformed TCP")?;
    Ok((header, payload.len()))
}
