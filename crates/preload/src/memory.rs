//! Reading and writing where the program points, as the kernel does: a pointer to nowhere is an `EFAULT`.
//!
//! Only for small values in calls that are not of the data path: the kernel is asked to copy, which costs a system call.
//! What lies a little above on the caller's stack is simply there.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;

use libc::iovec;

use crate::errno;

/// How far above the end of the stack a pointer is believed.
const NEAR: usize = 64 << 10;

/// Whether an address is the kernel's half, where no program has anything. The cheap part of the check, for buffers of data.
pub(crate) fn is_beyond(address: *const c_void, length: usize) -> bool {
    let end = (address as usize).checked_add(length);
    end.is_none_or(|end| end > isize::MAX as usize)
}

fn is_on_the_stack(address: usize) -> bool {
    let here = 0u8;
    address.wrapping_sub(&raw const here as usize) < NEAR
}

/// A value from where the program points.
///
/// # Errors
/// `EFAULT`
///
/// # Safety
/// `T` must consist of integers only. Where the kernel may not be asked, the pointer must be good.
pub(crate) unsafe fn fetch<T: Copy>(from: *const T) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the caller's pointer; the place has room for it.
    unsafe {
        copy(from.cast(), value.as_mut_ptr().cast(), size_of::<T>(), libc::process_vm_readv, from.cast())?;
        Ok(value.assume_init())
    }
}

/// Bytes to where the program points.
///
/// # Errors
/// `EFAULT`
///
/// # Safety
/// Where the kernel may not be asked, `to` must have room for them.
pub(crate) unsafe fn store(bytes: &[u8], to: *mut c_void) -> io::Result<()> {
    // SAFETY: the caller's pointer; the bytes are readable.
    unsafe { copy(bytes.as_ptr().cast(), to, bytes.len(), libc::process_vm_writev, to) }
}

/// The kernel's copy between two places of this process.
type Copying = unsafe extern "C" fn(
    libc::pid_t,
    *const iovec,
    libc::c_ulong,
    *const iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

/// # Safety
/// As the callers'; `theirs` is the end that the program named.
unsafe fn copy(
    from: *const c_void,
    to: *mut c_void,
    length: usize,
    copying: Copying,
    theirs: *const c_void,
) -> io::Result<()> {
    if theirs.is_null() || is_beyond(theirs, length) {
        return Err(errno::error(libc::EFAULT));
    }
    if !is_on_the_stack(theirs as usize) {
        let ours = if std::ptr::eq(theirs, from) { to } else { from.cast_mut() };
        let local = iovec { iov_base: ours, iov_len: length };
        let remote = iovec { iov_base: theirs.cast_mut(), iov_len: length };
        let before = errno::get();
        // SAFETY: the lists live during the call; the kernel checks the places.
        let copied = unsafe { copying(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        if copied == length as isize {
            return Ok(());
        }
        if copied >= 0 || errno::get() == libc::EFAULT {
            return Err(errno::error(libc::EFAULT));
        }
        errno::set(before); // a sandbox forbids it: the pointer is believed
    }
    // SAFETY: the caller says so.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), length) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_and_go_and_nowhere_is_an_error() {
        let boxed = Box::new(0x0102_0304_u32);
        // SAFETY: a good pointer.
        assert_eq!(unsafe { fetch(&raw const *boxed) }.unwrap(), 0x0102_0304);
        let mut place = vec![0u8; 4];
        // SAFETY: as above.
        unsafe { store(&[1, 2, 3], place.as_mut_ptr().cast()) }.unwrap();
        assert_eq!(place, [1, 2, 3, 0]);
        let (nowhere, beyond) = (8 as *mut u32, usize::MAX as *mut u32);
        for bad in [std::ptr::null_mut(), nowhere, beyond] {
            // SAFETY: the kernel, which may be asked here, says that there is nothing.
            let (fetched, stored) = unsafe { (fetch(bad.cast_const()), store(&[0], bad.cast())) };
            assert_eq!(fetched.unwrap_err().raw_os_error(), Some(libc::EFAULT));
            assert_eq!(stored.unwrap_err().raw_os_error(), Some(libc::EFAULT));
        }
    }
}
