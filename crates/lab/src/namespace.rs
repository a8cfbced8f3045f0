//! Network namespaces and the links between them.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::enter::check_tap;
use crate::process::{Process, Spawn};
use crate::sys;

/// A network namespace without a name. Clones are the same namespace; it vanishes with the last of them and the last
/// program inside.
#[derive(Debug, Clone)]
pub struct Namespace {
    name: Arc<str>,
    descriptor: Arc<OwnedFd>,
}

/// One end of a link.
#[derive(Debug, Clone)]
pub struct LinkEnd<'a> {
    /// Where the end lies.
    pub namespace: &'a Namespace,
    /// The device's name there.
    pub device: &'a str,
    /// Its address.
    pub address: IpAddr,
}

/// A veth pair between two namespaces.
#[derive(Debug, Clone)]
pub struct Link<'a> {
    /// Both ends.
    pub ends: [LinkEnd<'a>; 2],
    /// The prefix length of both addresses.
    pub prefix: u8,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
}

impl Link<'_> {
    /// Makes the pair, gives both ends their addresses, and brings them up.
    pub fn make(&self) -> Result<()> {
        let [near, far] = &self.ends;
        // The far end is made where it belongs: its namespace is named by this process's descriptor of it.
        let place = format!("/proc/{}/fd/{}", std::process::id(), far.namespace.descriptor.as_raw_fd());
        near.namespace
            .ip(&format!("link add {} type veth peer name {} netns {place}", near.device, far.device))?;
        for end in &self.ends {
            end.namespace.configure(end.device, end.address, self.prefix, self.mtu)?;
        }
        Ok(())
    }
}

impl Namespace {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let descriptor = std::thread::spawn(sys::new_network_namespace)
            .join()
            .expect("making a namespace does not panic")
            .with_context(|| format!("cannot make the network namespace {name}"))?;
        let namespace = Self { name: name.into(), descriptor: Arc::new(descriptor) };
        // Router solicitations and duplicate address detection are traffic that nobody here asked for.
        namespace.set_sysctl("net.ipv6.conf.all.disable_ipv6", "1").ok();
        namespace.set_sysctl("net.ipv6.conf.default.disable_ipv6", "1").ok();
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The name that it was made with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The descriptor that holds it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// A program to be started inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Spawn {
        Spawn::new(Command::new(program)).inside(self)
    }

    /// Runs a program inside to its end and gives its output; an error if it does not exit with 0.
    pub fn run(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<Output> {
        let mut spawn = self.command(program.as_ref());
        spawn.args(arguments);
        let output = spawn.output()?;
        ensure!(
            output.status.success(),
            "{:?} {arguments:?} in namespace {}: {}: {}{}",
            program.as_ref(),
            self.name,
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        Ok(output)
    }

    /// Runs `ip` (iproute2) inside with the arguments of one line.
    pub fn ip(&self, arguments: &str) -> Result<Output> {
        self.run("ip", &arguments.split_whitespace().collect::<Vec<_>>())
    }

    /// Calls `body` on a thread inside the namespace: sockets that it opens belong there.
    ///
    /// A program started from `body` dies with that thread, at the end of this call; use [`command`](Self::command).
    pub fn within<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                sys::join_network_namespace(self.descriptor())
                    .with_context(|| format!("cannot enter the network namespace {}", self.name))?;
                Ok(body())
            });
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Moves the calling thread into the namespace for good; threads that it starts afterwards begin there.
    pub fn join(&self) -> Result<()> {
        sys::join_network_namespace(self.descriptor())
            .with_context(|| format!("cannot enter the network namespace {}", self.name))
    }

    /// Sets a network setting (`net.ipv4.tcp_congestion_control`, …) of this namespace.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.within(|| std::fs::write(&path, value))?.with_context(|| format!("cannot set {name} to {value}"))
    }

    /// Reads a network setting of this namespace.
    pub fn sysctl(&self, name: &str) -> Result<String> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let value =
            self.within(|| std::fs::read_to_string(&path))?.with_context(|| format!("cannot read {name}"))?;
        Ok(value.trim().to_owned())
    }

    /// The largest MTU of a TAP device: 65,535 less the Ethernet header, says the kernel.
    pub const LARGEST_TAP_MTU: u32 = 65_521;

    /// Makes a TAP device that stays until the namespace goes. Its kernel side, with the address, is a host of this
    /// namespace; whoever opens the device by its name (from inside this namespace) plugs in a host on the other side.
    pub fn tap(&self, device: &str, address: IpAddr, prefix: u8, mtu: u32) -> Result<()> {
        check_tap()?;
        self.ip(&format!("tuntap add dev {device} mode tap"))?;
        self.configure(device, address, prefix, mtu)
    }

    /// Adds a route to `destination` (`default`, `10.0.0.0/8`) by way of a neighbour.
    pub fn route(&self, destination: &str, gateway: IpAddr) -> Result<()> {
        self.ip(&format!("route add {destination} via {gateway}")).map(drop)
    }

    fn configure(&self, device: &str, address: IpAddr, prefix: u8, mtu: u32) -> Result<()> {
        self.ip(&format!("address add {address}/{prefix} dev {device}"))?;
        self.ip(&format!("link set {device} mtu {mtu} up")).map(drop)
    }
}

/// Waits until a TCP server answers at `address`, as seen from `from`. It fails early if `server` has ended.
///
/// A connection is made and closed: the server sees one client that says nothing.
pub fn wait_for_port(
    from: &Namespace,
    address: SocketAddr,
    server: &mut Process,
    patience: Duration,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let attempt = from.within(|| TcpStream::connect_timeout(&address, Duration::from_millis(500)))?;
        let error = match attempt {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if !server.is_running()? {
            bail!("{} has ended before it answered at {address}:\n{}", server.name(), server.text());
        }
        if began.elapsed() > patience {
            bail!(
                "{} does not answer at {address} after {} s ({error}):\n{}",
                server.name(),
                patience.as_secs(),
                server.text()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The addresses that all laboratories here use: a private network of two hosts.
impl Namespace {
    /// The address of the peer: a host on the Linux kernel.
    pub const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
    /// The address of the host under examination, on whichever stack.
    pub const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
    /// The prefix length of both.
    pub const PREFIX: u8 = 24;
}
