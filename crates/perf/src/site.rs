//! Where a subject lives: its stack, a place for its application, and its peer.
//!
//! All subjects are set up alike. The peer is a host on the Linux kernel. Between the two is one link of the same MTU:
//! a veth pair for the kernel subject, a TAP device for the others, both able to segment and to leave checksums to the
//! other side. The same processors are given to the same rôles ([`Placement`]).

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fep::control::Client;
use lab::cpu::Group;
use lab::{Fep, FepConfig, Lab, Link, LinkEnd, Namespace, Spawn};
use serde_json::{Map, Value, json};

use crate::steer::{self, Receivers, Steer};

/// The stack under examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The Linux kernel's.
    Kernel,
    /// Outboard's, in a thread of the application's process.
    Host,
    /// Outboard's, in a front-end processor.
    Fep,
    /// The same under programs that know nothing of it: the native program too uses the kernel's calls.
    FepUnmodified,
}

impl Subject {
    /// All of them, in the order in which they alternate.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Host, Self::Fep, Self::FepUnmodified];

    /// Its name in commands and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Host => "host",
            Self::Fep => "fep",
            Self::FepUnmodified => "fep-unmodified",
        }
    }
}

impl std::str::FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|subject| subject.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of kernel, host, fep, fep-unmodified"))
    }
}

/// Where the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// On the peer, across a link.
    Link,
    /// On the subject's own stack, as the server.
    Loopback,
}

/// Which processors each rôle may use; empty: all of them. The same for every subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The application, and in the host architecture the stack's thread with it.
    pub application: Vec<usize>,
    /// The front-end processor.
    pub fep: Vec<usize>,
    /// The peer's program.
    pub peer: Vec<usize>,
}

impl Default for Placement {
    /// With two processors or more: the application on the first, the FEP on the second, the peer on any but the
    /// first as long as there is another.
    fn default() -> Self {
        match lab::cpu::processors() {
            0 | 1 => Self { application: Vec::new(), fep: Vec::new(), peer: Vec::new() },
            2 => Self { application: vec![0], fep: vec![1], peer: Vec::new() },
            count => Self { application: vec![0], fep: vec![1], peer: (2..count).collect() },
        }
    }
}

impl Placement {
    /// Leaves the peer processors that nobody else uses, as far as there are such; if need be the FEP's, which then shares
    /// the application's, as in a host of one processor.
    #[must_use]
    pub fn with_peer_apart(&self) -> Self {
        let apart = |others: &[usize]| {
            self.peer_or_fep().iter().copied().filter(|one| !others.contains(one)).collect::<Vec<_>>()
        };
        let beside_fep = apart(&self.fep);
        if !beside_fep.is_empty() {
            return Self { peer: beside_fep, ..self.clone() };
        }
        match apart(&self.application) {
            free if free.is_empty() => self.clone(),
            free => Self { fep: self.application.clone(), peer: free, ..self.clone() },
        }
    }

    /// Processors for a peer: its own, or the FEP's where it may use any.
    pub(crate) fn peer_or_fep(&self) -> &[usize] {
        if self.peer.is_empty() { &self.fep } else { &self.peer }
    }
}

/// How sites are set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The largest IP packet of the link, in bytes.
    pub mtu: u32,
    /// What the kernel's TCP uses on both sides; `None`: its default.
    pub congestion_control: Option<String>,
    /// The processors.
    pub placement: Placement,
    /// Where the client is.
    pub between: Between,
    /// Further arguments of `outboard up`.
    pub fep_arguments: Vec<String>,
    /// The `outboard` executable of the subject; `None`: this one.
    pub executable: Option<PathBuf>,
    /// Who takes in the packets of the kernel's hosts.
    pub steer: Steer,
    /// The share of one processor that the application may use, and in the host architecture its stack; `None`: all.
    pub application_share: Option<f64>,
}

impl Setup {
    fn executable(&self) -> Result<PathBuf> {
        self.executable.clone().map_or_else(lab::executable, Ok)
    }
}

/// One subject with its peer. Everything goes when it is dropped.
#[derive(Debug)]
pub struct Site {
    subject: Subject,
    name: String,
    directory: PathBuf,
    setup: Setup,
    host: Namespace,
    /// The kernel host's device.
    host_device: String,
    /// The threads on which it takes packets in, if it has such.
    pub(crate) receivers: Option<Receivers>,
    peer: Namespace,
    pub(crate) fep: Option<Fep>,
    pub(crate) applications: Option<Group>,
    pub(crate) peers: Option<Group>,
}

