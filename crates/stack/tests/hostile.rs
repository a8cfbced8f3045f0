//! Whatever arrives, nothing panics, nothing grows without bound, and honest traffic goes on.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::{Duration, Rng, SeededRng};
use common::{IF, Incoming, LinkConfig, Outgoing, World, at, build, ip, mac};
use outboard_stack::SocketOptions;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use wire::ethernet::EtherType;
use wire::frame::{ChecksumIn, RxFrame};
use wire::ip::Protocol;
use wire::tcp::Flags;

/// A host that has something of everything.
fn busy_world(seed: u64) -> (World, outboard_stack::SocketId, outboard_stack::SocketId) {
    let mut world = World::new(seed, LinkConfig::default());
    let pair = world.pair(80);
    world.listen(1, 81);
    world.stack(1).udp_bind(at(1, 7), Default::default(), &SocketOptions::default()).unwrap();
    let other = world.connect(1, at(0, 9));
    let now = world.now;
    world.stack(1).close(now, other).unwrap();
    (world, pair.0, pair.1)
}

/// A frame that is nearly right: a right one of some kind, with a few bytes changed and its checksums made good.
fn nearly_right(rng: &mut SeededRng, client: SocketAddr) -> Vec<u8> {
    let word = rng.next_u64();
    let payload = vec![0xa5; rng.below(64) as usize];
    let source = if word & 1 == 0 { client } else { SocketAddr::new(ip(0), word as u16) };
    let port = [80, 81, 7, 9, (word >> 16) as u16][rng.below(5) as usize];
    let destination = at(1, port);
    let mut packet = match rng.below(6) {
        0 | 1 => {
            let flags = Flags::from_bits_truncate(rng.next_u64() as u16 & 0x1ff);
            build::tcp(source, destination, flags, rng.next_u64() as u32, rng.next_u64() as u32, &payload)
        }
        2 => build::udp(source, destination, &payload),
        3 => {
            let quote = build::tcp(destination, source, Flags::ACK, word as u32, 0, b"");
            let mut bytes =
                vec![[3, 11, 12, 5, 8][rng.below(5) as usize], rng.below(16) as u8, 0, 0, 0, 0, 2, 0];
            bytes.extend_from_slice(&quote[..rng.below(quote.len() as u64 + 1) as usize]);
            build::ip(ip(0), ip(1), Protocol::ICMP, &bytes)
        }
        4 => {
            let header = wire::ipv4::Header {
                ident: rng.below(4) as u16,
                more_fragments: rng.below(2) == 0,
                fragment_offset: (rng.below(20) * 8) as u16,
                ..build::header(ip(0), ip(1), Protocol::UDP, payload.len())
            };
            build::packet(&header, &payload)
        }
        _ => {
            let bytes: Vec<u8> = (0..28).map(|_| rng.next_u64() as u8).collect();
            let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1 + rng.below(2) as u8];
            arp.extend_from_slice(&bytes[8..]);
            arp[14..18].copy_from_slice(&[10, 0, 0, rng.below(4) as u8]);
            return build::frame(mac(0), mac(1), EtherType::ARP, &arp);
        }
    };
    for _ in 0..rng.below(3) {
        let at = rng.below(packet.len() as u64) as usize;
        packet[at] = rng.next_u64() as u8;
    }
    repair(&mut packet);
    build::ethernet(0, 1, &packet)
}

