//! What connections cost in memory, counted byte by byte: idle ones little, closed ones nothing.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::Duration;
use common::{IF, Incoming, LinkConfig, Offload, Outgoing, World, at, build};
use outboard_stack::{
    Change, FrameSink, InterfaceId, SinkFull, SocketId, SocketOptions, StackConfig, SynCookieMode,
};
use tcp::State;
use wire::frame::{RxFrame, TxFrame};
use wire::tcp::Flags;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the count is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time: the count is the whole process's.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

fn config() -> StackConfig {
    StackConfig { ephemeral_ports: (1024, 65_535), max_backlog: 1 << 16, ..StackConfig::default() }
}

/// Opens `count` connections from host 0 to host 1, over as many ports as it takes.
fn open(world: &mut World, count: usize, servers: &mut Vec<SocketId>, clients: &mut Vec<SocketId>) {
    const PER_PORT: usize = 50_000;
    let mut opened = 0;
    let mut port = 80;
    while opened < count {
        let options = SocketOptions::default();
        let listener = world.stack(1).tcp_listen(at(1, port), 4096, (), &options).unwrap();
        let end = (opened + PER_PORT).min(count);
        while opened < end {
            let batch = (end - opened).min(1000);
            clients.extend((0..batch).map(|_| world.connect(0, at(1, port))));
            opened += batch;
            let ok = world.run_until(Duration::from_secs(60), |world| {
                while let Some(id) = world.stack(1).tcp_accept(listener) {
                    servers.push(id);
                }
                servers.len() == opened
            });
            assert!(ok, "{} of {opened}", servers.len());
            world.hosts.iter_mut().for_each(|host| host.changes.clear());
        }
        port += 1;
    }
}

#[test]
fn idle_connections_cost_less_than_a_kibibyte_each() {
    const COUNT: usize = 100_000;
    let _alone = alone();
    let link = LinkConfig { delay: Duration::from_micros(10), ..LinkConfig::default() };
    let mut world = World::with_config(1, link, config());
    let (mut servers, mut clients) = (Vec::with_capacity(COUNT), Vec::with_capacity(COUNT));
    let before = held();
    open(&mut world, COUNT, &mut servers, &mut clients);
    // Every connection has carried data both ways, and is idle again.
    for (&client, &server) in clients.iter().zip(&servers) {
        for (host, id) in [(0, client), (1, server)] {
            let stack = world.stack(host);
            let queued = stack.stream(id).unwrap().write(&[7; 100]);
            stack.tcp_send(id, queued);
        }
    }
    world.run_for(Duration::from_secs(1));
    for (host, ids) in [(0, &clients), (1, &servers)] {
        for &id in ids {
            let now = world.now;
            let (connection, stream) = world.stack(host).tcp_and_stream(id).unwrap();
            assert_eq!((connection.acked_to(), connection.received_to()), (100, 100));
            stream.release(100);
            stream.consume(100);
            world.stack(host).tcp_consumed(now, id, 100);
        }
    }
    world.run_for(Duration::from_secs(10));
    world.hosts.iter_mut().for_each(|host| host.changes = Vec::new());
    world.flights = Vec::new();
    let cost = (held() - before) / (2 * COUNT);
    println!("an idle connection costs {cost} bytes, of which tcp {}", size_of::<tcp::Connection>());
    assert!(cost < 1024, "{cost} bytes");
}

#[test]
fn ten_thousand_connects_and_closes_leave_nothing_behind() {
    let _alone = alone();
    let mut world = World::with_config(2, LinkConfig::default(), config());
    let listener = world.listen(1, 80);
    let mut after_first = 0;
    for round in 0..100 {
        let mut clients: Vec<_> = (0..100).map(|_| world.connect(0, at(1, 80))).collect();
        let mut servers = Vec::new();
        assert!(world.run_until(Duration::from_secs(10), |world| {
            while let Some(id) = world.stack(1).tcp_accept(listener) {
                servers.push(id);
            }
            servers.len() == clients.len()
        }));
        // In turn: closed by the client, by the server, by a reset, with data.
        let now = world.now;
        if round % 4 == 3 {
            for (&client, &server) in clients.iter().zip(&servers) {
                let mut outgoing = Outgoing::new(1, 1000);
                world.pump(0, client, &mut outgoing);
                let mut incoming = Incoming::new(1);
                world.drain(1, server, &mut incoming);
            }
        }
        for id in clients.drain(..) {
            if round % 4 == 2 {
                world.stack(0).tcp_abort(id);
            }
            world.stack(0).close(now, id).unwrap();
        }
        if round % 4 != 1 {
            world.run_for(Duration::from_millis(10));
        }
        let now = world.now;
        for id in servers {
            world.stack(1).close(now, id).unwrap();
        }
        world.run_for(Duration::from_secs(150));
        for host in 0..2 {
            let released = world.hosts[host].changes.iter();
            let released = released.filter(|change| matches!(change, Change::Released { .. })).count();
            assert_eq!(released, 100, "host {host} round {round}");
            world.hosts[host].changes = Vec::new();
            let stack = world.stack(host);
            assert_eq!((stack.socket_count(), stack.time_wait_count(), stack.timer_count()), (host, 0, 0));
        }
        world.flights = Vec::new();
        if round == 4 {
            after_first = held();
        }
    }
    assert!(held() <= after_first + 16_384, "{after_first} bytes at the start, {} at the end", held());
}

