//! How threads that wait for sockets are scheduled.
//!
//! Beside programs that compute, a thread that is woken for its answer has to wait until one of them has had its turn: for
//! milliseconds, where the answer took microseconds. So a thread asks the scheduler for a short slice before the first time
//! that it waits for a socket, once, by two system calls. It gets no more of the processor for that, but gets it sooner when it is woken
//! ([`fep::slice`]). Policy and nice value stay as they are, and threads of another policy than the usual one are left
//! alone. What a thread starts inherits its slice, as it inherits its nice value.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The variable that says it for unmodified programs, in microseconds; 0: as they are.
pub const SLICE_VARIABLE: &str = "OUTBOARD_SLICE_US";

/// Zero: none is asked for.
static SLICE_NS: AtomicU64 = AtomicU64::new(fep::slice::SHORTEST.as_nanos());

thread_local! {
    /// Whether this thread has asked, and been given what it has.
    static STATE: Cell<State> = const { Cell::new(State::Fresh) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    LeftAlone,
    Shortened,
}

/// The slice that threads ask for from now on, when they wait for the first time: from 0.1 to 100 ms. `None`: they stay as
/// they are.
///
/// # Errors
/// It is shorter or longer than that.
pub fn set_slice(slice: Option<Duration>) -> io::Result<()> {
    let slice = slice.map_or(base::Duration::ZERO, base::Duration::from);
    if slice != base::Duration::ZERO && !(fep::slice::SHORTEST..=fep::slice::LONGEST).contains(&slice) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a slice is from 0.1 to 100 ms long"));
    }
    SLICE_NS.store(slice.as_nanos(), Ordering::Relaxed);
    Ok(())
}

/// Has the calling thread ask, if it has not yet.
#[inline]
pub(crate) fn before_waiting() {
    let _ = STATE.try_with(|state| {
        if state.get() == State::Fresh {
            state.set(ask());
        }
    });
}

#[cold]
fn ask() -> State {
    let slice = base::Duration::from_nanos(SLICE_NS.load(Ordering::Relaxed));
    // Where it is not allowed, waiting takes longer beside other programs, no more.
    if slice != base::Duration::ZERO && fep::slice::shorten(slice).is_ok_and(|shortened| shortened) {
        return State::Shortened;
    }
    State::LeftAlone
}

/// In a forked child: gives back the slice that its only thread has from the parent's.
pub fn after_fork_in_child() {
    let _ = STATE.try_with(|state| {
        if state.replace(State::Fresh) == State::Shortened {
            forget_inherited();
        }
    });
}

/// Gives back the slice that this program was started with, if that was meant for a thread of its parent's that waits for
/// sockets. Does nothing about one that was given otherwise.
pub fn forget_inherited() {
    // Where it is not allowed, it keeps it: that takes nothing from anybody.
    let _ = fep::slice::reset();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_their_bounds() {
        assert!(set_slice(Some(Duration::from_micros(99))).is_err());
        assert!(set_slice(Some(Duration::from_millis(101))).is_err());
        set_slice(Some(Duration::from_millis(1))).unwrap();
        set_slice(None).unwrap();
        assert_eq!(SLICE_NS.load(Ordering::Relaxed), 0);
    }
}
