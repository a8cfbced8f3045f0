//! poll and select over a mix of sockets of the stack and kernel descriptors.

use std::ffi::c_int;
use std::io;
use std::time::{Duration, Instant};

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};
use outboard::Endpoint;
use outboard::raw::{Interest, Waiter};

use crate::description::Phase;
use crate::epoll::registration::bits_of;
use crate::table::{self, Held};
use crate::{errno, memory, real, wait};

/// The most descriptors that a process can have (`NR_OPEN`).
const MOST_ENTRIES: nfds_t = 1 << 20;

/// A socket of the stack among the entries.
struct Watched {
    /// Its place among the entries.
    index: usize,
    held: Held,
    interest: Interest,
    /// Whether the kernel's descriptor counts as well.
    both: bool,
    /// Whether the queue of errors counts.
    counts_queue: bool,
}

/// The entries of one call, apart by who knows about them.
struct Poll<'a> {
    entries: &'a mut [pollfd],
    watched: Vec<Watched>,
    /// What the kernel is asked: the entries without the stack's sockets, then the waiter's and the endpoint's.
    kernel: Vec<pollfd>,
    /// Whether the kernel knows any of the entries.
    asks_kernel: bool,
}

/// Whether `poll` on these entries is more than the kernel's.
fn concerns_us(entries: &[pollfd]) -> bool {
    entries.iter().any(|entry| table::contains(entry.fd))
}

/// Waits until an entry is ready. The entries' `revents` are filled in; how many are not zero.
pub(crate) fn poll_entries(
    entries: &mut [pollfd],
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
) -> io::Result<usize> {
    run(Poll::new(entries, true), timeout, mask)
}

/// The same for a call that waits to receive: what is in the queue of errors does not end it.
pub(crate) fn poll_to_receive(entry: &mut pollfd, timeout: Option<Duration>) -> io::Result<usize> {
    run(Poll::new(std::slice::from_mut(entry), false), timeout, None)
}

fn run(mut poll: Poll<'_>, timeout: Option<Duration>, mask: Option<&sigset_t>) -> io::Result<usize> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    if poll.watched.is_empty() {
        return wait::sleep(poll.entries, deadline, mask);
    }
    let ready = poll.look()?;
    if ready > 0 || timeout == Some(Duration::ZERO) {
        return Ok(ready);
    }
    let nap = poll.begin_nap();
    if !nap && poll.may_spin() && outboard::raw::spin(|| poll.is_ready()) {
        return poll.look();
    }
    let endpoint = poll.endpoint().ok_or_else(|| errno::error(libc::EBADF))?;
    if endpoint.is_dead() {
        // Nothing of the stack's will change any more.
        wait::sleep(&mut poll.kernel, deadline, mask)?;
        return Ok(poll.gather());
    }
    wait::with_waiter(&endpoint, |waiter| {
        poll.watch(waiter);
        let outcome = poll.sleep_until_ready(waiter, deadline, nap, mask);
        poll.unwatch(waiter);
        outcome
    })?
}

impl<'a> Poll<'a> {
    fn new(entries: &'a mut [pollfd], counts_queue: bool) -> Self {
        let mut watched = Vec::new();
        let mut kernel: Vec<pollfd> = Vec::with_capacity(entries.len() + 2);
        let mut asks_kernel = false;
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.revents = 0;
            let mut own = *entry;
            if let Some(held) = table::find(entry.fd) {
                if let Some(epoll) = held.epoll() {
                    epoll.core().set_nested();
                } else if let Some(socket) = held.socket()
                    && socket.joined().is_some()
                {
                    let both = socket.phase() == Phase::Both;
                    if !both {
                        own.fd = -1;
                    }
                    let interest = interest_of(entry.events);
                    watched.push(Watched { index, interest, both, counts_queue, held });
                }
            }
            asks_kernel |= own.fd >= 0;
            kernel.push(own);
        }
        Self { entries, watched, kernel, asks_kernel }
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.watched.iter().find_map(|watched| Some(watched.held.socket()?.outboard()?.endpoint().clone()))
    }

    /// Looks at everything once, without waiting; how many entries are ready.
    fn look(&mut self) -> io::Result<usize> {
        if self.asks_kernel {
            let count = self.entries.len();
            wait::sleep(&mut self.kernel[..count], Some(Instant::now()), None)?;
        }
        Ok(self.gather())
    }

    /// Fills in `revents` from the sockets' state and what the kernel said last.
    fn gather(&mut self) -> usize {
        for (entry, kernel) in self.entries.iter_mut().zip(&self.kernel) {
            entry.revents = if kernel.fd >= 0 { kernel.revents } else { 0 };
        }
        for watched in &self.watched {
            let entry = &mut self.entries[watched.index];
            let own = ready_bits(watched, entry.events);
            entry.revents |= own;
            if watched.both && own & libc::POLLHUP != 0 {
                entry.revents &= !libc::POLLHUP;
            }
        }
        self.entries.iter().filter(|entry| entry.revents != 0).count()
    }

    fn is_ready(&self) -> bool {
        self.watched.iter().any(|watched| ready_bits(watched, self.entries[watched.index].events) != 0)
    }

    /// Whether spinning is of use: not for kernel descriptors, nor for a send ring that must be half empty.
    fn may_spin(&self) -> bool {
        !self.asks_kernel && !self.sockets().any(|(socket, interest)| socket.is_blocked(interest))
    }

    fn sockets(&self) -> impl Iterator<Item = (&outboard::raw::Socket, Interest)> {
        self.watched.iter().filter_map(|watched| Some((watched.held.socket()?.outboard()?, watched.interest)))
    }

    fn watch(&self, waiter: &Waiter) {
        for (socket, interest) in self.sockets() {
            // Errors and ends are told to readers and writers; who waits for nothing else counts as a reader.
            let readable = interest.readable || !interest.writable;
            waiter.watch(socket, Interest { readable, ..interest });
        }
    }

    fn unwatch(&self, waiter: &Waiter) {
        for (socket, _) in self.sockets() {
            waiter.unwatch(socket);
        }
    }

    /// Bulk data is slept for until much of it is there, or no more comes. Whether any is.
    fn begin_nap(&self) -> bool {
        self.sockets().fold(false, |any, (socket, interest)| socket.begin_nap(interest) || any)
    }

    fn end_nap(&self, nap: &mut bool) {
        if std::mem::take(nap) {
            self.sockets().for_each(|(socket, _)| socket.end_nap());
        }
    }

    fn sleep_until_ready(
        &mut self,
        waiter: &Waiter,
        deadline: Option<Instant>,
        mut nap: bool,
        mask: Option<&sigset_t>,
    ) -> io::Result<usize> {
        let count = self.entries.len();
        self.kernel.push(wait::wake_entry(waiter.descriptor()));
        self.kernel.push(wait::end_entry(waiter.endpoint().liveness()));
        loop {
            waiter.arm();
            if self.is_ready() {
                waiter.disarm();
                self.end_nap(&mut nap);
                self.kernel.truncate(count);
                return self.look();
            }
            let look = waiter.endpoint().tend().map(|span| Instant::now() + span);
            let until = deadline.into_iter().chain(look).min();
            let slept = wait::sleep(&mut self.kernel, until, mask);
            waiter.disarm();
            self.end_nap(&mut nap);
            slept?;
            if self.kernel.last().is_some_and(|end| end.revents != 0) {
                waiter.endpoint().check_alive();
                self.kernel.pop();
            }
            let ready = self.gather();
            if ready > 0 || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(ready);
            }
        }
    }
}

