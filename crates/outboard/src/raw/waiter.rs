//! Sleeping until one of several sockets is ready.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::socket::{Kind, Socket};
use super::{Interest, Patience, Readiness};
use crate::Endpoint;
use crate::endpoint::lock;
use crate::scheduling::before_waiting;
use crate::sys::handlers_interrupt;

/// A sleeper looks this often whether the stack is still there.
const ALIVE_CHECK: Duration = Duration::from_secs(2);

/// What one thread (or one set of watched sockets) sleeps on.
///
/// The order that loses no wake-up: [`watch`](Self::watch) the sockets, look whether one is ready
/// ([`Socket::poll_ready`]), [`arm`](Self::arm), look once more, [`sleep`](Self::sleep) or poll
/// [`descriptor`](Self::descriptor) and [`Endpoint::liveness`], [`disarm`](Self::disarm).
pub struct Waiter {
    endpoint: Endpoint,
    slot: u32,
    descriptor: RawFd,
    process: u32,
    inner: Mutex<channel::app::Waiter>,
}

impl Waiter {
    /// A waiter to [`sleep`](Self::sleep) with.
    pub fn new(endpoint: &Endpoint) -> io::Result<Self> {
        Ok(Self::over(endpoint, endpoint.channel().waiter()?))
    }

    /// A waiter with a descriptor, to be polled beside others.
    pub fn with_descriptor(endpoint: &Endpoint) -> io::Result<Self> {
        Ok(Self::over(endpoint, endpoint.channel().waiter_with_bell()?))
    }

    fn over(endpoint: &Endpoint, inner: channel::app::Waiter) -> Self {
        let descriptor = inner.bell().map_or(-1, |bell| bell.as_raw_fd());
        let (slot, process) = (inner.slot(), std::process::id());
        Self { endpoint: endpoint.clone(), slot, descriptor, process, inner: Mutex::new(inner) }
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The descriptor to poll for reading, if it was made with one. It may be readable without cause.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    /// Has this waiter rung when `socket` becomes ready for `interest`.
    pub fn watch(&self, socket: &Socket, interest: Interest) {
        let record = socket.record();
        if interest.readable {
            record.set_reader(self.slot);
        }
        if interest.writable {
            record.set_writer(self.slot);
        }
    }

    /// Ends that.
    pub fn unwatch(&self, socket: &Socket) {
        let record = socket.record();
        record.clear_reader(self.slot);
        record.clear_writer(self.slot);
    }

    /// From now on a watched socket that becomes ready ends the sleep. What has been rung before is forgotten.
    pub fn arm(&self) {
        before_waiting();
        lock(&self.inner).prepare();
    }

    /// No longer.
    pub fn disarm(&self) {
        lock(&self.inner).cancel();
    }

    /// Drops it, or in a forked child forgets it: its slot is the parent's.
    pub fn leave(self) {
        if self.process != std::process::id() {
            std::mem::forget(self);
        }
    }

    /// Sleeps until it is rung or the time is over; it is disarmed then.
    ///
    /// # Errors
    /// `EINTR`: a signal was handled.
    pub fn sleep(&self, timeout: Option<Duration>) -> io::Result<bool> {
        lock(&self.inner).sleep(timeout)
    }

    /// As [`sleep`](Self::sleep), but ends early to look after the endpoint: its idle memory, and whether the stack lives.
    pub(crate) fn sleep_and_tend(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let look = self.endpoint.tend().unwrap_or(ALIVE_CHECK).min(ALIVE_CHECK);
        let rung = self.sleep(Some(timeout.map_or(look, |timeout| timeout.min(look))))?;
        if !rung {
            self.endpoint.check_alive();
        }
        Ok(rung)
    }
}

thread_local! {
    static WAITER: RefCell<Option<Waiter>> = const { RefCell::new(None) };
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::new()) };
}

/// Spins as long as that has paid off lately in this thread; whether `ready` became true.
pub fn spin(ready: impl FnMut() -> bool) -> bool {
    before_waiting();
    PATIENCE
        .try_with(|patience| {
            let mut own = patience.get();
            let found = own.spin(ready);
            patience.set(own);
            found
        })
        .unwrap_or(false)
}

impl Socket {
    /// Waits until the socket is ready for `interest` or the deadline passes; what it is ready for then. Spins first if
    /// that has paid off lately, then sleeps.
    ///
    /// # Errors
    /// `EINTR` when a signal was handled and a socket call of Linux would end.
    pub fn wait(&self, interest: Interest, deadline: Option<Instant>) -> io::Result<Readiness> {
        let satisfied = |socket: &Socket| socket.poll_ready(interest).satisfies(interest);
        loop {
            let ready = self.poll_ready(interest);
            // What one thread was woken for another may have taken: then it waits on.
            if ready.satisfies(interest) || !wait_for(self, interest, deadline, satisfied)? {
                return Ok(ready);
            }
        }
    }

