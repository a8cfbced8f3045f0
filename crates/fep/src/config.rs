//! The configuration of a FEP: a TOML file, flags over it, defaults under both.
//!
//! [`Settings`] is what a file or a command line says, every entry optional; [`Settings::over`] lays one over another;
//! [`Config::new`] checks the sum and fills in the defaults. A key that does not exist is an error that names it, and
//! so is a value that cannot be meant. `docs/outboard.toml` lists every key.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use base::{Duration, IpCidr};
use serde::{Deserialize, Serialize};
use stack::SynCookieMode;
use tcp::{AccurateEcn, CongestionAlgorithm, MtuProbing};

use crate::{names, slice};

mod route;

pub use route::{NetworkRoute, RouteSetting};

/// The smallest MTU: what every IPv4 host must be able to take (RFC 791 §3.1 asks 576 of the whole datagram).
pub const MIN_MTU: u32 = 576;
/// The largest MTU: what the length field of an IPv4 header can say.
pub const MAX_MTU: u32 = 65_535;
/// How long the worker looks for work without sleeping, unless the configuration says otherwise.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(50);
/// The slice that a worker asks for, unless the configuration says otherwise: the shortest.
pub const DEFAULT_SLICE: Duration = slice::SHORTEST;
/// Longer spinning than this is a mistake in the unit.
const MAX_SPIN_US: u64 = 1_000_000;

/// What a configuration file or a command line says. Everything may be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The name that `outboard status --name` and `outboard run --name` use.
    pub name: Option<String>,
    /// The path of the control socket; by default it follows from the name.
    pub socket: Option<PathBuf>,
    /// Permissions of the control socket, an octal text as in `"0660"`.
    pub socket_mode: Option<String>,
    /// The TAP device, created if it is absent.
    pub tap: Option<String>,
    /// The addresses of the stack, each with its prefix length.
    pub address: Option<OneOrMany>,
    /// The gateway of the default route.
    pub gateway: Option<IpAddr>,
    /// Further routes.
    pub route: Option<Vec<RouteSetting>>,
    /// An address for the kernel's side of the TAP device.
    pub kernel_address: Option<String>,
    /// The largest IP packet, in bytes.
    pub mtu: Option<u32>,
    /// Whether the device may segment and checksum. On unless this says otherwise.
    pub offload: Option<bool>,
    /// Bare IP packets over a TUN device instead of Ethernet frames over a TAP device.
    pub tun: Option<bool>,
    /// The congestion control of connections that choose none: `cubic`, `reno` or `bbr`.
    #[serde(alias = "congestion-control")]
    pub congestion_control: Option<String>,
    /// When listeners answer SYNs with cookies: `off`, `full` or `always`.
    #[serde(alias = "syn-cookies")]
    pub syn_cookies: Option<String>,
    /// Whether connections may begin with data in the SYN, where programs ask for it. On unless this says otherwise.
    #[serde(alias = "fast-open")]
    pub fast_open: Option<bool>,
    /// Explicit congestion notification.
    pub ecn: Option<EcnSetting>,
    /// Whether larger segments are searched for by probing.
    pub mtu_probing: Option<MtuProbingSetting>,
    /// Whether a connection starts with what earlier ones to the same host found out.
    pub share_path_information: Option<bool>,
    /// Whether SYNs tell of user timeouts, and the peer's is heeded (RFC 5482). Off unless this says otherwise.
    pub user_timeout_option: Option<bool>,
    /// Microseconds of looking for work before sleeping.
    pub spin_us: Option<u64>,
    /// Microseconds of the worker's slice of its processor; 0: the system's.
    pub slice_us: Option<u64>,
    /// A pcapng file that gets a copy of every frame.
    pub capture: Option<PathBuf>,
    /// Limits.
    pub limits: Option<LimitSettings>,
}

/// Explicit congestion notification in a configuration file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EcnSetting {
    /// Never.
    Off,
    /// Where the peer asks for it, with accurate feedback if it asks for that.
    #[default]
    Accept,
    /// It is asked for, with classic feedback.
    Classic,
    /// It is asked for, with accurate feedback.
    Accurate,
}

