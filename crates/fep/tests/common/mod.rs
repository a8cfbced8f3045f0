//! A worker and a peer on one wire, driven step by step on virtual time; applications are the channel's other half.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test program uses a part of it")]

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::{Duration, Instant, SeededRng};
use channel::app::{Channel, ReceiveStream, SendStream};
use channel::{Command, Event, State};
use device::Device;
use device::memory::{self, MemoryDevice};
use outboard_fep::config::{Limits, Network, WorkerConfig};
use outboard_fep::worker::{Identity, Tables, Worker};
use stack::{
    Change, FrameSink, HeapBuffers, HeapStream, InterfaceConfig, InterfaceId, SinkFull, SocketId,
    SocketOptions, Stack, StackConfig,
};
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, Medium, TxFrame};

/// The stack under test.
pub const OURS: &str = "10.9.0.2";
/// The peer.
pub const PEER: &str = "10.9.0.1";

/// The world of a test.
pub struct World {
    pub worker: Worker<MemoryDevice>,
    pub peer: Stack<HeapBuffers>,
    pub now: Instant,
    peer_device: MemoryDevice,
    peer_interface: InterfaceId,
}

/// An application: its channel and the events that came.
pub struct App {
    pub channel: Arc<Channel>,
    pub events: Vec<Event>,
    /// Its place in the worker's table.
    pub place: u32,
    /// Its segment A and segment F, for those who want to do harm.
    pub segments: [OwnedFd; 2],
}

/// A stream socket of an application.
pub struct Stream {
    pub socket: u32,
    pub send: SendStream,
    pub receive: ReceiveStream,
}

struct PeerSink<'a>(&'a mut MemoryDevice);

impl FrameSink for PeerSink<'_> {
    fn ready(&self, _: InterfaceId) -> bool {
        self.0.is_ready()
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        self.0.transmit(frame).map_err(|_| SinkFull)
    }
}

/// A device with offload, as a TAP is.
pub fn capabilities(last: u8) -> Capabilities {
    Capabilities {
        medium: Medium::Ethernet,
        mtu: 1500,
        checksum_tx: true,
        checksum_rx: true,
        max_segmentation: 65_535,
        hardware_address: EthernetAddress([2, 0, 0, 0, 0, last]),
    }
}

/// A world in which an application is connected to port 80 of the peer, which has accepted.
pub fn connected() -> (World, App, Stream, SocketId) {
    let mut world = World::new();
    let listener = world.peer_listens(80);
    let app = world.app();
    let stream = app.connect(80);
    world.settle();
    let peer = world.peer.tcp_accept(listener).unwrap();
    (world, app, stream, peer)
}

impl World {
    pub fn new() -> Self {
        Self::with_limits(small_limits())
    }

    pub fn with_limits(limits: Limits) -> Self {
        let (ours, theirs) = memory::pair(capabilities(2), capabilities(1)).unwrap();
        let now = Instant::from_millis(1_000);
        let network = Network {
            interface: "mem0".into(),
            addresses: vec![format!("{OURS}/24").parse().unwrap()],
            routes: Vec::new(),
            mtu: 1500,
        };
        let config = WorkerConfig { limits, ..WorkerConfig::default() };
        let worker = Worker::new(now, ours, network, config).unwrap();
        let mut peer = Stack::<HeapBuffers>::new(StackConfig::default(), SeededRng::new(7), [7; 16]);
        let peer_interface = peer.add_interface(
            now,
            InterfaceConfig {
                name: "peer0".into(),
                capabilities: theirs.capabilities(),
                addresses: vec![format!("{PEER}/24").parse().unwrap()],
            },
        );
        Self { worker, peer, now, peer_device: theirs, peer_interface }
    }

    /// A new application.
    pub fn app(&mut self) -> App {
        self.app_of(None)
    }

    /// A new application that another one forks.
    pub fn child(&mut self, parent: &App) -> App {
        self.app_of(Some(parent.place))
    }

    fn app_of(&mut self, parent: Option<u32>) -> App {
        let (half, channel) =
            channel::pair_within(&self.worker.channel_limits(), self.worker.memory()).unwrap();
        let offer = half.offer();
        let segments = [offer.a, offer.f].map(|segment| segment.try_clone_to_owned().unwrap());
        let identity = Identity { pid: 1, uid: 0, name: "test".into() };
        let place = match parent {
            None => self.worker.add_local(half, identity),
            Some(parent) => self.worker.add_local_child(half, identity, parent),
        };
        let place = place.unwrap();
        App { channel, events: Vec::new(), place, segments }
    }

