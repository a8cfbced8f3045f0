//! A whole stack under frames that nobody honest sends, while an honest peer talks to it.
//!
//! Frames are whatever the input says, or packets that are nearly right: addresses and checksums fit, the rest comes from the
//! input. Nothing panics, the tables stay within their bounds, and when all sockets are closed nothing is left of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::{Duration, Instant, SeededRng, SeqNumber};
use stack::{
    FrameSink, HeapBuffers, HeapStream, InterfaceConfig, InterfaceId, SinkFull, SocketId, SocketOptions,
    Stack, StackConfig,
};
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetAddress};
use wire::frame::{Capabilities, ChecksumIn, ChecksumOut, Medium, RxFrame, TxFrame};
use wire::ip::{Ecn, Protocol};

use crate::input::Input;
use crate::middle_box::{USUAL, mangle};

/// A program's most acts.
const MOST_ACTS: usize = 200;

struct World {
    now: Instant,
    stacks: [Stack<HeapBuffers>; 2],
    /// The honest connection's ends; frames of others may well break it.
    ends: [Option<SocketId>; 2],
    listener: SocketId,
}

/// A frame that left a stack, as the other gets it.
struct Flight {
    bytes: Vec<u8>,
    checksum: ChecksumIn,
    segment_size: u16,
}

struct Sink<'a>(&'a mut Vec<Flight>);

impl FrameSink for Sink<'_> {
    fn ready(&self, _: InterfaceId) -> bool {
        true
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        let checksum = match frame.checksum {
            ChecksumOut::Complete => ChecksumIn::Unknown,
            ChecksumOut::Partial { .. } => ChecksumIn::Partial,
        };
        let bytes = [frame.headers, frame.payload[0], frame.payload[1]].concat();
        self.0.push(Flight { bytes, checksum, segment_size: frame.segmentation.segment_size() });
        Ok(())
    }
}

/// Runs the program in `bytes`.
///
/// # Panics
/// If a law is broken.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(input.byte());
    for _ in 0..MOST_ACTS {
        if input.is_empty() {
            break;
        }
        world.act(&mut input);
    }
    world.finish();
}

const INTERFACE: InterfaceId = InterfaceId(1);

fn mac(host: usize) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, 0, host as u8 + 1])
}

fn ip(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host + 1)
}

fn stack(choice: u8, host: u8, now: Instant) -> Stack<HeapBuffers> {
    let mut stack = Stack::new(StackConfig::default(), SeededRng::new(host.into()), [host; 16]);
    let offload = choice & 1 != 0;
    let capabilities = Capabilities {
        medium: Medium::Ethernet,
        mtu: if choice & 2 == 0 { 1500 } else { 9000 },
        checksum_tx: offload,
        checksum_rx: offload,
        max_segmentation: if offload { 65_535 } else { 0 },
        hardware_address: mac(host.into()),
    };
    let addresses = vec![base::IpCidr::new(ip(host).into(), 24).expect("24 bits are a prefix")];
    stack.add_interface(now, InterfaceConfig { name: "if1".into(), capabilities, addresses });
    stack
}

impl World {
    fn new(choice: u8) -> Self {
        let now = Instant::from_millis(1000);
        let mut stacks = [stack(choice, 0, now), stack(choice, 1, now)];
        let options = SocketOptions::default();
        let at = |port: u16| SocketAddr::from((ip(1), port));
        let opened = stacks[1].tcp_listen(at(80), 16, (), &options);
        let Ok(listener) = opened else { panic!("a new stack can listen") };
        let bound = stacks[1].udp_bind(at(7), Default::default(), &options);
        assert!(bound.is_ok(), "a new stack can bind");
        let client = stacks[0].tcp_connect(now, None, at(80), HeapStream::default(), &options).ok();
        let mut world = Self { now, stacks, ends: [client, None], listener };
        world.pass(Duration::from_millis(10));
        world.accept();
        world
    }

    fn accept(&mut self) {
        while let Some(id) = self.stacks[1].tcp_accept(self.listener) {
            if self.ends[1].is_none() {
                self.ends[1] = Some(id);
            } else {
                // A connection that a forged SYN opened: nobody uses it.
                let _ = self.stacks[1].close(self.now, id);
            }
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 => {
                let len = input.byte().into();
                self.give(input.take(len).to_vec(), ChecksumIn::Unknown, 0);
            }
            1..=5 => self.segment(input),
            6 => self.fragment(input),
            7 => self.icmp(input),
            8 => self.arp(input),
            9 => self.datagram(input),
            10 => self.pass(Duration::from_millis(input.u16().into())),
            11 => self.pass(Duration::from_micros(input.u16().into())),
            12 | 13 => self.write(input),
            14 => self.read(),
            _ => self.accept(),
        }
    }

