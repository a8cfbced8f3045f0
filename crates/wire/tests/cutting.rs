//! Cutting a super-segment gives frames whose payloads are the whole's, each valid by itself.

mod common;

use std::net::IpAddr;

use base::SeqNumber;
use outboard_wire::checksum::{Sum, verify_tcp};
use outboard_wire::cut::{Uncuttable, cut};
use outboard_wire::ethernet::{EtherType, EthernetAddress};
use outboard_wire::frame::{ChecksumOut, Medium, Segmentation, TxFrame};
use outboard_wire::ip::Protocol;
use outboard_wire::tcp::Flags;
use outboard_wire::view::{Network, Transport, View};
use outboard_wire::{ethernet, ipv4, ipv6, tcp, udp};
use proptest::collection::vec;
use proptest::prelude::*;

use common::{cases, ipv4_header, ipv6_header, tcp_header};

/// The headers of a super-segment and where its transport header starts.
struct Template {
    headers: Vec<u8>,
    transport: usize,
    source: IpAddr,
    destination: IpAddr,
}

/// The network headers for `transport_len` bytes of header and payload.
fn network(medium: Medium, network: &Network, protocol: Protocol, transport_len: usize) -> Template {
    let mut headers = vec![0; 80];
    let mut at = 0;
    if medium == Medium::Ethernet {
        let ethertype = if matches!(network, Network::Ipv4(_)) { EtherType::IPV4 } else { EtherType::IPV6 };
        let (destination, source) = (EthernetAddress([4; 6]), EthernetAddress([2; 6]));
        at += ethernet::Header { destination, source, ethertype }.emit(&mut headers);
    }
    let (len, source, destination) = match *network {
        Network::Ipv4(mut header) => {
            header.protocol = protocol;
            header.fragment_offset = 0;
            header.more_fragments = false;
            header.total_len = (ipv4::HEADER_LEN + transport_len) as u16;
            (header.emit(&mut headers[at..]), header.source.into(), header.destination.into())
        }
        Network::Ipv6(mut header) => {
            header.next_header = protocol;
            header.payload_len = transport_len as u16;
            (header.emit(&mut headers[at..]), header.source.into(), header.destination.into())
        }
        Network::Arp(_) | Network::Other => panic!("an IP header is wanted"),
    };
    headers.truncate(at + len);
    Template { headers, transport: at + len, source, destination }
}

fn any_network() -> impl Strategy<Value = Network> {
    prop_oneof![ipv4_header(0).prop_map(Network::Ipv4), ipv6_header(0).prop_map(Network::Ipv6)]
}

fn any_medium() -> impl Strategy<Value = Medium> {
    any::<bool>().prop_map(|ethernet| if ethernet { Medium::Ethernet } else { Medium::Ip })
}

