//! What the stack's operations cost, in pieces that can be counted one by one.
//!
//! ```text
//! cargo xtask instructions                                   # counts them with callgrind and compares with the record
//! cargo bench -p outboard-stack --bench cost -- connections  # a table: time beside 10, 1,000 and 100,000 connections
//! ```
//!
//! `stream CHUNK MTU` carries one stream, of which the application writes and reads CHUNK bytes at a time; `handed` does so over
//! a link that hands every frame over while it is sent; `churn` opens and
//! closes connections; `beside COUNT` sends two segments on one connection after the other of so many, the second of them twice;
//! `operation crr|rr|udp_rr|stream HOSTS COUNT` does so many operations of a workload between two hosts, or on one. Each says
//! on standard output how many units its work was. What is counted is named by the functions that it runs through.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod link;
mod operations;

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration as Real, Instant as Clock};

use base::Duration;
use link::{Pair, Transfer};
use outboard_stack::SocketId;

/// The payload of a segment of 1500 bytes with timestamps.
const SEGMENT: u64 = 1448;
/// Segments of a stream.
const STREAM_SEGMENTS: u64 = 20_000;
/// Connections of `churn`.
const CHURN: u64 = 2000;
/// Connections used in a round of `beside`, and its rounds.
const ROUND: usize = 500;
const ROUNDS: usize = 20;
/// Bytes sent on a connection in a round.
const MESSAGE: u64 = 100;
/// Connections to one port of the server.
const PER_PORT: usize = 50_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().ok();
    match words.as_slice() {
        ["stream", chunk, mtu] => {
            let (Some(chunk), Some(mtu)) = (number(chunk), number(mtu)) else { return usage() };
            stream(chunk, mtu as u16);
        }
        ["handed", chunk, mtu] => {
            let (Some(chunk), Some(mtu)) = (number(chunk), number(mtu)) else { return usage() };
            handed(chunk, mtu as u16);
        }
        ["churn"] => churn(),
        ["beside", count] => {
            let Some(count) = number(count) else { return usage() };
            let mut crowd = Crowd::new(count);
            (0..ROUNDS).for_each(|_| crowd.round());
            println!("units {}", ROUNDS * ROUND.min(count));
        }
        ["operation", kind, hosts @ ("1" | "2"), count] => {
            let Some(count) = number(count) else { return usage() };
            if !operations::run(kind, if *hosts == "1" { 1 } else { 2 }, count as u32) {
                return usage();
            }
            println!("units {count}");
        }
        ["connections"] | [] => table(),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: cost [connections | stream CHUNK MTU | handed CHUNK MTU | churn | beside COUNT | operation KIND HOSTS COUNT]"
    );
    ExitCode::from(2)
}

fn stream(chunk: usize, mtu: u16) {
    let mut transfer = Transfer::new(mtu, 64, 256 << 10);
    transfer.chunk = chunk;
    let mut now = transfer.pair.now;
    while transfer.read < STREAM_SEGMENTS * SEGMENT {
        now += Duration::from_micros(20);
        transfer.turn(now);
    }
    println!("units {}", transfer.read / SEGMENT);
}

/// The same over a link that hands each frame over while it is sent.
fn handed(chunk: usize, mtu: u16) {
    let mut transfer = Transfer::handed(mtu, 256 << 10);
    transfer.chunk = chunk;
    let mut now = transfer.pair.now;
    while transfer.read < STREAM_SEGMENTS * SEGMENT {
        now += Duration::from_micros(20);
        transfer.turn_handed(now);
    }
    println!("units {}", transfer.read / SEGMENT);
}

/// Connections one after the other, each opened and closed in order.
fn churn() {
    let mut pair = Pair::new(1500, 64, 64 << 10, 256);
    for _ in 0..CHURN {
        open_and_close(&mut pair);
    }
    println!("units {CHURN}");
}

#[inline(never)]
fn open_and_close(pair: &mut Pair) {
    let (from, to) = pair.connect();
    assert!(pair.client.close(pair.now, from).is_ok(), "it is open");
    pair.carry_forward();
    pair.carry_back();
    assert!(pair.server.close(pair.now, to).is_ok(), "it is open");
    pair.carry_back();
    pair.carry_forward();
    link::client_changes(&mut pair.client);
    link::server_changes(&mut pair.server);
    // TIME-WAIT ends before its records are as many as they may be.
    pair.now += Duration::from_millis(10);
    pair.client.handle_deadlines(pair.now);
    pair.server.handle_deadlines(pair.now);
}

/// Real time of each part of the work.
#[derive(Default)]
struct Parts {
    transmit: Real,
    input: Real,
    timers: Real,
    acknowledge: Real,
    input_of_acks: Real,
}

/// Many established connections.
struct Crowd {
    pair: Pair,
    ends: Vec<(SocketId, SocketId)>,
    sent: u64,
    next: usize,
    parts: Parts,
}

