//! The host: what it is made of, and what its owner calls.

use base::{Instant, IpCidr, Rng};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::VecDeque;
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, Medium};

use crate::buffers::BufferFamily;
use crate::config::{ConflictDetection, InterfaceConfig, SocketOption, StackConfig};
use crate::egress::Identifications;
use crate::error::SocketError;
use crate::flow::{FlowTable, FourTuple};
use crate::hash::{KeyedState, random_key};
use crate::interface::{AddressState, Interface, InterfaceId};
use crate::limit::TokenBucket;
use crate::list::List;
use crate::neighbour::{NeighbourState, Neighbours};
use crate::ports::PortTable;
use crate::queued_error::Told;
use crate::reassembly::Reassembler;
use crate::remembered::{MIN_PATH_MTU, PathMemories, PathMtus};
use crate::route::{Route, RouteTable};
use crate::slab::Slab;
use crate::socket::{ChangedLinks, Endpoints, Kind, Socket, SocketKind};
use crate::stats::{Stats, Work};
use crate::tcp_sockets::{Crowds, FastOpenState, Run, TimeWaitRecord};
use crate::wheel::{TimerKey, Wheel};

/// Steps of the timer wheel in one call of `handle_deadlines`.
const TIMER_BATCH: u32 = 1024;
/// The way of a stack to itself takes the largest packet there is.
const LOOPBACK_MTU: u16 = u16::MAX;

/// Names a socket of a stack. No other socket of the stack ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId {
    /// Where it stands.
    pub index: u32,
    /// Tells those apart that stood there.
    pub generation: u32,
}

impl SocketId {
    /// The identifier as one word.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// From the word that [`to_bits`](Self::to_bits) gave.
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// What [`Stack::poll_changed`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something that an owner can see has changed: look at the socket.
    Updated(SocketId),
    /// A socket that its owner had closed is done with. Every closed socket is reported so, once.
    Released {
        /// What it was called.
        id: SocketId,
        /// What its owner had attached to it.
        user_data: u64,
    },
}

/// Whose timer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    Socket(u32),
    TimeWait(u32),
    Neighbour(u32),
    Address(InterfaceId, u16),
    Reassembly,
}

/// A neighbour entry, for status output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourInfo {
    /// The interface.
    pub interface: InterfaceId,
    /// The next hop.
    pub address: IpAddr,
    /// Its hardware address; of meaning only once it was resolved.
    pub hardware: EthernetAddress,
    /// How far it is resolved.
    pub state: NeighbourState,
}

/// A host.
///
/// The owner's loop: give received frames to [`handle_frame`](Self::handle_frame), several at a time to
/// [`begin_batch`](Self::begin_batch); when [`deadline`](Self::deadline)
/// has passed, call [`handle_deadlines`](Self::handle_deadlines); call [`poll_transmit`](Self::poll_transmit), at least
/// after every batch of the former and of socket calls, again while [`wants_transmit`](Self::wants_transmit) and the
/// devices have room; call [`poll_changed`](Self::poll_changed) until it gives nothing.
pub struct Stack<B: BufferFamily> {
    pub(crate) config: StackConfig,
    pub(crate) rng: Box<dyn Rng + Send>,
    pub(crate) hash: KeyedState,
    pub(crate) isn: tcp::IsnGenerator,
    pub(crate) syn_cookies: tcp::SynCookies,
    pub(crate) fast_open: FastOpenState,
    pub(crate) stats: Stats,
    /// Number 0 is the way to ourselves.
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) locals: Vec<(IpAddr, InterfaceId)>,
    /// From whom to whom, over which interface, a packet last passed the checks of its addresses.
    pub(crate) passed: Option<(InterfaceId, Ipv4Addr, Ipv4Addr)>,
    /// Where a frame is put together that came in parts.
    pub(crate) put_together: Vec<u8>,
    /// Segments of one flow that are under way one behind the other.
    pub(crate) run: Option<Run>,
    pub(crate) routes: RouteTable,
    pub(crate) neighbours: Neighbours,
    pub(crate) path_mtus: PathMtus,
    /// The narrowest of them so far.
    pub(crate) least_path_mtu: u16,
    /// What owners are still to be told.
    pub(crate) told: VecDeque<(SocketId, Told)>,
    pub(crate) memories: PathMemories,
    pub(crate) reassembler: Reassembler,
    pub(crate) reassembly_timer: Option<TimerKey>,
    pub(crate) identifications: Identifications,
    pub(crate) error_limit: TokenBucket,
    pub(crate) sockets: Slab<Socket<B>>,
    pub(crate) tcp_flows: FlowTable,
    pub(crate) udp_flows: FlowTable,
    pub(crate) tcp_ports: PortTable,
    /// Destinations to which most ports are taken.
    pub(crate) crowds: Crowds,
    pub(crate) udp_ports: PortTable,
    pub(crate) listeners: Endpoints,
    pub(crate) udp_endpoints: Endpoints,
    pub(crate) time_waits: Slab<TimeWaitRecord>,
    pub(crate) wheel: Wheel<Timer>,
    /// Sockets whose owner has to look.
    pub(crate) changed: List,
    /// Sockets that want output and have no way yet.
    pub(crate) unrouted: List,
    pub(crate) orphans: usize,
    pub(crate) half_open: usize,
    pub(crate) sockets_polled: u64,
    pub(crate) next_interface: usize,
    /// The sink had no room, or the batch was full: there is more to give out.
    pub(crate) transmit_pending: bool,
    /// What is left of the bytes that one call carries between own sockets.
    pub(crate) local_bytes_left: usize,
    pub(crate) scratch: Vec<u8>,
}

