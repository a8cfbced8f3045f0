//! Why an operation on a socket was refused, or what befell it.

use core::fmt;

/// What an operation on a socket, or the network, answered. Linux's number for it is [`errno`](Self::errno).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketError {
    /// The identifier names no socket (any more).
    NoSuchSocket,
    /// The operation does not fit the kind or the state of the socket.
    InvalidArgument,
    /// The socket is of a kind that does not know this operation.
    NotSupported,
    /// The address family is not carried (yet).
    FamilyNotSupported,
    /// Another socket holds the address and the port.
    AddressInUse,
    /// The address is not one of this host's, or no ephemeral port is free.
    AddressNotAvailable,
    /// The socket is connected already, or connecting.
    AlreadyConnected,
    /// The socket is not connected and no destination was given.
    NotConnected,
    /// There is no route to the destination.
    NetworkUnreachable,
    /// The next hop does not answer, or a router says that the host cannot be reached.
    HostUnreachable,
    /// Nobody listens there.
    ConnectionRefused,
    /// The peer does not speak this protocol (ICMP protocol unreachable).
    ProtocolUnreachable,
    /// The peer does not understand a header (ICMP parameter problem).
    ProtocolError,
    /// There is no such host (ICMP).
    HostUnknown,
    /// This host is cut off (ICMP).
    HostIsolated,
    /// The path says that this traffic is administratively prohibited, or broadcast was not allowed on the socket.
    PermissionDenied,
    /// The datagram is larger than the protocol or the path can carry.
    MessageTooLong,
    /// The table of sockets, or of orphans, is full.
    TooManySockets,
    /// A snapshot that cannot be restored here.
    BadSnapshot,
}

impl SocketError {
    /// Linux's error number for it (`asm-generic/errno.h`).
    pub const fn errno(self) -> i32 {
        match self {
            Self::NoSuchSocket => 9,         // EBADF
            Self::InvalidArgument => 22,     // EINVAL
            Self::NotSupported => 95,        // EOPNOTSUPP
            Self::FamilyNotSupported => 97,  // EAFNOSUPPORT
            Self::AddressInUse => 98,        // EADDRINUSE
            Self::AddressNotAvailable => 99, // EADDRNOTAVAIL
            Self::AlreadyConnected => 106,   // EISCONN
            Self::NotConnected => 107,       // ENOTCONN
            Self::NetworkUnreachable => 101, // ENETUNREACH
            Self::HostUnreachable => 113,    // EHOSTUNREACH
            Self::ConnectionRefused => 111,  // ECONNREFUSED
            Self::ProtocolUnreachable => 92, // ENOPROTOOPT
            Self::ProtocolError => 71,       // EPROTO
            Self::HostUnknown => 112,        // EHOSTDOWN
            Self::HostIsolated => 64,        // ENONET
            Self::PermissionDenied => 13,    // EACCES
            Self::MessageTooLong => 90,      // EMSGSIZE
            Self::TooManySockets => 105,     // ENOBUFS
            Self::BadSnapshot => 22,         // EINVAL
        }
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchSocket => "no such socket",
            Self::InvalidArgument => "the operation does not fit the socket's state",
            Self::NotSupported => "the socket is of another kind",
            Self::FamilyNotSupported => "the address family is not carried",
            Self::AddressInUse => "another socket holds the address and port",
            Self::AddressNotAvailable => "the address is not this host's, or no port is free",
            Self::AlreadyConnected => "the socket is connected already",
            Self::NotConnected => "the socket is not connected",
            Self::NetworkUnreachable => "no route to the destination",
            Self::HostUnreachable => "the host cannot be reached",
            Self::ConnectionRefused => "nobody listens there",
            Self::ProtocolUnreachable => "the peer does not speak this protocol",
            Self::ProtocolError => "the peer does not understand a header",
            Self::HostUnknown => "there is no such host",
            Self::HostIsolated => "this host is cut off",
            Self::PermissionDenied => "not permitted",
            Self::MessageTooLong => "the datagram is too long",
            Self::TooManySockets => "too many sockets",
            Self::BadSnapshot => "the snapshot cannot be restored",
        })
    }
}

impl core::error::Error for SocketError {}