fn frames_of(frame: &TxFrame<'_>, medium: Medium) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let count = cut(frame, medium, |headers, payload| {
        frames.push([headers, payload[0], payload[1]].concat());
    })
    .expect("the headers are those of the metadata");
    assert_eq!(count, frames.len());
    frames
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn tcp_segments_are_the_whole(
        (medium, network_header, header) in (any_medium(), any_network(), tcp_header()),
        payload in (vec(any::<u8>(), 0..4000), vec(any::<u8>(), 0..4000)),
        segment_size in 1u16..3000,
    ) {
        let whole = [payload.0.clone(), payload.1.clone()].concat();
        let transport_len = header.header_len() + whole.len();
        let is_v4 = matches!(network_header, Network::Ipv4(_));
        let mut template = network(medium, &network_header, Protocol::TCP, transport_len);
        template.headers.resize(template.transport + header.header_len(), 0);
        header.emit(&mut template.headers[template.transport..]);
        let frame = TxFrame {
            headers: &template.headers,
            payload: [&payload.0, &payload.1],
            checksum: ChecksumOut::Partial { start: template.transport as u16, offset: 16 },
            segmentation: if is_v4 { Segmentation::Tcp4 { segment_size } } else { Segmentation::Tcp6 { segment_size } },
        };
        let frames = frames_of(&frame, medium);
        prop_assert_eq!(frames.len(), whole.len().div_ceil(usize::from(segment_size)).max(1));
        let mut joined = Vec::new();
        for (index, bytes) in frames.iter().enumerate() {
            let is_last = index + 1 == frames.len();
            let view = View::parse(bytes, medium)?;
            prop_assert!(verify_tcp(template.source, template.destination, &bytes[template.transport..]));
            let segment = view.tcp().unwrap();
            prop_assert_eq!(segment.seq, header.seq + joined.len() as u32);
            let mut expected = header.flags;
            if !is_last { expected.remove(Flags::FIN | Flags::PSH); }
            if index > 0 { expected.remove(Flags::CWR); }
            prop_assert_eq!(segment.flags, expected);
            let restored = tcp::Header { seq: header.seq, flags: header.flags, ..segment.clone() };
            let mut again = vec![0; header.header_len()];
            restored.emit(&mut again);
            prop_assert_eq!(&again[..], &template.headers[template.transport..]);
            if let (Network::Ipv4(cut), Network::Ipv4(was)) = (view.network, network_header) {
                prop_assert_eq!(cut.ident, was.ident.wrapping_add(index as u16));
                prop_assert_eq!((cut.dont_fragment, cut.ttl, cut.ecn), (was.dont_fragment, was.ttl, was.ecn));
            }
            prop_assert!(is_last || view.payload.len() == usize::from(segment_size));
            joined.extend_from_slice(view.payload);
        }
        prop_assert!(joined == whole);
    }

    #[test]
    fn datagrams_are_the_whole(
        (medium, network_header) in (any_medium(), any_network()),
        payload in (vec(any::<u8>(), 0..4000), vec(any::<u8>(), 0..4000)),
        segment_size in 1u16..3000,
    ) {
        let whole = [payload.0.clone(), payload.1.clone()].concat();
        let len = udp::HEADER_LEN + whole.len();
        let mut template = network(medium, &network_header, Protocol::UDP, len);
        template.headers.resize(template.transport + udp::HEADER_LEN, 0);
        udp::Header { src_port: 5, dst_port: 6, len: len as u16, checksum: 0 }
            .emit(&mut template.headers[template.transport..]);
        let frame = TxFrame {
            headers: &template.headers,
            payload: [&payload.0, &payload.1],
            checksum: ChecksumOut::Complete,
            segmentation: Segmentation::Udp { segment_size },
        };
        let mut joined = Vec::new();
        for bytes in frames_of(&frame, medium) {
            let view = View::parse(&bytes, medium)?;
            let Transport::Udp(header) = view.transport else { panic!("UDP remains UDP") };
            prop_assert_ne!(header.checksum, 0);
            prop_assert!(udp::verify(template.source, template.destination, &bytes[template.transport..]));
            joined.extend_from_slice(view.payload);
        }
        prop_assert!(joined == whole);
    }

    #[test]
    fn a_frame_that_is_not_cut_gets_its_checksum(
        network_header in any_network(), header in tcp_header(),
        payload in (vec(any::<u8>(), 0..700), vec(any::<u8>(), 0..700)),
    ) {
        let transport_len = header.header_len() + payload.0.len() + payload.1.len();
        let mut template = network(Medium::Ip, &network_header, Protocol::TCP, transport_len);
        let start = template.transport;
        template.headers.resize(start + header.header_len(), 0);
        header.emit(&mut template.headers[start..]);
        let pseudo_header =
            Sum::pseudo_header(template.source, template.destination, Protocol::TCP, transport_len as u32);
        template.headers[start + 16..start + 18].copy_from_slice(&pseudo_header.fold().to_be_bytes());
        let frame = TxFrame {
            headers: &template.headers,
            payload: [&payload.0, &payload.1],
            checksum: ChecksumOut::Partial { start: start as u16, offset: 16 },
            segmentation: Segmentation::None,
        };
        let frames = frames_of(&frame, Medium::Ip);
        prop_assert_eq!(frames.len(), 1);
        prop_assert!(verify_tcp(template.source, template.destination, &frames[0][start..]));
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let header = tcp::Header { seq: SeqNumber(1), ..Default::default() };
    let v4 = ipv4::Header {
        dscp: 0,
        ecn: outboard_wire::ip::Ecn::NotEct,
        total_len: 0,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: Protocol::TCP,
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
    };
    let mut template = network(Medium::Ip, &Network::Ipv4(v4), Protocol::TCP, 20);
    template.headers.resize(ipv4::HEADER_LEN + tcp::HEADER_LEN, 0);
    header.emit(&mut template.headers[ipv4::HEADER_LEN..]);
    let payload = vec![0; 70_000];
    let answer = |headers: &[u8], segmentation| {
        let checksum = ChecksumOut::Partial { start: 20, offset: 16 };
        cut(&TxFrame { headers, payload: [&payload, &[]], checksum, segmentation }, Medium::Ip, |_, _| ())
    };
    assert_eq!(answer(&template.headers, Segmentation::Tcp4 { segment_size: 7000 }), Ok(10));
    assert_eq!(answer(&template.headers, Segmentation::Tcp6 { segment_size: 7000 }), Err(Uncuttable));
    assert_eq!(answer(&template.headers, Segmentation::Udp { segment_size: 7000 }), Err(Uncuttable));
    assert_eq!(answer(&template.headers, Segmentation::Tcp4 { segment_size: 65_500 }), Err(Uncuttable));
    assert_eq!(answer(&template.headers[..39], Segmentation::Tcp4 { segment_size: 7000 }), Err(Uncuttable));
    let v6_len = ipv6::HEADER_LEN + tcp::HEADER_LEN;
    assert_eq!(answer(&vec![0; v6_len], Segmentation::Tcp6 { segment_size: 7000 }), Err(Uncuttable));
}
