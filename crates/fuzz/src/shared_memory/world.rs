//! A worker, a peer on its wire, an application that behaves and one that does not.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

use base::{Duration, Instant, SeededRng};
use channel::Command;
use channel::app::{Channel, ReceiveStream, SendStream};
use channel::fuzz::Scribbler;
use device::Device;
use device::memory::{self, MemoryDevice};
use fep::config::{Limits, Network, WorkerConfig};
use fep::worker::{Identity, Worker};
use stack::{
    FrameSink, HeapBuffers, HeapStream, InterfaceConfig, InterfaceId, SinkFull, SocketId, SocketOptions,
    Stack, StackConfig,
};
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, Medium, TxFrame};

use crate::input::Input;

const PEER: [u8; 4] = [10, 9, 0, 1];
const OURS: [u8; 4] = [10, 9, 0, 2];
/// Bytes of one step of the well-behaved application, each way.
const STEP: u64 = 3000;

pub(super) struct World {
    worker: Worker<MemoryDevice>,
    peer: Stack<HeapBuffers>,
    now: Instant,
    device: MemoryDevice,
    interface: InterfaceId,
    listener: SocketId,
    /// The peer's end of connections of the hostile application.
    victims: Vec<SocketId>,
    /// Writes into the segment of the hostile application that acts.
    pub(super) hand: Scribbler,
    /// The hostile application that acts.
    hostile: Hostile,
    /// Its parents and children, with their hands.
    others: Vec<(Hostile, Scribbler)>,
    good: Good,
}

/// An application that does not behave.
struct Hostile {
    /// Its place in the worker.
    place: u32,
    /// What keeps its channel.
    channel: Arc<Channel>,
}

/// Most forks in one world.
const MOST_FORKS: usize = 5;

/// The application that behaves.
struct Good {
    _channel: Arc<Channel>,
    send: SendStream,
    receive: ReceiveStream,
    /// The peer's end.
    peer: SocketId,
    /// Bytes that crossed, towards the peer and back.
    crossed: [u64; 2],
}

struct Sink<'a>(&'a mut MemoryDevice);

impl FrameSink for Sink<'_> {
    fn ready(&self, _: InterfaceId) -> bool {
        self.0.is_ready()
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        self.0.transmit(frame).map_err(|_| SinkFull)
    }
}

fn capabilities(last: u8) -> Capabilities {
    Capabilities {
        medium: Medium::Ethernet,
        mtu: 1500,
        checksum_tx: true,
        checksum_rx: true,
        max_segmentation: 65_535,
        hardware_address: EthernetAddress([2, 0, 0, 0, 0, last]),
    }
}

fn bytes(stream: u64, from: u64) -> Vec<u8> {
    (from..from + STEP).map(|at| (at.wrapping_mul(31).wrapping_add(at >> 8) ^ stream) as u8).collect()
}

/// What has to work for there to be a world at all.
fn must<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("the world cannot be made: {error:?}"))
}

impl World {
    pub(super) fn new() -> Self {
        let now = Instant::from_millis(1000);
        let (ours, device) = must(memory::pair(capabilities(2), capabilities(1)));
        let network = Network {
            interface: "mem0".into(),
            addresses: vec![must("10.9.0.2/24".parse())],
            routes: Vec::new(),
            mtu: 1500,
        };
        let limits =
            Limits { sockets: 64, buffer_bytes: 8 << 20, receive_buffer_max: 256 << 10, ..Limits::default() };
        let mut worker =
            must(Worker::new(now, ours, network, WorkerConfig { limits, ..WorkerConfig::default() }));
        let mut peer = Stack::<HeapBuffers>::new(StackConfig::default(), SeededRng::new(7), [7; 16]);
        let config = InterfaceConfig {
            name: "peer0".into(),
            capabilities: device.capabilities(),
            addresses: vec![must("10.9.0.1/24".parse())],
        };
        let interface = peer.add_interface(now, config);
        let options = SocketOptions::default();
        let listener = must(peer.tcp_listen((PEER, 80).into(), 64, (), &options));
        must(peer.udp_bind((PEER, 7).into(), Default::default(), &options));
        let (half, channel) = must(channel::pair_within(&worker.channel_limits(), worker.memory()));
        must(worker.add_local(half, Identity { pid: 1, uid: 0, name: "good".into() }));
        let socket = channel.new_socket().expect("a new channel has sockets");
        must(channel.post(&Command::OpenTcp { socket, sequence: 0 }));
        must(channel.post(&Command::Connect { socket, sequence: 0, remote: Some((PEER, 80).into()) }));
        let good = Good {
            send: SendStream::new(channel.clone(), socket),
            receive: ReceiveStream::new(channel.clone(), socket),
            _channel: channel,
            peer: listener,
            crossed: [0; 2],
        };
        let (half, channel) = must(channel::pair_within(&worker.channel_limits(), worker.memory()));
        let hand = must(Scribbler::new(&half));
        let place = must(worker.add_local(half, Identity { pid: 2, uid: 0, name: "hostile".into() }));
        let (hostile, victims, others) = (Hostile { place, channel }, Vec::new(), Vec::new());
        let mut world =
            Self { worker, peer, now, device, interface, listener, victims, hand, hostile, others, good };
        world.settle();
        world.good.peer = world.peer.tcp_accept(listener).expect("the well-behaved application connects");
        world
    }

