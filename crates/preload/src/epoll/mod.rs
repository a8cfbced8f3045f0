//! epoll over a mix of kernel descriptors and sockets of the stack.
//!
//! The program's epoll descriptor is a real one. Kernel descriptors are registered in it, with the program's own
//! data. Sockets of the stack are registered here: each has an observer ([`Watchers`]) that is told of changes and
//! puts the registration into the ready list of its instance. So a wait costs per ready socket, however many are
//! registered. The instance's waiter rings a descriptor that is registered in the real epoll too, so that one
//! `epoll_wait` sleeps on both worlds, and a program may itself poll the epoll descriptor.
//!
//! [`Epoll`] is the instance, [`registration`] one socket in it with the edge and one-shot rules, `calls` the
//! functions of the C library.

pub(crate) mod calls;
pub(crate) mod registration;
mod wait;

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libc::epoll_event;
use outboard::Endpoint;
use outboard::raw::{Interest, Observer, Waiter};
use rustix::event::{EventfdFlags, eventfd};

pub(crate) use registration::Registration;

use crate::table::{Held, Weak};
use crate::{errno, real};

/// A registration that wakes one of several instances; it is never modified, and few flags stand beside it.
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const BESIDE_EXCLUSIVE: u32 = (libc::EPOLLIN
    | libc::EPOLLOUT
    | libc::EPOLLERR
    | libc::EPOLLHUP
    | libc::EPOLLWAKEUP
    | libc::EPOLLET
    | libc::EPOLLEXCLUSIVE) as u32;

/// An epoll instance as the descriptor table holds it; its registrations end with it.
pub(crate) struct Epoll(Arc<Core>);

impl Epoll {
    /// The instance behind the kernel's epoll descriptor `kernel`.
    pub(crate) fn new(kernel: c_int) -> io::Result<Self> {
        Ok(Self(Arc::new(Core {
            kernel,
            poke: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            waiter: OnceLock::new(),
            registrations: Mutex::default(),
            ready: Mutex::default(),
            ready_count: AtomicUsize::new(0),
            sleepers: Mutex::new(0),
            in_kernel: AtomicUsize::new(0),
            is_nested: AtomicBool::new(false),
            recent: Mutex::default(),
            kernel_first: AtomicBool::new(false),
        })))
    }

    /// The instance itself.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        let registrations = std::mem::take(&mut *lock(&self.0.registrations));
        for registration in registrations.into_values() {
            registration.end();
            if let Some(held) = registration.socket.upgrade()
                && let Some(socket) = held.socket()
            {
                socket.watchers.forget(&registration);
            }
        }
        lock(&self.0.ready).clear();
        lock(&self.0.recent).clear();
    }
}

/// A descriptor and the description it named.
type Key = (c_int, (usize, u64));

/// What the calls and the observers share of an instance.
pub(crate) struct Core {
    /// The kernel's epoll descriptor.
    kernel: c_int,
    /// Readable when a thread of this process wants others to look at the list.
    poke: OwnedFd,
    /// Made when the first socket of the stack comes in.
    waiter: OnceLock<Waiter>,
    /// By descriptor and description, as in the kernel.
    registrations: Mutex<HashMap<Key, Arc<Registration>>>,
    /// Registrations that may be ready, each once.
    ready: Mutex<VecDeque<Arc<Registration>>>,
    ready_count: AtomicUsize,
    /// Threads in `epoll_wait` that may sleep.
    sleepers: Mutex<u32>,
    /// The program's registrations in the kernel's epoll; more than there are, where a descriptor was closed without taking
    /// its registration back.
    in_kernel: AtomicUsize,
    /// Whether somebody waits for the epoll descriptor itself.
    is_nested: AtomicBool,
    /// What was told last, if it was little.
    recent: Mutex<Vec<Arc<Registration>>>,
    /// Whether the last wait had no room for what the kernel's side may have.
    kernel_first: AtomicBool,
}

impl Core {
    /// The waiter, once sockets of the stack are registered.
    fn active(&self) -> Option<&Waiter> {
        self.waiter.get()
    }

