//! Why a connection ended.

use core::fmt;

/// The reason for which a connection was given up. Each is one error of the sockets interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Error {
    /// The peer refused the connection with a reset (`ECONNREFUSED`).
    Refused = 1,
    /// The peer reset an established connection (`ECONNRESET`).
    Reset = 2,
    /// The peer did not answer within the retransmission, keepalive or user time limit (`ETIMEDOUT`).
    TimedOut = 3,
    /// No route to the host (`EHOSTUNREACH`).
    HostUnreachable = 4,
    /// No route to the network (`ENETUNREACH`).
    NetworkUnreachable = 5,
    /// The peer does not speak TCP (`ENOPROTOOPT`).
    ProtocolUnreachable = 6,
    /// The owner aborted the connection (`ECONNABORTED`).
    Aborted = 7,
    /// A router could not follow the source route (`EOPNOTSUPP`).
    SourceRouteFailed = 8,
    /// A router says that there is no such host (`EHOSTDOWN`).
    HostUnknown = 9,
    /// A router says that it is cut off from the network (`ENONET`).
    HostIsolated = 10,
}

impl Error {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Refused,
            2 => Self::Reset,
            3 => Self::TimedOut,
            4 => Self::HostUnreachable,
            5 => Self::NetworkUnreachable,
            6 => Self::ProtocolUnreachable,
            7 => Self::Aborted,
            8 => Self::SourceRouteFailed,
            9 => Self::HostUnknown,
            10 => Self::HostIsolated,
            _ => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Reset => "connection reset by peer",
            Self::TimedOut => "connection timed out",
            Self::HostUnreachable => "no route to host",
            Self::NetworkUnreachable => "network is unreachable",
            Self::ProtocolUnreachable => "protocol not available",
            Self::Aborted => "connection aborted",
            Self::SourceRouteFailed => "source route failed",
            Self::HostUnknown => "host is unknown",
            Self::HostIsolated => "host is not on the network",
        })
    }
}

impl core::error::Error for Error {}

/// An ICMP error about one of this connection's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcmpError {
    /// Destination network unreachable, or unknown.
    NetworkUnreachable,
    /// Destination host unreachable, or administratively prohibited.
    HostUnreachable,
    /// The source route failed.
    SourceRouteFailed,
    /// Destination host unknown.
    HostUnknown,
    /// Source host isolated.
    HostIsolated,
    /// Protocol unreachable.
    ProtocolUnreachable,
    /// Port unreachable.
    PortUnreachable,
    /// The time to live was exceeded on the way.
    TimeExceeded,
    /// A parameter of the IP header was not understood.
    ParameterProblem,
}

impl IcmpError {
    /// RFC 1122 §4.2.3.9 calls protocol and port unreachable hard; the rest may pass.
    pub(crate) const fn is_hard(self) -> bool {
        matches!(self, Self::ProtocolUnreachable | Self::PortUnreachable)
    }

    /// Whether it ends an attempt to connect, on Linux and here: hard ones, and what else is unreachable (RFC 1122 §4.2.3.9 would
    /// have it wait for the SYN's retries).
    pub(crate) const fn ends_opening(self) -> bool {
        match self {
            Self::NetworkUnreachable
            | Self::HostUnreachable
            | Self::SourceRouteFailed
            | Self::HostUnknown
            | Self::HostIsolated => true,
            Self::ProtocolUnreachable | Self::PortUnreachable => self.is_hard(),
            Self::TimeExceeded | Self::ParameterProblem => false,
        }
    }

    pub(crate) const fn as_error(self) -> Error {
        match self {
            Self::SourceRouteFailed => Error::SourceRouteFailed,
            Self::HostUnknown => Error::HostUnknown,
            Self::HostIsolated => Error::HostIsolated,
            Self::NetworkUnreachable => Error::NetworkUnreachable,
            Self::HostUnreachable | Self::TimeExceeded | Self::ParameterProblem => Error::HostUnreachable,
            Self::ProtocolUnreachable => Error::ProtocolUnreachable,
            Self::PortUnreachable => Error::Refused,
        }
    }
}
