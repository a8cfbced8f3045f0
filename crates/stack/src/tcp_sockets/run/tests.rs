//! A host that gets its frames in batches, and one that sees runs, against one for which something stands between any two packets,
//! so that there are none.

use base::{Duration, Instant, Rng, SeededRng};
use wire::checksum::{self, Sum};
use wire::cut::cut;
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, Medium, RxFrame, TxFrame};

use super::HEADERS;
use crate::{
    Batch, ConflictDetection, FrameSink, HeapBuffers, HeapStream, InterfaceConfig, InterfaceId, SinkFull,
    SocketId, SocketOptions, Stack, StackConfig,
};

/// Nothing that could be a packet.
const NOTHING: [u8; 1] = [0x45];

#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl FrameSink for Frames {
    fn ready(&self, _: InterfaceId) -> bool {
        true
    }

    fn room(&self, _: InterfaceId) -> usize {
        64
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        let give = |headers: &[u8], payload: [&[u8]; 2]| {
            self.0.push([headers, payload[0], payload[1]].concat());
        };
        assert_eq!(cut(frame, Medium::Ip, give), Ok(1));
        Ok(())
    }
}

/// How a host takes the frames of a batch in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In a batch.
    Batch,
    OneByOne,
    /// With [`NOTHING`] before each.
    Apart,
    /// In a batch, headers and payload not in one place.
    Parts,
}

/// A host and its connection, once it has one.
struct Host {
    stack: Stack<HeapBuffers>,
    interface: InterfaceId,
    connection: Option<SocketId>,
    read: Vec<u8>,
    /// Packets of which it has seen [`NOTHING`].
    nothings: u64,
    /// Packets that continued a run.
    continued: u64,
    /// Packets that were placed and told later.
    gathered: u64,
    /// Of them, those that were shorter than those before.
    tails: u64,
    /// Packets that came in batches.
    batched: u64,
}

impl Host {
    fn new(number: u8) -> Self {
        let config = StackConfig { conflict_detection: ConflictDetection::Off, ..StackConfig::default() };
        let mut stack = Stack::new(config, SeededRng::new(number.into()), [number; 16]);
        let capabilities = Capabilities {
            medium: Medium::Ip,
            mtu: 1500,
            checksum_tx: true,
            checksum_rx: false,
            max_segmentation: 0,
            hardware_address: EthernetAddress::default(),
        };
        let addresses = vec![format!("10.0.0.{number}/24").parse().unwrap()];
        let config = InterfaceConfig { name: "link".into(), capabilities, addresses };
        let interface = stack.add_interface(Instant::ZERO, config);
        Self {
            stack,
            interface,
            connection: None,
            read: Vec::new(),
            nothings: 0,
            continued: 0,
            gathered: 0,
            tails: 0,
            batched: 0,
        }
    }

