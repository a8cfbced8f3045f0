//! The named outcomes of giving a segment to a connection, and a counter for each.
//!
//! A peer's misbehaviour is a verdict, never an error. The caller adds each verdict to its counters; nothing is dropped
//! without a name.

use core::fmt;

macro_rules! verdicts {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What became of a segment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Verdict { $($(#[$doc])* $name,)* }

        impl Verdict {
            /// All verdicts, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// The name under which it is counted and printed.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

verdicts! {
    /// Processed in full.
    Accepted = "accepted",
    /// Processed by header prediction: the expected acknowledgement or the expected data.
    Predicted = "predicted",
    /// Data was accepted and more than once seen data was trimmed off it.
    Trimmed = "trimmed",
    /// Data lay beyond a gap and was kept there.
    OutOfOrder = "out-of-order",
    /// All of it had been received before; acknowledged again.
    Duplicate = "duplicate",
    /// It began beyond the receive window; acknowledged, not used.
    BeyondWindow = "beyond-window",
    /// Its timestamp was older than the last one (RFC 7323 §5.3); acknowledged, not used.
    PawsRejected = "paws-rejected",
    /// It carried no acknowledgement where one is required.
    NoAck = "no-ack",
    /// It acknowledged what was never sent; challenged (RFC 5961 §5).
    AckTooNew = "ack-too-new",
    /// It acknowledged something much too old; challenged (RFC 5961 §5).
    AckTooOld = "ack-too-old",
    /// A SYN on a synchronised connection; challenged (RFC 5961 §4).
    SynChallenged = "syn-challenged",
    /// A reset that was in the window but not exactly at its left edge; challenged (RFC 5961 §3).
    ResetChallenged = "reset-challenged",
    /// A reset outside the window.
    ResetIgnored = "reset-ignored",
    /// The peer reset the connection.
    ResetAccepted = "reset-accepted",
    /// A reset or a SYN ended a passive open; the listener goes on.
    ReturnedToListen = "returned-to-listen",
    /// Answered with a reset, since it acknowledged a SYN that was never sent.
    HandshakeReset = "handshake-reset",
    /// The peer's last segment of the handshake brought no data, which is waited for (`TCP_DEFER_ACCEPT`).
    AcceptanceDeferred = "acceptance-deferred",
    /// A segment that has no meaning in SYN-SENT.
    HandshakeIgnored = "handshake-ignored",
    /// Data arrived after the owner had closed and would be lost; the connection was reset (RFC 1122 §4.2.2.13).
    DataAfterClose = "data-after-close",
    /// Too many separate ranges out of order; not kept.
    ReassemblyFull = "reassembly-full",
    /// The receive buffer had no memory; not kept.
    NoMemory = "no-memory",
    /// The connection is closed.
    Closed = "closed",
}

impl Verdict {
    /// How many verdicts there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Whether the segment must be answered with [`crate::reset_for`].
    pub const fn wants_reset(self) -> bool {
        matches!(self, Self::HandshakeReset | Self::DataAfterClose | Self::Closed)
    }

    /// Whether anything of the segment was used.
    pub const fn is_used(self) -> bool {
        matches!(
            self,
            Self::Accepted
                | Self::Predicted
                | Self::Trimmed
                | Self::OutOfOrder
                | Self::ResetAccepted
                | Self::ReturnedToListen
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One counter for each verdict.
#[derive(Clone, Debug)]
pub struct VerdictCounters([u64; Verdict::COUNT]);

impl Default for VerdictCounters {
    fn default() -> Self {
        Self([0; Verdict::COUNT])
    }
}

impl VerdictCounters {
    /// Counts one segment.
    pub fn add(&mut self, verdict: Verdict) {
        self.0[verdict as usize] += 1;
    }

    /// Counts so many segments.
    pub fn add_many(&mut self, verdict: Verdict, count: u32) {
        self.0[verdict as usize] += u64::from(count);
    }

    /// How many segments had this verdict.
    pub fn get(&self, verdict: Verdict) -> u64 {
        self.0[verdict as usize]
    }

    /// All counters with their verdicts.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, u64)> + '_ {
        Verdict::ALL.iter().map(|&verdict| (verdict, self.get(verdict)))
    }
}
