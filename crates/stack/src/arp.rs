//! ARP: answering for our own addresses, learning neighbours, watching for others that use our addresses.
//!
//! Only answers to our own questions make or confirm entries; an announcement that nobody asked for refreshes what is
//! there and makes nothing. RFC 826, RFC 1122 §2.3.2, RFC 5227.

use base::{Duration, Instant};
use core::net::{IpAddr, Ipv4Addr};
use wire::arp::{Operation, PACKET_LEN, Packet};
use wire::ethernet::{self, EtherType, EthernetAddress};
use wire::frame::Medium;

use crate::InterfaceId;
use crate::buffers::BufferFamily;
use crate::config::ConflictDetection;
use crate::interface::AddressState;
use crate::neighbour::{Evidence, OnTimer, REACHABLE_TIME};
use crate::slab::Key;
use crate::stack::{Stack, Timer};

/// RFC 5227 §1.1.
const PROBE_WAIT: Duration = Duration::from_secs(1);
const PROBE_NUM: u8 = 3;
const PROBE_MIN: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(2);
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
const ANNOUNCE_NUM: u8 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// To whom a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    All,
    One(EthernetAddress),
}

impl<B: BufferFamily> Stack<B> {
    /// Takes an ARP packet in.
    pub(crate) fn handle_arp(&mut self, now: Instant, interface: InterfaceId, bytes: &[u8]) {
        self.stats.arp_in += 1;
        let Ok(packet) = Packet::parse(bytes) else {
            self.stats.drop_arp_malformed += 1;
            return;
        };
        let sender = packet.sender_protocol;
        if !packet.sender_hardware.is_unicast()
            || sender.is_multicast()
            || sender.is_broadcast()
            || sender.is_loopback()
        {
            self.stats.drop_arp_malformed += 1;
            return;
        }
        let link = &self.interfaces[interface.index()];
        if packet.sender_hardware == link.capabilities.hardware_address {
            // Our own packet, reflected.
            self.stats.arp_others += 1;
            return;
        }
        if self.check_conflict(now, interface, &packet) {
            return;
        }
        let link = &self.interfaces[interface.index()];
        let for_us = link.owns(IpAddr::V4(packet.target_protocol));
        let on_link = !sender.is_unspecified() && link.is_on_link(IpAddr::V4(sender));
        if on_link {
            self.learn(now, interface, &packet, for_us);
        }
        match packet.operation {
            Operation::Request if for_us => {
                let answer = Packet {
                    operation: Operation::Reply,
                    sender_hardware: link_address(self, interface),
                    sender_protocol: packet.target_protocol,
                    target_hardware: packet.sender_hardware,
                    target_protocol: sender,
                };
                self.send_arp(interface, packet.sender_hardware, &answer);
            }
            Operation::Request | Operation::Reply => self.stats.arp_others += u64::from(!for_us),
        }
    }

    /// RFC 826's merge, with Linux's caution: an entry is made only for somebody who asks for us.
    fn learn(&mut self, now: Instant, interface: InterfaceId, packet: &Packet, for_us: bool) {
        let address = IpAddr::V4(packet.sender_protocol);
        let known = self.neighbours.find(interface, address);
        let (evidence, key) = match packet.operation {
            Operation::Reply if for_us => (Evidence::Reply, known),
            Operation::Request if for_us && known.is_none() => {
                let (key, evicted) = self.neighbours.find_or_create(now, interface, address);
                if let Some(timer) = evicted {
                    self.wheel.cancel(timer);
                }
                (Evidence::Heard, key)
            }
            Operation::Reply | Operation::Request => (Evidence::Heard, known),
        };
        let Some(key) = key else {
            self.stats.drop_arp_unsolicited += u64::from(packet.operation == Operation::Reply);
            return;
        };
        // RFC 4861 §6.3.2: between half and one and a half times the base.
        let half = REACHABLE_TIME.as_nanos() / 2;
        let reachable_for = Duration::from_nanos(half + self.rng.below(2 * half));
        let Some(entry) = self.neighbours.get_mut(key) else { return };
        let (hardware, before) = (packet.sender_hardware, entry.known());
        let may_go = entry.on_evidence(now, hardware, evidence, reachable_for);
        let is_news = entry.known() != before;
        if may_go {
            if let Some(timer) = entry.timer.take() {
                self.wheel.cancel(timer);
            }
            self.on_resolved(key, hardware);
        }
        self.neighbours.changes += u64::from(is_news);
    }

