//! Where the worker's time goes: work, polling, and what the kernel did on its behalf.
//!
//! The loop closes a span after every turn with the name of what the turn was. A turn that found something to do is
//! work; a turn that found nothing is polling; the time spent asleep belongs to neither. The sums come from the loop's
//! own time stamps, so they cost nothing more; user and system time come from the kernel when somebody asks.

use base::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::sys;

/// What a span of the worker's time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// Frames, commands, timers or control messages were handled.
    Working,
    /// There was nothing to do and the worker looked for it without sleeping.
    Polling,
    /// The worker slept in the kernel.
    Sleeping,
}

/// The worker's account of its own time and of its system calls.
#[derive(Clone, Debug)]
pub struct Account {
    last: Instant,
    work: Duration,
    polling: Duration,
    /// Times the worker went to sleep.
    pub sleeps: u64,
    /// System calls of the worker itself; the device counts its own.
    pub system_calls: u64,
    /// Turns of the loop.
    pub turns: u64,
}

/// CPU seconds of the worker, as `outboard status` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuReport {
    /// Seconds in turns that did something, the system calls in them included.
    pub work_seconds: f64,
    /// Seconds in turns that found nothing to do.
    pub polling_seconds: f64,
    /// Seconds of the thread in user mode, by the kernel's account.
    pub user_seconds: f64,
    /// Seconds of the thread in the kernel, by the kernel's account.
    pub system_seconds: f64,
}

impl Account {
    /// An account that starts at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            last: now,
            work: Duration::ZERO,
            polling: Duration::ZERO,
            sleeps: 0,
            system_calls: 0,
            turns: 0,
        }
    }

    /// Closes the span that began at the previous call (or at the start).
    pub fn close_span(&mut self, now: Instant, spent: Spent) {
        let span = now.saturating_since(self.last);
        self.last = now;
        match spent {
            Spent::Working => self.work += span,
            Spent::Polling => self.polling += span,
            Spent::Sleeping => {}
        }
    }

    /// The sums so far. To be called on the worker's own thread.
    pub fn report(&self) -> CpuReport {
        let usage = sys::thread_usage().unwrap_or_default();
        CpuReport {
            work_seconds: self.work.as_secs_f64(),
            polling_seconds: self.polling.as_secs_f64(),
            user_seconds: usage.user_ns as f64 / 1e9,
            system_seconds: usage.system_ns as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_goes_where_it_belongs() {
        let at = Instant::from_millis;
        let mut account = Account::new(at(0));
        account.close_span(at(3), Spent::Working);
        account.close_span(at(10), Spent::Sleeping);
        account.close_span(at(11), Spent::Polling);
        account.close_span(at(13), Spent::Working);
        let report = account.report();
        assert_eq!(report.work_seconds, 0.005);
        assert_eq!(report.polling_seconds, 0.001);
    }
}
