//! The worker: one thread that moves frames between a device and the stack, and commands and events between the stack
//! and its applications.
//!
//! [`Worker::turn`] is one round of its loop: frames in, commands, timers, frames out, publication. It takes the time as
//! an argument and never waits, so that a test drives it step by step. [`Worker::run`] repeats it by the real clock and
//! decides how to wait when there is nothing to do: it looks again for [`spin`](crate::config::WorkerConfig::spin),
//! soon offering the processor to others at each look, then says in every channel that it sleeps, looks once more, and
//! sleeps until a descriptor or a deadline wakes it.
//!
//! Reading order: this file, `run`, `core`, `commands`, `publish`, `app`.

mod accept;
mod app;
mod commands;
mod core;
mod errors;
mod filling;
mod idle;
mod key;
mod kin;
mod last_words;
mod listening;
mod noise;
mod options;
mod pause;
mod publish;
mod report;
mod run;
mod serve;
mod sink;

use std::io;
use std::sync::Arc;

use base::Instant;
use channel::Offence;
use channel::control::Token;
use channel::fep::{AppChannel, Family, Limits as ChannelLimits};
use device::Device;
use stack::memory::Budget;
use stack::{FastOpenConfig, InterfaceConfig, InterfaceId, Route, Stack, StackConfig};

use crate::accounting::Account;
use crate::clerk::Answers;
use crate::clock;
use crate::config::{Network, NetworkRoute, WorkerConfig};
use crate::control::Server;
use crate::poller::Poller;
pub use app::Identity;
pub(crate) use app::{Application, Ending};
pub(crate) use core::Core;
pub(crate) use key::Key;
use listening::Listening;
use noise::Noise;
pub use run::{Caller, Stop};
use sink::{Backlog, DeviceSink};

/// Frames taken from the device before anything else has its turn. Their arrival is stamped once for all of them. Few: a
/// frame may be a super-segment that takes ten microseconds, and its acknowledgement waits for the turn's end.
const RECEIVE_BUDGET: usize = 4;
/// Rounds of transmission in one turn; each is bounded by the stack.
const TRANSMIT_ROUNDS: usize = 4;

/// How full the tables of a worker are: what must come back when applications end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Applications.
    pub applications: usize,
    /// Sockets of the stack, orphans included.
    pub sockets: usize,
    /// Connections in TIME-WAIT.
    pub time_waits: usize,
    /// Armed timers.
    pub timers: usize,
    /// Sockets whose receive memory is looked after.
    pub watched_for_idleness: usize,
    /// What is remembered of who was forked from whom, and of the sockets that they share.
    pub kinship: usize,
}

/// One worker over one device.
pub struct Worker<D: Device> {
    pub(crate) core: Core,
    pub(crate) device: D,
    pub(crate) interface: InterfaceId,
    pub(crate) account: Account,
    pub(crate) config: WorkerConfig,
    pub(crate) network: Network,
    /// The receive buffers of all applications.
    pub(crate) memory: Arc<Budget>,
    backlog: Backlog,
    /// What the clerks of applications that lend files have read.
    answers: Arc<Answers>,
    poller: Poller,
    server: Option<Server>,
    caller: Option<Arc<Caller>>,
    /// The device is broken; frames are neither received nor sent.
    device_error: Option<io::Error>,
    /// How often the device is looked at.
    listening: Listening,
    /// Scratch space for what has woken it.
    woken: Vec<crate::poller::Source>,
}

