//! One stream between two stacks in one thread, over a link in memory: Outboard, and smoltcp beside it.
//!
//! `cargo bench -p outboard-stack --bench beside_smoltcp -- [--trials N] [--bytes N] [--buffer N]… [--mtu N] [--json]`
//!
//! Both stacks get the same link, the same buffer sizes and the same applications, which write the stream and read every
//! byte in the buffers, and whose sums must agree; both compute and verify all checksums in software. smoltcp runs as it is fastest: without
//! congestion control, delayed acknowledgements as by default, without Nagle's algorithm. Trials alternate. Exits with 1
//! when the median of Outboard is below twice that of smoltcp at one of the MTUs.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod link;

use std::process::ExitCode;
use std::time::Instant as Clock;

use link::{Link, Pattern};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use wire::checksum::Sum;

/// MTUs, and how many frames the link holds at each.
const MTUS: [(u16, usize); 2] = [(1500, 64), (65_535, 4)];
/// What is demanded.
const TARGET: f64 = 2.0;

/// A stream that goes on by itself.
trait Stream {
    /// Everything once, at a time since the start.
    fn turn(&mut self, nanos: u64);
    /// Bytes that the receiving application has read.
    fn read(&self) -> u64;
    /// Whether they were the stream's.
    fn is_right(&self) -> bool;
}

impl Stream for link::Transfer {
    fn turn(&mut self, nanos: u64) {
        Self::turn(self, base::Instant::from_nanos(2_000_000_000 + nanos));
    }

    fn read(&self) -> u64 {
        self.read
    }

    fn is_right(&self) -> bool {
        self.read_sum.fold() == self.pattern.sum_to(self.read)
    }
}

/// An end of the link, for smoltcp.
struct End<'a> {
    inbound: &'a mut Link,
    outbound: &'a mut Link,
    mtu: usize,
}

struct Inbound<'a>(&'a mut Link);
struct Outbound<'a>(&'a mut Link);

impl RxToken for Inbound<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        let result = take(self.0.front().unwrap_or_default());
        self.0.pop();
        result
    }
}

impl TxToken for Outbound<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        fill(self.0.push(len))
    }
}

