//! Sleeping a little longer while much comes in.
//!
//! A reader that empties its ring faster than the stack fills it would be woken for every batch of segments, and a
//! wake-up costs more than taking the bytes. So while bytes stream in, it sleeps until a good part of a ring is
//! there or the stack sees nothing more come. Whether they stream is learnt: a nap that ended with little gained was a
//! mistake (the peer waits for us to say something, perhaps), and the next ones are left out, twice as many each
//! time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes that a nap waits for.
const WORTH: u64 = 1024 << 10;
/// A nap that gained less than this was not worth it: a stream of 0.5 Gbit/s brings it before the stack ends the nap (4 ms).
const GAIN: u64 = WORTH / 4;
/// Bytes since the last wait from which on they stream, if they came in no more than [`STREAM_TIME`], which holds the longest
/// nap and the time to take what it brought.
const STREAM_BYTES: u64 = 64 << 10;
const STREAM_TIME: Duration = Duration::from_millis(8);
/// The most waits that are left out after a mistake.
const LONGEST_PAUSE: u32 = 1024;

/// What a socket has learnt of the bytes that it receives.
#[derive(Default)]
pub(super) struct Meter {
    /// The last wait: when (nanoseconds since the process's first look), and how much had been taken.
    waited_at: AtomicU64,
    consumed_then: AtomicU64,
    /// Waits that are still left out, and how many will be after the next mistake.
    pause: AtomicU32,
    next_pause: AtomicU32,
    /// Bytes received when the nap began, plus one; 0: none is going on.
    nap_from: AtomicU64,
}

impl Meter {
    /// Whether bytes stream in, so far as it has been learnt.
    fn streams(&self, now: u64, consumed: u64) -> bool {
        if self.pause.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let came = consumed.saturating_sub(self.consumed_then.load(Ordering::Relaxed));
        came >= STREAM_BYTES
            && now.saturating_sub(self.waited_at.load(Ordering::Relaxed)) < STREAM_TIME.as_nanos() as u64
    }

    /// A wait begins. How much to wait for as long as more comes; `None`: for anything.
    pub(super) fn begin(&self, consumed: u64, received: u64) -> Option<u64> {
        self.begin_at(now(), consumed, received)
    }

    fn begin_at(&self, now: u64, consumed: u64, received: u64) -> Option<u64> {
        self.end_nap(received);
        let streams = self.streams(now, consumed);
        self.waited_at.store(now, Ordering::Relaxed);
        self.consumed_then.store(consumed, Ordering::Relaxed);
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        if !streams {
            return None;
        }
        self.nap_from.store(received + 1, Ordering::Relaxed);
        Some(WORTH)
    }

    /// Whether a nap is going on.
    pub(super) fn is_napping(&self) -> bool {
        self.nap_from.load(Ordering::Relaxed) != 0
    }

    /// Judges the nap that is over.
    pub(super) fn end_nap(&self, received: u64) {
        let from = self.nap_from.swap(0, Ordering::Relaxed);
        if from == 0 {
            return;
        }
        if received - (from - 1).min(received) >= GAIN {
            self.next_pause.store(1, Ordering::Relaxed);
            return;
        }
        let pause = self.next_pause.load(Ordering::Relaxed).max(1);
        self.pause.store(pause, Ordering::Relaxed);
        self.next_pause.store((pause * 2).min(LONGEST_PAUSE), Ordering::Relaxed);
    }
}

fn now() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn little_data_is_waited_for_without_a_nap() {
        let meter = Meter::default();
        assert_eq!(meter.begin_at(0, 0, 0), None);
        assert_eq!(meter.begin_at(MILLISECOND, 1000, 1000), None);
    }

    #[test]
    fn streaming_data_is_waited_for_with_a_nap_until_it_is_in_vain() {
        let meter = Meter::default();
        let (mut now, mut received) = (0, 0);
        meter.begin_at(now, received, received);
        for _ in 0..10 {
            (now, received) = (now + MILLISECOND, received + (1 << 20));
            assert!(meter.begin_at(now, received, received).is_some());
        }
        (now, received) = (now + 9 * MILLISECOND, received + (1 << 20));
        assert_eq!(meter.begin_at(now, received, received), None, "that took its time");
        // From now on the peer sends 64 KiB and waits.
        let naps = (0..1000)
            .filter(|_| {
                (now, received) = (now + MILLISECOND, received + STREAM_BYTES);
                meter.begin_at(now, received, received).is_some()
            })
            .count();
        assert!((1..30).contains(&naps), "{naps} naps of 1000 waits");
    }
}
