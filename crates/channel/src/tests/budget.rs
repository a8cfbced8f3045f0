//! Who gets how much of a channel's memory.

use std::io::IoSlice;
use std::sync::Arc;

use stack::memory::{Budget, Pressure};
use tcp::{NoMemory, ReceiveBuffer, SendBuffer};

use super::{LIMITS, World};
use crate::app::SendStream;
use crate::fep::StreamRings;

const MIB: usize = 1 << 20;

fn write(stream: &mut SendStream, len: usize) -> usize {
    stream.write(&[IoSlice::new(&vec![7; len])]).unwrap_or(0)
}

/// Places `len` bytes and shows them to nobody.
fn place(rings: &mut StreamRings, at: usize, len: usize) -> Result<(), NoMemory> {
    rings.place(at as u64, &vec![7; len])
}

#[test]
fn a_send_ring_follows_the_congestion_window_unless_its_size_was_set() {
    let mut world = World::new();
    let socket = world.open();
    let mut stream = SendStream::new(world.app.clone(), socket);
    assert_eq!(stream.limit(), MIB);
    assert_eq!(write(&mut stream, 8 * MIB), MIB);
    world.stream(socket).publish_window(1_000_000);
    assert_eq!(stream.limit(), 2 * MIB);
    assert_eq!(write(&mut stream, 8 * MIB), MIB, "the ring has grown");
    world.stream(socket).publish_window(100_000_000);
    assert_eq!((stream.limit(), stream.room()), (4 * MIB, 2 * MIB), "and no further than this");
    world.work().unwrap();
    world.stream(socket).publish_acked(2 * MIB as u64);
    world.stream(socket).publish_window(10_000);
    assert_eq!(stream.limit(), MIB);
    stream.set_limit(100_000);
    world.stream(socket).publish_window(100_000_000);
    assert_eq!(stream.limit(), 131_072);
}

#[test]
fn a_writer_that_waits_for_room_is_known_to_be_blocked() {
    let mut world = World::new();
    let socket = world.open();
    let mut stream = SendStream::new(world.app.clone(), socket);
    world.app.record(socket).set_write_wake(u64::MAX);
    assert_eq!(write(&mut stream, 2 * MIB), MIB);
    world.work().unwrap();
    assert!(!world.stream(socket).is_blocked(), "its ring is full, but it does not wait");
    stream.arm_wake();
    assert!(world.stream(socket).is_blocked());
    world.stream(socket).publish_acked(MIB as u64 / 4);
    assert!(world.stream(socket).is_blocked());
    world.stream(socket).publish_acked(MIB as u64 * 3 / 4);
    assert!(!world.stream(socket).is_blocked(), "there is the room that it waits for");
}

#[test]
fn send_memory_is_shared_fairly_and_the_last_one_gets_on() {
    let mut world = World::new();
    let socket = world.open();
    // Nobody acknowledges anything to all of these; LIMITS has 64 MiB.
    let mut streams: Vec<_> = (0..400).map(|_| SendStream::new(world.app.clone(), socket)).collect();
    let taken: Vec<_> = streams.iter_mut().map(|stream| write(stream, MIB)).collect();
    assert!(taken.iter().all(|&taken| taken >= 4096), "{taken:?}");
    assert_eq!(taken[0], MIB);
    assert!(taken.iter().rev().take(200).all(|&taken| taken <= 128 << 10));
    let (used, all) = (world.app.memory().in_use, taken.iter().sum::<usize>() as u64);
    assert!(used <= LIMITS.send_bytes && all > LIMITS.send_bytes / 2, "{used} {all}");
    drop(streams);
}

#[test]
fn what_sockets_receive_stays_below_the_cap_and_each_has_its_floor() {
    let world = World::new();
    let owner = world.fep.owner();
    let budget = world.fep.budget();
    let mut rings: Vec<_> = (0..5000).map(|_| owner.stream()).collect();
    assert_eq!(rings[0].share(), 4096, "five thousand that have not shown that they read");
    let mut refused = 0;
    for rings in &mut rings {
        place(rings, 0, 4096).unwrap();
        refused += usize::from(place(rings, 4096, 28_672).is_err());
    }
    assert_ne!(budget.pressure(), Pressure::Below);
    assert!(world.fep.memory().in_use <= LIMITS.receive_bytes);
    assert!((3000..5000).contains(&refused), "{refused}");
    rings.truncate(100);
    assert_eq!(budget.pressure(), Pressure::Below);
    place(rings.last_mut().unwrap(), 4096, 28_672).unwrap();
    drop(rings);
    assert_eq!((budget.used(), world.fep.memory().in_use), (0, 0));
}

#[test]
fn many_connections_that_never_read_can_all_be_kept_to_what_they_were_promised() {
    let world = World::new();
    let owner = world.fep.owner();
    let mut all = Vec::new();
    for number in 0..6000usize {
        let rings = owner.stream();
        let promised = rings.share().min(65_536) as usize;
        assert!(promised == 65_536 || number > 100, "{number} {promised}");
        all.push((rings, promised));
    }
    for (rings, promised) in &mut all {
        place(rings, 0, *promised).unwrap();
    }
    assert!(world.fep.memory().in_use <= LIMITS.receive_bytes);
}

#[test]
fn a_ring_that_is_replaced_counts_until_it_is_read() {
    let mut world = World::new();
    let socket = world.open();
    world.stream(socket).place(0, &[1; 20_000]).unwrap();
    world.stream(socket).publish_received(20_000);
    world.stream(socket).place(20_000, &[1; 30_000]).unwrap();
    // 64 KiB, and the 32 KiB that the application may be reading in.
    let budget = |world: &World| world.fep.budget().used();
    assert_eq!(budget(&world), (64 << 10) + (32 << 10));
    assert_eq!(world.fep.memory().in_use, budget(&world));
    let mut reader = crate::app::ReceiveStream::new(world.app.clone(), socket);
    reader.consume(20_000).unwrap();
    world.stream(socket).poll_consumed().unwrap();
    assert_eq!(budget(&world), 64 << 10);
    world.stream(socket).discard_receive();
    assert_eq!((budget(&world), world.fep.memory().in_use), (4096, 0));
}

#[test]
fn an_application_cannot_take_what_the_stack_has_not() {
    let around = Budget::new(20 << 20);
    let (first, _a) = crate::pair_within(&LIMITS, &around).unwrap();
    let (second, _b) = crate::pair_within(&LIMITS, &around).unwrap();
    let mut greedy: Vec<_> = (0..10).map(|_| first.owner().stream()).collect();
    let granted = greedy.iter_mut().map(|rings| place(rings, 0, 4 * MIB)).filter(Result::is_ok).count();
    assert_eq!(granted, 4, "of four megabytes each, beside the floors of ten");
    let mut modest = second.owner().stream();
    assert_eq!(second.budget().pressure(), Pressure::Pressure);
    assert!(modest.share() <= 1 << 20);
    modest.place(0, &[1; 100_000]).unwrap();
    drop((greedy, modest));
    assert_eq!((around.used(), Arc::strong_count(&around)), (0, 3));
}
