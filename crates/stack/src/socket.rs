//! What the table of sockets holds.

use base::Instant;
use core::net::SocketAddr;
use hashbrown::HashMap;
use std::collections::BTreeMap;

use crate::buffers::BufferFamily;
use crate::config::{MtuDiscovery, SocketOptions};
use crate::error::SocketError;
use crate::flow::FourTuple;
use crate::hash::KeyedState;
use crate::list::{Link, Links, List, NIL};
use crate::path::CachedPath;
use crate::ports::{Claim, Manner};
use crate::slab::{Key, Slab};
use crate::tcp_sockets::EarlyQueue;
use crate::wheel::TimerKey;
use crate::{InterfaceId, SocketId};

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// TCP with an address, neither listening nor connecting yet.
    TcpBound,
    /// Accepts connections.
    TcpListener,
    /// A connection in any state, from SYN-SENT to CLOSED.
    TcpConnection,
    /// UDP.
    Udp,
}

/// An entry of the table.
pub(crate) struct Socket<B: BufferFamily> {
    pub(crate) kind: Kind<B>,
    pub(crate) user_data: u64,
    /// Where it waits for output.
    pub(crate) place: OutputPlace,
    pub(crate) output: Link,
    /// In the list of sockets whose owner has to look.
    pub(crate) changed: Link,
    /// How its port is held; `None`: it holds none (any more).
    pub(crate) manner: Option<Manner>,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    /// Closed by its owner.
    pub(crate) orphan: bool,
    /// No owner has heard of it: it goes without a word.
    pub(crate) silent: bool,
    /// What its owner hears of beside data.
    pub(crate) wants: Wants,
    /// What is done about packets that are too long for their path.
    pub(crate) mtu_discovery: MtuDiscovery,
}

/// What an owner hears of beside data, in one byte: there are many sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants(u8);

impl Wants {
    const SENT: u8 = 1;
    const ERRORS: u8 = 2;

    fn of(options: &SocketOptions) -> Self {
        let mut wants = Self::default();
        wants.set_sent(options.tell_sent);
        wants.set_errors(options.queue_errors);
        wants
    }

    /// What it sends.
    pub(crate) const fn sent(self) -> bool {
        self.0 & Self::SENT != 0
    }

    /// ICMP errors, each by itself.
    pub(crate) const fn errors(self) -> bool {
        self.0 & Self::ERRORS != 0
    }

    pub(crate) const fn set_sent(&mut self, on: bool) {
        self.set(Self::SENT, on);
    }

    pub(crate) const fn set_errors(&mut self, on: bool) {
        self.set(Self::ERRORS, on);
    }

    const fn set(&mut self, bit: u8, on: bool) {
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }
}

/// Where a socket that wants output waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputPlace {
    Nowhere,
    /// Its way is still to be found.
    Unrouted,
    /// In the round of an interface.
    Ready(InterfaceId),
    /// Until a next hop answers: the neighbour entry with this index, which stays while anybody waits.
    Neighbour(u32),
}

/// The kinds of sockets.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every socket is a connection; the other kinds are boxed"
)]
pub(crate) enum Kind<B: BufferFamily> {
    Bound(Box<Bound>),
    Listener(Box<Listener<B>>),
    Tcp(TcpSocket<B>),
    Udp(Box<UdpSocket<B>>),
    /// Done with; the slot waits for its owner to be told.
    Released,
}

pub(crate) struct Bound {
    pub(crate) local: SocketAddr,
    pub(crate) options: SocketOptions,
}

pub(crate) struct Listener<B: BufferFamily> {
    pub(crate) local: SocketAddr,
    pub(crate) backlog: usize,
    /// Connections that its owner has taken out of the queue and not yet handed to its program: they count as waiting.
    pub(crate) unaccepted: usize,
    pub(crate) owner: B::Owner,
    pub(crate) options: SocketOptions,
    pub(crate) queues: Queues,
    /// Until when an acknowledged cookie can be one of this listener's.
    pub(crate) cookies_until: Instant,
    pub(crate) early: EarlyQueue,
}

/// A listener's connections.
#[derive(Clone, Copy)]
pub(crate) struct Queues {
    /// Connections in SYN-RECEIVED, oldest first.
    pub(crate) half_open: List,
    pub(crate) half_open_len: usize,
    /// Established ones that nobody has accepted, oldest first.
    pub(crate) accept: List,
    pub(crate) accept_len: usize,
}

