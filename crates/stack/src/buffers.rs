//! Where the bytes are: the traits through which a stack reaches the buffers of its owner.

use core::net::SocketAddr;

use base::Instant;
use tcp::{ReceiveBuffer, SendBuffer};

/// The buffers of a stack's sockets: shared rings of the FEP, or memory of the same process.
pub trait BufferFamily: 'static {
    /// Both directions of a TCP connection. Idle, it should hold no memory.
    type Stream: SendBuffer + ReceiveBuffer;
    /// Both directions of a UDP socket.
    type Datagrams: DatagramBuffer;
    /// Whose a listener is, and so every connection that it accepts.
    type Owner: Clone;

    /// Buffers for a connection that a listener of this owner accepts.
    fn stream(owner: &Self::Owner) -> Self::Stream;
}

/// What is known about a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramMeta {
    /// The other end. To send: port 0 means the connected peer.
    pub remote: SocketAddr,
    /// Our end: where it was sent to. To send: an unspecified address means the socket's own.
    pub local: SocketAddr,
    /// Time to live. To send: 0 means the socket's.
    pub ttl: u8,
    /// Type of service. To send: taken as it is, with the socket's if it is 0.
    pub tos: u8,
    /// Not 0: this is a run of datagrams of so many bytes each, the last of which may be shorter (`UDP_SEGMENT`, `UDP_GRO`).
    pub segment: u16,
}

/// There was no room for a received datagram; it is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Both queues of a UDP socket.
pub trait DatagramBuffer {
    /// Puts a datagram that came at `now` into the receive queue.
    ///
    /// # Errors
    /// `Full`: there is no room; nothing was stored.
    fn push(&mut self, now: Instant, meta: &DatagramMeta, payload: &[u8]) -> Result<(), Full>;

    /// The next datagram to send.
    fn front(&mut self) -> Option<(DatagramMeta, [&[u8]; 2])>;

    /// The datagram that [`front`](Self::front) gave is done with.
    fn pop(&mut self);
}