/// Probing for a larger path MTU in a configuration file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MtuProbingSetting {
    /// Never.
    Off,
    /// Once a black hole or a router has made segments smaller.
    #[default]
    BlackHole,
    /// From the start of every connection.
    Always,
}

/// What connections do about their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathManners {
    /// Explicit congestion notification.
    pub ecn: EcnSetting,
    /// Probing for a larger path MTU.
    pub mtu_probing: MtuProbingSetting,
    /// Whether a connection starts with what earlier ones to the same host found out.
    pub share_information: bool,
}

impl Default for PathManners {
    fn default() -> Self {
        Self {
            ecn: EcnSetting::default(),
            mtu_probing: MtuProbingSetting::default(),
            share_information: true,
        }
    }
}

impl PathManners {
    fn new(settings: &Settings) -> Self {
        let default = Self::default();
        Self {
            ecn: settings.ecn.unwrap_or(default.ecn),
            mtu_probing: settings.mtu_probing.unwrap_or(default.mtu_probing),
            share_information: settings.share_path_information.unwrap_or(default.share_information),
        }
    }

    /// Writes them into the configuration of connections.
    pub(crate) fn apply(&self, tcp: &mut tcp::Config) {
        tcp.ecn = matches!(self.ecn, EcnSetting::Classic | EcnSetting::Accurate);
        tcp.accept_ecn = self.ecn != EcnSetting::Off;
        tcp.accurate_ecn = match self.ecn {
            EcnSetting::Off => AccurateEcn::Off,
            EcnSetting::Accept | EcnSetting::Classic => AccurateEcn::Accept,
            EcnSetting::Accurate => AccurateEcn::Offer,
        };
        tcp.mtu_probing = match self.mtu_probing {
            MtuProbingSetting::Off => MtuProbing::Off,
            MtuProbingSetting::BlackHole => MtuProbing::OnBlackHole,
            MtuProbingSetting::Always => MtuProbing::Always,
        };
    }
}

/// One text or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// `address = "10.0.0.2/24"`
    One(String),
    /// `address = ["10.0.0.2/24", "10.0.0.3/24"]`
    Many(Vec<String>),
}

/// Limits in a configuration file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// Applications at a time.
    pub applications: Option<u32>,
    /// Applications at a time of one user other than root and the FEP's own.
    pub applications_per_user: Option<u32>,
    /// Sockets of one application.
    pub sockets: Option<u32>,
    /// Bytes of send buffers, and of receive buffers, of one application.
    pub buffer_bytes: Option<u64>,
    /// Bytes of receive buffers of all applications together.
    pub memory_bytes: Option<u64>,
    /// The largest receive buffer of one socket.
    pub receive_buffer_max: Option<u64>,
    /// Connections that outlive their application while their last bytes drain.
    pub orphans: Option<u32>,
    /// Seconds after which such a connection is reset.
    pub orphan_seconds: Option<u32>,
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The FEP's name.
    pub name: String,
    /// The path of the control socket.
    pub socket: PathBuf,
    /// Permissions of the control socket.
    pub socket_mode: u32,
    /// The TAP device's name.
    pub tap: String,
    /// What the stack is told.
    pub network: Network,
    /// An address for the kernel's side of the TAP device.
    pub kernel_address: Option<IpCidr>,
    /// Whether the device may segment and checksum.
    pub offload: bool,
    /// Whether the device carries bare IP packets.
    pub tun: bool,
    /// A pcapng file that gets a copy of every frame.
    pub capture: Option<PathBuf>,
    /// How the worker behaves.
    pub worker: WorkerConfig,
}

/// The addresses and routes of a stack with one interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The interface's name in status listings.
    pub interface: String,
    /// Addresses with their prefixes.
    pub addresses: Vec<IpCidr>,
    /// Where it leads besides the addresses' own networks.
    pub routes: Vec<NetworkRoute>,
    /// The largest IP packet, in bytes.
    pub mtu: u16,
}

