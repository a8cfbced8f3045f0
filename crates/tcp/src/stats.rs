//! What a connection counts.

use base::Instant;

use crate::timer::Stamp;

/// Counters of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Wire segments received.
    pub segments_in: u64,
    /// Segments given out; a super-segment counts once for each wire segment it will be cut into.
    pub segments_out: u64,
    /// Payload bytes retransmitted.
    pub bytes_retransmitted: u64,
    /// Retransmissions, each possibly a super-segment.
    pub retransmissions: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Fast recoveries entered.
    pub fast_recoveries: u32,
    /// Reductions of the congestion window undone as spurious.
    pub undone: u32,
    /// Tail loss probes sent.
    pub loss_probes: u32,
    /// D-SACK reports received.
    pub duplicate_sacks: u32,
    /// Segments received out of order.
    pub out_of_order: u32,
    /// Challenge acknowledgements sent.
    pub challenges: u32,
    /// Window and keepalive probes sent.
    pub probes: u32,
    /// Segments received with congestion-experienced marks.
    pub congestion_marks: u32,
    /// Congestion reductions made because of ECN echoes.
    pub congestion_echoes: u32,
    /// Marked packets that the peer's accurate feedback told of, at the least (RFC 9768).
    pub marks_told: u32,
    /// Probes of a larger segment size sent.
    pub mtu_probes: u32,
    /// Of these, lost, or said to be too big.
    pub mtu_probes_lost: u32,
    /// Of these, acknowledged: the segments became larger.
    pub mtu_raises: u32,
    /// Times that full segments were taken to vanish in a black hole.
    pub black_holes: u32,
}

/// The counters as a connection keeps them: what counts rare events takes memory only once one happened.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) segments_in: u64,
    pub(crate) segments_out: u64,
    /// Segments with payload, modulo 2³².
    pub(crate) data_in: u32,
    pub(crate) data_out: u32,
    /// When payload last came.
    pub(crate) data_at: Stamp,
    rare: Option<Box<Stats>>,
}

impl Counters {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { segments_in: 0, segments_out: 0, data_in: 0, data_out: 0, data_at: Stamp::at(now), rare: None }
    }

    /// The counters of rare events, to count one.
    pub(crate) fn rare(&mut self) -> &mut Stats {
        self.rare.get_or_insert_default()
    }

    /// All of them.
    pub(crate) fn totals(&self) -> Stats {
        let rare = self.rare.as_deref().cloned().unwrap_or_default();
        Stats { segments_in: self.segments_in, segments_out: self.segments_out, ..rare }
    }
}
