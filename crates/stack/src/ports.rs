//! Who holds which local port, and which ports are free.
//!
//! Conflicts follow Linux (`inet_csk_bind_conflict`): two sockets on one port with overlapping local addresses collide
//! unless both set `SO_REUSEADDR` and neither listens, or both set `SO_REUSEPORT`. Connections, accepted ones and
//! TIME-WAIT records hold their port too; that is why a server without `SO_REUSEADDR` cannot restart at once.
//! Holders are counted by address and manner, so a check does not depend on how many connections a port has.

use core::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;

use crate::hash::KeyedState;

/// The manner in which a port is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// `SO_REUSEADDR`.
    pub(crate) reuse_address: bool,
    /// `SO_REUSEPORT`.
    pub(crate) reuse_port: bool,
    /// The holder listens.
    pub(crate) listening: bool,
    /// The owner chose the port, rather than the stack at connect time.
    pub(crate) explicit: bool,
}

/// One holding of a port, to be given back as it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) local: SocketAddr,
    pub(crate) manner: Manner,
}

/// So many hold the port alike.
#[derive(Clone, Copy)]
struct Holder {
    address: IpAddr,
    manner: Manner,
    count: u32,
}

/// The holders of a port. Most ports have holders of one kind only, and there may be a port for every connection.
enum Bucket {
    Alike(Holder),
    Mixed(Vec<Holder>),
}

/// All ports of one protocol.
pub(crate) struct PortTable {
    buckets: HashMap<u16, Bucket, KeyedState>,
    hash: KeyedState,
    /// RFC 6056 §3.3.4: a table of counters, chosen by a second hash.
    counters: [u16; COUNTERS],
    first: u16,
    last: u16,
    conflict_counts_listeners: bool,
}

const COUNTERS: usize = 64;

/// A choice of a port that is going on.
pub(crate) struct Choice {
    offset: u32,
    counter: usize,
    left: u32,
}

impl Holder {
    fn of(claim: &Claim) -> Self {
        Self { address: claim.local.ip(), manner: claim.manner, count: 1 }
    }

    fn is_of(&self, claim: &Claim) -> bool {
        self.address == claim.local.ip() && self.manner == claim.manner
    }

    fn collides(&self, address: IpAddr, manner: Manner, listeners_count: bool) -> bool {
        let overlap = self.address == address || self.address.is_unspecified() || address.is_unspecified();
        let reuse =
            self.manner.reuse_address && manner.reuse_address && !(listeners_count && self.manner.listening);
        let share = self.manner.reuse_port && manner.reuse_port;
        overlap && !reuse && !share
    }
}

impl Bucket {
    fn holders(&self) -> &[Holder] {
        match self {
            Self::Alike(holder) => core::slice::from_ref(holder),
            Self::Mixed(holders) => holders,
        }
    }

    fn hold(&mut self, claim: &Claim) {
        let kinds = match self {
            Self::Alike(holder) => core::slice::from_mut(holder),
            Self::Mixed(holders) => holders,
        };
        if let Some(same) = kinds.iter_mut().find(|holder| holder.is_of(claim)) {
            same.count += 1;
            return;
        }
        let another = Holder::of(claim);
        match self {
            Self::Alike(holder) => *self = Self::Mixed(vec![*holder, another]),
            Self::Mixed(holders) => holders.push(another),
        }
    }

    /// Whether nobody holds the port any more.
    fn release(&mut self, claim: &Claim) -> bool {
        match self {
            Self::Alike(holder) => {
                holder.count -= u32::from(holder.is_of(claim));
                holder.count == 0
            }
            Self::Mixed(holders) => {
                if let Some(at) = holders.iter().position(|holder| holder.is_of(claim)) {
                    holders[at].count -= 1;
                    if holders[at].count == 0 {
                        holders.swap_remove(at);
                    }
                }
                if let [only] = holders[..] {
                    *self = Self::Alike(only);
                }
                false
            }
        }
    }
}

