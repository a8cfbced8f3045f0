//! Two hosts on an emulated link, on virtual time, repeatable from a seed.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate and uses a part")]

pub mod build;

use std::net::{IpAddr, SocketAddr};

use base::{Duration, Instant, IpCidr, Rng, SeededRng};
use outboard_stack as stack;
use stack::{
    Change, FrameSink, HeapBuffers, InterfaceConfig, InterfaceId, SinkFull, SocketId, SocketOptions, Stack,
    StackConfig,
};
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, ChecksumIn, ChecksumOut, Medium, RxFrame, Segmentation, TxFrame};

/// What a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Nothing: every frame is complete.
    None,
    /// Super-segments are cut in software on their way out.
    SoftwareCut,
    /// Super-segments and partial checksums reach the other side as they are.
    Full,
}

/// The manners of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    pub medium: Medium,
    pub mtu: u16,
    pub offload: Offload,
    pub delay: Duration,
    /// Chances in a thousand.
    pub loss: u64,
    pub duplicate: u64,
    pub reorder: u64,
    pub corrupt: u64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            medium: Medium::Ethernet,
            mtu: 1500,
            offload: Offload::Full,
            delay: Duration::from_micros(100),
            loss: 0,
            duplicate: 0,
            reorder: 0,
            corrupt: 0,
        }
    }
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    pub at: Instant,
    pub to: usize,
    pub bytes: Vec<u8>,
    pub checksum: ChecksumIn,
    pub segment_size: u16,
}

pub struct Host {
    pub stack: Stack<HeapBuffers>,
    pub changes: Vec<Change>,
    /// When false, the device takes nothing.
    pub device_ready: bool,
}

pub struct World {
    pub now: Instant,
    pub rng: SeededRng,
    pub link: LinkConfig,
    pub hosts: Vec<Host>,
    pub flights: Vec<Flight>,
    /// Every frame given to the link, when kept.
    pub log: Option<Vec<(usize, Vec<u8>)>>,
    pub frames: u64,
}

pub const IF: InterfaceId = InterfaceId(1);

pub fn ip(host: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, host as u8 + 1])
}

pub fn at(host: usize, port: u16) -> SocketAddr {
    SocketAddr::new(ip(host), port)
}

pub fn mac(host: usize) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, 0, host as u8 + 1])
}

pub fn capabilities(link: &LinkConfig, host: usize) -> Capabilities {
    Capabilities {
        medium: link.medium,
        mtu: link.mtu,
        checksum_tx: link.offload == Offload::Full,
        checksum_rx: link.offload == Offload::Full,
        max_segmentation: if link.offload == Offload::None { 0 } else { 65_535 },
        hardware_address: mac(host),
    }
}

pub fn host(link: &LinkConfig, config: StackConfig, number: usize, seed: u64, now: Instant) -> Host {
    let mut stack = Stack::new(config, SeededRng::new(seed), [number as u8 + seed as u8; 16]);
    let interface = InterfaceConfig {
        name: format!("if{number}"),
        capabilities: capabilities(link, number),
        addresses: vec![IpCidr::new(ip(number), 24).unwrap()],
    };
    assert_eq!(stack.add_interface(now, interface), IF);
    Host { stack, changes: Vec::new(), device_ready: true }
}

struct Collector<'a> {
    frames: &'a mut Vec<(Vec<u8>, ChecksumIn, u16)>,
    link: LinkConfig,
    ready: bool,
}

impl FrameSink for Collector<'_> {
    fn ready(&self, _: InterfaceId) -> bool {
        self.ready
    }

    fn transmit(&mut self, interface: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        assert_eq!(interface, IF);
        let packet = frame.frame_len() - self.link.medium.header_len();
        if frame.segmentation == Segmentation::None {
            assert!(packet <= usize::from(self.link.mtu), "a packet of {packet} bytes");
        } else {
            assert!(packet <= 65_535 && self.link.offload != Offload::None);
        }
        if self.link.offload == Offload::SoftwareCut && frame.segmentation != Segmentation::None {
            let _ = wire::cut::cut(frame, self.link.medium, |headers, payload| {
                let bytes = [headers, payload[0], payload[1]].concat();
                assert!(bytes.len() - self.link.medium.header_len() <= usize::from(self.link.mtu));
                self.frames.push((bytes, ChecksumIn::Unknown, 0));
            });
            return Ok(());
        }
        let bytes = [frame.headers, frame.payload[0], frame.payload[1]].concat();
        let checksum = match frame.checksum {
            ChecksumOut::Complete => ChecksumIn::Unknown,
            ChecksumOut::Partial { .. } => ChecksumIn::Partial,
        };
        assert!(checksum == ChecksumIn::Unknown || self.link.offload == Offload::Full);
        self.frames.push((bytes, checksum, frame.segmentation.segment_size()));
        Ok(())
    }
}

