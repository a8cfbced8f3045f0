//! sendmsg, recvmsg and their multiple forms.

use std::ffi::{c_int, c_uint};
use std::io;
use std::time::Instant;

use libc::{mmsghdr, msghdr, ssize_t, timespec};

use crate::ancillary::{self, Room};
use crate::buffers::{MAX_BUFFERS, lists, lists_mut};
use crate::calls::{carried, destination, sender};
use crate::description::Kind;
use crate::poll::span_of;
use crate::wait::to_timespec;
use crate::{errno, fast_open, memory, real, sockaddr as address_of, table, transfer};

/// The most messages of one call, as in the kernel.
const MAX_MESSAGES: usize = 1024;

/// See recvmsg(2). The ancillary data is that of `TCP_INQ` and of [`ancillary`].
///
/// # Safety
/// As recvmsg(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's pointers.
    match unsafe { receive_message(fd, message, flags) } {
        Some(received) => errno::count(received),
        // SAFETY: the caller's pointers.
        None => unsafe { real::recvmsg(fd, message, flags) },
    }
}

/// # Safety
/// As recvmsg(2).
unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<io::Result<usize>> {
    let held = table::find(fd);
    let (socket, outboard) = carried(held.as_ref())?;
    let good = !memory::is_beyond(message.cast(), size_of::<msghdr>());
    // SAFETY: the caller's pointer.
    let Some(message) = (unsafe { message.as_mut() }).filter(|_| good) else {
        return Some(Err(errno::error(libc::EFAULT)));
    };
    if message.msg_namelen.cast_signed() < 0 {
        return Some(Err(errno::error(libc::EINVAL)));
    }
    let received = check_count(message)
        // SAFETY: the caller's buffers.
        .and_then(|()| unsafe { lists_mut(message.msg_iov, message.msg_iovlen) })
        .and_then(|mut buffers| transfer::receive(fd, socket, outboard, &mut buffers, flags))
        .transpose()?;
    Some(received.and_then(|received| {
        match received.remote {
            Some(remote) => {
                // SAFETY: the caller's pointers; the room stands in the message.
                unsafe {
                    let room = &mut message.msg_namelen;
                    address_of::write(remote, socket.family, message.msg_name.cast(), room)?;
                }
            }
            None => message.msg_namelen = 0,
        }
        message.msg_flags = if received.truncated { libc::MSG_TRUNC } else { 0 }
            | if received.urgent { libc::MSG_OOB } else { 0 }
            | if received.queued.is_some() { libc::MSG_ERRQUEUE } else { 0 }
            | flags & libc::MSG_CMSG_CLOEXEC;
        let mut room = Room::new(message);
        match (&received.datagram, &received.queued) {
            // SAFETY: the caller's room for ancillary data.
            (_, Some(error)) => unsafe { ancillary::tell_error(&mut room, socket, error) },
            // SAFETY: as above.
            (Some(datagram), _) => unsafe { ancillary::tell_datagram(&mut room, socket, datagram) },
            (None, None) => {
                if received.count > 0 && !received.urgent {
                    // SAFETY: as above.
                    unsafe { ancillary::tell_time_of_stream(&mut room, socket) };
                }
                if socket.tells_left() && socket.kind == Kind::Stream {
                    let left = c_int::try_from(outboard.left_to_read()).unwrap_or(c_int::MAX);
                    // SAFETY: as above. TCP_CM_INQ is the same number.
                    unsafe { room.put(libc::SOL_TCP, libc::TCP_INQ, &left.to_ne_bytes()) };
                }
            }
        }
        room.end();
        Ok(received.count)
    }))
}

/// A list of too many buffers has another name here than for readv and writev.
fn check_count(message: &msghdr) -> io::Result<()> {
    if message.msg_iovlen > MAX_BUFFERS { Err(errno::error(libc::EMSGSIZE)) } else { Ok(()) }
}

