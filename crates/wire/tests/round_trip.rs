//! What is emitted is what is parsed.

mod common;

use outboard_wire::checksum::Sum;
use outboard_wire::ethernet::EtherType;
use outboard_wire::tcp::{MAX_HEADER_LEN, Options};
use outboard_wire::{Malformed, arp, ethernet, icmpv4, ipv4, ipv6, tcp, udp};
use proptest::prelude::*;

use common::{cases, hardware, ipv4_header, ipv6_header, tcp_header, tcp_options, v4};

fn icmp_message() -> impl Strategy<Value = icmpv4::Message> {
    use icmpv4::Message;
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(identifier, sequence)| Message::EchoRequest { identifier, sequence }),
        any::<(u16, u16)>().prop_map(|(identifier, sequence)| Message::EchoReply { identifier, sequence }),
        any::<(u8, u16)>().prop_map(|(code, next_hop_mtu)| Message::Unreachable { code, next_hop_mtu }),
        any::<u8>().prop_map(|code| Message::TimeExceeded { code }),
        any::<(u8, u8)>().prop_map(|(code, pointer)| Message::ParameterProblem { code, pointer }),
        any::<(u8, [u8; 4])>().prop_map(|(code, rest)| Message::Other { kind: 13, code, rest }),
    ]
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn ethernet((destination, source, kind) in (hardware(), hardware(), any::<u16>()), payload: Vec<u8>) {
        let header = ethernet::Header { destination, source, ethertype: EtherType(kind) };
        let mut frame = vec![0; ethernet::HEADER_LEN];
        prop_assert_eq!(header.emit(&mut frame), ethernet::HEADER_LEN);
        frame.extend_from_slice(&payload);
        prop_assert_eq!(ethernet::Header::parse(&frame), Ok((header, &payload[..])));
    }

    #[test]
    fn arp(request: bool, hardware in (hardware(), hardware()), protocol in (v4(), v4()), padding in 0usize..20) {
        let packet = arp::Packet {
            operation: if request { arp::Operation::Request } else { arp::Operation::Reply },
            sender_hardware: hardware.0,
            sender_protocol: protocol.0,
            target_hardware: hardware.1,
            target_protocol: protocol.1,
        };
        let mut bytes = vec![0; arp::PACKET_LEN + padding];
        prop_assert_eq!(packet.emit(&mut bytes), arp::PACKET_LEN);
        prop_assert_eq!(arp::Packet::parse(&bytes), Ok(packet));
        prop_assert_eq!(arp::Packet::parse(&bytes[..arp::PACKET_LEN - 1]), Err(Malformed::Truncated));
    }

    #[test]
    fn ipv4(
        (header, payload) in proptest::collection::vec(any::<u8>(), 0..200)
            .prop_flat_map(|payload| (ipv4_header(payload.len() as u16), Just(payload))),
        padding in 0usize..20,
        flip in 0usize..160,
    ) {
        let mut packet = vec![0; ipv4::HEADER_LEN];
        prop_assert_eq!(header.emit(&mut packet), ipv4::HEADER_LEN);
        packet.extend_from_slice(&payload);
        packet.resize(packet.len() + padding, 0xee);
        let whole = ipv4::Packet { header, options: &[], payload: &payload };
        prop_assert_eq!(ipv4::Packet::parse(&packet), Ok(whole));
        prop_assert_eq!(ipv4::Packet::parse_quoted(&packet), Ok(whole));
        packet[flip / 8] ^= 1 << (flip % 8);
        prop_assert!(ipv4::Packet::parse(&packet).is_err(), "one wrong bit in the header is noticed");
    }

    #[test]
    fn ipv6(
        (header, payload) in proptest::collection::vec(any::<u8>(), 0..200)
            .prop_flat_map(|payload| (ipv6_header(payload.len() as u16), Just(payload))),
    ) {
        let mut packet = vec![0; ipv6::HEADER_LEN];
        prop_assert_eq!(header.emit(&mut packet), ipv6::HEADER_LEN);
        packet.extend_from_slice(&payload);
        prop_assert_eq!(ipv6::Header::parse(&packet), Ok((header, &payload[..])));
        packet.pop();
        prop_assert_eq!(ipv6::Header::parse(&packet), Err(Malformed::Truncated));
    }

    #[test]
    fn icmpv4(message in icmp_message(), data: Vec<u8>, flip: prop::sample::Index) {
        let mut bytes = vec![0; icmpv4::HEADER_LEN];
        prop_assert_eq!(message.emit(&mut bytes, &data), icmpv4::HEADER_LEN);
        bytes.extend_from_slice(&data);
        prop_assert_eq!(icmpv4::Message::parse(&bytes), Ok((message, &data[..])));
        let bit = flip.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(icmpv4::Message::parse(&bytes), Err(Malformed::Checksum));
    }

    #[test]
    fn udp(ports: (u16, u16), addresses in (v4(), v4()), payload: Vec<u8>, padding in 0usize..9) {
        let (source, destination) = (addresses.0.into(), addresses.1.into());
        let len = (udp::HEADER_LEN + payload.len()) as u16;
        let mut header = udp::Header { src_port: ports.0, dst_port: ports.1, len, checksum: 0 };
        let mut datagram = vec![0; udp::HEADER_LEN];
        prop_assert_eq!(header.emit(&mut datagram), udp::HEADER_LEN);
        datagram.extend_from_slice(&payload);
        prop_assert!(udp::verify(source, destination, &datagram), "no checksum is a right one over IPv4");
        let pseudo_header =
            Sum::pseudo_header(source, destination, outboard_wire::ip::Protocol::UDP, u32::from(len));
        header.checksum = udp::transmitted(pseudo_header.add(&datagram).finish());
        header.emit(&mut datagram);
        datagram.resize(datagram.len() + padding, 0xee);
        prop_assert_eq!(udp::Header::parse(&datagram), Ok((header, &payload[..])));
        prop_assert!(udp::verify(source, destination, &datagram));
        datagram[1] ^= 4;
        prop_assert!(!udp::verify(source, destination, &datagram));
    }

    #[test]
    fn tcp(header in tcp_header(), payload: Vec<u8>) {
        let mut segment = vec![0xee; MAX_HEADER_LEN];
        let len = header.emit(&mut segment);
        prop_assert_eq!(len, header.header_len());
        prop_assert!(len % 4 == 0 && len <= MAX_HEADER_LEN);
        segment.truncate(len);
        segment.extend_from_slice(&payload);
        let (parsed, rest) = tcp::Header::parse(&segment)?;
        prop_assert_eq!(rest, &payload[..]);
        prop_assert_eq!(&parsed, &tcp::Header { options: fitting(&header.options), ..header });
    }

    #[test]
    fn options_never_exceed_their_room(options in tcp_options()) {
        let fitting = fitting(&options);
        prop_assert_eq!(fitting.emitted_len(), options.emitted_len());
        // What was left out is left out because it did not fit.
        if options.sack.len() > fitting.sack.len() {
            let one_more = if fitting.sack.is_empty() { 12 } else { 8 };
            prop_assert!(options.emitted_len() + one_more > 40);
        }
        if options.fast_open != fitting.fast_open {
            prop_assert!(!fitting.fast_open_experimental);
            prop_assert!(options.mss.is_some() && options.window_scale.is_some());
        }
    }
}

