//! CoDel (RFC 8289): signals congestion when the time that frames wait stays above a target for a whole interval.

use base::{Duration, Instant};

use super::Verdict;

/// The parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelSpec {
    /// The waiting time to aim for (RFC 8289 §4.4: 5 ms).
    pub target: Duration,
    /// How long it may be exceeded: about the worst round-trip time (RFC 8289 §4.3: 100 ms).
    pub interval: Duration,
    /// Mark ECN-capable frames instead of dropping them.
    pub ecn: bool,
}

impl Default for CodelSpec {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn: false }
    }
}

/// A queue with fewer bytes than this is never signalled on: a frame of the usual size (RFC 8289 §4.4).
const SMALL_QUEUE: u64 = 1514;

#[derive(Debug)]
pub(super) struct Codel {
    spec: CodelSpec,
    /// When the waiting time will have been above the target for an interval; `None` while it is below.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    count: u32,
    last_count: u32,
}

impl Codel {
    pub(super) fn new(spec: CodelSpec) -> Self {
        Self { spec, first_above: None, dropping: false, drop_next: Instant::ZERO, count: 0, last_count: 0 }
    }

    pub(super) fn ecn(&self) -> bool {
        self.spec.ecn
    }

    /// A frame that waited `sojourn` is next in line, `left` bytes wait behind it (RFC 8289 §5.4, one frame a call:
    /// the queue asks again about the next frame after a drop).
    pub(super) fn on_departure(&mut self, now: Instant, sojourn: Duration, left: u64) -> Verdict {
        let may_drop = self.is_above(now, sojourn, left);
        if self.dropping {
            if !may_drop {
                self.dropping = false;
            } else if now >= self.drop_next {
                self.count += 1;
                self.drop_next = self.control_law(self.drop_next);
                return Verdict::Signal;
            }
            return Verdict::Keep;
        }
        if !may_drop {
            return Verdict::Keep;
        }
        self.dropping = true;
        // RFC 8289 §5.4: if the last dropping state ended recently, its drop rate is a good start for this one.
        let delta = self.count.saturating_sub(self.last_count);
        let recently = now.saturating_since(self.drop_next) < self.spec.interval * 16;
        self.count = if delta > 1 && recently { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.last_count = self.count;
        Verdict::Signal
    }

    pub(super) fn on_empty(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    fn is_above(&mut self, now: Instant, sojourn: Duration, left: u64) -> bool {
        if sojourn < self.spec.target || left <= SMALL_QUEUE {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + self.spec.interval);
                false
            }
            Some(first_above) => now >= first_above,
        }
    }

    /// RFC 8289 §5.3: drops come closer with the square root of their number.
    fn control_law(&self, since: Instant) -> Instant {
        let step = self.spec.interval.as_nanos() as f64 / f64::from(self.count).sqrt();
        since + Duration::from_nanos(step as u64)
    }
}
