//! The receive and send families of the C library, and read and write.

use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;

use libc::{iovec, off_t, size_t, sockaddr, socklen_t, ssize_t};
use outboard::raw;

use crate::buffers::{lists, lists_mut, slice, slice_mut};
use crate::description::{Description, InetSocket, Kind, Phase};
use crate::runtime::{Side, side_of_peer};
use crate::table::{self, Held};
use crate::transfer::{self, Received};
use crate::{connection, errno, fast_open, memory, real, sockaddr as address_of};

/// The socket and its stack's side, if the stack carries traffic for it.
pub(crate) fn carried(held: Option<&Held>) -> Option<(&InetSocket, &raw::Socket)> {
    let socket = held.map(|held| &**held).and_then(Description::socket)?;
    Some((socket, socket.outboard()?))
}

/// Receives into one buffer. `None`: the kernel is to be asked.
///
/// # Safety
/// `buffer` must point to `length` writable bytes.
unsafe fn receive_one(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> Option<io::Result<(Received, crate::sockaddr::Family)>> {
    let held = table::find(fd);
    let (socket, outboard) = carried(held.as_ref())?;
    if transfer::only_counts(socket, flags) {
        return Some(
            transfer::count(socket, outboard, length, flags).map(|received| (received, socket.family)),
        );
    }
    // SAFETY: the caller says so.
    let buffer = match unsafe { slice_mut(buffer, length) } {
        Ok(buffer) => buffer,
        Err(error) => return Some(Err(error)),
    };
    let received = transfer::receive(fd, socket, outboard, &mut [IoSliceMut::new(buffer)], flags);
    received.transpose().map(|received| received.map(|received| (received, socket.family)))
}

/// See recv(2).
///
/// # Safety
/// `buffer` must have room for `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's buffer.
    match unsafe { receive_one(fd, buffer, length, flags) } {
        Some(received) => errno::count(received.map(|(received, _)| received.count)),
        // SAFETY: as above.
        None => unsafe { real::recv(fd, buffer, length, flags) },
    }
}

/// See recv(2).
///
/// # Safety
/// As [`recv`]; `address` null, or with its room in `address_length`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's buffer.
    let received = match unsafe { receive_one(fd, buffer, length, flags) } {
        Some(received) => received,
        // SAFETY: as above.
        None => return unsafe { real::recvfrom(fd, buffer, length, flags, address, address_length) },
    };
    errno::count(received.and_then(|(received, family)| {
        match received.remote {
            // SAFETY: the caller's pointers.
            Some(remote) => unsafe { address_of::write(remote, family, address, address_length)? },
            // SAFETY: as above.
            None => unsafe { address_of::write_none(address, address_length)? },
        }
        Ok(received.count)
    }))
}

/// See read(2).
///
/// # Safety
/// `buffer` must have room for `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
    if length == 0 && carried(table::find(fd).as_ref()).is_some() {
        return 0; // at once, whereas recv waits
    }
    // SAFETY: the caller's buffer.
    match unsafe { receive_one(fd, buffer, length, 0) } {
        Some(received) => errno::count(received.map(|(received, _)| received.count)),
        // SAFETY: as above.
        None => unsafe { real::read(fd, buffer, length) },
    }
}

/// See readv(2).
///
/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    let held = table::find(fd);
    if let Some((socket, outboard)) = carried(held.as_ref()) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        // SAFETY: the caller's buffers.
        let received = unsafe { lists_mut(buffers, count) }.and_then(|mut buffers| {
            if buffers.iter().all(|buffer| buffer.is_empty()) {
                return Ok(Some(Received::default()));
            }
            transfer::receive(fd, socket, outboard, &mut buffers, 0)
        });
        if let Some(received) = received.transpose() {
            return errno::count(received.map(|received| received.count));
        }
    }
    // SAFETY: the caller's buffers.
    unsafe { real::readv(fd, buffers, count) }
}

/// See recv(2): `recv` of a program compiled with `_FORTIFY_SOURCE`, which tells the room.
///
/// # Safety
/// As [`recv`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if length > room || !table::contains(fd) {
        // SAFETY: the caller's buffer; too little room ends the program there.
        return unsafe { real::__recv_chk(fd, buffer, length, room, flags) };
    }
    // SAFETY: the caller's buffer.
    unsafe { recv(fd, buffer, length, flags) }
}

