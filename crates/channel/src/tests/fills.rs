//! Lent files: the FEP reads them into the send ring.

use std::io::{IoSlice, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use tcp::SendBuffer;

use super::{World, bytes};
use crate::app::SendStream;
use crate::fep::{Filling, LentFile, TakeBack};
use crate::layout::{MAX_FILL, MIN_FILL};
use crate::{Command, Offence};

/// Keeps what comes back.
#[derive(Default)]
struct Drawer(Mutex<Vec<OwnedFd>>);

impl TakeBack for Drawer {
    fn take_back(&self, file: OwnedFd) {
        self.0.lock().unwrap().push(file);
    }
}

/// A file of `len` of the tests' bytes, lent.
fn lent(len: usize) -> (Arc<LentFile>, Arc<Drawer>) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes(0, len)).unwrap();
    let drawer = Arc::new(Drawer::default());
    (Arc::new(LentFile::new(file.into(), false, drawer.clone())), drawer)
}

/// Carries out FILL as a worker does, waiting for what must be waited for. False: it failed.
fn carry_out(world: &mut World, file: &Arc<LentFile>) -> Result<bool, Offence> {
    for command in world.work()? {
        let Command::Fill { socket, queued_to, offset, .. } = command else { panic!("{command:?}") };
        let rings = world.streams.get_mut(&socket).unwrap();
        let mut filling = rings.fill(queued_to, Arc::clone(file), offset)?;
        while let Filling::Wait(reading) = filling {
            filling = match reading.run() {
                Ok(bytes) => rings.put(&bytes),
                Err(_) => Filling::Failed,
            };
        }
        if let Filling::Failed = filling {
            return Ok(false);
        }
    }
    Ok(true)
}

#[test]
fn bytes_of_a_file_lie_in_the_stream_between_those_that_were_written() {
    const LEN: usize = 3 << 20;
    let (file, drawer) = lent(LEN);
    let mut world = World::new();
    world.fep.allow_filling().unwrap();
    let socket = world.open();
    let mut send = SendStream::new(world.app.clone(), socket);
    assert_eq!(send.write(&[IoSlice::new(b"head")]).unwrap(), 4);
    let mut at = 0;
    while at < LEN {
        match send.fill(7, at as u64, LEN - at) {
            Ok(0) => at += send.write(&[IoSlice::new(&bytes(at as u64, LEN - at))]).unwrap(),
            Ok(count) => {
                assert!(count <= MAX_FILL);
                at += count;
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EAGAIN)),
        }
        assert!(carry_out(&mut world, &file).unwrap());
        let rings = world.stream(socket);
        let (queued, filled) = (rings.queued(), rings.filled_to());
        assert_eq!(queued, filled);
        // Everything is sent and, but for the last bytes, acknowledged.
        let acked = queued.saturating_sub(100_000).max(4);
        let [first, second] = rings.peek(acked, (queued - acked) as usize);
        assert_eq!([first, second].concat(), bytes(acked - 4, (queued - acked) as usize));
        rings.publish_acked(acked);
    }
    let mut tail = send.write(&[IoSlice::new(b"tail")]);
    while tail.is_err() {
        world.work().unwrap();
        let queued = world.stream(socket).queued();
        world.stream(socket).publish_acked(queued);
        tail = send.write(&[IoSlice::new(b"tail")]);
    }
    world.work().unwrap();
    let [first, second] = world.stream(socket).peek(4 + LEN as u64, 4);
    assert_eq!([first, second].concat(), b"tail");
    drop(file);
    assert_eq!(drawer.0.lock().unwrap().len(), 1, "the file went back");
}

#[test]
fn a_file_that_has_become_shorter_ends_the_stream() {
    let (file, _drawer) = lent(MIN_FILL);
    let mut world = World::new();
    world.fep.allow_filling().unwrap();
    let socket = world.open();
    let mut send = SendStream::new(world.app.clone(), socket);
    assert_eq!(send.fill(0, 1000, MIN_FILL).unwrap(), MIN_FILL);
    assert!(!carry_out(&mut world, &file).unwrap());
    assert_eq!(world.stream(socket).filled_to(), (MIN_FILL - 1000) as u64, "what there was is there");
}

/// Nothing behind bytes that are awaited counts as there, and the ring stays where it is.
#[test]
fn what_is_queued_behind_waits() {
    let (file, _drawer) = lent(1 << 20);
    let mut world = World::new();
    let socket = world.open();
    let mut send = SendStream::new(world.app.clone(), socket);
    assert_eq!(send.fill(0, 0, MIN_FILL + 1).unwrap(), MIN_FILL + 1);
    send.write(&[IoSlice::new(b"behind")]).unwrap();
    let queued_to = MIN_FILL as u64 + 1;
    assert!(matches!(world.fep.poll_command(), Ok(Some(Command::AttachSend { location, .. }))
        if world.stream(socket).attach_send(location).is_ok()));
    // Not allowed to write the application's segment: as if nothing could be read.
    let rings = world.stream(socket);
    assert!(matches!(rings.fill(queued_to, file, 0).unwrap(), Filling::Failed));
    rings.queue(queued_to + 6).unwrap();
    assert_eq!((rings.filled_to(), rings.queued()), (0, queued_to + 6));
    let before = send.limit();
    assert!(send.write(&[IoSlice::new(&vec![0; before])]).unwrap() < before, "the ring did not grow");
}

#[test]
fn impossible_fills_are_offences() {
    let (file, _drawer) = lent(1 << 20);
    let mut world = World::new();
    world.fep.allow_filling().unwrap();
    let socket = world.open();
    let mut send = SendStream::new(world.app.clone(), socket);
    send.write(&[IoSlice::new(&vec![0; 1 << 20])]).unwrap();
    world.work().unwrap();
    let rings = world.stream(socket);
    rings.publish_acked(1 << 20);
    let queued = rings.queued();
    let mut fill = |to: u64, offset: u64| rings.fill(to, Arc::clone(&file), offset).err();
    assert_eq!(fill(u64::MAX, 0), Some(Offence::QueuedTooFar));
    assert_eq!(fill(queued - 1, 0), Some(Offence::QueuedBackwards));
    assert_eq!(fill(queued + 1, 0), Some(Offence::BadFile), "too little");
    assert_eq!(fill(queued + 1 + MIN_FILL as u64, u64::MAX - 5), Some(Offence::BadFile), "no such place");
}
