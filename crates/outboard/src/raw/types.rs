//! The small values of the raw interface: what to wait for, what is ready, options, a datagram's fate.

use std::net::SocketAddr;
use std::time::Duration;

use stack::MtuDiscovery;
use tcp::CongestionAlgorithm;

/// What a caller wants to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Bytes, a datagram, a connection to accept, or the end of the stream.
    pub readable: bool,
    /// Room to send, or the end of a connection attempt.
    pub writable: bool,
}

impl Interest {
    /// Readable only.
    pub const READABLE: Self = Self { readable: true, writable: false };
    /// Writable only.
    pub const WRITABLE: Self = Self { readable: false, writable: true };
    /// Readable or writable.
    pub const BOTH: Self = Self { readable: true, writable: true };
}

/// What a socket is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A receive or accept would not wait: there is something, or the end.
    pub readable: bool,
    /// A send would not wait: there is room, or the connection cannot send any more.
    pub writable: bool,
    /// The peer sends nothing any more (its FIN came, or the connection ended).
    pub peer_closed: bool,
    /// Neither direction is open any more (or the socket was never connected).
    pub hangup: bool,
    /// An error waits to be taken.
    pub error: bool,
    /// The queue of errors holds something: poll(2) calls that an error, but nobody who waits to read or write is woken for it.
    pub queued_errors: bool,
    /// An urgent byte has come that was neither received nor passed (`POLLPRI`). Whoever waits to read is woken for it.
    pub urgent: bool,
}

impl Readiness {
    /// Whether a wait for `interest` ends with this readiness.
    pub fn satisfies(self, interest: Interest) -> bool {
        self.error
            || self.hangup
            || (interest.readable && self.readable)
            || (interest.writable && self.writable)
    }
}

/// An option to set. [`Options`] holds the values that are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// Nagle's algorithm off.
    NoDelay(bool),
    /// Hold back partial segments.
    Cork(bool),
    /// Acknowledge every segment at once.
    QuickAck(bool),
    /// The congestion control.
    Congestion(CongestionAlgorithm),
    /// Probe an idle connection.
    KeepAlive(bool),
    /// Idle time before the first keepalive probe.
    KeepAliveIdle(Duration),
    /// Time between keepalive probes.
    KeepAliveInterval(Duration),
    /// Unanswered keepalive probes after which the connection is given up.
    KeepAliveProbes(u32),
    /// How long sent data may stay unacknowledged; zero: the stack's own limit.
    UserTimeout(Duration),
    /// `TCP_LINGER2`: how long a closed connection waits for its peer's end; `None`: as long as the stack does for all.
    Linger2(Option<Duration>),
    /// `TCP_SYNCNT`: how often a SYN is sent again before connecting fails; `None`: as often as for all.
    SynRetries(Option<u8>),
    /// What closing does with unsent data: `None` delivers it in the background, zero resets the connection.
    Linger(Option<Duration>),
    /// Time to live of sent packets.
    Ttl(u32),
    /// Type-of-service byte of sent packets.
    TypeOfService(u8),
    /// Bind although an old connection still holds the port.
    ReuseAddress(bool),
    /// Several sockets share the port.
    ReusePort(bool),
    /// Datagrams may go to broadcast addresses.
    Broadcast(bool),
    /// `SO_OOBINLINE`: urgent bytes are received in the line, like all others.
    UrgentInline(bool),
    /// `TCP_MAXSEG`: the largest segment of connections that are opened from now on; 0: what the link allows.
    MaxSegment(u32),
    /// The receive buffer's limit in bytes; it grows up to that.
    ReceiveBuffer(u32),
    /// The send buffer's limit in bytes; it grows up to that.
    SendBuffer(u32),
    /// Bytes that must be there before a reader is woken.
    ReceiveLowWater(u32),
    /// `TCP_NOTSENT_LOWAT`: a send queues more only while fewer bytes than this are queued and not sent, and the socket is
    /// writable while twice as many are fewer; 0: that does not matter.
    NotSentLowWater(u32),
    /// What is done about packets that are too long for their path (`IP_MTU_DISCOVER`).
    MtuDiscovery(MtuDiscovery),
    /// ICMP errors, and what is too long to be sent, are kept to be taken one by one (`IP_RECVERR`).
    QueueErrors(bool),
    /// Datagrams that were sent as a run may be received as one (`UDP_GRO`).
    ReceiveRuns(bool),
    /// How many connections of a listener may have begun with data in their SYN (TCP Fast Open) and not yet finished the
    /// handshake; 0: none.
    FastOpen(u32),
    /// Connecting uses TCP Fast Open: where the peer's cookie is known, the connection begins with the first send.
    FastOpenConnect(bool),
    /// A listener's connections are there to be accepted only with their first data, or after this time; zero: at once.
    DeferAccept(Duration),
}

