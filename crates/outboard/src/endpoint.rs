//! The stack that sockets live on: a front-end processor's, or one in this process.
//!
//! Either way there is a channel of shared memory between the sockets and the stack; which side of a process boundary
//! the stack's half is on makes no difference to them. The endpoint keeps the channel and hands the stack's events
//! to the sockets.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::IpCidr;
use channel::app::{Channel, ConnectError};
use channel::control::{Network, Request};
use channel::{Command, Event, State};
use device::Device;
use fep::config::WorkerConfig;

use crate::CongestionAlgorithm;
use crate::env::Environment;
use crate::idle::Holders;
use crate::raw::{Lender, Observer, Sending};

/// How often something that is waited for on the way out is looked at, after so many looks at once.
const FLUSH_INTERVAL: Duration = Duration::from_micros(200);
const YIELDS: u32 = 100;
/// The stack lets go of a listener at once; it is not waited for longer than this.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// The channel of a process that is to be forked: see [`Endpoint::announce_child`].
#[derive(Debug)]
pub struct Child {
    control: OwnedFd,
    path: PathBuf,
}

impl Child {
    /// As [`Endpoint::release`], of a child that has no endpoint yet.
    pub fn release(&self, identity: u64) -> io::Result<()> {
        channel::control::sys::send(&self.control, &Request::Release { identity }.encode(), &[])
    }
}

/// How the stack of [`Endpoint::host`] is set up.
#[derive(Clone, Debug, Default)]
pub struct HostConfig {
    /// The addresses of the stack with their on-link prefixes.
    pub addresses: Vec<IpCidr>,
    /// Where everything that is not on the link goes.
    pub gateway: Option<IpAddr>,
    /// The congestion control of connections that choose none.
    pub congestion_control: CongestionAlgorithm,
}

/// A stack to open sockets on. Clones are the same endpoint; the last one and its last socket end it.
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

struct Inner {
    channel: Arc<Channel>,
    network: Network,
    /// A second descriptor of the control socket: it is hung up when the FEP is gone.
    liveness: Option<OwnedFd>,
    /// What a forked child must close.
    descriptors: Vec<RawFd>,
    /// The FEP's control socket.
    path: Option<PathBuf>,
    is_host: bool,
    /// The stack, if it is in this process and was not ended.
    host: Mutex<Option<fep::host::HostHandle>>,
    sockets: Mutex<HashMap<u32, Arc<Shared>>>,
    /// Held from taking events until the sockets know of them: whoever has it after another has all before it.
    dispatch: Mutex<Vec<Event>>,
    /// Sockets that hold send memory.
    holders: Holders,
    lender: Lender,
    is_dead: AtomicBool,
}

/// What the endpoint keeps of a socket to hand it its events.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) observer: Mutex<Option<Arc<dyn Observer>>>,
    pub(crate) accepted: Mutex<Accepted>,
    /// Stream offset up to which bytes are queued.
    pub(crate) queued: AtomicU64,
    /// Whether CLOSE was said.
    pub(crate) is_closed: AtomicBool,
    /// Whether the stack has let go of it.
    is_released: AtomicBool,
}

/// A listener's connections that nobody took yet.
#[derive(Default)]
pub(crate) struct Accepted {
    pub(crate) waiting: VecDeque<u32>,
    /// How many there ever were.
    pub(crate) total: u64,
    /// How many do not wait any more: accepted by the program, or reset; wraps.
    pub(crate) taken: u32,
    /// The listener is gone: no more.
    closed: bool,
}

impl Endpoint {
    /// The front-end processor whose control socket is at `path`.
    pub fn fep(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let control = fep::control::connect_to(path)?;
        Self::over(control, path, |control| Channel::connect(control, &program_name()))
    }

    /// The endpoint of a forked process, which its parent has [announced](Self::announce_child). What it has from its parent it
    /// [claims](crate::raw::Socket::claim).
    pub fn of_child(child: Child) -> io::Result<Self> {
        Self::over(child.control, &child.path, Channel::welcome)
    }

    /// To be called before a process forks that shall have the sockets of this endpoint: from now on none of them is closed as long as
    /// the child has it. The child opens an endpoint of its own by what this returns, which its parent drops. Takes a round of
    /// the FEP.
    ///
    /// # Errors
    /// The stack is in this process ([`ErrorKind::Unsupported`](io::ErrorKind::Unsupported)), or gone.
    pub fn announce_child(&self) -> io::Result<Child> {
        let path = self.inner.path.as_deref().ok_or(io::ErrorKind::Unsupported)?;
        let control = fep::control::connect_to(path)?;
        self.inner.channel.announce_child(&control, &program_name())?;
        Ok(Child { control, path: path.to_owned() })
    }