    /// What waited for a neighbour may go.
    fn on_resolved(&mut self, key: Key, hardware: EthernetAddress) {
        self.release_waiting(key, hardware);
        while let Some(index) = self.take_parked(key) {
            self.schedule(index);
        }
    }

    /// The timer of a neighbour entry fired.
    pub(crate) fn on_neighbour_timer(&mut self, now: Instant, index: u32) {
        let Some(key) = self.neighbours.key_at(index) else { return };
        let Some(entry) = self.neighbours.get_mut(key) else { return };
        match entry.on_timer(now) {
            OnTimer::Broadcast(deadline) => {
                self.arm_neighbour(key, deadline);
                self.send_arp_request(key, To::All);
            }
            OnTimer::Unicast(hardware, deadline) => {
                self.arm_neighbour(key, deadline);
                self.send_arp_request(key, To::One(hardware));
            }
            OnTimer::Failed => self.on_neighbour_failed(now, key),
            OnTimer::Nothing => {}
        }
    }

    fn on_neighbour_failed(&mut self, now: Instant, key: Key) {
        self.stats.neighbour_failures += 1;
        self.neighbours.changes += 1;
        while let Some(frame) = self.neighbours.get_mut(key).and_then(|entry| entry.pop_waiting()) {
            self.stats.drop_neighbour_failed += 1;
            self.on_undeliverable(&frame);
        }
        while let Some(index) = self.take_parked(key) {
            self.on_unreachable(now, index, tcp::IcmpError::HostUnreachable);
        }
    }

    pub(crate) fn arm_neighbour(&mut self, key: Key, deadline: Instant) {
        let timer = self.wheel.arm(deadline, Timer::Neighbour(key.index));
        if let Some(entry) = self.neighbours.get_mut(key)
            && let Some(old) = entry.timer.replace(timer)
        {
            self.wheel.cancel(old);
        }
    }

    /// Asks for the hardware address of a neighbour.
    pub(crate) fn send_arp_request(&mut self, key: Key, to: To) {
        let Some(entry) = self.neighbours.get(key) else { return };
        let (interface, IpAddr::V4(target)) = (entry.interface, entry.address) else { return };
        let link = &self.interfaces[interface.index()];
        let Some(IpAddr::V4(sender)) = link.source_for(IpAddr::V4(target)) else { return };
        let request = self.arp_request(interface, sender, target);
        match to {
            To::All => self.send_arp(interface, EthernetAddress::BROADCAST, &request),
            To::One(hardware) => self.send_arp(interface, hardware, &request),
        }
    }

    fn arp_request(&self, interface: InterfaceId, sender: Ipv4Addr, target: Ipv4Addr) -> Packet {
        Packet {
            operation: Operation::Request,
            sender_hardware: link_address(self, interface),
            sender_protocol: sender,
            target_hardware: EthernetAddress::default(),
            target_protocol: target,
        }
    }

    fn send_arp(&mut self, interface: InterfaceId, to: EthernetAddress, packet: &Packet) {
        let mut bytes = self.interfaces[interface.index()].control.buffer();
        bytes.resize(ethernet::HEADER_LEN + PACKET_LEN, 0);
        let source = link_address(self, interface);
        ethernet::Header { destination: to, source, ethertype: EtherType::ARP }.emit(&mut bytes);
        packet.emit(&mut bytes[ethernet::HEADER_LEN..]);
        self.stats.arp_out += 1;
        self.push_control(interface, bytes);
    }

