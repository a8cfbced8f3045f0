//! The slice of a thread: how long the scheduler lets it run before others have their turn.
//!
//! A short slice does not mean more or less of the processor, but sooner: Linux' EEVDF scheduler lets a thread that wakes up with
//! a short slice run before one that computes with a long one, as long as it has not used up its share, and one that offers
//! its processor gives away a slice. Linux has this since 6.12 (sched_setattr(2), `sched_runtime` of `SCHED_OTHER`); it
//! needs no privilege. Where the kernel does not know it nothing happens.
//!
//! Policy and nice value stay as they are, and a thread of another policy is left alone. Children and new threads inherit a
//! slice, as they do a nice value; [`reset`] gives the usual one back, to those that have theirs from here only.

use std::io;

use base::Duration;

use crate::sys::{scheduling, set_scheduling};

/// The shortest slice that the kernel gives.
pub const SHORTEST: Duration = Duration::from_micros(100);
/// The longest.
pub const LONGEST: Duration = Duration::from_millis(100);
/// Slices from here end with these nanoseconds of a microsecond, so that they can be told from others.
const MARK_NS: u64 = 77;
const MARK_UNIT_NS: u64 = 1_000;

/// Gives the calling thread a slice of about that much, unless it has another policy than the usual one or a slice as short;
/// whether it has it from here now.
///
/// # Errors
/// The system does not allow it.
pub fn shorten(slice: Duration) -> io::Result<bool> {
    let wanted = slice.as_nanos() / MARK_UNIT_NS * MARK_UNIT_NS + MARK_NS;
    let mut attributes = scheduling()?;
    if !is_usual(attributes.policy) || attributes.runtime == 0 || attributes.runtime <= wanted {
        return Ok(is_marked(attributes.runtime));
    }
    attributes.runtime = wanted;
    set_scheduling(&attributes)?;
    Ok(true)
}

/// Gives the calling thread the usual slice if it has one from [`shorten`], perhaps inherited.
///
/// # Errors
/// The system does not allow it.
pub fn reset() -> io::Result<()> {
    let mut attributes = scheduling()?;
    if !is_usual(attributes.policy) || !is_marked(attributes.runtime) {
        return Ok(());
    }
    attributes.runtime = 0;
    set_scheduling(&attributes)
}

fn is_usual(policy: u32) -> bool {
    policy == libc::SCHED_OTHER.unsigned_abs()
}

fn is_marked(slice_ns: u64) -> bool {
    slice_ns % MARK_UNIT_NS == MARK_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own: the test runner's keep their slices.
    fn in_a_thread(body: impl FnOnce() + Send + 'static) {
        std::thread::spawn(body).join().unwrap();
    }

    #[test]
    fn a_slice_is_shortened_inherited_and_given_back() {
        in_a_thread(|| {
            let usual = scheduling().unwrap();
            let has_slices = is_usual(usual.policy) && usual.runtime > SHORTEST.as_nanos() + MARK_NS;
            assert_eq!(shorten(SHORTEST).unwrap(), has_slices, "a kernel since 6.12 has slices");
            assert_eq!(is_marked(scheduling().unwrap().runtime), has_slices);
            in_a_thread(move || {
                assert_eq!(is_marked(scheduling().unwrap().runtime), has_slices);
                reset().unwrap();
                assert_eq!(scheduling().unwrap().runtime, usual.runtime);
            });
            assert_eq!(scheduling().unwrap().nice, usual.nice);
        });
    }

    #[test]
    fn shorter_slices_and_other_policies_are_left_alone() {
        in_a_thread(|| {
            let mut own = scheduling().unwrap();
            if own.runtime > 0 {
                own.runtime = 150_000;
                set_scheduling(&own).unwrap();
                assert!(!shorten(Duration::from_millis(1)).unwrap());
                reset().unwrap();
                assert_eq!(scheduling().unwrap().runtime, 150_000);
            }
            let batch = libc::SCHED_BATCH.unsigned_abs();
            let mut other = scheduling().unwrap();
            other.policy = batch;
            set_scheduling(&other).unwrap();
            assert!(!shorten(SHORTEST).unwrap());
            assert_eq!(scheduling().unwrap().policy, batch);
        });
    }
}
