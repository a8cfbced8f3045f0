//! Demultiplexing: which connection a packet belongs to, by a keyed hash over both ends.
//!
//! The table holds eight bytes a connection: 32 bits of the hash and where the connection stands. The ends themselves
//! are compared there, so a lookup touches one table line and one connection, however many there are.

use core::net::{IpAddr, SocketAddr};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

use crate::hash::KeyedState;

/// The table gives memory back when less than one slot in this many is used.
const SPARSE: usize = 8;
/// Tables up to this size never shrink.
const SMALL: usize = 64;

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FourTuple {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

/// What stands behind a table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A socket, by its index.
    Socket(u32),
    /// A TIME-WAIT record, by its index.
    TimeWait(u32),
}

#[derive(Clone, Copy)]
struct Entry {
    tag: u32,
    /// The highest bit tells a TIME-WAIT record.
    target: u32,
}

/// The table.
pub(crate) struct FlowTable {
    table: HashTable<Entry>,
    hash: KeyedState,
    /// What was found last: the next packet is likely to belong to the same.
    recent: Option<(FourTuple, Target)>,
    /// Changes whenever a target comes or goes.
    version: u64,
    lookups: u64,
    comparisons: u64,
}

const TIME_WAIT_BIT: u32 = 1 << 31;

impl Target {
    const fn encode(self) -> u32 {
        match self {
            Self::Socket(index) => index,
            Self::TimeWait(index) => index | TIME_WAIT_BIT,
        }
    }

    const fn decode(code: u32) -> Self {
        if code & TIME_WAIT_BIT == 0 { Self::Socket(code) } else { Self::TimeWait(code & !TIME_WAIT_BIT) }
    }
}

impl FlowTable {
    pub(crate) fn new(hash: KeyedState) -> Self {
        Self { table: HashTable::new(), hash, recent: None, version: 0, lookups: 0, comparisons: 0 }
    }

    /// What `tuple` belongs to; `same` says whether a target has exactly these ends.
    pub(crate) fn find(&mut self, tuple: &FourTuple, same: impl Fn(Target) -> bool) -> Option<Target> {
        self.lookups += 1;
        if let Some((recent, target)) = &self.recent
            && recent == tuple
        {
            self.comparisons += 1;
            return Some(*target);
        }
        let tag = self.tag(tuple);
        let comparisons = &mut self.comparisons;
        let entry = self.table.find(spread(tag), |entry| {
            entry.tag == tag && {
                *comparisons += 1;
                same(Target::decode(entry.target))
            }
        })?;
        let target = Target::decode(entry.target);
        self.recent = Some((*tuple, target));
        Some(target)
    }

    /// What [`is_still`](Self::is_still) asks for.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Whether what was found at that version would be found again. It counts as a lookup if so.
    #[inline]
    pub(crate) fn is_still(&mut self, version: u64) -> bool {
        if version != self.version {
            return false;
        }
        self.lookups += 1;
        self.comparisons += 1;
        true
    }

    /// So many packets went to what was found before without being looked up, which counts as asking.
    pub(crate) fn count_known(&mut self, packets: u32) {
        self.lookups += u64::from(packets);
        self.comparisons += u64::from(packets);
    }

    /// Enters a target. The caller has made sure that the ends are not taken.
    pub(crate) fn insert(&mut self, tuple: &FourTuple, target: Target) {
        let entry = Entry { tag: self.tag(tuple), target: target.encode() };
        self.recent = None;
        self.version += 1;
        self.table.insert_unique(spread(entry.tag), entry, |entry| spread(entry.tag));
    }

    /// Takes a target out.
    pub(crate) fn remove(&mut self, tuple: &FourTuple, target: Target) {
        let (tag, code) = (self.tag(tuple), target.encode());
        self.recent = None;
        self.version += 1;
        if let TableEntry::Occupied(found) =
            self.table.entry(spread(tag), |entry| entry.target == code, |entry| spread(entry.tag))
        {
            found.remove();
        }
        if self.table.capacity() > SMALL && self.table.len() * SPARSE < self.table.capacity() {
            self.table.shrink_to(self.table.len() * 2, |entry| spread(entry.tag));
        }
    }

    /// Lookups made, and ends compared for them, since the start.
    pub(crate) fn work(&self) -> (u64, u64) {
        (self.lookups, self.comparisons)
    }

    /// A word that others cannot predict, for choosing among a group by flow.
    pub(crate) fn tag(&self, tuple: &FourTuple) -> u32 {
        self.hash.hash_bytes(Bytes::of(tuple).as_slice()) as u32
    }
}

/// hashbrown takes the bucket from the low bits and a check from the top seven: both have to vary.
const fn spread(tag: u32) -> u64 {
    (tag as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Both ends as the bytes that are hashed: 12 for IPv4, 36 for IPv6.
struct Bytes {
    bytes: [u8; 36],
    len: usize,
}

impl Bytes {
    fn of(tuple: &FourTuple) -> Self {
        let mut bytes = Self { bytes: [0; 36], len: 0 };
        for end in [&tuple.local, &tuple.remote] {
            match end.ip() {
                IpAddr::V4(address) => bytes.push(&address.octets()),
                IpAddr::V6(address) => bytes.push(&address.octets()),
            }
            bytes.push(&end.port().to_be_bytes());
        }
        bytes
    }

    fn push(&mut self, more: &[u8]) {
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(number: u32) -> FourTuple {
        FourTuple {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            remote: SocketAddr::new(
                IpAddr::from((0x0a01_0000 + (number >> 14)).to_be_bytes()),
                (number & 0x3fff) as u16 + 1024,
            ),
        }
    }

    #[test]
    fn lookups_cost_the_same_with_many_connections() {
        let mut table = FlowTable::new(KeyedState::new([9; 16]));
        let mut compared = Vec::new();
        for size in [100u32, 100_000] {
            for number in table.table.len() as u32..size {
                table.insert(&tuple(number), Target::Socket(number));
            }
            let before = table.work();
            for number in 0..100 {
                let wanted = Target::Socket(number);
                assert_eq!(table.find(&tuple(number), |target| target == wanted), Some(wanted));
            }
            compared.push(table.work().1 - before.1);
        }
        assert_eq!(compared[0], 100);
        assert!(compared[1] <= 101, "{compared:?}");
        for number in 0..100_000 {
            table.remove(&tuple(number), Target::Socket(number));
        }
        assert!(table.table.capacity() <= SMALL);
    }

    #[test]
    fn time_wait_and_sockets_are_told_apart() {
        for target in [Target::Socket(7), Target::TimeWait(7)] {
            assert_eq!(Target::decode(target.encode()), target);
        }
    }
}