impl World {
    pub fn new(seed: u64, link: LinkConfig) -> Self {
        Self::with_config(seed, link, StackConfig::default())
    }

    pub fn with_config(seed: u64, link: LinkConfig, config: StackConfig) -> Self {
        let now = Instant::from_millis(1_000);
        let hosts = (0..2).map(|number| host(&link, config.clone(), number, seed, now)).collect();
        Self {
            now,
            rng: SeededRng::new(seed ^ 0x5eed),
            link,
            hosts,
            flights: Vec::new(),
            log: None,
            frames: 0,
        }
    }

    pub fn stack(&mut self, host: usize) -> &mut Stack<HeapBuffers> {
        &mut self.hosts[host].stack
    }

    /// Gives out all that the hosts have to send now, and collects their changes.
    pub fn flush(&mut self) {
        for number in 0..self.hosts.len() {
            loop {
                let mut frames = Vec::new();
                let ready = self.hosts[number].device_ready;
                let mut sink = Collector { frames: &mut frames, link: self.link, ready };
                let sent = self.hosts[number].stack.poll_transmit(self.now, &mut sink);
                for (bytes, checksum, segment_size) in frames {
                    self.launch(number, bytes, checksum, segment_size);
                }
                if !self.hosts[number].stack.wants_transmit() || (sent == 0 && !ready) {
                    break;
                }
            }
            while let Some(change) = self.hosts[number].stack.poll_changed() {
                self.hosts[number].changes.push(change);
            }
        }
    }

    fn launch(&mut self, from: usize, bytes: Vec<u8>, checksum: ChecksumIn, segment_size: u16) {
        self.frames += 1;
        if let Some(log) = &mut self.log {
            log.push((from, bytes.clone()));
        }
        let chance = |rng: &mut SeededRng, per_mille| rng.below(1000) < per_mille;
        if chance(&mut self.rng, self.link.loss) {
            return;
        }
        let copies = 1 + usize::from(chance(&mut self.rng, self.link.duplicate));
        for _ in 0..copies {
            let mut delay = self.link.delay;
            if chance(&mut self.rng, self.link.reorder) {
                delay += Duration::from_nanos(self.rng.below(3 * self.link.delay.as_nanos().max(1)));
            }
            let mut bytes = bytes.clone();
            if checksum == ChecksumIn::Unknown && chance(&mut self.rng, self.link.corrupt) {
                let at = self.rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.rng.below(8);
            }
            let to = 1 - from;
            self.flights.push(Flight { at: self.now + delay, to, bytes, checksum, segment_size });
        }
    }

    /// Puts a frame on the link by hand.
    pub fn inject(&mut self, to: usize, bytes: Vec<u8>) {
        self.hosts[to].stack.handle_frame(self.now, IF, &RxFrame::plain(&bytes));
    }

    /// The next instant at which something happens.
    pub fn next(&self) -> Option<Instant> {
        let flights = self.flights.iter().map(|flight| flight.at);
        flights.chain(self.hosts.iter().filter_map(|host| host.stack.deadline())).min()
    }

    /// Goes on to the next instant, or stops at `until`. False: nothing is left before it.
    pub fn step(&mut self, until: Instant) -> bool {
        self.flush();
        let Some(next) = self.next().filter(|&next| next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        let now = self.now;
        // In order of arrival, and of departure for those that arrive together.
        let mut due: Vec<Flight> = self.flights.extract_if(.., |flight| flight.at <= now).collect();
        due.sort_by_key(|flight| flight.at);
        for flight in due {
            let frame = RxFrame {
                bytes: &flight.bytes,
                checksum: flight.checksum,
                segment_size: flight.segment_size,
            };
            self.hosts[flight.to].stack.handle_frame(now, IF, &frame);
        }
        for host in &mut self.hosts {
            host.stack.handle_deadlines(now);
        }
        self.flush();
        true
    }

    /// Runs until `done` says so; false if that took longer than `limit`.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let until = self.now + limit;
        loop {
            self.flush();
            if done(self) {
                return true;
            }
            if !self.step(until) {
                return done(self);
            }
        }
    }

