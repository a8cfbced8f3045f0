//! How large a segment the path takes: what routers say (RFC 1191), and what probing shows where they say nothing
//! (RFC 4821, RFC 8899).
//!
//! Sizes here are MSS values before TCP options are taken off, as in `send.path_mss`, which is the largest size that is
//! known, or at first assumed, to pass. While it lies below what both ends could take, a [`Search`] exists: now and then a
//! segment of new data goes out larger than the others. If it is acknowledged, its size is the new `path_mss`; if it
//! alone is lost, that says nothing about congestion, and it is sent again in segments of the old size. A black hole, which
//! swallows full segments without a word, shows as timeouts in a row: then segments become small, and the search begins.
//!
//! Nothing here has a timer: the next probe is due at a time that is looked at when data is sent.

use base::{Duration, Instant, SeqNumber};

use crate::config::MtuProbing;
use crate::connection::Connection;
use crate::handshake::negotiate;
use crate::recovery::Phase;
use crate::segment::{Position, SegmentOut, position_of};
use crate::state::State;

/// Where a search starts after a black hole was found (Linux: `tcp_base_mss`; RFC 8899 §5.1.2 has 1200 for BASE_PLPMTU).
const BASE_MSS: u16 = 1024;
/// No timeout makes segments smaller than this: what every IPv4 path takes (RFC 791 §3.1), less headers, as for routers' words.
const FLOOR_MSS: u16 = 512;
/// Timeouts in a row after which a full segment is suspected to be too large (Linux: `tcp_retries1`).
const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// A size is given up after this many lost probes (RFC 8899 §5.1.2: MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// A search is over when what is left between the known and the impossible is less than this.
const GRANULARITY: u16 = 8;
/// When a search that is over starts again, since paths change (RFC 8899 §5.1.1: PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// Segments behind a probe, so that its loss shows at once.
const FOLLOWERS: u32 = 2;

/// A search for a larger segment size.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    /// No larger size passes, as far as is known.
    high: u16,
    /// `high` is not the last size that failed but one that is likely to pass: what both ends take, or a router's word.
    high_is_likely: bool,
    /// The probe in flight.
    probe: Option<Probe>,
    /// Probes of the present size that were lost.
    failures: u8,
    /// When the next probe may go.
    next_at: Instant,
    /// The payload of a probe for which the flight has to shrink first: new data waits. 0: nothing waits.
    held_for: u32,
    /// A router's word that is not believed yet, since larger segments have passed: the size, and the position of the
    /// segment that it is about (RFC 5927 §7.2).
    claim: Option<(u16, Position)>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    start: Position,
    end: Position,
    size: u16,
}

/// What became of a router's word that a packet was too big.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooBigVerdict {
    /// It is not about anything in flight, or says nothing new: it may be forged.
    #[default]
    Ignored,
    /// Larger segments have passed before: believed only if the segment is not acknowledged before a timeout.
    Deferred,
    /// Believed: segments are smaller now.
    Taken,
}

impl Search {
    fn new(high: u16, next_at: Instant) -> Box<Self> {
        Box::new(Self {
            high,
            high_is_likely: true,
            probe: None,
            failures: 0,
            next_at,
            held_for: 0,
            claim: None,
        })
    }

    /// The size to try next above `low`; `None`: the search is over.
    fn candidate(&self, low: u16) -> Option<u16> {
        let left = self.high.saturating_sub(low);
        match (left, self.high_is_likely) {
            (0, _) => None,
            (_, true) => Some(self.high),
            (..GRANULARITY, false) => None,
            (GRANULARITY.., false) => Some(low + left.div_ceil(2)),
        }
    }

    /// Nothing larger than `size` passes, it is believed.
    fn give_up(&mut self, size: u16) {
        self.high = size - 1;
        self.high_is_likely = false;
        self.failures = 0;
    }
}

impl Connection {
    /// The largest size that both ends could take.
    pub(crate) fn mss_ceiling(&self) -> u16 {
        self.settings.announced_mss.min(self.send.peer_mss).max(negotiate::MIN_MSS)
    }

    /// The path's MTU as far as this connection has found it to be below what both ends take, and verified it; for the
    /// next connection to the same peer (RFC 9040 §4).
    pub fn learned_path_mtu(&self) -> Option<u16> {
        let size = self.send.path_mss;
        let searching = self.search.as_ref().is_some_and(|search| search.candidate(size).is_some());
        (size < self.mss_ceiling() && self.send.verified_mss >= size && !searching)
            .then(|| size + self.fixed_headers())
    }