impl PortTable {
    /// `tcp`: listeners collide even when both reuse the address; UDP has none.
    pub(crate) fn new(range: (u16, u16), tcp: bool, hash: KeyedState) -> Self {
        Self {
            buckets: HashMap::with_hasher(hash.clone()),
            hash,
            counters: [0; COUNTERS],
            first: range.0.min(range.1).max(1),
            last: range.1.max(range.0).max(1),
            conflict_counts_listeners: tcp,
        }
    }

    /// Whether a socket may hold `claim` beside those that hold the port.
    pub(crate) fn is_free(&self, claim: &Claim) -> bool {
        self.buckets.get(&claim.local.port()).is_none_or(|bucket| {
            let listeners_count = self.conflict_counts_listeners;
            let holders = bucket.holders();
            !holders.iter().any(|holder| holder.collides(claim.local.ip(), claim.manner, listeners_count))
        })
    }

    /// Whether anybody holds the port.
    pub(crate) fn is_held(&self, port: u16) -> bool {
        self.buckets.contains_key(&port)
    }

    /// Notes a holder. Whether it may hold it is asked before, where that matters.
    pub(crate) fn hold(&mut self, claim: &Claim) {
        self.buckets
            .entry(claim.local.port())
            .and_modify(|bucket| bucket.hold(claim))
            .or_insert_with(|| Bucket::Alike(Holder::of(claim)));
    }

    /// Gives a holding back.
    pub(crate) fn release(&mut self, claim: &Claim) {
        let port = claim.local.port();
        if !self.buckets.get_mut(&port).is_some_and(|bucket| bucket.release(claim)) {
            return;
        }
        self.buckets.remove(&port);
        if self.buckets.capacity() > 64 && self.buckets.len() * 8 < self.buckets.capacity() {
            self.buckets.shrink_to(self.buckets.len() * 2);
        }
    }

    /// A free ephemeral port for a bind to port 0: random, and free by the rules of bind.
    pub(crate) fn pick_for_bind(&self, mut claim: Claim, random: u64) -> Option<u16> {
        let count = u32::from(self.last - self.first) + 1;
        let start = (random % u64::from(count)) as u32;
        let mut ports = (0..count).map(|step| self.first + ((start + step) % count) as u16);
        // As on Linux, a port that somebody shares is only given out when nothing else is left.
        ports.clone().find(|port| !self.buckets.contains_key(port)).or_else(|| {
            ports.find(|&port| {
                claim.local.set_port(port);
                self.is_free(&claim)
            })
        })
    }

    /// Begins the choice of an ephemeral port for a connection from `address` to `remote`: RFC 6056 §3.3.4, double-hash
    /// selection. It is enough that both ends together are free, which the caller finds out.
    pub(crate) fn begin_choice(&self, address: IpAddr, remote: SocketAddr) -> Choice {
        let word = self.hash.hash_bytes(key_bytes(address, remote).as_slice());
        let count = u32::from(self.last - self.first) + 1;
        Choice { offset: word as u32 % count, counter: (word >> 32) as usize % COUNTERS, left: count }
    }

    /// The next port to try; `None`: each was tried.
    pub(crate) fn next_choice(&mut self, choice: &mut Choice) -> Option<u16> {
        choice.left = choice.left.checked_sub(1)?;
        let step = self.counters[choice.counter];
        self.counters[choice.counter] = step.wrapping_add(1);
        let count = u32::from(self.last - self.first) + 1;
        Some(self.first + ((choice.offset + u32::from(step)) % count) as u16)
    }

    /// Whether somebody bound the port: then it is left alone.
    pub(crate) fn is_bound(&self, port: u16) -> bool {
        let bucket = self.buckets.get(&port);
        bucket.is_some_and(|bucket| bucket.holders().iter().any(|holder| holder.manner.explicit))
    }
}

