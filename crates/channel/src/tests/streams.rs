use std::io::{IoSlice, IoSliceMut};

use proptest::prelude::*;
use tcp::{NoMemory, ReceiveBuffer, SendBuffer};
use wire::checksum::Sum;

use super::{World, byte, bytes};
use crate::app::{ReceiveStream, SendStream};
use crate::{Command, State};

#[derive(Clone, Debug)]
enum Receiving {
    /// Places bytes this far ahead of what is in order.
    Place(u64, usize),
    Publish,
    Read(usize),
    ReadInPlace(usize),
    Peek(usize),
    Idle,
    Notify(u64),
}

fn receiving() -> impl Strategy<Value = Receiving> {
    prop_oneof![
        3 => (0u64..9000, 1usize..6000).prop_map(|(gap, len)| Receiving::Place(gap, len)),
        3 => (1usize..70_000).prop_map(|len| Receiving::Place(0, len)),
        3 => Just(Receiving::Publish),
        3 => (1usize..100_000).prop_map(Receiving::Read),
        2 => (1usize..20_000).prop_map(Receiving::ReadInPlace),
        1 => (1usize..20_000).prop_map(Receiving::Peek),
        1 => Just(Receiving::Idle),
        1 => (0u64..30_000).prop_map(Receiving::Notify),
    ]
}

/// What is placed, as sorted disjoint ranges; the first starts at 0.
fn in_order(placed: &mut Vec<(u64, u64)>) -> u64 {
    placed.sort_unstable();
    let mut merged: Vec<(u64, u64)> = vec![(0, 0)];
    for &(from, to) in placed.iter() {
        let last = merged.last_mut().unwrap();
        if from <= last.1 { last.1 = last.1.max(to) } else { merged.push((from, to)) }
    }
    *placed = merged;
    placed[0].1
}

fn read(reader: &mut ReceiveStream, len: usize, peek: bool) -> Result<(), TestCaseError> {
    let at = reader.consumed();
    let (mut first, mut second) = (vec![0; len / 3], vec![0; len - len / 3]);
    let count = reader.read(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)], peek).unwrap();
    let got = [first, second].concat();
    prop_assert_eq!(&got[..count], &bytes(at, count)[..]);
    prop_assert_eq!(reader.consumed(), if peek { at } else { at + count as u64 });
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn received_bytes_arrive_in_order_through_growth_and_giving_back(
        limit_log2 in 12u32..=20, steps in prop::collection::vec(receiving(), 1..120),
    ) {
        let mut world = World::new();
        let socket = world.open();
        let mut reader = ReceiveStream::new(world.app.clone(), socket);
        world.stream(socket).set_receive_limit(1 << limit_log2);
        let (mut placed, mut wanted) = (Vec::new(), None);
        let mut known_consumed = 0;
        for step in steps {
            match step {
                Receiving::Place(gap, len) => {
                    let from = in_order(&mut placed) + gap;
                    // What tcp guarantees: nothing beyond the window that it offered.
                    let len = len.min((known_consumed + (1u64 << limit_log2)).saturating_sub(from) as usize);
                    prop_assert_eq!(world.stream(socket).place(from, &bytes(from, len)), Ok(()));
                    placed.push((from, from + len as u64));
                }
                Receiving::Publish => {
                    let to = in_order(&mut placed);
                    world.stream(socket).publish_received(to);
                    known_consumed = world.stream(socket).poll_consumed().unwrap();
                }
                Receiving::Read(len) => read(&mut reader, len, false)?,
                Receiving::Peek(len) => read(&mut reader, len, true)?,
                Receiving::ReadInPlace(len) => {
                    let at = reader.consumed();
                    let slice = reader.fill();
                    let count = len.min(slice.len());
                    prop_assert_eq!(&slice[..count], &bytes(at, count)[..]);
                    reader.consume(count).unwrap();
                }
                Receiving::Idle => {
                    world.stream(socket).release_idle();
                }
                Receiving::Notify(ahead) => {
                    let at = known_consumed + ahead;
                    let passed = world.stream(socket).notify_consumed_at(at).unwrap();
                    prop_assert_eq!(passed, reader.consumed() >= at);
                    wanted = (!passed).then_some(at);
                }
            }
            // The FEP hears of the cursor exactly when it asked for it.
            let consumed = world.fep.poll_command().unwrap();
            let reached = wanted.is_some_and(|at| reader.consumed() >= at);
            prop_assert_eq!(consumed, reached.then_some(Command::Consumed { socket }));
            if reached {
                wanted = None;
            }
        }
        let end = in_order(&mut placed);
        world.stream(socket).publish_received(end);
        while reader.consumed() < end {
            read(&mut reader, 10_000, false)?;
        }
        if placed.len() == 1 {
            world.stream(socket).release_idle();
            prop_assert!(world.stream(socket).release_idle());
            prop_assert_eq!(world.fep.memory().in_use, 0);
        }
        world.streams.clear();
        prop_assert_eq!(world.fep.memory().in_use, 0);
    }
}