impl Network {
    /// Destinations and their gateways, as applications are told them.
    pub fn destinations(&self) -> Vec<(IpCidr, Option<IpAddr>)> {
        self.routes.iter().map(|route| (route.destination, route.gateway)).collect()
    }
}

/// How a worker behaves, wherever it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerConfig {
    /// How long it looks for work before it sleeps.
    pub spin: Duration,
    /// The slice that it asks the scheduler for ([`crate::slice`]).
    pub slice: Option<Duration>,
    /// The congestion control of connections that choose none.
    pub congestion: CongestionAlgorithm,
    /// When listeners answer SYNs with cookies.
    pub syn_cookies: SynCookieMode,
    /// Whether connections may begin with data in the SYN.
    pub fast_open: bool,
    /// What connections do about their path.
    pub path: PathManners,
    /// Whether SYNs tell of user timeouts, and the peer's is heeded.
    pub user_timeout_option: bool,
    /// Limits.
    pub limits: Limits,
}

/// The limits that protect the FEP from its applications and these from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Applications at a time.
    pub applications: u32,
    /// Applications at a time of one user other than root and the FEP's own.
    pub applications_per_user: u32,
    /// Sockets of one application, its own and the accepted ones together.
    pub sockets: u32,
    /// Bytes of send buffers, and of receive buffers, of one application.
    pub buffer_bytes: u64,
    /// Bytes of receive buffers of all applications together.
    pub memory_bytes: u64,
    /// The largest receive buffer of one socket.
    pub receive_buffer_max: u64,
    /// Connections that outlive their application while their last bytes drain.
    pub orphans: u32,
    /// How long such a connection may take.
    pub orphan_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            applications: 256,
            applications_per_user: 64,
            sockets: 65_536,
            buffer_bytes: 256 << 20,
            memory_bytes: 1 << 30,
            receive_buffer_max: 4 << 20,
            orphans: 8_192,
            orphan_time: Duration::from_secs(60),
        }
    }
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            spin: DEFAULT_SPIN,
            slice: Some(DEFAULT_SLICE),
            congestion: CongestionAlgorithm::default(),
            syn_cookies: SynCookieMode::default(),
            fast_open: true,
            path: PathManners::default(),
            user_timeout_option: false,
            limits: Limits::default(),
        }
    }
}

/// Why a configuration cannot be used. The text is for the person who wrote it.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {error}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not TOML, or has a key that does not exist or a value of the wrong type.
    #[error("in the configuration {path}: {error}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        error: Box<toml::de::Error>,
    },
    /// Something needed is not said.
    #[error("{0} is missing: give {1}, or `{0} = …` in the configuration file")]
    Missing(&'static str, &'static str),
    /// A value cannot be meant.
    #[error("{key}: {reason}")]
    Value {
        /// The key in the file; the flag is named the same.
        key: &'static str,
        /// What is wrong and what is right.
        reason: String,
    },
}

impl Settings {
    /// Reads a TOML file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        toml::from_str(&text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), error: Box::new(error) })
    }

    /// These settings, and where they say nothing, `below`.
    pub fn over(self, below: Self) -> Self {
        Self {
            name: self.name.or(below.name),
            socket: self.socket.or(below.socket),
            socket_mode: self.socket_mode.or(below.socket_mode),
            tap: self.tap.or(below.tap),
            address: self.address.or(below.address),
            gateway: self.gateway.or(below.gateway),
            route: self.route.or(below.route),
            kernel_address: self.kernel_address.or(below.kernel_address),
            mtu: self.mtu.or(below.mtu),
            offload: self.offload.or(below.offload),
            tun: self.tun.or(below.tun),
            congestion_control: self.congestion_control.or(below.congestion_control),
            syn_cookies: self.syn_cookies.or(below.syn_cookies),
            fast_open: self.fast_open.or(below.fast_open),
            ecn: self.ecn.or(below.ecn),
            mtu_probing: self.mtu_probing.or(below.mtu_probing),
            share_path_information: self.share_path_information.or(below.share_path_information),
            user_timeout_option: self.user_timeout_option.or(below.user_timeout_option),
            spin_us: self.spin_us.or(below.spin_us),
            slice_us: self.slice_us.or(below.slice_us),
            capture: self.capture.or(below.capture),
            limits: self.limits.or(below.limits),
        }
    }
}

