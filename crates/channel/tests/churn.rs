//! Channels that come and go leave nothing behind. A test program of its own: it counts what the process holds.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Mutex;

use outboard_channel::app::{ReceiveStream, SendStream};
use outboard_channel::fep::{AppChannel, Limits, StreamRings};
use outboard_channel::{Command, Event, pair};
use tcp::{ReceiveBuffer, SendBuffer};

const LIMITS: Limits = Limits { sockets: 64, waiters: 8, send_bytes: 16 << 20, receive_bytes: 16 << 20 };

/// The tests count what the whole process holds: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Descriptors, and mappings of channels.
fn held() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let segments = maps.lines().filter(|line| line.contains("memfd:outboard")).count();
    (fs::read_dir("/proc/self/fd").unwrap().count(), segments)
}

/// Takes the commands of a channel with one stream socket.
fn work(half: &mut AppChannel, rings: &mut StreamRings) {
    while let Some(command) = half.poll_command().unwrap() {
        match command {
            Command::AttachSend { location, .. } => rings.attach_send(location).unwrap(),
            Command::Send { queued_to, .. } => rings.queue(queued_to).unwrap(),
            Command::OpenTcp { socket, .. } => rings.assign(socket),
            _ => {}
        }
    }
}

#[test]
fn channels_that_die_in_mid_transfer_leave_nothing() {
    let _alone = ALONE.lock();
    let before = held();
    for round in 0..300u32 {
        let (mut half, app) = pair(&LIMITS).unwrap();
        let mut rings = half.owner().stream();
        let socket = app.new_socket().unwrap();
        app.post(&Command::OpenTcp { socket, sequence: 0 }).unwrap();
        let mut writer = SendStream::new(app.clone(), socket);
        let mut reader = ReceiveStream::new(app.clone(), socket);
        let waiter = app.waiter_with_bell().unwrap();
        writer.write(&[IoSlice::new(&[round as u8; 70_000])]).unwrap();
        work(&mut half, &mut rings);
        rings.place(0, &[5; 9000]).unwrap();
        rings.publish_received(9000);
        assert_eq!(reader.read(&mut [IoSliceMut::new(&mut [0; 100])], false).unwrap(), 100);
        match round % 3 {
            // The application first: what it queued is still delivered.
            0 => {
                drop((writer, reader, waiter, app));
                assert_eq!(rings.peek(69_000, 1000).concat(), vec![round as u8; 1000]);
            }
            // The FEP first, the connection's buffers last of it.
            1 => {
                drop(half);
                assert_eq!(rings.peek(0, 1), [&[round as u8][..], &[]]);
                assert!(writer.write(&[IoSlice::new(b"x")]).is_err());
                assert_eq!(reader.fill().len(), 8900);
            }
            _ => drop((rings, writer, half, reader)),
        }
    }
    assert_eq!(held(), before);
}

#[test]
fn sockets_that_come_and_go_leave_nothing() {
    let _alone = ALONE.lock();
    let (mut half, app) = pair(&LIMITS).unwrap();
    for round in 0..10_000u64 {
        let mut rings = half.owner().stream();
        let socket = app.new_socket().unwrap();
        app.post(&Command::OpenTcp { socket, sequence: 0 }).unwrap();
        let mut writer = SendStream::new(app.clone(), socket);
        writer.write(&[IoSlice::new(&[1; 2000])]).unwrap();
        work(&mut half, &mut rings);
        rings.place(0, &[2; 3000]).unwrap();
        rings.publish_received(3000 - round % 2);
        half.notify(socket);
        app.post(&Command::Close { socket }).unwrap();
        drop(writer);
        rings.discard_receive();
        work(&mut half, &mut rings);
        drop(rings);
        half.release_socket(socket);
        let mut released = 0;
        app.poll_events(&mut |event| released += u32::from(event == Event::Released { socket })).unwrap();
        assert_eq!(released, 1);
    }
    assert_eq!((half.memory().in_use, app.memory().in_use), (0, 0));
    // One socket's memory was enough for all of them.
    assert_eq!((half.memory().high_water, app.memory().high_water), (4096, 16 << 10));
}
