//! One socket in one epoll instance: what the program wants to know, and what it was told already.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libc::epoll_event;
use outboard::raw::{Interest, Readiness, Socket};

use super::{Core, SocketName, interest_of};
use crate::description::InetSocket;

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const PRI: u32 = libc::EPOLLPRI as u32;
const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// Flags that say how to tell, not what.
const MANNER: u32 = EDGE | ONCE | (libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP) as u32;

/// A socket in the interest list of an epoll instance.
pub(crate) struct Registration {
    /// The instance.
    pub(super) core: Arc<Core>,
    /// The descriptor by which it was registered.
    pub(super) fd: c_int,
    /// The socket.
    pub(super) socket: SocketName,
    state: Mutex<State>,
    queued: AtomicBool,
    ended: AtomicBool,
}

struct State {
    event: epoll_event,
    /// Edge-triggered: what was told, and the socket's counters then.
    told: u32,
    received: u64,
    blocked: u64,
    errors: u32,
}

/// What to do with a registration that was looked at.
pub(super) enum Verdict {
    /// Nothing to tell.
    Quiet,
    /// Tell, and look again at the next wait.
    TellAndKeep(epoll_event),
    /// Tell, and wait for the next event of the socket.
    Tell(epoll_event),
}

impl Registration {
    pub(super) fn new(core: Arc<Core>, fd: c_int, socket: SocketName, event: epoll_event) -> Self {
        let event = with_ends(event);
        Self {
            core,
            fd,
            socket,
            state: Mutex::new(State { event, told: 0, received: 0, blocked: 0, errors: 0 }),
            queued: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// The program changed what it wants; what is ready counts as new.
    pub(super) fn rearm(&self, event: epoll_event) {
        let event = with_ends(event);
        *self.lock() = State { event, told: 0, received: 0, blocked: 0, errors: 0 };
    }

    /// Whether it was registered with `EPOLLEXCLUSIVE`.
    pub(super) fn is_exclusive(&self) -> bool {
        self.lock().event.events & libc::EPOLLEXCLUSIVE as u32 != 0
    }

    /// The stack's socket is another one from now on.
    pub(super) fn follow(self: &Arc<Self>, socket: &Socket) {
        let wanted = {
            let mut state = self.lock();
            (state.told, state.received, state.blocked, state.errors) = (0, 0, 0, 0);
            state.event.events
        };
        if let Some(waiter) = self.core.active() {
            waiter.watch(socket, interest_of(wanted));
        }
        self.core.push(self);
    }

    /// Nothing is told any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether it was not in the ready list before.
    pub(super) fn mark_queued(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_queued(&self) {
        self.queued.store(false, Ordering::Release);
    }

    /// Whether it waits for room in a full send ring.
    pub(super) fn is_blocked(&self) -> bool {
        self.with_socket(|socket, wanted| socket.is_blocked(interest_of(wanted))).unwrap_or(false)
    }

    /// Has the socket ring only when much has come or no more comes, if bytes stream in; whether they do.
    pub(super) fn begin_nap(&self) -> bool {
        self.with_socket(|socket, wanted| socket.begin_nap(interest_of(wanted))).unwrap_or(false)
    }

    /// Ends that.
    pub(super) fn end_nap(&self) {
        self.with_socket(|socket, _| socket.end_nap());
    }

    /// Whether a nap would be slept through: something has come before it began, and the stack may not tell of it again.
    pub(super) fn is_nap_over(&self) -> bool {
        self.with_socket(|socket, _| socket.readiness().satisfies(Interest::READABLE)).unwrap_or(true)
    }

    fn with_socket<T>(&self, body: impl FnOnce(&Socket, u32) -> T) -> Option<T> {
        let held = self.socket.upgrade()?;
        let socket = held.socket()?.as_it_is()?;
        let wanted = self.lock().event.events;
        Some(body(socket, wanted))
    }

    /// Looks at the socket now.
    pub(super) fn examine(&self) -> Verdict {
        if self.ended.load(Ordering::Acquire) {
            return Verdict::Quiet;
        }
        let Some(held) = self.socket.upgrade() else { return Verdict::Quiet };
        let Some(socket) = held.socket().and_then(InetSocket::as_it_is) else { return Verdict::Quiet };
        if socket.is_moved() { Verdict::Quiet } else { self.judge(socket) }
    }

    fn judge(&self, socket: &Socket) -> Verdict {
        let mut state = self.lock();
        let wanted = state.event.events;
        if wanted & !MANNER == 0 {
            return Verdict::Quiet; // a one-shot registration that has fired
        }
        // Counters before readiness: what comes in between is an edge of its own.
        let (received, blocked) = (socket.received_total(), socket.blocked_sends());
        let errors = socket.errors_total();
        let ready = bits_of(socket.poll_ready(interest_of(wanted)));
        let told = ready & wanted & !MANNER;
        if told == 0 {
            state.told = 0;
            return Verdict::Quiet;
        }
        let event = epoll_event { events: told, u64: state.event.u64 };
        if wanted & EDGE != 0 {
            let fresh = told & !state.told
                | if received != state.received { told & (IN | PRI) } else { 0 }
                | if blocked != state.blocked { told & OUT } else { 0 }
                | if errors != state.errors { told & ERR } else { 0 };
            (state.told, state.received, state.blocked) = (told, received, blocked);
            state.errors = errors;
            if fresh == 0 {
                return Verdict::Quiet;
            }
        }
        if wanted & ONCE != 0 {
            state.event.events &= MANNER;
            return Verdict::Tell(event);
        }
        if wanted & EDGE != 0 { Verdict::Tell(event) } else { Verdict::TellAndKeep(event) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Errors and ends are told to everybody, who wants nothing included.
fn with_ends(event: epoll_event) -> epoll_event {
    epoll_event { events: event.events | ERR | HUP, u64: event.u64 }
}

/// Readiness in the bits of poll(2) and epoll(7), which agree.
pub(crate) fn bits_of(ready: Readiness) -> u32 {
    let mut bits = 0;
    if ready.readable {
        bits |= IN;
    }
    if ready.writable {
        bits |= OUT;
    }
    if ready.urgent {
        bits |= PRI;
    }
    if ready.peer_closed {
        bits |= RDHUP | IN;
    }
    if ready.hangup {
        bits |= HUP;
    }
    if ready.error || ready.queued_errors {
        bits |= ERR;
    }
    bits
}
