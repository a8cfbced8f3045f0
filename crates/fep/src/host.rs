//! The same worker on a thread of the application's own process: the *host* architecture.
//!
//! The application's half of the channel is made in this process, so no control socket is involved; everything else is
//! what a front-end processor runs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::thread::JoinHandle;

use base::IpCidr;
use channel::app::Channel;
use device::Device;
use tracing::error;

use crate::clock;
use crate::config::{Network, NetworkRoute, WorkerConfig};
use crate::sys;
use crate::worker::{Caller, Identity, Stop, Worker, channel_limits};

/// The name of the worker's thread.
const THREAD_NAME: &str = "outboard";

/// How a stack inside a process is set up.
#[derive(Clone, Debug, Default)]
pub struct HostConfig {
    /// The addresses of the stack with their on-link prefixes.
    pub addresses: Vec<IpCidr>,
    /// The gateway of the default route.
    pub gateway: Option<IpAddr>,
    /// Further routes.
    pub routes: Vec<NetworkRoute>,
    /// How the worker behaves.
    pub worker: WorkerConfig,
}

impl HostConfig {
    fn network(&self, mtu: u16) -> Network {
        let mut routes = self.routes.clone();
        let everything = |gateway: &IpAddr| match gateway {
            IpAddr::V4(_) => IpCidr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            IpAddr::V6(_) => IpCidr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        };
        if let Some(destination) = self.gateway.as_ref().and_then(everything) {
            routes.push(NetworkRoute { destination, gateway: self.gateway, mtu: None });
        }
        Network { interface: THREAD_NAME.to_owned(), addresses: self.addresses.clone(), routes, mtu }
    }
}

/// A running stack. Dropping it closes its connections in order and ends its thread.
#[derive(Debug)]
pub struct HostHandle {
    channel: Arc<Channel>,
    network: channel::control::Network,
    caller: Arc<Caller>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a stack over `device` on a thread of this process.
///
/// # Errors
/// The operating system refuses memory, descriptors, entropy or a thread.
pub fn start(config: HostConfig, device: impl Device + Send + 'static) -> io::Result<HostHandle> {
    let setup = config.network(device.capabilities().mtu);
    let (half, channel) = channel::pair(&channel_limits(&config.worker))?;
    let caller = Arc::new(Caller::new()?);
    let stop = Stop { caller: Some(caller.clone()), ..Stop::default() };
    let network = channel::control::Network {
        addresses: setup.addresses.clone(),
        routes: setup.destinations(),
        mtu: u32::from(setup.mtu),
    };
    let identity =
        Identity { pid: std::process::id(), uid: rustix::process::geteuid().as_raw(), name: program_name() };
    // The worker is made here, so that what goes wrong is told here.
    let mut worker = Worker::new(clock::now(), device, setup, config.worker)?;
    worker.add_local(half, identity)?;
    let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
        if let Err(error) = sys::block_all_signals() {
            error!("cannot block signals: {error}");
        }
        if let Err(error) = worker.run(&stop) {
            error!("the stack cannot go on: {error}");
        }
    })?;
    Ok(HostHandle { channel, network, caller, thread: Some(thread) })
}

impl HostHandle {
    /// The application's half of the channel.
    pub fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// The stack's addresses and routes.
    pub fn network(&self) -> &channel::control::Network {
        &self.network
    }

    /// Whether, when this was last called, everything that had been queued was acknowledged and closed connections had
    /// ended. Asks anew if not; so it is to be repeated.
    pub fn is_drained(&self) -> bool {
        self.caller.is_drained()
    }
}

impl Drop for HostHandle {
    fn drop(&mut self) {
        self.caller.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

fn program_name() -> String {
    let name =
        std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or_default()
}