/// The options that fit beside each other, by emitting them once.
fn fitting(options: &Options) -> Options {
    let mut room = [0; 40];
    let len = options.emitted_len();
    options.emit(&mut room[..len]);
    Options::parse(&room[..len])
}

#[test]
fn ipv4_options_are_handed_out() {
    let header = [
        0x46, 0, 0, 25, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // fixed part
        148, 4, 0, 0, // router alert
        9, 0xee,
    ];
    let mut packet = header;
    let checksum = Sum::of(&packet[..24]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let parsed = ipv4::Packet::parse(&packet).unwrap();
    assert_eq!((parsed.options, parsed.payload), (&[148, 4, 0, 0][..], &[9][..]));
}

#[test]
fn malformed_tcp_options_end_the_options_and_nothing_else() {
    let parse = |bytes: &[u8]| Options::parse(bytes);
    let mss = Options { mss: Some(1460), ..Options::default() };
    for tail in [
        &[5u8, 0, 1, 1][..],
        &[5, 1, 1, 1],
        &[5, 11, 1, 1],
        &[8, 255, 0, 0],
        &[0, 3, 3, 7],
        &[1, 1, 1, 3],
        &[3, 4, 7, 7],
        &[99, 4, 7, 7],
        &[5, 3, 7, 0],
        &[34, 3, 0, 0],
        &[254, 4, 0xf9, 0x88],
        &[254, 3, 0xf9, 0],
    ] {
        let mut bytes = vec![2, 4, 0x05, 0xb4];
        bytes.extend_from_slice(tail);
        let options = parse(&bytes);
        assert_eq!(options.mss, Some(1460), "{tail:?}");
        assert_eq!(Options { fast_open: None, ..options }, mss, "{tail:?}");
    }
    assert_eq!(parse(&[2, 3, 9, 3, 3, 7]).window_scale, Some(7), "a known one of a wrong length is skipped");
    assert_eq!(parse(&[1, 3, 3, 7, 2, 4, 1, 0]).mss, Some(256));
}

#[test]
fn a_fast_open_cookie_may_come_in_the_experimental_option() {
    let parse = |bytes: &[u8]| {
        let options = Options::parse(bytes);
        (options.fast_open.map(|cookie| cookie.to_vec()), options.fast_open_experimental)
    };
    assert_eq!(parse(&[254, 4, 0xf9, 0x89]), (Some(vec![]), true));
    assert_eq!(parse(&[1, 1, 254, 8, 0xf9, 0x89, 1, 2, 3, 4]), (Some(vec![1, 2, 3, 4]), true));
    assert_eq!(
        parse(&[254, 6, 0xf9, 0x89, 1, 2, 34, 4, 3, 4]),
        (Some(vec![3, 4]), false),
        "its own number goes first"
    );
    assert_eq!(parse(&[34, 4, 3, 4, 254, 6, 0xf9, 0x89, 1, 2]), (Some(vec![3, 4]), false));
}
