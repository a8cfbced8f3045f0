//! The operations of `outboard bench`'s workloads, from the call that begins one to the last byte that is consumed, between
//! two hosts across a link or between two sockets of one host.
//!
//! The applications hold no bytes: what they queue is zeros that stand there already, and what arrives is placed over what
//! came before. So what is counted is the stack's (and the link's copy), not the making and reading of data.

use std::cell::RefCell;
use std::net::SocketAddr;

use base::{Duration, Instant};
use outboard_stack as stack;
use stack::{BufferFamily, DatagramBuffer, DatagramMeta, Full, InterfaceId, SocketId, SocketOptions, Stack};
use tcp::{NoMemory, ReceiveBuffer, SendBuffer};
use wire::checksum::Sum;
use wire::frame::RxFrame;

use crate::link::{Link, host};

const PORT: u16 = 80;
const MTU: u16 = 1500;
/// Of a window, and what a sender keeps queued.
const WINDOW: usize = 256 << 10;
/// Between two looks at the stacks.
const TURN: Duration = Duration::from_micros(5);
/// Between two transactions, so that the records of closed connections go as fast as they come.
const PAUSE: Duration = Duration::from_millis(10);
/// Operations before counting begins.
const WARM_UP: u32 = 20;
/// Turns after which an operation that is not done never will be.
const MOST_TURNS: u32 = 1_000_000;

static ZEROS: [u8; 2 * WINDOW] = [0; 2 * WINDOW];

thread_local! {
    /// Where everything that arrives is placed.
    static PLACE: RefCell<Vec<u8>> = RefCell::new(vec![0; 2 * WINDOW]);
}

/// Buffers that hold nothing.
struct Nowhere;

struct NoBytes;

/// A datagram to send, and the last one received: their lengths.
#[derive(Default)]
struct Lengths {
    to_send: Option<(DatagramMeta, usize)>,
    received: Option<(DatagramMeta, usize)>,
}

impl BufferFamily for Nowhere {
    type Stream = NoBytes;
    type Datagrams = Lengths;
    type Owner = ();

    fn stream(&(): &()) -> NoBytes {
        NoBytes
    }
}

impl SendBuffer for NoBytes {
    fn peek(&self, _: u64, len: usize) -> [&[u8]; 2] {
        [&ZEROS[..len], &[]]
    }
}

impl ReceiveBuffer for NoBytes {
    fn place(&mut self, _: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        PLACE.with_borrow_mut(|place| place[..bytes.len()].copy_from_slice(bytes));
        Ok(())
    }

    fn place_verified(&mut self, _: u64, bytes: [&[u8]; 2], sum: Sum) -> Result<bool, NoMemory> {
        Ok(PLACE.with_borrow_mut(|place| sum.copy_across([place, &mut []], bytes).finish() == 0))
    }
}

impl DatagramBuffer for Lengths {
    fn push(&mut self, _: Instant, meta: &DatagramMeta, payload: &[u8]) -> Result<(), Full> {
        PLACE.with_borrow_mut(|place| place[..payload.len()].copy_from_slice(payload));
        self.received = Some((*meta, payload.len()));
        Ok(())
    }

    fn front(&mut self) -> Option<(DatagramMeta, [&[u8]; 2])> {
        self.to_send.map(|(meta, len)| (meta, [&ZEROS[..len], &[][..]]))
    }

    fn pop(&mut self) {
        self.to_send = None;
    }
}

/// One host or two; the client is the first, the server the last.
struct World {
    now: Instant,
    hosts: Vec<Stack<Nowhere>>,
    interface: InterfaceId,
    link: Link,
}

/// An end of a connection: its host and its socket.
type End = (usize, SocketId);

/// What is done again and again.
enum Work {
    /// Connect, 64 B, 8 KiB back, disconnect; the server's listener.
    Transaction(SocketId),
    /// A request and its answer on a connection, of so many bytes, and how many of either have gone already.
    Exchange { ends: [End; 2], sizes: [u64; 2], moved: [u64; 2] },
    /// 200 B and 1000 B back, by datagrams.
    Datagrams([End; 2]),
}

/// Does `count` operations of a kind between so many hosts. `false`: there is no such kind.
pub(crate) fn run(kind: &str, hosts: usize, count: u32) -> bool {
    let mut world = World::new(hosts);
    let mut work = match kind {
        "crr" => Work::Transaction(world.listen()),
        "rr" => world.exchange([1, 1]),
        "stream" => world.exchange([1, 20_000_000]),
        "udp_rr" => world.datagrams(),
        _ => return false,
    };
    for _ in 0..WARM_UP.min(count) {
        work.run(&mut world);
    }
    for _ in 0..count {
        counted_operation(&mut work, &mut world);
    }
    true
}

/// Never inlined, so that an instruction counter can tell it from what came before.
#[inline(never)]
fn counted_operation(work: &mut Work, world: &mut World) {
    work.run(world);
}

