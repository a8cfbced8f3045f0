//! What a socket with `IP_RECVERR` hears beside its data: ICMP errors as they came, and when what it sent went out.
//!
//! The stack keeps them only until its owner takes them ([`Stack::poll_told`]), which is after every batch; how many an
//! application may leave untaken is the owner's to bound.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::Instant;

use crate::buffers::BufferFamily;
use crate::socket::{Socket, Stage};
use crate::stack::{SocketId, Stack};

/// How many wait for the owner at most. What is more than that is not told.
const MAX_TOLD: usize = 1024;
/// No more of a packet than this comes with an error.
pub const MAX_QUEUED_PAYLOAD: usize = 1920;

/// Where an error comes from (`SO_EE_ORIGIN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// This host refused to send.
    Local,
    /// An ICMP message.
    Icmp,
    /// No error: something was sent, or acknowledged.
    Timestamping,
    /// No error: the buffers of sends are the sender's again. The stack never says so.
    ZeroCopy,
}

impl ErrorOrigin {
    /// Linux's number of it (`linux/errqueue.h`).
    pub const fn number(self) -> u8 {
        match self {
            Self::Local => 1,
            Self::Icmp => 2,
            Self::Timestamping => 4,
            Self::ZeroCopy => 5,
        }
    }

    /// The origin with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Local),
            2 => Some(Self::Icmp),
            4 => Some(Self::Timestamping),
            5 => Some(Self::ZeroCopy),
            _ => None,
        }
    }
}

/// An entry of a socket's queue of errors: `struct sock_extended_err`, and what comes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// Linux's number of the error.
    pub errno: i32,
    /// Where it comes from.
    pub origin: ErrorOrigin,
    /// The ICMP message's type.
    pub kind: u8,
    /// The ICMP message's code.
    pub code: u8,
    /// The MTU, or the byte of the header that makes no sense; of a time, what happened then.
    pub info: u32,
    /// Of a time: which packet, or which byte.
    pub data: u32,
    /// Who sent the ICMP message.
    pub offender: Option<Ipv4Addr>,
    /// The address that it was sent to.
    pub local: Ipv4Addr,
    /// Its time to live.
    pub ttl: u8,
    /// Its type of service.
    pub tos: u8,
    /// Where the packet in question went.
    pub destination: Option<SocketAddr>,
    /// When, if that is what it tells.
    pub at: Option<Instant>,
    /// What the packet in question carried, as far as that is known; [`MAX_QUEUED_PAYLOAD`] at most.
    pub payload: Vec<u8>,
}

/// What [`Stack::poll_told`] gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// An entry of the queue.
    Queued(QueuedError),
    /// A connection goes on, but its owner wants to hear of this (Linux's number).
    Passing(i32),
}

/// An ICMP error as it came, or as this host would have sent it to itself.
#[derive(Clone, Copy)]
pub(crate) struct Report<'a> {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) info: u32,
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    /// The packet in question.
    pub(crate) quote: &'a [u8],
}

impl Report<'_> {
    /// As an entry; `skipped` bytes of the packet are no payload.
    pub(crate) fn entry(&self, errno: i32, destination: SocketAddr, skipped: usize) -> QueuedError {
        let payload = self.quote.get(skipped..).unwrap_or(&[]);
        QueuedError {
            errno,
            origin: ErrorOrigin::Icmp,
            kind: self.kind,
            code: self.code,
            info: self.info,
            data: 0,
            offender: Some(self.from),
            local: self.to,
            ttl: self.ttl,
            tos: self.tos,
            destination: Some(destination),
            at: None,
            payload: payload[..payload.len().min(MAX_QUEUED_PAYLOAD)].to_vec(),
        }
    }
}

impl<B: BufferFamily> Stack<B> {
    /// What a socket is to be told beside its data. To be called before [`poll_changed`](Self::poll_changed).
    pub fn poll_told(&mut self) -> Option<(SocketId, Told)> {
        self.told.pop_front()
    }

    /// Tells the owner of a socket, if it has one.
    pub(crate) fn tell(&mut self, index: u32, told: Told) {
        let is_owned = |socket: &Socket<B>| {
            !socket.orphan && socket.tcp().is_none_or(|connection| connection.stage == Stage::Owned)
        };
        let Some(key) = self.sockets.key_at(index) else { return };
        if !self.sockets.get_index(index).is_some_and(is_owned) {
            return;
        }
        if self.told.len() >= MAX_TOLD {
            self.stats.drop_told += 1;
            return;
        }
        self.told.push_back((key.into(), told));
        self.mark_changed(index);
    }

    /// What packets to `remote`, or to the socket's peer, may measure on their way, and on the link.
    pub fn path_mtu(&mut self, now: Instant, id: SocketId, remote: Option<SocketAddr>) -> Option<(u16, u16)> {
        let socket = self.sockets.get(id.into())?;
        let source = socket.local()?.ip();
        let IpAddr::V4(destination) = remote.or_else(|| socket.remote())?.ip().to_canonical() else {
            return None;
        };
        let (interface, _, _) = self.route_to(source, destination.into()).ok()?;
        let link = self.link_mtu(interface, destination.into());
        Some((self.mtu_towards(now, interface, destination), link))
    }

    /// No path that is known is narrower than this; loopback is not counted.
    pub fn narrowest_mtu(&self) -> u16 {
        let links = self.links().map(|(_, link)| link.capabilities.mtu).min().unwrap_or(u16::MAX);
        links.min(self.least_path_mtu).min(self.routes.least_mtu())
    }
}
