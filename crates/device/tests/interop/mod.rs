//! A host of this project on a TAP device whose other end is a kernel's, driven on the real clock, with everything that
//! passes looked at, and marked or dropped where a test wants that.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant as RealInstant;

use anyhow::{Context, Result, ensure};
use base::{Duration, Instant, SeededRng};
use outboard_device::Device;
use outboard_device::tap::Tap;
use stack::{
    FrameSink, HeapBuffers, HeapStream, InterfaceConfig, InterfaceId, SinkFull, SocketId, SocketOptions,
    Stack, StackConfig,
};
use wire::checksum::Sum;
use wire::frame::{RxFrame, TxFrame};
use wire::icmpv4::Message;
use wire::ip::{Ecn, Protocol};
use wire::{ethernet, ipv4, tcp};

use super::common::{KERNEL, MAC, OURS, PATIENCE, options};

/// What a packet was.
pub(crate) enum Kind {
    Tcp(tcp::Header, usize),
    Icmp(Message),
    Other,
}

/// A packet that passed the device.
pub(crate) struct Seen {
    /// From the kernel.
    pub(crate) incoming: bool,
    /// The device lost it.
    pub(crate) lost: bool,
    /// Of the IP packet, or, of a super-segment, of each that it is cut into.
    pub(crate) packet_len: usize,
    pub(crate) ecn: Ecn,
    pub(crate) kind: Kind,
}

impl Seen {
    pub(crate) fn tcp(&self) -> Option<(&tcp::Header, usize)> {
        match &self.kind {
            Kind::Tcp(header, len) => Some((header, *len)),
            Kind::Icmp(_) | Kind::Other => None,
        }
    }
}

/// What the device does besides carrying.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manners {
    /// Marks every so many ECN-capable packet to the kernel; 0: none.
    pub(crate) mark_out: u32,
    /// The same for those from the kernel.
    pub(crate) mark_in: u32,
    /// ICMP from the kernel is lost.
    pub(crate) drop_icmp: bool,
    /// Every so many packet with data to the kernel is lost; 0: none.
    pub(crate) drop_out: u32,
    /// The same for those from the kernel.
    pub(crate) drop_in: u32,
    /// Every so many packet with data arrives twice at the kernel; 0: none.
    pub(crate) repeat_out: u32,
    /// The same for those from the kernel.
    pub(crate) repeat_in: u32,
    /// Nothing passes any more.
    pub(crate) cut: bool,
}

impl Manners {
    /// What happens to a packet, the `number`th with data of its direction: it is lost, or comes twice.
    fn fate(&self, packet: &Seen, number: &mut u32) -> (bool, bool) {
        if packet.tcp().is_none_or(|(_, len)| len == 0) {
            return (self.cut, false);
        }
        *number += 1;
        let (drop, repeat) =
            if packet.incoming { (self.drop_in, self.repeat_in) } else { (self.drop_out, self.repeat_out) };
        let turn = |every: u32| every > 0 && number.is_multiple_of(every);
        (self.cut || turn(drop), turn(repeat))
    }
}

pub(crate) struct Host {
    pub(crate) stack: Stack<HeapBuffers>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) manners: Manners,
    /// Marks made so far, out and in.
    pub(crate) marked: (u32, u32),
    tap: Tap,
    interface: InterfaceId,
    began: RealInstant,
    capable: (u32, u32),
    /// Packets with data so far, out and in.
    data: (u32, u32),
}

