//! syscall(2): programs that pass the C library's wrappers by, but not its `syscall`. libuv closes its descriptors so, and
//! receives and sends datagrams.
//!
//! Only calls whose arguments are those of the C function are taken over; what a signal mask or a file's offset makes
//! different goes to the kernel.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use libc::{iovec, socklen_t};

use crate::{calls, connection, descriptor, epoll, message, options, poll, real, sendfile, splice, table};

/// An argument as each of its possible types.
#[derive(Clone, Copy)]
struct Argument(c_ulong);

impl Argument {
    fn pointer<T>(self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0 as usize)
    }

    fn int(self) -> c_int {
        self.0 as c_int
    }

    fn unsigned(self) -> c_uint {
        self.0 as c_uint
    }

    fn size(self) -> usize {
        self.0 as usize
    }
}

/// See syscall(2). Variadic in C; as with [`descriptor::fcntl`], what was not passed is read and handed on as it is.
///
/// # Safety
/// The arguments must be what the call expects.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    // Nothing here depends on whether this library is set up: what sets it up makes system calls, too.
    let arguments = [a, b, c, d, e, f].map(Argument);
    let ours = table::contains(arguments[0].int());
    // SAFETY: the caller's arguments.
    let answer = unsafe {
        match ours {
            true => of_data(number, arguments).or_else(|| of_sockets(number, arguments)),
            false => None,
        }
        .or_else(|| of_any(number, arguments))
    };
    if let Some(answer) = answer {
        return answer;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

/// Reading, writing, receiving and sending.
///
/// # Safety
/// As [`syscall`].
unsafe fn of_data(number: c_long, [a, b, c, d, e, f]: [Argument; 6]) -> Option<c_long> {
    let fd = a.int();
    // SAFETY: the caller's arguments, in the order and of the types of the C function.
    let count = unsafe {
        match number {
            libc::SYS_read => calls::read(fd, b.pointer(), c.size()),
            libc::SYS_write => calls::write(fd, b.pointer(), c.size()),
            libc::SYS_readv => calls::readv(fd, b.pointer::<iovec>(), c.int()),
            libc::SYS_writev => calls::writev(fd, b.pointer::<iovec>(), c.int()),
            libc::SYS_recvfrom => {
                calls::recvfrom(fd, b.pointer(), c.size(), d.int(), e.pointer(), f.pointer())
            }
            libc::SYS_sendto => {
                let length = f.unsigned() as socklen_t;
                calls::sendto(fd, b.pointer(), c.size(), d.int(), e.pointer(), length)
            }
            libc::SYS_recvmsg => message::recvmsg(fd, b.pointer(), c.int()),
            libc::SYS_sendmsg => message::sendmsg(fd, b.pointer(), c.int()),
            libc::SYS_recvmmsg => {
                message::recvmmsg(fd, b.pointer(), c.unsigned(), d.int(), e.pointer()) as isize
            }
            libc::SYS_sendmmsg => message::sendmmsg(fd, b.pointer(), c.unsigned(), d.int()) as isize,
            _ => return None,
        }
    };
    Some(count as c_long)
}

/// Naming, tuning, watching and closing.
///
/// # Safety
/// As [`syscall`].
unsafe fn of_sockets(number: c_long, [a, b, c, d, e, _]: [Argument; 6]) -> Option<c_long> {
    let fd = a.int();
    // SAFETY: the caller's arguments, in the order and of the types of the C function.
    let status = unsafe {
        match number {
            libc::SYS_close => descriptor::close(fd),
            libc::SYS_dup => descriptor::dup(fd),
            libc::SYS_fcntl => descriptor::fcntl(fd, b.int(), c.0),
            libc::SYS_ioctl => descriptor::ioctl(fd, b.0, c.0),
            libc::SYS_bind => connection::bind(fd, b.pointer(), c.unsigned()),
            libc::SYS_listen => connection::listen(fd, b.int()),
            libc::SYS_connect => connection::connect(fd, b.pointer(), c.unsigned()),
            libc::SYS_shutdown => connection::shutdown(fd, b.int()),
            libc::SYS_getsockname => connection::getsockname(fd, b.pointer(), c.pointer()),
            libc::SYS_getpeername => connection::getpeername(fd, b.pointer(), c.pointer()),
            libc::SYS_getsockopt => {
                options::getsockopt(fd, b.int(), c.int(), d.pointer::<c_void>(), e.pointer())
            }
            libc::SYS_setsockopt => {
                options::setsockopt(fd, b.int(), c.int(), d.pointer::<c_void>(), e.unsigned())
            }
            libc::SYS_epoll_ctl => epoll::calls::epoll_ctl(fd, b.int(), c.int(), d.pointer()),
            libc::SYS_epoll_pwait if e.0 == 0 => epoll::calls::epoll_wait(fd, b.pointer(), c.int(), d.int()),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => epoll::calls::epoll_wait(fd, b.pointer(), c.int(), d.int()),
            _ => return None,
        }
    };
    Some(status.into())
}

/// What makes descriptors, or concerns several.
///
/// # Safety
/// As [`syscall`].
unsafe fn of_any(number: c_long, [a, b, c, d, e, f]: [Argument; 6]) -> Option<c_long> {
    let fd = a.int();
    // SAFETY: as above.
    Some(unsafe {
        match number {
            libc::SYS_socket => connection::socket(fd, b.int(), c.int()).into(),
            libc::SYS_accept4 => connection::accept4(fd, b.pointer(), c.pointer(), d.int()).into(),
            libc::SYS_accept => connection::accept(fd, b.pointer(), c.pointer()).into(),
            libc::SYS_dup3 => descriptor::dup3(fd, b.int(), c.int()).into(),
            libc::SYS_close_range => descriptor::close_range(a.unsigned(), b.unsigned(), c.int()).into(),
            libc::SYS_epoll_create1 => epoll::calls::epoll_create1(fd).into(),
            libc::SYS_sendfile => sendfile::sendfile(fd, b.int(), c.pointer(), d.size()) as c_long,
            libc::SYS_splice => {
                splice::splice(fd, b.pointer(), c.int(), d.pointer(), e.size(), f.unsigned()) as c_long
            }
            libc::SYS_ppoll if d.0 == 0 => {
                poll::ppoll(a.pointer(), b.0, c.pointer(), std::ptr::null()).into()
            }
            _ => return of_old_calls(number, [a, b, c, d, e, f]),
        }
    })
}

/// Calls that only the older architectures have.
///
/// # Safety
/// As [`syscall`].
#[cfg(target_arch = "x86_64")]
unsafe fn of_old_calls(number: c_long, [a, b, c, d, e, _]: [Argument; 6]) -> Option<c_long> {
    let fd = a.int();
    // SAFETY: as above.
    let status = unsafe {
        match number {
            libc::SYS_dup2 => descriptor::dup2(fd, b.int()),
            libc::SYS_poll => poll::poll(a.pointer(), b.0, c.int()),
            libc::SYS_select => crate::select::select(fd, b.pointer(), c.pointer(), d.pointer(), e.pointer()),
            libc::SYS_epoll_create => epoll::calls::epoll_create(fd),
            _ => return None,
        }
    };
    Some(status.into())
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn of_old_calls(_: c_long, _: [Argument; 6]) -> Option<c_long> {
    None
}