#[derive(Clone, Debug)]
enum Sending {
    Write(usize),
    Produce(usize),
    Work,
    /// Looks at a range: where it starts and ends, in 1/256 of what is queued.
    Transmit(u8, u8),
    Acknowledge(u8),
    Idle,
    Limit(u32),
}

fn sending() -> impl Strategy<Value = Sending> {
    prop_oneof![
        3 => (1usize..100_000).prop_map(Sending::Write),
        2 => (1usize..30_000).prop_map(Sending::Produce),
        3 => Just(Sending::Work),
        3 => any::<(u8, u8)>().prop_map(|(from, to)| Sending::Transmit(from, to)),
        3 => any::<u8>().prop_map(Sending::Acknowledge),
        1 => Just(Sending::Idle),
        1 => (12u32..=20).prop_map(Sending::Limit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn queued_bytes_are_transmitted_through_growth_and_giving_back(
        steps in prop::collection::vec(sending(), 1..150),
    ) {
        let mut world = World::new();
        let socket = world.open();
        let mut writer = SendStream::new(world.app.clone(), socket);
        let mut acked = 0;
        for step in steps {
            match step {
                Sending::Write(len) => {
                    let at = writer.queued();
                    let data = bytes(at, len);
                    let (first, second) = data.split_at(len / 2);
                    match writer.write(&[IoSlice::new(first), IoSlice::new(second)]) {
                        Ok(count) => prop_assert_eq!(writer.queued(), at + count as u64),
                        Err(error) => {
                            prop_assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                            prop_assert!(writer.unacked() >= writer.limit());
                        }
                    }
                }
                Sending::Produce(len) => {
                    let at = writer.queued();
                    if let Ok(space) = writer.reserve(len) {
                        prop_assert!(!space.is_empty() && space.len() <= len);
                        for (index, place) in space.iter_mut().enumerate() {
                            *place = byte(at + index as u64);
                        }
                        let count = space.len() - space.len() / 4;
                        writer.commit(count).unwrap();
                    }
                }
                Sending::Work => prop_assert_eq!(world.work(), Ok(vec![])),
                Sending::Transmit(from, to) => {
                    let queued = world.stream(socket).queued();
                    let at = |part: u8| acked + (queued - acked) * u64::from(part) / 255;
                    let (from, to) = (at(from.min(to)), at(from.max(to)));
                    let pieces = world.stream(socket).peek(from, (to - from) as usize);
                    prop_assert_eq!(pieces.concat(), bytes(from, (to - from) as usize));
                }
                Sending::Acknowledge(part) => {
                    let queued = world.stream(socket).queued();
                    acked += (queued - acked) * u64::from(part) / 255;
                    world.stream(socket).publish_acked(acked);
                }
                Sending::Idle => {
                    let idle = writer.release_idle();
                    prop_assert!(!idle || writer.unacked() == 0);
                }
                Sending::Limit(log2) => writer.set_limit(1 << log2),
            }
        }
        prop_assert_eq!(world.work(), Ok(vec![]));
        let queued = writer.queued();
        prop_assert_eq!(world.stream(socket).queued(), queued);
        world.stream(socket).publish_acked(queued);
        prop_assert!(writer.release_idle());
        prop_assert_eq!(world.app.memory().in_use, 0);
    }
}

#[test]
fn the_end_is_seen_with_the_last_byte() {
    let mut world = World::new();
    let socket = world.open();
    let mut reader = ReceiveStream::new(world.app.clone(), socket);
    world.stream(socket).place(0, b"last").unwrap();
    world.stream(socket).publish_received(4);
    world.fep.publish_state(socket, State::CONNECTED | State::PEER_CLOSED);
    let available = reader.available();
    assert_eq!((available.bytes, available.ended), (4, true));
    reader.consume(4).unwrap();
    assert_eq!(reader.available().bytes, 0);
}

#[test]
fn data_of_a_connection_that_was_not_accepted_yet_waits_for_its_number() {
    let mut world = World::new();
    let mut rings = world.fep.owner().stream();
    rings.place(0, b"early").unwrap();
    rings.publish_received(5);
    let socket = world.fep.allocate_socket().unwrap();
    rings.assign(socket);
    let mut reader = ReceiveStream::new(world.app.clone(), socket);
    assert_eq!(reader.fill(), b"early");
    reader.consume(5).unwrap();
    assert_eq!(rings.poll_consumed(), Ok(5));
}

#[test]
fn bytes_are_verified_while_they_are_placed() {
    let mut world = World::new();
    let socket = world.open();
    let mut reader = ReceiveStream::new(world.app.clone(), socket);
    world.stream(socket).set_receive_limit(1 << 13);
    // What the checksum covers beside them makes it come out right.
    let rest = |bytes: &[u8]| Sum::ZERO.add_u16(Sum::of(bytes).finish());
    let mut at = 0;
    for len in [4000, 3001, 1000, 5000, 2048] {
        let sent = bytes(at, len);
        let rings = world.stream(socket);
        let mut spoilt = sent.clone();
        spoilt[len / 2] ^= 4;
        assert_eq!(rings.place_verified(at, [&spoilt, &[]], rest(&sent)), Ok(false));
        assert_eq!(rings.place_verified(at, sent.split_at(len / 3).into(), rest(&sent)), Ok(true));
        // What is there already is not harmed.
        assert_eq!(rings.place_verified(at, [&spoilt, &[]], rest(&sent)), Ok(false));
        at += len as u64;
        rings.publish_received(at);
        read(&mut reader, len, false).unwrap();
        world.stream(socket).poll_consumed().unwrap();
    }
    let (most, one) = (bytes(at, 1 << 13), [1]);
    assert_eq!(world.stream(socket).place_verified(at, [&most, &[]], rest(&most)), Ok(true));
    assert_eq!(world.stream(socket).place_verified(at + (1 << 13), [&one, &[]], Sum::ZERO), Ok(false));
    assert_eq!(world.stream(socket).place_verified(at + (1 << 13), [&one, &[]], rest(&one)), Err(NoMemory));
}

#[test]
fn beyond_the_limit_there_is_no_memory() {
    let mut world = World::new();
    let socket = world.open();
    world.stream(socket).set_receive_limit(8192);
    assert_eq!(world.stream(socket).place(0, &[1; 8192]), Ok(()));
    assert_eq!(world.stream(socket).place(8192, &[1]), Err(NoMemory));
    world.stream(socket).discard_receive();
    assert_eq!(world.stream(socket).place(0, &[1]), Err(NoMemory));
    assert_eq!(world.fep.memory().in_use, 0);
}

#[test]
fn one_application_cannot_use_more_than_its_area() {
    let mut world = World::new();
    let sockets: Vec<u32> = (0..8).map(|_| world.open()).collect();
    let mut full = Vec::new();
    for &socket in &sockets {
        world.stream(socket).set_receive_limit(16 << 20);
        if world.stream(socket).place((16 << 20) - 1, &[1]).is_err() {
            full.push(socket);
        }
    }
    // 64 MiB hold three rings of 16 and a page for everybody.
    assert_eq!(full.len(), 5);
    for socket in full {
        assert_eq!(world.stream(socket).place(0, &[1; 4096]), Ok(()));
    }
    let memory = world.fep.memory();
    assert_eq!((memory.in_use, memory.limit), ((48 << 20) + 5 * 4096, 64 << 20));
    world.streams.clear();
    assert_eq!(world.fep.memory().in_use, 0);
    assert_eq!(world.fep.memory().high_water, (48 << 20) + 5 * 4096);
}

#[test]
fn consumed_bytes_are_never_written_again() {
    let mut world = World::new();
    let socket = world.open();
    world.stream(socket).set_receive_limit(4096);
    let mut reader = ReceiveStream::new(world.app.clone(), socket);
    world.stream(socket).place(0, &bytes(0, 4096)).unwrap();
    world.stream(socket).publish_received(4096);
    reader.consume(4000).unwrap();
    world.stream(socket).poll_consumed().unwrap();
    world.stream(socket).place(4096, &bytes(4096, 4000)).unwrap();
    // A late copy of old bytes: their places belong to newer ones.
    world.stream(socket).place(0, &[0xee; 4096]).unwrap_or(());
    world.stream(socket).place(3000, &bytes(3000, 1096)).unwrap();
    world.stream(socket).publish_received(8096);
    let mut all = vec![0; 4096];
    assert_eq!(reader.read(&mut [IoSliceMut::new(&mut all)], false).unwrap(), 4096);
    assert_eq!(all[96..], bytes(4096, 4000));
}

#[test]
fn rings_of_a_closed_socket_stay_until_it_is_released() {
    let mut world = World::new();
    let socket = world.open();
    let mut writer = SendStream::new(world.app.clone(), socket);
    writer.write(&[IoSlice::new(&bytes(0, 5000))]).unwrap();
    world.app.post(&Command::Close { socket }).unwrap();
    drop(writer);
    assert!(world.app.memory().in_use > 0);
    world.work().unwrap();
    assert_eq!(world.stream(socket).peek(0, 5000).concat(), bytes(0, 5000));
    world.release(socket);
    world.app.poll_events(&mut |_| {}).unwrap();
    assert_eq!(world.app.memory().in_use, 0);
    // Dropped after the release, nothing is kept either.
    let socket = world.open();
    let mut writer = SendStream::new(world.app.clone(), socket);
    writer.write(&[IoSlice::new(b"x")]).unwrap();
    world.work().unwrap();
    world.release(socket);
    world.app.poll_events(&mut |_| {}).unwrap();
    drop(writer);
    assert_eq!(world.app.memory().in_use, 0);
}

#[test]
fn trimmed_send_memory_is_usable_again() {
    let mut world = World::new();
    let socket = world.open();
    let mut writer = SendStream::new(world.app.clone(), socket);
    writer.write(&[IoSlice::new(&bytes(0, 300_000))]).unwrap();
    world.work().unwrap();
    world.stream(socket).publish_acked(300_000);
    assert!(writer.release_idle());
    assert!(world.app.trim().unwrap() >= 300_000);
    assert_eq!(world.app.trim().unwrap(), 0);
    writer.write(&[IoSlice::new(&bytes(300_000, 100))]).unwrap();
    world.work().unwrap();
    assert_eq!(world.stream(socket).peek(300_000, 100).concat(), bytes(300_000, 100));
}
