//! The fuzzers' entry points with a fixed number of inputs: random bytes, and valid frames with some bytes changed.

mod common;

use outboard_wire::ethernet::{EtherType, EthernetAddress};
use outboard_wire::frame::{ChecksumOut, Segmentation};
use outboard_wire::ip::Protocol;
use outboard_wire::{ethernet, fuzz, ipv4, udp};
use proptest::collection::vec;
use proptest::prelude::*;

use common::{cases, ipv4_header, ipv6_header, tcp_header};

/// Bytes that begin as every kind of header does, so that parsers get past their first checks.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop_oneof![
        Just(vec![]),
        Just(vec![0x45, 0, 0, 60]),
        Just(vec![0x4f, 0, 0, 80]),
        Just(vec![0x60, 0, 0, 0, 0, 20, 6]),
        Just(vec![0, 1, 8, 0, 6, 4, 0, 1]),
        Just(vec![0, 80, 0, 80, 0, 16]),
    ];
    (prefix, vec(any::<u8>(), 0..200)).prop_map(|(prefix, rest)| [prefix, rest].concat())
}

/// A TCP header with data offset and option bytes that are random but plausible.
fn options_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![0u8..12, Just(34), Just(28), any::<u8>()], 0..=40).prop_map(|options| {
        let words = 5 + options.len().div_ceil(4);
        let mut segment = vec![0; 20];
        segment[12] = (words as u8) << 4;
        segment.extend_from_slice(&options);
        segment
    })
}

/// The headers of a valid frame: Ethernet, IPv4 or IPv6, TCP or UDP.
fn headers() -> impl Strategy<Value = Vec<u8>> {
    (any::<[bool; 3]>(), ipv4_header(0), ipv6_header(0), tcp_header()).prop_map(
        |([with_ethernet, is_v4, is_tcp], mut v4, mut v6, tcp)| {
            let mut bytes = vec![0; 134];
            let mut at = 0;
            if with_ethernet {
                let ethertype = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
                let (destination, source) = (EthernetAddress::BROADCAST, EthernetAddress([2; 6]));
                at += ethernet::Header { destination, source, ethertype }.emit(&mut bytes);
            }
            let protocol = if is_tcp { Protocol::TCP } else { Protocol::UDP };
            let transport_len = if is_tcp { tcp.header_len() } else { udp::HEADER_LEN };
            at += if is_v4 {
                v4.protocol = protocol;
                v4.total_len = (ipv4::HEADER_LEN + transport_len) as u16;
                v4.fragment_offset = 0;
                v4.emit(&mut bytes[at..])
            } else {
                v6.next_header = protocol;
                v6.payload_len = transport_len as u16;
                v6.emit(&mut bytes[at..])
            };
            at += if is_tcp {
                tcp.emit(&mut bytes[at..])
            } else {
                udp::Header { src_port: 1, dst_port: 2, len: 8, checksum: 0 }.emit(&mut bytes[at..])
            };
            bytes.truncate(at);
            bytes
        },
    )
}

fn segmentation() -> impl Strategy<Value = Segmentation> {
    (0..4, prop_oneof![Just(0u16), 1u16..200, any::<u16>()]).prop_map(|(kind, segment_size)| match kind {
        0 => Segmentation::None,
        1 => Segmentation::Tcp4 { segment_size },
        2 => Segmentation::Tcp6 { segment_size },
        _ => Segmentation::Udp { segment_size },
    })
}

fn checksum_out() -> impl Strategy<Value = ChecksumOut> {
    prop_oneof![
        Just(ChecksumOut::Complete),
        Just(ChecksumOut::Partial { start: 34, offset: 16 }),
        any::<(u16, u16)>().prop_map(|(start, offset)| ChecksumOut::Partial { start, offset }),
    ]
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn parsers_survive_anything(bytes in prop_oneof![likely_bytes(), options_bytes()]) {
        fuzz::parsers(&bytes);
        fuzz::frames(&bytes);
    }

    #[test]
    fn parsers_survive_changed_frames(mut frame in headers(), changes: [(prop::sample::Index, u8); 3]) {
        fuzz::frames(&frame);
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
            fuzz::frames(&frame);
            for start in [0, 14, 20, 34, 40, 54] {
                fuzz::parsers(frame.get(start..).unwrap_or(&[]));
            }
        }
    }

    #[test]
    fn the_cutter_survives_anything(
        mut headers in prop_oneof![headers(), likely_bytes()],
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        payload in (vec(any::<u8>(), 0..600), vec(any::<u8>(), 0..600)),
        (checksum, segmentation) in (checksum_out(), segmentation()),
    ) {
        for (at, value) in changes {
            if !headers.is_empty() {
                let at = at.index(headers.len());
                headers[at] = value;
            }
        }
        fuzz::cutter(&headers, [&payload.0, &payload.1], checksum, segmentation);
    }
}
