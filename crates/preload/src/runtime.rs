//! Whether this process uses an outboard stack, the endpoint that it uses, and what `fork` does to it.
//!
//! Nothing happens before a call needs an address judged: a program that opens no Internet socket never talks to
//! the FEP. What is set is read from the environment that `outboard run` prepared; without it, or with
//! `OUTBOARD_DISABLE`, every call goes straight to the C library.

use std::ffi::{CStr, c_char};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outboard::Endpoint;
use outboard::raw::Waiter;

use crate::sockaddr::{Family, unmapped};
use crate::{fork, table};

/// How long the exit of a process waits for what its own stack (`--arch host`) still has to deliver.
const EXIT_FLUSH_LIMIT: Duration = Duration::from_secs(10);

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);
static ENDPOINT: AtomicPtr<Endpoint> = AtomicPtr::new(std::ptr::null_mut());
static START: Mutex<()> = Mutex::new(());
static TOLD: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Whether Internet sockets of this process are looked at at all.
#[inline]
pub(crate) fn enabled() -> bool {
    match MODE.load(Ordering::Relaxed) {
        UNKNOWN => decide(),
        mode => mode == ON,
    }
}

#[cold]
fn decide() -> bool {
    // SAFETY: reading the pointer only; before the C library is set up it is null.
    if unsafe { environ }.is_null() {
        return false;
    }
    let on = !is_set(c"OUTBOARD_DISABLE") && (is_set(c"OUTBOARD_SOCKET") || is_set(c"OUTBOARD_ARCH"));
    if on {
        table::wipe_on_fork();
        table::in_own_process();
        // SAFETY: the handler takes no arguments and lives as long as the library, which is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(fork::before), Some(fork::after_in_parent), Some(after_fork_in_child))
        };
        // A program of the same kind may have started this one (by vfork, after which nothing of ours runs).
        outboard::scheduling::forget_inherited();
    }
    MODE.store(if on { ON } else { OFF }, Ordering::Relaxed);
    on
}

/// Whether a variable is there and not empty. `getenv` and not `std::env`, which takes a lock that a fork could
/// have left held.
fn is_set(name: &CStr) -> bool {
    // SAFETY: the name is a C string; the answer is null or one too.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: as above.
    !value.is_null() && unsafe { *value } != 0
}

/// The endpoint, started at the first call. An error is told once on stderr and answered as a network that is
/// down: nothing falls back to the kernel silently.
pub(crate) fn endpoint() -> io::Result<&'static Endpoint> {
    let endpoint = ENDPOINT.load(Ordering::Acquire);
    if endpoint.is_null() {
        return start();
    }
    // SAFETY: an endpoint that was published lives for ever.
    Ok(unsafe { &*endpoint })
}

#[cold]
fn start() -> io::Result<&'static Endpoint> {
    let _one_at_a_time = START.lock().unwrap_or_else(PoisonError::into_inner);
    let endpoint = ENDPOINT.load(Ordering::Acquire);
    if !endpoint.is_null() {
        // SAFETY: as in `endpoint`.
        return Ok(unsafe { &*endpoint });
    }
    let open = || fork::own_endpoint().unwrap_or_else(Endpoint::from_env);
    match with_signals_blocked(open) {
        Ok(endpoint) => {
            // Most programs come to wait for several things, and some when they have used up their descriptors.
            drop(Waiter::with_descriptor(&endpoint));
            let endpoint: &'static Endpoint = Box::leak(Box::new(endpoint));
            ENDPOINT.store(std::ptr::from_ref(endpoint).cast_mut(), Ordering::Release);
            Ok(endpoint)
        }
        Err(error) => {
            if !TOLD.swap(true, Ordering::Relaxed) {
                eprintln!("outboard: the stack cannot be reached, its addresses are unreachable: {error}");
            }
            Err(crate::errno::error(libc::ENETDOWN))
        }
    }
}

/// Threads started meanwhile take no signals of the program's.
fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: plain data, filled in by the calls below before it is read.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are valid for writing.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let value = start();
    // SAFETY: `before` was filled in above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    value
}

/// A forked child has an endpoint of its own, once it needs one. The parent's channel stays
/// as it is: its objects are neither used nor dropped, only the descriptors that would keep it alive are closed.
extern "C" fn after_fork_in_child() {
    table::forget_all();
    outboard::scheduling::after_fork_in_child();
    let endpoint = ENDPOINT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !endpoint.is_null() {
        // SAFETY: an endpoint that was published lives for ever.
        for fd in unsafe { &*endpoint }.descriptors() {
            // SAFETY: the child's copy of a descriptor that only the endpoint uses, which the child never touches.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }
    fork::after_in_child();
}

/// Before the process ends: a stack inside it must deliver what was queued; a FEP does so by itself.
pub(crate) fn flush_at_exit() {
    let endpoint = ENDPOINT.load(Ordering::Acquire);
    if !endpoint.is_null() && table::in_own_process() {
        // SAFETY: an endpoint that was published lives for ever.
        let endpoint = unsafe { &*endpoint };
        if endpoint.is_host() {
            endpoint.close_all(EXIT_FLUSH_LIMIT);
        }
    }
}

/// Where an address belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// To the kernel, untouched.
    Kernel,
    /// To the stack.
    Outboard,
    /// To both: the unspecified address, to receive on.
    Both,
}

/// Where a socket of `family` goes that binds to `address`.
pub(crate) fn side_of_bind(family: Family, v6_only: bool, address: SocketAddr) -> io::Result<Side> {
    if address.is_ipv4() != (family == Family::V4) {
        return Ok(Side::Kernel);
    }
    let ip = unmapped(address).ip();
    if ip.is_unspecified() {
        // [::] takes IPv4 connections too, unless it was told not to.
        let both = ip.is_ipv4() || !v6_only;
        return if both { endpoint().map(|_| Side::Both) } else { Ok(Side::Kernel) };
    }
    if ip.is_loopback() || ip.is_ipv6() {
        return Ok(Side::Kernel);
    }
    Ok(if endpoint()?.is_local(ip) { Side::Outboard } else { Side::Kernel })
}

/// Where a socket of `family` goes that connects, or sends a datagram, to `address`.
pub(crate) fn side_of_peer(family: Family, address: SocketAddr) -> io::Result<Side> {
    if address.is_ipv4() != (family == Family::V4) {
        return Ok(Side::Kernel);
    }
    let ip = unmapped(address).ip();
    if ip.is_loopback() || ip.is_unspecified() || ip.is_ipv6() {
        return Ok(Side::Kernel);
    }
    Ok(if endpoint()?.reaches(ip) { Side::Outboard } else { Side::Kernel })
}

/// The address as the stack takes it: IPv4.
pub(crate) fn for_stack(address: SocketAddr) -> SocketAddr {
    match unmapped(address) {
        SocketAddr::V6(six) if six.ip().is_unspecified() => {
            SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), six.port())
        }
        other => other,
    }
}
