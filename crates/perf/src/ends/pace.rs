//! When operations of an open-loop load are due.
//!
//! A load in a closed loop waits for its answer before it asks again: while the server stalls it asks nothing, and the
//! stall shows as one slow operation ("coordinated omission"). At a rate, operations are due when they are due, and the
//! time of each counts from then.

use std::time::{Duration, Instant};

/// Operations at a rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    began: Instant,
    per_second: f64,
}

impl Pace {
    /// `per_second` operations from `began` on.
    pub(super) fn new(began: Instant, per_second: f64) -> Self {
        Self { began, per_second }
    }

    /// When operation `number` (from 0) is due.
    pub(super) fn due(&self, number: u64) -> Instant {
        self.began + Duration::from_secs_f64(number as f64 / self.per_second)
    }

    /// Waits until operation `number` is due, and tells when that was. A late caller does not wait.
    pub(super) fn wait(&self, number: u64, spin: bool) -> Instant {
        let due = self.due(number);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return due;
            }
            if spin {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(left);
            }
        }
    }
}

/// When operation `number` begins to count: when it is due at a rate, at once without one.
pub(super) fn begin(pace: Option<&Pace>, number: u64, spin: bool) -> Instant {
    pace.map_or_else(Instant::now, |pace| pace.wait(number, spin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_operation_is_due_when_it_was_due() {
        let began = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        let pace = Pace::new(began, 4.0);
        assert_eq!(pace.due(8) - began, Duration::from_secs(2));
        // Three seconds late: it does not wait, and the three seconds count.
        assert_eq!(pace.wait(8, false), pace.due(8));
        // It waits for what is not due yet.
        let soon = Pace::new(Instant::now(), 100.0);
        assert!(soon.wait(2, true) <= Instant::now() && soon.wait(3, false) <= Instant::now());
    }
}