/// The device's name on the peer's side, and on the kernel subject's side too.
pub(crate) const DEVICE: &str = "link0";

impl Site {
    /// Makes the namespaces and the link, and starts the FEP where there is one.
    pub fn new(lab: &Lab, subject: Subject, setup: &Setup) -> Result<Self> {
        let suffix = if setup.executable.is_some() { "-against" } else { "" };
        let name = format!("{}{suffix}", subject.name());
        let directory = lab.file(&name);
        std::fs::create_dir_all(&directory)?;
        let peer = lab.namespace(&format!("peer of {}", subject.name()))?;
        if setup.steer.is_on() {
            steer::by_softirq(&peer, &setup.placement.peer)?;
        }
        let mut kernel = None;
        let (host, fep) = match subject {
            Subject::Kernel => {
                let (host, linked) = kernel_host(lab, &peer, setup)?;
                kernel = Some(linked);
                (host, None)
            }
            // The application opens the TAP device itself, so it stands in the device's namespace. The stack's address
            // is none of that namespace's kernel.
            Subject::Host => {
                peer.tap(DEVICE, Namespace::PEER, Namespace::PREFIX, setup.mtu)?;
                (peer.clone(), None)
            }
            Subject::Fep | Subject::FepUnmodified => {
                peer.tap(DEVICE, Namespace::PEER, Namespace::PREFIX, setup.mtu)?;
                // An empty namespace: no byte has another way than through the FEP.
                (lab.namespace("application on the FEP")?, Some(start_fep(lab, &name, &peer, setup)?))
            }
        };
        let (host_device, receivers) = kernel.unwrap_or_else(|| (DEVICE.to_owned(), None));
        let site = Self {
            subject,
            directory,
            host_device,
            receivers,
            setup: setup.clone(),
            host,
            peer,
            fep,
            applications: application_group(&name, setup)?,
            peers: Group::new(&format!("{name}-peer")),
            name,
        };
        site.set_congestion_control()?;
        site.spare_ports()?;
        Ok(site)
    }

    /// What reports call it: the subject, with `-against` for another release of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the client is.
    pub fn between(&self) -> Between {
        self.setup.between
    }

    /// Whether client and server have to be one process: the stack is in it.
    pub fn shares_process(&self) -> bool {
        self.subject == Subject::Host && self.setup.between == Between::Loopback
    }

    /// Which stack it is.
    pub fn subject(&self) -> Subject {
        self.subject
    }

    /// A folder of this subject on the laboratory's memory file system.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Which processors each rôle uses.
    pub fn placement(&self) -> &Placement {
        &self.setup.placement
    }

    /// The namespace of the peer.
    pub fn peer(&self) -> &Namespace {
        &self.peer
    }

    /// The namespace of the application; the kernel's, where that is the subject.
    pub(crate) fn host(&self) -> &Namespace {
        &self.host
    }

    /// The address of the subject's stack.
    pub fn address(&self) -> IpAddr {
        Namespace::HOST
    }

    /// The options in effect, for the document.
    pub fn options(&self) -> Result<Map<String, Value>> {
        let placement = &self.setup.placement;
        let value = json!({
            "mtu_bytes": self.setup.mtu,
            "link": match (self.setup.between, self.subject) {
                (Between::Loopback, _) => "none: client and server on one stack",
                (Between::Link, Subject::Kernel) => "veth",
                (Between::Link, _) => "tap",
            },
            "segmentation_offload": true,
            "peer_segmentation_offload": self.receivers.is_none(),
            "checksum": "offload",
            "copy_avoidance": false,
            "congestion_control": match self.subject {
                Subject::Kernel => self.kernel_congestion_control()?,
                Subject::Host => host_congestion_control(),
                Subject::Fep | Subject::FepUnmodified => self.fep_congestion_control()?,
            },
            "peer_congestion_control": self.kernel_congestion_control()?,
            "steered": self.setup.steer.is_on(),
            "steer": self.setup.steer.name(),
            "application_share": self.setup.application_share,
            "application_processors": self.application_processors(),
            "fep_processors": if self.fep.is_some() { json!(placement.fep) } else { Value::Null },
            "peer_processors": placement.peer,
        });
        match value {
            Value::Object(map) => Ok(map),
            _ => bail!("the options are not an object"),
        }
    }

