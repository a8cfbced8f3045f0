use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tcp::{ReceiveBuffer, SendBuffer};

use super::{LIMITS, World, byte, bytes};
use crate::app::{Channel, ReceiveStream, SendStream, Waiter};
use crate::{Command, Offence, State};

/// Bytes through both rings while both sides sleep whenever they can: a lost wake-up would hang the test.
#[test]
fn a_transfer_between_two_sleepers_ends() {
    const TOTAL: u64 = 3 << 20;
    let mut world = World::new();
    let socket = world.open();
    let app = world.app.clone();
    let echo = std::thread::spawn(move || fetch_and_return(&app, socket, TOTAL));
    let (mut placed, mut back) = (0, 0);
    while back < TOTAL {
        let mut idle = true;
        assert_eq!(world.work(), Ok(vec![]));
        let stream = world.stream(socket);
        let consumed = stream.poll_consumed().unwrap();
        let end = TOTAL.min(consumed + 50_000).min(placed + 3000);
        if end > placed {
            stream.place(placed, &bytes(placed, (end - placed) as usize)).unwrap();
            placed = end;
            stream.publish_received(placed);
            idle = false;
        } else if placed < TOTAL {
            idle = !stream.notify_consumed_at(placed - 25_000).unwrap();
        }
        let queued = stream.queued();
        if queued > back {
            let count = (queued - back).min(7000) as usize;
            assert!(stream.peek(back, count).concat() == bytes(back, count));
            back += count as u64;
            stream.publish_acked(back);
            idle = false;
        }
        world.fep.notify(socket);
        if idle && world.fep.prepare_sleep().unwrap() {
            // A doorbell is only ever watched edge-triggered; here its counter is taken, nobody else does.
            let doorbell = world.fep.doorbell();
            let mut descriptors = [PollFd::new(&doorbell, PollFlags::IN)];
            poll(&mut descriptors, None).unwrap();
            rustix::io::read(world.fep.doorbell(), &mut [0; 8]).unwrap();
            world.fep.end_sleep();
        }
    }
    echo.join().unwrap();
}

fn fetch_and_return(app: &Arc<Channel>, socket: u32, total: u64) {
    let mut reader = ReceiveStream::new(app.clone(), socket);
    let mut writer = SendStream::new(app.clone(), socket);
    writer.set_limit(32 << 10);
    let mut waiter = app.waiter().unwrap();
    let record = app.record(socket);
    let mut buffer = vec![0; 10_000];
    while reader.consumed() < total {
        let at = reader.consumed();
        let count = reader.read(&mut [IoSliceMut::new(&mut buffer)], false).unwrap();
        assert!(buffer[..count].iter().zip(at..).all(|(&found, at)| found == byte(at)));
        if count == 0 {
            record.set_reader(waiter.slot());
            reader.arm_wake(1);
            waiter.prepare();
            if reader.available().bytes == 0 {
                waiter.sleep(None).unwrap();
            }
            waiter.cancel();
            record.clear_reader(waiter.slot());
        }
        let mut sent = 0;
        while sent < count {
            match writer.write(&[IoSlice::new(&buffer[sent..count])]) {
                Ok(more) => sent += more,
                Err(_) => wait_for_room(&mut writer, &mut waiter, app, socket),
            }
        }
    }
}

fn wait_for_room(writer: &mut SendStream, waiter: &mut Waiter, app: &Arc<Channel>, socket: u32) {
    let record = app.record(socket);
    record.set_writer(waiter.slot());
    writer.arm_wake();
    waiter.prepare();
    if writer.room() == 0 {
        waiter.sleep(None).unwrap();
    }
    waiter.cancel();
    record.clear_writer(waiter.slot());
}