    /// Lets everything happen that can happen now.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            let mut busy = self.worker.turn(self.now);
            let Self { peer, device, interface, now, .. } = self;
            let mut take = |frame: &wire::frame::RxFrame<'_>| peer.handle_frame(*now, *interface, frame);
            busy |= must(device.receive(64, &mut take)) > 0;
            busy |= peer.poll_transmit(*now, &mut Sink(device)) > 0;
            while peer.poll_changed().is_some() {}
            if !busy {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        self.settle();
        while let Some(next) = [self.worker.deadline(), self.peer.deadline()]
            .into_iter()
            .flatten()
            .min()
            .filter(|&next| next <= end)
        {
            self.now = next.max(self.now + Duration::from_micros(1));
            self.peer.handle_deadlines(self.now);
            self.settle();
        }
        self.now = self.now.max(end);
        self.settle();
    }

    /// The peer takes what the hostile application connected, writes to it, reads, connects to its listeners.
    pub(super) fn peer_acts(&mut self, input: &mut Input<'_>) {
        self.settle();
        while let Some(id) = self.peer.tcp_accept(self.listener) {
            self.victims.push(id);
        }
        let chosen = self.victims.get(input.below(self.victims.len())).copied();
        match (input.below(4), chosen) {
            (0, _) | (_, None) => {
                let remote: SocketAddr = (OURS, 1000).into();
                let stream = HeapStream::default();
                if self.victims.len() < 20
                    && let Ok(id) =
                        self.peer.tcp_connect(self.now, None, remote, stream, &SocketOptions::default())
                {
                    self.victims.push(id);
                }
            }
            (1, Some(id)) => {
                if let Some(stream) = self.peer.stream(id)
                    && stream.unacknowledged() < 100_000
                {
                    let queued = stream.write(&vec![1; usize::from(input.u16())]);
                    self.peer.tcp_send(id, queued);
                }
            }
            (2, Some(id)) => {
                let _ = self.peer.close(self.now, id);
            }
            (_, Some(id)) => drop(read(&mut self.peer, self.now, id)),
        }
    }

    /// The well-behaved application and the peer exchange some bytes.
    pub(super) fn transfer(&mut self) {
        let [up, down] = self.good.crossed;
        let (there, here) = (bytes(1, up), bytes(2, down));
        assert_eq!(self.good.send.write(&[IoSlice::new(&there)]).ok(), Some(there.len()), "there is room");
        let Some(stream) = self.peer.stream(self.good.peer) else { panic!("the good connection is gone") };
        let queued = stream.write(&here);
        self.peer.tcp_send(self.good.peer, queued);
        let (mut at_peer, mut at_application) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            self.pass(Duration::from_millis(50));
            at_peer.extend(read(&mut self.peer, self.now, self.good.peer));
            let news = self.good.receive.slices().concat();
            assert!(self.good.receive.consume(news.len()).is_ok(), "what was received can be consumed");
            at_application.extend(news);
            if at_peer.len() >= there.len() && at_application.len() >= here.len() {
                break;
            }
        }
        assert!(at_peer == there && at_application == here, "the other application's bytes are intact");
        self.good.crossed = [up + STEP, down + STEP];
    }

    /// The hostile application forks, and its child acts from now on.
    pub(super) fn fork(&mut self) {
        self.settle();
        if self.others.len() == MOST_FORKS || self.hostile.channel.closed().is_some() {
            return;
        }
        let (half, channel) = must(channel::pair_within(&self.worker.channel_limits(), self.worker.memory()));
        let hand = must(Scribbler::new(&half));
        let identity = Identity { pid: 3, uid: 0, name: "child".into() };
        let place = must(self.worker.add_local_child(half, identity, self.hostile.place));
        let parent = std::mem::replace(&mut self.hostile, Hostile { place, channel });
        self.others.push((parent, std::mem::replace(&mut self.hand, hand)));
    }

    /// Another one of the hostile applications acts from now on.
    pub(super) fn change(&mut self) {
        if !self.others.is_empty() {
            self.others.rotate_left(1);
            let (hostile, hand) = &mut self.others[0];
            std::mem::swap(&mut self.hostile, hostile);
            std::mem::swap(&mut self.hand, hand);
        }
    }

    /// The hostile application ends. Nothing is left of it.
    pub(super) fn finish(mut self) {
        self.transfer();
        let others = self.others.iter().map(|(hostile, _)| hostile);
        for hostile in others.chain([&self.hostile]) {
            // Those that were cut off have ended already.
            if hostile.channel.closed().is_none() {
                self.worker.end_application(hostile.place);
            }
        }
        while let Some(id) = self.peer.tcp_accept(self.listener) {
            self.victims.push(id);
        }
        for id in std::mem::take(&mut self.victims) {
            let _ = self.peer.close(self.now, id);
        }
        self.pass(Duration::from_secs(400));
        let tables = self.worker.tables();
        assert_eq!((tables.applications, tables.sockets, tables.time_waits), (1, 1, 0), "{tables:?}");
        assert_eq!(tables.kinship, 2, "the other application's: {tables:?}");
        self.transfer();
    }
}

fn read(peer: &mut Stack<HeapBuffers>, now: Instant, id: SocketId) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some((connection, stream)) = peer.tcp_and_stream(id) {
        let received = connection.received_to();
        stream.release(connection.acked_to());
        let read = stream.read(received, &mut bytes);
        peer.tcp_consumed(now, id, read);
    }
    bytes
}