    /// The frames come `spacing` before now, and before one another.
    fn take_all(&mut self, now: Instant, frames: &[Vec<u8>], spacing: Duration, way: Way) {
        let arrivals = (0..frames.len() as u32).rev().map(|before| now - spacing * before);
        if !matches!(way, Way::Batch | Way::Parts) {
            for (frame, arrival) in frames.iter().zip(arrivals) {
                self.take(now, arrival, frame, way == Way::Apart);
            }
            return;
        }
        let mut batch = self.stack.begin_batch(now);
        for (frame, arrival) in frames.iter().zip(arrivals) {
            let gathered = |batch: &Batch<'_, HeapBuffers>| {
                batch.gathered.as_ref().map_or(0, |gathered| gathered.count + gathered.tail.min(1))
            };
            let before = gathered(&batch);
            if way == Way::Parts {
                let (headers, payload) = frame.split_at(frame.len().min(HEADERS));
                // Now and then the payload itself stands in two places, the first part odd or even in length.
                let part = if self.batched % 5 == 1 { payload.len() / 3 } else { payload.len() };
                let (first, second) = payload.split_at(part);
                batch.handle_parts_at(arrival, self.interface, headers, [first, second]);
            } else {
                batch.handle_frame_at(arrival, self.interface, &RxFrame::plain(frame));
            }
            let after = gathered(&batch);
            self.gathered += u64::from(after > before);
            self.tails += u64::from(batch.gathered.as_ref().is_some_and(|gathered| gathered.tail > 0));
            self.batched += 1;
        }
    }

    fn take(&mut self, now: Instant, arrival: Instant, frame: &[u8], apart: bool) {
        if apart {
            self.nothings += 1;
            self.stack.handle_frame(now, self.interface, &RxFrame::plain(&NOTHING));
            assert!(self.stack.run.is_none());
        }
        let before = self.stack.run.as_ref().map(|run| run.next.seq);
        self.stack.handle_frame_at(now, arrival, self.interface, &RxFrame::plain(frame));
        let after = self.stack.run.as_ref().map(|run| run.next.seq);
        self.continued += u64::from(before.is_some() && after.is_some() && before != after);
    }

    fn consume(&mut self, now: Instant) {
        let Some(id) = self.connection else { return };
        let (connection, stream) = self.stack.tcp_and_stream(id).unwrap();
        let consumed = stream.read(connection.received_to(), &mut self.read);
        self.stack.tcp_consumed(now, id, consumed);
    }

    fn output(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut frames = Frames::default();
        self.stack.poll_transmit(now, &mut frames);
        frames.0
    }

    /// All that can be seen of it from outside.
    fn picture(&self, now: Instant) -> String {
        let mut stats = self.stack.stats().clone();
        stats.frames_in -= self.nothings;
        stats.bytes_in -= self.nothings * NOTHING.len() as u64;
        stats.drop_ip_header -= self.nothings;
        let info = self.connection.map(|id| self.stack.tcp_info(now, id));
        let work = self.stack.work();
        format!("{stats:?} {info:?} {work:?} {:?} {}", self.stack.deadline(), self.read.len())
    }
}

/// What the way does to the frames of one batch.
fn disturb(rng: &mut SeededRng, frames: &mut Vec<Vec<u8>>, one_of: u64) {
    for index in (0..frames.len()).rev() {
        if rng.below(one_of) > 0 {
            continue;
        }
        let length = frames[index].len();
        match rng.below(8) {
            0 => frames[index][rng.below(length as u64) as usize] ^= 1 << rng.below(8),
            1 => frames[index].truncate(rng.below(length as u64) as usize),
            2 => frames[index].extend_from_slice(&[0; 3]),
            3 => drop(frames.remove(index)),
            4 => frames.insert(index, frames[index].clone()),
            5 | 6 if length > 300 => remark(rng, &mut frames[index]),
            _ => frames.swap(index, index / 2),
        }
    }
}

/// Changes what a segment says beside its data, with the right checksums.
fn remark(rng: &mut SeededRng, frame: &mut [u8]) {
    let (at, bits) = [(1, 3), (33, 8), (34, 1), (47, 7), (51, 7)][rng.below(5) as usize];
    frame[at] ^= bits;
    frame[10..12].fill(0);
    let sum = Sum::of(&frame[..20]).finish();
    frame[10..12].copy_from_slice(&sum.to_be_bytes());
    let length = (frame.len() - 20) as u32;
    let pseudo_header = Sum::of(&frame[12..20]).add_u16(6).add_u32(length).fold();
    frame[36..38].copy_from_slice(&pseudo_header.to_be_bytes());
    let place = checksum::locate(frame, Medium::Ip).unwrap();
    checksum::complete(frame, place);
}

