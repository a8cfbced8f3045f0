//! What the worker tells a device of which noise is wanted, and when.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod common;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{Duration, Instant};
use channel::app::Channel;
use channel::{Command, State};
use common::{OURS, capabilities};
use device::memory::{self, MemoryDevice};
use device::{Device, DeviceStats, NoiseFilter, Wanted};
use outboard_fep::config::{Network, WorkerConfig};
use outboard_fep::worker::{Identity, Worker};
use wire::arp::{self, Operation};
use wire::ethernet::{self, EtherType, EthernetAddress};
use wire::frame::{Capabilities, ChecksumOut, RxFrame, Segmentation, TxFrame};

/// What a filter was told; `None`: everything is wanted.
#[derive(Default)]
struct Told {
    all: Vec<Option<Wanted>>,
    /// A socket that is not to be bound before the filter knows of its port.
    watched: Option<(Arc<Channel>, u32)>,
    refuses: bool,
}

#[derive(Clone, Default)]
struct Filter(Arc<Mutex<Told>>);

impl Filter {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        self.told().all.len()
    }

    /// What it was told last.
    fn last(&self) -> Wanted {
        self.told().all.last().cloned().flatten().expect("the filter is on")
    }
}

impl NoiseFilter for Filter {
    fn want(&mut self, wanted: &Wanted) -> io::Result<()> {
        let mut told = self.told();
        if told.refuses {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if let Some((channel, socket)) = &told.watched {
            assert!(!channel.record(*socket).state().contains(State::BOUND), "bound before its port passes");
        }
        told.all.push(Some(wanted.clone()));
        Ok(())
    }

    fn want_everything(&mut self) -> io::Result<()> {
        self.told().all.push(None);
        Ok(())
    }
}

/// A device in memory that says that it filters.
struct Filtering(MemoryDevice, Filter);

impl Device for Filtering {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn receive(&mut self, budget: usize, handle: &mut dyn FnMut(&RxFrame<'_>)) -> io::Result<usize> {
        self.0.receive(budget, handle)
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> io::Result<()> {
        self.0.transmit(frame)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }

    fn noise_filter(&self) -> Option<Box<dyn NoiseFilter>> {
        Some(Box::new(self.1.clone()))
    }
}

struct World {
    worker: Worker<Filtering>,
    link: MemoryDevice,
    filter: Filter,
    now: Instant,
}

fn neighbour(last: u8) -> (Ipv4Addr, EthernetAddress) {
    (Ipv4Addr::new(10, 9, 0, last), EthernetAddress([2, 0, 0, 0, 0, last]))
}

impl World {
    fn new() -> Self {
        let (ours, link) = memory::pair(capabilities(2), capabilities(1)).unwrap();
        let filter = Filter::default();
        let network = Network {
            interface: "mem0".into(),
            addresses: vec![format!("{OURS}/24").parse().unwrap()],
            routes: Vec::new(),
            mtu: 1500,
        };
        let now = Instant::from_millis(1_000);
        let device = Filtering(ours, filter.clone());
        let worker = Worker::new(now, device, network, WorkerConfig::default()).unwrap();
        Self { worker, link, filter, now }
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        while self.worker.turn(self.now) {}
    }

    /// Somebody asks for our address.
    fn is_asked_by(&mut self, (address, hardware): (Ipv4Addr, EthernetAddress)) {
        let mut frame = vec![0; ethernet::HEADER_LEN + arp::PACKET_LEN];
        let header = ethernet::Header {
            destination: EthernetAddress::BROADCAST,
            source: hardware,
            ethertype: EtherType::ARP,
        };
        header.emit(&mut frame);
        let packet = arp::Packet {
            operation: Operation::Request,
            sender_hardware: hardware,
            sender_protocol: address,
            target_hardware: EthernetAddress::default(),
            target_protocol: OURS.parse().unwrap(),
        };
        packet.emit(&mut frame[ethernet::HEADER_LEN..]);
        let frame = TxFrame {
            headers: &frame,
            payload: [&[], &[]],
            checksum: ChecksumOut::Complete,
            segmentation: Segmentation::None,
        };
        self.link.transmit(&frame).unwrap();
        self.pass(Duration::from_millis(1));
    }

    fn app(&mut self) -> Arc<Channel> {
        let (half, channel) =
            channel::pair_within(&self.worker.channel_limits(), self.worker.memory()).unwrap();
        self.worker.add_local(half, Identity { pid: 1, uid: 0, name: "test".into() }).unwrap();
        channel
    }

    /// Binds a datagram socket at all addresses, and looks at the filter when its owner hears of it.
    fn binds(&mut self, app: &Arc<Channel>, port: u16) -> u32 {
        let socket = app.new_socket().unwrap();
        self.filter.told().watched = Some((app.clone(), socket));
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        app.post(&Command::OpenUdp { socket, sequence: 0 }).unwrap();
        app.post(&Command::Bind { socket, sequence: 0, local }).unwrap();
        self.pass(Duration::from_micros(1));
        assert!(app.record(socket).state().contains(State::BOUND));
        self.filter.told().watched = None;
        socket
    }
}

#[test]
fn a_port_passes_before_its_bind_is_answered_and_others_no_more_a_second_later() {
    let mut world = World::new();
    world.pass(Duration::ZERO);
    assert_eq!(world.filter.last().broadcast_ports, Some(Vec::new()));
    let app = world.app();
    let socket = world.binds(&app, 67);
    assert_eq!(world.filter.last().broadcast_ports, None, "more than that port passes for a while");
    let before = world.filter.count();
    world.binds(&app, 68);
    assert_eq!(world.filter.count(), before, "nothing more is to be said");
    world.pass(Duration::from_secs(2));
    assert_eq!(world.filter.last().broadcast_ports, Some(vec![67, 68]));
    app.post(&Command::Close { socket }).unwrap();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.filter.last().broadcast_ports, Some(vec![68]));
    let settled = world.filter.count();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.filter.count(), settled, "nothing has changed");
}

#[test]
fn news_of_every_neighbour_passes_at_once() {
    let mut world = World::new();
    world.pass(Duration::ZERO);
    assert_eq!(world.filter.last().neighbours, Some(Vec::new()));
    world.is_asked_by(neighbour(8));
    assert_eq!(world.filter.last().neighbours, None, "all, until the filter may be told again");
    world.is_asked_by(neighbour(9));
    world.pass(Duration::from_secs(2));
    let known = [8, 9].map(neighbour).map(|(address, hardware)| (address, Some(hardware)));
    assert_eq!(world.filter.last().neighbours, Some(known.into()));
    for last in 20..100 {
        world.is_asked_by(neighbour(last));
    }
    world.pass(Duration::from_secs(2));
    assert_eq!(world.filter.last().neighbours, None, "too many to be named");
    assert!(world.filter.count() < 8, "a storm is not a reason to tell the filter again and again");
}

#[test]
fn a_filter_that_refuses_is_taken_away() {
    let mut world = World::new();
    world.pass(Duration::ZERO);
    world.filter.told().refuses = true;
    world.is_asked_by(neighbour(8));
    assert_eq!(world.filter.told().all.last(), Some(&None));
}