impl Config {
    /// Checks the settings and fills in what they leave out.
    pub fn new(settings: &Settings) -> Result<Self, ConfigError> {
        let name = settings.name.clone().unwrap_or_else(|| names::DEFAULT_NAME.to_owned());
        names::check_name(&name).map_err(|reason| value("name", reason))?;
        let tap = settings.tap.clone().ok_or(ConfigError::Missing("tap", "--tap NAME"))?;
        let network = network(settings, &tap)?;
        Ok(Self {
            socket: settings.socket.clone().unwrap_or_else(|| names::socket_path(&name)),
            socket_mode: socket_mode(settings.socket_mode.as_deref())?,
            kernel_address: settings
                .kernel_address
                .as_deref()
                .map(|text| cidr("kernel_address", text))
                .transpose()?,
            offload: settings.offload.unwrap_or(true),
            tun: settings.tun.unwrap_or(false),
            capture: settings.capture.clone(),
            worker: WorkerConfig {
                spin: spin(settings.spin_us)?,
                slice: slice(settings.slice_us)?,
                congestion: congestion(settings.congestion_control.as_deref())?,
                syn_cookies: syn_cookies(settings.syn_cookies.as_deref())?,
                fast_open: settings.fast_open.unwrap_or(true),
                path: PathManners::new(settings),
                user_timeout_option: settings.user_timeout_option.unwrap_or(false),
                limits: limits(settings.limits.as_ref())?,
            },
            name,
            tap,
            network,
        })
    }
}

fn value(key: &'static str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Value { key, reason: reason.into() }
}

fn cidr(key: &'static str, text: &str) -> Result<IpCidr, ConfigError> {
    text.parse().map_err(|error| value(key, format!("{text:?}: {error}")))
}

fn network(settings: &Settings, interface: &str) -> Result<Network, ConfigError> {
    let texts = match &settings.address {
        None => return Err(ConfigError::Missing("address", "--address CIDR")),
        Some(OneOrMany::One(text)) => vec![text.clone()],
        Some(OneOrMany::Many(texts)) => texts.clone(),
    };
    let addresses = texts.iter().map(|text| cidr("address", text)).collect::<Result<Vec<_>, _>>()?;
    if addresses.is_empty() {
        return Err(ConfigError::Missing("address", "--address CIDR"));
    }
    let on_link = |gateway: IpAddr| addresses.iter().any(|own| own.contains(gateway));
    let mut routes = Vec::new();
    for route in settings.route.iter().flatten() {
        if let Some(gateway) = route.gateway.filter(|gateway| !on_link(*gateway)) {
            return Err(value(
                "route",
                format!("the gateway {gateway} is in none of the addresses' prefixes"),
            ));
        }
        let mtu = route.mtu.map(|mtu| packet_size("route", mtu)).transpose()?;
        let destination = cidr("route", &route.destination)?;
        routes.push(NetworkRoute { destination, gateway: route.gateway, mtu });
    }
    if let Some(gateway) = settings.gateway {
        if !on_link(gateway) {
            return Err(value("gateway", format!("{gateway} is in none of the addresses' prefixes")));
        }
        let everything = match gateway {
            IpAddr::V4(_) => "0.0.0.0/0",
            IpAddr::V6(_) => "::/0",
        };
        let destination = cidr("gateway", everything)?;
        // A route to everywhere may say more.
        if !routes.iter().any(|route| route.destination == destination) {
            routes.push(NetworkRoute { destination, gateway: Some(gateway), mtu: None });
        }
    }
    let mtu = packet_size("mtu", settings.mtu.unwrap_or(1_500))?;
    Ok(Network { interface: interface.to_owned(), addresses, routes, mtu })
}