/// Packets that continued a run where they came one by one, that were gathered where they came in batches, whole and in parts, and
/// how many of those were shorter than those before them.
fn compare(seed: u64, one_of: u64) -> [u64; 4] {
    let mut rng = SeededRng::new(seed);
    let mut client = Host::new(1);
    let mut servers = [Host::new(2), Host::new(2), Host::new(2), Host::new(2)];
    let ways = [Way::OneByOne, Way::Apart, Way::Batch, Way::Parts];
    let options = SocketOptions::default();
    let to = "10.0.0.2:80".parse().unwrap();
    let listeners = servers.each_mut().map(|server| server.stack.tcp_listen(to, 1, (), &options).unwrap());
    let mut now = Instant::from_millis(1000);
    let id = client.stack.tcp_connect(now, None, to, HeapStream::default(), &options).unwrap();
    let sent: Vec<u8> = (0..300_000usize).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
    // All at once, or by and by, so that there are short segments among the others.
    let mut unsent = sent.as_slice();
    while servers[0].read.len() < sent.len() {
        now += Duration::from_millis(1);
        assert!(now < Instant::from_millis(900_000), "{} bytes arrived", servers[0].read.len());
        client.stack.handle_deadlines(now);
        let now_sent = if seed.is_multiple_of(2) { rng.below(9000) as usize } else { sent.len() };
        let (part, rest) = unsent.split_at(now_sent.min(unsent.len()));
        unsent = rest;
        let queued = client.stack.stream(id).unwrap().write(part);
        client.stack.tcp_send(id, queued);
        let mut frames = client.output(now);
        disturb(&mut rng, &mut frames, one_of);
        let reads = rng.below(3) > 0;
        let spacing = Duration::from_micros(rng.below(4).saturating_sub(2));
        let mut outputs = Vec::new();
        for (number, server) in servers.iter_mut().enumerate() {
            server.stack.handle_deadlines(now);
            server.take_all(now, &frames, spacing, ways[number]);
            server.connection = server.connection.or_else(|| server.stack.tcp_accept(listeners[number]));
            if reads {
                server.consume(now);
            }
            outputs.push(server.output(now));
        }
        for other in [0, 2, 3] {
            assert_eq!(outputs[other], outputs[1]);
            assert_eq!(servers[other].picture(now), servers[1].picture(now));
        }
        client.take_all(now, &outputs[0], spacing, Way::Batch);
        let (connection, stream) = client.stack.tcp_and_stream(id).unwrap();
        stream.release(connection.acked_to());
    }
    assert!(servers.iter().all(|server| server.read == sent), "the bytes that were sent");
    assert_eq!(servers[1].continued, 0);
    [servers[0].continued, servers[2].gathered, servers[3].gathered, servers[2].tails]
}

#[test]
fn a_run_is_taken_as_its_segments_are_one_by_one() {
    let [continued, gathered, gathered_apart, _] = compare(1, u64::MAX);
    assert!(continued > 100, "{continued} of some 200 segments continued a run");
    assert!(gathered > 100, "{gathered} of some 200 segments were gathered");
    assert!(gathered_apart > 50, "{gathered_apart} of some 200 segments were gathered from parts");
    let tails: u64 = (2..60).map(|seed| compare(seed, 4 + seed)[3]).sum();
    assert!(tails > 100, "{tails} segments shorter than those before were gathered");
}

#[test]
fn a_run_is_continued_only_by_frames_to_this_host() {
    let own = EthernetAddress([2, 0, 0, 0, 0, 1]);
    let config = StackConfig { conflict_detection: ConflictDetection::Off, ..StackConfig::default() };
    let mut stack = Stack::<HeapBuffers>::new(config, SeededRng::new(1), [1; 16]);
    let capabilities = Capabilities {
        medium: Medium::Ethernet,
        mtu: 1500,
        checksum_tx: false,
        checksum_rx: false,
        max_segmentation: 0,
        hardware_address: own,
    };
    let config = InterfaceConfig { name: "link".into(), capabilities, addresses: Vec::new() };
    let interface = stack.add_interface(Instant::ZERO, config);
    let header = |to: [u8; 6], kind: [u8; 2]| [&to[..], &[2, 0, 0, 0, 0, 2], &kind].concat();
    assert!(stack.link_header_fits(interface, &header(own.0, [8, 0])));
    assert!(!stack.link_header_fits(interface, &header([2, 0, 0, 0, 0, 3], [8, 0])), "another's");
    assert!(!stack.link_header_fits(interface, &header([0xff; 6], [8, 0])), "to all");
    assert!(!stack.link_header_fits(interface, &header(own.0, [8, 6])), "ARP");
    assert!(!stack.link_header_fits(interface, &[]), "nothing");
}
