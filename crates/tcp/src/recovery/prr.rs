//! Proportional rate reduction: how much goes out for each acknowledgement during fast recovery (RFC 9937).

/// The variables of one recovery, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Prr {
    /// RecoverFS: what was in flight when recovery began.
    recover_flight: u32,
    /// prr_delivered.
    delivered: u32,
    /// prr_out.
    out: u32,
    /// The congestion window that the last acknowledgement left.
    pub(crate) window: u32,
}

impl Prr {
    pub(crate) const fn new() -> Self {
        Self { recover_flight: 1, delivered: 0, out: 0, window: 0 }
    }

    /// Recovery begins with `flight` bytes outstanding that may still be delivered.
    pub(crate) fn start(&mut self, flight: u32) {
        *self = Self { recover_flight: flight.max(1), delivered: 0, out: 0, window: 0 };
    }

    /// An acknowledgement delivered `delivered` bytes. `safe`: it advanced SND.UNA and no further loss was found.
    pub(crate) fn on_ack(&mut self, delivered: u32, in_flight: u32, ssthresh: u32, mss: u32, safe: bool) {
        if delivered == 0 {
            return;
        }
        self.delivered += delivered;
        let mut count = if in_flight > ssthresh {
            let share =
                (u64::from(self.delivered) * u64::from(ssthresh)).div_ceil(u64::from(self.recover_flight));
            (share as u32).saturating_sub(self.out)
        } else {
            // PRR-CRB, or PRR-SSRB while recovery makes good progress.
            let conservative = self.delivered.saturating_sub(self.out).max(delivered);
            let bound = if safe { conservative + mss } else { conservative };
            bound.min(ssthresh - in_flight)
        };
        if self.out == 0 {
            count = count.max(mss); // the fast retransmit itself
        }
        self.window = in_flight + count;
    }

    /// Bytes were sent during recovery.
    #[inline]
    pub(crate) fn on_sent(&mut self, len: u32) {
        self.out = self.out.saturating_add(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9937's example: 20 segments, the first lost, Reno halves: one out for every second acknowledgement.
    #[test]
    fn one_loss_of_twenty_sends_half_as_much() {
        let mut prr = Prr::new();
        prr.start(20);
        let (mut in_flight, mut sent) = (17, 0); // three were delivered as duplicates before, one is lost
        for _ in 0..16 {
            in_flight -= 1;
            prr.on_ack(1, in_flight, 10, 1, false);
            while in_flight < prr.window {
                in_flight += 1;
                sent += 1;
                prr.on_sent(1);
            }
        }
        assert!((8..=10).contains(&sent), "{sent}");
        assert!(in_flight <= 10);
    }

    #[test]
    fn heavy_loss_does_not_burst() {
        let mut prr = Prr::new();
        prr.start(100);
        // Only 10 of 100 remain in flight, the target is 50: at most what was delivered, and one more.
        prr.on_ack(1, 10, 50, 1, true);
        assert_eq!(prr.window, 12);
    }
}