    /// IP and TCP headers without options.
    fn fixed_headers(&self) -> u16 {
        if self.ends.is_ipv4() { 40 } else { 60 }
    }

    /// The path's MTU is now `mtu` bytes for an IP packet (RFC 1191, RFC 8201), says somebody who is believed. What is in
    /// flight in larger segments is sent again at once; it was not lost to congestion.
    pub fn handle_path_mtu(&mut self, mtu: u16) {
        let mss = mtu.saturating_sub(self.fixed_headers()).max(negotiate::MIN_MSS);
        self.take_path_mss(mss);
    }

    /// A router says by ICMP that the packet with the sequence number `seq` is too big for a link with this MTU.
    ///
    /// It is believed only if that segment is in flight (RFC 5927 §4.1), if the MTU is smaller than what is sent, and, once
    /// segments as large as that have been acknowledged, only if the connection stops making progress (RFC 5927 §7.2).
    pub fn handle_too_big(&mut self, now: Instant, mtu: u16, seq: SeqNumber) -> TooBigVerdict {
        let quoted = position_of(seq, self.send.iss, self.send.una);
        if quoted < self.send.una as i64 || quoted >= self.send.nxt as i64 || self.state == State::Closed {
            return TooBigVerdict::Ignored;
        }
        let quoted = quoted as Position;
        let mss = mtu.saturating_sub(self.fixed_headers()).max(negotiate::MIN_MSS);
        if self.is_probe_at(quoted, mss) {
            return self.on_probe_too_big(now, mss);
        }
        if mss >= self.send.path_mss.min(self.send.peer_mss) {
            return TooBigVerdict::Ignored;
        }
        if mss < self.send.verified_mss {
            let high = self.mss_ceiling();
            let search = self.search.get_or_insert_with(|| Search::new(high, now + RAISE_AFTER));
            search.claim = Some((mss, quoted));
            return TooBigVerdict::Deferred;
        }
        self.believe_router(now, mss);
        TooBigVerdict::Taken
    }

    fn believe_router(&mut self, now: Instant, mss: u16) {
        self.take_path_mss(mss);
        if self.settings.mtu_probing != MtuProbing::Off {
            // RFC 1191 §6.3: it may be larger again later.
            self.search = Some(Search::new(self.mss_ceiling(), now + RAISE_AFTER));
        }
    }

    fn take_path_mss(&mut self, mss: u16) {
        let lower = mss < self.send.path_mss;
        self.set_path_mss(mss);
        if lower && self.state.is_synchronised() {
            self.send.scoreboard.mark_all_lost();
        } else if lower && self.state == State::SynSent && self.send.nxt > 1 {
            self.repeat_syn(); // its data made it too big (RFC 7413 §4.2.1), and does not go with it again
        }
    }

    fn set_path_mss(&mut self, mss: u16) {
        self.send.path_mss = mss;
        self.send.verified_mss = self.send.verified_mss.min(mss);
        self.on_mss_changed();
    }

    /// Data may flow from now on: decides where the search begins, if there is anything to search.
    pub(crate) fn begin_mtu_search(&mut self, now: Instant) {
        let ceiling = self.mss_ceiling();
        let next_at = match self.settings.mtu_probing {
            MtuProbing::Off => return,
            // A remembered size is old news when it is due to be raised.
            MtuProbing::OnBlackHole => now + RAISE_AFTER,
            MtuProbing::Always => {
                let base = self.send.path_mss.min(BASE_MSS);
                self.set_path_mss(base);
                now
            }
        };
        if self.send.path_mss < ceiling {
            self.search = Some(Search::new(ceiling, next_at));
        }
    }

    /// A restored connection whose segments are smaller than they could be searches from the beginning.
    pub(crate) fn resume_mtu_search(&mut self, now: Instant) {
        let ceiling = self.mss_ceiling();
        if self.settings.mtu_probing != MtuProbing::Off && self.send.path_mss < ceiling {
            self.search = Some(Search::new(ceiling, now));
        }
    }