impl Crowd {
    fn new(count: usize) -> Self {
        let mut pair = Pair::new(1500, ROUND + 64, 64 << 10, 256);
        let mut ends = Vec::with_capacity(count);
        for first in (0..count).step_by(PER_PORT) {
            let port = 1000 + (first / PER_PORT) as u16;
            let listener = Pair::listen(&mut pair.server, port, 256);
            for _ in first..count.min(first + PER_PORT) {
                let from = pair.connect_to(port);
                pair.now += Duration::from_micros(10);
                pair.carry_uncounted();
                pair.carry_uncounted();
                ends.push((from, pair.server.tcp_accept(listener).expect("nothing is lost on this link")));
            }
            while pair.client.poll_changed().is_some() {}
            while pair.server.poll_changed().is_some() {}
        }
        // Timers of the handshakes that nobody cancelled have gone by.
        pair.now += Duration::from_secs(10);
        pair.carry_uncounted();
        Self { pair, ends, sent: 0, next: 0, parts: Parts::default() }
    }

    /// A message on each of some connections, and another one, which is lost and sent again by a timer.
    fn round(&mut self) {
        let count = ROUND.min(self.ends.len());
        if self.next == 0 {
            self.sent += 2 * MESSAGE;
        }
        let used = self.next..self.next + count;
        self.next = (self.next + count) % (self.ends.len() - self.ends.len() % count);
        self.queue(used.clone(), self.sent - MESSAGE);
        timed(&mut self.parts.transmit, || transmit_all(&mut self.pair));
        self.deliver(used.clone(), self.sent - MESSAGE);
        self.queue(used.clone(), self.sent);
        transmit_all(&mut self.pair);
        while !self.pair.forward.is_empty() {
            self.pair.forward.pop();
        }
        let Pair { now, client, .. } = &mut self.pair;
        *now += Duration::from_secs(3);
        timed(&mut self.parts.timers, || link::client_deadlines(*now, client));
        transmit_all(&mut self.pair);
        let timed_so_far = (self.parts.input, self.parts.acknowledge, self.parts.input_of_acks);
        self.deliver(used, self.sent);
        (self.parts.input, self.parts.acknowledge, self.parts.input_of_acks) = timed_so_far;
    }

    fn queue(&mut self, used: Range<usize>, queued: u64) {
        self.pair.now += Duration::from_millis(1);
        for (from, _) in &self.ends[used] {
            if let Some((connection, stream)) = self.pair.client.tcp_and_stream(*from) {
                stream.release(connection.acked_to());
                stream.queue(MESSAGE as usize);
            }
            link::client_queued(&mut self.pair.client, *from, queued);
        }
    }

    /// What is on the way arrives, is read and acknowledged.
    fn deliver(&mut self, used: Range<usize>, sent: u64) {
        let Self { pair, ends, parts, .. } = self;
        timed(&mut parts.input, || {
            link::server_input(pair.now, &mut pair.server, pair.interface, &mut pair.forward);
        });
        link::server_changes(&mut pair.server);
        for (_, to) in &ends[used.clone()] {
            if let Some((_, stream)) = pair.server.tcp_and_stream(*to) {
                stream.consume(sent);
            }
            link::server_consumed(pair.now, &mut pair.server, *to, sent);
        }
        pair.now += Duration::from_millis(50);
        link::server_deadlines(pair.now, &mut pair.server);
        timed(&mut parts.acknowledge, || {
            while pair.server.wants_transmit() {
                link::server_output(pair.now, &mut pair.server, &mut pair.back);
            }
        });
        timed(&mut parts.input_of_acks, || {
            link::client_input(pair.now, &mut pair.client, pair.interface, &mut pair.back);
        });
        link::client_changes(&mut pair.client);
        let (first, _) = ends[used.start];
        let acked = pair.client.tcp(first).map(tcp::Connection::acked_to);
        assert_eq!(acked, Some(sent), "what was sent is acknowledged");
    }
}

fn transmit_all(pair: &mut Pair) {
    while pair.client.wants_transmit() {
        link::client_output(pair.now, &mut pair.client, &mut pair.forward);
    }
}

fn timed(part: &mut Real, act: impl FnOnce()) {
    let start = Clock::now();
    act();
    *part += start.elapsed();
}

fn table() {
    println!("ns for each of {} operations, the connections used in turn", ROUNDS * ROUND);
    println!();
    println!(
        "| connections | segment out | segment in | timer expired | acknowledgement out | acknowledgement in |"
    );
    println!("|---|---|---|---|---|---|");
    for count in [10, 1000, 100_000] {
        let mut crowd = Crowd::new(count);
        // As many operations as with more connections.
        let rounds = ROUNDS * ROUND / ROUND.min(count);
        (0..rounds).for_each(|_| crowd.round());
        crowd.parts = Parts::default();
        (0..rounds).for_each(|_| crowd.round());
        let Parts { transmit, input, timers, acknowledge, input_of_acks } = crowd.parts;
        let each = |part: Real| part.as_nanos() / (ROUNDS * ROUND) as u128;
        println!(
            "| {count} | {} | {} | {} | {} | {} |",
            each(transmit),
            each(input),
            each(timers),
            each(acknowledge),
            each(input_of_acks)
        );
    }
}
