//! What a host is made of: its limits, its interfaces, and the options of a socket.

use base::{Duration, IpCidr};
use tcp::{CongestionAlgorithm, Keepalive};
use wire::frame::Capabilities;

/// Limits and manners of a whole stack. [`Default`] gives what a server wants.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Sockets of all kinds, orphans included. TIME-WAIT records count apart.
    pub max_sockets: usize,
    /// Connections that their owner has closed and that are not finished yet; beyond it they are reset.
    pub max_orphans: usize,
    /// How long an orphan may take to finish before it is reset, and how long one stays in FIN-WAIT-2.
    pub orphan_timeout: Duration,
    /// TIME-WAIT records; beyond it a connection skips TIME-WAIT, as on Linux.
    pub max_time_wait: usize,
    /// The largest backlog that a listener gets, whatever it asks for (Linux: `net.core.somaxconn`).
    pub max_backlog: usize,
    /// Half-open connections of all listeners together.
    pub max_half_open: usize,
    /// The first and the last ephemeral port.
    pub ephemeral_ports: (u16, u16),
    /// Neighbour entries.
    pub max_neighbours: usize,
    /// Bytes of fragments that wait for the rest, all sources together.
    pub max_fragment_bytes: usize,
    /// Bytes of fragments that wait for the rest, of one source.
    pub max_fragment_bytes_per_source: usize,
    /// ICMP errors: this many a second, with the burst below.
    pub error_rate: u32,
    /// See [`error_rate`](Self::error_rate).
    pub error_burst: u32,
    /// Whether echo requests are answered.
    pub answer_echo: bool,
    /// What is done about others that use our addresses (RFC 5227).
    pub conflict_detection: ConflictDetection,
    /// Whether a new connection starts with what earlier ones to the same host found out (RFC 9040).
    pub share_path_information: bool,
    /// Time to live of packets that a socket does not set itself.
    pub ttl: u8,
    /// When listeners answer SYNs with cookies.
    pub syn_cookies: SynCookieMode,
    /// TCP Fast Open; a socket uses it only where its owner asks for it.
    pub fast_open: FastOpenConfig,
    /// The defaults of every TCP connection.
    pub tcp: tcp::Config,
}

/// When a listener answers a SYN with a cookie (RFC 4987 §3.6), which costs no memory until the peer has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SynCookieMode {
    /// Never: when too many connections are half-open, the oldest make room.
    Off,
    /// When too many connections are half-open.
    #[default]
    WhenFull,
    /// Always.
    Always,
}

/// TCP Fast Open (RFC 7413).
#[derive(Clone, Debug)]
pub struct FastOpenConfig {
    /// Connections may be opened with data in the SYN.
    pub client: bool,
    /// Listeners may take data that comes in a SYN.
    pub server: bool,
    /// The key of the server's cookies, for servers that share an address or must know their cookies again after a
    /// restart; its owner renews it by `Stack::renew_fast_open_key`. `None`: a random one.
    pub key: Option<[u8; 16]>,
    /// How often a random key is renewed; the one before stays good for as long again. Zero: never.
    pub key_lifetime: Duration,
    /// How many peers are remembered with their cookies.
    pub max_peers: usize,
}

impl Default for FastOpenConfig {
    fn default() -> Self {
        Self {
            client: true,
            server: true,
            key: None,
            key_lifetime: Duration::from_secs(24 * 3600),
            max_peers: 1024,
        }
    }
}

/// What is done about other hosts that use an address of ours (RFC 5227).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ConflictDetection {
    /// Nothing; conflicts are only counted.
    Off,
    /// The address is used at once and announced; it is defended when somebody else uses it.
    #[default]
    Announce,
    /// The address is probed first (some six seconds) and not used before nobody has answered.
    Probe,
}

/// A network interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Its name, for status output.
    pub name: String,
    /// What the device can do.
    pub capabilities: Capabilities,
    /// Its addresses with the prefixes of the networks they stand on. A route to each network is added.
    pub addresses: Vec<IpCidr>,
}

