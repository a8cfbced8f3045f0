//! Tells the device what of the link's noise anybody here has a use for, so that the rest is dropped before it is read.
//!
//! The filter may always let too much pass, never too little. A port is let in before the bind that wants it is answered.
//! News of neighbours is wanted from when they are first asked for: the filter hears of it in the same turn, as if what
//! came in between had come before. To be told costs a system call and more, so the filter is made narrower at most once in
//! [`PAUSE`]; what must pass before that opens it for all of its kind.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use base::{Duration, Instant};
use channel::fep::Family;
use device::{NoiseFilter, Wanted};
use stack::Stack;
use tracing::warn;

/// Between two times that the filter is made narrower.
const PAUSE: Duration = Duration::from_secs(1);
/// With more neighbours than these every ARP packet passes. What the filter does for a frame grows with them.
const MOST_NEIGHBOURS: usize = 32;
/// With more ports than these every broadcast datagram passes.
const MOST_PORTS: usize = 16;

/// The filter, and what it was told.
pub(crate) struct Noise {
    filter: Option<Box<dyn NoiseFilter>>,
    addresses: Vec<Ipv4Addr>,
    /// What passes, if the filter is on.
    told: Option<Wanted>,
    /// The stack's count of changes up to which `told` is known to be enough, and up to which it is no more than enough.
    enough: u64,
    exact: Option<u64>,
    /// When it may be made narrower again.
    next: Instant,
}

impl Noise {
    /// For a host with these addresses; without a filter there is nothing to do.
    pub(super) fn new(filter: Option<Box<dyn NoiseFilter>>, addresses: impl Iterator<Item = IpAddr>) -> Self {
        let addresses = addresses.filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        Self {
            filter,
            addresses: addresses.collect(),
            told: None,
            enough: 0,
            exact: None,
            next: Instant::ZERO,
        }
    }

    /// A socket takes datagrams at a port from now on.
    pub(super) fn admit_port(&mut self, port: u16) {
        let Some(told) = &self.told else { return };
        if told.broadcast_ports.as_ref().is_some_and(|ports| !ports.contains(&port)) {
            let wanted = Wanted { broadcast_ports: None, ..told.clone() };
            self.exact = None;
            self.tell(wanted);
        }
    }

    /// To be called at every turn, after output.
    pub(super) fn follow(&mut self, now: Instant, stack: &Stack<Family>) {
        let changes = stack.interest_changes();
        if self.exact == Some(changes) || self.filter.is_none() {
            return;
        }
        let is_due = now >= self.next;
        if !is_due && self.enough == changes {
            return;
        }
        let wanted = self.wanted(stack);
        if is_due {
            self.next = now + PAUSE;
            self.exact = Some(changes);
            if self.told.as_ref() != Some(&wanted) {
                self.tell(wanted);
            }
        } else if let Some(wider) = self.told.as_ref().and_then(|told| widened(told, &wanted)) {
            self.exact = None;
            self.tell(wider);
        }
        self.enough = changes;
    }

    fn wanted(&self, stack: &Stack<Family>) -> Wanted {
        let neighbours: Vec<_> = stack
            .neighbours()
            .filter_map(|one| match one.address {
                IpAddr::V4(address) => Some((address, one.state.is_known().then_some(one.hardware))),
                IpAddr::V6(_) => None,
            })
            .take(MOST_NEIGHBOURS + 1)
            .collect();
        let ports: Vec<u16> = stack.udp_ports().take(MOST_PORTS + 1).collect();
        Wanted {
            addresses: self.addresses.clone(),
            neighbours: (neighbours.len() <= MOST_NEIGHBOURS).then_some(neighbours),
            broadcast_ports: (ports.len() <= MOST_PORTS).then_some(ports),
        }
    }

    fn tell(&mut self, wanted: Wanted) {
        let Some(filter) = &mut self.filter else { return };
        match filter.want(&wanted) {
            Ok(()) => self.told = Some(wanted),
            Err(error) => self.give_up(&error),
        }
    }

    /// Without a filter everything comes, and the stack drops what it has no use for.
    fn give_up(&mut self, error: &io::Error) {
        warn!("the device does not filter noise: {error}");
        self.told = None;
        if let Some(Err(error)) = self.filter.take().map(|mut filter| filter.want_everything()) {
            warn!("the device's noise filter cannot be taken away: {error}");
        }
    }
}

/// What is to be told so that everything passes that is wanted; `None`: what was told is enough.
fn widened(told: &Wanted, wanted: &Wanted) -> Option<Wanted> {
    let covers_neighbours = match (&told.neighbours, &wanted.neighbours) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(told), Some(wanted)) => {
            wanted.iter().all(|one| told.contains(one) || told.contains(&(one.0, None)))
        }
    };
    let covers_ports = match (&told.broadcast_ports, &wanted.broadcast_ports) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(told), Some(wanted)) => wanted.iter().all(|port| told.contains(port)),
    };
    (!covers_neighbours || !covers_ports).then(|| Wanted {
        addresses: told.addresses.clone(),
        neighbours: told.neighbours.clone().filter(|_| covers_neighbours),
        broadcast_ports: told.broadcast_ports.clone().filter(|_| covers_ports),
    })
}