    /// Sends a probe if one is due and everything is quiet enough to see what becomes of it (RFC 4821 §7.4).
    pub(crate) fn poll_mtu_probe(&mut self, now: Instant) -> Option<SegmentOut> {
        let low = self.send.path_mss.min(self.send.peer_mss);
        let ceiling = self.mss_ceiling();
        let search = self.search.as_mut()?;
        if search.probe.is_some() || search.next_at > now {
            return None;
        }
        if search.candidate(low).is_none() {
            // RFC 8899 §5.2: the raise timer has expired.
            search.high = ceiling;
            search.high_is_likely = true;
        }
        let size = search.candidate(low)?;
        let len = u32::from(size) - self.options_len();
        let (may_go, has_room) = (self.may_probe(len), self.has_room_for_probe(len));
        if let Some(search) = &mut self.search {
            search.held_for = if may_go && !has_room { len } else { 0 };
        }
        if !may_go || !has_room {
            return None;
        }
        let start = self.send.nxt;
        let small_end = self.send.small_end;
        let mut segment = self.send_new(now, len);
        segment.segment_size = len as u16; // one segment on the wire
        self.send.small_end = small_end; // it is not a small one
        let probe = Probe { start, end: start + u64::from(len), size };
        if let Some(search) = &mut self.search {
            search.probe = Some(probe);
        }
        self.stats.rare().mtu_probes += 1;
        Some(segment)
    }

    /// A probe and the segments behind it.
    fn len_with_followers(&self, len: u32) -> u32 {
        len + FOLLOWERS * u32::from(self.send.mss)
    }

    /// Whether a probe with `len` bytes of payload and segments behind it fits what is queued and both windows, and
    /// nothing else is going on.
    fn may_probe(&self, len: u32) -> bool {
        let all = self.len_with_followers(len);
        let board = &self.send.scoreboard;
        // RFC 4821 §4: without selective acknowledgements one could not say what was lost.
        self.settings.sack
            && self.recovery.phase == Phase::Open
            && board.lost() == 0
            && board.sacked() == 0
            && self.recv.reassembly.is_none()
            && !self.has_duplicate()
            && self.send.queued >= self.send.nxt + u64::from(all)
            && self.send.window >= all
            && self.effective_window() >= all
    }

    /// Whether it fits what the flight leaves of both windows.
    fn has_room_for_probe(&self, len: u32) -> bool {
        let all = self.len_with_followers(len);
        self.send.right_edge() >= self.send.nxt + u64::from(all) && self.congestion_allowance() >= all
    }

    /// New data waits until a probe has room, as on Linux: a window that is always full would never leave any. It does
    /// not wait for ever, since what is in flight is acknowledged, or found lost.
    pub(crate) fn is_held_for_probe(&self) -> bool {
        match &self.search {
            Some(search) if search.held_for > 0 => {
                self.send.outstanding() > 0
                    && self.may_probe(search.held_for)
                    && !self.has_room_for_probe(search.held_for)
            }
            _ => false,
        }
    }

    /// SND.UNA advanced; `largest` is the longest record that was delivered.
    pub(crate) fn on_ack_of_sizes(&mut self, now: Instant, largest: u32) {
        if largest >= u32::from(self.send.mss) {
            self.send.verified_mss = self.send.path_mss.min(self.send.peer_mss);
        }
        let una = self.send.una;
        let Some(search) = &mut self.search else { return };
        if search.claim.is_some_and(|(_, quoted)| quoted < una) {
            search.claim = None; // what was said to be too big has arrived
        }
        let Some(probe) = search.probe.filter(|probe| probe.end <= una) else { return };
        search.probe = None;
        search.failures = 0;
        let done = search.candidate(probe.size).is_none();
        if done {
            search.next_at = now + RAISE_AFTER;
        }
        self.send.path_mss = probe.size;
        self.send.verified_mss = probe.size;
        self.on_mss_changed();
        self.stats.rare().mtu_raises += 1;
        if probe.size >= self.mss_ceiling() {
            self.search = None;
        }
    }

    /// Something was just found lost. If it is the probe and nothing else, that is no sign of congestion: true
    /// (RFC 4821 §7.5).
    pub(crate) fn is_only_probe_lost(&mut self, now: Instant) -> bool {
        let Some(probe) = self.search.as_ref().and_then(|search| search.probe) else { return false };
        let board = &mut self.send.scoreboard;
        let lost = board.lost_within(probe.start, probe.end);
        if lost == 0 {
            return false;
        }
        let alone = lost == board.lost() && self.recovery.phase == Phase::Open;
        if alone {
            board.forgive_lost(lost);
        }
        // With other losses around it, it may have been congestion: it does not count.
        self.end_probe(now, alone);
        alone
    }

