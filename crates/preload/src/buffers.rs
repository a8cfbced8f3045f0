//! The program's buffers as slices, checked as the kernel does before it looks at the socket.

use std::ffi::c_void;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::{Deref, DerefMut};

use libc::{iovec, size_t};

use crate::{errno, memory};

/// The most buffers of one call, as in the kernel (`UIO_MAXIOV`).
pub(crate) const MAX_BUFFERS: usize = 1024;

/// A buffer of the program's as a slice.
///
/// # Safety
/// `buffer` must point to `length` writable bytes, or be null.
pub(crate) unsafe fn slice_mut<'a>(buffer: *mut c_void, length: size_t) -> io::Result<&'a mut [u8]> {
    match (memory::is_beyond(buffer, length) || buffer.is_null(), length) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(errno::error(libc::EFAULT)),
        (false, _) => {
            // SAFETY: the caller says so; the kernel would write the same bytes, and no more than isize::MAX exist.
            Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length.min(isize::MAX as usize)) })
        }
    }
}

/// A buffer of the program's as a slice to read.
///
/// # Safety
/// `buffer` must point to `length` readable bytes, or be null.
pub(crate) unsafe fn slice<'a>(buffer: *const c_void, length: size_t) -> io::Result<&'a [u8]> {
    match (memory::is_beyond(buffer, length) || buffer.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(errno::error(libc::EFAULT)),
        (false, _) => {
            // SAFETY: the caller says so.
            Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), length.min(isize::MAX as usize)) })
        }
    }
}

/// A list of buffers: the program's own, or one made of it where that holds what no slice may be.
pub(crate) enum List<'a, T> {
    /// As the program gave it.
    Given(&'a mut [T]),
    /// Without empty buffers that are nowhere.
    Made(Vec<T>),
}

impl<T> Deref for List<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Given(list) => list,
            Self::Made(list) => list,
        }
    }
}

impl<T> DerefMut for List<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Given(list) => list,
            Self::Made(list) => list,
        }
    }
}

/// The program's list of buffers to receive into.
///
/// # Safety
/// `buffers` must point to `count` descriptions of writable memory.
pub(crate) unsafe fn lists_mut<'a>(
    buffers: *const iovec,
    count: usize,
) -> io::Result<List<'a, IoSliceMut<'a>>> {
    // SAFETY: `IoSliceMut` has the layout of `iovec` (std says so); the caller vouches for the memory.
    unsafe { list_of(buffers, count, |part| Ok(IoSliceMut::new(slice_mut(part.iov_base, part.iov_len)?))) }
}

/// The program's list of buffers to send.
///
/// # Safety
/// `buffers` must point to `count` descriptions of readable memory.
pub(crate) unsafe fn lists<'a>(buffers: *const iovec, count: usize) -> io::Result<List<'a, IoSlice<'a>>> {
    // SAFETY: `IoSlice` has the layout of `iovec` (std says so); the caller vouches for the memory. Nothing writes to the list.
    unsafe { list_of(buffers, count, |part| Ok(IoSlice::new(slice(part.iov_base, part.iov_len)?))) }
}

/// The program's list, or one whose slices `slice_of` makes.
///
/// # Safety
/// `T` must have the layout of `iovec`, and `buffers` point to `count` descriptions of memory that a `T` may be of.
unsafe fn list_of<'a, T>(
    buffers: *const iovec,
    count: usize,
    slice_of: impl Fn(&iovec) -> io::Result<T>,
) -> io::Result<List<'a, T>> {
    // SAFETY: the caller says so.
    match unsafe { check_list(buffers, count)? } {
        Some([]) => Ok(List::Given(&mut [])),
        Some(_) => {
            // SAFETY: the caller says so.
            let given = unsafe { std::slice::from_raw_parts_mut(buffers.cast_mut().cast(), count) };
            Ok(List::Given(given))
        }
        None => {
            // SAFETY: the list was read by the check.
            let parts = unsafe { std::slice::from_raw_parts(buffers, count) }.iter();
            let made = parts.filter(|part| part.iov_len > 0).map(slice_of);
            Ok(List::Made(made.collect::<io::Result<_>>()?))
        }
    }
}

/// The list, if each of its buffers may be a slice. `None`: some are nowhere; they are empty, or an error later.
///
/// # Errors
/// `EINVAL`: there are too many of them, or one has a negative length. `EFAULT`: the list is nowhere, or a buffer lies in the
/// kernel's half.
///
/// # Safety
/// `buffers` must point to `count` descriptions.
unsafe fn check_list<'a>(buffers: *const iovec, count: usize) -> io::Result<Option<&'a [iovec]>> {
    if count > MAX_BUFFERS {
        return Err(errno::error(libc::EINVAL));
    }
    if count == 0 {
        return Ok(Some(&[]));
    }
    if buffers.is_null() || memory::is_beyond(buffers.cast(), count * size_of::<iovec>()) {
        return Err(errno::error(libc::EFAULT));
    }
    // SAFETY: the caller says so.
    let list = unsafe { std::slice::from_raw_parts(buffers, count) };
    let mut good = true;
    for part in list {
        if part.iov_len > isize::MAX as usize {
            return Err(errno::error(libc::EINVAL));
        }
        if memory::is_beyond(part.iov_base, part.iov_len) {
            return Err(errno::error(libc::EFAULT));
        }
        good &= !part.iov_base.is_null();
    }
    Ok(good.then_some(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno_of<T>(outcome: io::Result<T>) -> Option<i32> {
        outcome.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn lists_are_judged_as_by_the_kernel() {
        let mut bytes = *b"abc";
        let part = |base: *mut u8, length| iovec { iov_base: base.cast(), iov_len: length };
        let good = part(bytes.as_mut_ptr(), 3);
        let empty = part(std::ptr::null_mut(), 0);
        let nowhere = part(std::ptr::null_mut(), 1);
        let negative = part(bytes.as_mut_ptr(), usize::MAX);
        let of_the_kernel = part(std::ptr::without_provenance_mut(1 << 63), 1);
        // SAFETY: what is not refused describes the bytes above.
        unsafe {
            assert_eq!(lists([good, empty, good].as_ptr(), 3).unwrap().len(), 2);
            assert_eq!(*lists_mut([empty, good].as_ptr(), 2).unwrap()[0], *b"abc");
            assert!(lists(std::ptr::null(), 0).unwrap().is_empty());
            assert_eq!(errno_of(lists(std::ptr::null(), 1)), Some(libc::EFAULT));
            assert_eq!(errno_of(lists([good, nowhere].as_ptr(), 2)), Some(libc::EFAULT));
            assert_eq!(errno_of(lists([good, negative].as_ptr(), 2)), Some(libc::EINVAL));
            assert_eq!(errno_of(lists_mut([good, of_the_kernel].as_ptr(), 2)), Some(libc::EFAULT));
            assert_eq!(errno_of(lists_mut([good; 1025].as_ptr(), 1025)), Some(libc::EINVAL));
        }
    }
}