fn packet_size(key: &'static str, mtu: u32) -> Result<u16, ConfigError> {
    if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
        return Err(value(key, format!("{mtu} is not between {MIN_MTU} and {MAX_MTU}")));
    }
    Ok(mtu as u16)
}

fn socket_mode(text: Option<&str>) -> Result<u32, ConfigError> {
    let text = text.unwrap_or("0660");
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| value("socket_mode", format!("{text:?} is not an octal mode as in \"0660\"")))
}

fn congestion(name: Option<&str>) -> Result<CongestionAlgorithm, ConfigError> {
    let Some(name) = name else { return Ok(CongestionAlgorithm::default()) };
    CongestionAlgorithm::from_name(name).ok_or_else(|| {
        let known: Vec<_> = CongestionAlgorithm::ALL.into_iter().map(CongestionAlgorithm::name).collect();
        value("congestion_control", format!("{name:?} is none of {}", known.join(", ")))
    })
}

fn syn_cookies(name: Option<&str>) -> Result<SynCookieMode, ConfigError> {
    match name {
        None => Ok(SynCookieMode::default()),
        Some("off") => Ok(SynCookieMode::Off),
        Some("full") => Ok(SynCookieMode::WhenFull),
        Some("always") => Ok(SynCookieMode::Always),
        Some(other) => Err(value("syn_cookies", format!("{other:?} is none of off, full, always"))),
    }
}

fn spin(microseconds: Option<u64>) -> Result<Duration, ConfigError> {
    match microseconds {
        None => Ok(DEFAULT_SPIN),
        Some(us) if us <= MAX_SPIN_US => Ok(Duration::from_micros(us)),
        Some(us) => {
            Err(value("spin_us", format!("{us} is more than a second; the value is in microseconds")))
        }
    }
}

fn slice(microseconds: Option<u64>) -> Result<Option<Duration>, ConfigError> {
    match microseconds.map(Duration::from_micros) {
        None => Ok(Some(DEFAULT_SLICE)),
        Some(Duration::ZERO) => Ok(None),
        Some(slice) if (slice::SHORTEST..=slice::LONGEST).contains(&slice) => Ok(Some(slice)),
        Some(slice) => Err(value(
            "slice_us",
            format!("{} is neither 0 nor from 100 to 100000 (in microseconds)", slice.as_nanos() / 1_000),
        )),
    }
}

fn limits(settings: Option<&LimitSettings>) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let Some(given) = settings else { return Ok(default) };
    let limits = Limits {
        applications: given.applications.unwrap_or(default.applications),
        applications_per_user: given.applications_per_user.unwrap_or(default.applications_per_user),
        sockets: given.sockets.unwrap_or(default.sockets),
        buffer_bytes: given.buffer_bytes.unwrap_or(default.buffer_bytes),
        memory_bytes: given.memory_bytes.unwrap_or(default.memory_bytes),
        receive_buffer_max: given.receive_buffer_max.unwrap_or(default.receive_buffer_max),
        orphans: given.orphans.unwrap_or(default.orphans),
        orphan_time: given.orphan_seconds.map_or(default.orphan_time, |s| Duration::from_secs(u64::from(s))),
    };
    let between = |key, value_given: u64, least: u64, most: u64| {
        if (least..=most).contains(&value_given) {
            Ok(())
        } else {
            Err(value(key, format!("{value_given} is not between {least} and {most}")))
        }
    };
    between("limits.applications", limits.applications.into(), 1, 4_096)?;
    between("limits.sockets", limits.sockets.into(), 16, 1 << 20)?;
    between("limits.buffer_bytes", limits.buffer_bytes, 1 << 20, 1 << 36)?;
    between("limits.memory_bytes", limits.memory_bytes, 1 << 20, 1 << 40)?;
    between("limits.receive_buffer_max", limits.receive_buffer_max, 1 << 16, 16 << 20)?;
    Ok(limits)
}

#[cfg(test)]
mod tests;
