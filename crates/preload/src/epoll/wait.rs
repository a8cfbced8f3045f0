//! Waiting on an epoll instance.

use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use libc::{epoll_event, sigset_t};

use super::registration::Verdict;
use super::{Core, Registration, lock};
use crate::table::Held;
use crate::{errno, real, wait};

/// So many sockets told at once may be the ones that move bulk data.
const MOST_RECENT: usize = 4;

/// The program's array of events, filled from the front.
pub(super) struct Events<'a> {
    room: &'a mut [epoll_event],
    filled: usize,
}

impl<'a> Events<'a> {
    pub(super) fn new(room: &'a mut [epoll_event]) -> Self {
        Self { room, filled: 0 }
    }

    fn push(&mut self, event: epoll_event) {
        self.room[self.filled] = event;
        self.filled += 1;
    }

    fn is_full(&self) -> bool {
        self.filled == self.room.len()
    }
}

impl Core {
    /// `epoll_wait`: how many events were filled in.
    pub(super) fn wait(
        &self,
        mut events: Events<'_>,
        deadline: Deadline,
        mask: Option<&sigset_t>,
    ) -> io::Result<usize> {
        if self.active().is_none() {
            // Only the kernel's descriptors so far. The stack's may come in while this sleeps.
            if self.wait_kernel(&mut events, deadline, mask)? {
                self.was_rung();
            }
            if events.filled > 0 || self.active().is_none() {
                return Ok(events.filled);
            }
        }
        if self.kernel_first.swap(false, Ordering::Relaxed) {
            self.look_at_kernel(&mut events)?;
            if events.filled > 0 {
                self.collect(&mut events);
                return Ok(events.filled);
            }
        }
        if let Some(waiter) = self.active() {
            waiter.endpoint().tend_while_busy();
        }
        loop {
            self.collect(&mut events);
            if events.filled > 0 || deadline.is_over() {
                self.look_at_kernel(&mut events)?;
                return Ok(events.filled);
            }
            let nap = self.begin_nap();
            if nap.is_empty() && self.may_spin() {
                self.look_at_kernel(&mut events)?;
                if events.filled > 0 {
                    return Ok(events.filled);
                }
                if self.spin() {
                    continue;
                }
            }
            self.sleep(&mut events, deadline, nap, mask)?;
            if events.filled > 0 {
                self.collect(&mut events);
                return Ok(events.filled);
            }
        }
    }

    /// Takes what is ready from the list, as far as there is room.
    fn collect(&self, events: &mut Events<'_>) {
        if let Some(waiter) = self.active() {
            waiter.endpoint().dispatch();
        }
        let mut again: Vec<Arc<Registration>> = Vec::new();
        let mut told: Vec<Arc<Registration>> = Vec::new();
        while !events.is_full()
            && let Some(registration) = self.pop()
        {
            match registration.examine() {
                Verdict::Quiet => {}
                Verdict::Tell(event) => {
                    events.push(event);
                    told.push(registration);
                }
                Verdict::TellAndKeep(event) => {
                    events.push(event);
                    told.push(Arc::clone(&registration));
                    again.push(registration);
                }
            }
        }
        if !told.is_empty() {
            // Where many are served, waking one of them serves others too: no use in coalescing.
            told.truncate(if told.len() > MOST_RECENT { 0 } else { MOST_RECENT });
            *lock(&self.recent) = told;
        }
        for registration in again {
            self.requeue(registration);
        }
        self.wake_another();
    }

    /// More is ready than this thread takes along: another one shall look.
    fn wake_another(&self) {
        if self.has_ready() && *lock(&self.sleepers) > 0 {
            self.poke();
        }
    }

    /// Level-triggered: it stays in the list, behind the others.
    fn requeue(&self, registration: Arc<Registration>) {
        if registration.mark_queued() {
            lock(&self.ready).push_back(registration);
            self.ready_count.fetch_add(1, Ordering::Release);
        }
    }

