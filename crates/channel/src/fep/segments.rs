//! Making the two segments, and what all parts of the FEP's half share of them.

use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use stack::memory::Budget;

use super::{DatagramRings, StreamRings};
use crate::layout::{
    Geometry, Layout, MAGIC_A, MAGIC_F, MAX_ENTRIES, MAX_RING, VERSION, header_a, header_f, record_f,
};
use crate::mapping::{Area, ReadMapping, WriteMapping};
use crate::offence::Offence;

/// Entries of the command ring: what one batch of an application may be ahead.
const COMMANDS: u32 = 4096;
/// Entries of the event ring. What does not fit waits on the FEP's side.
const EVENTS: u32 = 8192;

const _: () = assert!(COMMANDS <= MAX_ENTRIES && EVENTS <= MAX_ENTRIES);

/// What one application may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sockets, half of them opened by it and half accepted; rounded up to an even number.
    pub sockets: u32,
    /// Threads and poll instances that sleep at a time.
    pub waiters: u32,
    /// Bytes of send rings, rounded up to whole blocks of 16 MiB.
    pub send_bytes: u64,
    /// Bytes of receive rings, rounded up to whole blocks of 16 MiB.
    pub receive_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sockets: 1 << 16, waiters: 1024, send_bytes: 512 << 20, receive_bytes: 512 << 20 }
    }
}

impl Limits {
    fn geometry(&self) -> Geometry {
        let area = |bytes: u64| bytes.max(1).next_multiple_of(MAX_RING as u64);
        Geometry {
            sockets: self.sockets.max(2).next_multiple_of(2),
            waiters: self.waiters.max(1),
            commands: COMMANDS,
            events: EVENTS,
            send_bytes: area(self.send_bytes),
            receive_bytes: area(self.receive_bytes),
        }
    }
}

/// What an application needs to map its channel; to be sent with the welcome.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The sizes of the parts.
    pub geometry: Geometry,
    /// Segment A.
    pub a: BorrowedFd<'a>,
    /// Segment F.
    pub f: BorrowedFd<'a>,
    /// The eventfd that wakes the FEP.
    pub doorbell: BorrowedFd<'a>,
}

/// The memory files of a channel and its doorbell, as the FEP keeps them.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) a: OwnedFd,
    pub(super) f: OwnedFd,
    pub(super) doorbell: OwnedFd,
}

/// The segments as mapped by the FEP. The `Arc`s in everything that uses them keep them mapped.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) a: Arc<ReadMapping>,
    pub(super) f: Arc<WriteMapping>,
    pub(super) layout: Layout,
    pub(super) area: Area,
    /// How much of the area each socket may have.
    pub(super) budget: Arc<Budget>,
    /// A once more, to be written: only of an application that lends files.
    writable_a: OnceLock<WriteMapping>,
    /// The first offence that a ring found; the channel reports it.
    offence: OnceLock<Offence>,
}

/// Makes buffers for sockets of one application. Clones are the same application.
#[derive(Clone, Debug)]
pub struct Owner(pub(super) Arc<Shared>);

impl Owner {
    /// The rings of a TCP connection. They hold no memory yet.
    pub fn stream(&self) -> StreamRings {
        StreamRings::new(self.0.clone())
    }

    /// The rings of a UDP socket. They hold no memory yet.
    pub fn datagrams(&self) -> DatagramRings {
        DatagramRings::new(self.0.clone())
    }
}