    /// The data that marks the waiter's own events among the kernel's: no program has this address.
    fn marker(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// The data that marks the other threads' events.
    fn poke_marker(&self) -> u64 {
        self.marker() + 2
    }

    /// The data that marks the end of the endpoint.
    fn end_marker(&self) -> u64 {
        self.marker() + 1
    }

    /// The first socket of the stack comes in: the waiter's descriptor goes into the kernel's epoll.
    fn activate(&self, endpoint: &Endpoint) -> io::Result<&Waiter> {
        if let Some(waiter) = self.waiter.get() {
            return Ok(waiter);
        }
        let waiter = Waiter::with_descriptor(endpoint)?;
        let readable = libc::EPOLLIN as u32;
        self.control_kernel(libc::EPOLL_CTL_ADD, waiter.descriptor(), readable, self.marker())?;
        self.control_kernel(libc::EPOLL_CTL_ADD, self.poke.as_raw_fd(), readable, self.poke_marker())?;
        if endpoint.liveness() >= 0 {
            self.control_kernel(libc::EPOLL_CTL_ADD, endpoint.liveness(), 0, self.end_marker())?;
        }
        // A thread may sleep in the kernel's epoll already: let it be rung.
        waiter.arm();
        Ok(self.waiter.get_or_init(|| waiter))
    }

    fn control_kernel(&self, operation: c_int, fd: c_int, events: u32, data: u64) -> io::Result<()> {
        let mut event = epoll_event { events, u64: data };
        // SAFETY: the event lives during the call.
        match unsafe { real::epoll_ctl(self.kernel, operation, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The program's own `epoll_ctl` on a descriptor of the kernel's, by `call`.
    fn register_in_kernel(&self, operation: c_int, call: impl FnOnce() -> c_int) -> c_int {
        if operation == libc::EPOLL_CTL_ADD {
            // First: what becomes ready at once is looked for by then.
            self.in_kernel.fetch_add(1, Ordering::Release);
        }
        let status = call();
        match (operation, status) {
            (libc::EPOLL_CTL_ADD, 0) => {}
            (libc::EPOLL_CTL_ADD, _) | (libc::EPOLL_CTL_DEL, 0) => self.left_kernel(),
            _ => {}
        }
        status
    }

    /// Takes back what the program registered in the kernel's epoll, if it is still there.
    fn unregister_in_kernel(&self, fd: c_int) {
        if self.control_kernel(libc::EPOLL_CTL_DEL, fd, 0, 0).is_ok() {
            self.left_kernel();
        }
    }

    fn left_kernel(&self) {
        let less = |count: usize| count.checked_sub(1);
        // None to take away: another process that shares the instance registered it.
        let _ = self.in_kernel.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }

    /// Puts a registration into the ready list; a thread that sleeps here looks at it.
    fn push(&self, registration: &Arc<Registration>) {
        if registration.mark_queued() {
            lock(&self.ready).push_back(Arc::clone(registration));
            self.ready_count.fetch_add(1, Ordering::Release);
        }
        if *lock(&self.sleepers) > u32::from(wait::is_awake_sleeper(self)) {
            self.poke();
        }
    }

    /// Wakes threads that sleep in the kernel's epoll, from this side.
    fn poke(&self) {
        // A counter that is full is readable already.
        let _ = rustix::io::write(&self.poke, &1u64.to_ne_bytes());
    }

    /// Takes the next registration that may be ready.
    fn pop(&self) -> Option<Arc<Registration>> {
        if self.ready_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let registration = lock(&self.ready).pop_front()?;
        self.ready_count.fetch_sub(1, Ordering::Release);
        registration.unmark_queued();
        Some(registration)
    }

    fn has_ready(&self) -> bool {
        self.ready_count.load(Ordering::Acquire) != 0
    }

    /// Registers a socket of the stack.
    fn add(self: &Arc<Self>, fd: c_int, held: &Held, event: epoll_event) -> io::Result<()> {
        let socket = held.socket().ok_or_else(|| errno::error(libc::EBADF))?;
        let outboard = socket.existing().ok_or_else(|| errno::error(libc::EBADF))?;
        if event.events & EXCLUSIVE != 0 && event.events & !BESIDE_EXCLUSIVE != 0 {
            return Err(errno::error(libc::EINVAL));
        }
        let waiter = self.activate(outboard.endpoint())?;
        let weak = held.downgrade();
        let registration = {
            let mut registrations = lock(&self.registrations);
            let std::collections::hash_map::Entry::Vacant(place) = registrations.entry((fd, weak.id()))
            else {
                return Err(errno::error(libc::EEXIST));
            };
            Arc::clone(place.insert(Arc::new(Registration::new(Arc::clone(self), fd, weak, event))))
        };
        socket.watchers.remember(&registration);
        outboard.set_observer(Some(Arc::clone(&socket.watchers) as Arc<dyn Observer>));
        waiter.watch(outboard, interest_of(event.events));
        self.push(&registration);
        Ok(())
    }

    fn modify(&self, fd: c_int, held: &Held, event: epoll_event) -> io::Result<()> {
        if event.events & EXCLUSIVE != 0 {
            return Err(errno::error(libc::EINVAL));
        }
        let registration = lock(&self.registrations)
            .get(&(fd, held.downgrade().id()))
            .cloned()
            .ok_or_else(|| errno::error(libc::ENOENT))?;
        if registration.is_exclusive() {
            return Err(errno::error(libc::EINVAL));
        }
        registration.rearm(event);
        if let (Some(waiter), Some(outboard)) =
            (self.active(), held.socket().and_then(crate::description::InetSocket::existing))
        {
            waiter.watch(outboard, interest_of(event.events));
        }
        self.push(&registration);
        Ok(())
    }

    fn remove(&self, fd: c_int, held: &Held) -> io::Result<()> {
        let registration = lock(&self.registrations)
            .remove(&(fd, held.downgrade().id()))
            .ok_or_else(|| errno::error(libc::ENOENT))?;
        registration.end();
        if let Some(socket) = held.socket() {
            socket.watchers.forget(&registration);
            if let (Some(waiter), Some(outboard)) = (self.active(), socket.existing()) {
                waiter.unwatch(outboard);
            }
        }
        Ok(())
    }

    fn remove_closed(&self, registration: &Registration) {
        lock(&self.registrations).remove(&(registration.fd, registration.socket.id()));
    }

    /// From now on the epoll descriptor itself must become readable when a socket is ready.
    pub(crate) fn set_nested(&self) {
        if !self.is_nested.swap(true, Ordering::AcqRel)
            && let Some(waiter) = self.active()
        {
            waiter.arm();
            if self.has_ready() || waiter.endpoint().has_events() {
                self.poke();
            }
        }
    }
}

fn interest_of(events: u32) -> Interest {
    let read = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLRDNORM) as u32;
    let write = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
    Interest { readable: events & read != 0, writable: events & write != 0 }
}

/// The epoll registrations of one socket: those in the stack's lists, and, while its traffic is the kernel's, those
/// in the kernel's, which move over when it binds or connects to the stack.
#[derive(Default)]
pub(crate) struct Watchers {
    count: AtomicUsize,
    list: Mutex<Vec<Arc<Registration>>>,
    in_kernel: Mutex<Vec<InKernel>>,
}

struct InKernel {
    core: std::sync::Weak<Core>,
    fd: c_int,
    event: epoll_event,
}

impl Watchers {
    fn remember(&self, registration: &Arc<Registration>) {
        let mut list = lock(&self.list);
        list.push(Arc::clone(registration));
        self.count.store(list.len(), Ordering::Release);
    }

    fn forget(&self, registration: &Arc<Registration>) {
        let mut list = lock(&self.list);
        list.retain(|other| !Arc::ptr_eq(other, registration));
        self.count.store(list.len(), Ordering::Release);
    }

    /// The stack's socket is another one from now on.
    pub(crate) fn follow(self: &Arc<Self>, outboard: &outboard::raw::Socket) {
        if self.count.load(Ordering::Acquire) != 0 {
            outboard.set_observer(Some(Arc::clone(self) as Arc<dyn Observer>));
            for registration in lock(&self.list).iter() {
                registration.follow(outboard);
            }
        }
    }

    /// The socket is gone: so are its registrations.
    pub(crate) fn forget_all(&self) {
        self.count.store(0, Ordering::Release);
        for entry in std::mem::take(&mut *lock(&self.in_kernel)) {
            if let Some(core) = entry.core.upgrade() {
                core.left_kernel();
            }
        }
        for registration in std::mem::take(&mut *lock(&self.list)) {
            registration.end();
            registration.core.remove_closed(&registration);
        }
    }

    fn note_kernel(&self, core: &Arc<Core>, operation: c_int, fd: c_int, event: Option<epoll_event>) {
        let mut list = lock(&self.in_kernel);
        list.retain(|other| other.fd != fd || !std::ptr::eq(other.core.as_ptr(), Arc::as_ptr(core)));
        if operation != libc::EPOLL_CTL_DEL
            && let Some(event) = event
        {
            list.push(InKernel { core: Arc::downgrade(core), fd, event });
        }
    }

    /// What the kernel carries of this socket is over: its registrations there, too.
    pub(crate) fn leave_kernel(&self) {
        for registration in lock(&self.list).iter() {
            registration.core.unregister_in_kernel(registration.fd);
        }
    }

    /// The socket's traffic has gone over to the stack, alone or (`keep`) beside the kernel's.
    pub(crate) fn move_over(&self, held: &Held, keep: bool) {
        for entry in std::mem::take(&mut *lock(&self.in_kernel)) {
            let Some(core) = entry.core.upgrade() else { continue };
            if !keep {
                core.unregister_in_kernel(entry.fd);
            }
            let _ = core.add(entry.fd, held, entry.event);
        }
    }
}

impl Observer for Watchers {
    fn on_event(&self) {
        if self.count.load(Ordering::Acquire) != 0 {
            for registration in lock(&self.list).iter() {
                registration.core.push(registration);
            }
        }
    }
}

/// What a registration keeps of its socket.
pub(crate) type SocketName = Weak;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
