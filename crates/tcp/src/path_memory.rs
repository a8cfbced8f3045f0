//! What one connection leaves to the next one to the same peer (RFC 9040): temporal sharing, as in Linux's `tcp_metrics`.
//!
//! At its end a connection tells its round trip, the window that it held without loss, and whether it saw reordering. The
//! next one takes:
//! - that window as its slow-start threshold: slow start goes straight to the window that was found to fit, and not beyond it into loss. The
//!   window itself starts as ever, since much may have changed (RFC 9040 appendix A.2 leaves it to the implementation;
//!   Linux takes it only where an administrator has locked it);
//! - the round trip's variation, if it is larger than what the handshake's sample makes one expect: the first timeout is
//!   no earlier than it was (Linux takes its first timeout from the remembered round trip for the same reason);
//! - reordering: it is not taken for loss from the first flight on.
//!
//! The path's MTU is shared too, by the owner: see [`Connection::learned_path_mtu`]. A BBR connection measures the path
//! anew and has no threshold to give or to take.

use base::Duration;

use crate::congestion::reno::UNLIMITED;
use crate::congestion::{Congestion, CongestionControl};
use crate::connection::Connection;
use crate::recovery::Phase;

/// What is remembered of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMemory {
    /// Smoothed round trip.
    pub srtt: Duration,
    /// Its variation.
    pub rttvar: Duration,
    /// Slow-start threshold in bytes, if a connection has found one.
    pub ssthresh: Option<u32>,
    /// Reordering was seen.
    pub reordering: bool,
}

impl Connection {
    /// What this connection, at its end, leaves to the next one, given what was known before; `None`: it never measured
    /// anything.
    pub fn path_memory(&self, before: Option<&PathMemory>) -> Option<PathMemory> {
        // Linux forgets the round trip of a connection that ended in back-off: it is not known to hold.
        if !self.rtt.has_sample() || self.rtt.backoff > 0 {
            return before.copied();
        }
        let (srtt, rttvar) = (self.rtt.srtt, self.rtt.rttvar);
        let (old_srtt, old_var, known) =
            before.map_or((srtt, rttvar, None), |before| (before.srtt, before.rttvar, before.ssthresh));
        let (less, more) = (srtt.min(old_srtt), srtt.max(old_srtt));
        let change = (more.saturating_sub(less) / 2).max(rttvar);
        Some(PathMemory {
            // Up at once, down slowly.
            srtt: approach(old_srtt, srtt, 8),
            rttvar: approach(old_var, change, 4),
            ssthresh: self.learned_ssthresh(known),
            reordering: self.recovery.rack.reordering_seen || before.is_some_and(|before| before.reordering),
        })
    }

    fn learned_ssthresh(&self, known: Option<u32>) -> Option<u32> {
        let (window, ssthresh) = (self.congestion.window(), self.congestion.ssthresh());
        if self.congestion.is_model_based() {
            return known;
        }
        if ssthresh == UNLIMITED {
            // Slow start never ended: what is known was too little if half the window is more.
            return known.map(|known| known.max(window / 2));
        }
        if window >= ssthresh && self.recovery.phase == Phase::Open {
            // Congestion avoidance: the window can be relied on. Linux leaves half of it, if it leaves any threshold at
            // all (`tcp_no_ssthresh_metrics_save`), and so makes the next transfer climb the other half slowly.
            return Some(known.map_or(window, |known| known.midpoint(window)).max(ssthresh));
        }
        known.map(|known| known.max(ssthresh))
    }

    /// A connection that starts with `initial` bytes of window remembers what earlier ones found out.
    pub(crate) fn recall(&mut self, memory: Option<&PathMemory>, initial: u32) {
        let Some(memory) = memory else { return };
        let ssthresh = memory.ssthresh.map_or(UNLIMITED, |known| known.max(2 * initial));
        self.congestion = Congestion::restored(self.congestion.algorithm(), initial, ssthresh);
        self.recovery.rack.reordering_seen = memory.reordering;
        self.rtt.rttvar = memory.rttvar;
    }
}

/// A larger value at once, a smaller one by its `share`.
fn approach(old: Duration, new: Duration, share: u32) -> Duration {
    if new >= old { new } else { old.saturating_sub(old.saturating_sub(new) / share) }
}