    /// Starts to probe or announce an interface's IPv4 addresses.
    pub(crate) fn start_addresses(&mut self, now: Instant, interface: InterfaceId) {
        let link = &mut self.interfaces[interface.index()];
        if link.capabilities.medium != Medium::Ethernet {
            link.addresses.iter_mut().for_each(|own| own.state = AddressState::Usable);
            return;
        }
        for number in 0..link.addresses.len() {
            let timer = Timer::Address(interface, number as u16);
            let wait = match self.config.conflict_detection {
                ConflictDetection::Off => continue,
                ConflictDetection::Announce => Duration::ZERO,
                ConflictDetection::Probe => Duration::from_nanos(self.rng.below(PROBE_WAIT.as_nanos())),
            };
            let own = &mut self.interfaces[interface.index()].addresses[number];
            own.remaining = if own.state == AddressState::Tentative { PROBE_NUM } else { ANNOUNCE_NUM };
            self.wheel.arm(now + wait, timer);
        }
    }

    /// The next probe or announcement of an address is due.
    pub(crate) fn on_address_timer(&mut self, now: Instant, interface: InterfaceId, number: u16) {
        let timer = Timer::Address(interface, number);
        let Some(own) = self.interfaces[interface.index()].addresses.get_mut(usize::from(number)) else {
            return;
        };
        let IpAddr::V4(address) = own.cidr.address() else { return };
        let (sender, next) = match own.state {
            AddressState::Conflicted => return,
            AddressState::Tentative if own.remaining == 0 => {
                // RFC 5227 §2.1.1: nobody answered, the address is ours. §2.3: announce it.
                own.state = AddressState::Usable;
                own.remaining = ANNOUNCE_NUM - 1;
                self.on_addresses_changed();
                (address, Some(ANNOUNCE_INTERVAL))
            }
            AddressState::Tentative => {
                own.remaining -= 1;
                let spread = PROBE_MAX.as_nanos() - PROBE_MIN.as_nanos();
                let wait = if own.remaining == 0 {
                    ANNOUNCE_WAIT
                } else {
                    PROBE_MIN + Duration::from_nanos(self.rng.below(spread))
                };
                (Ipv4Addr::UNSPECIFIED, Some(wait))
            }
            AddressState::Usable => {
                own.remaining = own.remaining.saturating_sub(1);
                (address, (own.remaining > 0).then_some(ANNOUNCE_INTERVAL))
            }
        };
        let request = self.arp_request(interface, sender, address);
        self.send_arp(interface, EthernetAddress::BROADCAST, &request);
        if let Some(wait) = next {
            self.wheel.arm(now + wait, timer);
        }
    }

    /// Whether the packet shows that somebody else uses (or, while we probe, wants) an address of ours.
    fn check_conflict(&mut self, now: Instant, interface: InterfaceId, packet: &Packet) -> bool {
        let sender = IpAddr::V4(packet.sender_protocol);
        let probe = packet.sender_protocol.is_unspecified() && packet.operation == Operation::Request;
        let target = IpAddr::V4(packet.target_protocol);
        let link = &mut self.interfaces[interface.index()];
        let Some(own) = link.addresses.iter_mut().find(|own| {
            let address = own.cidr.address();
            // RFC 5227 §2.1.1: while probing, another's probe for the same address is a conflict too.
            address == sender || probe && own.state == AddressState::Tentative && address == target
        }) else {
            return false;
        };
        self.stats.address_conflicts += 1;
        match own.state {
            AddressState::Conflicted => {}
            AddressState::Tentative => {
                own.state = AddressState::Conflicted;
                self.on_addresses_changed();
            }
            AddressState::Usable => {
                let IpAddr::V4(address) = own.cidr.address() else { return true };
                let recent = own.last_defence.is_some_and(|at| now.saturating_since(at) < DEFEND_INTERVAL);
                // RFC 5227 §2.4 (c): a host that never gives its address up defends it once an interval.
                if !recent && self.config.conflict_detection != ConflictDetection::Off {
                    own.last_defence = Some(now);
                    self.stats.address_defences += 1;
                    let announcement = self.arp_request(interface, address, address);
                    self.send_arp(interface, EthernetAddress::BROADCAST, &announcement);
                }
            }
        }
        true
    }
}

fn link_address<B: BufferFamily>(stack: &Stack<B>, interface: InterfaceId) -> EthernetAddress {
    stack.interfaces[interface.index()].capabilities.hardware_address
}
