//! What routers said about the largest packet on the way to a destination (RFC 1191).

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use base::{Duration, Instant};
use hashbrown::HashMap;

use crate::hash::KeyedState;

/// Destinations remembered; the oldest goes.
const MAX_ENTRIES: usize = 1024;
/// How long a router's word counts (RFC 1191 §6.3).
const LIFETIME: Duration = Duration::from_secs(600);
/// Nothing below this is believed (as Linux's `min_pmtu`): a forged message cannot make segments tiny.
pub(crate) const MIN_PATH_MTU: u16 = 552;

/// The destinations.
pub(crate) struct PathMtus {
    mtus: HashMap<Ipv4Addr, (u16, Instant), KeyedState>,
    order: VecDeque<(Ipv4Addr, Instant)>,
}

impl PathMtus {
    pub(crate) fn new(hash: KeyedState) -> Self {
        Self { mtus: HashMap::with_hasher(hash), order: VecDeque::new() }
    }

    pub(crate) fn get(&self, destination: Ipv4Addr) -> Option<u16> {
        if self.mtus.is_empty() {
            return None;
        }
        self.mtus.get(&destination).map(|(mtu, _)| *mtu)
    }

    pub(crate) fn set(&mut self, now: Instant, destination: Ipv4Addr, mtu: u16) {
        self.expire(now);
        if self.order.len() >= MAX_ENTRIES {
            self.drop_front();
        }
        self.mtus.insert(destination, (mtu, now));
        self.order.push_back((destination, now));
    }

    /// Forgets what is too old.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(_, at)| now.saturating_since(*at) > LIFETIME) {
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        let Some((destination, at)) = self.order.pop_front() else { return };
        if self.mtus.get(&destination).is_some_and(|(_, set)| *set == at) {
            self.mtus.remove(&destination);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_bounded_and_age() {
        let mut mtus = PathMtus::new(KeyedState::new([0; 16]));
        for host in 0..2000u32 {
            mtus.set(Instant::from_millis(u64::from(host)), Ipv4Addr::from_bits(host), 1400);
        }
        assert!(mtus.mtus.len() <= MAX_ENTRIES && mtus.order.len() <= MAX_ENTRIES);
        assert_eq!(mtus.get(Ipv4Addr::from_bits(1999)), Some(1400));
        mtus.expire(Instant::from_millis(1_000_000));
        assert_eq!(mtus.get(Ipv4Addr::from_bits(1999)), None);
    }
}