    /// The retransmission timer expired.
    pub(crate) fn on_timeout_of_sizes(&mut self, now: Instant) {
        let una = self.send.una;
        if let Some(search) = &mut self.search {
            let counts = search.probe.is_some_and(|probe| probe.start <= una && una < probe.end);
            let claim = search.claim.take();
            self.end_probe(now, counts);
            if let Some((mss, quoted)) = claim
                && quoted >= una
            {
                self.believe_router(now, mss);
                return;
            }
        }
        self.suspect_black_hole(now);
    }

    /// RFC 4821 §7.7, RFC 8899 §4.3: a segment that could be smaller times out again and again, although the handshake
    /// passed.
    fn suspect_black_hole(&mut self, now: Instant) {
        let front = self.send.scoreboard.front().map_or(0, |front| front.len) + self.options_len();
        let size = self.send.path_mss.min(self.send.peer_mss);
        // A request of less than a full segment can be too large too.
        let smaller = if front.min(size.into()) > u32::from(BASE_MSS) { BASE_MSS } else { FLOOR_MSS };
        if self.settings.mtu_probing == MtuProbing::Off
            || self.recovery.timeouts + 1 < BLACK_HOLE_TIMEOUTS
            || front <= u32::from(smaller)
            || smaller >= size
        {
            return;
        }
        self.stats.rare().black_holes += 1;
        self.set_path_mss(smaller);
        // The size of before is tried first: if the path was merely broken for a while, all is well at once.
        let high = self.search.as_ref().map_or(size, |search| search.high.max(size));
        self.search = Some(Search::new(high, now));
    }

    fn end_probe(&mut self, now: Instant, counts: bool) {
        let low = self.send.path_mss;
        let Some(search) = &mut self.search else { return };
        let Some(probe) = search.probe.take() else { return };
        if !counts {
            return;
        }
        self.stats.rare().mtu_probes_lost += 1;
        search.failures += 1;
        if search.failures >= MAX_PROBES {
            search.give_up(probe.size);
            if search.candidate(low).is_none() {
                search.next_at = now + RAISE_AFTER;
            }
        }
    }

    /// Whether a router that says `mss` speaks of the probe in flight.
    fn is_probe_at(&self, quoted: Position, mss: u16) -> bool {
        self.search
            .as_ref()
            .and_then(|search| search.probe)
            .is_some_and(|probe| probe.start == quoted && mss < probe.size && mss >= self.send.path_mss)
    }

    /// A router says how large the probe might have been: that is tried next.
    fn on_probe_too_big(&mut self, now: Instant, mss: u16) -> TooBigVerdict {
        let low = self.send.path_mss;
        let Some(search) = &mut self.search else { return TooBigVerdict::Ignored };
        let Some(probe) = search.probe.take() else { return TooBigVerdict::Ignored };
        search.high = mss;
        search.high_is_likely = true;
        search.failures = 0;
        if search.candidate(low).is_none() {
            search.next_at = now + RAISE_AFTER;
        }
        self.stats.rare().mtu_probes_lost += 1;
        self.send.scoreboard.mark_range_lost(probe.start, probe.end);
        TooBigVerdict::Taken
    }

    fn options_len(&self) -> u32 {
        if self.settings.timestamps { 12 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search over a path that takes `truth`; returns what it finds and how many probes it took.
    fn find(mut low: u16, high: u16, truth: u16) -> (u16, u32) {
        let mut search = Search::new(high, Instant::ZERO);
        let mut probes = 0;
        while let Some(size) = search.candidate(low) {
            assert!(size > low && size <= high);
            if size <= truth {
                probes += 1;
                low = size;
            } else {
                probes += u32::from(MAX_PROBES);
                search.give_up(size);
            }
        }
        (low, probes)
    }

    #[test]
    fn the_search_comes_within_its_granularity_of_every_path() {
        for truth in 1024..=9000 {
            let (found, probes) = find(1024, 8960, truth.min(8960));
            assert!(found <= truth && truth.min(8960) - found < GRANULARITY, "{truth}: {found}");
            assert!(probes <= 40, "{truth}: {probes} probes");
        }
        assert_eq!(find(1024, 8960, 8960), (8960, 1), "the likely size comes first");
        assert_eq!(find(1024, 1026, 1025).0, 1024);
    }

    #[test]
    fn a_routers_word_is_tried_exactly() {
        let mut search = Search::new(8960, Instant::ZERO);
        search.give_up(8960);
        search.high = 1460;
        search.high_is_likely = true;
        assert_eq!(search.candidate(1457), Some(1460));
        assert_eq!(search.candidate(1460), None);
    }
}
