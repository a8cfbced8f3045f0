//! Between `io::Result` and the C convention of -1 and `errno`.

use std::ffi::c_int;
use std::io;

/// Sets `errno`.
pub(crate) fn set(errno: c_int) {
    // SAFETY: the location is this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// The value of `errno`.
pub(crate) fn get() -> c_int {
    // SAFETY: the location is this thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno` and gives -1.
pub(crate) fn fail(errno: c_int) -> c_int {
    set(errno);
    -1
}

/// The `errno` of an error; one without (made up by a library) is an `EIO`.
pub(crate) fn of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::Interrupted => libc::EINTR,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::NotConnected => libc::ENOTCONN,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::BrokenPipe => libc::EPIPE,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    })
}

/// An error number as an `io::Error`.
pub(crate) fn error(errno: c_int) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Whether the error says "not now".
pub(crate) fn is_again(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// What a C function returns for a count of bytes or events.
pub(crate) fn count(result: io::Result<usize>) -> isize {
    match result {
        Ok(count) => isize::try_from(count).unwrap_or(isize::MAX),
        Err(error) => {
            set(of(&error));
            -1
        }
    }
}

/// What a C function returns for success or not.
pub(crate) fn status(result: io::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => fail(of(&error)),
    }
}
