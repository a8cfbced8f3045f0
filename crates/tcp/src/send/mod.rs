//! The send side's variables (RFC 9293 §3.3.1): SND.UNA, SND.NXT, SND.WND and what is queued.

pub(crate) mod scoreboard;

use base::SeqNumber;

use crate::segment::Position;
use scoreboard::Scoreboard;

/// The send sequence space of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// The initial sequence number (ISS).
    pub(crate) iss: SeqNumber,
    /// The oldest unacknowledged position (SND.UNA).
    pub(crate) una: Position,
    /// The next position never sent before (SND.NXT). Retransmissions do not move it back: the scoreboard knows them.
    pub(crate) nxt: Position,
    /// The position after the last byte that the application queued.
    pub(crate) queued: Position,
    /// A FIN follows at `queued`.
    pub(crate) fin_queued: bool,
    /// The peer's window in bytes from `una` (SND.WND).
    pub(crate) window: u32,
    /// The largest window the peer has ever offered (RFC 1122 §4.2.3.4).
    pub(crate) max_window: u32,
    /// The receive position of the segment that last updated the window (SND.WL1).
    pub(crate) window_seq: Position,
    /// What the peer's window fields are shifted by (RFC 7323 §2.3).
    pub(crate) scale: u8,
    /// The MSS the peer announced, or the default.
    pub(crate) peer_mss: u16,
    /// The largest segment payload the path takes, options not yet taken off.
    pub(crate) path_mss: u16,
    /// The largest such size of which a full segment was acknowledged; 0: none yet.
    pub(crate) verified_mss: u16,
    /// The effective MSS: payload bytes of a full segment with its usual options (RFC 9293 §3.7.1).
    pub(crate) mss: u16,
    /// The end of the last segment sent that was not full: Nagle's algorithm as Minshall modified it.
    pub(crate) small_end: Position,
    /// What is in flight, and in what state.
    pub(crate) scoreboard: Scoreboard,
}

impl Sender {
    pub(crate) fn new(iss: SeqNumber, path_mss: u16) -> Self {
        Self {
            iss,
            una: 0,
            nxt: 0,
            queued: 1,
            fin_queued: false,
            window: 0,
            max_window: 0,
            window_seq: 0,
            scale: 0,
            peer_mss: path_mss,
            path_mss,
            verified_mss: 0,
            mss: path_mss,
            small_end: 0,
            scoreboard: Scoreboard::new(),
        }
    }

    /// The position after the last that may ever be sent as things stand: data, and the FIN if it is queued.
    #[inline]
    pub(crate) fn end(&self) -> Position {
        self.queued + u64::from(self.fin_queued)
    }

    /// The right edge of the peer's window.
    #[inline]
    pub(crate) fn right_edge(&self) -> Position {
        self.una + u64::from(self.window)
    }

    /// Positions sent and not acknowledged.
    #[inline]
    pub(crate) fn outstanding(&self) -> u64 {
        self.nxt - self.una
    }

    /// The wire's sequence number of `position`.
    #[inline]
    pub(crate) fn seq(&self, position: Position) -> SeqNumber {
        self.iss + position as u32
    }

    /// Whether our FIN has been sent and acknowledged.
    pub(crate) fn fin_acknowledged(&self) -> bool {
        self.fin_queued && self.una > self.queued
    }

    /// Payload bytes in `[start, start + len)`, which may include the SYN's or the FIN's position.
    #[inline]
    pub(crate) fn payload_in(&self, start: Position, len: u32) -> u32 {
        let end = (start + u64::from(len)).min(self.queued);
        end.saturating_sub(start.max(1)) as u32
    }
}
