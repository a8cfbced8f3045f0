//! The choice of a port for a connection, at a cost that does not grow with the ports that are taken.
//!
//! Usually a few attempts find one (RFC 6056 §3.3.4). Where they do not, most ports to that destination are taken: from
//! then on it has a map with a bit for each port, which is kept up to date while the crowd lasts. Looking for a port, or
//! finding that there is none, is then a look at some hundred words.

use std::collections::VecDeque;

use base::Instant;
use core::net::{IpAddr, SocketAddr};
use hashbrown::HashMap;

use crate::buffers::BufferFamily;
use crate::flow::{FourTuple, Target};
use crate::hash::KeyedState;
use crate::stack::Stack;

/// Attempts before a destination gets a map.
const ATTEMPTS: u32 = 64;
/// Ports of a map that are looked at more closely, for each of both kinds.
const CANDIDATES: usize = 256;
/// Destinations that have a map at the same time; a map takes up to 16 KiB.
const MAX_CROWDS: usize = 64;

/// Where a connection goes from and to; the port is what is looked for.
type Destination = (IpAddr, SocketAddr);

/// The destinations that have a map.
pub(crate) struct Crowds {
    maps: HashMap<Destination, Crowd, KeyedState>,
    order: VecDeque<Destination>,
    first: u16,
    ports: usize,
}

/// A bit for each ephemeral port.
struct Crowd {
    /// Nobody has the port towards this destination.
    free: Bits,
    /// A record in TIME-WAIT has it.
    waiting: Bits,
}

/// A set of small numbers.
struct Bits {
    words: Box<[u64]>,
    count: usize,
    /// Where the next look begins, so that none is always first.
    next: usize,
}

impl Bits {
    fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)].into(), count: 0, next: 0 }
    }

    fn set(&mut self, number: usize, on: bool) {
        let (word, bit) = (&mut self.words[number / 64], 1 << (number % 64));
        if (*word & bit != 0) != on {
            *word ^= bit;
            self.count = if on { self.count + 1 } else { self.count - 1 };
        }
    }

    /// The next member, going round.
    fn take_next(&mut self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let (start, words) = (self.next / 64, self.words.len());
        let ahead = self.words[start] & (u64::MAX << (self.next % 64));
        let found = (1..=words).map(|step| (start + step) % words).map(|index| (index, self.words[index]));
        let (index, word) = core::iter::once((start, ahead)).chain(found).find(|&(_, word)| word != 0)?;
        let number = index * 64 + word.trailing_zeros() as usize;
        self.next = (number + 1) % (words * 64);
        Some(number)
    }
}

impl Crowds {
    pub(crate) fn new(range: (u16, u16), hash: KeyedState) -> Self {
        let (first, last) = (range.0.min(range.1).max(1), range.1.max(range.0).max(1));
        let ports = usize::from(last - first) + 1;
        Self { maps: HashMap::with_hasher(hash), order: VecDeque::new(), first, ports }
    }

    fn number_of(&self, port: u16) -> Option<usize> {
        let number = usize::from(port.checked_sub(self.first)?);
        (number < self.ports).then_some(number)
    }

    fn port_of(&self, number: usize) -> u16 {
        self.first + number as u16
    }

    /// What has become of a pair of ends: nobody has it, or this.
    fn note(&mut self, tuple: &FourTuple, target: Option<Target>) {
        if self.maps.is_empty() {
            return;
        }
        let Some(number) = self.number_of(tuple.local.port()) else { return };
        let destination = (tuple.local.ip(), tuple.remote);
        let Some(crowd) = self.maps.get_mut(&destination) else { return };
        crowd.free.set(number, target.is_none());
        crowd.waiting.set(number, matches!(target, Some(Target::TimeWait(_))));
        if crowd.free.count > self.ports - self.ports / 4 {
            self.maps.remove(&destination);
            self.order.retain(|other| *other != destination);
        }
    }