    /// Lets everything that can happen now happen; time does not pass.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let mut busy = self.worker.turn(self.now);
            let Self { peer, peer_device, peer_interface, now, .. } = self;
            busy |= peer_device
                .receive(64, &mut |frame| peer.handle_frame(*now, *peer_interface, frame))
                .unwrap()
                > 0;
            busy |= peer.poll_transmit(*now, &mut PeerSink(peer_device)) > 0;
            if !busy {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Lets time pass, stopping at every deadline on the way.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        self.settle();
        loop {
            let deadlines = [self.worker.deadline(), self.peer.deadline()];
            match deadlines.into_iter().flatten().min() {
                Some(next) if next <= end => self.now = next.max(self.now + Duration::from_micros(1)),
                Some(_) | None => break,
            }
            self.peer.handle_deadlines(self.now);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Lets the time pass in which everything that lingers ends: TIME-WAIT, orphans, ARP.
    pub fn let_linger(&mut self) {
        self.pass(Duration::from_secs(200));
    }

    /// Nothing is left of applications and connections.
    pub fn assert_empty(&self) {
        let tables = self.worker.tables();
        let rest = Tables { timers: 0, ..tables };
        assert_eq!(rest, Tables::default());
        // What is left are the neighbour cache's.
        assert!(tables.timers <= 2, "{tables:?}");
    }

    /// A listener of the peer.
    pub fn peer_listens(&mut self, port: u16) -> SocketId {
        let local = SocketAddr::new(PEER.parse().unwrap(), port);
        self.peer.tcp_listen(local, 64, (), &SocketOptions::default()).unwrap()
    }

    /// A connection that the peer opens.
    pub fn peer_connects(&mut self, port: u16) -> SocketId {
        let remote = SocketAddr::new(OURS.parse().unwrap(), port);
        self.peer
            .tcp_connect(self.now, None, remote, HeapStream::default(), &SocketOptions::default())
            .unwrap()
    }

    /// Sends from the peer.
    pub fn peer_sends(&mut self, id: SocketId, bytes: &[u8]) {
        let queued = self.peer.stream(id).unwrap().write(bytes);
        self.peer.tcp_send(id, queued);
    }

    /// Takes all that the peer has received.
    pub fn peer_reads(&mut self, id: SocketId) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Some((connection, stream)) = self.peer.tcp_and_stream(id) else { return bytes };
        let received = connection.received_to();
        stream.release(connection.acked_to());
        let read = stream.read(received, &mut bytes);
        self.peer.tcp_consumed(self.now, id, read);
        bytes
    }

    /// Forgets what the peer's stack reports of changes, as an owner that looks would.
    pub fn peer_looks(&mut self) -> Vec<Change> {
        std::iter::from_fn(|| self.peer.poll_changed()).collect()
    }
}

impl App {
    /// Posts a command that wants no answer.
    pub fn post(&self, command: Command) {
        self.channel.post(&command).unwrap();
    }

    /// Opens a TCP socket.
    pub fn tcp(&self) -> u32 {
        let socket = self.channel.new_socket().unwrap();
        self.post(Command::OpenTcp { socket, sequence: 0 });
        socket
    }

    /// A listener.
    pub fn listen(&self, port: u16) -> u32 {
        let socket = self.tcp();
        let local = SocketAddr::new("0.0.0.0".parse().unwrap(), port);
        self.post(Command::Bind { socket, sequence: 0, local });
        self.post(Command::Listen { socket, sequence: 0, backlog: 64 });
        socket
    }

    /// A connection attempt to the peer.
    pub fn connect(&self, port: u16) -> Stream {
        let socket = self.tcp();
        let remote = SocketAddr::new(PEER.parse().unwrap(), port);
        self.post(Command::Connect { socket, sequence: 0, remote: Some(remote) });
        self.stream(socket)
    }

    /// Both directions of a socket.
    pub fn stream(&self, socket: u32) -> Stream {
        self.channel.record(socket).set_taken(true);
        Stream {
            socket,
            send: SendStream::new(self.channel.clone(), socket),
            receive: ReceiveStream::new(self.channel.clone(), socket),
        }
    }

    pub fn state(&self, socket: u32) -> State {
        self.channel.record(socket).state()
    }

    /// Takes the events that wait; the new ones.
    pub fn poll(&mut self) -> Vec<Event> {
        let mut new = Vec::new();
        self.channel.poll_events(&mut |event| new.push(event)).unwrap();
        self.events.extend(new.iter().copied());
        new
    }

    /// The connections that were accepted since the last look.
    pub fn accepted(&mut self) -> Vec<u32> {
        let mut sockets = Vec::new();
        for event in self.poll() {
            if let Event::Accepted { listener, socket } = event {
                let accepted = |event: &&Event| matches!(event, Event::Accepted { listener: one, .. } if *one == listener);
                let count = self.events.iter().filter(accepted).count();
                self.channel.record(listener).set_accepted(count as u32);
                sockets.push(socket);
            }
        }
        sockets
    }

    /// The sockets that were released since the last look.
    pub fn released(&mut self) -> Vec<u32> {
        let events = self.poll();
        events
            .iter()
            .filter_map(|event| match event {
                Event::Released { socket } => Some(*socket),
                Event::Ready { .. } | Event::Accepted { .. } => None,
            })
            .collect()
    }
}

impl Stream {
    /// Queues as much as there is room for.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.send.write(&[IoSlice::new(bytes)]).unwrap_or(0)
    }

    /// Takes everything that was received.
    pub fn read(&mut self) -> Vec<u8> {
        let [first, second] = self.receive.slices();
        let bytes = [first, second].concat();
        self.receive.consume(bytes.len()).unwrap();
        bytes
    }

    pub fn close(self, app: &App) {
        app.post(Command::Close { socket: self.socket });
    }
}

/// Limits that keep a test's memory small.
pub fn small_limits() -> Limits {
    Limits { sockets: 64, buffer_bytes: 32 << 20, receive_buffer_max: 1 << 20, ..Limits::default() }
}

/// Bytes that differ at every offset, and between streams.
pub fn pattern(stream: u64, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64)
        .map(|at| (at.wrapping_mul(31).wrapping_add(at >> 8) ^ stream) as u8)
        .collect()
}