/// See recv(2): the checked `recvfrom`.
///
/// # Safety
/// As [`recvfrom`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    if length > room || !table::contains(fd) {
        // SAFETY: the caller's pointers.
        return unsafe { real::__recvfrom_chk(fd, buffer, length, room, flags, address, address_length) };
    }
    // SAFETY: the caller's pointers.
    unsafe { recvfrom(fd, buffer, length, flags, address, address_length) }
}

/// See read(2): the checked `read`.
///
/// # Safety
/// As [`read`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    if length > room || !table::contains(fd) {
        // SAFETY: the caller's buffer.
        return unsafe { real::__read_chk(fd, buffer, length, room) };
    }
    // SAFETY: the caller's buffer.
    unsafe { read(fd, buffer, length) }
}

/// Sends one buffer. `None`: the kernel is to do it.
///
/// # Safety
/// `buffer` must point to `length` readable bytes.
unsafe fn send_one(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> Option<io::Result<usize>> {
    let held = table::find(fd)?;
    // SAFETY: the caller's buffer.
    unsafe { send_one_to(fd, &held, buffer, length, flags, None) }
}

/// As [`send_one`], to where the call says.
///
/// # Safety
/// As [`send_one`].
unsafe fn send_one_to(
    fd: c_int,
    held: &Held,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    remote: Option<SocketAddr>,
) -> Option<io::Result<usize>> {
    if fast_open::is_wanted(held, flags) {
        // SAFETY: the caller's buffer.
        return match unsafe { slice(buffer, length) } {
            Ok(bytes) => fast_open::connect_and_send(fd, held, &[IoSlice::new(bytes)], remote, flags),
            Err(error) => Some(Err(error)),
        };
    }
    let (socket, outboard) = match sender(fd, held, remote)? {
        Ok(pair) => pair,
        Err(error) => return Some(Err(error)),
    };
    // SAFETY: the caller's buffer.
    let bytes = match unsafe { slice(buffer, length) } {
        Ok(bytes) => bytes,
        Err(error) => return Some(Err(error)),
    };
    Some(transfer::send(socket, outboard, &[IoSlice::new(bytes)], remote, flags))
}

/// The address that a datagram goes to, checked as Linux does (`udp_sendmsg`). A stream needs none; one that the kernel alone
/// carries is judged by the kernel.
///
/// # Safety
/// `address` null or to `length` readable bytes.
pub(crate) unsafe fn destination(
    held: &Held,
    address: *const sockaddr,
    length: socklen_t,
) -> io::Result<Option<SocketAddr>> {
    if address.is_null() {
        return Ok(None);
    }
    if memory::is_beyond(address.cast(), length as usize) {
        return Err(errno::error(libc::EFAULT));
    }
    let carried = held.socket().filter(|socket| socket.outboard().is_some());
    if carried.is_none_or(|socket| socket.kind == Kind::Stream) {
        // SAFETY: the caller's pointer. Few name an address here, so it may cost a system call.
        unsafe { memory::fetch(address.cast::<u8>())? };
    }
    let datagrams = carried.filter(|socket| socket.kind == Kind::Datagram);
    if datagrams.is_none_or(|socket| socket.family == address_of::Family::V6) {
        // SAFETY: the caller's pointer.
        return Ok(unsafe { address_of::read(address, length) });
    }
    if length as usize > size_of::<libc::sockaddr_storage>() {
        return Err(errno::error(libc::EINVAL));
    }
    // SAFETY: the caller's pointer.
    match unsafe { address_of::read_as_inet(address, length) } {
        None => Err(errno::error(libc::EINVAL)),
        Some((libc::AF_INET | libc::AF_UNSPEC, remote)) => Ok(Some(remote)),
        Some(_) => Err(errno::error(libc::EAFNOSUPPORT)),
    }
}

/// The stack's socket that sends to `remote` (or the connected peer). `None`: the kernel's does. A datagram socket
/// that was with the kernel alone so far is opened outboard by its first datagram to that side.
pub(crate) fn sender(
    fd: c_int,
    held: &Held,
    remote: Option<SocketAddr>,
) -> Option<io::Result<(&InetSocket, &raw::Socket)>> {
    let socket = held.socket()?;
    match (socket.kind, socket.phase(), remote) {
        (_, Phase::Kernel, None) => None,
        (Kind::Stream, _, _) | (_, Phase::Outboard, _) => {
            socket.outboard().map(|outboard| Ok((socket, outboard)))
        }
        (Kind::Datagram, Phase::Both, None) => None,
        (Kind::Datagram, _, Some(remote)) => match side_of_peer(socket.family, remote) {
            Ok(Side::Outboard) => {
                Some(connection::open_for_datagrams(fd, held, socket).map(|outboard| (socket, outboard)))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        },
    }
}

/// See send(2).
///
/// # Safety
/// `buffer` must point to `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn send(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's buffer.
    match unsafe { send_one(fd, buffer, length, flags) } {
        Some(sent) => errno::count(sent),
        // SAFETY: as above.
        None => unsafe { real::send(fd, buffer, length, flags) },
    }
}

/// See send(2).
///
/// # Safety
/// As [`send`]; `address` null or to `address_length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> ssize_t {
    if let Some(held) = table::find(fd) {
        // SAFETY: the caller's pointers.
        let remote = match unsafe { destination(&held, address, address_length) } {
            Ok(remote) => remote,
            Err(error) => return errno::count(Err(error)),
        };
        // SAFETY: the caller's buffer.
        if let Some(sent) = unsafe { send_one_to(fd, &held, buffer, length, flags, remote) } {
            return errno::count(sent);
        }
    }
    // SAFETY: the caller's pointers.
    unsafe { real::sendto(fd, buffer, length, flags, address, address_length) }
}

