//! What has been done so far, for those who watch: each thread counts alone, one that looks adds up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::outcome::Window;
use super::{Interval, Plan, Said};

/// What one thread has done. It alone writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Count {
    operations: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    pub(super) fn add(&self, operations: u64, bytes: u64) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.operations, operations);
        add(&self.bytes, bytes);
    }
}

/// Tells `say` what the threads have done, interval by interval, until `over` has word or is hung up.
pub(super) fn watch(plan: &Plan, window: Window, counts: &[Count], over: &Receiver<()>, say: &dyn Fn(Said)) {
    let interval = Duration::from_secs_f64(plan.interval_seconds);
    let mut counting = plan.omit_seconds == 0.0;
    let mut from = (window.began, 0, 0);
    loop {
        let next = if counting { from.0 + interval } else { window.counts_from.min(from.0 + interval) };
        let wait = next.saturating_duration_since(Instant::now());
        let is_over = over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        let now = Instant::now();
        let sum = |field: fn(&Count) -> &AtomicU64| -> u64 {
            counts.iter().map(|count| field(count).load(Ordering::Relaxed)).sum()
        };
        let (operations, bytes) = (sum(|count| &count.operations), sum(|count| &count.bytes));
        if operations > from.1 || bytes > from.2 || !is_over {
            say(Said::Interval(Interval {
                start_seconds: (from.0 - window.began).as_secs_f64(),
                end_seconds: (now - window.began).as_secs_f64(),
                operations: operations - from.1,
                bytes: bytes - from.2,
                omitted: !counting,
            }));
        }
        if is_over {
            return;
        }
        if !counting && now >= window.counts_from {
            counting = true;
            say(Said::Counting);
        }
        from = (now, operations, bytes);
    }
}
