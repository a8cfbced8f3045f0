//! The window we advertise: silly-window avoidance, scaling, and an edge that never moves left.

use super::Receiver;

impl Receiver {
    /// The right edge that the buffer would allow.
    #[inline]
    fn allowed_edge(&self) -> u64 {
        self.consumed + u64::from(self.room())
    }

    /// The window field for a segment that goes out now; moves the right edge as far as it says.
    ///
    /// RFC 1122 §4.2.3.3: the edge moves only when it can move by a full segment or by half the buffer.
    pub(crate) fn advertise(&mut self, scaled: bool) -> u16 {
        let scale = if scaled { self.scale } else { 0 };
        let allowed = self.allowed_edge();
        let step = u64::from(self.segment_size.max(536)).min(u64::from(self.room() / 2)).max(1);
        let edge = if allowed >= self.right_edge + step { allowed } else { self.right_edge };
        let window = edge.saturating_sub(self.nxt);
        let granule = 1u64 << scale;
        // Rounding up keeps the edge from moving left; where that would promise more than the buffer holds, the field is
        // rounded down. What was promised before is still accepted (RFC 7323 §2.4).
        let mut field = window.div_ceil(granule);
        if self.nxt + field * granule > allowed {
            field = window / granule;
            // A buffer that is smaller than the scale's granule could not be promised at all, and nothing would ever come.
            // Empty, it is promised as one granule: what it does not hold then is sent again.
            if field == 0 && window > 0 && self.consumed >= self.data_end() {
                field = 1;
            }
        }
        let field = field.min(u64::from(u16::MAX));
        self.right_edge = self.right_edge.max(self.nxt + field * granule);
        field as u16
    }

    /// Whether telling the peer about the window now would open it enough to be worth a segment of its own: by two
    /// segments when it has become small against the buffer, or by half the buffer.
    pub(crate) fn update_is_due(&self) -> bool {
        let gain = self.allowed_edge().saturating_sub(self.right_edge);
        let limit = u64::from(self.room());
        if gain >= limit / 2 && gain > 0 {
            return true;
        }
        let two_segments = 2 * u64::from(self.segment_size.max(536));
        gain >= two_segments && (gain >= limit / 4 || self.window() <= limit / 8)
    }

    /// The application has to read up to here before a window update becomes due.
    pub(crate) fn update_due_at(&self) -> u64 {
        let limit = u64::from(self.room());
        let two_segments = 2 * u64::from(self.segment_size.max(536));
        let soonest = two_segments.min(limit / 2).max(1);
        let gain = if self.window() <= limit / 8 { soonest } else { soonest.max(limit / 4) };
        (self.right_edge + gain).saturating_sub(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(limit: u32, scale: u8) -> Receiver {
        let mut receiver = Receiver::new(limit, limit, scale);
        receiver.nxt = 1;
        receiver.segment_size = 1460;
        receiver.advertise(true);
        receiver
    }

    #[test]
    fn small_reads_do_not_open_a_closed_window() {
        let mut receiver = receiver(8192, 0);
        receiver.nxt += 8192;
        assert_eq!(receiver.advertise(true), 0);
        receiver.consumed += 1000;
        assert_eq!(receiver.advertise(true), 0, "less than a segment");
        assert!(!receiver.update_is_due());
        receiver.consumed += 2000;
        assert_eq!(receiver.advertise(true), 3000);
    }

    #[test]
    fn rounding_never_promises_more_than_the_buffer_holds() {
        let mut receiver = receiver(1 << 20, 7);
        for _ in 0..5000 {
            receiver.nxt += 1;
            let before = receiver.right_edge;
            let field = u64::from(receiver.advertise(true));
            assert!(receiver.nxt + (field << 7) <= receiver.consumed + (1 << 20));
            assert!(receiver.right_edge >= before);
        }
    }

    #[test]
    fn a_buffer_below_the_granule_of_the_scale_still_opens() {
        let mut receiver = receiver(4000, 14);
        for _ in 0..10 {
            // All of what was promised comes; while it is unread, the window is closed.
            receiver.nxt = receiver.right_edge;
            assert_eq!(receiver.advertise(true), 0);
            receiver.consumed = receiver.nxt;
            assert!(receiver.update_is_due());
            assert_eq!(receiver.advertise(true), 1);
        }
    }

    #[test]
    fn the_edge_survives_a_smaller_limit() {
        let mut receiver = receiver(64_000, 0);
        let edge = receiver.right_edge;
        receiver.limit = 1000;
        receiver.advertise(true);
        assert_eq!(receiver.right_edge, edge);
    }

    #[test]
    fn a_smaller_share_takes_nothing_back_and_promises_no_more() {
        let mut receiver = receiver(64_000, 0);
        let edge = receiver.right_edge;
        receiver.share = 8192;
        assert_eq!(receiver.advertise(true), 64_000, "what was promised stands");
        receiver.nxt += 60_000;
        receiver.consumed += 50_000;
        assert_eq!((receiver.advertise(true), receiver.right_edge), (4000, edge));
        assert!(!receiver.update_is_due());
        // From here on the window is the share.
        receiver.nxt += 4000;
        receiver.consumed = receiver.nxt;
        assert!(receiver.update_is_due());
        assert_eq!(receiver.advertise(true), 8192);
        // And all of it again when memory is plenty.
        receiver.share = u32::MAX;
        assert!(receiver.update_is_due());
        assert_eq!(receiver.advertise(true), 64_000);
    }

    #[test]
    fn an_update_is_asked_for_where_it_becomes_due() {
        for (limit, share) in [(64_000, u32::MAX), (64_000, 8192), (1 << 20, 4096), (3000, 4096)] {
            let mut receiver = receiver(limit, 5);
            receiver.share = share;
            receiver.advertise(true);
            receiver.nxt = receiver.right_edge;
            let due = receiver.update_due_at();
            assert!(due <= receiver.nxt, "{limit} {share}: before the window is closed for good");
            receiver.consumed = due;
            assert!(receiver.update_is_due(), "{limit} {share}");
        }
    }
}
