//! The data area of a segment, and the leases of ring memory in it.
//!
//! An area belongs to the side that writes its segment. Leases never overlap (the allocator is private to that side) and
//! give their memory back when dropped; so whoever holds a lease may write all of it, and nobody else of this process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::Span;
use rustix::fs::{FallocateFlags, fallocate};

use super::buddy::{Buddy, MemoryUse};
use super::{ReadMapping, WriteMapping};
use crate::layout::{PAGE, PAGE_LOG2, RingLocation};

/// Free blocks below this are not worth a system call to give their pages back.
const TRIM_BYTES: usize = 64 << 10;

/// A data area; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Area(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mapping: Arc<WriteMapping>,
    start: usize,
    blocks: Mutex<Buddy>,
}

/// Memory for one ring. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    area: Arc<Inner>,
    page: u32,
    log2: u32,
}

impl Area {
    /// The area of `len` bytes at `start` of a segment, both whole pages.
    pub(crate) fn new(mapping: Arc<WriteMapping>, start: usize, len: usize) -> Self {
        assert!(start.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && start + len <= mapping.len());
        let blocks = Mutex::new(Buddy::new((len >> PAGE_LOG2) as u32));
        Self(Arc::new(Inner { mapping, start, blocks }))
    }

    /// Memory for a ring of `1 << log2` bytes.
    pub(crate) fn lease(&self, log2: u32) -> Option<Lease> {
        let page = self.0.blocks().allocate(log2.checked_sub(PAGE_LOG2)?)?;
        Some(Lease { area: self.0.clone(), page, log2 })
    }

    /// What is leased.
    pub(crate) fn memory(&self) -> MemoryUse {
        self.0.blocks().memory()
    }

    /// Gives the pages of large free blocks back to the system; `file` is the segment's. Returns the bytes.
    pub(crate) fn trim(&self, file: &OwnedFd) -> io::Result<u64> {
        // The lock is held meanwhile: a block must not be leased before its pages are gone.
        let mut blocks = self.0.blocks();
        let mut bytes = 0;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        while let Some((page, pages)) = blocks.take_dirty(TRIM_BYTES >> PAGE_LOG2) {
            let (offset, len) = (self.0.start + page as usize * PAGE, u64::from(pages) << PAGE_LOG2);
            fallocate(file.as_fd(), flags, offset as u64, len)?;
            bytes += len;
        }
        Ok(bytes)
    }
}

impl Inner {
    fn blocks(&self) -> MutexGuard<'_, Buddy> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// The ring's size.
    pub(crate) fn size(&self) -> usize {
        1 << self.log2
    }

    /// Where it lies, for the other side.
    pub(crate) fn location(&self, generation: u32) -> RingLocation {
        RingLocation::new(self.offset(), self.log2, generation)
    }

    /// Copies bytes into the ring at the stream offset `offset`, around its end if need be. `bytes` is at most the
    /// ring's size.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.size());
        let [first, second] = ring::spans(offset, bytes.len(), self.size());
        self.copy_in(first, &bytes[..first.len]);
        self.copy_in(second, &bytes[first.len..first.len + second.len]);
    }

    /// Copies the stream's bytes `[from, to)` out of another ring to their places in this one.
    pub(crate) fn copy_from(&mut self, other: &Lease, from: u64, to: u64) {
        debug_assert!(to - from <= other.size() as u64 && to - from <= self.size() as u64);
        let [first, second] = ring::spans(from, (to - from) as usize, other.size());
        self.write(from, other.slice(first));
        self.write(from + first.len as u64, other.slice(second));
    }

    /// A piece of the ring. Nothing else writes it: the other side cannot, and this side needs `&mut self` for it.
    pub(crate) fn slice(&self, span: Span) -> &[u8] {
        self.check(span);
        self.mapping().bytes(self.offset() + span.start, span.len)
    }

    /// A piece of the ring, to write.
    pub(crate) fn slice_mut(&mut self, span: Span) -> &mut [u8] {
        self.check(span);
        let place = self.mapping().at(self.offset() + span.start, span.len, 1).as_ptr();
        // SAFETY: in bounds of a writable mapping; the memory is leased to this lease alone, which is mutably borrowed,
        // so no other reference of this process reaches it. The other process only reads it (it cannot write this
        // segment), and by the protocol not before the bytes are committed.
        unsafe { core::slice::from_raw_parts_mut(place, span.len) }
    }

    fn copy_in(&mut self, span: Span, bytes: &[u8]) {
        self.check(span);
        assert_eq!(span.len, bytes.len());
        // The place is leased to this lease alone, and a slice of it would have borrowed the lease: `bytes` are elsewhere.
        self.area.mapping.copy_in(self.offset() + span.start, bytes);
    }

    fn check(&self, span: Span) {
        assert!(span.start <= self.size() && span.len <= self.size() - span.start);
    }

    fn offset(&self) -> usize {
        self.area.start + self.page as usize * PAGE
    }

    fn mapping(&self) -> &ReadMapping {
        &self.area.mapping
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.area.blocks().free(self.page, self.log2 - PAGE_LOG2);
    }
}
