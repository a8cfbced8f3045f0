//! What is remembered of the ways to other hosts: their MTU, as routers said it (RFC 1191) or connections found it, and
//! what a connection leaves to the next one to the same host (RFC 9040).
//!
//! Both tables are bounded and forget with time. Nothing in them is needed to go on.

use core::net::IpAddr;
use std::collections::VecDeque;

use base::{Duration, Instant};
use hashbrown::HashMap;
use tcp::PathMemory;

use crate::buffers::BufferFamily;
use crate::hash::KeyedState;
use crate::stack::Stack;

/// Hosts remembered in each table; the oldest entry goes.
const MAX_ENTRIES: usize = 1024;
/// How long a path's MTU counts (RFC 1191 §6.3).
const MTU_LIFETIME: Duration = Duration::from_secs(600);
/// How long what connections measured counts (Linux: `TCP_METRICS_TIMEOUT`).
const MEMORY_LIFETIME: Duration = Duration::from_secs(3600);
/// Nothing below this is believed (as Linux's `min_pmtu`): a forged message cannot make segments tiny.
pub(crate) const MIN_PATH_MTU: u16 = 552;

/// A bounded table of facts about hosts, each of which counts for some time.
pub(crate) struct Remembered<V> {
    facts: HashMap<IpAddr, (V, Instant), KeyedState>,
    /// Each host once, with a time at which its fact was told.
    order: VecDeque<(IpAddr, Instant)>,
    lifetime: Duration,
}

/// The largest packets on the ways to hosts.
pub(crate) type PathMtus = Remembered<u16>;
/// What connections left behind.
pub(crate) type PathMemories = Remembered<PathMemory>;

impl PathMtus {
    pub(crate) fn path_mtus(hash: KeyedState) -> Self {
        Self::new(hash, MTU_LIFETIME)
    }

    /// The next lower plausible MTU when an old router names none (RFC 1191 §7.1).
    pub(crate) fn plateau_below(length: u16) -> u16 {
        const PLATEAUS: [u16; 9] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 552, 508];
        PLATEAUS.into_iter().find(|&plateau| plateau < length).unwrap_or(508)
    }
}

impl PathMemories {
    pub(crate) fn memories(hash: KeyedState) -> Self {
        Self::new(hash, MEMORY_LIFETIME)
    }
}

impl<V: Copy> Remembered<V> {
    fn new(hash: KeyedState, lifetime: Duration) -> Self {
        Self { facts: HashMap::with_hasher(hash), order: VecDeque::new(), lifetime }
    }

    pub(crate) fn get(&self, now: Instant, host: IpAddr) -> Option<V> {
        if self.facts.is_empty() {
            return None;
        }
        let (fact, at) = self.facts.get(&host)?;
        (now.saturating_since(*at) <= self.lifetime).then_some(*fact)
    }

    pub(crate) fn set(&mut self, now: Instant, host: IpAddr, fact: V) {
        self.expire(now);
        if let Some(known) = self.facts.get_mut(&host) {
            *known = (fact, now);
            return;
        }
        while self.order.len() >= MAX_ENTRIES {
            self.drop_front();
        }
        self.facts.insert(host, (fact, now));
        self.order.push_back((host, now));
    }

    /// Forgets what is too old.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(_, at)| now.saturating_since(*at) > self.lifetime) {
            self.drop_front();
        }
    }

    /// The oldest entry goes, or, if it was renewed since it was queued, goes to the end of the queue.
    fn drop_front(&mut self) {
        let Some((host, at)) = self.order.pop_front() else { return };
        match self.facts.get(&host) {
            Some((_, set)) if *set != at => self.order.push_back((host, *set)),
            Some(_) | None => drop(self.facts.remove(&host)),
        }
    }
}

impl<B: BufferFamily> Stack<B> {
    /// The way to a host takes no packets larger than this.
    pub(crate) fn note_path_mtu(&mut self, now: Instant, host: IpAddr, mtu: u16) {
        self.path_mtus.set(now, host, mtu);
        self.least_path_mtu = self.least_path_mtu.min(mtu);
    }

    /// What earlier connections to `remote` found out, if that is wanted.
    pub(crate) fn remembered(&self, now: Instant, remote: IpAddr) -> Option<PathMemory> {
        if self.config.share_path_information { self.memories.get(now, remote) } else { None }
    }

    /// A connection has ended: what it found out is kept for the next one.
    pub(crate) fn remember_path(&mut self, now: Instant, index: u32) {
        let Some(tcp) = self.sockets.get_index(index).and_then(|socket| socket.tcp()) else { return };
        let remote = tcp.tuple().remote.ip();
        if self.is_local(remote) || !self.config.share_path_information {
            return;
        }
        let before = self.memories.get(now, remote);
        let (memory, mtu) = (tcp.connection.path_memory(before.as_ref()), tcp.connection.learned_path_mtu());
        if let Some(memory) = memory {
            self.memories.set(now, remote, memory);
        }
        // A router's word is remembered when it comes; this is what probing found.
        if let Some(mtu) = mtu
            && self.path_mtus.get(now, remote).is_none_or(|known| mtu < known)
        {
            self.note_path_mtu(now, remote, mtu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn entries_are_bounded_and_age() {
        let mut mtus = PathMtus::path_mtus(KeyedState::new([0; 16]));
        let host = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        for number in 0..2000u32 {
            mtus.set(Instant::from_millis(u64::from(number)), host(number), 1400);
        }
        assert!(mtus.facts.len() <= MAX_ENTRIES && mtus.order.len() <= MAX_ENTRIES);
        let now = Instant::from_millis(2000);
        assert_eq!(mtus.get(now, host(1999)), Some(1400));
        assert_eq!(mtus.get(now, host(1)), None);
        assert_eq!(mtus.get(now + MTU_LIFETIME, host(1999)), None, "even before it is forgotten");
        mtus.expire(Instant::from_millis(1_000_000));
        assert!(mtus.facts.is_empty());
    }

    #[test]
    fn a_fact_that_is_renewed_outlives_its_first_mention() {
        let mut mtus = PathMtus::path_mtus(KeyedState::new([0; 16]));
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        mtus.set(Instant::ZERO, host, 1400);
        mtus.set(Instant::ZERO + MTU_LIFETIME, host, 1300);
        mtus.expire(Instant::ZERO + MTU_LIFETIME + Duration::from_secs(1));
        assert_eq!(mtus.get(Instant::ZERO + MTU_LIFETIME, host), Some(1300));
    }
}
