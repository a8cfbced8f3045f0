//! Merging received segments loses nothing, changes no order, and cutting gives the same segments again.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use base::SeqNumber;
use outboard_device::Device;
use outboard_device::coalesce::Coalesce;
use outboard_device::memory::{self, Frame, Handle, MemoryDevice};
use proptest::prelude::*;
use wire::checksum::{Place, Sum, complete, verify_tcp};
use wire::cut::cut;
use wire::ethernet::{EtherType, EthernetAddress};
use wire::frame::{Capabilities, ChecksumIn, ChecksumOut, Medium, Segmentation, TxFrame};
use wire::ip::{Ecn, Protocol};
use wire::tcp::{Flags, Options, Timestamps};
use wire::{ethernet, ipv4, tcp};

const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// One connection's next segment.
#[derive(Clone)]
struct Sender {
    medium: Medium,
    port: u16,
    seq: u32,
    ack: u32,
    ident: u16,
    timestamp: u32,
}

impl Sender {
    fn new(medium: Medium, port: u16) -> Self {
        Self { medium, port, seq: u32::MAX - 3000, ack: 7, ident: 65_530, timestamp: 1 }
    }

    fn segment(&mut self, len: usize, flags: Flags) -> Vec<u8> {
        let header = tcp::Header {
            src_port: self.port,
            dst_port: 80,
            seq: SeqNumber(self.seq),
            ack: SeqNumber(self.ack),
            flags,
            window: 500,
            urgent: 0,
            options: Options {
                timestamps: Some(Timestamps { value: self.timestamp, echo: 2 }),
                ..Options::default()
            },
        };
        let (ip, transport) = (self.medium.header_len(), self.medium.header_len() + ipv4::HEADER_LEN);
        let mut frame = vec![0; transport + header.header_len()];
        if self.medium == Medium::Ethernet {
            let (destination, source) = (EthernetAddress([2; 6]), EthernetAddress([4; 6]));
            ethernet::Header { destination, source, ethertype: EtherType::IPV4 }.emit(&mut frame);
        }
        let segment_len = header.header_len() + len;
        ipv4::Header {
            dscp: 0,
            ecn: Ecn::Ect0,
            total_len: (ipv4::HEADER_LEN + segment_len) as u16,
            ident: self.ident,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: Protocol::TCP,
            source: PEER,
            destination: OURS,
        }
        .emit(&mut frame[ip..]);
        header.emit(&mut frame[transport..]);
        let pseudo_header = Sum::pseudo_header_v4(PEER, OURS, Protocol::TCP, segment_len as u32).fold();
        frame[transport + 16..transport + 18].copy_from_slice(&pseudo_header.to_be_bytes());
        frame.extend((0..len).map(|at| self.seq.wrapping_add(at as u32) as u8));
        complete(&mut frame, Place { protocol: Protocol::TCP, start: transport, offset: 16 });
        self.seq = self.seq.wrapping_add(len as u32);
        self.ident = self.ident.wrapping_add(1);
        frame
    }
}

fn device(medium: Medium) -> (Coalesce<MemoryDevice>, Handle) {
    let capabilities = Capabilities {
        medium,
        mtu: 1500,
        checksum_tx: false,
        checksum_rx: false,
        max_segmentation: 0,
        hardware_address: EthernetAddress([2; 6]),
    };
    let (device, handle) = memory::queue(capabilities).expect("two events");
    (Coalesce::new(device), handle)
}

/// What the stack gets, cut again into what the wire carried.
struct Received {
    frames: Vec<Vec<u8>>,
    segments: Vec<Vec<u8>>,
}

