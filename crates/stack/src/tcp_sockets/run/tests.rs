//! A host that sees runs against one for which something stands between any two packets, so that there are none.

use base::{Duration, Instant, Rng, SeededRng};
use wire::cut::cut;
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, Medium, RxFrame, TxFrame};

use crate::{
    ConflictDetection, FrameSink, HeapBuffers, HeapStream, InterfaceConfig, InterfaceId, SinkFull, SocketId,
    SocketOptions, Stack, StackConfig,
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
        Self { stack, interface, connection: None, read: Vec::new(), nothings: 0, continued: 0 }
    }

    fn take(&mut self, now: Instant, frame: &[u8], apart: bool) {
        if apart {
            self.nothings += 1;
            self.stack.handle_frame(now, self.interface, &RxFrame::plain(&NOTHING));
            assert!(self.stack.run.is_none());
        }
        let before = self.stack.run.as_ref().map(|run| run.next.seq);
        self.stack.handle_frame(now, self.interface, &RxFrame::plain(frame));
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
        match rng.below(6) {
            0 => frames[index][rng.below(length as u64) as usize] ^= 1 << rng.below(8),
            1 => frames[index].truncate(rng.below(length as u64) as usize),
            2 => frames[index].extend_from_slice(&[0; 3]),
            3 => drop(frames.remove(index)),
            4 => frames.insert(index, frames[index].clone()),
            _ => frames.swap(index, index / 2),
        }
    }
}

fn compare(seed: u64, one_of: u64) -> u64 {
    let mut rng = SeededRng::new(seed);
    let mut client = Host::new(1);
    let mut servers = [Host::new(2), Host::new(2)];
    let options = SocketOptions::default();
    let to = "10.0.0.2:80".parse().unwrap();
    let listeners = servers.each_mut().map(|server| server.stack.tcp_listen(to, 1, (), &options).unwrap());
    let mut now = Instant::from_millis(1000);
    let id = client.stack.tcp_connect(now, None, to, HeapStream::default(), &options).unwrap();
    let sent: Vec<u8> = (0..300_000usize).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
    let queued = client.stack.stream(id).unwrap().write(&sent);
    client.stack.tcp_send(id, queued);
    while servers[0].read.len() < sent.len() {
        now += Duration::from_millis(1);
        assert!(now < Instant::from_millis(900_000), "{} bytes arrived", servers[0].read.len());
        client.stack.handle_deadlines(now);
        let mut frames = client.output(now);
        disturb(&mut rng, &mut frames, one_of);
        let reads = rng.below(3) > 0;
        let mut outputs = Vec::new();
        for (number, server) in servers.iter_mut().enumerate() {
            server.stack.handle_deadlines(now);
            for frame in &frames {
                server.take(now, frame, number == 1);
            }
            server.connection = server.connection.or_else(|| server.stack.tcp_accept(listeners[number]));
            if reads {
                server.consume(now);
            }
            outputs.push(server.output(now));
        }
        assert_eq!(outputs[0], outputs[1]);
        assert_eq!(servers[0].picture(now), servers[1].picture(now));
        for frame in &outputs[0] {
            client.take(now, frame, false);
        }
        let (connection, stream) = client.stack.tcp_and_stream(id).unwrap();
        stream.release(connection.acked_to());
    }
    assert!(servers.iter().all(|server| server.read == sent), "the bytes that were sent");
    assert_eq!(servers[1].continued, 0);
    servers[0].continued
}

#[test]
fn a_run_is_taken_as_its_segments_are_one_by_one() {
    let undisturbed = compare(1, u64::MAX);
    assert!(undisturbed > 100, "{undisturbed} of some 200 segments continued a run");
    for seed in 2..30 {
        compare(seed, 4 + seed);
    }
}