    /// Lets time pass.
    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
    }

    pub fn listen(&mut self, host: usize, port: u16) -> SocketId {
        let local = SocketAddr::from(([0, 0, 0, 0], port));
        self.stack(host).tcp_listen(local, 128, (), &SocketOptions::default()).unwrap()
    }

    pub fn connect(&mut self, host: usize, remote: SocketAddr) -> SocketId {
        let now = self.now;
        self.stack(host)
            .tcp_connect(now, None, remote, Default::default(), &SocketOptions::default())
            .unwrap()
    }

    /// A connection from host 0 to port `port` of host 1, both ends.
    pub fn pair(&mut self, port: u16) -> (SocketId, SocketId) {
        let listener = self.listen(1, port);
        let client = self.connect(0, at(1, port));
        let mut server = None;
        let ok = self.run_until(Duration::from_secs(60), |world| {
            server = server.or_else(|| world.stack(1).tcp_accept(listener));
            server.is_some() && world.state(0, client) == tcp::State::Established
        });
        assert!(ok, "the connection was not established");
        let now = self.now;
        self.stack(1).close(now, listener).unwrap();
        (client, server.unwrap())
    }

    pub fn state(&self, host: usize, id: SocketId) -> tcp::State {
        self.hosts[host].stack.tcp(id).map_or(tcp::State::Closed, tcp::Connection::state)
    }

    /// Writes as much as the application would, frees what is acknowledged.
    pub fn pump(&mut self, host: usize, id: SocketId, transfer: &mut Outgoing) {
        const HELD: u64 = 512 << 10;
        let stack = &mut self.hosts[host].stack;
        let Some((connection, stream)) = stack.tcp_and_stream(id) else { return };
        let acked = connection.acked_to();
        stream.release(acked);
        let to = transfer.total.min(acked + HELD);
        if transfer.written < to {
            let bytes: Vec<u8> = (transfer.written..to).map(|at| pattern(transfer.seed, at)).collect();
            transfer.written = stream.write(&bytes);
            stack.tcp_send(id, transfer.written);
        }
        if transfer.written == transfer.total && !transfer.shut && transfer.shut_at_end {
            transfer.shut = true;
            stack.tcp_shutdown(id);
        }
    }

    /// Reads all there is and compares it with what was sent.
    pub fn drain(&mut self, host: usize, id: SocketId, incoming: &mut Incoming) {
        let now = self.now;
        let stack = &mut self.hosts[host].stack;
        let Some((connection, stream)) = stack.tcp_and_stream(id) else { return };
        let received = connection.received_to();
        incoming.finished = connection.is_peer_closed();
        if received == incoming.read {
            return;
        }
        let mut bytes = Vec::new();
        let read = stream.read(received, &mut bytes);
        assert_eq!(read - incoming.read, bytes.len() as u64);
        for (&byte, offset) in bytes.iter().zip(incoming.read..) {
            assert_eq!(byte, pattern(incoming.seed, offset), "at offset {offset}");
        }
        incoming.read = read;
        stack.tcp_consumed(now, id, read);
    }
}

/// A stream being sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub seed: u64,
    pub total: u64,
    pub written: u64,
    pub shut_at_end: bool,
    pub shut: bool,
}

/// A stream being received.
#[derive(Clone, Debug, Default)]
pub struct Incoming {
    pub seed: u64,
    pub read: u64,
    pub finished: bool,
}

impl Outgoing {
    pub fn new(seed: u64, total: u64) -> Self {
        Self { seed, total, written: 0, shut_at_end: true, shut: false }
    }
}

impl Incoming {
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }
}

/// Byte `offset` of the stream with this seed.
pub fn pattern(seed: u64, offset: u64) -> u8 {
    let word = (offset >> 3).wrapping_add(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (word >> (8 * (offset & 7))) as u8 ^ (word >> 56) as u8
}
