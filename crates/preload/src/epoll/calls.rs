//! The epoll functions of the C library.

use std::ffi::c_int;
use std::io;

use libc::{epoll_event, sigset_t, timespec};

use super::wait::{Deadline, events_of};
use super::{Core, Epoll};
use crate::description::{Description, Phase};
use crate::poll::span_of;
use crate::table::{self, Held};
use crate::{errno, real, runtime};

fn keep(fd: c_int) -> c_int {
    if fd >= 0 && runtime::enabled() && table::in_own_process() {
        match Epoll::new(fd) {
            Ok(epoll) => drop(table::insert(fd, Held::new(Description::Epoll(epoll)))),
            Err(error) => {
                // SAFETY: no pointers; the descriptor is new.
                unsafe { real::close(fd) };
                return errno::fail(errno::of(&error));
            }
        }
    }
    fd
}

/// See epoll_create(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: no pointers.
    keep(unsafe { real::epoll_create(size) })
}

/// See epoll_create(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: no pointers.
    keep(unsafe { real::epoll_create1(flags) })
}

/// See epoll_ctl(2).
///
/// # Safety
/// `event` must be null or point to an event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let instance = table::find(epoll);
    let Some(core) = instance.as_deref().and_then(Description::epoll).map(Epoll::core) else {
        // SAFETY: the caller's pointer, as the C library takes it.
        return unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    };
    let target = table::find(fd);
    // SAFETY: an event is read only where the operation has one and the pointer is not null.
    let value =
        (operation != libc::EPOLL_CTL_DEL && !event.is_null()).then(|| unsafe { event.read_unaligned() });
    let Some(held) = target else {
        // SAFETY: as above.
        return core
            .register_in_kernel(operation, || unsafe { real::epoll_ctl(epoll, operation, fd, event) });
    };
    let Some(socket) = held.socket() else {
        if let Some(inner) = held.epoll() {
            inner.core().set_nested();
        }
        // SAFETY: as above.
        return core
            .register_in_kernel(operation, || unsafe { real::epoll_ctl(epoll, operation, fd, event) });
    };
    // The phase must not change in between: a connect in another thread moves registrations over.
    let _still = socket.lock_change();
    let phase = socket.phase();
    if phase != Phase::Outboard {
        // SAFETY: as above.
        let status =
            core.register_in_kernel(operation, || unsafe { real::epoll_ctl(epoll, operation, fd, event) });
        if status != 0 {
            return status;
        }
        if phase == Phase::Kernel {
            socket.watchers.note_kernel(core, operation, fd, value);
            return 0;
        }
    }
    errno::status(control(core, operation, fd, &held, value))
}

fn control(
    core: &std::sync::Arc<Core>,
    operation: c_int,
    fd: c_int,
    held: &Held,
    event: Option<epoll_event>,
) -> io::Result<()> {
    let event = || event.ok_or_else(|| errno::error(libc::EFAULT));
    match operation {
        libc::EPOLL_CTL_ADD => core.add(fd, held, event()?),
        libc::EPOLL_CTL_MOD => core.modify(fd, held, event()?),
        libc::EPOLL_CTL_DEL => core.remove(fd, held),
        _ => Err(errno::error(libc::EINVAL)),
    }
}

/// See epoll_wait(2).
///
/// # Safety
/// `events` must have room for `count` events.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's pointers; no mask.
    unsafe { epoll_pwait(epoll, events, count, timeout, std::ptr::null()) }
}

/// See epoll_pwait(2).
///
/// # Safety
/// `events` must have room for `count` events, `mask` must be null or point to a signal set.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    match table::find(epoll) {
        // SAFETY: the caller's pointers.
        Some(held) if held.epoll().is_some() => unsafe {
            wait(&held, events, count, Deadline::from_ms(timeout), mask)
        },
        // SAFETY: the caller's pointers.
        _ => unsafe { real::epoll_pwait(epoll, events, count, timeout, mask) },
    }
}

/// See epoll_pwait2(2).
///
/// # Safety
/// As [`epoll_pwait`]; `timeout` must be null or point to a time.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    match table::find(epoll) {
        Some(held) if held.epoll().is_some() => {
            // SAFETY: the caller's pointer, null or to a time.
            match unsafe { timeout.as_ref() }.map(span_of).transpose() {
                // SAFETY: the caller's pointers.
                Ok(span) => unsafe { wait(&held, events, count, Deadline::from_span(span), mask) },
                Err(error) => errno::fail(errno::of(&error)),
            }
        }
        // SAFETY: the caller's pointers.
        _ => unsafe { real::epoll_pwait2(epoll, events, count, timeout, mask) },
    }
}

/// # Safety
/// As [`epoll_pwait`].
unsafe fn wait(
    held: &Held,
    events: *mut epoll_event,
    count: c_int,
    deadline: Deadline,
    mask: *const sigset_t,
) -> c_int {
    let Some(epoll) = held.epoll() else { return errno::fail(libc::EINVAL) };
    // SAFETY: the caller's pointers.
    let outcome = unsafe { events_of(events, count, held) }
        // SAFETY: as above.
        .and_then(|events| epoll.core().wait(events, deadline, unsafe { mask.as_ref() }));
    errno::count(outcome) as c_int
}