/// See write(2).
///
/// # Safety
/// `buffer` must point to `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's buffer.
    match unsafe { send_one(fd, buffer, length, 0) } {
        Some(sent) => errno::count(sent),
        // SAFETY: as above.
        None => unsafe { real::write(fd, buffer, length) },
    }
}

/// See writev(2).
///
/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    if let Some(held) = table::find(fd)
        && let Some(sender) = sender(fd, &held, None)
    {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        return errno::count(sender.and_then(|(socket, outboard)| {
            // SAFETY: the caller's buffers.
            let buffers = unsafe { lists(buffers, count)? };
            // Nothing at all does not get as far as to the socket.
            if buffers.iter().all(|buffer| buffer.is_empty()) {
                return Ok(0);
            }
            transfer::send(socket, outboard, &buffers, None, 0)
        }));
    }
    // SAFETY: the caller's buffers.
    unsafe { real::writev(fd, buffers, count) }
}

/// See preadv2(2): without an offset it reads a socket as readv does.
///
/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let held = table::find(fd);
    match carried(held.as_ref()) {
        Some((socket, outboard)) if offset == -1 && flags & !libc::RWF_NOWAIT == 0 => {
            let waits = if flags == 0 { 0 } else { libc::MSG_DONTWAIT };
            let length = usize::try_from(count).unwrap_or(usize::MAX);
            // SAFETY: the caller's buffers.
            let received = unsafe { lists_mut(buffers, length) }
                .and_then(|mut buffers| transfer::receive(fd, socket, outboard, &mut buffers, waits))
                .transpose();
            match received {
                Some(received) => errno::count(received.map(|received| received.count)),
                // SAFETY: the caller's buffers.
                None => unsafe { real::preadv2(fd, buffers, count, offset, flags) },
            }
        }
        // SAFETY: the caller's buffers.
        _ => unsafe { real::preadv2(fd, buffers, count, offset, flags) },
    }
}

/// See pwritev2(2): without an offset it writes a socket as writev does.
///
/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if offset == -1 && flags == 0 && table::contains(fd) {
        // SAFETY: the caller's buffers.
        return unsafe { writev(fd, buffers, count) };
    }
    // SAFETY: the caller's buffers.
    unsafe { real::pwritev2(fd, buffers, count, offset, flags) }
}