impl Host {
    /// Opens the device in the namespace of the calling thread.
    pub(crate) fn new(mtu: u16, offload: bool, config: StackConfig) -> Result<Self> {
        let tap = Tap::open(&options(mtu, offload))?;
        let mut stack = Stack::new(config, SeededRng::new(7), [7; 16]);
        let interface = stack.add_interface(
            Instant::from_millis(1000),
            InterfaceConfig {
                name: "ob0".to_owned(),
                capabilities: tap.capabilities(),
                addresses: vec![format!("{OURS}/24").parse().context("an address")?],
            },
        );
        ensure!(tap.capabilities().hardware_address == MAC, "the device has the address it was given");
        stack.add_route("0.0.0.0/0".parse().context("a prefix")?, Some(IpAddr::V4(KERNEL)), interface);
        Ok(Self {
            stack,
            seen: Vec::new(),
            manners: Manners::default(),
            marked: (0, 0),
            tap,
            interface,
            began: RealInstant::now(),
            capable: (0, 0),
            data: (0, 0),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_millis(1000) + Duration::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    pub(crate) fn connect(&mut self, to: Ipv4Addr, port: u16) -> Result<SocketId> {
        let (now, remote) = (self.now(), SocketAddr::new(IpAddr::V4(to), port));
        Ok(self.stack.tcp_connect(now, None, remote, HeapStream::default(), &SocketOptions::default())?)
    }

    pub(crate) fn listen(&mut self, port: u16) -> Result<SocketId> {
        let local = SocketAddr::new(IpAddr::V4(OURS), port);
        Ok(self.stack.tcp_listen(local, 8, (), &SocketOptions::default())?)
    }

    /// Carries frames until `done` has an answer; it may act on the host meanwhile.
    pub(crate) fn run<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> Result<T> {
        let start = RealInstant::now();
        loop {
            self.turn()?;
            if let Some(answer) = done(self) {
                self.turn()?;
                return Ok(answer);
            }
            ensure!(start.elapsed() < PATIENCE, "it does not come to an end");
            std::thread::yield_now();
        }
    }

    /// Sends `bytes` on a connection and waits until all are acknowledged.
    pub(crate) fn send(&mut self, id: SocketId, bytes: &[u8]) -> Result<()> {
        let queued = self.stack.stream(id).context("a connection")?.write(bytes);
        self.stack.tcp_send(id, queued);
        self.run(|host| {
            let acked = host.stack.tcp(id).map_or(0, tcp_acked);
            (acked >= queued).then_some(())
        })
    }

    /// Receives until `count` bytes have come; they are `expected` of their offset.
    pub(crate) fn receive(&mut self, id: SocketId, count: usize, expected: fn(usize) -> u8) -> Result<()> {
        let mut got = Vec::new();
        self.run(|host| {
            let now = host.now();
            let (connection, stream) = host.stack.tcp_and_stream(id)?;
            let read = stream.read(connection.received_to(), &mut got);
            host.stack.tcp_consumed(now, id, read);
            (got.len() >= count).then_some(())
        })?;
        ensure!(got.len() == count, "{} bytes instead of {count}", got.len());
        let wrong = got.iter().enumerate().find(|(at, byte)| **byte != expected(*at));
        ensure!(wrong.is_none(), "byte {wrong:?} is not what was sent");
        Ok(())
    }

    /// Waits for the next connection of a listener.
    pub(crate) fn accept(&mut self, listener: SocketId) -> Result<SocketId> {
        self.run(|host| host.stack.tcp_accept(listener))
    }

    fn turn(&mut self) -> Result<()> {
        let now = self.now();
        let Self { stack, seen, manners, marked, tap, interface, capable, data, .. } = self;
        tap.receive(64, &mut |frame: &RxFrame<'_>| {
            let mut bytes = frame.bytes.to_vec();
            if due(&bytes, manners.mark_in, &mut capable.1) {
                mark(&mut bytes);
                marked.1 += 1;
            }
            let mut packet = look(&bytes, 0, frame.segment_size, true);
            let (lost, twice) = manners.fate(&packet, &mut data.1);
            packet.lost = lost || (manners.drop_icmp && matches!(packet.kind, Kind::Icmp(_)));
            let times = if packet.lost { 0 } else { 1 + usize::from(twice) };
            seen.push(packet);
            for time in 0..times {
                if time > 0 {
                    seen.push(look(&bytes, 0, frame.segment_size, true));
                }
                stack.handle_frame(now, *interface, &RxFrame { bytes: &bytes, ..*frame });
            }
        })?;
        if stack.deadline().is_some_and(|deadline| deadline <= now) {
            stack.handle_deadlines(now);
        }
        let (marked, capable, data) = (&mut marked.0, &mut capable.0, &mut data.0);
        let mut sink = Sink { seen, manners, marked, tap, capable, data };
        while stack.poll_transmit(now, &mut sink) > 0 {}
        while stack.poll_changed().is_some() {}
        Ok(())
    }
}

fn tcp_acked(connection: &::tcp::Connection) -> u64 {
    connection.acked_to()
}

struct Sink<'a> {
    seen: &'a mut Vec<Seen>,
    manners: &'a Manners,
    marked: &'a mut u32,
    tap: &'a mut Tap,
    capable: &'a mut u32,
    data: &'a mut u32,
}

impl FrameSink for Sink<'_> {
    fn ready(&self, _: InterfaceId) -> bool {
        self.tap.is_ready()
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        let mut headers = frame.headers.to_vec();
        if due(&headers, self.manners.mark_out, self.capable) {
            mark(&mut headers);
            *self.marked += 1;
        }
        let payload = frame.payload[0].len() + frame.payload[1].len();
        let packet = || look(&headers, payload, frame.segmentation.segment_size(), false);
        let (lost, twice) = self.manners.fate(&packet(), self.data);
        self.seen.push(Seen { lost, ..packet() });
        if lost {
            return Ok(());
        }
        if twice {
            self.seen.push(packet());
            self.tap.transmit(&TxFrame { headers: &headers, ..*frame }).map_err(|_| SinkFull)?;
        }
        self.tap.transmit(&TxFrame { headers: &headers, ..*frame }).map_err(|_| SinkFull)
    }
}

fn is_ipv4(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 0]) && frame.len() >= ethernet::HEADER_LEN + ipv4::HEADER_LEN
}

/// Whether a packet is ECN-capable and its turn to be marked has come.
fn due(frame: &[u8], every: u32, capable: &mut u32) -> bool {
    if every == 0 || !is_ipv4(frame) || !matches!(Ecn::from_bits(frame[15]), Ecn::Ect0 | Ecn::Ect1) {
        return false;
    }
    *capable += 1;
    capable.is_multiple_of(every)
}

fn mark(frame: &mut [u8]) {
    frame[15] |= 3;
    frame[24..26].copy_from_slice(&[0, 0]);
    let sum = Sum::of(&frame[14..34]).finish();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn look(headers: &[u8], payload: usize, segment_size: u16, incoming: bool) -> Seen {
    let mut seen = Seen { incoming, lost: false, packet_len: 0, ecn: Ecn::NotEct, kind: Kind::Other };
    if !is_ipv4(headers) {
        return seen;
    }
    seen.ecn = Ecn::from_bits(headers[15]);
    let behind = &headers[ethernet::HEADER_LEN + ipv4::HEADER_LEN..];
    let whole = headers.len() + payload - ethernet::HEADER_LEN;
    seen.packet_len = whole;
    if headers[23] == Protocol::ICMP.0 {
        seen.kind = Message::parse(behind).map_or(Kind::Other, |(message, _)| Kind::Icmp(message));
    } else if headers[23] == Protocol::TCP.0
        && let Ok((header, more)) = tcp::Header::parse(behind)
    {
        let len = more.len() + payload;
        if segment_size > 0 {
            seen.packet_len = whole - len + len.min(usize::from(segment_size));
        }
        seen.kind = Kind::Tcp(header, len);
    }
    seen
}
