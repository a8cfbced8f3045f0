//! Sleeping in a call that may wait: on the stack's sockets, or on them and kernel descriptors at once.

use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use libc::{pollfd, sigset_t, timespec};
use outboard::Endpoint;
use outboard::raw::{Interest, Socket, Waiter};

use crate::poll::poll_to_receive;
use crate::{errno, real};

thread_local! {
    static WAITER: RefCell<Option<Waiter>> = const { RefCell::new(None) };
}

/// This thread's waiter for `endpoint`, one with a descriptor. It is taken out while in use: a signal handler that
/// waits as well gets another.
pub(crate) fn with_waiter<T>(endpoint: &Endpoint, body: impl FnOnce(&Waiter) -> T) -> io::Result<T> {
    let kept = WAITER.try_with(|place| place.try_borrow_mut().ok().and_then(|mut place| place.take()));
    let waiter = match kept.ok().flatten() {
        Some(waiter) if waiter.endpoint().is_same(endpoint) => waiter,
        Some(other) => {
            other.leave();
            Waiter::with_descriptor(endpoint)?
        }
        None => Waiter::with_descriptor(endpoint)?,
    };
    let value = body(&waiter);
    let _ = WAITER.try_with(|place| place.try_borrow_mut().map(|mut place| *place = Some(waiter)));
    Ok(value)
}

/// Waits until `socket` is ready for `interest`. `EAGAIN` when the deadline passes, `EINTR` as Linux gives it.
pub(crate) fn for_socket(socket: &Socket, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    if socket.wait(interest, deadline)?.satisfies(interest) {
        Ok(())
    } else {
        Err(errno::error(libc::EAGAIN))
    }
}

/// Waits until something can be received or accepted on `fd`, by the stack's socket or by the kernel's. `EAGAIN` when the
/// deadline passes, `EINTR` when a signal was handled.
pub(crate) fn for_both(fd: RawFd, deadline: Option<Instant>) -> io::Result<()> {
    let mut entry = pollfd { fd, events: libc::POLLIN, revents: 0 };
    let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    match poll_to_receive(&mut entry, timeout)? {
        0 => Err(errno::error(libc::EAGAIN)),
        _ => Ok(()),
    }
}

/// Waits until the stack's socket has received more than `seen`, or something can be received on `fd` by the kernel's, or
/// there is something else to look at. False: the deadline has passed.
pub(crate) fn for_more_of_both(
    fd: RawFd,
    socket: &Socket,
    seen: u64,
    deadline: Option<Instant>,
) -> io::Result<bool> {
    let endpoint = socket.endpoint();
    with_waiter(endpoint, |waiter| {
        let kernel = pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [kernel, wake_entry(waiter.descriptor()), end_entry(endpoint.liveness())];
        waiter.watch(socket, Interest::READABLE);
        waiter.arm();
        let outcome = if socket.has_more(seen) {
            Ok(1)
        } else {
            let look = endpoint.tend().map(|span| Instant::now() + span);
            sleep(&mut entries, deadline.into_iter().chain(look).min(), None)
        };
        waiter.disarm();
        waiter.unwatch(socket);
        if entries[2].revents != 0 {
            endpoint.check_alive();
        }
        Ok(outcome? > 0 || deadline.is_none_or(|deadline| Instant::now() < deadline))
    })?
}

/// The entry that a waiter is polled with.
pub(crate) fn wake_entry(fd: RawFd) -> pollfd {
    pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// The entry that the end of the stack is polled with: it is hung up then.
pub(crate) fn end_entry(fd: RawFd) -> pollfd {
    pollfd { fd, events: 0, revents: 0 }
}

/// The kernel's `ppoll` over `entries`; how many are ready.
pub(crate) fn sleep(
    entries: &mut [pollfd],
    deadline: Option<Instant>,
    mask: Option<&sigset_t>,
) -> io::Result<usize> {
    let timeout = deadline.map(|deadline| to_timespec(deadline.saturating_duration_since(Instant::now())));
    // SAFETY: the slice, the timeout and the mask live during the call; null pointers mean none.
    let count = unsafe {
        real::ppoll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            mask.map_or(std::ptr::null(), std::ptr::from_ref),
        )
    };
    if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
}

/// A span of time as the kernel takes it.
pub(crate) fn to_timespec(span: Duration) -> timespec {
    timespec {
        tv_sec: libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: span.subsec_nanos().into(),
    }
}