fn receive(device: &mut Coalesce<MemoryDevice>, medium: Medium) -> Received {
    let mut received = Received { frames: Vec::new(), segments: Vec::new() };
    let transport = medium.header_len() + ipv4::HEADER_LEN;
    device
        .receive(4096, &mut |frame| {
            received.frames.push(frame.bytes.to_vec());
            if frame.segment_size == 0 {
                received.segments.push(frame.bytes.to_vec());
                return;
            }
            assert_ne!(frame.checksum, ChecksumIn::Unknown);
            ipv4::Packet::parse(&frame.bytes[medium.header_len()..]).expect("a right IP header");
            let payload = transport + usize::from(frame.bytes[transport + 12] >> 4) * 4;
            let whole = TxFrame {
                headers: &frame.bytes[..payload],
                payload: [&frame.bytes[payload..], &[]],
                checksum: ChecksumOut::Partial { start: transport as u16, offset: 16 },
                segmentation: Segmentation::Tcp4 { segment_size: frame.segment_size },
            };
            cut(&whole, medium, |headers, payload| {
                received.segments.push([headers, payload[0], payload[1]].concat());
            })
            .expect("TCP over IPv4");
        })
        .expect("memory does not fail");
    received
}

/// The segments of each connection, in order.
fn by_port(segments: &[Vec<u8>], medium: Medium) -> BTreeMap<[u8; 2], Vec<Vec<u8>>> {
    let transport = medium.header_len() + ipv4::HEADER_LEN;
    let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for segment in segments {
        let mut segment = segment.clone();
        // The two ways to write a checksum of zero.
        if segment[transport + 16..transport + 18] == [0, 0] {
            segment[transport + 16..transport + 18].fill(0xff);
        }
        flows.entry([segment[transport], segment[transport + 1]]).or_default().push(segment);
    }
    flows
}

#[test]
fn a_train_becomes_one_frame() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let (mut device, handle) = device(medium);
        let mut sender = Sender::new(medium, 1);
        let mut sent: Vec<_> = (0..20).map(|_| sender.segment(1448, Flags::ACK)).collect();
        sent.push(sender.segment(100, Flags::ACK | Flags::PSH));
        for segment in &sent {
            handle.inject(Frame::plain(segment.clone())).expect("room");
        }
        let received = receive(&mut device, medium);
        assert_eq!(received.frames.len(), 1);
        assert_eq!(device.merged(), 20);
        assert!(received.segments == sent, "cutting gives what was sent");
    }
}

#[test]
fn a_merged_frame_stays_within_an_ip_packet() {
    let (mut device, handle) = device(Medium::Ip);
    let mut sender = Sender::new(Medium::Ip, 1);
    let sent: Vec<_> = (0..100).map(|_| sender.segment(1448, Flags::ACK)).collect();
    for segment in &sent {
        handle.inject(Frame::plain(segment.clone())).expect("room");
    }
    let received = receive(&mut device, Medium::Ip);
    assert_eq!(
        received.frames.iter().map(|frame| (frame.len() - 52) / 1448).collect::<Vec<_>>(),
        [45, 45, 10]
    );
    assert!(received.segments == sent);
}

#[test]
fn what_differs_is_not_merged_and_keeps_its_place() {
    let medium = Medium::Ip;
    let mut sender = Sender::new(medium, 1);
    let mut sent = vec![sender.segment(1000, Flags::ACK)];
    sender.ack += 1;
    sent.push(sender.segment(1000, Flags::ACK));
    sender.timestamp += 1;
    sent.push(sender.segment(1000, Flags::ACK));
    sent.push(sender.segment(1001, Flags::ACK));
    sent.push(sender.segment(0, Flags::ACK));
    sender.seq = sender.seq.wrapping_add(1);
    sent.push(sender.segment(1000, Flags::ACK));
    sent.push(sender.segment(1000, Flags::ACK | Flags::ECE));
    sent.push(sender.segment(1000, Flags::ACK | Flags::FIN));
    let mut congested = sender.segment(1000, Flags::ACK);
    congested[1] |= 3;
    congested[10..12].copy_from_slice(&[0, 0]);
    let checksum = Sum::of(&congested[..20]).finish();
    congested[10..12].copy_from_slice(&checksum.to_be_bytes());
    sent.push(congested);
    sent.push(sender.segment(1000, Flags::ACK));
    let (mut device, handle) = device(medium);
    for segment in &sent {
        handle.inject(Frame::plain(segment.clone())).expect("room");
    }
    let received = receive(&mut device, medium);
    assert!(received.frames == sent);
    assert_eq!(device.merged(), 0);
}