/// Makes the header checksum right again, so that the damage is looked at.
fn repair(packet: &mut [u8]) {
    let length = (usize::from(packet[0] & 15) * 4).clamp(20, packet.len());
    packet[10..12].fill(0);
    let checksum = wire::checksum::Sum::of(&packet[..length]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn nearly_right_frames_do_not_disturb_a_transfer() {
    for seed in 0..8 {
        let (mut world, client, server) = busy_world(seed);
        let mut rng = SeededRng::new(seed + 1000);
        let (mut up, mut incoming) = (Outgoing::new(1, 400_000), Incoming::new(1));
        // The peer's own flow is left alone: forging it blindly is tested in tcp.
        let stranger = SocketAddr::from(([10, 0, 0, 7], 5555));
        let done = world.run_until(Duration::from_secs(600), |world| {
            for _ in 0..50 {
                let frame = nearly_right(&mut rng, stranger);
                let checksum = [ChecksumIn::Unknown, ChecksumIn::Partial][rng.below(2) as usize];
                let frame = RxFrame { bytes: &frame, checksum, segment_size: rng.below(2) as u16 * 1000 };
                world.hosts[1].stack.handle_frame(world.now, IF, &frame);
            }
            world.pump(0, client, &mut up);
            world.drain(1, server, &mut incoming);
            incoming.finished
        });
        assert!(done && incoming.read == 400_000, "seed {seed}: {incoming:?}");
        world.run_for(Duration::from_secs(300));
        let sockets = world.stack(1).socket_count();
        assert!(sockets < 20, "seed {seed}: {sockets} sockets");
    }
}

#[test]
fn forged_segments_for_a_live_connection_do_not_panic() {
    for seed in 0..8 {
        let (mut world, client, server) = busy_world(seed);
        let mut rng = SeededRng::new(seed + 2000);
        let local = world.stack(0).local_addr(client).unwrap();
        let mut up = Outgoing::new(1, 100_000);
        for _ in 0..400 {
            for _ in 0..20 {
                let frame = nearly_right(&mut rng, local);
                world.inject(1, frame);
            }
            world.pump(0, client, &mut up);
            // What is read may be forged, so it is not compared.
            let now = world.now;
            if let Some((connection, stream)) = world.stack(1).tcp_and_stream(server) {
                let read = connection.received_to();
                stream.consume(read);
                world.stack(1).tcp_consumed(now, server, read);
            }
            let until = world.now + Duration::from_millis(5);
            while world.step(until) {}
        }
        for number in 0..2 {
            let now = world.now;
            let _ = world.stack(number).close(now, if number == 0 { client } else { server });
        }
        world.run_for(Duration::from_secs(400));
        assert!(world.stack(0).socket_count() < 5, "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_frames_never_panic(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let mut world = World::new(1, LinkConfig::default());
        world.listen(1, 80);
        for mut bytes in frames {
            world.hosts[1].stack.handle_frame(world.now, IF, &RxFrame::plain(&bytes));
            // The same as if it were for us, and as a raw IP packet.
            if bytes.len() >= 14 {
                bytes[..6].copy_from_slice(&mac(1).0);
                for ethertype in [0x0800u16, 0x0806, 0x86dd] {
                    bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
                    world.hosts[1].stack.handle_frame(world.now, IF, &RxFrame::plain(&bytes));
                }
            }
            if bytes.len() >= 34 {
                bytes[12..14].copy_from_slice(&[8, 0]);
                bytes[14] = 0x45;
                bytes[26..30].copy_from_slice(&[10, 0, 0, 1]);
                bytes[30..34].copy_from_slice(&[10, 0, 0, 2]);
                let total = (bytes.len() - 14) as u16;
                bytes[16..18].copy_from_slice(&total.to_be_bytes());
                for protocol in [1, 6, 17] {
                    bytes[23] = protocol;
                    repair(&mut bytes[14..]);
                    let frame = RxFrame { bytes: &bytes, checksum: ChecksumIn::Verified, segment_size: 7 };
                    world.hosts[1].stack.handle_frame(world.now, IF, &frame);
                }
            }
        }
        world.run_for(Duration::from_secs(100));
    }
}

#[test]
fn many_neighbours_are_bounded() {
    let mut world = World::new(3, LinkConfig::default());
    for host in 0..60_000u32 {
        let [_, _, high, low] = host.to_be_bytes();
        let sender =
            (wire::ethernet::EthernetAddress([2, 0, 0, 9, high, low]), IpAddr::from([10, 0, 0, low]));
        let question = build::arp(
            wire::arp::Operation::Request,
            sender,
            (Default::default(), ip(1)),
            wire::ethernet::EthernetAddress::BROADCAST,
        );
        world.inject(1, question);
    }
    assert!(world.stack(1).neighbours().count() <= 1024);
    assert!(world.stack(1).stats().drop_control_queue > 0, "answers are bounded too");
    world.flush();
    world.pair(80);
}