fn interest_of(events: i16) -> Interest {
    let read = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP | libc::POLLPRI;
    let write = libc::POLLOUT | libc::POLLWRNORM;
    Interest { readable: events & read != 0, writable: events & write != 0 }
}

fn ready_bits(watched: &Watched, events: i16) -> i16 {
    let Some(socket) = watched.held.socket().and_then(|socket| socket.outboard()) else { return 0 };
    let mut ready = socket.poll_ready(watched.interest);
    ready.queued_errors &= watched.counts_queue;
    let bits = bits_of(ready) as i16;
    bits & (events | libc::POLLERR | libc::POLLHUP)
}

/// See poll(2).
///
/// # Safety
/// `entries` must point to `count` entries.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's array.
    match unsafe { ours(entries, count) } {
        Some(entries) => {
            let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
            errno::count(poll_entries(entries, timeout, None)) as c_int
        }
        // SAFETY: the caller's array.
        None => unsafe { real::poll(entries, count, timeout) },
    }
}

/// See ppoll(2).
///
/// # Safety
/// As [`poll`]; `timeout` and `mask` null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe {
        match ours(entries, count) {
            Some(entries) => {
                let span = timeout.as_ref().map(span_of).transpose();
                errno::count(span.and_then(|span| poll_entries(entries, span, mask.as_ref()))) as c_int
            }
            None => real::ppoll(entries, count, timeout, mask),
        }
    }
}

/// See poll(2): the checked form.
///
/// # Safety
/// As [`poll`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __poll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: the caller's array; too little room ends the program there.
        return unsafe { real::__poll_chk(entries, count, timeout, room) };
    }
    // SAFETY: the caller's array.
    unsafe { poll(entries, count, timeout) }
}

/// See ppoll(2): the checked form.
///
/// # Safety
/// As [`ppoll`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __ppoll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: the caller's array; too little room ends the program there.
        return unsafe { real::__ppoll_chk(entries, count, timeout, mask, room) };
    }
    // SAFETY: the caller's pointers.
    unsafe { ppoll(entries, count, timeout, mask) }
}

/// The entries, if one of them is ours.
///
/// # Safety
/// `entries` must point to `count` entries.
unsafe fn ours<'a>(entries: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    // What is more than any table of descriptors, or nowhere, the kernel shall refuse.
    let length = (count as usize).saturating_mul(size_of::<pollfd>());
    if count == 0 || count > MOST_ENTRIES || entries.is_null() || memory::is_beyond(entries.cast(), length) {
        return None;
    }
    // SAFETY: the caller says so.
    let entries = unsafe { std::slice::from_raw_parts_mut(entries, count as usize) };
    concerns_us(entries).then_some(entries)
}

/// A time as a span.
///
/// # Errors
/// `EINVAL`: it is none that a call may be given.
pub(crate) fn span_of(time: &timespec) -> io::Result<Duration> {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanoseconds @ 0..1_000_000_000)) => Ok(Duration::new(seconds, nanoseconds)),
        _ => Err(errno::error(libc::EINVAL)),
    }
}