/// The options that a socket has when it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// `SO_REUSEADDR`.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`.
    pub reuse_port: bool,
    /// `SO_BROADCAST`.
    pub broadcast: bool,
    /// `IPV6_V6ONLY` has no effect yet; kept so that an application's wish is not lost.
    pub v6_only: bool,
    /// `IP_TTL`; `None`: the stack's default.
    pub ttl: Option<u8>,
    /// `IP_TOS`; the two ECN bits are TCP's own.
    pub tos: u8,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// `TCP_CORK`.
    pub cork: bool,
    /// `TCP_QUICKACK`.
    pub quickack: bool,
    /// `TCP_CONGESTION`; `None`: the stack's default.
    pub congestion: Option<CongestionAlgorithm>,
    /// `SO_KEEPALIVE`, with `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`.
    pub keepalive: Option<Keepalive>,
    /// The largest receive window in bytes (`SO_RCVBUF`); `None`: the stack's default.
    pub receive_limit: Option<u32>,
    /// `TCP_MAXSEG`.
    pub max_segment: Option<u16>,
    /// `TCP_USER_TIMEOUT`.
    pub user_timeout: Option<Duration>,
    /// `TCP_LINGER2`: how long an orphan stays in FIN-WAIT-2, zero: it is reset; `None`: the stack's default.
    pub linger2: Option<Duration>,
    /// `TCP_SYNCNT`: how often a SYN or SYN-ACK is sent again; `None`: the stack's default.
    pub syn_retries: Option<u8>,
    /// `TCP_FASTOPEN`: how many connections of a listener may have begun with data in the SYN and not yet finished
    /// their handshake; 0: none.
    pub fast_open: u32,
    /// `TCP_FASTOPEN_CONNECT`: an active open uses fast open; with a cookie its SYN waits for the first data.
    pub fast_open_connect: bool,
    /// `TCP_DEFER_ACCEPT`: a listener's connections are established only with their first data, or after this time.
    pub defer_accept: Option<Duration>,
    /// See [`SocketOption::TellSent`].
    pub tell_sent: bool,
    /// See [`SocketOption::MtuDiscovery`].
    pub mtu_discovery: MtuDiscovery,
    /// See [`SocketOption::QueueErrors`].
    pub queue_errors: bool,
    /// See [`SocketOption::ReceiveRuns`].
    pub receive_runs: bool,
}

/// What is done about packets that are too long for their path (`IP_MTU_DISCOVER`, by Linux's numbers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum MtuDiscovery {
    /// They may be fragmented on the way; what routers say of their size does not matter.
    Dont = 0,
    /// They may not, and routers are heeded. A datagram that is too long is fragmented here.
    #[default]
    Want = 1,
    /// The same, but a datagram that is too long is refused.
    Do = 2,
    /// They may not, a datagram may be as long as the link takes it, and is refused beyond that.
    Probe = 3,
    /// As `Dont`, but a datagram that is too long for the link is refused.
    Interface = 4,
    /// As `Dont`, by the link's MTU.
    Omit = 5,
}

impl MtuDiscovery {
    /// The one with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Dont),
            1 => Some(Self::Want),
            2 => Some(Self::Do),
            3 => Some(Self::Probe),
            4 => Some(Self::Interface),
            5 => Some(Self::Omit),
            _ => None,
        }
    }

    /// Whether packets may be fragmented on their way.
    pub const fn may_fragment(self) -> bool {
        matches!(self, Self::Dont | Self::Interface | Self::Omit)
    }

    /// Whether a datagram that is too long is refused.
    pub const fn refuses(self) -> bool {
        matches!(self, Self::Do | Self::Probe | Self::Interface)
    }

    /// Whether only the link's MTU counts for datagrams, not the path's.
    pub const fn goes_by_link(self) -> bool {
        matches!(self, Self::Probe | Self::Interface | Self::Omit)
    }
}

