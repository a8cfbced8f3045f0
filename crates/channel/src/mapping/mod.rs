//! Mapped segments: the only place where shared memory is reached, and where unsafe code stands in this crate.
//!
//! A mapping is mapped in one piece for its whole length, of a memory file that is sealed against shrinking; so every
//! offset below the length stays readable (and writable, in a [`WriteMapping`]) until the mapping is dropped. Every
//! access checks its offset against the length: an offset that is wrong is a fault of ours, since nothing that the
//! other side wrote is used as an offset before it was validated, and stops the program rather than reading elsewhere.
//!
//! Words are reached as atomics, so that a concurrent store by the other process is no data race. Bytes of streams are
//! copied or lent as slices under the conditions at [`ReadMapping::bytes`].

mod area;
mod buddy;
pub(crate) mod copy;

use core::ffi::c_void;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

pub(crate) use area::{Area, Lease};
pub use buddy::MemoryUse;

/// A segment that may only be read.
#[derive(Debug)]
pub(crate) struct ReadMapping {
    base: NonNull<u8>,
    len: usize,
}

/// A segment that may be read and written.
#[derive(Debug)]
pub(crate) struct WriteMapping(ReadMapping);

// SAFETY: a mapping is memory that belongs to the process, not to a thread. Its words are reached as atomics only; its
// bytes under the rules of `bytes` and of leases, which do not depend on the thread.
unsafe impl Send for ReadMapping {}
// SAFETY: as above.
unsafe impl Sync for ReadMapping {}

impl ReadMapping {
    /// Maps the first `len` bytes of a memory file, which must be sealed against shrinking.
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::map(file, len, ProtFlags::READ)
    }

    fn map(file: BorrowedFd<'_>, len: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let address = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The word at `offset`, to be loaded (or waited on) only: the memory may be read-only.
    pub(crate) fn word32_to_load(&self, offset: usize) -> &AtomicU32 {
        let place = self.at(offset, size_of::<AtomicU32>(), align_of::<AtomicU32>());
        // SAFETY: `at` checked bounds and alignment; the memory is mapped as long as `self`; atomics tolerate that the
        // other process stores to it. Loads of this size never write, so read-only memory is fine.
        unsafe { place.cast::<AtomicU32>().as_ref() }
    }

    fn word64_to_load(&self, offset: usize) -> &AtomicU64 {
        let place = self.at(offset, size_of::<AtomicU64>(), align_of::<AtomicU64>());
        // SAFETY: as in `word32_to_load`.
        unsafe { place.cast::<AtomicU64>().as_ref() }
    }

    pub(crate) fn load32(&self, offset: usize, order: Ordering) -> u32 {
        self.word32_to_load(offset).load(order)
    }

    pub(crate) fn load64(&self, offset: usize, order: Ordering) -> u64 {
        self.word64_to_load(offset).load(order)
    }

    /// Copies `N` words; each is read once. Together they may be a mixture of what the other side wrote.
    pub(crate) fn load_words<const N: usize>(&self, offset: usize) -> [u64; N] {
        core::array::from_fn(|index| self.load64(offset + index * 8, Ordering::Relaxed))
    }

    /// Stream bytes as a slice.
    ///
    /// Two kinds of callers: an application that reads received bytes, which the FEP does not write again before they are
    /// consumed; and the FEP that transmits from a send ring, which a hostile application may write at any moment. In the
    /// second case the slice's contents may change while it exists, which Rust does not define. It is sound enough
    /// because of what happens to these slices: they are handed to `writev`, or copied or summed byte for byte in
    /// one pass, by code that takes no decision (no index, no length, no branch) from their contents. A changing byte
    /// can only become another byte on the wire, of the application's own stream. Nothing may ever parse such a slice.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let place = self.at(offset, len, 1);
        // SAFETY: in bounds (checked by `at`), initialised (memory files are zero at first), mapped as long as `self`.
        // For concurrent writes see above.
        unsafe { core::slice::from_raw_parts(place.as_ptr(), len) }
    }

    fn at(&self, offset: usize, size: usize, align: usize) -> NonNull<u8> {
        assert!(
            offset.is_multiple_of(align) && offset <= self.len && size <= self.len - offset,
            "offset {offset} + {size} lies outside of a segment of {} bytes",
            self.len
        );
        // SAFETY: the assertion keeps the result within the mapping.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for ReadMapping {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping that `map` made, and no reference into it outlives `self`. Unmapping can only
        // fail for arguments that mmap did not give.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

impl Deref for WriteMapping {
    type Target = ReadMapping;

    fn deref(&self) -> &ReadMapping {
        &self.0
    }
}

impl WriteMapping {
    /// Maps the first `len` bytes of a memory file, which must be (or at once become) sealed against shrinking.
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        ReadMapping::map(file, len, ProtFlags::READ | ProtFlags::WRITE).map(Self)
    }

    /// The word at `offset`.
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        self.word32_to_load(offset)
    }

    /// The word at `offset`.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        self.word64_to_load(offset)
    }

    /// Reads from a file into at most two places (offset and length), in their order; how many bytes. 0: the file ends there.
    /// `EAGAIN` if that would have to wait for storage, unless it may.
    ///
    /// The bytes are written by the kernel and never looked at here, so it does not matter who else writes there.
    pub(crate) fn read_file(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        places: [(usize, usize); 2],
        may_wait: bool,
    ) -> io::Result<usize> {
        let flags = if may_wait { 0 } else { libc::RWF_NOWAIT };
        let vectors = places.map(|(start, len)| libc::iovec {
            iov_base: self.at(start, len, 1).as_ptr().cast::<c_void>(),
            iov_len: len,
        });
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: both vectors lie in this mapping, which is writable and stays mapped during the call; no reference to
        // its bytes exists on this side while it fills a ring (see `fep::send`).
        let count = unsafe { libc::preadv2(file.as_raw_fd(), vectors.as_ptr(), 2, offset, flags) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Copies bytes to `offset`. They lie elsewhere: in private memory, or in another lease.
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let mut place = self.at(offset, bytes.len(), 1).as_ptr();
        for piece in bytes.chunks(copy::piece_size(place, bytes)) {
            // SAFETY: in bounds of this writable mapping, whose place the pieces fill one after the other and do not overlap. A raw
            // copy, as the other process may be reading.
            unsafe {
                ptr::copy_nonoverlapping(piece.as_ptr(), place, piece.len());
                place = place.add(piece.len());
            }
        }
    }

    /// Stores words, each by itself.
    pub(crate) fn store_words<const N: usize>(&self, offset: usize, words: [u64; N]) {
        for (index, word) in words.into_iter().enumerate() {
            self.word64(offset + index * 8).store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
