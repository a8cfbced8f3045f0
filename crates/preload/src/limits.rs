//! getrlimit(2) and setrlimit(2): a program that limits its address space means its own memory.
//!
//! This library maps rings into it that are far larger than what of them is ever in memory: by the FEP's defaults half a
//! GByte, and in a child that has taken connections over its parent's and its own. vsftpd lets a session have 200 MB. So what is
//! set is raised by [`ROOM`], as far as the process may, and what was asked for is what is told.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{RLIM64_INFINITY, RLIMIT_AS, pid_t, rlimit64};

use crate::{real, runtime};

/// Address space for what this library maps.
const ROOM: u64 = 4 << 30;

/// One of the two limits of the address space: what the program asked for last, and what was set instead.
struct Raised {
    asked: AtomicU64,
    set: AtomicU64,
}

impl Raised {
    const fn new() -> Self {
        Self { asked: AtomicU64::new(RLIM64_INFINITY), set: AtomicU64::new(RLIM64_INFINITY) }
    }

    fn remember(&self, asked: u64, set: u64) {
        self.asked.store(asked, Ordering::Relaxed);
        self.set.store(set, Ordering::Relaxed);
    }

    /// What the program is told of a limit of the kernel's: what it asked for, unless somebody has set it since.
    fn told(&self, limit: u64) -> u64 {
        if limit == self.set.load(Ordering::Relaxed) { self.asked.load(Ordering::Relaxed) } else { limit }
    }
}

static SOFT: Raised = Raised::new();
static HARD: Raised = Raised::new();

/// `asked` with [`ROOM`] above it, but not beyond `most` if it is not itself.
fn raise(asked: u64, most: u64) -> u64 {
    asked.saturating_add(ROOM).min(most).max(asked)
}

/// Whether it is about this process's address space, and this library maps something into that.
fn is_ours(process: pid_t, resource: c_int) -> bool {
    resource == RLIMIT_AS as c_int
        && (process == 0 || process.cast_unsigned() == std::process::id())
        && runtime::enabled()
}

/// See prlimit(2).
///
/// # Safety
/// Each pointer must be null or lead to a limit.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn prlimit64(
    process: pid_t,
    resource: c_int,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    if !is_ours(process, resource) {
        // SAFETY: the caller's arguments.
        return unsafe { real::prlimit64(process, resource, new, old) };
    }
    let mut before = rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place for the limit is this function's own.
    let answer = unsafe { real::prlimit64(process, resource, std::ptr::null(), &raw mut before) };
    if answer != 0 {
        return answer;
    }
    if !new.is_null() {
        // SAFETY: the caller's pointer, which is not null.
        let asked = unsafe { *new };
        let rlim_max = raise(asked.rlim_max, before.rlim_max);
        let raised = rlimit64 { rlim_cur: raise(asked.rlim_cur, rlim_max), rlim_max };
        // What makes no sense is refused as it stands.
        let set = if asked.rlim_cur <= asked.rlim_max { raised } else { asked };
        // SAFETY: the new limit is this function's own.
        let answer = unsafe { real::prlimit64(process, resource, &raw const set, std::ptr::null_mut()) };
        if answer != 0 {
            return answer;
        }
        before = told(before);
        SOFT.remember(asked.rlim_cur, set.rlim_cur);
        HARD.remember(asked.rlim_max, set.rlim_max);
    } else {
        before = told(before);
    }
    if !old.is_null() {
        // SAFETY: the caller's pointer, which is not null.
        unsafe { *old = before };
    }
    0
}

fn told(limit: rlimit64) -> rlimit64 {
    rlimit64 { rlim_cur: SOFT.told(limit.rlim_cur), rlim_max: HARD.told(limit.rlim_max) }
}

/// See prlimit(2); with 64-bit limits, as all are here.
///
/// # Safety
/// As [`prlimit64`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn prlimit(
    process: pid_t,
    resource: c_int,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { prlimit64(process, resource, new, old) }
}

macro_rules! both_names {
    ($($set:ident)*; $($get:ident)*) => {
        $(
            /// See setrlimit(2).
            ///
            /// # Safety
            /// The pointer must lead to a limit.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $set(resource: c_int, limit: *const rlimit64) -> c_int {
                // SAFETY: the caller's arguments. Without a new limit the kernel would be asked nothing.
                unsafe {
                    match limit.is_null() || !is_ours(0, resource) {
                        true => real::$set(resource, limit),
                        false => prlimit64(0, resource, limit, std::ptr::null_mut()),
                    }
                }
            }
        )*
        $(
            /// See getrlimit(2).
            ///
            /// # Safety
            /// The pointer must lead to a place for a limit.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $get(resource: c_int, limit: *mut rlimit64) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe {
                    match limit.is_null() || !is_ours(0, resource) {
                        true => real::$get(resource, limit),
                        false => prlimit64(0, resource, std::ptr::null(), limit),
                    }
                }
            }
        )*
    };
}

both_names!(setrlimit setrlimit64; getrlimit getrlimit64);

// Limits have 64 bits under either name.
const _: () = assert!(size_of::<libc::rlimit>() == size_of::<rlimit64>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_raised_as_far_as_may_be() {
        let infinite = RLIM64_INFINITY;
        assert_eq!(raise(200 << 20, infinite), (200 << 20) + ROOM);
        assert_eq!(raise(infinite, infinite), infinite);
        assert_eq!(raise(200 << 20, 1 << 30), 1 << 30, "no more than the process may have");
        assert_eq!(raise(2 << 30, 1 << 30), 2 << 30, "what is not allowed is for the kernel to refuse");
    }
}