/// How far a connection has come towards its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the listener's SYN queue.
    HalfOpen,
    /// In the listener's accept queue.
    Queued,
    /// With its owner, or an orphan.
    Owned,
}

/// Where a connection's other end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    /// Somewhere: segments reach it.
    Remote,
    /// At this socket, which is joined with this one.
    Joined(u32),
    /// It was joined with this one, and is no more.
    Gone,
}

pub(crate) struct TcpSocket<B: BufferFamily> {
    pub(crate) connection: tcp::Connection,
    pub(crate) stream: B::Stream,
    pub(crate) partner: Partner,
    pub(crate) path: Option<CachedPath>,
    pub(crate) timer: Option<TimerKey>,
    /// When the timer fires; never later than the connection's deadline.
    pub(crate) armed: Instant,
    pub(crate) opened: Instant,
    pub(crate) stage: Stage,
    /// The listener, while the stage is not `Owned`.
    pub(crate) parent: u32,
    pub(crate) family: Link,
    /// Still in the table of flows.
    pub(crate) in_flows: bool,
    /// The listener that counts it among those whose handshake is not over although their data was taken.
    pub(crate) early_of: Option<Key>,
}

pub(crate) struct UdpSocket<B: BufferFamily> {
    /// As bound: the address may be unspecified.
    pub(crate) bound: SocketAddr,
    /// With the source address that connecting chose.
    pub(crate) connected: Option<FourTuple>,
    pub(crate) buffers: B::Datagrams,
    pub(crate) path: Option<CachedPath>,
    pub(crate) error: Option<SocketError>,
    pub(crate) broadcast: bool,
    /// Runs are received as they were sent.
    pub(crate) receives_runs: bool,
    /// Bytes of the run in front that have been sent.
    pub(crate) sent_of_run: usize,
}

impl<B: BufferFamily> Socket<B> {
    pub(crate) fn new(
        kind: Kind<B>,
        manner: Option<Manner>,
        options: &SocketOptions,
        default_ttl: u8,
    ) -> Self {
        Self {
            kind,
            user_data: 0,
            place: OutputPlace::Nowhere,
            output: Link::new(),
            changed: Link::new(),
            manner,
            ttl: options.ttl.unwrap_or(default_ttl),
            tos: options.tos,
            orphan: false,
            silent: false,
            wants: Wants::of(options),
            mtu_discovery: options.mtu_discovery,
        }
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Bound(bound) => Some(bound.local),
            Kind::Listener(listener) => Some(listener.local),
            Kind::Tcp(tcp) => Some(tcp.connection.local()),
            Kind::Udp(udp) => Some(udp.connected.map_or(udp.bound, |tuple| tuple.local)),
            Kind::Released => None,
        }
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(tcp) => Some(tcp.connection.remote()),
            Kind::Udp(udp) => udp.connected.map(|tuple| tuple.remote),
            Kind::Bound(_) | Kind::Listener(_) | Kind::Released => None,
        }
    }

    /// The holding of its port. Of a connected UDP socket it is what it was bound to.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let local = match &self.kind {
            Kind::Udp(udp) => Some(udp.bound),
            Kind::Bound(_) | Kind::Listener(_) | Kind::Tcp(_) | Kind::Released => self.local(),
        };
        Some(Claim { local: local?, manner: self.manner? })
    }

    pub(crate) fn tcp(&self) -> Option<&TcpSocket<B>> {
        match &self.kind {
            Kind::Tcp(tcp) => Some(tcp),
            Kind::Bound(_) | Kind::Listener(_) | Kind::Udp(_) | Kind::Released => None,
        }
    }

    pub(crate) fn tcp_mut(&mut self) -> Option<&mut TcpSocket<B>> {
        match &mut self.kind {
            Kind::Tcp(tcp) => Some(tcp),
            Kind::Bound(_) | Kind::Listener(_) | Kind::Udp(_) | Kind::Released => None,
        }
    }

    pub(crate) fn udp_mut(&mut self) -> Option<&mut UdpSocket<B>> {
        match &mut self.kind {
            Kind::Udp(udp) => Some(udp),
            Kind::Bound(_) | Kind::Listener(_) | Kind::Tcp(_) | Kind::Released => None,
        }
    }

    pub(crate) fn listener_mut(&mut self) -> Option<&mut Listener<B>> {
        match &mut self.kind {
            Kind::Listener(listener) => Some(listener),
            Kind::Bound(_) | Kind::Tcp(_) | Kind::Udp(_) | Kind::Released => None,
        }
    }
}

