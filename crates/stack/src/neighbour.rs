//! The neighbour cache: which link address a next hop has, and how sure we are (the states of RFC 4861 §7.3, which
//! Linux uses for ARP too).
//!
//! An entry is made when we have something to send, or when somebody asks for our address (it will want an answer).
//! What waits for an answer is kept here within bounds: copies of packets, and the list of connections that are not
//! polled meanwhile. The table only decides; the stack sends the requests and arms the timers that it asks for.

use std::collections::VecDeque;

use base::{Duration, Instant};
use core::net::IpAddr;
use hashbrown::HashMap;
use wire::ethernet::EthernetAddress;

use crate::InterfaceId;
use crate::hash::KeyedState;
use crate::list::List;
use crate::slab::{Key, Slab};
use crate::wheel::TimerKey;

/// How long an answer is trusted; each confirmation draws from half to one and a half of it (RFC 4861 §6.3.2).
pub(crate) const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// How long a stale entry in use waits for confirmation from above before it is probed (RFC 4861 §10).
pub(crate) const DELAY_FIRST_PROBE: Duration = Duration::from_secs(5);
/// Between requests.
pub(crate) const RETRANSMIT_TIME: Duration = Duration::from_secs(1);
/// Broadcast requests before a next hop counts as unreachable; as many unicast ones.
pub(crate) const MAX_SOLICITATIONS: u8 = 3;
/// Packets that wait for one next hop, and their bytes; the oldest goes first.
pub(crate) const MAX_WAITING_PACKETS: usize = 64;
/// See [`MAX_WAITING_PACKETS`].
pub(crate) const MAX_WAITING_BYTES: usize = 128 << 10;
/// Another hardware address is not taken over this soon after the last confirmation (Linux: locktime).
pub(crate) const LOCK_TIME: Duration = Duration::from_secs(1);

/// How far an address is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// Nothing asked yet.
    New,
    /// Asked, not answered.
    Incomplete,
    /// Confirmed a short while ago.
    Reachable,
    /// Known, not confirmed lately.
    Stale,
    /// In use and not confirmed lately; a confirmation from above may still come.
    Delay,
    /// Being asked again, at its known address.
    Probe,
    /// Asked as often as allowed, without an answer.
    Failed,
}

impl NeighbourState {
    /// Whether there is a hardware address to send to.
    pub fn is_known(self) -> bool {
        match self {
            Self::Reachable | Self::Stale | Self::Delay | Self::Probe => true,
            Self::New | Self::Incomplete | Self::Failed => false,
        }
    }
}

/// What to do with a packet for this neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Send it there.
    Send(EthernetAddress),
    /// Send it there, and arm the entry's timer.
    SendAndArm(EthernetAddress, Instant),
    /// It has to wait; an answer is on its way.
    Wait,
    /// It has to wait; broadcast a request and arm the entry's timer.
    Solicit(Instant),
}

/// What the entry's timer demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnTimer {
    /// Broadcast a request, arm the timer.
    Broadcast(Instant),
    /// Send a request to the known address, arm the timer.
    Unicast(EthernetAddress, Instant),
    /// What waits is lost.
    Failed,
    /// Nothing.
    Nothing,
}

/// How an address became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The answer to a request of ours.
    Reply,
    /// A request of theirs, or a gratuitous announcement.
    Heard,
}

/// One next hop.
pub(crate) struct Neighbour {
    pub(crate) interface: InterfaceId,
    pub(crate) address: IpAddr,
    pub(crate) hardware: EthernetAddress,
    pub(crate) state: NeighbourState,
    attempts: u8,
    confirmed: Instant,
    reachable_for: Duration,
    used: Instant,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Connections that wait.
    pub(crate) sockets: List,
    /// The entry's armed timer.
    pub(crate) timer: Option<TimerKey>,
}

/// The cache.
pub(crate) struct Neighbours {
    entries: Slab<Neighbour>,
    index: HashMap<(InterfaceId, IpAddr), u32, KeyedState>,
    max_entries: usize,
    /// How often an entry came or went, or was found to have another address than it had or none.
    pub(crate) changes: u64,
}

impl Neighbours {
    pub(crate) fn new(max_entries: usize, hash: KeyedState) -> Self {
        Self { entries: Slab::new(), index: HashMap::with_hasher(hash), max_entries, changes: 0 }
    }

    pub(crate) fn find(&self, interface: InterfaceId, address: IpAddr) -> Option<Key> {
        self.entries.key_at(*self.index.get(&(interface, address))?)
    }

