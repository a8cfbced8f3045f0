//! Generators and settings that the property tests share.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::net::{Ipv4Addr, Ipv6Addr};

use base::SeqNumber;
use outboard_wire::ethernet::EthernetAddress;
use outboard_wire::ip::{Ecn, Protocol};
use outboard_wire::tcp::{self, Flags, SackBlock, Timestamps};
use outboard_wire::{ipv4, ipv6};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A fixed number of cases; a failure prints its smallest input.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

pub(crate) fn hardware() -> impl Strategy<Value = EthernetAddress> {
    any::<[u8; 6]>().prop_map(EthernetAddress)
}

pub(crate) fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

pub(crate) fn v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from_bits)
}

pub(crate) fn ecn() -> impl Strategy<Value = Ecn> {
    any::<u8>().prop_map(Ecn::from_bits)
}

prop_compose! {
    pub(crate) fn ipv4_header(payload_len: u16)(
        (source, destination) in (v4(), v4()),
        (dscp, ecn, ident) in (0u8..64, ecn(), any::<u16>()),
        (dont_fragment, more_fragments, fragment_offset) in (any::<bool>(), any::<bool>(), 0u16..8192),
        (ttl, protocol) in (any::<u8>(), any::<u8>()),
    ) -> ipv4::Header {
        ipv4::Header {
            dscp, ecn, total_len: ipv4::HEADER_LEN as u16 + payload_len, ident, dont_fragment, more_fragments,
            fragment_offset: fragment_offset * 8, ttl, protocol: Protocol(protocol), source, destination,
        }
    }
}

prop_compose! {
    pub(crate) fn ipv6_header(payload_len: u16)(
        (source, destination) in (v6(), v6()),
        (dscp, ecn, flow_label) in (0u8..64, ecn(), 0u32..1 << 20),
        (hop_limit, next_header) in (any::<u8>(), any::<u8>()),
    ) -> ipv6::Header {
        ipv6::Header {
            dscp, ecn, flow_label, payload_len, next_header: Protocol(next_header), hop_limit, source, destination,
        }
    }
}

fn sack_block() -> impl Strategy<Value = SackBlock> {
    any::<(u32, u32)>().prop_map(|(start, end)| SackBlock { start: SeqNumber(start), end: SeqNumber(end) })
}

fn timestamps() -> impl Strategy<Value = Timestamps> {
    any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo })
}

prop_compose! {
    /// Any options, also more than fit.
    pub(crate) fn tcp_options()(
        (mss, window_scale, user_timeout) in (any::<Option<u16>>(), any::<Option<u8>>(), any::<Option<u16>>()),
        (sack_permitted, timestamps) in (any::<bool>(), option::of(timestamps())),
        sack in vec(sack_block(), 0..=4),
        (fast_open, experimental) in (option::of(vec(any::<u8>(), 0..=16)), any::<bool>()),
    ) -> tcp::Options {
        tcp::Options {
            mss, window_scale, user_timeout, sack_permitted, timestamps,
            sack: sack.into_iter().collect(),
            fast_open_experimental: experimental && fast_open.is_some(),
            fast_open: fast_open.map(|cookie| cookie.into_iter().collect()),
        }
    }
}

prop_compose! {
    pub(crate) fn tcp_header()(
        (src_port, dst_port, seq, ack) in any::<(u16, u16, u32, u32)>(),
        (flags, window, urgent) in (0u16..0x200, any::<u16>(), any::<u16>()),
        options in prop_oneof![
            Just(tcp::Options::default()),
            timestamps().prop_map(|stamps| tcp::Options { timestamps: Some(stamps), ..Default::default() }),
            tcp_options(),
        ],
    ) -> tcp::Header {
        tcp::Header {
            src_port, dst_port, seq: SeqNumber(seq), ack: SeqNumber(ack), flags: Flags::from_bits_truncate(flags),
            window, urgent, options,
        }
    }
}