impl<B: BufferFamily> TcpSocket<B> {
    pub(crate) fn new(now: Instant, connection: tcp::Connection, stream: B::Stream, stage: Stage) -> Self {
        Self {
            opened: now,
            connection,
            stream,
            partner: Partner::Remote,
            path: None,
            timer: None,
            armed: Instant::FAR_FUTURE,
            stage,
            parent: NIL,
            family: Link::new(),
            in_flows: true,
            early_of: None,
        }
    }

    pub(crate) fn tuple(&self) -> FourTuple {
        FourTuple { local: self.connection.local(), remote: self.connection.remote() }
    }
}

/// The links of the lists of output.
pub(crate) struct OutputLinks<'a, B: BufferFamily>(pub(crate) &'a mut Slab<Socket<B>>);
/// The links of the list of changes.
pub(crate) struct ChangedLinks<'a, B: BufferFamily>(pub(crate) &'a mut Slab<Socket<B>>);
/// The links of the lists of a listener.
pub(crate) struct FamilyLinks<'a, B: BufferFamily>(pub(crate) &'a mut Slab<Socket<B>>);

const LISTED: &str = "sockets leave all lists before they leave the table";

impl<B: BufferFamily> Links for OutputLinks<'_, B> {
    fn link(&mut self, index: u32) -> &mut Link {
        &mut self.0.get_index_mut(index).expect(LISTED).output
    }
}

impl<B: BufferFamily> Links for ChangedLinks<'_, B> {
    fn link(&mut self, index: u32) -> &mut Link {
        &mut self.0.get_index_mut(index).expect(LISTED).changed
    }
}

impl<B: BufferFamily> Links for FamilyLinks<'_, B> {
    fn link(&mut self, index: u32) -> &mut Link {
        let socket = self.0.get_index_mut(index).expect(LISTED);
        &mut socket.tcp_mut().expect("only connections are in a listener's lists").family
    }
}

/// Sockets by their local end alone: listeners, UDP.
pub(crate) struct Endpoints {
    map: HashMap<SocketAddr, Vec<u32>, KeyedState>,
    /// How many are at each port.
    ports: BTreeMap<u16, u32>,
    /// How often a port came or went.
    pub(crate) changes: u64,
}

impl Endpoints {
    pub(crate) fn new(hash: KeyedState) -> Self {
        Self { map: HashMap::with_hasher(hash), ports: BTreeMap::new(), changes: 0 }
    }

    pub(crate) fn insert(&mut self, local: SocketAddr, index: u32) {
        let at_port = self.ports.entry(local.port()).or_default();
        *at_port += 1;
        self.changes += u64::from(*at_port == 1);
        self.map.entry(local).or_default().push(index);
    }

    pub(crate) fn remove(&mut self, local: SocketAddr, index: u32) {
        let Some(group) = self.map.get_mut(&local) else { return };
        let before = group.len();
        group.retain(|&other| other != index);
        if group.len() < before
            && let Some(at_port) = self.ports.get_mut(&local.port())
        {
            *at_port -= 1;
            if *at_port == 0 {
                self.ports.remove(&local.port());
                self.changes += 1;
            }
        }
        if group.is_empty() {
            self.map.remove(&local);
        }
    }

    /// The ports at which there is any.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.keys().copied()
    }

    /// The sockets at exactly `local`, else those at its port with the wildcard address.
    pub(crate) fn find(&self, local: SocketAddr) -> &[u32] {
        self.exact(local).or_else(|| self.exact(wildcard(local))).unwrap_or(&[])
    }

    /// The sockets at exactly `local`.
    pub(crate) fn exact(&self, local: SocketAddr) -> Option<&[u32]> {
        self.map.get(&local).map(Vec::as_slice)
    }
}

/// The wildcard address at the same port.
pub(crate) fn wildcard(local: SocketAddr) -> SocketAddr {
    let any = if local.is_ipv4() {
        core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED)
    } else {
        core::net::IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED)
    };
    SocketAddr::new(any, local.port())
}

impl From<Key> for SocketId {
    fn from(key: Key) -> Self {
        Self { index: key.index, generation: key.generation }
    }
}

impl From<SocketId> for Key {
    fn from(id: SocketId) -> Self {
        Self { index: id.index, generation: id.generation }
    }
}
