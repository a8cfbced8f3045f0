//! ICMP for IPv4 (RFC 792, RFC 1191, RFC 1812): echo, and the errors that a host sends and understands.

use crate::Malformed;
use crate::checksum::Sum;

/// Length of a message's head; its data follow.
pub const HEADER_LEN: usize = 8;

/// Why a destination is unreachable: the codes that hosts act on (RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1).
pub mod unreachable {
    /// No route to the network.
    pub const NET: u8 = 0;
    /// The host does not answer.
    pub const HOST: u8 = 1;
    /// The host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nobody listens on the port.
    pub const PORT: u8 = 3;
    /// Too large for the next link, and DF forbids to cut it.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route failed.
    pub const SOURCE_ROUTE: u8 = 5;
    /// There is no such host.
    pub const HOST_UNKNOWN: u8 = 7;
    /// The sender is cut off from the network.
    pub const SOURCE_ISOLATED: u8 = 8;
    /// Forbidden by an administrator.
    pub const PROHIBITED: u8 = 13;
}

/// What ran out (RFC 792).
pub mod exceeded {
    /// The TTL, in transit.
    pub const TTL: u8 = 0;
    /// The time to reassemble fragments.
    pub const REASSEMBLY: u8 = 1;
}

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// A message. Its data, behind the head, are an echo's payload or the start of the packet in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks for a reply with the same data.
    EchoRequest {
        /// Tells one asker from another.
        identifier: u16,
        /// Tells one request from another.
        sequence: u16,
    },
    /// The reply.
    EchoReply {
        /// As in the request.
        identifier: u16,
        /// As in the request.
        sequence: u16,
    },
    /// A packet could not be delivered.
    Unreachable {
        /// Why: see [`mod@unreachable`].
        code: u8,
        /// With `FRAGMENTATION_NEEDED` the MTU of the next link (RFC 1191 §4), zero from an old router.
        next_hop_mtu: u16,
    },
    /// A packet took too long.
    TimeExceeded {
        /// Where: see [`exceeded`].
        code: u8,
    },
    /// A packet's header makes no sense.
    ParameterProblem {
        /// Zero: the pointer means something.
        code: u8,
        /// Which byte of the header.
        pointer: u8,
    },
    /// Any other message.
    Other {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
        /// The four bytes after the checksum.
        rest: [u8; 4],
    },
}

impl Message {
    /// Splits a message, all of an IPv4 packet's payload, into head and data. The checksum is verified.
    ///
    /// # Errors
    /// Truncated, or a wrong checksum.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let parsed = Self::parse_quoted(bytes)?;
        if Sum::of(bytes).finish() != 0 {
            return Err(Malformed::Checksum);
        }
        Ok(parsed)
    }

    /// Splits what an ICMP error quotes of a message, which may be cut short: its checksum cannot be verified.
    ///
    /// # Errors
    /// Truncated within the head.
    pub fn parse_quoted(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (head, data) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
        let [kind, code, _, _, b4, b5, b6, b7] = *head;
        let (first, second) = (u16::from_be_bytes([b4, b5]), u16::from_be_bytes([b6, b7]));
        let message = match kind {
            ECHO_REQUEST => Self::EchoRequest { identifier: first, sequence: second },
            ECHO_REPLY => Self::EchoReply { identifier: first, sequence: second },
            UNREACHABLE => Self::Unreachable { code, next_hop_mtu: second },
            TIME_EXCEEDED => Self::TimeExceeded { code },
            PARAMETER_PROBLEM => Self::ParameterProblem { code, pointer: b4 },
            _ => Self::Other { kind, code, rest: [b4, b5, b6, b7] },
        };
        Ok((message, data))
    }

    /// Whether this is an error, which must not be answered with another (RFC 1122 §3.2.2). A kind that is not known
    /// may be one.
    pub const fn is_error(&self) -> bool {
        match self {
            Self::EchoRequest { .. } | Self::EchoReply { .. } => false,
            Self::Unreachable { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. }
            | Self::Other { .. } => true,
        }
    }

    /// Writes the head, its checksum covering also the `data` that follow it on the wire, at the start of `out`; returns
    /// its length, [`HEADER_LEN`].
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8], data: &[u8]) -> usize {
        let words = |first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [a, b, c, d]
        };
        let (kind, code, rest) = match *self {
            Self::EchoRequest { identifier, sequence } => (ECHO_REQUEST, 0, words(identifier, sequence)),
            Self::EchoReply { identifier, sequence } => (ECHO_REPLY, 0, words(identifier, sequence)),
            Self::Unreachable { code, next_hop_mtu } => (UNREACHABLE, code, words(0, next_hop_mtu)),
            Self::TimeExceeded { code } => (TIME_EXCEEDED, code, [0; 4]),
            Self::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, [pointer, 0, 0, 0]),
            Self::Other { kind, code, rest } => (kind, code, rest),
        };
        let [b4, b5, b6, b7] = rest;
        let mut head = [kind, code, 0, 0, b4, b5, b6, b7];
        let checksum = Sum::of(&head).add(data).finish();
        head[2..4].copy_from_slice(&checksum.to_be_bytes());
        out[..HEADER_LEN].copy_from_slice(&head);
        HEADER_LEN
    }
}