    fn insert(&mut self, destination: Destination, crowd: Crowd) {
        if self.order.len() >= MAX_CROWDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.maps.remove(&oldest);
        }
        self.order.push_back(destination);
        self.maps.insert(destination, crowd);
    }
}

impl<B: BufferFamily> Stack<B> {
    /// Enters a connection or a record into the table of flows.
    pub(crate) fn insert_flow(&mut self, tuple: &FourTuple, target: Target) {
        self.tcp_flows.insert(tuple, target);
        self.crowds.note(tuple, Some(target));
    }

    /// Takes it out.
    pub(crate) fn remove_flow(&mut self, tuple: &FourTuple, target: Target) {
        self.tcp_flows.remove(tuple, target);
        self.crowds.note(tuple, None);
    }

    /// A port for a connection with these ends, of which the local port is not chosen yet. Pairs in TIME-WAIT are
    /// succeeded when no other is left (RFC 6191 §2).
    pub(crate) fn pick_port(&mut self, now: Instant, tuple: FourTuple) -> Option<u16> {
        let destination = (tuple.local.ip(), tuple.remote);
        if !self.crowds.maps.contains_key(&destination) {
            let mut choice = self.tcp_ports.begin_choice(tuple.local.ip(), tuple.remote);
            for _ in 0..ATTEMPTS {
                let Some(port) = self.tcp_ports.next_choice(&mut choice) else { break };
                if !self.tcp_ports.is_bound(port) && self.find_tcp(&with_port(tuple, port)).is_none() {
                    return Some(port);
                }
            }
            self.map_crowd(tuple);
        }
        for _ in 0..CANDIDATES {
            let crowd = self.crowds.maps.get_mut(&destination)?;
            let Some(number) = crowd.free.take_next() else { break };
            let port = self.crowds.port_of(number);
            if !self.tcp_ports.is_bound(port) {
                return Some(port);
            }
        }
        for _ in 0..CANDIDATES {
            let number = self.crowds.maps.get_mut(&destination)?.waiting.take_next()?;
            let port = self.crowds.port_of(number);
            if !self.tcp_ports.is_bound(port) && self.is_available(now, &with_port(tuple, port)) {
                return Some(port);
            }
        }
        None
    }

    /// Makes the map of a destination, by a look at every port: once, and only where many are taken.
    fn map_crowd(&mut self, tuple: FourTuple) {
        let ports = self.crowds.ports;
        let mut crowd = Crowd { free: Bits::new(ports), waiting: Bits::new(ports) };
        for number in 0..ports {
            let target = self.find_tcp(&with_port(tuple, self.crowds.port_of(number)));
            crowd.free.set(number, target.is_none());
            crowd.waiting.set(number, matches!(target, Some(Target::TimeWait(_))));
        }
        // Outsiders shall not know which port comes next.
        crowd.free.next = (self.rng.next_u64() % ports as u64) as usize;
        crowd.waiting.next = (self.rng.next_u64() % ports as u64) as usize;
        self.crowds.insert((tuple.local.ip(), tuple.remote), crowd);
    }
}

fn with_port(tuple: FourTuple, port: u16) -> FourTuple {
    FourTuple { local: SocketAddr::new(tuple.local.ip(), port), ..tuple }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_found_in_turn_and_each_once_a_round() {
        let mut bits = Bits::new(200);
        let members = [0, 1, 63, 64, 130, 199];
        members.iter().for_each(|&number| bits.set(number, true));
        bits.set(64, true);
        assert_eq!(bits.count, members.len());
        bits.next = 64;
        let round: Vec<_> = (0..7).map(|_| bits.take_next().expect("a member")).collect();
        assert_eq!(round, [64, 130, 199, 0, 1, 63, 64]);
        members.iter().for_each(|&number| bits.set(number, false));
        assert_eq!((bits.count, bits.take_next()), (0, None));
        bits.set(199, true);
        assert_eq!(bits.take_next(), Some(199));
        assert_eq!(bits.take_next(), Some(199));
    }
}