impl Device for End<'_> {
    type RxToken<'a>
        = Inbound<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Outbound<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Inbound<'_>, Outbound<'_>)> {
        let ready = !self.inbound.is_empty() && self.outbound.has_room();
        ready.then_some((Inbound(self.inbound), Outbound(self.outbound)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Outbound<'_>> {
        self.outbound.has_room().then_some(Outbound(self.outbound))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        // The default asks for all checksums in both directions.
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

/// One of smoltcp's hosts.
struct Host {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Host {
    fn new(number: u8, buffer: usize, device: &mut End<'_>) -> Self {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = number.into();
        let mut interface = Interface::new(config, device, smoltcp::time::Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let address = IpCidr::new(IpAddress::v4(10, 0, 0, number), 24);
            assert!(addresses.push(address).is_ok(), "there is room for one address");
        });
        let memory = || SocketBuffer::new(vec![0; buffer]);
        let mut socket = Socket::new(memory(), memory());
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Self { interface, sockets, socket }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

struct Smoltcp {
    client: Host,
    server: Host,
    forward: Link,
    back: Link,
    mtu: usize,
    pattern: Pattern,
    queued: u64,
    read: u64,
    read_sum: Sum,
}

impl Smoltcp {
    fn new(mtu: u16, frames: usize, buffer: usize) -> Self {
        let mtu = usize::from(mtu);
        let (mut forward, mut back) = (Link::new(frames, mtu), Link::new(frames, mtu));
        let mut device = End { inbound: &mut forward, outbound: &mut back, mtu };
        let mut client = Host::new(1, buffer, &mut device);
        let mut server = Host::new(2, buffer, &mut device);
        let context = client.interface.context();
        let to = (IpAddress::v4(10, 0, 0, 2), 80);
        let connected = client.sockets.get_mut::<Socket<'_>>(client.socket).connect(context, to, 50_000);
        assert!(connected.is_ok() && server.socket().listen(80).is_ok(), "the ports are free");
        Self {
            client,
            server,
            forward,
            back,
            mtu,
            pattern: Pattern::new(),
            queued: 0,
            read: 0,
            read_sum: Sum::ZERO,
        }
    }

    fn poll_client(&mut self, now: smoltcp::time::Instant) {
        let Self { client, forward, back, mtu, .. } = self;
        let mut device = End { inbound: back, outbound: forward, mtu: *mtu };
        client.interface.poll(now, &mut device, &mut client.sockets);
    }

    fn poll_server(&mut self, now: smoltcp::time::Instant) {
        let Self { server, forward, back, mtu, .. } = self;
        let mut device = End { inbound: forward, outbound: back, mtu: *mtu };
        server.interface.poll(now, &mut device, &mut server.sockets);
    }
}

impl Stream for Smoltcp {
    fn turn(&mut self, nanos: u64) {
        let now = smoltcp::time::Instant::from_micros((nanos / 1000) as i64 + 2_000_000);
        let Self { client, pattern, queued, .. } = self;
        let socket = client.socket();
        // Twice, where the ring wraps; at most what the other stack's application writes in a turn.
        let mut left = link::CHUNK;
        while socket.can_send() && left > 0 {
            let written = socket.send(|room| {
                let len = room.len().min(left);
                pattern.write(*queued, &mut room[..len]);
                (len, len)
            });
            let written = written.unwrap_or(0);
            *queued += written as u64;
            left -= written;
        }
        self.poll_client(now);
        self.poll_server(now);
        let Self { server, read, read_sum, .. } = self;
        let socket = server.socket();
        while socket.can_recv() {
            let part = socket.recv(|bytes| {
                *read_sum = read_sum.add(bytes);
                (bytes.len(), bytes.len())
            });
            *read += part.unwrap_or(0) as u64;
        }
    }

    fn read(&self) -> u64 {
        self.read
    }

    fn is_right(&self) -> bool {
        self.read_sum.fold() == self.pattern.sum_to(self.read)
    }
}

/// Gbit/s of a stream over `bytes`, after as much again of warming up.
fn measure(stream: &mut impl Stream, bytes: u64) -> f64 {
    let start = Clock::now();
    let mut now = || start.elapsed().as_nanos() as u64;
    let run_to = |stream: &mut dyn Stream, end: u64, now: &mut dyn FnMut() -> u64| {
        let mut idle = 0;
        while stream.read() < end {
            let before = stream.read();
            stream.turn(now());
            idle = if stream.read() == before { idle + 1 } else { 0 };
            assert!(idle < 10_000_000, "the stream stands still at {before}");
        }
    };
    run_to(stream, bytes / 4, &mut now);
    let (from, before) = (now(), stream.read());
    run_to(stream, before + bytes, &mut now);
    let rate = (stream.read() - before) as f64 * 8.0 / (now() - from) as f64;
    assert!(stream.is_right(), "the bytes that were sent");
    rate
}

struct Arguments {
    trials: usize,
    bytes: u64,
    buffers: Vec<usize>,
    mtu: Option<u16>,
    json: bool,
}

fn arguments() -> Option<Arguments> {
    let mut arguments = Arguments { trials: 5, bytes: 1 << 30, buffers: Vec::new(), mtu: None, json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--trials" => arguments.trials = words.next()?.parse().ok().filter(|trials| *trials > 0)?,
            "--bytes" => arguments.bytes = words.next()?.parse().ok()?,
            "--buffer" => arguments.buffers.push(words.next()?.parse().ok()?),
            "--mtu" => arguments.mtu = Some(words.next()?.parse().ok()?),
            "--json" => arguments.json = true,
            // Cargo says so to every benchmark.
            "--bench" => {}
            _ => return None,
        }
    }
    if arguments.buffers.is_empty() {
        arguments.buffers = vec![256 << 10];
    }
    Some(arguments)
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: beside_smoltcp [--trials N] [--bytes N] [--buffer N]… [--mtu N] [--json]");
        return ExitCode::from(2);
    };
    let (mut rows, mut reached) = (Vec::new(), true);
    if !arguments.json {
        println!(
            "Gbit/s, medians of {} trials of {} bytes (least to most)",
            arguments.trials, arguments.bytes
        );
        println!();
        println!("| MTU | buffers | Outboard | smoltcp | ratio |");
        println!("|---|---|---|---|---|");
    }
    for (mtu, frames) in MTUS.into_iter().filter(|(mtu, _)| arguments.mtu.is_none_or(|only| only == *mtu)) {
        for &buffer in &arguments.buffers {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..arguments.trials {
                ours.push(measure(&mut link::Transfer::new(mtu, frames, buffer), arguments.bytes));
                theirs.push(measure(&mut Smoltcp::new(mtu, frames, buffer), arguments.bytes));
            }
            let (our_median, their_median) = (median(&mut ours), median(&mut theirs));
            let ratio = our_median / their_median;
            reached &= ratio >= TARGET;
            if arguments.json {
                rows.push(format!(
                    "{{\"mtu\":{mtu},\"buffer\":{buffer},\"outboard_gbit\":{ours:?},\"smoltcp_gbit\":{theirs:?},\"ratio\":{ratio:.3}}}"
                ));
            } else {
                println!(
                    "| {mtu} | {buffer} | {our_median:.2} ({:.2} to {:.2}) | {their_median:.2} ({:.2} to {:.2}) | {ratio:.2} |",
                    ours[0],
                    ours[ours.len() - 1],
                    theirs[0],
                    theirs[theirs.len() - 1],
                );
            }
        }
    }
    if arguments.json {
        println!("{{\"target\":{TARGET},\"reached\":{reached},\"rows\":[{}]}}", rows.join(","));
    }
    if reached { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