/// The options in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// See [`SocketOption::NoDelay`].
    pub nodelay: bool,
    /// See [`SocketOption::Cork`].
    pub cork: bool,
    /// See [`SocketOption::QuickAck`].
    pub quickack: bool,
    /// See [`SocketOption::Congestion`]; `None`: the stack's default.
    pub congestion: Option<CongestionAlgorithm>,
    /// See [`SocketOption::KeepAlive`].
    pub keepalive: bool,
    /// See [`SocketOption::KeepAliveIdle`].
    pub keepalive_idle: Duration,
    /// See [`SocketOption::KeepAliveInterval`].
    pub keepalive_interval: Duration,
    /// See [`SocketOption::KeepAliveProbes`].
    pub keepalive_probes: u32,
    /// See [`SocketOption::UserTimeout`].
    pub user_timeout: Duration,
    /// See [`SocketOption::Linger2`].
    pub linger2: Option<Duration>,
    /// See [`SocketOption::SynRetries`].
    pub syn_retries: Option<u8>,
    /// See [`SocketOption::Linger`].
    pub linger: Option<Duration>,
    /// See [`SocketOption::Ttl`].
    pub ttl: u32,
    /// See [`SocketOption::TypeOfService`].
    pub type_of_service: u8,
    /// See [`SocketOption::ReuseAddress`].
    pub reuse_address: bool,
    /// See [`SocketOption::ReusePort`].
    pub reuse_port: bool,
    /// See [`SocketOption::Broadcast`].
    pub broadcast: bool,
    /// See [`SocketOption::UrgentInline`].
    pub urgent_inline: bool,
    /// See [`SocketOption::MaxSegment`].
    pub max_segment: u32,
    /// See [`SocketOption::ReceiveBuffer`].
    pub receive_buffer: u32,
    /// See [`SocketOption::SendBuffer`].
    pub send_buffer: u32,
    /// See [`SocketOption::ReceiveLowWater`].
    pub receive_low_water: u32,
    /// See [`SocketOption::NotSentLowWater`].
    pub not_sent_low_water: u32,
    /// See [`SocketOption::MtuDiscovery`].
    pub mtu_discovery: MtuDiscovery,
    /// See [`SocketOption::QueueErrors`].
    pub queue_errors: bool,
    /// See [`SocketOption::ReceiveRuns`].
    pub receive_runs: bool,
    /// See [`SocketOption::FastOpen`].
    pub fast_open: u32,
    /// See [`SocketOption::FastOpenConnect`].
    pub fast_open_connect: bool,
    /// See [`SocketOption::DeferAccept`].
    pub defer_accept: Duration,
}

impl Options {
    /// The options that the stack keeps and that are not as a fresh socket's: what sets them again. Linux forgets the largest
    /// segment with the attempt.
    pub(crate) fn each(&self) -> impl Iterator<Item = SocketOption> {
        use SocketOption as Set;
        let fresh = Self::default();
        [
            (self.nodelay != fresh.nodelay).then_some(Set::NoDelay(self.nodelay)),
            (self.cork != fresh.cork).then_some(Set::Cork(self.cork)),
            (self.quickack != fresh.quickack).then_some(Set::QuickAck(self.quickack)),
            self.congestion.map(Set::Congestion),
            // With its times.
            (self.keepalive != fresh.keepalive).then_some(Set::KeepAlive(self.keepalive)),
            (self.user_timeout != fresh.user_timeout).then_some(Set::UserTimeout(self.user_timeout)),
            self.linger2.map(|time| Set::Linger2(Some(time))),
            self.syn_retries.map(|count| Set::SynRetries(Some(count))),
            (self.ttl != fresh.ttl).then_some(Set::Ttl(self.ttl)),
            (self.type_of_service != fresh.type_of_service)
                .then_some(Set::TypeOfService(self.type_of_service)),
            (self.reuse_address != fresh.reuse_address).then_some(Set::ReuseAddress(self.reuse_address)),
            (self.reuse_port != fresh.reuse_port).then_some(Set::ReusePort(self.reuse_port)),
            (self.receive_buffer != fresh.receive_buffer).then_some(Set::ReceiveBuffer(self.receive_buffer)),
            self.fast_open_connect.then_some(Set::FastOpenConnect(true)),
            (self.not_sent_low_water > 0).then_some(Set::NotSentLowWater(self.not_sent_low_water)),
            (self.mtu_discovery != fresh.mtu_discovery).then_some(Set::MtuDiscovery(self.mtu_discovery)),
            self.queue_errors.then_some(Set::QueueErrors(true)),
        ]
        .into_iter()
        .flatten()
    }