    /// A frame for the second stack.
    fn give(&mut self, bytes: Vec<u8>, checksum: ChecksumIn, segment_size: u16) {
        let frame = RxFrame { bytes: &bytes, checksum, segment_size };
        self.stacks[1].handle_frame(self.now, INTERFACE, &frame);
    }

    /// An IP packet for it, with some bytes changed if the input says so; the header's checksum is right in the end.
    fn packet(&mut self, header: &wire::ipv4::Header, payload: &[u8], input: &mut Input<'_>) {
        let mut bytes = vec![0; 14 + 20];
        wire::ethernet::Header { destination: mac(1), source: mac(0), ethertype: EtherType::IPV4 }
            .emit(&mut bytes);
        header.emit(&mut bytes[14..]);
        bytes.extend_from_slice(payload);
        for _ in 0..input.byte().saturating_sub(252) {
            let at = 14 + usize::from(input.u16()) % (bytes.len() - 14);
            bytes[at] = input.byte();
        }
        let header_len = (usize::from(bytes[14] & 15) * 4).clamp(20, bytes.len() - 14);
        bytes[24..26].fill(0);
        let sum = Sum::of(&bytes[14..14 + header_len]).finish();
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        let checksum = [ChecksumIn::Unknown, ChecksumIn::Verified, ChecksumIn::Partial][input.below(3)];
        self.give(bytes, checksum, if input.bit() { input.u16() } else { 0 });
    }