impl<B: BufferFamily> Stack<B> {
    /// A host without interfaces. Everything random comes from `rng`; `hash_key` keeps outsiders from choosing what
    /// collides in the tables and from guessing ports and sequence numbers.
    pub fn new(config: StackConfig, rng: impl Rng + Send + 'static, hash_key: [u8; 16]) -> Self {
        let mut rng: Box<dyn Rng + Send> = Box::new(rng);
        let hash = KeyedState::new(hash_key);
        let isn_key = random_key(&mut *rng);
        let cookie_key = random_key(&mut *rng);
        let ports = |tcp| PortTable::new(config.ephemeral_ports, tcp, hash.clone());
        let mut stack = Self {
            isn: tcp::IsnGenerator::new(isn_key),
            syn_cookies: tcp::SynCookies::new(cookie_key),
            fast_open: FastOpenState::new(&config.fast_open, hash.clone()),
            stats: Stats::default(),
            interfaces: Vec::new(),
            locals: Vec::new(),
            passed: None,
            put_together: Vec::new(),
            run: None,
            routes: RouteTable::default(),
            neighbours: Neighbours::new(config.max_neighbours, hash.clone()),
            path_mtus: PathMtus::path_mtus(hash.clone()),
            least_path_mtu: u16::MAX,
            told: VecDeque::new(),
            memories: PathMemories::memories(hash.clone()),
            reassembler: Reassembler::new(
                config.max_fragment_bytes,
                config.max_fragment_bytes_per_source,
                hash.clone(),
            ),
            reassembly_timer: None,
            identifications: Identifications::new(),
            error_limit: TokenBucket::new(config.error_rate, config.error_burst),
            sockets: Slab::new(),
            tcp_flows: FlowTable::new(hash.clone()),
            udp_flows: FlowTable::new(hash.clone()),
            tcp_ports: ports(true),
            crowds: Crowds::new(config.ephemeral_ports, hash.clone()),
            udp_ports: ports(false),
            listeners: Endpoints::new(hash.clone()),
            udp_endpoints: Endpoints::new(hash.clone()),
            time_waits: Slab::new(),
            wheel: Wheel::new(),
            changed: List::new(),
            unrouted: List::new(),
            orphans: 0,
            half_open: 0,
            sockets_polled: 0,
            next_interface: 0,
            transmit_pending: false,
            local_bytes_left: 0,
            scratch: Vec::new(),
            config,
            rng,
            hash,
        };
        stack.interfaces.push(Interface::new(loopback_config(), ConflictDetection::Off));
        stack
    }

    /// Adds an interface, a route to the network of each of its addresses, and announces or probes them.
    pub fn add_interface(&mut self, now: Instant, config: InterfaceConfig) -> InterfaceId {
        let id = InterfaceId(self.interfaces.len() as u16);
        let networks: Vec<IpCidr> = config.addresses.clone();
        self.interfaces.push(Interface::new(config, self.config.conflict_detection));
        for network in networks {
            self.routes.add(Route { destination: network, gateway: None, interface: id, mtu: None });
        }
        self.start_addresses(now, id);
        self.on_addresses_changed();
        id
    }

    /// Adds a route; one to the same prefix over the same interface is replaced. `false`: the table is full, or there
    /// is no such interface.
    pub fn add_route(
        &mut self,
        destination: IpCidr,
        gateway: Option<IpAddr>,
        interface: InterfaceId,
    ) -> bool {
        self.insert_route(Route { destination, gateway, interface, mtu: None })
    }

