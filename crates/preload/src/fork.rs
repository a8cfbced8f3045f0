//! `fork`: the child has the stack's sockets of its parent as well.
//!
//! Before a fork the FEP is told, so that what the parent closes afterwards is not closed for the child. The child's sockets know what
//! they are called by the FEP, and are claimed when they are first used: most children use one of them, or none because they
//! execute another program, which has the kernel's sockets only. A process whose socket was claimed by another one claims it again if
//! it uses it again. Epoll instances of the parent's are the kernel's alone in the child, datagram sockets are as well, and with the
//! stack inside the process (`--arch host`) the child has none of its sockets.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outboard::raw::{Options, Socket};
use outboard::{Child, Endpoint};

use crate::description::{Description, InetSocket};
use crate::table::{self, Held};
use crate::{errno, runtime};

/// How long a process leaves a socket to another one that has just claimed it, before it claims it again.
const TURN: Duration = Duration::from_millis(1);

/// Whether sockets of this process may be those of another one, too.
static SHARES: AtomicBool = AtomicBool::new(false);

/// In a forked child that has not opened its endpoint yet: by this it will. Null: it has, or it is none.
static UNOPENED: AtomicPtr<Child> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Between the two ends of a fork: what the child will have.
    static FORKING: RefCell<Option<Legacy>> = const { RefCell::new(None) };
}

/// What a child has from its parent.
struct Legacy {
    child: Child,
    sockets: Vec<(c_int, Held, Inherited)>,
}

/// A socket that has to be claimed before it is used.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    /// What the FEP calls it.
    identity: u64,
    /// The options that were set.
    options: Options,
}

impl Inherited {
    /// What a child inherits of a socket that was claimed, or never was another's.
    fn of(socket: &Socket) -> Option<Self> {
        Some(Self { identity: socket.identity()?, options: socket.options() })
    }
}

/// Before a fork. Without sockets of the stack, and where the FEP cannot be told, the child begins with none.
pub(crate) extern "C" fn before() {
    let sockets = if table::in_own_process() { heritage() } else { Vec::new() };
    if sockets.is_empty() {
        return;
    }
    let child = match runtime::endpoint() {
        Ok(endpoint) if endpoint.is_host() => return,
        Ok(endpoint) => endpoint.announce_child(),
        Err(error) => Err(error),
    };
    match child {
        Ok(child) => {
            SHARES.store(true, Ordering::Relaxed);
            // Without thread-local memory, at the end of a thread, there is nothing to inherit.
            let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(Legacy { child, sockets }));
        }
        Err(error) => eprintln!("outboard: a forked process will not have its parent's connections: {error}"),
    }
}

/// The sockets that a child inherits.
fn heritage() -> Vec<(c_int, Held, Inherited)> {
    let inherited = |fd| {
        let held = table::find(fd)?;
        let inherited = held.socket()?.legacy()?;
        Some((fd, held, inherited))
    };
    table::within(0, usize::MAX).filter_map(inherited).collect()
}

/// After a fork, in the parent.
pub(crate) extern "C" fn after_in_parent() {
    // The child has the descriptor now.
    let _ = FORKING.try_with(RefCell::take);
}

/// After a fork, in the child, whose table is empty: puts its sockets there.
pub(crate) fn after_in_child() {
    drop(take_unopened()); // its parent's, which had not opened it
    let Some(legacy) = FORKING.try_with(RefCell::take).ok().flatten() else { return };
    UNOPENED.store(Box::into_raw(Box::new(legacy.child)), Ordering::Release);
    let mut known: HashMap<(usize, u64), Held> = HashMap::new();
    for (fd, held, inherited) in legacy.sockets {
        if let Some(socket) = held.socket() {
            // Descriptors of one description have one in the child, too.
            let copy = || Held::new(Description::Socket(socket.in_child(inherited)));
            let copy = known.entry(held.downgrade().id()).or_insert_with(copy).clone();
            drop(table::insert(fd, copy));
        }
        // The parent's description, of which this is a copy that must not be dropped.
        std::mem::forget(held);
    }
}

fn take_unopened() -> Option<Box<Child>> {
    let child = UNOPENED.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: put there by `after_in_child`; whoever takes it out owns it.
    (!child.is_null()).then(|| unsafe { Box::from_raw(child) })
}

/// The endpoint of a child that has not opened it yet.
pub(crate) fn own_endpoint() -> Option<io::Result<Endpoint>> {
    take_unopened().map(|child| Endpoint::of_child(*child))
}

/// A socket that was never claimed is of no use any more.
fn release(identity: u64) {
    // If the FEP is gone, so is the socket.
    let _ = match take_unopened() {
        Some(child) => {
            let released = child.release(identity);
            UNOPENED.store(Box::into_raw(child), Ordering::Release);
            released
        }
        None => runtime::endpoint().and_then(|endpoint| endpoint.release(identity)),
    };
}

/// Does to a socket what may find that another process uses it by then, until it does not: processes that use one at the same time
/// have it in turn, each for a while.
pub(crate) fn in_turn<T>(
    socket: &InetSocket,
    outboard: &Socket,
    mut call: impl FnMut(&Socket) -> io::Result<T>,
) -> io::Result<T> {
    let mut outcome = call(outboard);
    while outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ESTALE)) {
        std::thread::sleep(TURN);
        outcome = call(socket.outboard().ok_or_else(|| errno::error(libc::ENOTCONN))?);
    }
    outcome
}

/// What a socket has to do with other processes.
#[derive(Default)]
pub(crate) struct Kinship {
    /// It was not claimed since the fork by which it came.
    unclaimed: Mutex<Option<Inherited>>,
}

impl Kinship {
    pub(crate) fn inherited(inherited: Inherited) -> Self {
        Self { unclaimed: Mutex::new(Some(inherited)) }
    }

    /// What a child inherits; `own`: the stack's socket, if there is one.
    pub(crate) fn legacy(&self, own: Option<&Socket>) -> Option<Inherited> {
        let unclaimed = *self.unclaimed.lock().unwrap_or_else(PoisonError::into_inner);
        unclaimed.or_else(|| Inherited::of(own?))
    }

    /// The stack's socket to use from now on, if it is not `own` any more. A listener that others accept from stays as it is, unless
    /// the program `joins` them.
    #[inline]
    pub(crate) fn claim(&self, own: Option<&Socket>, joins: bool) -> Option<io::Result<Socket>> {
        if SHARES.load(Ordering::Relaxed) { self.claim_if_due(own, joins) } else { None }
    }

    #[cold]
    fn claim_if_due(&self, own: Option<&Socket>, joins: bool) -> Option<io::Result<Socket>> {
        let mut unclaimed = self.unclaimed.lock().unwrap_or_else(PoisonError::into_inner);
        let moved =
            || own.filter(|own| own.is_moved() && (joins || !own.is_listening())).and_then(Inherited::of);
        let due = unclaimed.take().or_else(moved)?;
        Some(runtime::endpoint().and_then(|endpoint| Socket::claim(endpoint, due.identity, due.options)))
    }
}

impl Drop for Kinship {
    fn drop(&mut self) {
        if let Some(unclaimed) = self.unclaimed.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            release(unclaimed.identity);
        }
    }
}