    /// Asks the kernel what else is ready at this moment. If the stack's side left no room for that, the kernel's comes first
    /// the next time, so that neither starves the other.
    fn look_at_kernel(&self, events: &mut Events<'_>) -> io::Result<()> {
        if self.in_kernel.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        if events.is_full() {
            self.kernel_first.store(true, Ordering::Relaxed);
            return Ok(());
        }
        if self.wait_kernel(events, Deadline::Now, None)? {
            self.was_rung();
        }
        Ok(())
    }

    /// Whether spinning is of use: not for a send ring that must be half empty.
    fn may_spin(&self) -> bool {
        !lock(&self.recent).iter().any(|registration| registration.is_blocked())
    }

    /// Spins for the stack's events if that has paid off lately; whether there are some.
    fn spin(&self) -> bool {
        let Some(waiter) = self.active() else { return false };
        outboard::raw::spin(|| self.has_ready() || waiter.endpoint().has_events())
    }

    fn sleep(
        &self,
        events: &mut Events<'_>,
        deadline: Deadline,
        nap: Vec<Arc<Registration>>,
        mask: Option<&sigset_t>,
    ) -> io::Result<()> {
        let Some(waiter) = self.active() else { return Ok(()) };
        {
            let mut sleepers = lock(&self.sleepers);
            *sleepers += 1;
            waiter.arm();
        }
        as_awake_sleeper(self, || waiter.endpoint().dispatch());
        let is_ready = if nap.is_empty() { self.has_ready() } else { self.must_end(&nap) };
        let slept = if is_ready {
            Ok(false)
        } else {
            self.wait_kernel(events, deadline.or_after(waiter.endpoint().tend()), mask)
        };
        for registration in nap {
            registration.end_nap();
            self.requeue(registration);
        }
        let mut sleepers = lock(&self.sleepers);
        *sleepers -= 1;
        let was_last = *sleepers == 0 && !self.is_nested.load(Ordering::Acquire);
        if was_last {
            waiter.disarm();
        }
        drop(sleepers);
        // Only now, when this thread counts as awake: it has not to wake itself.
        if slept? {
            if was_last { waiter.endpoint().dispatch() } else { self.was_rung() }
        }
        Ok(())
    }

    /// Whether something has come before the nap began, or more is ready than what naps.
    fn must_end(&self, nap: &[Arc<Registration>]) -> bool {
        let naps = |one: &Arc<Registration>| nap.iter().any(|other| Arc::ptr_eq(one, other));
        nap.iter().any(|registration| registration.is_nap_over())
            || lock(&self.ready).iter().any(|one| !naps(one))
    }

    /// Of the sockets that were told last, those that move bulk data are asked to ring only when much has come, or no more
    /// comes.
    fn begin_nap(&self) -> Vec<Arc<Registration>> {
        let mut registrations = lock(&self.recent).clone();
        registrations.retain(|registration| registration.begin_nap());
        registrations
    }