    /// A TCP segment, to the honest connection or to any port.
    fn segment(&mut self, input: &mut Input<'_>) {
        let local = self.ends[0].and_then(|id| self.stacks[0].local_addr(id));
        let own = local.map_or(1, |address| address.port());
        let (sent, received) = self.ends[0]
            .and_then(|id| self.stacks[0].tcp(id))
            .map_or((0, 0), |conn| (conn.sent_to() as u32, conn.received_to() as u32));
        let mut header = wire::tcp::Header {
            src_port: [own, input.u16()][usize::from(input.below(4) == 0)],
            dst_port: [80, 81, 7, own][input.below(8).saturating_sub(4)],
            seq: SeqNumber(sent),
            ack: SeqNumber(received),
            flags: USUAL[input.below(USUAL.len())],
            window: 10_000,
            ..Default::default()
        };
        mangle(&mut header, input);
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        let len = input.byte().into();
        bytes.extend_from_slice(input.take(len));
        let addresses = (IpAddr::from(ip(0)), IpAddr::from(ip(1)));
        let sum = Sum::pseudo_header(addresses.0, addresses.1, Protocol::TCP, bytes.len() as u32).add(&bytes);
        bytes[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        let header = ip_header(Protocol::TCP, bytes.len());
        self.packet(&header, &bytes, input);
    }

    fn fragment(&mut self, input: &mut Input<'_>) {
        let len = input.byte().into();
        let payload = input.take(len).to_vec();
        let protocol = [Protocol::UDP, Protocol::TCP, Protocol::ICMP][input.below(3)];
        let header = wire::ipv4::Header {
            ident: u16::from(input.byte() & 3),
            more_fragments: input.bit(),
            fragment_offset: (input.u16() & 0x1fff) << 3,
            source: ip(input.byte() & 3),
            ..ip_header(protocol, payload.len())
        };
        self.packet(&header, &payload, input);
    }

    /// An ICMP message, mostly about a segment of the honest connection.
    fn icmp(&mut self, input: &mut Input<'_>) {
        let local = self.ends[0].and_then(|id| self.stacks[0].local_addr(id));
        let quoted = wire::tcp::Header {
            src_port: 80,
            dst_port: local.map_or(1, |address| address.port()),
            seq: SeqNumber(input.nasty() as u32),
            ..Default::default()
        };
        let mut quote = vec![0; 40];
        let header = wire::ipv4::Header {
            source: ip(1),
            destination: ip(0),
            dont_fragment: true,
            ..ip_header(Protocol::TCP, 20 + usize::from(input.u16() & 0xfff))
        };
        header.emit(&mut quote);
        quoted.emit(&mut quote[20..]);
        quote.truncate(40 - input.below(41).min(input.below(41)));
        let mut bytes = vec![[3, 11, 12, 5, 8, 0][input.below(6)], input.byte() & 15, 0, 0];
        bytes.extend_from_slice(&[input.u16().to_be_bytes(), input.u16().to_be_bytes()].concat());
        bytes.extend_from_slice(&quote);
        let sum = Sum::of(&bytes).finish();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        let header = ip_header(Protocol::ICMP, bytes.len());
        self.packet(&header, &bytes, input);
    }

    fn arp(&mut self, input: &mut Input<'_>) {
        let mut bytes = vec![0; 14];
        let destination = if input.bit() { mac(1) } else { EthernetAddress::BROADCAST };
        wire::ethernet::Header { destination, source: mac(0), ethertype: EtherType::ARP }.emit(&mut bytes);
        bytes.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1 + input.byte() % 2]);
        let [sender, target] = [input.byte() & 7, input.byte() & 7].map(|host| ip(host).octets());
        let hardware = [2, 0, 0, 0, 0, input.byte()];
        bytes.extend([&hardware[..], &sender, &[0; 6], &target].concat());
        self.give(bytes, ChecksumIn::Unknown, 0);
    }

    fn datagram(&mut self, input: &mut Input<'_>) {
        let len = usize::from(input.byte());
        let payload = input.take(len);
        let said = (8 + payload.len()) as u16;
        let header = wire::udp::Header {
            src_port: input.u16(),
            dst_port: [7, 80, 9][input.below(3)],
            len: if input.below(4) == 0 { input.u16() } else { said },
            checksum: 0,
        };
        let mut bytes = vec![0; 8];
        header.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        let header = ip_header(Protocol::UDP, bytes.len());
        self.packet(&header, &bytes, input);
    }

    fn write(&mut self, input: &mut Input<'_>) {
        let side = usize::from(input.bit());
        if let Some(id) = self.ends[side]
            && let Some(stream) = self.stacks[side].stream(id)
            && stream.unacknowledged() < 100_000
        {
            let queued = stream.write(&vec![side as u8; input.u16().into()]);
            self.stacks[side].tcp_send(id, queued);
        }
    }

    fn read(&mut self) {
        for (stack, id) in self.stacks.iter_mut().zip(self.ends) {
            let mut bytes = Vec::new();
            if let Some((connection, stream)) = id.and_then(|id| stack.tcp_and_stream(id)) {
                let received = connection.received_to();
                stream.release(connection.acked_to());
                let read = stream.read(received, &mut bytes);
                stack.tcp_consumed(self.now, id.expect("it was found"), read);
            }
        }
    }

    /// Lets time pass; what leaves one stack reaches the other at once.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        self.exchange();
        for _ in 0..20_000 {
            let next = self.stacks.iter().filter_map(Stack::deadline).min().unwrap_or(Instant::FAR_FUTURE);
            if next > end {
                break;
            }
            self.now = next.max(self.now + Duration::from_micros(1));
            for stack in &mut self.stacks {
                stack.handle_deadlines(self.now);
            }
            self.exchange();
        }
        self.now = self.now.max(end);
        self.exchange();
    }

    fn exchange(&mut self) {
        for _ in 0..2000 {
            let mut frames = 0;
            for side in 0..2 {
                let mut flights = Vec::new();
                self.stacks[side].poll_transmit(self.now, &mut Sink(&mut flights));
                while self.stacks[side].poll_changed().is_some() {}
                frames += flights.len();
                let mut batch = self.stacks[1 - side].begin_batch(self.now);
                for Flight { bytes, checksum, segment_size } in flights {
                    let frame = RxFrame { bytes: &bytes, checksum, segment_size };
                    batch.handle_frame(INTERFACE, &frame);
                }
            }
            if frames == 0 {
                return;
            }
        }
        panic!("they answer each other for ever");
    }

    fn finish(mut self) {
        self.read();
        self.accept();
        for side in 0..2 {
            if let Some(id) = self.ends[side] {
                let _ = self.stacks[side].close(self.now, id);
            }
        }
        self.pass(Duration::from_secs(400));
        self.accept();
        self.pass(Duration::from_secs(400));
        let [first, second] =
            self.stacks.each_ref().map(|stack| (stack.socket_count(), stack.time_wait_count()));
        assert_eq!(first, (0, 0), "nothing is left of the connection");
        assert_eq!(second, (2, 0), "the listener and the datagram socket are left");
        let stack = &self.stacks[1];
        assert_eq!(stack.fragment_bytes(), 0, "fragments do not stay");
        assert!(stack.neighbours().count() <= 1024);
    }
}

fn ip_header(protocol: Protocol, payload_len: usize) -> wire::ipv4::Header {
    wire::ipv4::Header {
        dscp: 0,
        ecn: Ecn::NotEct,
        total_len: (20 + payload_len) as u16,
        ident: 7,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol,
        source: ip(0),
        destination: ip(1),
    }
}
