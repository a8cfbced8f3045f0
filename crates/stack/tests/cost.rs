//! The cost of a packet, in operations, does not depend on how many connections there are.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::Duration;
use common::{Incoming, LinkConfig, Offload, Outgoing, World, at};
use outboard_stack::{SocketOptions, StackConfig, Work};

/// Work of both hosts for one transfer, and the segments it took, beside `idle` idle connections.
fn work_beside(idle: usize) -> (Work, u64) {
    let config = StackConfig { ephemeral_ports: (1024, 65_535), max_backlog: 4096, ..StackConfig::default() };
    let mut world =
        World::with_config(1, LinkConfig { offload: Offload::None, ..LinkConfig::default() }, config);
    let (mut opened, mut port) = (0, 1000);
    while opened < idle {
        let listener = world.stack(1).tcp_listen(at(1, port), 4096, (), &SocketOptions::default()).unwrap();
        let end = (opened + 50_000).min(idle);
        while opened < end {
            let batch = (end - opened).min(2000);
            (0..batch).for_each(|_| {
                world.connect(0, at(1, port));
            });
            let mut accepted = 0;
            assert!(world.run_until(Duration::from_secs(10), |world| {
                accepted += std::iter::from_fn(|| world.stack(1).tcp_accept(listener)).count();
                accepted == batch
            }));
            opened += batch;
        }
        port += 1;
    }
    let (client, server) = world.pair(80);
    let (mut up, mut incoming) = (Outgoing::new(1, 3_000_000), Incoming::new(1));
    let total = |world: &mut World| {
        let works = [world.stack(0).work(), world.stack(1).work()];
        let segments = world.stack(0).stats().tcp_in + world.stack(1).stats().tcp_in;
        (works, segments)
    };
    let before = total(&mut world);
    assert!(world.run_until(Duration::from_secs(100), |world| {
        world.pump(0, client, &mut up);
        world.drain(1, server, &mut incoming);
        incoming.finished
    }));
    let after = total(&mut world);
    let sum = |pick: fn(&Work) -> u64| {
        after.0.iter().map(pick).sum::<u64>() - before.0.iter().map(pick).sum::<u64>()
    };
    let work = Work {
        flow_lookups: sum(|work| work.flow_lookups),
        flow_comparisons: sum(|work| work.flow_comparisons),
        timer_operations: sum(|work| work.timer_operations),
        sockets_polled: sum(|work| work.sockets_polled),
    };
    (work, after.1 - before.1)
}

#[test]
fn a_packet_costs_the_same_beside_ten_and_beside_a_hundred_thousand_connections() {
    let (few, few_segments) = work_beside(10);
    let (many, many_segments) = work_beside(100_000);
    println!("beside 10: {few:?} for {few_segments}; beside 100,000: {many:?} for {many_segments}");
    assert_eq!(few_segments, many_segments, "the same transfer");
    // Each segment is looked up once, and compared with the connection that it belongs to.
    assert_eq!(few.flow_lookups, few_segments);
    assert_eq!(many.flow_lookups, few.flow_lookups);
    assert!(many.flow_comparisons <= few.flow_comparisons + few_segments / 100);
    // Timers of others may move within the wheel meanwhile, but not with every segment.
    assert!(few.timer_operations <= few_segments);
    assert!(many.timer_operations <= few.timer_operations + few_segments);
    assert!(many.sockets_polled <= few.sockets_polled + few_segments / 100);
}

#[test]
fn an_idle_host_has_nothing_to_do() {
    let mut world = World::new(2, LinkConfig::default());
    world.pair(80);
    world.run_for(Duration::from_secs(200));
    let before = (world.stack(0).work(), world.stack(1).work(), world.frames);
    world.run_for(Duration::from_secs(3600));
    assert_eq!((world.stack(0).work(), world.stack(1).work(), world.frames), before);
    assert_eq!(world.next(), None);
}