    /// Waits until a read of a stream gives `count` bytes, whatever its low-water mark says, or all that it ever will, or the
    /// deadline passes: then it is false.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for_bytes(&self, count: usize, deadline: Option<Instant>) -> io::Result<bool> {
        with_waiter(&self.endpoint, |waiter| {
            let interest = Interest::READABLE;
            waiter.watch(self, interest);
            let outcome = sleep_until(waiter, self, deadline, false, |socket| socket.has_bytes(count));
            waiter.disarm();
            waiter.unwatch(self);
            outcome
        })?
    }

    /// Waits until more has come than `seen` of [`received_total`](Self::received_total), taken or not. False: nothing more
    /// comes, or there is an error, or the deadline has passed.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for_more(&self, seen: u64, deadline: Option<Instant>) -> io::Result<bool> {
        with_waiter(&self.endpoint, |waiter| {
            waiter.watch(self, Interest::READABLE);
            let outcome = sleep_until(waiter, self, deadline, false, |socket| socket.has_more(seen));
            waiter.disarm();
            waiter.unwatch(self);
            outcome
        })??;
        Ok(self.received_total() > seen)
    }

    /// Begins a wait for bytes of a socket: if bytes stream in, the stack is asked to ring only when many have come or no more
    /// come, and this is true. Look once the waiter is armed whether something came meanwhile, sleep without a spin, and
    /// [`end_nap`](Self::end_nap).
    pub fn begin_nap(&self, interest: Interest) -> bool {
        if !interest.readable || self.kind == Kind::Datagram {
            return false;
        }
        let consumed = self.progress.consumed.load(Ordering::Relaxed);
        let Some(bytes) = self.progress.meter.begin(consumed, self.record().received()) else { return false };
        self.record().set_read_wake_or_pause(consumed + self.low_water() as u64, consumed + bytes);
        true
    }

    /// Ends it: what there is counts.
    pub fn end_nap(&self) {
        self.progress.meter.end_nap(self.record().received());
    }
}

/// Sleeps until `done`, or the deadline passes; whether it is done.
pub(super) fn wait_for(
    socket: &Socket,
    interest: Interest,
    deadline: Option<Instant>,
    done: impl Fn(&Socket) -> bool,
) -> io::Result<bool> {
    let nap = socket.begin_nap(interest);
    if !nap && !socket.is_blocked(interest) && spin(|| done(socket)) {
        return Ok(true);
    }
    with_waiter(&socket.endpoint, |waiter| {
        waiter.watch(socket, interest);
        let outcome = sleep_until(waiter, socket, deadline, nap, done);
        waiter.disarm();
        waiter.unwatch(socket);
        outcome
    })?
}

fn sleep_until(
    waiter: &Waiter,
    socket: &Socket,
    deadline: Option<Instant>,
    mut nap: bool,
    done: impl Fn(&Socket) -> bool,
) -> io::Result<bool> {
    loop {
        waiter.arm();
        if done(socket) {
            socket.end_nap();
            return Ok(true);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slept = waiter.sleep_and_tend(left);
        if std::mem::take(&mut nap) {
            socket.end_nap();
        }
        if done(socket) {
            return Ok(true);
        }
        match slept {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                // Linux restarts a call without a time limit if the handler was installed so.
                if deadline.is_some() || handlers_interrupt() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
            Ok(true) => {}
            Ok(false) => {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok(done(socket));
                }
            }
        }
    }
}

/// This thread's waiter for `endpoint`. It is taken out while in use: a signal handler that waits as well gets another.
fn with_waiter<T>(endpoint: &Endpoint, body: impl FnOnce(&Waiter) -> T) -> io::Result<T> {
    let kept = WAITER.try_with(|place| place.try_borrow_mut().ok().and_then(|mut place| place.take()));
    let waiter = match kept.ok().flatten() {
        Some(waiter) if waiter.endpoint.is_same(endpoint) => waiter,
        Some(other) => {
            other.leave();
            Waiter::new(endpoint)?
        }
        None => Waiter::new(endpoint)?,
    };
    let value = body(&waiter);
    let _ = WAITER.try_with(|place| place.try_borrow_mut().map(|mut place| *place = Some(waiter)));
    Ok(value)
}