#[test]
fn a_flood_of_syns_is_bounded_in_memory() {
    let _alone = alone();
    for syn_cookies in [SynCookieMode::WhenFull, SynCookieMode::Off] {
        let mut world = World::with_config(3, LinkConfig::default(), StackConfig { syn_cookies, ..config() });
        world.listen(1, 80);
        let before = held();
        for number in 0..50_000u32 {
            let source = SocketAddr::from(([10, 0, 0, 16 + (number & 0x7f) as u8], number as u16 | 1024));
            let frame = build::ethernet(0, 1, &build::tcp(source, at(1, 80), Flags::SYN, number, 0, &[]));
            world.inject(1, frame);
            if number % 100 == 0 {
                world.run_for(Duration::from_millis(10));
            }
        }
        let stats = world.stack(1).stats().clone();
        if syn_cookies == SynCookieMode::Off {
            let dropped = stats.drop_half_open + stats.drop_syn_queue;
            assert!(dropped > 40_000 && stats.drop_half_open > 10_000, "{dropped} {}", stats.drop_half_open);
        } else {
            assert!(
                stats.syn_cookies_sent > 40_000 && stats.drop_half_open == 0,
                "{}",
                stats.syn_cookies_sent
            );
        }
        assert!(held() - before < 2 << 20, "{} bytes", held() - before);
        // Whoever is real still gets through.
        let honest = world.connect(0, at(1, 80));
        let opened = |world: &mut World| world.state(0, honest) == State::Established;
        assert!(world.run_until(Duration::from_secs(5), opened));
    }
}

/// Takes frames into buffers that are there already.
struct Prepared {
    buffers: Vec<Vec<u8>>,
    used: usize,
}

impl FrameSink for Prepared {
    fn ready(&self, _: InterfaceId) -> bool {
        self.used < self.buffers.len()
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        let buffer = &mut self.buffers[self.used];
        buffer.clear();
        buffer.extend_from_slice(frame.headers);
        buffer.extend_from_slice(frame.payload[0]);
        buffer.extend_from_slice(frame.payload[1]);
        self.used += 1;
        Ok(())
    }
}

#[test]
fn no_packet_costs_an_allocation() {
    let _alone = alone();
    let link = LinkConfig { offload: Offload::None, ..LinkConfig::default() };
    let mut world = World::with_config(4, link, config());
    let (client, server) = world.pair(80);
    let buffers = || Prepared { buffers: (0..600).map(|_| Vec::with_capacity(2000)).collect(), used: 0 };
    let mut sinks = [buffers(), buffers()];
    let (mut up, mut incoming) = (Outgoing::new(1, 8_000_000), Incoming::new(1));
    let (mut allocations, mut frames) = (0, 0);
    for round in 0..4000 {
        world.pump(0, client, &mut up);
        world.drain(1, server, &mut incoming);
        if incoming.finished {
            break;
        }
        world.now += Duration::from_micros(100);
        let now = world.now;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for (host, sink) in world.hosts.iter_mut().zip(&mut sinks) {
            host.stack.handle_deadlines(now);
            host.stack.poll_transmit(now, sink);
        }
        let [first, second] = &mut sinks;
        for (to, sink) in [(1, first), (0, second)] {
            for bytes in &sink.buffers[..sink.used] {
                world.hosts[to].stack.handle_frame(now, IF, &RxFrame::plain(bytes));
            }
            frames += sink.used;
            sink.used = 0;
        }
        // The first rounds fill what is kept.
        if round > 20 {
            allocations += ALLOCATIONS.load(Ordering::Relaxed) - before;
        }
    }
    assert!(incoming.finished, "{incoming:?}");
    println!("{allocations} allocations for {frames} frames");
    // The receive buffer comes and goes with the bytes that it holds, once a batch at most.
    assert!(allocations < frames / 20, "{allocations} allocations for {frames} frames");
}
