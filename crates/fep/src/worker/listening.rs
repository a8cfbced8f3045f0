//! How often the device is asked for frames: at every turn while frames come, less often the longer none came.
//!
//! Asking a TAP is a system call, and takes as long as everything else that a turn does for a message between two
//! applications. A frame that comes after a pause may wait for a small part of that pause, and never for more than
//! [`LONGEST`]. A worker that sleeps is woken by the device itself.

use base::{Duration, Instant};

/// The device is asked at least this often.
const LONGEST: Duration = Duration::from_micros(20);
/// A frame may wait for this part of the pause before it.
const PART: u64 = 64;

/// When the device is to be asked again.
#[derive(Debug, Default)]
pub(super) struct Listening {
    heard_at: Instant,
    next: Instant,
}

impl Listening {
    /// Whether it is time to ask.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// It was asked, and gave so many frames.
    pub(super) fn heard(&mut self, now: Instant, frames: usize) {
        if frames > 0 {
            self.heard_at = now;
        }
        let pause = now.saturating_since(self.heard_at);
        self.next = now + LONGEST.min(Duration::from_nanos(pause.as_nanos() / PART));
    }

    /// The worker has slept: the device may have woken it.
    pub(super) fn wake(&mut self) {
        self.next = Instant::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_pause_the_rarer_the_look() {
        let mut listening = Listening::default();
        let start = Instant::from_millis(1_000);
        listening.heard(start, 1);
        assert!(listening.is_due(start));
        let later = start + Duration::from_micros(640);
        listening.heard(later, 0);
        assert!(!listening.is_due(later + Duration::from_micros(9)));
        assert!(listening.is_due(later + Duration::from_micros(10)));
        let much_later = start + Duration::from_secs(9);
        listening.heard(much_later, 0);
        assert!(listening.is_due(much_later + LONGEST));
        listening.heard(much_later, 0);
        listening.wake();
        assert!(listening.is_due(much_later));
    }
}