/// One option, changed while the socket lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// `SO_REUSEADDR`; counts from the next bind on, and for whoever binds later.
    ReuseAddress(bool),
    /// `SO_REUSEPORT`.
    ReusePort(bool),
    /// `SO_BROADCAST`.
    Broadcast(bool),
    /// `IP_TTL`.
    Ttl(u8),
    /// `IP_TOS`.
    Tos(u8),
    /// `TCP_NODELAY`.
    NoDelay(bool),
    /// `TCP_CORK`.
    Cork(bool),
    /// `TCP_QUICKACK`.
    QuickAck(bool),
    /// `TCP_CONGESTION`.
    Congestion(CongestionAlgorithm),
    /// `SO_KEEPALIVE` with its times.
    Keepalive(Option<Keepalive>),
    /// The largest receive window in bytes.
    ReceiveLimit(u32),
    /// `TCP_USER_TIMEOUT`; `None` for the default.
    UserTimeout(Option<Duration>),
    /// `TCP_MAXSEG`; `None` for what the link allows. It counts for connections that are opened from then on.
    MaxSegment(Option<u16>),
    /// `TCP_LINGER2`.
    Linger2(Option<Duration>),
    /// `TCP_SYNCNT`; `None` for the default. It counts for connections that are opened from then on.
    SynRetries(Option<u8>),
    /// `TCP_FASTOPEN`.
    FastOpen(u32),
    /// `TCP_FASTOPEN_CONNECT`.
    FastOpenConnect(bool),
    /// `TCP_DEFER_ACCEPT`.
    DeferAccept(Option<Duration>),
    /// The owner wants to hear of what a connection has sent, too, not only of what is acknowledged (for
    /// `TCP_NOTSENT_LOWAT`).
    TellSent(bool),
    /// `IP_MTU_DISCOVER`.
    MtuDiscovery(MtuDiscovery),
    /// `IP_RECVERR`: ICMP errors are kept for the owner, and told to who is not connected and of what may pass, too.
    QueueErrors(bool),
    /// `UDP_GRO`: datagrams that were sent as a run may be received as one.
    ReceiveRuns(bool),
}

impl SocketOptions {
    /// An option of a socket that is not connected is kept for its connections.
    pub fn apply(&mut self, option: SocketOption) {
        match option {
            SocketOption::ReuseAddress(on) => self.reuse_address = on,
            SocketOption::ReusePort(on) => self.reuse_port = on,
            SocketOption::Broadcast(on) => self.broadcast = on,
            SocketOption::Ttl(ttl) => self.ttl = Some(ttl),
            SocketOption::Tos(tos) => self.tos = tos,
            SocketOption::NoDelay(on) => self.nodelay = on,
            SocketOption::Cork(on) => self.cork = on,
            SocketOption::QuickAck(on) => self.quickack = on,
            SocketOption::Congestion(algorithm) => self.congestion = Some(algorithm),
            SocketOption::Keepalive(times) => self.keepalive = times,
            SocketOption::ReceiveLimit(bytes) => self.receive_limit = Some(bytes),
            SocketOption::UserTimeout(time) => self.user_timeout = time,
            SocketOption::MaxSegment(size) => self.max_segment = size,
            SocketOption::Linger2(time) => self.linger2 = time,
            SocketOption::SynRetries(count) => self.syn_retries = count,
            SocketOption::FastOpen(limit) => self.fast_open = limit,
            SocketOption::FastOpenConnect(on) => self.fast_open_connect = on,
            SocketOption::DeferAccept(time) => self.defer_accept = time,
            SocketOption::TellSent(on) => self.tell_sent = on,
            SocketOption::MtuDiscovery(manner) => self.mtu_discovery = manner,
            SocketOption::QueueErrors(on) => self.queue_errors = on,
            SocketOption::ReceiveRuns(on) => self.receive_runs = on,
        }
    }
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            max_sockets: 1 << 20,
            max_orphans: 1 << 16,
            orphan_timeout: Duration::from_secs(60),
            max_time_wait: 1 << 16,
            max_backlog: 4096,
            max_half_open: 1 << 14,
            ephemeral_ports: (32_768, 60_999),
            max_neighbours: 1024,
            max_fragment_bytes: 4 << 20,
            max_fragment_bytes_per_source: 1 << 20,
            error_rate: 1000,
            error_burst: 50,
            answer_echo: true,
            conflict_detection: ConflictDetection::default(),
            share_path_information: true,
            ttl: 64,
            syn_cookies: SynCookieMode::default(),
            fast_open: FastOpenConfig::default(),
            tcp: tcp::Config::default(),
        }
    }
}