    /// An unmodified program on the subject's stack. Its arguments are to be added.
    pub fn application(&self, program: &str) -> Result<Spawn> {
        let mut spawn = match (&self.fep, self.subject) {
            (Some(fep), _) => fep.run(&self.host, program),
            (None, Subject::Host) => {
                let mut spawn = self.host.command(self.setup.executable()?);
                spawn.args(["run", "--arch", "host", "--", program]);
                self.set_host_environment(&mut spawn);
                spawn
            }
            (None, _) => self.host.command(program),
        };
        self.place_application(&mut spawn)?;
        Ok(spawn)
    }

    /// A program beside the application, which does not touch the network: it counts as the application.
    pub fn application_program(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Spawn> {
        let mut spawn = self.host.command(program);
        self.place_application(&mut spawn)?;
        Ok(spawn)
    }

    /// The native program of this crate on the subject's stack ([`crate::ends`]): it uses the library itself.
    pub fn native(&self) -> Result<Spawn> {
        if self.subject == Subject::FepUnmodified {
            let executable = self.setup.executable()?;
            let mut spawn = self.application(executable.to_str().context("the path of this program")?)?;
            spawn.args(["bench-end", "--on", "kernel"]);
            return Ok(spawn);
        }
        let mut spawn = self.host.command(self.setup.executable()?);
        spawn.args(["bench-end", "--on", self.subject.name()]);
        match &self.fep {
            Some(fep) => {
                spawn.env("OUTBOARD_SOCKET", fep.socket());
            }
            None if self.subject == Subject::Host => self.set_host_environment(&mut spawn),
            None => {}
        }
        self.place_application(&mut spawn)?;
        Ok(spawn)
    }

    /// A program of the peer.
    pub fn peer_program(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Spawn> {
        let mut spawn = self.peer.command(program);
        spawn.on_processors(&self.setup.placement.peer);
        if let Some(group) = &self.peers {
            spawn.in_group(group)?;
        }
        Ok(spawn)
    }

    /// Bytes that have crossed the link in both directions, headers included, as the peer's device counts them.
    pub fn link_bytes(&self) -> Result<u64> {
        let text = self.peer.within(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'));
        let fields: Vec<u64> =
            line.unwrap_or_default().split_whitespace().filter_map(|field| field.parse().ok()).collect();
        match fields[..] {
            [received, _, _, _, _, _, _, _, sent, ..] => Ok(received + sent),
            _ => bail!("{DEVICE} is not among the peer's devices"),
        }
    }

    /// Takes the site down in order, after its programs have gone, and tells whether the FEP ended well.
    pub fn close(mut self) -> Result<()> {
        match self.fep.take() {
            Some(fep) => fep.stop(),
            None => Ok(()),
        }
    }

    fn place_application(&self, spawn: &mut Spawn) -> Result<()> {
        spawn.on_processors(&self.application_processors());
        if let Some(group) = &self.applications {
            spawn.in_group(group)?;
        }
        Ok(())
    }

    /// With client and server on one stack, that of the kernel or of the host architecture may use the FEP's processors
    /// too: there is nothing else to run there, and every subject has the same.
    fn application_processors(&self) -> Vec<usize> {
        let placement = &self.setup.placement;
        let mut processors = placement.application.clone();
        if self.setup.between == Between::Loopback && self.fep.is_none() && !processors.is_empty() {
            processors.extend(placement.fep.iter().filter(|one| !placement.application.contains(one)));
        }
        processors
    }

    /// Ports for many short connections: more than Linux uses unless told so, and those of closed connections again.
    fn spare_ports(&self) -> Result<()> {
        for namespace in [&self.host, &self.peer] {
            namespace.set_sysctl("net.ipv4.ip_local_port_range", "10000 65535")?;
            namespace.set_sysctl("net.ipv4.tcp_tw_reuse", "1")?;
        }
        Ok(())
    }

    /// The host architecture's stack is set up by the environment (`outboard run`, [`outboard::Endpoint::from_env`]).
    fn set_host_environment(&self, spawn: &mut Spawn) {
        spawn
            .env("OUTBOARD_ARCH", "host")
            .env("OUTBOARD_TAP", DEVICE)
            .env("OUTBOARD_ADDRESS", format!("{}/{}", Namespace::HOST, Namespace::PREFIX))
            .env("OUTBOARD_MTU", self.setup.mtu.to_string());
    }

    fn set_congestion_control(&self) -> Result<()> {
        let Some(name) = &self.setup.congestion_control else { return Ok(()) };
        let mut ends = vec![(&self.peer, DEVICE)];
        if self.subject == Subject::Kernel {
            ends.push((&self.host, &self.host_device));
        }
        for (namespace, device) in ends {
            // By route: a namespace may not choose every algorithm as its default, but a route may.
            namespace
                .ip(&format!("route replace 10.77.0.0/24 dev {device} congctl {name}"))
                .with_context(|| format!("the kernel does not do congestion control `{name}`"))?;
        }
        Ok(())
    }

    fn fep_congestion_control(&self) -> Result<String> {
        let fep = self.fep.as_ref().context("the FEP has gone")?;
        let told = Client::connect(fep.socket())?.status()?.congestion_control;
        Ok(if told.is_empty() { "not told by this release".to_owned() } else { told })
    }

    fn kernel_congestion_control(&self) -> Result<String> {
        match &self.setup.congestion_control {
            Some(name) => Ok(name.clone()),
            None => self.peer.sysctl("net.ipv4.tcp_congestion_control"),
        }
    }
}

/// The stack in the application's process takes it from the environment, which its programs inherit, or its own default.
fn host_congestion_control() -> String {
    let own = || outboard::CongestionAlgorithm::default().name().to_owned();
    std::env::var("OUTBOARD_CONGESTION_CONTROL").unwrap_or_else(|_| own())
}

/// A host on the kernel, linked to the peer by a veth pair: its device, and the threads that take packets in, if it has such.
fn kernel_host(
    lab: &Lab,
    peer: &Namespace,
    setup: &Setup,
) -> Result<(Namespace, (String, Option<Receivers>))> {
    let host = lab.namespace("kernel host")?;
    let processors = &setup.placement.application;
    let device = match setup.steer {
        Steer::Napi => steer::unique_device(),
        Steer::No | Steer::Rps => DEVICE.to_owned(),
    };
    if setup.steer == Steer::Rps {
        steer::by_softirq(&host, processors)?;
    }
    Link {
        ends: [
            LinkEnd { namespace: &host, device: &device, address: Namespace::HOST },
            LinkEnd { namespace: peer, device: DEVICE, address: Namespace::PEER },
        ],
        prefix: Namespace::PREFIX,
        mtu: setup.mtu,
    }
    .make()?;
    let receivers = match setup.steer {
        Steer::Napi => {
            steer::cut_first(peer, DEVICE)?;
            Some(Receivers::start(lab, &host, &device, processors)?)
        }
        Steer::No | Steer::Rps => None,
    };
    Ok((host, (device, receivers)))
}

fn application_group(name: &str, setup: &Setup) -> Result<Option<Group>> {
    let mut group = Group::new(&format!("{name}-application"));
    match (&mut group, setup.application_share) {
        (_, None) => {}
        (Some(group), Some(share)) => group.limit(share)?,
        (None, Some(_)) => {
            bail!("this system has no control groups for us: an application cannot be limited")
        }
    }
    Ok(group)
}

fn start_fep(lab: &Lab, name: &str, peer: &Namespace, setup: &Setup) -> Result<Fep> {
    let arguments: Vec<&str> = setup.fep_arguments.iter().map(String::as_str).collect();
    Fep::start_with(
        setup.executable()?,
        lab,
        name,
        &FepConfig {
            peer,
            tap: DEVICE,
            address: Namespace::HOST,
            prefix: Namespace::PREFIX,
            mtu: setup.mtu,
            processors: &setup.placement.fep,
            arguments: &arguments,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::Placement;

    #[test]
    fn the_peer_has_a_processor_to_itself_where_there_are_two() {
        let on = |application: usize, fep: usize, peer: &[usize]| Placement {
            application: vec![application],
            fep: vec![fep],
            peer: peer.to_vec(),
        };
        for (usual, expected) in [
            (on(0, 1, &[]), (0, 0, 1)),
            (on(0, 1, &[1]), (0, 0, 1)),
            (on(0, 0, &[]), (0, 0, 0)),
            (on(0, 1, &[1, 2, 3]), (0, 1, 2)),
        ] {
            let placement = usual.with_peer_apart();
            assert_eq!((placement.application[0], placement.fep[0], placement.peer_or_fep()[0]), expected);
        }
    }
}
