//! How much new data goes out: the windows, Nagle's algorithm and sender-side silly-window avoidance.

use crate::connection::Connection;

impl Connection {
    /// How many new positions may be sent now, at most `max_payload` (or one MSS) of payload; whole segments where more
    /// follows. The FIN's position is included when it goes along.
    #[inline]
    pub(crate) fn sendable(&self, max_payload: u32) -> u32 {
        let sends = self.state.sends_data() || self.is_early();
        if self.send.nxt >= self.send.end() || !sends || self.is_held_for_probe() {
            return 0;
        }
        let queued = self.send.queued.saturating_sub(self.send.nxt);
        let offered = self.send.right_edge().saturating_sub(self.send.nxt);
        let allowance = u64::from(self.congestion_allowance());
        let mss = u64::from(self.send.mss);
        let most = queued.min(offered).min(allowance).min(u64::from(max_payload).max(mss));
        let full = if most >= mss { most - most % mss } else { 0 };
        if most < queued {
            // More follows: only whole segments, unless the window is smaller than one.
            if full > 0 {
                return full as u32;
            }
            return if offered <= most.min(allowance) && self.small_window_suffices(most) {
                most as u32
            } else {
                0
            };
        }
        // Everything that is queued fits.
        if self.send.fin_queued && sends {
            let fits = offered > queued && allowance > queued;
            return (queued + u64::from(fits)) as u32;
        }
        if full < queued && self.holds_back_small() { full as u32 } else { queued as u32 }
    }

    /// RFC 9293 §3.8.6.2.1 (3): less than a segment goes out if it is half the largest window ever offered, or when the
    /// override timer expired.
    fn small_window_suffices(&self, len: u64) -> bool {
        len > 0
            && (self.pending.force || len * 2 >= u64::from(self.send.max_window))
            && !self.holds_back_small()
    }

    /// Nagle's algorithm (RFC 9293 §3.7.4) as Minshall modified it: a small segment waits while another small one is not
    /// acknowledged. `TCP_CORK` holds every small one, `MSG_MORE` until the next send or acknowledgement; `TCP_NODELAY` none.
    fn holds_back_small(&self) -> bool {
        if self.pending.force || self.pending.push || self.sends_urgent() {
            return false;
        }
        if self.settings.cork || self.pending.more {
            return true;
        }
        !self.settings.nodelay && self.send.small_end > self.send.una
    }
}