    /// A socket that this process has from the one that forked it is of no use to it.
    pub fn release(&self, identity: u64) -> io::Result<()> {
        self.inner.channel.release(identity)
    }

    fn over(
        control: OwnedFd,
        path: &Path,
        open: impl FnOnce(OwnedFd) -> Result<(Arc<Channel>, Network), ConnectError>,
    ) -> io::Result<Self> {
        let liveness = control.try_clone()?;
        let descriptors = vec![control.as_raw_fd(), liveness.as_raw_fd()];
        let (channel, network) = open(control).map_err(|error| match error {
            ConnectError::System(error) => error,
            other => io::Error::new(io::ErrorKind::ConnectionRefused, other.to_string()),
        })?;
        Ok(Self::new(channel, network, (Some(liveness), Some(path.to_owned())), descriptors, None))
    }

    /// A stack in a thread of this process, over `device`.
    pub fn host(config: HostConfig, device: impl Device + Send + 'static) -> io::Result<Self> {
        let descriptors = device.descriptor().iter().map(AsRawFd::as_raw_fd).collect();
        let host = fep::host::start(
            fep::host::HostConfig {
                addresses: config.addresses,
                gateway: config.gateway,
                worker: WorkerConfig { congestion: config.congestion_control, ..WorkerConfig::default() },
                ..Default::default()
            },
            device,
        )?;
        let (channel, network) = (Arc::clone(host.channel()), host.network().clone());
        Ok(Self::new(channel, network, (None, None), descriptors, Some(host)))
    }

    /// The endpoint that the environment names, as `outboard run` sets it: `OUTBOARD_ARCH=host` with
    /// `OUTBOARD_TAP`, `OUTBOARD_ADDRESS`, `OUTBOARD_GATEWAY`, `OUTBOARD_MTU`,
    /// `OUTBOARD_CONGESTION_CONTROL`, or else `OUTBOARD_SOCKET`, or else the
    /// default FEP.
    pub fn from_env() -> io::Result<Self> {
        match Environment::read(|name| std::env::var_os(name))? {
            Environment::Fep(path) => Self::fep(path),
            Environment::Host(settings) => {
                let device = settings.open_device()?;
                Self::host(settings.config, device)
            }
        }
    }