fn is_readable(waiter: &Waiter) -> bool {
    let bell = waiter.bell().unwrap();
    let mut descriptors = [PollFd::new(&bell, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn a_bell_rings_once_a_sleep_and_only_when_the_mark_is_reached() {
    let mut world = World::new();
    let socket = world.open();
    let app = world.app.clone();
    let mut waiter = app.waiter_with_bell().unwrap();
    let record = app.record(socket);
    record.set_reader(waiter.slot());
    record.set_read_wake(10);
    world.stream(socket).place(0, &[1; 20]).unwrap();
    world.stream(socket).publish_received(5);
    world.fep.notify(socket);
    assert!(!is_readable(&waiter), "nobody sleeps");
    waiter.prepare();
    world.fep.notify(socket);
    assert!(!is_readable(&waiter), "the mark is not reached");
    world.stream(socket).publish_received(10);
    for _ in 0..3 {
        world.fep.notify(socket);
    }
    assert!(is_readable(&waiter) && waiter.is_rung());
    waiter.cancel();
    waiter.prepare();
    assert!(!is_readable(&waiter), "the ring of the last sleep is taken");
    assert!(!waiter.is_rung());
    world.fep.publish_state(socket, State::PEER_CLOSED);
    record.set_read_wake(u64::MAX);
    world.fep.notify(socket);
    assert!(waiter.is_rung(), "the end always wakes");
}

#[test]
fn a_bulk_reader_is_woken_when_much_has_come_or_nothing_more_comes() {
    let mut world = World::new();
    let socket = world.open();
    let app = world.app.clone();
    let mut waiter = app.waiter().unwrap();
    let record = app.record(socket);
    record.set_reader(waiter.slot());
    record.set_read_wake_or_pause(10, 100);
    waiter.prepare();
    world.stream(socket).place(0, &[1; 200]).unwrap();
    world.stream(socket).publish_received(5);
    assert!(!world.fep.notify(socket), "less than it wants at all");
    world.fep.notify_pause(socket);
    assert!(!waiter.is_rung());
    world.stream(socket).publish_received(10);
    assert!(world.fep.notify(socket), "to be told in a pause");
    assert!(!waiter.is_rung());
    world.fep.notify_pause(socket);
    assert!(waiter.is_rung());
    waiter.cancel();
    waiter.prepare();
    world.stream(socket).publish_received(100);
    assert!(!world.fep.notify(socket), "told at once");
    assert!(waiter.is_rung());
    waiter.cancel();
    record.set_read_wake(300);
    world.stream(socket).publish_received(200);
    assert!(!world.fep.notify(socket), "a plain mark has no pause");
}

#[test]
fn two_waiters_on_one_socket_both_wake() {
    let mut world = World::new();
    let socket = world.open();
    let (mut one, mut other, mut third) =
        (world.app.waiter().unwrap(), world.app.waiter_with_bell().unwrap(), world.app.waiter().unwrap());
    let app = world.app.clone();
    let record = app.record(socket);
    record.set_reader(one.slot());
    record.set_reader(other.slot());
    one.prepare();
    other.prepare();
    world.fep.notify(socket);
    assert!(!one.is_rung(), "waking all is put off to the end of the batch");
    world.work().unwrap();
    assert!(one.is_rung() && other.is_rung());
    third.prepare();
    record.clear_reader(one.slot());
    world.fep.notify(socket);
    assert_eq!(world.fep.prepare_sleep(), Ok(true));
    assert!(third.is_rung(), "once several were named, all sleepers are woken");
}

#[test]
fn slots_are_used_again_and_run_out() {
    let world = World::new();
    let bell = world.app.waiter_with_bell().unwrap();
    let slot = bell.slot();
    drop(bell);
    assert_eq!(world.app.waiter_with_bell().unwrap().slot(), slot);
    let all: Vec<Waiter> = (1..LIMITS.waiters).map(|_| world.app.waiter().unwrap()).collect();
    assert_eq!(world.app.waiter().unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    drop(all);
    assert!(world.app.waiter().is_ok());
}

#[test]
fn a_sleep_ends_with_its_time() {
    let world = World::new();
    let mut waiter = world.app.waiter().unwrap();
    waiter.prepare();
    assert!(!waiter.sleep(Some(Duration::from_millis(1))).unwrap());
}

#[test]
fn the_end_of_the_channel_wakes_everybody() {
    let World { fep, app, .. } = World::new();
    let mut waiter = app.waiter().unwrap();
    waiter.prepare();
    let sleeper = std::thread::spawn(move || {
        while app.closed().is_none() {
            waiter.sleep(None).unwrap();
            waiter.prepare();
        }
    });
    drop(fep);
    sleeper.join().unwrap();
}

#[test]
fn the_fep_does_not_sleep_with_work() {
    let mut world = World::new();
    assert_eq!(world.fep.prepare_sleep(), Ok(true));
    world.fep.end_sleep();
    world.app.post(&Command::Consumed { socket: 0 }).unwrap();
    assert_eq!(world.fep.prepare_sleep(), Ok(false));
    assert_eq!(world.work(), Err(Offence::NotOpen));
}

#[test]
fn room_for_events_wakes_a_fep_that_has_more() {
    let mut world = World::new();
    for _ in 0..=world.fep.geometry().events {
        world.fep.accepted(0, 40);
    }
    assert_eq!(world.fep.prepare_sleep(), Ok(true));
    let count = world.app.poll_events(&mut |_| {}).unwrap();
    assert_eq!(count as u32, world.fep.geometry().events);
    assert!(rustix::io::read(world.fep.doorbell(), &mut [0; 8]).is_ok());
    world.fep.end_sleep();
    assert_eq!(world.work(), Ok(vec![]));
    assert_eq!(world.app.poll_events(&mut |_| {}).unwrap(), 1);
    // Without more to tell, the FEP sleeps on.
    world.fep.accepted(0, 40);
    assert_eq!(world.fep.prepare_sleep(), Ok(true));
    assert_eq!(world.app.poll_events(&mut |_| {}).unwrap(), 1);
    assert!(rustix::io::read(world.fep.doorbell(), &mut [0; 8]).is_err());
}

#[test]
fn the_doorbell_rings_once_a_sleep() {
    let mut world = World::new();
    let socket = world.open();
    let count = |world: &World| {
        let mut counter = [0; 8];
        rustix::io::read(world.fep.doorbell(), &mut counter).map(|_| u64::from_ne_bytes(counter)).unwrap_or(0)
    };
    world.app.post(&Command::Consumed { socket }).unwrap();
    assert_eq!(count(&world), 0, "the FEP is awake");
    world.work().unwrap();
    for _ in 0..2 {
        assert_eq!(world.fep.prepare_sleep(), Ok(true));
        for _ in 0..3 {
            world.app.post(&Command::Consumed { socket }).unwrap();
        }
        assert_eq!(count(&world), 1);
        world.fep.end_sleep();
        world.work().unwrap();
    }
}

#[test]
fn a_writer_who_cares_for_it_is_woken_only_when_enough_is_sent() {
    let mut world = World::new();
    let socket = world.open();
    let app = world.app.clone();
    let mut waiter = app.waiter_with_bell().unwrap();
    let record = app.record(socket);
    let mut writer = SendStream::new(app.clone(), socket);
    assert_eq!(writer.write(&[IoSlice::new(&bytes(0, 5000))]).unwrap(), 5000);
    assert_eq!(record.unsent(5000), (5000, false), "nobody has heard of them");
    assert_eq!(world.work(), Ok(vec![]));
    world.stream(socket).publish_sent(1000);
    world.stream(socket).publish_window(10_000);
    assert_eq!((record.unsent(5000), record.unsent(5001)), ((4000, true), (4001, false)));
    record.set_writer(waiter.slot());
    record.set_write_wake(0);
    record.set_sent_wake(3000);
    waiter.prepare();
    world.fep.notify(socket);
    assert!(!is_readable(&waiter), "acknowledged is enough, sent is not");
    world.stream(socket).publish_sent(3000);
    world.fep.notify(socket);
    assert!(is_readable(&waiter) && waiter.is_rung());
    waiter.cancel();
    record.set_write_wake(4000);
    waiter.prepare();
    world.stream(socket).publish_sent(5000);
    world.fep.notify(socket);
    assert!(!is_readable(&waiter), "sent is enough, acknowledged is not");
    world.stream(socket).publish_acked(4000);
    world.fep.notify(socket);
    assert!(waiter.is_rung());
    waiter.cancel();
    assert_eq!(record.unsent(5000), (0, true));
}