    /// The kernel's `epoll_pwait` into the free room, without the events that are only for this library. Whether those say
    /// that this side has news.
    fn wait_kernel(
        &self,
        events: &mut Events<'_>,
        deadline: Deadline,
        mask: Option<&sigset_t>,
    ) -> io::Result<bool> {
        let room = &mut events.room[events.filled..];
        let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the slice, the time and the mask live during the call.
        let count = unsafe {
            match deadline.timeout_ms() {
                Ok(timeout) => {
                    real::epoll_pwait(self.kernel, room.as_mut_ptr(), room.len() as c_int, timeout, mask)
                }
                Err(span) => {
                    let span = wait::to_timespec(span);
                    real::epoll_pwait2(self.kernel, room.as_mut_ptr(), room.len() as c_int, &span, mask)
                }
            }
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let (mut kept, mut rung) = (0, false);
        for index in 0..count as usize {
            let event = room[index];
            let data = event.u64;
            match data {
                _ if data == self.marker() => rung = true,
                _ if data == self.poke_marker() => {
                    // Another thread may have taken it already.
                    let _ = rustix::io::read(&self.poke, &mut [0; 8]);
                    rung = true;
                }
                _ if data == self.end_marker() => self.endpoint_ended(),
                _ => {
                    room[kept] = event;
                    kept += 1;
                }
            }
        }
        events.filled += kept;
        Ok(rung)
    }

    /// The waiter's descriptor is readable: take that back, and be rung anew for what comes from now on.
    fn was_rung(&self) {
        let Some(waiter) = self.active() else { return };
        waiter.disarm();
        waiter.arm();
        waiter.endpoint().dispatch();
        if self.has_ready() && self.is_nested.load(Ordering::Acquire) {
            self.poke();
        }
    }

    /// The stack is gone. Its sockets have an error now, and are told of it; that it is gone is news only once.
    fn endpoint_ended(&self) {
        if let Some(waiter) = self.active() {
            let _ = self.control_kernel(libc::EPOLL_CTL_DEL, waiter.endpoint().liveness(), 0, 0);
            waiter.endpoint().check_alive();
        }
    }
}

thread_local! {
    /// The instance among whose sleepers this thread counts already, though it is looking a last time.
    static AWAKE_SLEEPER: Cell<*const Core> = const { Cell::new(std::ptr::null()) };
}

/// Whether this thread is one of the sleepers of `core`: it has not to be woken for what it finds itself.
pub(super) fn is_awake_sleeper(core: &Core) -> bool {
    AWAKE_SLEEPER.try_with(|place| std::ptr::eq(place.get(), core)).unwrap_or(false)
}

fn as_awake_sleeper(core: &Core, body: impl FnOnce()) {
    let set = |core| {
        let _ = AWAKE_SLEEPER.try_with(|place| place.set(core));
    };
    set(std::ptr::from_ref(core));
    body();
    set(std::ptr::null());
}

/// Until when to wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deadline {
    /// Do not wait.
    Now,
    /// For ever.
    Never,
    /// Until then; told in milliseconds, or (`fine`) in nanoseconds.
    At {
        /// The end.
        end: Instant,
        /// Whether the program asked with nanoseconds.
        fine: bool,
    },
}

impl Deadline {
    /// From a timeout in milliseconds; negative: for ever.
    pub(super) fn from_ms(timeout: c_int) -> Self {
        match u64::try_from(timeout) {
            Err(_) => Self::Never,
            Ok(0) => Self::Now,
            Ok(timeout) => Self::At { end: Instant::now() + Duration::from_millis(timeout), fine: false },
        }
    }

    /// From a span; none: for ever.
    pub(super) fn from_span(span: Option<Duration>) -> Self {
        match span {
            None => Self::Never,
            Some(Duration::ZERO) => Self::Now,
            Some(span) => Self::At { end: Instant::now() + span, fine: true },
        }
    }

    /// This, or after `span` if that comes first.
    fn or_after(self, span: Option<Duration>) -> Self {
        let Some(span) = span else { return self };
        let look = Instant::now() + span;
        match self {
            Self::Now => Self::Now,
            Self::Never => Self::At { end: look, fine: false },
            Self::At { end, fine } => Self::At { end: end.min(look), fine },
        }
    }

    fn is_over(self) -> bool {
        match self {
            Self::Now => true,
            Self::Never => false,
            Self::At { end, .. } => Instant::now() >= end,
        }
    }

    /// What is left in milliseconds, rounded up, or (if it was asked with nanoseconds) exactly.
    fn timeout_ms(self) -> Result<c_int, Duration> {
        match self {
            Self::Now => Ok(0),
            Self::Never => Ok(-1),
            Self::At { end, fine } => {
                let left = end.saturating_duration_since(Instant::now());
                if fine {
                    return Err(left);
                }
                Ok(c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
            }
        }
    }
}

/// The events array of the program, checked as the kernel does.
///
/// # Safety
/// If `count` is positive, `events` must point to so many writable events.
pub(super) unsafe fn events_of<'a>(
    events: *mut epoll_event,
    count: c_int,
    _of: &'a Held,
) -> io::Result<Events<'a>> {
    if count <= 0 {
        return Err(errno::error(libc::EINVAL));
    }
    if events.is_null() {
        return Err(errno::error(libc::EFAULT));
    }
    // SAFETY: the caller says so; the kernel fills the same memory, and any bytes are valid events.
    Ok(Events::new(unsafe { std::slice::from_raw_parts_mut(events, count as usize) }))
}