impl<D: Device> Worker<D> {
    /// A worker for `device` with the network's addresses and routes. Draws entropy, registers descriptors.
    ///
    /// # Errors
    /// The operating system refuses entropy or an epoll instance.
    pub fn new(now: Instant, device: D, network: Network, config: WorkerConfig) -> io::Result<Self> {
        let mut stack =
            Stack::<Family>::new(stack_config(&config), clock::random_source()?, clock::entropy()?);
        let mut capabilities = device.capabilities();
        capabilities.mtu = capabilities.mtu.min(network.mtu);
        let interface = stack.add_interface(
            now,
            InterfaceConfig {
                name: network.interface.clone(),
                capabilities,
                addresses: network.addresses.clone(),
            },
        );
        for &NetworkRoute { destination, gateway, mtu } in &network.routes {
            stack.insert_route(Route { destination, gateway, interface, mtu });
        }
        let noise = Noise::new(device.noise_filter(), network.addresses.iter().map(|own| own.address()));
        let poller = Poller::new()?;
        if let Some(descriptor) = device.descriptor() {
            poller.add(descriptor, crate::poller::Source::Device)?;
        }
        let answers = Answers::new()?;
        poller.add_edge(answers.bell(), crate::poller::Source::Clerk)?;
        Ok(Self {
            core: Core::new(stack, config.limits, noise),
            memory: Budget::new(config.limits.memory_bytes),
            device,
            interface,
            account: Account::new(now),
            config,
            network,
            backlog: Backlog::default(),
            answers,
            poller,
            server: None,
            caller: None,
            device_error: None,
            listening: Listening::default(),
            woken: Vec::new(),
        })
    }

    /// Takes in an application whose half of the channel is in this process; its place in the table.
    ///
    /// # Errors
    /// The operating system refuses memory or descriptors.
    pub fn add_local(&mut self, channel: AppChannel, identity: Identity) -> io::Result<u32> {
        self.add(Application::new(channel, identity, None), clock::entropy()?, None)
    }

    /// The same of one that was forked from the application at `parent`, all of whose sockets it has from now on.
    ///
    /// # Errors
    /// As [`add_local`](Self::add_local).
    pub fn add_local_child(
        &mut self,
        channel: AppChannel,
        identity: Identity,
        parent: u32,
    ) -> io::Result<u32> {
        self.add(Application::new(channel, identity, None), clock::entropy()?, Some(parent))
    }

    /// An application has gone. In the turns to come its sockets are closed as those of a process that exits.
    pub fn end_application(&mut self, app: u32) {
        self.core.end(app, Ending::Gone);
    }

    /// How full the worker's tables are.
    pub fn tables(&self) -> Tables {
        Tables {
            applications: self.core.apps.len(),
            sockets: self.core.stack.socket_count(),
            time_waits: self.core.stack.time_wait_count(),
            timers: self.core.stack.timer_count(),
            watched_for_idleness: self.core.idle.len(),
            kinship: self.core.families.len(),
        }
    }

    /// The limits of an application's channel.
    pub fn channel_limits(&self) -> ChannelLimits {
        channel_limits(&self.config)
    }

    /// What all applications together may have of receive buffers. Channels that are made elsewhere have to be made within it.
    pub fn memory(&self) -> &Arc<Budget> {
        &self.memory
    }

    /// One round: whatever there is to do is done, up to the budgets. Returns whether there was anything.
    pub fn turn(&mut self, now: Instant) -> bool {
        self.round(now, true)
    }

    /// A turn; the device is asked for frames or not.
    fn round(&mut self, now: Instant, listens: bool) -> bool {
        self.account.turns += 1;
        self.core.recount_crowded();
        let mut busy = listens && self.receive(now);
        busy |= self.core.publish_changes(now) > 0;
        busy |= self.core.poll_commands(now) > 0;
        busy |= self.hear_clerks(now);
        if busy {
            // Before the deadlines: however long the last turn took, this is no pause.
            self.core.note_busy(now);
        }
        busy |= self.handle_deadlines(now);
        busy |= self.transmit(now);
        self.core.noise.follow(now, &self.core.stack);
        busy |= self.core.publish_changes(now) > 0;
        if busy {
            self.core.note_busy(now);
        }
        self.let_finished_go();
        busy
    }

