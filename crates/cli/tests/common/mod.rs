//! The stage of the end-to-end tests: a Linux peer in a namespace of its own, and programs on the stack.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{Fep, FepConfig, Lab, Link, LinkEnd, Namespace, Process, Spawn, executable};

/// No program here takes longer.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Where a program's sockets live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// In the kernel, over a veth pair.
    Kernel,
    /// In a front-end processor over a TAP device.
    Fep,
    /// In the program's own process, over a TAP device.
    Host,
    /// In the kernel, with a FEP beside that has nothing to do with the peer's network.
    Elsewhere,
    /// In the kernel, with the same FEP and the library told to keep out.
    Disabled,
}

/// The FEP of [`Arch::Elsewhere`].
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 2));
const ELSEWHERE_PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 1));

/// A peer on the kernel at [`Namespace::PEER`], and the place of programs at [`Namespace::HOST`].
pub struct Stage {
    arch: Arch,
    peer: Namespace,
    /// Where the programs are started: it has no network but what their architecture gives them.
    host: Namespace,
    fep: Option<Fep>,
    /// Where the TAP device of a FEP elsewhere is.
    _elsewhere: Option<Namespace>,
}

impl Stage {
    /// Sets the stage.
    pub fn new(lab: &Lab, arch: Arch) -> Result<Self> {
        let peer = lab.namespace("peer")?;
        let host = lab.namespace("host")?;
        // What a port or a host cannot be reached by is told each time.
        for kernel in [&peer, &host] {
            kernel.set_sysctl("net.ipv4.icmp_ratelimit", "0")?;
        }
        let mut stage = Self { arch, peer, host, fep: None, _elsewhere: None };
        match arch {
            Arch::Kernel => stage.link()?,
            Arch::Fep => {
                stage.peer.tap("tap0", Namespace::PEER, Namespace::PREFIX, 1500)?;
                stage.fep = Some(start_fep(lab, &stage.peer, Namespace::HOST)?);
            }
            Arch::Host => stage.peer.tap("tap0", Namespace::PEER, Namespace::PREFIX, 1500)?,
            Arch::Elsewhere | Arch::Disabled => {
                stage.link()?;
                let elsewhere = lab.namespace("elsewhere")?;
                elsewhere.tap("tap0", ELSEWHERE_PEER, Namespace::PREFIX, 1500)?;
                stage.fep = Some(start_fep(lab, &elsewhere, ELSEWHERE)?);
                stage._elsewhere = Some(elsewhere);
            }
        }
        Ok(stage)
    }

    /// Where the FEP answers, if there is one.
    pub fn control_socket(&self) -> Option<&std::path::Path> {
        self.fep.as_ref().map(Fep::socket)
    }

    /// Connects the two by the kernel.
    fn link(&self) -> Result<()> {
        let ends = [
            LinkEnd { namespace: &self.peer, device: "veth0", address: Namespace::PEER },
            LinkEnd { namespace: &self.host, device: "veth0", address: Namespace::HOST },
        ];
        Link { ends, prefix: Namespace::PREFIX, mtu: 1500 }.make()
    }

    /// The FEP, to be ended.
    pub fn take_fep(&mut self) -> Option<Fep> {
        self.fep.take()
    }

    /// A command at the address of the stack.
    pub fn here(&self, program: &str) -> Result<Spawn> {
        Ok(match (&self.fep, self.arch) {
            (Some(fep), Arch::Disabled) => {
                let mut spawn = fep.run(&self.host, program);
                spawn.env("OUTBOARD_DISABLE", "1");
                spawn
            }
            (Some(fep), _) => fep.run(&self.host, program),
            (None, Arch::Kernel) => self.host.command(program),
            (None, _) => {
                // The process opens the TAP device, so it must be where that is.
                let mut spawn = self.peer.command(executable()?);
                spawn.args(["run", "--arch", "host", "--tap", "tap0", "--address"]);
                spawn.arg(format!("{}/{}", Namespace::HOST, Namespace::PREFIX)).args(["--", program]);
                spawn
            }
        })
    }

    /// A command on the peer's kernel.
    pub fn there(&self, program: &str) -> Spawn {
        self.peer.command(program)
    }

    /// A command on one side or the other.
    pub fn on(&self, side: Side, program: &str) -> Result<Spawn> {
        match side {
            Side::Here => self.here(program),
            Side::There => Ok(self.there(program)),
        }
    }

    /// Waits until the server, on this side, takes connections at a port.
    pub fn wait_for_port(&self, side: Side, port: u16, server: &mut Process) -> Result<()> {
        lab::wait_for_port(&self.peer, (side.address(), port).into(), server, PATIENCE)
    }
}

fn start_fep(lab: &Lab, peer: &Namespace, address: IpAddr) -> Result<Fep> {
    let (tap, prefix, mtu) = ("tap0", Namespace::PREFIX, 1500);
    Fep::start(lab, "fep", &FepConfig { peer, tap, address, prefix, mtu, processors: &[], arguments: &[] })
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// On the stack.
    Here,
    /// On the peer's kernel.
    There,
}

impl Side {
    /// Both, each with the other.
    pub const PAIRS: [(Self, Self); 2] = [(Self::Here, Self::There), (Self::There, Self::Here)];

    /// Its address.
    pub fn address(self) -> IpAddr {
        match self {
            Self::Here => Namespace::HOST,
            Self::There => Namespace::PEER,
        }
    }
}

/// Runs a program to its end; what it printed.
pub fn output_of(lab: &Lab, name: &str, spawn: Spawn) -> Result<String> {
    let mut process = lab.start(name, spawn)?;
    process.wait_for_success(PATIENCE)?;
    process.stdout()
}

/// A file of so many bytes that do not repeat, and its name in the laboratory.
pub fn make_file(lab: &Lab, name: &str, length: usize) -> Result<(PathBuf, Vec<u8>)> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ length as u64;
    let bytes: Vec<u8> = (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect();
    let path = lab.file(name);
    std::fs::write(&path, &bytes).with_context(|| path.display().to_string())?;
    Ok((path, bytes))
}

/// That a file holds these bytes.
pub fn expect_file(path: &std::path::Path, bytes: &[u8]) -> Result<()> {
    let found = std::fs::read(path).with_context(|| path.display().to_string())?;
    ensure!(
        found == bytes,
        "{}: {} bytes, not the {} expected ones",
        path.display(),
        found.len(),
        bytes.len()
    );
    Ok(())
}