/// Makes both segments, writes their headers, maps and seals them.
///
/// A needs no writable mapping yet: its header is written by the file. F is sealed against every later writable
/// mapping and every write by the file, so that ours stays the only way to write it. (The price: its pages cannot be punched
/// out again before the channel ends, and a worker that takes over needs a new F.)
pub(super) fn create(limits: &Limits, around: Option<&Arc<Budget>>) -> io::Result<(Files, Arc<Shared>)> {
    let geometry = limits.geometry();
    let layout = Layout::new(geometry).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "limits outside of the layout's bounds")
    })?;
    let a = memory_file("outboard-a", layout.a_len)?;
    pwrite(&a, &MAGIC_A.to_ne_bytes(), header_a::MAGIC as u64)?;
    pwrite(&a, &VERSION.to_ne_bytes(), header_a::VERSION as u64)?;
    let size = SealFlags::GROW | SealFlags::SHRINK;
    fcntl_add_seals(&a, size | SealFlags::SEAL)?;
    let f = memory_file("outboard-f", layout.f_len)?;
    fcntl_add_seals(&f, size)?;
    let (a_map, f_map) =
        (ReadMapping::new(a.as_fd(), layout.a_len)?, WriteMapping::new(f.as_fd(), layout.f_len)?);
    write_header(&f_map, &geometry);
    fcntl_add_seals(&f, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
    let f_map = Arc::new(f_map);
    let area = Area::new(f_map.clone(), layout.receive_area, geometry.receive_bytes as usize);
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let bytes = geometry.receive_bytes;
    let budget = around.map_or_else(|| Budget::new(bytes), |around| Budget::within(around, bytes));
    let shared = Shared {
        a: Arc::new(a_map),
        f: f_map,
        layout,
        area,
        budget,
        writable_a: OnceLock::new(),
        offence: OnceLock::new(),
    };
    Ok((Files { a, f, doorbell }, Arc::new(shared)))
}

fn memory_file(name: &str, len: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        other => other?,
    };
    ftruncate(&file, len as u64)?;
    Ok(file)
}

fn write_header(f: &WriteMapping, geometry: &Geometry) {
    let order = Ordering::Relaxed;
    f.word32(header_f::VERSION).store(VERSION, order);
    f.word32(header_f::SOCKETS).store(geometry.sockets, order);
    f.word32(header_f::WAITERS).store(geometry.waiters, order);
    f.word32(header_f::COMMANDS).store(geometry.commands, order);
    f.word32(header_f::EVENTS).store(geometry.events, order);
    f.word64(header_f::SEND_BYTES).store(geometry.send_bytes, order);
    f.word64(header_f::RECEIVE_BYTES).store(geometry.receive_bytes, order);
    f.word64(header_f::MAGIC).store(MAGIC_F, Ordering::Release);
}

impl Shared {
    /// Notes an offence that was found where it cannot be returned.
    pub(super) fn note(&self, offence: Offence) {
        // Only the first counts.
        let _ = self.offence.set(offence);
    }

    /// Makes A writable, so that lent files can be read into send rings.
    pub(super) fn open_a(&self, a: BorrowedFd<'_>) -> io::Result<()> {
        if self.writable_a.get().is_none() {
            // Whoever was first has mapped the same.
            let _ = self.writable_a.set(WriteMapping::new(a, self.layout.a_len)?);
        }
        Ok(())
    }

    /// A to be written, of an application that lends files.
    pub(super) fn writable_a(&self) -> Option<&WriteMapping> {
        self.writable_a.get()
    }

    pub(super) fn offence(&self) -> Option<Offence> {
        self.offence.get().copied()
    }

    /// Loads a word of a socket's record in A.
    pub(super) fn load_a(&self, socket: u32, field: usize, order: Ordering) -> u64 {
        self.a.load64(self.layout.record_a(socket) + field, order)
    }

    /// Loads a 32-bit word of a socket's record in A.
    pub(super) fn load_a32(&self, socket: u32, field: usize, order: Ordering) -> u32 {
        self.a.load32(self.layout.record_a(socket) + field, order)
    }

    /// Loads a word of a socket's record in F, which only this side writes.
    pub(super) fn load_f(&self, socket: u32, field: usize) -> u64 {
        self.f.load64(self.layout.record_f(socket) + field, Ordering::Relaxed)
    }

    /// Stores a word of a socket's record in F.
    pub(super) fn store_f(&self, socket: u32, field: usize, value: u64, order: Ordering) {
        self.f.word64(self.layout.record_f(socket) + field).store(value, order);
    }

    /// Brings a socket's record in F to its beginnings.
    pub(super) fn reset_record(&self, socket: u32) {
        for field in (0..record_f::SIZE).step_by(8) {
            self.store_f(socket, field, 0, Ordering::Relaxed);
        }
    }
}