    /// When a turn must come although nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        [self.core.stack.deadline(), self.core.deadline()].into_iter().flatten().min()
    }

    /// The error that ended the device's use, if one did.
    pub fn device_error(&self) -> Option<&io::Error> {
        self.device_error.as_ref()
    }

    fn receive(&mut self, now: Instant) -> bool {
        if self.device_error.is_some() {
            return false;
        }
        let Self { core, device, interface, .. } = self;
        let mut batch = core.stack.begin_batch(now);
        let received = device.receive(RECEIVE_BUDGET, &mut |frame| batch.handle_frame(*interface, frame));
        drop(batch);
        match received {
            Ok(count) => {
                self.listening.heard(now, count);
                count > 0
            }
            Err(error) => {
                tracing::error!("the network device is gone: {error}");
                self.device_error = Some(error);
                true
            }
        }
    }

    fn hear_clerks(&mut self, now: Instant) -> bool {
        let answers = self.answers.take();
        let heard = !answers.is_empty();
        for answer in answers {
            self.core.on_answer(now, answer);
        }
        heard
    }

    fn handle_deadlines(&mut self, now: Instant) -> bool {
        let due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let (stack_due, core_due) = (due(self.core.stack.deadline()), due(self.core.deadline()));
        if stack_due {
            self.core.stack.handle_deadlines(now);
        }
        if core_due {
            self.core.handle_deadlines(now);
        }
        stack_due || core_due
    }

    fn transmit(&mut self, now: Instant) -> bool {
        if self.device_error.is_some() || !self.backlog.retry(&mut self.device) {
            // Applications that talk to each other need no device.
            self.core.stack.poll_loopback(now);
            return self.core.on_output(now);
        }
        let (mut sent, mut busy) = (0, false);
        for round in 0..TRANSMIT_ROUNDS {
            let mut sink = DeviceSink { device: &mut self.device, backlog: &mut self.backlog };
            sent += self.core.stack.poll_transmit(now, &mut sink);
            // Those who wait for bytes of another application here do not wait for the next round.
            busy |= self.core.publish_changes(now) > 0;
            let has_closed = round == 0 && self.core.on_output(now);
            if !(self.core.stack.wants_transmit() || has_closed) || self.backlog.is_blocked() {
                break;
            }
        }
        if sent > 0
            && let Err(error) = self.device.flush()
        {
            tracing::warn!("the network device cannot put out what it holds: {error}");
        }
        busy || sent > 0
    }

    /// Takes an application in, which another one has forked or not, and listens for its doorbell.
    pub(crate) fn add(
        &mut self,
        application: Application,
        token: Token,
        parent: Option<u32>,
    ) -> io::Result<u32> {
        let app = self.core.add(application, token, parent);
        let doorbell = self.core.apps[app].channel.doorbell();
        if let Err(error) = self.poller.add_edge(doorbell, crate::poller::Source::Doorbell(app)) {
            self.core.end(app, Ending::Gone);
            return Err(error);
        }
        Ok(app)
    }

    fn let_finished_go(&mut self) {
        while let Some(finished) = self.core.poll_finished() {
            self.poller.remove(finished.channel.doorbell());
            if let (Some(server), Some(connection)) = (&mut self.server, finished.connection) {
                server.hang_up(&self.poller, connection);
            }
        }
    }

    /// Cuts an application off for something that its control connection brought.
    pub(crate) fn cut_off(&mut self, app: u32, offence: Offence) {
        self.core.end(app, Ending::CutOff(offence));
    }
}

/// The stack's limits and manners.
fn stack_config(config: &WorkerConfig) -> StackConfig {
    let limits = &config.limits;
    let window_limit = u32::try_from(limits.receive_buffer_max).unwrap_or(u32::MAX);
    let defaults = StackConfig::default();
    let mut tcp = tcp::Config { window_limit, congestion: config.congestion, ..defaults.tcp.clone() };
    config.path.apply(&mut tcp);
    tcp.user_timeout_option = config.user_timeout_option;
    StackConfig {
        max_orphans: limits.orphans as usize,
        orphan_timeout: limits.orphan_time,
        share_path_information: config.path.share_information,
        tcp,
        syn_cookies: config.syn_cookies,
        fast_open: FastOpenConfig {
            client: config.fast_open,
            server: config.fast_open,
            ..FastOpenConfig::default()
        },
        ..defaults
    }
}

/// The limits of an application's channel.
pub(crate) fn channel_limits(config: &WorkerConfig) -> ChannelLimits {
    let limits = &config.limits;
    ChannelLimits {
        sockets: limits.sockets,
        send_bytes: limits.buffer_bytes,
        receive_bytes: limits.buffer_bytes,
        ..ChannelLimits::default()
    }
}
