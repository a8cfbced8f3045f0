//! The receive side's variables (RFC 9293 §3.3.1): RCV.NXT, RCV.WND, and what came out of order.

pub(crate) mod autotune;
pub(crate) mod reassembly;
pub(crate) mod round_trip;
pub(crate) mod window;

use base::SeqNumber;

use crate::segment::Position;
use autotune::Autotune;
use reassembly::Reassembly;
use round_trip::RoundTrip;
use wire::tcp::SackBlock;

/// The receive sequence space of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    /// The initial sequence number of the peer (IRS).
    pub(crate) irs: SeqNumber,
    /// The next position expected (RCV.NXT).
    pub(crate) nxt: Position,
    /// The right edge: the position after the last that was ever advertised. It never moves left (RFC 9293 §3.8.6).
    pub(crate) right_edge: Position,
    /// The position after the last byte that the application has read.
    pub(crate) consumed: Position,
    /// The receive window's size at present: the most bytes that may lie between `consumed` and the right edge.
    pub(crate) limit: u32,
    /// What the buffer can be counted on for: while memory is scarce, less than `limit`.
    pub(crate) share: u32,
    /// The largest `limit` that autotuning may choose.
    pub(crate) max_limit: u32,
    /// What our window fields are shifted by (RFC 7323 §2.3).
    pub(crate) scale: u8,
    /// The position of the peer's FIN once it is known; `u64::MAX` before.
    pub(crate) fin: Position,
    /// What came out of order; no memory while there is none.
    pub(crate) reassembly: Option<Box<Reassembly>>,
    /// What was received twice and is to be reported as such (RFC 2883); empty: nothing.
    pub(crate) duplicate: SackBlock,
    /// The largest segment seen lately: an estimate of the peer's MSS, for the acknowledgement policy.
    pub(crate) segment_size: u16,
    /// TS.Recent (RFC 7323 §4.3).
    pub(crate) ts_recent: u32,
    /// When TS.Recent was last set, in seconds: it is valid for 24 days.
    pub(crate) ts_recent_s: u32,
    /// Last.ACK.sent (RFC 7323 §4.3).
    pub(crate) last_ack_sent: Position,
    /// The window's growth.
    pub(crate) autotune: Autotune,
    /// The round trip, as the arrival of data shows it.
    pub(crate) round_trip: RoundTrip,
}

impl Receiver {
    pub(crate) fn new(initial_window: u32, max_limit: u32, scale: u8) -> Self {
        Self {
            irs: SeqNumber(0),
            nxt: 0,
            right_edge: 0,
            consumed: 1,
            limit: initial_window.min(max_limit),
            share: u32::MAX,
            max_limit,
            scale,
            fin: Position::MAX,
            reassembly: None,
            duplicate: SackBlock::default(),
            segment_size: 0,
            ts_recent: 0,
            ts_recent_s: 0,
            last_ack_sent: 0,
            autotune: Autotune::new(),
            round_trip: RoundTrip::new(),
        }
    }

    /// The wire's sequence number of `position`.
    pub(crate) fn seq(&self, position: Position) -> SeqNumber {
        self.irs + position as u32
    }

    /// The position after the last payload byte received in order.
    pub(crate) fn data_end(&self) -> Position {
        self.nxt.min(self.fin)
    }

    /// Whether the peer's FIN has been received in order.
    pub(crate) fn is_finished(&self) -> bool {
        self.nxt > self.fin
    }

    /// The most bytes that may be promised beyond `consumed` now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.limit.min(self.share)
    }

    /// RCV.WND as the peer was told: the positions from `nxt` to the right edge.
    #[inline]
    pub(crate) fn window(&self) -> u64 {
        self.right_edge.saturating_sub(self.nxt)
    }
}
