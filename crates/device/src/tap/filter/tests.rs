use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::{Duration, Instant, Rng, SeededRng};
use stack::{
    AddressState, FrameSink, HeapBuffers, InterfaceConfig, InterfaceId, NeighbourInfo, SinkFull, SocketId,
    SocketOptions, Stack, StackConfig,
};
use wire::frame::{Capabilities, Medium, RxFrame, TxFrame};

use super::*;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const KNOWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 8);
const ASKED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);
const OURS: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
const HARDWARE: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
const MOVED: EthernetAddress = EthernetAddress([2, 0, 0, 0, 1, 9]);
const MOVED_FAR: EthernetAddress = EthernetAddress([6, 0, 0, 0, 0, 9]);

/// What the kernel would do with it.
fn passes(program: &[Instruction], frame: &[u8]) -> bool {
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let width = match code {
            LOAD_BYTE => 1,
            LOAD_HALF => 2,
            LOAD_WORD => 4,
            _ => 0,
        };
        let condition = |is: bool| usize::from(if is { jt } else { jf });
        match code {
            LOAD_BYTE | LOAD_HALF | LOAD_WORD => {
                let Some(bytes) = frame.get(k as usize..k as usize + width) else { return false };
                a = bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
            }
            AND => a &= k,
            COPY_TO_X => x = a,
            JUMP => at += k as usize,
            JUMP_IF_EQUAL => at += condition(a == k),
            JUMP_IF_EQUAL_X => at += condition(a == x),
            JUMP_IF_ANY_BIT => at += condition(a & k != 0),
            RETURN => return k > 0,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn arp(operation: u16, hardware: EthernetAddress, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(hardware.0);
    frame.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4]);
    frame.extend(operation.to_be_bytes());
    frame.extend(hardware.0);
    frame.extend(sender.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

/// A datagram without content; `first`: the first byte of the frame.
fn ip(first: u8, protocol: u8, fragment: u16, destination: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut frame = vec![first; 6];
    frame.extend(HARDWARE.0);
    frame.extend([0x08, 0x00]);
    let mut header = vec![0x45, 0, 0, 28, 0, 0];
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(STRANGER.octets());
    header.extend(destination.octets());
    let sum = wire::checksum::Sum::of(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(999_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    // No checksum.
    frame.extend([0, 8, 0, 0]);
    frame
}

fn wanted() -> Wanted {
    Wanted {
        addresses: vec![SECOND, OWN],
        neighbours: Some(vec![(ASKED, None), (KNOWN, Some(HARDWARE))]),
        broadcast_ports: Some(vec![67]),
    }
}

#[test]
fn noise_is_dropped_and_what_concerns_us_passes() {
    let all = Ipv4Addr::BROADCAST;
    let cases = [
        ("a request for another", arp(1, HARDWARE, STRANGER, OTHER), false),
        ("a request for us", arp(1, HARDWARE, STRANGER, OWN), true),
        ("a probe for our address", arp(1, HARDWARE, Ipv4Addr::UNSPECIFIED, SECOND), true),
        ("somebody who uses our address", arp(1, HARDWARE, OWN, OTHER), true),
        ("an announcement", arp(1, HARDWARE, STRANGER, STRANGER), true),
        ("a broadcast reply", arp(2, HARDWARE, STRANGER, OTHER), true),
        ("a neighbour that asks for another", arp(1, HARDWARE, KNOWN, OTHER), false),
        ("a neighbour that has moved and does", arp(1, MOVED, KNOWN, OTHER), true),
        ("a neighbour that has moved far and does", arp(1, MOVED_FAR, KNOWN, OTHER), true),
        ("one that we ask for and that asks for another", arp(1, HARDWARE, ASKED, OTHER), true),
        ("a broadcast datagram", ip(0xff, 17, 0x4000, all, 68), false),
        ("one to a port in use", ip(0xff, 17, 0x4000, all, 67), true),
        ("a fragment of one", ip(0xff, 17, 0x2000, all, 68), true),
        ("its last fragment", ip(0xff, 17, 1, all, 68), true),
        ("another protocol", ip(0xff, 1, 0, all, 68), true),
        ("to a group", ip(0x01, 17, 0, Ipv4Addr::new(224, 0, 0, 251), 67), false),
        ("a datagram for one host", ip(0x02, 17, 0, OWN, 68), true),
    ];
    let program = program(&wanted());
    for (name, frame, expected) in cases {
        assert_eq!(passes(&program, &frame), expected, "{name}");
    }
}

#[test]
fn with_options_the_port_is_elsewhere() {
    let mut frame = ip(0xff, 17, 0, Ipv4Addr::BROADCAST, 68);
    frame[14] = 0x46;
    assert!(passes(&program(&wanted()), &frame));
}

#[test]
fn what_is_wanted_altogether_passes() {
    let wanted = Wanted { neighbours: None, broadcast_ports: None, ..wanted() };
    let program = program(&wanted);
    assert!(passes(&program, &arp(1, HARDWARE, STRANGER, OTHER)));
    assert!(passes(&program, &ip(0xff, 17, 0, Ipv4Addr::BROADCAST, 68)));
    let mut of_another_protocol = ip(0xff, 17, 0, Ipv4Addr::BROADCAST, 68);
    of_another_protocol[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert!(!passes(&program, &of_another_protocol));
}

/// A sink that counts.
struct Out(usize);

impl FrameSink for Out {
    fn ready(&self, _: InterfaceId) -> bool {
        true
    }

    fn transmit(&mut self, _: InterfaceId, _: &TxFrame<'_>) -> Result<(), SinkFull> {
        self.0 += 1;
        Ok(())
    }
}

struct Host {
    stack: Stack<HeapBuffers>,
    interface: InterfaceId,
    sockets: Vec<SocketId>,
    now: Instant,
}

/// What a frame can change.
#[derive(Debug, PartialEq)]
struct State {
    neighbours: Vec<NeighbourInfo>,
    addresses: Vec<AddressState>,
    received: usize,
    sent: usize,
}

impl Host {
    fn new(seed: u64) -> Self {
        let now = Instant::from_millis(1_000);
        let mut stack = Stack::new(StackConfig::default(), SeededRng::new(seed), [1; 16]);
        let capabilities = Capabilities {
            medium: Medium::Ethernet,
            mtu: 1500,
            checksum_tx: true,
            checksum_rx: false,
            max_segmentation: 0,
            hardware_address: OURS,
        };
        let addresses = [OWN, SECOND].map(|own| base::IpCidr::new(IpAddr::V4(own), 24).unwrap());
        let interface = stack.add_interface(
            now,
            InterfaceConfig { name: "link".into(), capabilities, addresses: addresses.into() },
        );
        let options = SocketOptions::default();
        let mut bind = |address: Ipv4Addr, port| {
            stack.udp_bind(SocketAddr::from((address, port)), Default::default(), &options).unwrap()
        };
        let sockets =
            vec![bind(Ipv4Addr::UNSPECIFIED, 67), bind(Ipv4Addr::new(10, 0, 0, 255), 68), bind(OWN, 69)];
        stack.tcp_connect(now, None, SocketAddr::from((ASKED, 80)), Default::default(), &options).unwrap();
        Self { stack, interface, sockets, now }
    }

    fn wanted(&self) -> Wanted {
        let neighbours = self.stack.neighbours().filter_map(|one| match one.address {
            IpAddr::V4(address) => Some((address, one.state.is_known().then_some(one.hardware))),
            IpAddr::V6(_) => None,
        });
        Wanted {
            addresses: vec![OWN, SECOND],
            neighbours: Some(neighbours.collect()),
            broadcast_ports: Some(self.stack.udp_ports().collect()),
        }
    }

    fn take(&mut self, frame: &[u8]) {
        self.stack.handle_frame(self.now, self.interface, &RxFrame::plain(frame));
    }

    /// Sends what there is to send and reads what there is to read.
    fn state(&mut self) -> State {
        let mut out = Out(0);
        while self.stack.poll_transmit(self.now, &mut out) > 0 {}
        let mut received = 0;
        for socket in &self.sockets {
            let buffers = self.stack.datagrams(*socket).unwrap();
            while buffers.receive().is_some() {
                received += 1;
            }
        }
        State {
            neighbours: self.stack.neighbours().collect(),
            addresses: self.stack.addresses(self.interface).map(|(_, state)| state).collect(),
            received,
            sent: out.0,
        }
    }
}

/// A frame to all or to a group, of the kinds that there are on a link, with something wrong at times.
fn frame(rng: &mut SeededRng) -> Vec<u8> {
    fn one_of<T: Copy>(rng: &mut SeededRng, of: &[T]) -> T {
        of[rng.below(of.len() as u64) as usize]
    }
    let hosts =
        [OWN, SECOND, KNOWN, ASKED, OTHER, STRANGER, Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 9, 9, 9)];
    let groups = [Ipv4Addr::BROADCAST, Ipv4Addr::new(10, 0, 0, 255), Ipv4Addr::new(224, 0, 0, 1), OWN, OTHER];
    let mut frame = if rng.below(2) == 0 {
        let hardware = one_of(rng, &[HARDWARE, MOVED, MOVED_FAR, OURS, EthernetAddress([1; 6])]);
        arp(one_of(rng, &[1, 1, 1, 2, 3]), hardware, one_of(rng, &hosts), one_of(rng, &hosts))
    } else {
        let port = one_of(rng, &[67, 68, 69, 70]);
        let fragment = one_of(rng, &[0, 0, 0x4000, 0x2000, 3]);
        ip(one_of(rng, &[0xff, 0x01]), one_of(rng, &[17, 17, 1, 6, 2]), fragment, one_of(rng, &groups), port)
    };
    match rng.below(8) {
        0 => {
            let at = 12 + rng.below(frame.len() as u64 - 12) as usize;
            frame[at] ^= 1 << rng.below(8);
        }
        1 => frame.truncate(rng.below(frame.len() as u64) as usize),
        2 => frame.resize(60, 0),
        _ => {}
    }
    frame
}

#[test]
fn nothing_is_dropped_that_the_stack_would_do_anything_with() {
    for seed in 0..20 {
        let mut rng = SeededRng::new(seed);
        let mut host = Host::new(seed);
        host.state();
        let mut dropped = 0;
        for number in 0..1000 {
            // Addresses are trusted for a second, connections ask again, requests go unanswered.
            host.now += Duration::from_millis(rng.below(400));
            host.stack.handle_deadlines(host.now);
            let before = host.state();
            let frame = frame(&mut rng);
            if passes(&program(&host.wanted()), &frame) {
                host.take(&frame);
                host.state();
                continue;
            }
            dropped += 1;
            host.take(&frame);
            let after = host.state();
            assert_eq!(
                after,
                State { received: 0, sent: 0, ..before },
                "seed {seed}, frame {number}: {frame:02x?}"
            );
        }
        assert!(dropped > 200, "seed {seed}: only {dropped} of 1000 frames of noise dropped");
    }
}

#[test]
fn what_the_stack_has_a_use_for_now_is_told_by_its_counter() {
    let mut host = Host::new(1);
    host.state();
    let mut rng = SeededRng::new(7);
    let (mut wanted, mut counted) = (host.wanted(), host.stack.interest_changes());
    for number in 0..5000 {
        host.now += Duration::from_millis(rng.below(400));
        host.stack.handle_deadlines(host.now);
        host.take(&frame(&mut rng));
        host.state();
        let now = host.wanted();
        if now != wanted {
            assert_ne!(host.stack.interest_changes(), counted, "frame {number}: {wanted:?} became {now:?}");
        }
        (wanted, counted) = (now, host.stack.interest_changes());
    }
}
