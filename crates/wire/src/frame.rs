//! What a device and a stack hand to each other: frames with their offload metadata.
//!
//! The model is virtio-net's (virtio 1.2 §5.1.6): a frame may be a *super-segment*, larger than the MTU, which whoever
//! stands nearer to the wire cuts; and a checksum may be *partial*, its field holding only the pseudo-header's sum.

use crate::ethernet::EthernetAddress;

/// What a frame starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
}

impl Medium {
    /// Length of the link header in bytes.
    pub const fn header_len(self) -> usize {
        match self {
            Self::Ethernet => crate::ethernet::HEADER_LEN,
            Self::Ip => 0,
        }
    }
}

/// What is known about the transport checksum of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumIn {
    /// Nothing: it must be verified.
    #[default]
    Unknown,
    /// The device verified it.
    Verified,
    /// The sender, on the same machine, did not fill it in. The data is good.
    Partial,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// The frame, from its link header on.
    pub bytes: &'a [u8],
    /// What is known about its transport checksum.
    pub checksum: ChecksumIn,
    /// Payload bytes of each segment that was merged into it, but for the last; zero: it is not a super-segment.
    pub segment_size: u16,
}

impl<'a> RxFrame<'a> {
    /// An ordinary frame, of whose checksum nothing is known.
    pub const fn plain(bytes: &'a [u8]) -> Self {
        Self { bytes, checksum: ChecksumIn::Unknown, segment_size: 0 }
    }
}

/// How a transmitted frame is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Segmentation {
    /// Not at all.
    #[default]
    None,
    /// Into TCP segments over IPv4.
    Tcp4 {
        /// Payload bytes of each, but for the last.
        segment_size: u16,
    },
    /// Into TCP segments over IPv6.
    Tcp6 {
        /// Payload bytes of each, but for the last.
        segment_size: u16,
    },
    /// Into UDP datagrams.
    Udp {
        /// Payload bytes of each, but for the last.
        segment_size: u16,
    },
}

impl Segmentation {
    /// Payload bytes of each piece but the last; zero where nothing is cut.
    pub const fn segment_size(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Tcp4 { segment_size } | Self::Tcp6 { segment_size } | Self::Udp { segment_size } => {
                segment_size
            }
        }
    }
}

/// How far the transport checksum of a transmitted frame is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumOut {
    /// It is complete.
    #[default]
    Complete,
    /// Its field holds the pseudo-header's sum, not complemented. The device sums from `start` to the frame's end and
    /// stores the result at `start + offset`.
    Partial {
        /// Where the transport header starts in the frame.
        start: u16,
        /// Where the checksum field stands in the transport header.
        offset: u16,
    },
}

/// A frame to transmit: headers in one slice, payload as up to two slices (a ring may wrap), not copied together.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a> {
    /// All headers, from the link header on.
    pub headers: &'a [u8],
    /// What follows them.
    pub payload: [&'a [u8]; 2],
    /// How far the checksum is done.
    pub checksum: ChecksumOut,
    /// How the frame is cut.
    pub segmentation: Segmentation,
}

impl<'a> TxFrame<'a> {
    /// A frame that is complete as it stands.
    pub const fn plain(headers: &'a [u8], payload: [&'a [u8]; 2]) -> Self {
        Self { headers, payload, checksum: ChecksumOut::Complete, segmentation: Segmentation::None }
    }

    /// Length of the payload in bytes.
    pub const fn payload_len(&self) -> usize {
        self.payload[0].len() + self.payload[1].len()
    }

    /// Length of the frame in bytes.
    pub const fn frame_len(&self) -> usize {
        self.headers.len() + self.payload_len()
    }
}

/// What a device does by itself, and the largest packet it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What its frames start with.
    pub medium: Medium,
    /// The largest IP packet in bytes that crosses the wire.
    pub mtu: u16,
    /// It completes partial checksums of transmitted frames.
    pub checksum_tx: bool,
    /// It may say `Verified` or `Partial` of received frames.
    pub checksum_rx: bool,
    /// The largest super-segment it takes, IP headers and payload together; zero: it cuts nothing.
    pub max_segmentation: u32,
    /// The address the stack is to use on this link.
    pub hardware_address: EthernetAddress,
}