impl Work {
    fn run(&mut self, world: &mut World) {
        match self {
            Self::Transaction(listener) => {
                let [client, server] = world.connect(*listener);
                world.transfer(client, server, &mut 0, 64);
                world.transfer(server, client, &mut 0, 8192);
                world.close(client);
                world.close(server);
                world.now += PAUSE;
                world.turn();
            }
            Self::Exchange { ends: [client, server], sizes, moved } => {
                world.transfer(*client, *server, &mut moved[0], sizes[0]);
                world.transfer(*server, *client, &mut moved[1], sizes[1]);
            }
            Self::Datagrams([client, server]) => {
                let asked = world.datagram(*client, *server, at(*server, PORT), 200);
                world.datagram(*server, *client, asked, 1000);
            }
        }
    }
}

/// Where a host is reached.
fn at((host, _): End, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], port))
}

impl World {
    fn new(hosts: usize) -> Self {
        let made: Vec<_> = (1..=hosts).map(|number| host(number as u8, MTU, WINDOW, true)).collect();
        let interface = made[0].1;
        let hosts = made.into_iter().map(|(stack, _)| stack).collect();
        Self { now: Instant::from_millis(1000), hosts, interface, link: Link::new(64, MTU.into()) }
    }

    fn server(&self) -> usize {
        self.hosts.len() - 1
    }

    fn server_address(&self) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, self.hosts.len() as u8], PORT))
    }

    fn listen(&mut self) -> SocketId {
        let (address, server) = (self.server_address(), self.server());
        self.hosts[server].tcp_listen(address, 128, (), &SocketOptions::default()).expect("the port is free")
    }

    /// Both hosts once: what is due, what goes out, and what comes of it.
    fn turn(&mut self) {
        self.now += TURN;
        let Self { now, hosts, interface, link } = self;
        for from in 0..hosts.len() {
            let to = hosts.len() - 1 - from;
            while hosts[from].deadline().is_some_and(|at| at <= *now) {
                hosts[from].handle_deadlines(*now);
            }
            loop {
                hosts[from].poll_transmit(*now, link);
                let mut batch = hosts[to].begin_batch(*now);
                while let Some(bytes) = link.front() {
                    batch.handle_frame(*interface, &RxFrame::plain(bytes));
                    link.pop();
                }
                drop(batch);
                if !hosts[from].wants_transmit() {
                    break;
                }
            }
            while hosts[from].poll_changed().is_some() {}
        }
    }

    /// Turns until there is what is waited for.
    fn wait<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..MOST_TURNS {
            if let Some(found) = look(self) {
                return found;
            }
            self.turn();
        }
        unreachable!("nothing is lost on this link")
    }

    fn connect(&mut self, listener: SocketId) -> [End; 2] {
        let (address, server) = (self.server_address(), self.server());
        let client = self.hosts[0]
            .tcp_connect(self.now, None, address, NoBytes, &SocketOptions::default())
            .expect("there is a port left");
        let accepted = self.wait(|world| world.hosts[server].tcp_accept(listener));
        [(0, client), (server, accepted)]
    }

    fn exchange(&mut self, sizes: [u64; 2]) -> Work {
        let listener = self.listen();
        Work::Exchange { ends: self.connect(listener), sizes, moved: [0, 0] }
    }

    fn datagrams(&mut self) -> Work {
        let (address, server) = (self.server_address(), self.server());
        let any = SocketAddr::from(([10, 0, 0, 1], 0));
        let mut bind = |host: usize, local| {
            let options = SocketOptions::default();
            (host, self.hosts[host].udp_bind(local, Lengths::default(), &options).expect("the port is free"))
        };
        Work::Datagrams([bind(0, any), bind(server, address)])
    }

    /// Moves `count` bytes from one end to the other, and counts on in `moved`, the bytes before them.
    fn transfer(&mut self, from: End, to: End, moved: &mut u64, count: u64) {
        let end = *moved + count;
        let mut queued = *moved;
        self.wait(|world| {
            let sender = &mut world.hosts[from.0];
            let acked = sender.tcp(from.1).map(tcp::Connection::acked_to)?;
            let wanted = end.min(acked + WINDOW as u64);
            if wanted > queued {
                queued = wanted;
                sender.tcp_send(from.1, queued);
            }
            let receiver = &mut world.hosts[to.0];
            let received = receiver.tcp(to.1).map(tcp::Connection::received_to)?;
            if received > *moved {
                *moved = received;
                receiver.tcp_consumed(world.now, to.1, received);
            }
            (*moved == end).then_some(())
        });
    }

    /// Sends a datagram and waits until it is there; says where from.
    fn datagram(&mut self, from: End, to: End, remote: SocketAddr, len: usize) -> SocketAddr {
        let local = SocketAddr::from(([0, 0, 0, 0], 0));
        let meta = DatagramMeta { remote, local, ttl: 0, tos: 0, segment: 0 };
        let sender = &mut self.hosts[from.0];
        sender.datagrams(from.1).expect("it is open").to_send = Some((meta, len));
        sender.udp_send(from.1).expect("it is open");
        let (meta, received) = self.wait(|world| world.hosts[to.0].datagrams(to.1)?.received.take());
        assert_eq!(received, len);
        meta.remote
    }

    fn close(&mut self, (host, socket): End) {
        self.hosts[host].close(self.now, socket).expect("it is open");
        self.turn();
    }
}