    /// The entry for a next hop, made if need be. `None`: the table is full of entries in use.
    /// The second value is the timer of an entry that had to go for it.
    pub(crate) fn find_or_create(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
    ) -> (Option<Key>, Option<TimerKey>) {
        if let Some(key) = self.find(interface, address) {
            return (Some(key), None);
        }
        let mut timer = None;
        if self.entries.len() >= self.max_entries {
            match self.evict() {
                Some(evicted) => timer = evicted.timer,
                None => return (None, None),
            }
        }
        let key = self.entries.insert(Neighbour {
            interface,
            address,
            hardware: EthernetAddress::default(),
            state: NeighbourState::New,
            attempts: 0,
            confirmed: Instant::ZERO,
            reachable_for: REACHABLE_TIME,
            used: now,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sockets: List::new(),
            timer: None,
        });
        self.index.insert((interface, address), key.index);
        self.changes += 1;
        (Some(key), timer)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Neighbour> {
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Neighbour> {
        self.entries.get_mut(key)
    }

    pub(crate) fn get_index_mut(&mut self, index: u32) -> Option<&mut Neighbour> {
        self.entries.get_index_mut(index)
    }

    /// The entry that a timer's token names.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        self.entries.key_at(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Neighbour> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Linux keeps what is confirmed or being asked for and drops the stale and failed ones first.
    fn evict(&mut self) -> Option<Neighbour> {
        let rank = |entry: &Neighbour| match entry.state {
            NeighbourState::Failed | NeighbourState::New => 0,
            NeighbourState::Stale => 1,
            NeighbourState::Incomplete | NeighbourState::Delay | NeighbourState::Probe => 2,
            NeighbourState::Reachable => 3,
        };
        let (key, _) = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.sockets.is_empty() && entry.waiting.is_empty())
            .min_by_key(|(_, entry)| (rank(entry), entry.used))?;
        let entry = self.entries.remove(key.index)?;
        self.changes += 1;
        self.index.remove(&(entry.interface, entry.address));
        Some(entry)
    }
}

impl Neighbour {
    /// The address that is known, so that hearing of it again is no news.
    pub(crate) fn known(&self) -> Option<EthernetAddress> {
        self.state.is_known().then_some(self.hardware)
    }

    /// A packet wants to go to this neighbour.
    pub(crate) fn on_use(&mut self, now: Instant) -> Use {
        self.used = now;
        match self.state {
            NeighbourState::Reachable if now.saturating_since(self.confirmed) <= self.reachable_for => {
                Use::Send(self.hardware)
            }
            NeighbourState::Reachable | NeighbourState::Stale => {
                self.state = NeighbourState::Delay;
                Use::SendAndArm(self.hardware, now + DELAY_FIRST_PROBE)
            }
            NeighbourState::Delay | NeighbourState::Probe => Use::Send(self.hardware),
            NeighbourState::Incomplete => Use::Wait,
            NeighbourState::New | NeighbourState::Failed => {
                self.state = NeighbourState::Incomplete;
                self.attempts = 1;
                Use::Solicit(now + RETRANSMIT_TIME)
            }
        }
    }

    /// The entry's timer fired.
    pub(crate) fn on_timer(&mut self, now: Instant) -> OnTimer {
        self.timer = None;
        match self.state {
            NeighbourState::Incomplete if self.attempts < MAX_SOLICITATIONS => {
                self.attempts += 1;
                OnTimer::Broadcast(now + RETRANSMIT_TIME)
            }
            NeighbourState::Delay => {
                self.state = NeighbourState::Probe;
                self.attempts = 1;
                OnTimer::Unicast(self.hardware, now + RETRANSMIT_TIME)
            }
            NeighbourState::Probe if self.attempts < MAX_SOLICITATIONS => {
                self.attempts += 1;
                OnTimer::Unicast(self.hardware, now + RETRANSMIT_TIME)
            }
            NeighbourState::Incomplete | NeighbourState::Probe => {
                self.state = NeighbourState::Failed;
                OnTimer::Failed
            }
            NeighbourState::New
            | NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Failed => OnTimer::Nothing,
        }
    }

    /// The neighbour's hardware address was seen. Whether what waits may go now.
    pub(crate) fn on_evidence(
        &mut self,
        now: Instant,
        hardware: EthernetAddress,
        evidence: Evidence,
        reachable_for: Duration,
    ) -> bool {
        let waiting = matches!(self.state, NeighbourState::Incomplete);
        let asked = matches!(self.state, NeighbourState::Incomplete | NeighbourState::Probe);
        let known = self.state.is_known();
        let moved = known && hardware != self.hardware;
        if moved && now.saturating_since(self.confirmed) < LOCK_TIME {
            return false;
        }
        self.hardware = hardware;
        if evidence == Evidence::Reply && asked {
            self.state = NeighbourState::Reachable;
            self.confirmed = now;
            self.reachable_for = reachable_for;
        } else if !known || moved {
            self.state = NeighbourState::Stale;
            self.confirmed = now;
        }
        waiting
    }

    /// Progress of a connection shows that the neighbour forwards (RFC 4861 §7.3.1).
    pub(crate) fn on_confirmed_from_above(&mut self, now: Instant) {
        match self.state {
            NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe => {
                self.confirmed = now;
                self.state = NeighbourState::Reachable;
            }
            NeighbourState::New | NeighbourState::Incomplete | NeighbourState::Failed => {}
        }
    }

    /// Keeps a packet (a whole frame whose destination address is still to be filled in) until the address is
    /// known. How many older ones had to go.
    pub(crate) fn push_waiting(&mut self, frame: Vec<u8>) -> usize {
        let mut dropped = 0;
        self.waiting_bytes += frame.len();
        self.waiting.push_back(frame);
        while self.waiting.len() > MAX_WAITING_PACKETS || self.waiting_bytes > MAX_WAITING_BYTES {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= oldest.len();
            dropped += 1;
        }
        dropped
    }

    /// The oldest waiting packet.
    pub(crate) fn pop_waiting(&mut self) -> Option<Vec<u8>> {
        let frame = self.waiting.pop_front();
        match &frame {
            Some(frame) => self.waiting_bytes -= frame.len(),
            None => self.waiting.shrink_to(0),
        }
        frame
    }
}

#[cfg(test)]
mod tests;