/// See recvmmsg(2).
///
/// # Safety
/// As recvmmsg(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let held = table::find(fd);
    let Some((_, outboard)) = carried(held.as_ref()) else {
        // SAFETY: the caller's pointers.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    };
    // SAFETY: the caller's pointer, null or to a time.
    let mut timeout = unsafe { timeout.as_mut() };
    let end = match timeout.as_deref().map(span_of).transpose() {
        Ok(span) => span.map(|span| Instant::now() + span),
        Err(error) => return errno::fail(errno::of(&error)),
    };
    // Linux: a pending error comes before anything else.
    if flags & libc::MSG_ERRQUEUE == 0
        && let Ok(Some(error)) = outboard.take_error()
    {
        return errno::fail(errno::of(&error));
    }
    let mut flags = flags;
    let mut done = 0;
    for index in 0..(count as usize).min(MAX_MESSAGES) {
        // SAFETY: the caller's array has `count` entries.
        let entry = unsafe { &mut *messages.add(index) };
        // SAFETY: the caller's pointers.
        let received = unsafe { recvmsg(fd, &mut entry.msg_hdr, flags & !libc::MSG_WAITFORONE) };
        if received < 0 {
            // What ends it is told by the next call.
            if done > 0 && errno::get() != libc::EAGAIN {
                outboard.keep_error(errno::get());
            }
            return if done > 0 { done } else { -1 };
        }
        entry.msg_len = received as c_uint;
        done += 1;
        if let (Some(end), Some(timeout)) = (end, timeout.as_deref_mut()) {
            *timeout = to_timespec(end.saturating_duration_since(Instant::now()));
        }
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    done
}

/// See sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's pointers.
    match unsafe { send_message(fd, message, flags) } {
        Some(sent) => errno::count(sent),
        // SAFETY: the caller's pointers.
        None => unsafe { real::sendmsg(fd, message, flags) },
    }
}

/// # Safety
/// As sendmsg(2).
unsafe fn send_message(fd: c_int, message: *const msghdr, flags: c_int) -> Option<io::Result<usize>> {
    let held = table::find(fd)?;
    if memory::is_beyond(message.cast(), size_of::<msghdr>()) {
        return Some(Err(errno::error(libc::EFAULT)));
    }
    // SAFETY: the caller's pointer.
    let message = unsafe { message.as_ref() }?;
    if !message.msg_name.is_null() && message.msg_namelen.cast_signed() < 0 {
        return Some(Err(errno::error(libc::EINVAL)));
    }
    // SAFETY: the caller's pointer and its length.
    let remote = match unsafe { destination(&held, message.msg_name.cast(), message.msg_namelen) } {
        Ok(remote) => remote,
        Err(error) => return Some(Err(error)),
    };
    if fast_open::is_wanted(&held, flags) {
        // SAFETY: the caller's buffers.
        return match unsafe { lists(message.msg_iov, message.msg_iovlen) } {
            Ok(buffers) => fast_open::connect_and_send(fd, &held, &buffers, remote, flags),
            Err(error) => Some(Err(error)),
        };
    }
    Some(sender(fd, &held, remote)?.and_then(|(socket, outboard)| {
        check_count(message)?;
        // SAFETY: the caller's buffers.
        let buffers = unsafe { lists(message.msg_iov, message.msg_iovlen)? };
        let segment = socket.segment();
        // SAFETY: the caller's ancillary data.
        let (options, stamps) = unsafe { ancillary::options(message, segment, socket.kind)? };
        transfer::send_with(socket, outboard, &buffers, remote, flags, options, stamps)
    }))
}

/// See sendmmsg(2).
///
/// # Safety
/// As sendmmsg(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if !table::contains(fd) {
        // SAFETY: the caller's pointers.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    let mut done = 0;
    for index in 0..(count as usize).min(MAX_MESSAGES) {
        // SAFETY: the caller's array has `count` entries.
        let entry = unsafe { &mut *messages.add(index) };
        // SAFETY: the caller's pointers.
        let sent = unsafe { sendmsg(fd, &entry.msg_hdr, flags) };
        if sent < 0 {
            return if done > 0 { done } else { -1 };
        }
        entry.msg_len = sent as c_uint;
        done += 1;
    }
    done
}
