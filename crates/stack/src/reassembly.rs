//! Reassembly of IPv4 datagrams from fragments (RFC 791 §3.2, RFC 1122 §3.3.2), within bounds.
//!
//! Each datagram keeps the fragments that came, as they came: memory follows the bytes received, not the offsets
//! that a fragment claims. Limits: bytes in all, bytes of one source, fragments a datagram, 30 seconds. When the
//! total is reached the oldest datagram goes. A fragment that overlaps another partly ends its datagram (RFC 5722's
//! rule, as Linux applies it to IPv4); one that lies wholly in what is there is a duplicate and ignored.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use base::{Duration, Instant};
use hashbrown::HashMap;

use crate::hash::KeyedState;

/// A datagram that is not complete this long after its first fragment is dropped.
///
/// Deviation from RFC 1122 §3.3.2: 30 seconds as on Linux, not 60 to 120; at today's rates an identification comes
/// round sooner than that, and memory is held for nothing.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Most fragments of one datagram. 64 KiB over the smallest usual MTU of 576 bytes takes 119.
pub const MAX_FRAGMENTS: usize = 160;
/// The largest IP payload that a datagram may reach.
const MAX_PAYLOAD: usize = 65_535 - 20;
/// What a fragment costs beside its bytes, for the accounts.
const FRAGMENT_OVERHEAD: usize = 64;
/// What an ICMP error quotes: a header and eight bytes.
const QUOTE_LEN: usize = 68;

/// What tells datagrams apart (RFC 791 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DatagramKey {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) identification: u16,
}

/// One fragment as it came.
pub(crate) struct Fragment<'a> {
    pub(crate) key: DatagramKey,
    /// In bytes.
    pub(crate) offset: usize,
    pub(crate) more: bool,
    pub(crate) payload: &'a [u8],
    /// The header and what follows, as an ICMP error would quote it.
    pub(crate) packet: &'a [u8],
}

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It waits for the others.
    Stored,
    /// The datagram's payload is complete and now in [`Reassembler::take`].
    Complete(Vec<u8>),
    /// It was there already.
    Duplicate,
    /// It overlaps another: the datagram is dropped.
    Overlap,
    /// Its length or position cannot be: dropped.
    Malformed,
    /// A limit is reached: dropped.
    OverLimit,
}

/// A datagram that timed out with its first fragment there: the quote for an ICMP time exceeded.
pub(crate) struct TimedOut {
    pub(crate) quote: Option<Vec<u8>>,
}

struct Partial {
    /// Sorted by offset, without overlaps.
    fragments: Vec<(u32, Box<[u8]>)>,
    quote: Option<Box<[u8]>>,
    total: Option<u32>,
    received: u32,
    cost: usize,
    serial: u64,
}

/// All datagrams in the making.
pub(crate) struct Reassembler {
    partial: HashMap<DatagramKey, Partial, KeyedState>,
    /// In the order of their timeouts; entries whose datagram is gone are skipped.
    order: VecDeque<(Instant, DatagramKey, u64)>,
    by_source: HashMap<Ipv4Addr, usize, KeyedState>,
    bytes: usize,
    max_bytes: usize,
    max_bytes_per_source: usize,
    serial: u64,
    /// Datagrams dropped to make room since last asked.
    evicted: u64,
}

impl Reassembler {
    pub(crate) fn new(max_bytes: usize, max_bytes_per_source: usize, hash: KeyedState) -> Self {
        Self {
            partial: HashMap::with_hasher(hash.clone()),
            order: VecDeque::new(),
            by_source: HashMap::with_hasher(hash),
            bytes: 0,
            max_bytes,
            max_bytes_per_source,
            serial: 0,
            evicted: 0,
        }
    }

    /// Takes one fragment in.
    pub(crate) fn handle_fragment(&mut self, now: Instant, fragment: &Fragment<'_>) -> Outcome {
        let length = fragment.payload.len();
        // All fragments but the last carry a multiple of eight bytes (RFC 791 §3.2).
        if length == 0 || fragment.more && !length.is_multiple_of(8) || fragment.offset + length > MAX_PAYLOAD
        {
            return Outcome::Malformed;
        }
        let cost = length + FRAGMENT_OVERHEAD;
        if self.by_source.get(&fragment.key.source).copied().unwrap_or(0) + cost > self.max_bytes_per_source {
            return Outcome::OverLimit;
        }
        while self.bytes + cost > self.max_bytes {
            if !self.evict_oldest() {
                return Outcome::OverLimit;
            }
        }
        if !self.partial.contains_key(&fragment.key) {
            self.open(now, fragment.key);
        }
        let Some(partial) = self.partial.get_mut(&fragment.key) else { return Outcome::OverLimit };
        match partial.place(fragment) {
            Outcome::Stored => {}
            Outcome::Duplicate => return Outcome::Duplicate,
            other => {
                self.close(&fragment.key);
                return other;
            }
        }
        partial.cost += cost;
        let complete = partial.total == Some(partial.received);
        self.bytes += cost;
        *self.by_source.entry(fragment.key.source).or_insert(0) += cost;
        if !complete {
            return Outcome::Stored;
        }
        match self.close(&fragment.key) {
            Some(partial) => Outcome::Complete(partial.join()),
            None => Outcome::Malformed,
        }
    }

