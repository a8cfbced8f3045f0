//! What goes into a connection and what comes out: segments, and the two traits through which payload is reached.
//!
//! A segment may be a *super-segment*: up to 64 KiB of payload under one header, cut into wire segments by the sending
//! device or put together by the receiving one. TCP's rules that count segments count wire segments.

use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use base::{Instant, SeqNumber};
use wire::checksum::Sum;
pub use wire::ip::Ecn;
use wire::tcp::Header;

/// A received segment. Its checksum has been verified and it belongs to the connection it is given to.
#[derive(Clone, Debug)]
pub struct SegmentIn<'a> {
    /// The parsed header.
    pub header: Header,
    /// The payload.
    pub payload: &'a [u8],
    /// When the device received it (not when it is processed): round trips are measured with it.
    pub arrival: Instant,
    /// How many wire segments the device put together; at least 1.
    pub segment_count: u16,
    /// The ECN field it came with.
    pub ecn: Ecn,
}

impl SegmentIn<'_> {
    /// SEG.LEN: the payload and one for each of SYN and FIN (RFC 9293 §3.4).
    pub fn sequence_len(&self) -> u32 {
        use wire::tcp::Flags;
        self.payload.len() as u32
            + u32::from(self.header.flags.contains(Flags::SYN))
            + u32::from(self.header.flags.contains(Flags::FIN))
    }
}

/// A segment to transmit. The payload is `len` bytes of the send stream from `offset`.
#[derive(Clone, Debug)]
pub struct SegmentOut {
    /// The header, ports and options filled in; the checksum is the caller's.
    pub header: Header,
    /// Stream offset of the first payload byte.
    pub offset: u64,
    /// Payload bytes.
    pub len: u32,
    /// Cut the payload at multiples of this many bytes (the last piece may be shorter). At least 1.
    pub segment_size: u16,
    /// The ECN field to send it with.
    pub ecn: Ecn,
}

/// What one call of `poll_segment` may give out.
#[derive(Clone, Copy, Debug)]
pub struct OutputLimit {
    /// The most payload bytes in one segment: what the device can cut, less the headers. 0: one MSS, no super-segments.
    pub max_payload: u32,
}

/// The bytes of the send stream. Kept by the owner until the connection says that they are acknowledged.
pub trait SendBuffer {
    /// The bytes `[offset, offset + len)` as at most two slices.
    fn peek(&self, offset: u64, len: usize) -> [&[u8]; 2];

    /// Whether the application waits for room, the buffer being full of what is not acknowledged.
    fn is_blocked(&self) -> bool {
        false
    }
}

/// The place where received bytes go.
pub trait ReceiveBuffer {
    /// Places bytes at a stream offset, in order or not. `offset + bytes.len()` never exceeds what was consumed plus
    /// the receive window's limit. The same bytes may be placed again.
    ///
    /// # Errors
    /// `NoMemory`: nothing was placed; the segment is treated as not received.
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NoMemory>;

    /// Places bytes like [`place`](Self::place) if they are what `sum`, of all else that their checksum covers, says;
    /// `false`: they are not, and nothing of them stays. They stand in two places, the second empty as a rule. A buffer that copies
    /// them can sum them in the same pass.
    ///
    /// # Errors
    /// `NoMemory`: they were not placed, or not all; the segment is treated as not received.
    fn place_verified(&mut self, offset: u64, bytes: [&[u8]; 2], sum: Sum) -> Result<bool, NoMemory> {
        let [first, second] = bytes;
        if sum.add(first).add(second).finish() != 0 {
            return Ok(false);
        }
        self.place(offset, first)?;
        if !second.is_empty() {
            self.place(offset + first.len() as u64, second)?;
        }
        Ok(true)
    }

    /// How far its reader has read, if the buffer can tell: the stream offset. The connection hears of that only now and then.
    fn consumed(&mut self) -> Option<u64> {
        None
    }

    /// How many bytes beyond what was consumed the buffer can be counted on to hold, as memory stands.
    fn share(&self) -> u32 {
        u32::MAX
    }
}

/// Segments that came one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// How many there are of one size, at least one,
    pub count: u16,
    /// which is this.
    pub size: u16,
    /// The size of one more behind them that is smaller; 0: there is none.
    pub tail: u16,
}

impl Gathered {
    /// How many they are.
    pub const fn segments(&self) -> u32 {
        self.count as u32 + (self.tail > 0) as u32
    }

    /// The bytes that they carry.
    pub const fn bytes(&self) -> u64 {
        self.count as u64 * self.size as u64 + self.tail as u64
    }
}

/// A receive buffer had no memory for the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// The two ends of a connection, without what `SocketAddr` keeps twice.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    local: IpAddr,
    remote: IpAddr,
    /// The scope of link-local IPv6 addresses (RFC 4007): both ends are on one link.
    scope: u32,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl Endpoints {
    pub(crate) const fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        let scope = match (local, remote) {
            (_, SocketAddr::V6(v6)) | (SocketAddr::V6(v6), _) => v6.scope_id(),
            _ => 0,
        };
        Self {
            local: local.ip(),
            remote: remote.ip(),
            scope,
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    pub(crate) const fn local(&self) -> SocketAddr {
        Self::address(self.local, self.local_port, self.scope)
    }

    pub(crate) const fn remote(&self) -> SocketAddr {
        Self::address(self.remote, self.remote_port, self.scope)
    }

    const fn address(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
        match ip {
            IpAddr::V4(ip) => SocketAddr::V4(SocketAddrV4::new(ip, port)),
            IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)),
        }
    }

    /// Whether the connection runs over IPv4.
    pub(crate) const fn is_ipv4(&self) -> bool {
        self.remote.is_ipv4()
    }
}

/// A position in a connection's sequence space that does not wrap: 0 is the SYN, 1 the first payload byte, and the FIN
/// comes after the last one. The wire's number is the initial sequence number plus this, modulo 2³².
pub(crate) type Position = u64;

/// The position that `seq` stands for, being the one nearest to `near`; saturates at 0 for what lies before the SYN.
#[inline]
pub(crate) fn position_of(seq: SeqNumber, initial: SeqNumber, near: Position) -> i64 {
    let near_seq = initial + near as u32;
    near as i64 + i64::from(seq.distance_from(near_seq) as i32)
}