fn key_bytes(address: IpAddr, remote: SocketAddr) -> arrayvec::ArrayVec<u8, 34> {
    let mut bytes = arrayvec::ArrayVec::new();
    for ip in [address, remote.ip()] {
        match ip {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
    }
    bytes.extend(remote.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Manner =
        Manner { reuse_address: false, reuse_port: false, listening: false, explicit: true };
    const REUSE: Manner = Manner { reuse_address: true, ..PLAIN };
    const SHARE: Manner = Manner { reuse_port: true, ..PLAIN };

    fn table() -> PortTable {
        PortTable::new((40_000, 40_099), true, KeyedState::new([5; 16]))
    }

    fn claim(address: &str, manner: Manner) -> Claim {
        Claim { local: address.parse().unwrap(), manner }
    }

    fn listening(manner: Manner) -> Manner {
        Manner { listening: true, ..manner }
    }

    #[test]
    fn conflicts_are_linux_conflicts() {
        let cases = [
            ("10.0.0.1:80", PLAIN, "10.0.0.2:80", PLAIN, true),
            ("10.0.0.1:80", PLAIN, "10.0.0.1:81", PLAIN, true),
            ("10.0.0.1:80", PLAIN, "10.0.0.1:80", PLAIN, false),
            ("0.0.0.0:80", PLAIN, "10.0.0.1:80", PLAIN, false),
            ("10.0.0.1:80", PLAIN, "0.0.0.0:80", REUSE, false),
            ("10.0.0.1:80", REUSE, "0.0.0.0:80", REUSE, true),
            ("10.0.0.1:80", listening(REUSE), "10.0.0.1:80", REUSE, false),
            ("10.0.0.1:80", REUSE, "10.0.0.1:80", listening(REUSE), true),
            ("10.0.0.1:80", listening(SHARE), "10.0.0.1:80", listening(SHARE), true),
            ("10.0.0.1:80", listening(SHARE), "10.0.0.1:80", PLAIN, false),
        ];
        for (first, held, second, wanted, free) in cases {
            let mut table = table();
            table.hold(&claim(first, held));
            assert_eq!(table.is_free(&claim(second, wanted)), free, "{first} {held:?} {second} {wanted:?}");
        }
    }

    #[test]
    fn what_is_held_is_given_back() {
        let mut table = table();
        let claims = [
            claim("10.0.0.1:80", listening(PLAIN)),
            claim("10.0.0.1:80", PLAIN),
            claim("10.0.0.1:80", PLAIN),
            claim("0.0.0.0:80", REUSE),
        ];
        claims.iter().for_each(|claim| table.hold(claim));
        for held in claims.iter().rev() {
            assert!(!table.is_free(&claim("10.0.0.1:80", PLAIN)));
            table.release(held);
        }
        assert!(table.is_free(&claim("10.0.0.1:80", PLAIN)));
        assert!(table.buckets.is_empty());
    }

    #[test]
    fn ephemeral_ports_differ_by_destination_and_run_out() {
        let mut table = table();
        let address = IpAddr::from([10, 0, 0, 1]);
        let remote = SocketAddr::from(([10, 0, 0, 2], 80));
        table.hold(&claim("10.0.0.1:40050", PLAIN));
        assert!(table.is_bound(40_050) && !table.is_bound(40_051));
        let mut choice = table.begin_choice(address, remote);
        let tried: Vec<u16> = std::iter::from_fn(|| table.next_choice(&mut choice)).collect();
        let each: std::collections::HashSet<u16> = tried.iter().copied().collect();
        assert_eq!((tried.len(), each.len()), (100, 100));
        assert!(tried.iter().all(|port| (40_000..=40_099).contains(port)));
        let other = SocketAddr::from(([10, 0, 0, 3], 80));
        let mut choice = table.begin_choice(address, other);
        assert_ne!(table.next_choice(&mut choice), Some(tried[0]));
        let any = claim("0.0.0.0:0", PLAIN);
        assert!(table.pick_for_bind(any, 17).is_some_and(|port| port != 40_050));
    }
}
