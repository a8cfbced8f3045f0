//! What is decided before a connection starts.

use base::Duration;

use crate::path_memory::PathMemory;

/// Which congestion control a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CongestionAlgorithm {
    /// Slow start and congestion avoidance by RFC 5681, with RFC 6582's recovery.
    NewReno = 0,
    /// CUBIC (RFC 9438) with HyStart++ (RFC 9406).
    #[default]
    Cubic = 1,
    /// BBRv3 (draft-ietf-ccwg-bbr).
    Bbr = 2,
}

impl CongestionAlgorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NewReno, Self::Cubic, Self::Bbr];

    /// Linux' name, as `TCP_CONGESTION` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    /// The one that has this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Its number, as the channel carries it.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The one that has this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::NewReno),
            1 => Some(Self::Cubic),
            2 => Some(Self::Bbr),
            _ => None,
        }
    }
}

/// Whether the peer's congestion feedback may be accurate (RFC 9768) instead of classic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AccurateEcn {
    /// Never.
    Off,
    /// Where the peer asks for it.
    #[default]
    Accept,
    /// We ask for it too, where we ask for ECN at all.
    Offer,
}

/// When a connection looks for a larger segment size by itself (RFC 4821), besides what routers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MtuProbing {
    /// Never.
    Off = 0,
    /// Once a black hole or a router's word has made segments smaller (Linux: `tcp_mtu_probing` 1).
    #[default]
    OnBlackHole = 1,
    /// From the start, beginning with small segments (Linux: `tcp_mtu_probing` 2).
    Always = 2,
}

impl MtuProbing {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Off),
            1 => Some(Self::OnBlackHole),
            2 => Some(Self::Always),
            _ => None,
        }
    }
}

/// The parameters of a connection. The defaults are those of a Linux host where the RFCs leave a choice.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest payload a segment may carry towards the peer: the path's MTU less 40 (IPv4) or 60 (IPv6), before
    /// TCP options are taken off.
    pub mss: u16,
    /// The MSS announced to the peer: the interface's MTU less 40 or 60 (RFC 9293 §3.7.1), or less. No larger segments are sent
    /// either.
    pub announced_mss: u16,
    /// The receive window at the start, in bytes.
    pub initial_window: u32,
    /// The largest receive window that autotuning may reach; decides the window scale.
    pub window_limit: u32,
    /// Offer and accept timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer and accept window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Offer and accept selective acknowledgements (RFC 2018).
    pub selective_acks: bool,
    /// Offer explicit congestion notification (RFC 3168), and accept it.
    pub ecn: bool,
    /// Accept it where the peer offers it, even if we do not (Linux: `tcp_ecn` 2).
    pub accept_ecn: bool,
    /// Whether its feedback may be accurate.
    pub accurate_ecn: AccurateEcn,
    /// The congestion control.
    pub congestion: CongestionAlgorithm,
    /// Spread a window over the round trip.
    pub pacing: bool,
    /// The initial congestion window in segments (RFC 6928).
    pub initial_congestion_window: u8,
    /// The lower bound of the retransmission timeout's variance term, as in Linux.
    pub rto_min: Duration,
    /// The upper bound of the retransmission timeout (RFC 6298 §2.5).
    pub rto_max: Duration,
    /// The retransmission timeout before a round trip was measured (RFC 6298 §2.1).
    pub rto_initial: Duration,
    /// The longest that an acknowledgement is held back (RFC 1122 §4.2.3.2: below 500 ms).
    pub delayed_ack: Duration,
    /// A passive open waits so long for the peer's first data before a bare acknowledgement is enough
    /// (`TCP_DEFER_ACCEPT`); zero: not at all.
    pub defer_accept: Duration,
    /// How often a SYN or SYN-ACK is retransmitted.
    pub syn_retries: u8,
    /// How often data is retransmitted before the connection times out (R2, RFC 9293 §3.8.3).
    pub retries: u8,
    /// How long FIN-WAIT-2 lasts after the owner has let go.
    pub fin_wait_2: Duration,
    /// How long TIME-WAIT lasts: 2 MSL (Linux: 60 s).
    pub time_wait: Duration,
    /// The granularity of the caller's clock: no timer can be finer.
    pub clock_granularity: Duration,
    /// Send small segments at once (`TCP_NODELAY`).
    pub nodelay: bool,
    /// Hold small segments back (`TCP_CORK`).
    pub cork: bool,
    /// Acknowledge every segment at once (`TCP_QUICKACK`).
    pub quickack: bool,
    /// Keepalive, if wanted.
    pub keepalive: Option<Keepalive>,
    /// Give up after data was unacknowledged for this long (`TCP_USER_TIMEOUT`, RFC 5482).
    pub user_timeout: Option<Duration>,
    /// Tell the peer of the user timeout in the SYN, and without one of our own take the peer's (RFC 5482 §3). Off, as Linux is:
    /// it lets a peer have us hold its dead connection longer, within bounds.
    pub user_timeout_option: bool,
    /// Whether a larger segment size is looked for.
    pub mtu_probing: MtuProbing,
    /// What earlier connections to the same peer found out (RFC 9040).
    pub remembered: Option<PathMemory>,
}

/// Keepalive probes on an idle connection (RFC 9293 §3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe (`TCP_KEEPIDLE`), kept in whole seconds.
    pub idle: Duration,
    /// Time between probes (`TCP_KEEPINTVL`), kept in whole seconds.
    pub interval: Duration,
    /// Unanswered probes after which the connection is dropped (`TCP_KEEPCNT`).
    pub count: u8,
}

impl Default for Keepalive {
    /// Two hours, 75 seconds, nine probes.
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), count: 9 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1460,
            announced_mss: 1460,
            initial_window: 65_535,
            window_limit: 6 << 20,
            timestamps: true,
            window_scaling: true,
            selective_acks: true,
            ecn: false,
            accept_ecn: true,
            accurate_ecn: AccurateEcn::default(),
            congestion: CongestionAlgorithm::default(),
            pacing: true,
            initial_congestion_window: 10,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            rto_initial: Duration::from_secs(1),
            delayed_ack: Duration::from_millis(40),
            defer_accept: Duration::ZERO,
            syn_retries: 6,
            retries: 15,
            fin_wait_2: Duration::from_secs(60),
            time_wait: Duration::from_secs(60),
            clock_granularity: Duration::from_micros(1),
            nodelay: false,
            cork: false,
            quickack: false,
            keepalive: None,
            user_timeout: None,
            user_timeout_option: false,
            mtu_probing: MtuProbing::default(),
            remembered: None,
        }
    }
}