    pub(crate) fn apply(&mut self, option: SocketOption) {
        match option {
            SocketOption::NoDelay(on) => self.nodelay = on,
            SocketOption::Cork(on) => self.cork = on,
            SocketOption::QuickAck(on) => self.quickack = on,
            SocketOption::Congestion(algorithm) => self.congestion = Some(algorithm),
            SocketOption::KeepAlive(on) => self.keepalive = on,
            SocketOption::KeepAliveIdle(time) => self.keepalive_idle = time,
            SocketOption::KeepAliveInterval(time) => self.keepalive_interval = time,
            SocketOption::KeepAliveProbes(count) => self.keepalive_probes = count,
            SocketOption::UserTimeout(time) => self.user_timeout = time,
            SocketOption::Linger2(time) => self.linger2 = time,
            SocketOption::SynRetries(count) => self.syn_retries = count,
            SocketOption::Linger(time) => self.linger = time,
            SocketOption::Ttl(ttl) => self.ttl = ttl,
            SocketOption::TypeOfService(value) => self.type_of_service = value,
            SocketOption::ReuseAddress(on) => self.reuse_address = on,
            SocketOption::ReusePort(on) => self.reuse_port = on,
            SocketOption::Broadcast(on) => self.broadcast = on,
            SocketOption::UrgentInline(on) => self.urgent_inline = on,
            SocketOption::MaxSegment(size) => self.max_segment = size,
            SocketOption::ReceiveBuffer(bytes) => self.receive_buffer = bytes,
            SocketOption::SendBuffer(bytes) => self.send_buffer = bytes,
            SocketOption::ReceiveLowWater(bytes) => self.receive_low_water = bytes.max(1),
            SocketOption::NotSentLowWater(bytes) => self.not_sent_low_water = bytes,
            SocketOption::MtuDiscovery(manner) => self.mtu_discovery = manner,
            SocketOption::QueueErrors(on) => self.queue_errors = on,
            SocketOption::ReceiveRuns(on) => self.receive_runs = on,
            SocketOption::FastOpen(limit) => self.fast_open = limit,
            SocketOption::FastOpenConnect(on) => self.fast_open_connect = on,
            SocketOption::DeferAccept(time) => self.defer_accept = time,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodelay: false,
            cork: false,
            quickack: false,
            congestion: None,
            keepalive: false,
            keepalive_idle: Duration::from_secs(7200),
            keepalive_interval: Duration::from_secs(75),
            keepalive_probes: 9,
            user_timeout: Duration::ZERO,
            linger2: None,
            syn_retries: None,
            linger: None,
            ttl: 64,
            type_of_service: 0,
            reuse_address: false,
            reuse_port: false,
            broadcast: false,
            urgent_inline: false,
            max_segment: 0,
            receive_buffer: 0,
            send_buffer: 0,
            receive_low_water: 1,
            not_sent_low_water: 0,
            mtu_discovery: MtuDiscovery::default(),
            queue_errors: false,
            receive_runs: false,
            fast_open: 0,
            fast_open_connect: false,
            defer_accept: Duration::ZERO,
        }
    }
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes copied into the caller's buffers.
    pub copied: usize,
    /// Bytes that the datagram had; more than `copied` if it was cut.
    pub length: usize,
    /// Who sent it.
    pub remote: SocketAddr,
    /// The address it was sent to.
    pub local: SocketAddr,
    /// The time to live that it came with.
    pub ttl: u8,
    /// The type of service that it came with.
    pub tos: u8,
    /// Not 0: it is a run of datagrams of this length, the last of which may be shorter.
    pub segment: u16,
    /// When it came, in nanoseconds of CLOCK_MONOTONIC.
    pub arrival_ns: u64,
}