    /// The same, with all that a route can say. An MTU counts for connections that are opened from now on.
    pub fn insert_route(&mut self, route: Route) -> bool {
        let mtu = route.mtu.map(|mtu| mtu.max(MIN_PATH_MTU));
        route.interface.index() < self.interfaces.len()
            && route.interface != InterfaceId::LOOPBACK
            && self.routes.add(Route { mtu, ..route })
    }

    /// When [`handle_deadlines`](Self::handle_deadlines) wants to be called. It may be early, never late.
    pub fn deadline(&self) -> Option<Instant> {
        self.wheel.deadline()
    }

    /// Lets the time pass: everything that was due is done, up to a bound; ask for the deadline again.
    pub fn handle_deadlines(&mut self, now: Instant) {
        let mut budget = TIMER_BATCH;
        while let Some(timer) = self.wheel.expire(now, &mut budget) {
            match timer {
                Timer::Socket(index) => self.on_socket_timer(now, index),
                Timer::TimeWait(index) => self.on_time_wait_timer(now, index),
                Timer::Neighbour(index) => self.on_neighbour_timer(now, index),
                Timer::Address(interface, number) => self.on_address_timer(now, interface, number),
                Timer::Reassembly => self.on_reassembly_timer(now),
            }
        }
    }

    /// The next socket whose observable state has changed, each once between asks.
    pub fn poll_changed(&mut self) -> Option<Change> {
        let index = self.changed.pop_front(&mut ChangedLinks(&mut self.sockets))?;
        let id = SocketId::from(self.sockets.key_at(index)?);
        let socket = self.sockets.get_index(index)?;
        if !matches!(socket.kind, Kind::Released) {
            return Some(Change::Updated(id));
        }
        let user_data = socket.user_data;
        self.sockets.remove(index);
        Some(Change::Released { id, user_data })
    }

    /// Closes a socket of any kind: its owner lets go. A connection sends a FIN after what is queued and lingers until
    /// all is acknowledged, or is reset if it holds data that nobody read. Exactly one [`Change::Released`] follows.
    ///
    /// # Errors
    /// `NoSuchSocket`; also for a socket that was closed before.
    pub fn close(&mut self, now: Instant, id: SocketId) -> Result<(), SocketError> {
        let socket = self.owned_mut(id)?;
        match socket.kind {
            Kind::Tcp(_) => self.close_tcp(now, id.index),
            Kind::Udp(_) => self.close_udp(id.index),
            Kind::Listener(_) => self.close_listener(now, id.index),
            Kind::Bound(_) => self.release(id.index),
            Kind::Released => return Err(SocketError::NoSuchSocket),
        }
        Ok(())
    }

    /// Changes an option.
    ///
    /// # Errors
    /// `NoSuchSocket`, or `NotSupported` by sockets of this kind.
    pub fn set_option(
        &mut self,
        now: Instant,
        id: SocketId,
        option: SocketOption,
    ) -> Result<(), SocketError> {
        let socket = self.owned_mut(id)?;
        match option {
            SocketOption::Ttl(ttl) => socket.ttl = ttl,
            SocketOption::Tos(tos) => socket.tos = tos,
            SocketOption::Broadcast(on) => {
                if let Kind::Udp(udp) = &mut socket.kind {
                    udp.broadcast = on;
                }
            }
            SocketOption::ReceiveRuns(on) => {
                if let Kind::Udp(udp) = &mut socket.kind {
                    udp.receives_runs = on;
                }
            }
            SocketOption::ReuseAddress(_) | SocketOption::ReusePort(_) => self.set_reuse(id.index, option),
            SocketOption::TellSent(on) => {
                socket.wants.set_sent(on);
                return self.set_tcp_option(now, id, option);
            }
            SocketOption::QueueErrors(on) => {
                socket.wants.set_errors(on);
                if !matches!(socket.kind, Kind::Udp(_)) {
                    return self.set_tcp_option(now, id, option);
                }
            }
            SocketOption::MtuDiscovery(manner) => {
                socket.mtu_discovery = manner;
                if !matches!(socket.kind, Kind::Udp(_)) {
                    return self.set_tcp_option(now, id, option);
                }
            }
            SocketOption::NoDelay(_)
            | SocketOption::Cork(_)
            | SocketOption::QuickAck(_)
            | SocketOption::Congestion(_)
            | SocketOption::Keepalive(_)
            | SocketOption::ReceiveLimit(_)
            | SocketOption::UserTimeout(_)
            | SocketOption::MaxSegment(_)
            | SocketOption::Linger2(_)
            | SocketOption::SynRetries(_)
            | SocketOption::FastOpen(_)
            | SocketOption::FastOpenConnect(_)
            | SocketOption::DeferAccept(_) => return self.set_tcp_option(now, id, option),
        }
        Ok(())
    }

