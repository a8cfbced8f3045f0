//! The operations of the workloads through the bare stack, to count instructions with: `cargo xtask instructions`.
//!
//! `operations crr|rr|stream COUNT`: client and server on one stack, over its loopback interface, on virtual time and with a
//! fixed seed. Two runs of different COUNT differ by the operations alone. An operation is, as published: `crr` connect,
//! 64 bytes, 8 KiB back, disconnect; `rr` a byte and a byte back; `stream` a byte, and 1 MB back.
#![allow(clippy::expect_used, reason = "a program to measure with; what cannot fail is said")]

use std::net::{IpAddr, SocketAddr};

use base::{Duration, Instant, IpCidr, SeededRng};
use outboard_stack as stack;
use stack::{
    FrameSink, HeapBuffers, InterfaceConfig, InterfaceId, SinkFull, SocketId, SocketOptions, Stack,
    StackConfig,
};
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, Medium, TxFrame};

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const PORT: u16 = 80;
/// Between two looks at the stack.
const TURN: Duration = Duration::from_micros(5);
/// What the sender of a stream keeps queued.
const QUEUED: usize = 256 << 10;
const STREAM: u64 = 1_000_000;

/// Nothing leaves this host.
struct NoDevice;

impl FrameSink for NoDevice {
    fn ready(&self, _: InterfaceId) -> bool {
        false
    }

    fn transmit(&mut self, _: InterfaceId, _: &TxFrame<'_>) -> Result<(), SinkFull> {
        Err(SinkFull)
    }
}

/// One stack with its clock and buffers to read into.
struct Host {
    stack: Stack<HeapBuffers>,
    now: Instant,
    listener: SocketId,
    bytes: Vec<u8>,
    zeros: Vec<u8>,
}

/// Both ends of a connection.
type Pair = [SocketId; 2];

impl Host {
    fn new() -> Self {
        let now = Instant::from_millis(1_000);
        let mut stack = Stack::new(StackConfig::default(), SeededRng::new(1), [1; 16]);
        stack.add_interface(
            now,
            InterfaceConfig {
                name: "none".to_owned(),
                capabilities: Capabilities {
                    medium: Medium::Ip,
                    mtu: 1500,
                    checksum_tx: true,
                    checksum_rx: true,
                    max_segmentation: 65_535,
                    hardware_address: EthernetAddress::default(),
                },
                addresses: vec![IpCidr::new(ADDRESS, 24).expect("a prefix length of IPv4")],
            },
        );
        let listener = stack
            .tcp_listen(SocketAddr::new(ADDRESS, PORT), 128, (), &SocketOptions::default())
            .expect("the port is free");
        Self { stack, now, listener, bytes: Vec::new(), zeros: vec![0; QUEUED] }
    }

    fn turn(&mut self) {
        self.now += TURN;
        if self.stack.deadline().is_some_and(|deadline| deadline <= self.now) {
            self.stack.handle_deadlines(self.now);
        }
        while self.stack.poll_transmit(self.now, &mut NoDevice) > 0 && self.stack.wants_transmit() {}
        while self.stack.poll_changed().is_some() {}
    }

    fn connect(&mut self) -> Pair {
        let client = self
            .stack
            .tcp_connect(
                self.now,
                None,
                SocketAddr::new(ADDRESS, PORT),
                Default::default(),
                &SocketOptions::default(),
            )
            .expect("there is a port left");
        loop {
            self.turn();
            if let Some(server) = self.stack.tcp_accept(self.listener) {
                return [client, server];
            }
        }
    }

    /// Moves so many bytes from one end to the other, and counts on in `moved`, the bytes before them.
    fn transfer(&mut self, from: SocketId, to: SocketId, moved: &mut u64, count: u64) {
        let end = *moved + count;
        let mut queued = *moved;
        while *moved < end {
            let (connection, stream) = self.stack.tcp_and_stream(from).expect("the sender is open");
            stream.release(connection.acked_to());
            let room = QUEUED - stream.unacknowledged().min(QUEUED);
            let next = room.min((end - queued) as usize);
            if next > 0 {
                queued = stream.write(&self.zeros[..next]);
                self.stack.tcp_send(from, queued);
            }
            self.turn();
            let (connection, stream) = self.stack.tcp_and_stream(to).expect("the receiver is open");
            self.bytes.clear();
            *moved = stream.read(connection.received_to(), &mut self.bytes);
            self.stack.tcp_consumed(self.now, to, *moved);
        }
    }

    fn close(&mut self, pair: Pair) {
        for end in pair {
            self.stack.close(self.now, end).expect("it is open");
            self.turn();
        }
        self.turn();
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (work, count) = (arguments.next(), arguments.next().and_then(|count| count.parse::<u32>().ok()));
    let (Some(work), Some(count)) = (work, count) else {
        eprintln!("usage: operations crr|rr|stream COUNT");
        std::process::exit(2);
    };
    let mut host = Host::new();
    if work == "crr" {
        for _ in 0..count {
            let [client, server] = host.connect();
            host.transfer(client, server, &mut 0, 64);
            host.transfer(server, client, &mut 0, 8192);
            host.close([client, server]);
        }
        return;
    }
    let answer = if work == "stream" { STREAM } else { 1 };
    let [client, server] = host.connect();
    let (mut asked, mut answered) = (0, 0);
    for _ in 0..count {
        host.transfer(client, server, &mut asked, 1);
        host.transfer(server, client, &mut answered, answer);
    }
}
