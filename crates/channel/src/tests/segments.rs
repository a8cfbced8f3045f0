use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::{Errno, pwrite};

use super::{LIMITS, World};
use crate::fep::{AppChannel, Limits};
use crate::layout::Layout;
use crate::mapping::{ReadMapping, WriteMapping};

#[test]
fn the_application_cannot_write_f() {
    let half = AppChannel::create(&LIMITS).unwrap();
    let offer = half.offer();
    let len = Layout::new(offer.geometry).unwrap().f_len;
    assert!(ReadMapping::new(offer.f, len).is_ok());
    assert!(WriteMapping::new(offer.f, len).is_err());
    assert_eq!(pwrite(offer.f, &[1; 8], 0), Err(Errno::PERM));
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(offer.f, flags, 0, 4096), Err(Errno::PERM));
}

#[test]
fn neither_segment_changes_its_size_or_seals() {
    let half = AppChannel::create(&LIMITS).unwrap();
    let offer = half.offer();
    let lens = Layout::new(offer.geometry).map(|layout| (layout.a_len as u64, layout.f_len as u64)).unwrap();
    for (file, len) in [(offer.a, lens.0), (offer.f, lens.1)] {
        for size in [0, len - 4096, len + 4096] {
            assert_eq!(ftruncate(file, size), Err(Errno::PERM));
        }
        // Or the FEP could be kept from reading, or the application from writing.
        assert_eq!(fcntl_add_seals(file, SealFlags::WRITE), Err(Errno::PERM));
    }
}

#[test]
fn a_wrong_size_is_noticed_before_anything_is_mapped() {
    fn a_len(file: BorrowedFd<'_>) -> i64 {
        rustix::fs::fstat(file).unwrap().st_size
    }
    let small =
        AppChannel::create(&Limits { sockets: 2, waiters: 1, send_bytes: 1, receive_bytes: 1 }).unwrap();
    assert_eq!(a_len(small.offer().a), Layout::new(*small.geometry()).unwrap().a_len as i64);
    assert!(AppChannel::create(&Limits { sockets: u32::MAX - 1, ..LIMITS }).is_err());
    assert!(AppChannel::create(&Limits { send_bytes: 1 << 50, ..LIMITS }).is_err());
}

#[test]
fn a_fresh_channel_costs_almost_no_memory() {
    let half = AppChannel::create(&Limits::default()).unwrap();
    let blocks: i64 = [half.offer().a, half.offer().f]
        .iter()
        .map(|file| rustix::fs::fstat(file.as_fd()).unwrap().st_blocks * 512)
        .sum();
    assert!(blocks <= 64 << 10, "{blocks} bytes");
    drop(World::new());
}

#[test]
fn both_halves_can_move_between_threads() {
    fn moves<T: Send>(_: &T) {}
    fn shared<T: Send + Sync>(_: &T) {}
    let world = World::new();
    moves(&world.fep);
    moves(&world.fep.owner().stream());
    moves(&world.fep.owner().datagrams());
    shared(&*world.app);
    moves(&world.app.waiter().unwrap());
}