    /// What kind of socket it is.
    pub fn kind(&self, id: SocketId) -> Option<SocketKind> {
        match self.sockets.get(id.into())?.kind {
            Kind::Bound(_) => Some(SocketKind::TcpBound),
            Kind::Listener(_) => Some(SocketKind::TcpListener),
            Kind::Tcp(_) => Some(SocketKind::TcpConnection),
            Kind::Udp(_) => Some(SocketKind::Udp),
            Kind::Released => None,
        }
    }

    /// The local end.
    pub fn local_addr(&self, id: SocketId) -> Option<SocketAddr> {
        self.sockets.get(id.into())?.local()
    }

    /// The remote end, of a connected socket.
    pub fn remote_addr(&self, id: SocketId) -> Option<SocketAddr> {
        self.sockets.get(id.into())?.remote()
    }

    /// Attaches a word to a socket.
    pub fn set_user_data(&mut self, id: SocketId, user_data: u64) {
        if let Some(socket) = self.sockets.get_mut(id.into()) {
            socket.user_data = user_data;
        }
    }

    /// The attached word; zero if there is none.
    pub fn user_data(&self, id: SocketId) -> u64 {
        self.sockets.get(id.into()).map_or(0, |socket| socket.user_data)
    }

    /// Whether `address` is one that this host uses.
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.locals.iter().any(|(local, _)| *local == address)
    }

    /// The address from which a packet to `remote` would go; `None`: there is no way to it.
    pub fn source_address_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let any = match remote {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => return None,
        };
        self.route_to(any, remote).ok().map(|(_, _, source)| source)
    }

    /// All routes, longest prefix first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// The interfaces with their names and capabilities.
    pub fn interfaces(&self) -> impl Iterator<Item = (InterfaceId, &str, &Capabilities)> {
        self.links().map(|(id, link)| (id, link.name.as_str(), &link.capabilities))
    }

    /// The addresses of an interface and how they stand.
    pub fn addresses(&self, interface: InterfaceId) -> impl Iterator<Item = (IpCidr, AddressState)> {
        let link = self.interfaces.get(interface.index());
        link.into_iter().flat_map(|link| link.addresses.iter().map(|own| (own.cidr, own.state)))
    }

    /// The neighbour cache.
    pub fn neighbours(&self) -> impl Iterator<Item = NeighbourInfo> {
        self.neighbours.iter().map(|entry| NeighbourInfo {
            interface: entry.interface,
            address: entry.address,
            hardware: entry.hardware,
            state: entry.state,
        })
    }

    /// The ports at which some UDP socket takes datagrams from anybody.
    pub fn udp_ports(&self) -> impl Iterator<Item = u16> {
        self.udp_endpoints.ports()
    }

    /// Grows whenever [`udp_ports`](Self::udp_ports) or what is known of [`neighbours`](Self::neighbours) changes: for an owner
    /// whose device drops what nobody here has a use for.
    pub fn interest_changes(&self) -> u64 {
        self.udp_endpoints.changes + self.neighbours.changes
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Operations made since the start.
    pub fn work(&self) -> Work {
        let (tcp_lookups, tcp_comparisons) = self.tcp_flows.work();
        let (udp_lookups, udp_comparisons) = self.udp_flows.work();
        Work {
            flow_lookups: tcp_lookups + udp_lookups,
            flow_comparisons: tcp_comparisons + udp_comparisons,
            timer_operations: self.wheel.operations(),
            sockets_polled: self.sockets_polled,
        }
    }

    /// How many sockets there are, orphans and those not yet reported as released included.
    pub fn socket_count(&self) -> usize {
        self.sockets.len()
    }

    /// How many TIME-WAIT records there are.
    pub fn time_wait_count(&self) -> usize {
        self.time_waits.len()
    }

    /// Bytes held of datagrams that wait for more fragments.
    pub fn fragment_bytes(&self) -> usize {
        self.reassembler.bytes()
    }

    /// How many timers are armed.
    pub fn timer_count(&self) -> usize {
        self.wheel.len()
    }

    /// The interfaces that lead to a device.
    pub(crate) fn links(&self) -> impl Iterator<Item = (InterfaceId, &Interface)> + Clone {
        self.interfaces.iter().enumerate().skip(1).map(|(number, link)| (InterfaceId(number as u16), link))
    }

    /// The sets of own addresses is made anew, and ways are found anew.
    pub(crate) fn on_addresses_changed(&mut self) {
        let usable = |(number, link): (usize, &Interface)| {
            let addresses = link.addresses.iter().filter(|own| own.state == AddressState::Usable);
            addresses.map(move |own| (own.cidr.address(), InterfaceId(number as u16))).collect::<Vec<_>>()
        };
        self.locals = self.interfaces.iter().enumerate().flat_map(usable).collect();
        self.passed = None;
        self.run = None;
        self.routes.bump_epoch();
    }

    /// A socket that its owner still holds.
    pub(crate) fn owned_mut(&mut self, id: SocketId) -> Result<&mut Socket<B>, SocketError> {
        let socket = self.sockets.get_mut(id.into()).ok_or(SocketError::NoSuchSocket)?;
        if socket.orphan { Err(SocketError::NoSuchSocket) } else { Ok(socket) }
    }

    /// The owner has to look at the socket.
    pub(crate) fn mark_changed(&mut self, index: u32) {
        self.changed.push_back(&mut ChangedLinks(&mut self.sockets), index);
    }

    /// The socket is done with: its port, its timers and its buffers go, and its owner is told.
    pub(crate) fn release(&mut self, index: u32) {
        self.part(index);
        self.leave_output(index);
        self.leave_tables(index);
        self.release_port(index);
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        if let Kind::Tcp(connection) = &mut socket.kind
            && let Some(timer) = connection.timer.take()
        {
            self.wheel.cancel(timer);
        }
        if core::mem::replace(&mut socket.orphan, true) && matches!(socket.kind, Kind::Tcp(_)) {
            self.orphans -= 1;
        }
        socket.kind = Kind::Released;
        if socket.silent {
            self.changed.remove(&mut ChangedLinks(&mut self.sockets), index);
            self.sockets.remove(index);
        } else {
            self.mark_changed(index);
        }
    }

    /// The socket no longer holds its port.
    pub(crate) fn release_port(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        let claim = socket.claim();
        socket.manner = None;
        let Some(claim) = claim else { return };
        match socket.kind {
            Kind::Udp(_) => self.udp_ports.release(&claim),
            Kind::Bound(_) | Kind::Listener(_) | Kind::Tcp(_) | Kind::Released => {
                self.tcp_ports.release(&claim);
            }
        }
    }

    /// Whoever shares the port is asked about the socket's new manner from now on.
    fn set_reuse(&mut self, index: u32, option: SocketOption) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        let (Some(mut claim), is_udp) = (socket.claim(), matches!(socket.kind, Kind::Udp(_))) else { return };
        let ports = if is_udp { &mut self.udp_ports } else { &mut self.tcp_ports };
        ports.release(&claim);
        match option {
            SocketOption::ReuseAddress(on) => claim.manner.reuse_address = on,
            SocketOption::ReusePort(on) => claim.manner.reuse_port = on,
            _ => {}
        }
        ports.hold(&claim);
        socket.manner = Some(claim.manner);
        match &mut socket.kind {
            Kind::Bound(bound) => bound.options.apply(option),
            Kind::Listener(listener) => listener.options.apply(option),
            Kind::Tcp(_) | Kind::Udp(_) | Kind::Released => {}
        }
    }
}

fn loopback_config() -> InterfaceConfig {
    let capabilities = Capabilities {
        medium: Medium::Ip,
        mtu: LOOPBACK_MTU,
        checksum_tx: true,
        checksum_rx: true,
        max_segmentation: 0,
        hardware_address: EthernetAddress::default(),
    };
    InterfaceConfig { name: "loopback".to_owned(), capabilities, addresses: Vec::new() }
}

/// An IPv4 address and port of a socket address, IPv4-mapped IPv6 ones included; the IPv6 wildcard means both families.
pub(crate) fn canonical(address: SocketAddr, v6_only: bool) -> Result<SocketAddr, SocketError> {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => Ok(SocketAddr::new(IpAddr::V4(v4), address.port())),
        IpAddr::V6(v6) if v6.is_unspecified() && !v6_only => {
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port()))
        }
        IpAddr::V6(_) => Err(SocketError::FamilyNotSupported),
    }
}

/// The addresses of a flow as IPv4 addresses; flows of the other family do not exist yet.
pub(crate) fn v4(tuple: &FourTuple) -> Option<(Ipv4Addr, Ipv4Addr)> {
    match (tuple.local.ip(), tuple.remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => Some((local, remote)),
        _ => None,
    }
}