#[test]
fn a_super_segment_passes_behind_what_came_before() {
    let medium = Medium::Ip;
    let mut sender = Sender::new(medium, 1);
    let sent: Vec<_> = [500, 5000, 500].map(|len| sender.segment(len, Flags::ACK)).into();
    let (mut device, handle) = device(medium);
    for (segment, segment_size) in sent.iter().zip([0, 1000, 0]) {
        let checksum = ChecksumIn::Partial;
        handle.inject(Frame { bytes: segment.clone(), checksum, segment_size }).expect("room");
    }
    assert!(receive(&mut device, medium).frames == sent);
}

#[derive(Clone, Debug)]
struct Step {
    flow: u16,
    len: usize,
    flags: Flags,
    /// Sequence numbers skipped before it.
    gap: u32,
    is_new_ack: bool,
    /// A bit that arrives wrong.
    wrong_bit: Option<prop::sample::Index>,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![
        12 => Just(Flags::ACK),
        2 => Just(Flags::ACK | Flags::PSH),
        1 => Just(Flags::ACK | Flags::FIN),
        1 => Just(Flags::RST),
        1 => (0u16..512).prop_map(Flags::from_bits_truncate),
    ];
    let len = prop_oneof![6 => Just(1448usize), 2 => 0usize..1500, 1 => Just(9000usize)];
    let gap = prop_oneof![12 => Just(0u32), 1 => 1u32..5000, 1 => any::<u32>()];
    let wrong_bit = prop::option::weighted(0.05, any::<prop::sample::Index>());
    (0u16..12, len, flags, gap, prop::bool::weighted(0.1), wrong_bit).prop_map(
        |(flow, len, flags, gap, is_new_ack, wrong_bit)| Step {
            // Few connections have most of the segments; sometimes there are more than can be merged at once.
            flow: if flow < 9 { flow / 4 } else { flow },
            len,
            flags,
            gap,
            is_new_ack,
            wrong_bit,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_changed_or_reordered_within_a_connection(
        steps in proptest::collection::vec(step(), 0..150),
        is_ethernet: bool,
        batches in 1usize..4,
    ) {
        let medium = if is_ethernet { Medium::Ethernet } else { Medium::Ip };
        let (mut device, handle) = device(medium);
        let mut senders: Vec<_> = (0..12).map(|flow| Sender::new(medium, 1000 + flow * 256)).collect();
        let mut sent = Vec::new();
        for step in &steps {
            let sender = &mut senders[usize::from(step.flow)];
            sender.seq = sender.seq.wrapping_add(step.gap);
            sender.ack += u32::from(step.is_new_ack);
            let mut segment = sender.segment(step.len, step.flags);
            if let Some(bit) = &step.wrong_bit {
                // In the transport header behind the ports, or in the payload: the test needs the ports.
                let start = medium.header_len() + ipv4::HEADER_LEN + 4;
                let bit = bit.index((segment.len() - start) * 8);
                segment[start + bit / 8] ^= 1 << (bit % 8);
            }
            sent.push(segment);
        }
        let mut received = Vec::new();
        for batch in sent.chunks(sent.len().div_ceil(batches).max(1)) {
            for segment in batch {
                prop_assert!(handle.inject(Frame::plain(segment.clone())).is_ok());
            }
            received.extend(receive(&mut device, medium).segments);
        }
        prop_assert!(by_port(&received, medium) == by_port(&sent, medium));
        let transport = medium.header_len() + ipv4::HEADER_LEN;
        let is_good = |segment: &Vec<u8>| verify_tcp(PEER.into(), OURS.into(), &segment[transport..]);
        prop_assert_eq!(received.iter().filter(|s| is_good(s)).count(), sent.iter().filter(|s| is_good(s)).count());
    }

    #[test]
    fn random_frames_pass(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 0..20),
        is_ethernet: bool,
    ) {
        let medium = if is_ethernet { Medium::Ethernet } else { Medium::Ip };
        let (mut device, handle) = device(medium);
        for frame in &frames {
            let mut frame = frame.clone();
            if let Some(version) = frame.get_mut(medium.header_len()) {
                *version = 0x45;
            }
            prop_assert!(handle.inject(Frame::plain(frame)).is_ok());
        }
        prop_assert_eq!(receive(&mut device, medium).frames.len(), frames.len());
    }
}