    fn new(
        channel: Arc<Channel>,
        network: Network,
        (liveness, path): (Option<OwnedFd>, Option<PathBuf>),
        descriptors: Vec<RawFd>,
        host: Option<fep::host::HostHandle>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                channel,
                network,
                liveness,
                descriptors,
                path,
                is_host: host.is_some(),
                host: Mutex::new(host),
                sockets: Mutex::default(),
                dispatch: Mutex::default(),
                holders: Holders::new(),
                lender: Lender::default(),
                is_dead: AtomicBool::new(false),
            }),
        }
    }

    /// Whether both are the same endpoint.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether the stack runs in this process.
    pub fn is_host(&self) -> bool {
        self.inner.is_host
    }

    /// The descriptors that keep the channel to the stack alive.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.inner.descriptors.iter().copied().chain(self.inner.lender.descriptor())
    }

    pub(crate) fn lender(&self) -> &Lender {
        &self.inner.lender
    }

    /// The addresses of the stack, with the prefixes of their links.
    pub fn addresses(&self) -> &[IpCidr] {
        &self.inner.network.addresses
    }

    /// Whether `address` is one of the endpoint's own.
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.inner.network.addresses.iter().any(|own| own.address() == address)
    }

    /// Whether `address` is all hosts of a network of the endpoint's, or of any.
    pub fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(wanted) = address else { return false };
        wanted.is_broadcast()
            || self.inner.network.addresses.iter().any(|own| {
                let hosts = u32::MAX.checked_shr(own.prefix_len().into()).unwrap_or(0);
                hosts > 1 && own.contains(address) && wanted.to_bits() & hosts == hosts
            })
    }

    /// Whether packets to `address` would leave through this endpoint: it is on one of its links, or has a route.
    pub fn reaches(&self, address: IpAddr) -> bool {
        let network = &self.inner.network;
        network.addresses.iter().any(|own| own.contains(address))
            || network.routes.iter().any(|(destination, _)| destination.contains(address))
    }

    /// Hands the stack's events to the sockets that they concern: queues accepted connections, tells observers.
    /// Cheap if there are none.
    pub fn dispatch(&self) {
        let inner = &*self.inner;
        if !inner.channel.has_events() && !inner.may_have_died() {
            // Another thread may have taken some and not handed them on yet.
            if inner.dispatch.try_lock().is_ok() {
                return;
            }
        }
        let mut events = lock(&inner.dispatch);
        let taken = inner.channel.poll_events(&mut |event| events.push(event));
        // Only now: what changes from here on makes new events (see `Channel::poll_events`).
        for event in events.drain(..) {
            self.hand_on(event);
        }
        if taken.is_err() || inner.may_have_died() {
            self.bury();
        }
    }

    fn hand_on(&self, event: Event) {
        match event {
            Event::Ready { socket } => self.tell(socket),
            Event::Accepted { listener, socket } => {
                let queued = self.shared(listener).is_some_and(|shared| shared.push_accepted(socket));
                if queued {
                    self.tell(listener);
                } else {
                    // Nobody takes it any more. If the channel is closed, so is the connection.
                    let _ = self.inner.channel.post(&Command::Abort { socket });
                }
            }
            Event::Released { socket } => {
                if let Some(shared) = self.shared(socket) {
                    shared.is_released.store(true, Ordering::Release);
                }
            }
        }
    }

    fn tell(&self, socket: u32) {
        let observer = self.shared(socket).and_then(|shared| lock(&shared.observer).clone());
        if let Some(observer) = observer {
            observer.on_event();
        }
    }

    fn shared(&self, socket: u32) -> Option<Arc<Shared>> {
        lock(&self.inner.sockets).get(&socket).cloned()
    }

    /// The socket holds send memory from now on.
    pub(crate) fn look_after(&self, sending: &Arc<Sending>) {
        self.inner.holders.add(sending);
    }

    /// Bytes of send memory that this endpoint's sockets hold.
    pub fn send_memory(&self) -> u64 {
        self.inner.channel.memory().in_use
    }

    /// Takes back the send memory of some sockets that had nothing to send since they were last looked at, and gives its pages back
    /// to the system, if two seconds have passed since the last time. To be called before sleeping; who does not sleep in
    /// this library's calls keeps its memory until the next of them. How long until there is something to do again; `None`: no
    /// socket holds memory.
    pub fn tend(&self) -> Option<Duration> {
        self.tend_at(Instant::now())
    }

    /// The same for one who knows what time it is.
    pub fn tend_at(&self, now: Instant) -> Option<Duration> {
        let (went_back, next) = self.inner.holders.tend(now);
        self.trim(went_back);
        next
    }

    /// The same for one who does not sleep: it costs nothing but in one of very many calls.
    pub fn tend_while_busy(&self) {
        self.trim(self.inner.holders.tend_while_busy());
    }

    fn trim(&self, went_back: bool) {
        if went_back {
            // Without it the memory is used again later all the same.
            let _ = self.inner.channel.trim();
        }
    }

    /// Whether events wait to be dispatched.
    pub fn has_events(&self) -> bool {
        self.inner.channel.has_events()
    }

    /// The stack is gone: everybody learns of it, once.
    fn bury(&self) {
        if !self.inner.is_dead.swap(true, Ordering::AcqRel) {
            let all: Vec<Arc<Shared>> = lock(&self.inner.sockets).values().cloned().collect();
            for shared in all {
                let observer = lock(&shared.observer).clone();
                if let Some(observer) = observer {
                    observer.on_event();
                }
            }
        }
    }

    /// Whether the stack is gone, as far as it is known. Costs two loads.
    pub fn is_dead(&self) -> bool {
        self.inner.is_dead.load(Ordering::Relaxed) || self.inner.channel.closed().is_some()
    }

    /// Looks whether the stack is still there, also if it could not say that it ends.
    pub fn check_alive(&self) -> bool {
        let alive = !self.is_dead() && self.inner.channel.check_alive().is_none();
        if !alive {
            self.bury();
        }
        alive
    }

    /// A descriptor that is hung up (`POLLHUP`) when the stack is gone; -1 if that cannot be without this process.
    pub fn liveness(&self) -> RawFd {
        self.inner.liveness.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Closes all sockets and waits until what they had queued is acknowledged, as the kernel sees to it when a process
    /// ends; or until the time is over. Whether all was delivered. For the end of a process with the stack inside.
    pub fn close_all(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let open: Vec<(u32, Arc<Shared>)> =
            lock(&self.inner.sockets).iter().map(|(number, shared)| (*number, Arc::clone(shared))).collect();
        for (socket, shared) in &open {
            for connection in shared.close_accepted() {
                // Nobody has accepted it: it is reset. If the channel is closed, so is the connection.
                let _ = self.inner.channel.post(&Command::Abort { socket: connection });
            }
            if !shared.is_closed.swap(true, Ordering::AcqRel) {
                let _ = self.inner.channel.post(&Command::Close { socket: *socket });
            }
        }
        let delivered = |(socket, shared): &(u32, Arc<Shared>)| {
            let record = self.inner.channel.record(*socket);
            // The record of a socket that is done with begins anew: it tells no cursor any more.
            let is_over = record.state().is_empty() || record.state().contains(State::CLOSED);
            is_over || record.acked() >= shared.queued.load(Ordering::Relaxed)
        };
        let done = self.wait_until(end, || open.iter().all(delivered));
        // Ends the stack's thread, which lets the ends of the connections be acknowledged.
        drop(lock(&self.inner.host).take());
        done
    }

    fn wait_until(&self, end: Instant, mut is_done: impl FnMut() -> bool) -> bool {
        for _ in 0..YIELDS {
            if is_done() {
                return true;
            }
            std::thread::yield_now();
        }
        while !is_done() {
            if self.is_dead() || Instant::now() >= end {
                return false;
            }
            std::thread::sleep(FLUSH_INTERVAL);
        }
        true
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.inner.channel
    }

    /// Events for this number go to the one who holds the answer.
    pub(crate) fn register(&self, socket: u32) -> Arc<Shared> {
        let shared = Arc::<Shared>::default();
        lock(&self.inner.sockets).insert(socket, Arc::clone(&shared));
        shared
    }

    /// The socket is closed: no more events for it.
    pub(crate) fn unregister(&self, socket: u32, shared: &Arc<Shared>) {
        let mut sockets = lock(&self.inner.sockets);
        // The number may be another socket's already.
        if sockets.get(&socket).is_some_and(|known| Arc::ptr_eq(known, shared)) {
            sockets.remove(&socket);
        }
    }

    /// The stack has shut a listener: connections that nobody accepted are reset.
    pub(crate) fn reset_waiting(&self, shared: &Shared) {
        for connection in shared.close_accepted() {
            // If the channel is closed, so is the connection.
            let _ = self.inner.channel.post(&Command::Abort { socket: connection });
        }
        // What was announced before, and not heard of yet.
        self.dispatch();
    }

    /// A listener was closed: connections that nobody accepted are reset, those as well that the stack announces before
    /// it hears of the end.
    pub(crate) fn reset_unaccepted(&self, shared: &Shared) {
        self.reset_waiting(shared);
        self.wait_until(Instant::now() + RELEASE_LIMIT, || {
            self.dispatch();
            shared.is_released.load(Ordering::Acquire)
        });
    }
}

impl Inner {
    fn may_have_died(&self) -> bool {
        self.channel.closed().is_some() && !self.is_dead.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Whether the listener is still there.
    fn push_accepted(&self, socket: u32) -> bool {
        let mut accepted = lock(&self.accepted);
        if accepted.closed {
            accepted.taken = accepted.taken.wrapping_add(1);
        } else {
            accepted.waiting.push_back(socket);
            accepted.total += 1;
        }
        !accepted.closed
    }

    /// Connections are kept from now on. How many do not wait any more; wraps.
    pub(crate) fn open_accepted(&self) -> u32 {
        let mut accepted = lock(&self.accepted);
        accepted.closed = false;
        accepted.taken
    }

    fn close_accepted(&self) -> Vec<u32> {
        let mut accepted = lock(&self.accepted);
        accepted.closed = true;
        accepted.taken = accepted.taken.wrapping_add(accepted.waiting.len() as u32);
        accepted.waiting.drain(..).collect()
    }
}

/// What the FEP's status calls this process.
fn program_name() -> String {
    let executable = std::env::current_exe().ok();
    let name =
        executable.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "unknown".to_owned())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