    /// When the oldest datagram times out.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        while let Some((deadline, key, serial)) = self.order.front() {
            if self.partial.get(key).is_some_and(|partial| partial.serial == *serial) {
                return Some(*deadline);
            }
            self.order.pop_front();
        }
        None
    }

    /// The next datagram that timed out.
    pub(crate) fn poll_timed_out(&mut self, now: Instant) -> Option<TimedOut> {
        if self.deadline()? > now {
            return None;
        }
        let (_, key, _) = self.order.pop_front()?;
        let partial = self.close(&key)?;
        Some(TimedOut { quote: partial.quote.map(|quote| quote.into_vec()) })
    }

    /// Bytes held, with what they cost beside.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Datagrams dropped to make room since this was last called.
    pub(crate) fn take_evicted(&mut self) -> u64 {
        core::mem::take(&mut self.evicted)
    }

    fn open(&mut self, now: Instant, key: DatagramKey) {
        self.serial += 1;
        let serial = self.serial;
        let partial =
            Partial { fragments: Vec::new(), quote: None, total: None, received: 0, cost: 0, serial };
        self.partial.insert(key, partial);
        self.order.push_back((now + REASSEMBLY_TIMEOUT, key, serial));
        // Completed datagrams leave their entries behind; drop those at the front, and all when there are many more
        // entries than datagrams.
        if self.order.len() > 2 * self.partial.len() + 64 {
            let partial = &self.partial;
            self.order.retain(|(_, key, serial)| partial.get(key).is_some_and(|p| p.serial == *serial));
        }
    }

    fn close(&mut self, key: &DatagramKey) -> Option<Partial> {
        let partial = self.partial.remove(key)?;
        self.bytes -= partial.cost;
        if let Some(bytes) = self.by_source.get_mut(&key.source) {
            *bytes -= partial.cost.min(*bytes);
            if *bytes == 0 {
                self.by_source.remove(&key.source);
            }
        }
        Some(partial)
    }

    fn evict_oldest(&mut self) -> bool {
        while let Some((_, key, serial)) = self.order.pop_front() {
            if self.partial.get(&key).is_some_and(|partial| partial.serial == serial) {
                self.close(&key);
                self.evicted += 1;
                return true;
            }
        }
        false
    }
}

impl Partial {
    /// Everything but `Stored` and `Duplicate` ends the datagram.
    fn place(&mut self, fragment: &Fragment<'_>) -> Outcome {
        let start = fragment.offset as u32;
        let end = start + fragment.payload.len() as u32;
        if self.covers(start, end) {
            return Outcome::Duplicate;
        }
        let at = self.fragments.partition_point(|(offset, _)| *offset < start);
        let before_end = at.checked_sub(1).map_or(0, |i| self.end_of(i));
        let after_start = self.fragments.get(at).map_or(u32::MAX, |(offset, _)| *offset);
        // RFC 5722 §4: on overlap the whole datagram is discarded.
        if before_end > start || after_start < end {
            return Outcome::Overlap;
        }
        let last_end = self.fragments.len().checked_sub(1).map_or(0, |i| self.end_of(i));
        let fits = match (self.total, fragment.more) {
            (Some(total), true) => end < total,
            (Some(total), false) => end == total,
            (None, true) => true,
            (None, false) => last_end <= end,
        };
        if !fits {
            return Outcome::Malformed;
        }
        if self.fragments.len() >= MAX_FRAGMENTS {
            return Outcome::OverLimit;
        }
        if !fragment.more {
            self.total = Some(end);
        }
        if start == 0 {
            self.quote = Some(fragment.packet[..fragment.packet.len().min(QUOTE_LEN)].into());
        }
        self.received += end - start;
        self.fragments.insert(at, (start, fragment.payload.into()));
        Outcome::Stored
    }

    fn end_of(&self, at: usize) -> u32 {
        self.fragments[at].0 + self.fragments[at].1.len() as u32
    }

    /// Whether `start..end` has been received, across adjacent fragments.
    fn covers(&self, start: u32, end: u32) -> bool {
        let mut reached = start;
        let first = self.fragments.partition_point(|(offset, _)| *offset <= start).saturating_sub(1);
        for at in first..self.fragments.len() {
            if self.fragments[at].0 > reached || reached >= end {
                break;
            }
            reached = reached.max(self.end_of(at));
        }
        reached >= end
    }

    fn join(self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(self.received as usize);
        for (_, bytes) in &self.fragments {
            payload.extend_from_slice(bytes);
        }
        payload
    }
}

#[cfg(test)]
mod tests;
