//! close, dup, fcntl, ioctl: what concerns a descriptor as such. The kernel does it to the real descriptor; the
//! table follows.

use std::ffi::{c_int, c_uint, c_ulong};

use libc::FILE;

use crate::calls::carried;
use crate::description::{Description, Kind, Phase};
use crate::table::{self, Held};
use crate::{errno, memory, real, runtime};

/// See close(2).
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn close(fd: c_int) -> c_int {
    if !table::contains(fd) || !table::in_own_process() {
        // SAFETY: no pointers.
        return unsafe { real::close(fd) };
    }
    // First out of the table: another thread may get the number at once.
    let closed = table::remove(fd);
    // SAFETY: no pointers.
    let status = unsafe { real::close(fd) };
    let errno = errno::get();
    drop(closed);
    errno::set(errno);
    status
}

/// See fclose(3): the C library closes the descriptor without passing here.
///
/// # Safety
/// `file` must be an open stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    if !file.is_null() && runtime::enabled() {
        // SAFETY: the caller's open stream.
        let fd = unsafe { libc::fileno(file) };
        if table::contains(fd) && table::in_own_process() {
            drop(table::remove(fd));
        }
    }
    // SAFETY: the caller's open stream.
    unsafe { real::fclose(file) }
}

/// See close_range(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: no pointers.
    let status = unsafe { real::close_range(first, last, flags) };
    if status == 0 && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        forget_range(first as usize, last as usize);
    }
    status
}

/// See closefrom(3).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn closefrom(first: c_int) {
    // SAFETY: no pointers.
    unsafe { real::closefrom(first) };
    forget_range(usize::try_from(first).unwrap_or(0), usize::MAX);
}

fn forget_range(first: usize, last: usize) {
    if runtime::enabled() && table::in_own_process() {
        for fd in table::within(first, last) {
            drop(table::remove(fd));
        }
    }
}

/// The copy shares the description.
fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && from != to && (table::contains(from) || table::contains(to)) && table::in_own_process() {
        drop(match table::find(from) {
            Some(held) => table::insert(to, held),
            None => table::remove(to),
        });
    }
    to
}

/// See dup(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: no pointers.
    copied(fd, unsafe { real::dup(fd) })
}

/// See dup(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: no pointers.
    copied(from, unsafe { real::dup2(from, to) })
}

/// See dup(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: no pointers.
    copied(from, unsafe { real::dup3(from, to, flags) })
}

/// See fcntl(2). In C its third argument is variadic; on Linux that passes an integer or a pointer as any other
/// third argument.
///
/// # Safety
/// A pointer in `argument` must be what `command` expects.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the caller's argument.
    let answer = unsafe { real::fcntl(fd, command, argument) };
    if answer < 0 || !table::contains(fd) {
        return answer;
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, answer),
        libc::F_SETFL => {
            let nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
            set_nonblocking(fd, nonblocking);
            answer
        }
        libc::F_GETFL => match table::find(fd).as_deref().and_then(Description::socket) {
            Some(socket) if socket.nonblocking() => answer | libc::O_NONBLOCK,
            Some(_) => answer & !libc::O_NONBLOCK,
            None => answer,
        },
        _ => answer,
    }
}

/// See fcntl(2).
///
/// # Safety
/// As [`fcntl`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { fcntl(fd, command, argument) }
}

/// The program sees its own choice; a kernel listener beside one of the stack's stays non-blocking.
fn set_nonblocking(fd: c_int, nonblocking: bool) {
    let held = table::find(fd);
    let Some(socket) = held.as_deref().and_then(Description::socket) else { return };
    socket.set_nonblocking(nonblocking);
    if socket.phase() == Phase::Both && socket.kind == Kind::Stream && !nonblocking {
        // SAFETY: no pointers.
        unsafe {
            let flags = real::fcntl(fd, libc::F_GETFL, 0);
            real::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as c_ulong);
        }
    }
}

/// See ioctl(2). Variadic in C, as [`fcntl`].
///
/// # Safety
/// A pointer in `argument` must be what `request` expects.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int {
    if table::contains(fd) {
        let held = table::find(fd);
        let address = std::ptr::with_exposed_provenance_mut::<c_int>(argument as usize);
        if matches!(request, libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD)
            && carried(held.as_ref()).is_some_and(|(_, outboard)| outboard.is_listening())
        {
            return errno::fail(libc::EINVAL);
        }
        if let Some(at_mark) = (request == SIOCATMARK).then(|| is_at_mark(held.as_ref())).flatten() {
            // SAFETY: this request takes a pointer to an int.
            return errno::status(unsafe {
                memory::store(&c_int::from(at_mark).to_ne_bytes(), address.cast())
            });
        }
        if let Some(answer) = answer(held.as_ref(), request) {
            // SAFETY: these requests take a pointer to an int.
            return errno::status(unsafe { memory::store(&answer.to_ne_bytes(), address.cast()) });
        }
        if request == libc::FIONBIO as c_ulong && !address.is_null() {
            // SAFETY: the caller's argument.
            let status = unsafe { real::ioctl(fd, request, argument) };
            if status == 0 {
                // SAFETY: this request takes a pointer to an int.
                set_nonblocking(fd, unsafe { address.read_unaligned() } != 0);
            }
            return status;
        }
    }
    // SAFETY: the caller's argument.
    unsafe { real::ioctl(fd, request, argument) }
}

// Not among libc's constants.
const SIOCATMARK: c_ulong = 0x8905;
const SIOCOUTQNSD: c_ulong = 0x894b;

/// Whether the next byte of a stream that the stack carries is the urgent one.
fn is_at_mark(held: Option<&Held>) -> Option<bool> {
    let (socket, outboard) = carried(held)?;
    (socket.kind == Kind::Stream).then(|| outboard.is_at_mark())
}

/// See sockatmark(3), which asks the kernel without passing here.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn sockatmark(fd: c_int) -> c_int {
    let mut at_mark: c_int = 0;
    let address = (&raw mut at_mark).expose_provenance() as c_ulong;
    // SAFETY: the request takes a pointer to an int.
    if unsafe { ioctl(fd, SIOCATMARK, address) } < 0 { -1 } else { at_mark }
}

/// How much waits to be received (`FIONREAD`), to be acknowledged (`SIOCOUTQ`) or, on a stream, to be sent (`SIOCOUTQNSD`).
fn answer(held: Option<&Held>, request: c_ulong) -> Option<c_int> {
    let (socket, outboard) = carried(held)?;
    let bytes = match request {
        libc::FIONREAD => outboard.receivable(),
        libc::TIOCOUTQ => outboard.unacknowledged(),
        SIOCOUTQNSD if socket.kind == Kind::Stream => outboard.unsent(),
        _ => return None,
    };
    if bytes == 0 && socket.phase() == Phase::Both {
        return None; // the kernel's side may have some
    }
    Some(c_int::try_from(bytes).unwrap_or(c_int::MAX))
}

/// See _exit(2): a stack inside the process delivers what was queued before.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _exit(status: c_int) -> ! {
    runtime::flush_at_exit();
    // SAFETY: no pointers; the process ends here.
    unsafe {
        real::_exit(status);
        libc::syscall(libc::SYS_exit_group, status);
    }
    std::process::abort()
}

/// See _exit(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
