//! A world: hosts, paths and applications on virtual time.
//!
//! Everything that happens is an event at an instant, and events of one instant have a fixed order, so that a world
//! repeats exactly from its seed. A host that has something to do processes the frames that are due, then its timers,
//! then its applications, then gives out frames, until nothing changes; all of it takes no time.
//!
//! Build it with [`World::add_host`], [`World::add_path`], [`World::route`] and [`World::converse`]; let it run with
//! [`World::run_until`] or [`World::run_to_the_end`]; the latter gives a
//! [`Verdict`].

mod applications;
mod verdict;

use std::collections::{HashMap, HashSet};

use base::{Duration, Instant, Rng, SeededRng};
use netem::{Path, PathSpec};
use stack::{SocketId, Stack};
use wire::frame::Medium;

use crate::application::{ConversationSpec, Endpoint};
use crate::buffers::SimBuffers;
use crate::frame::SimFrame;
use crate::host::{EVERYBODY, Host, HostSpec};
use crate::network::{Network, PathId};
use crate::observer::Observer;
use crate::pcapng::Capture;
use crate::schedule::{Event, Schedule};

pub use verdict::{Limits, Verdict};

/// A listener of a host.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) host: u16,
    pub(crate) port: u16,
    pub(crate) socket: Option<SocketId>,
    pub(crate) options: stack::SocketOptions,
}

/// Hosts, paths, applications, and the time.
pub struct World<B: SimBuffers> {
    now: Instant,
    schedule: Schedule,
    hosts: Vec<Host<B>>,
    network: Network,
    /// Client and server of conversation `n` are `2n` and `2n + 1`.
    endpoints: Vec<Endpoint>,
    listeners: Vec<Listener>,
    /// Who converses on which socket, by host.
    on_socket: HashMap<(u16, SocketId), u32>,
    /// Which conversation a server's new connection belongs to, by the client's host and port and the server's.
    expected: HashMap<(u16, u16, u16, u16), u32>,
    /// The same ends of the clients whose SYN carried data (TCP Fast Open).
    begun_with_data: HashSet<(u16, u16, u16, u16)>,
    specs: Vec<ConversationSpec>,
    observer: Option<Observer>,
    capture: Option<Capture>,
    violations: Vec<String>,
    /// Conversations that are over.
    finished: usize,
    /// Hosts that have restarted: what they forgot is no fault.
    restarted: Vec<bool>,
    /// Packets lost or damaged on all paths, and when that was last seen to grow.
    lost: (u64, Instant),
    rng: SeededRng,
}

/// Steps of one host at one instant beyond which it is said to run in circles.
const MOST_STEPS: u32 = 100_000;
/// The most violations that are kept.
pub(crate) const MOST_VIOLATIONS: usize = 20;
/// The largest capture.
const MOST_CAPTURED: usize = 256 << 20;

impl<B: SimBuffers> World<B> {
    /// An empty world. Everything random in it follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            schedule: Schedule::default(),
            hosts: Vec::new(),
            network: Network::default(),
            endpoints: Vec::new(),
            listeners: Vec::new(),
            on_socket: HashMap::new(),
            expected: HashMap::new(),
            begun_with_data: HashSet::new(),
            specs: Vec::new(),
            observer: None,
            capture: None,
            violations: Vec::new(),
            finished: 0,
            restarted: Vec::new(),
            lost: (0, Instant::ZERO),
            rng: SeededRng::new(seed),
        }
    }

    /// Adds a host; its number.
    pub fn add_host(&mut self, spec: HostSpec) -> u16 {
        let number = self.hosts.len() as u16;
        let rng = SeededRng::new(self.rng.next_u64());
        self.hosts.push(Host::new(number, spec, rng));
        self.restarted.push(false);
        self.schedule.set(Event::Host(u32::from(number)), self.now);
        number
    }

    /// Adds a path, for use in routes.
    pub fn add_path(&mut self, spec: &PathSpec) -> PathId {
        self.network.add_path(spec, &mut self.rng)
    }

    /// What `source` sends to `destination` goes through these paths.
    pub fn route(&mut self, source: u16, destination: u16, paths: Vec<PathId>) {
        self.network.add_route(source, destination, paths);
    }

    /// Watches all frames for the laws of [`Observer`].
    pub fn observe(&mut self) {
        self.observer = Some(Observer::default());
    }

    /// Captures all frames. Add the hosts first.
    pub fn capture(&mut self) {
        let names: Vec<String> = (0..self.hosts.len()).map(|number| format!("host{number}")).collect();
        let medium = self.hosts.first().map_or(Medium::Ip, |host| host.spec.medium);
        self.capture = Some(Capture::new(medium, &names));
    }

    /// The capture so far, as a pcapng file.
    pub fn take_capture(&mut self) -> Option<Vec<u8>> {
        self.capture.take().map(Capture::into_bytes)
    }

    /// Adds a conversation; its number.
    pub fn converse(&mut self, spec: ConversationSpec) -> usize {
        let number = self.specs.len();
        let (up, down) = (2 * number as u64, 2 * number as u64 + 1);
        let listens = self.listeners.iter().any(|one| (one.host, one.port) == (spec.server, spec.port));
        if !listens {
            self.listeners.push(Listener {
                host: spec.server,
                port: spec.port,
                socket: None,
                options: spec.server_plan.options.clone(),
            });
            self.listen_again(spec.server);
        }
        self.endpoints.push(Endpoint::new(spec.client, spec.client_plan.clone(), spec.start, (up, down)));
        self.endpoints.push(Endpoint::new(spec.server, spec.server_plan.clone(), spec.start, (down, up)));
        self.schedule.set(Event::Application(up as u32), spec.start);
        self.specs.push(spec);
        number
    }

    /// The host restarts at `at`: a new stack takes its connections over from their snapshots, and their buffers.
    pub fn restart_at(&mut self, host: u16, at: Instant) {
        self.schedule.set(Event::Restart(u32::from(host)), at);
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// A client (`2n`) or a server (`2n + 1`) of conversation `n`.
    pub fn endpoint(&self, number: usize) -> &Endpoint {
        &self.endpoints[number]
    }

    /// All endpoints.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The stack of a host.
    pub fn stack(&self, host: u16) -> &Stack<B> {
        &self.hosts[usize::from(host)].stack
    }

    /// The connection of an endpoint, while it has one.
    pub fn connection(&self, endpoint: usize) -> Option<&tcp::Connection> {
        let endpoint = &self.endpoints[endpoint];
        self.stack(endpoint.host).tcp(endpoint.socket?)
    }

    /// A path.
    pub fn path(&self, id: PathId) -> &Path<SimFrame> {
        self.network.path(id)
    }

    /// What the observer has seen, if there is one.
    pub fn observer(&self) -> Option<&Observer> {
        self.observer.as_ref()
    }

    /// Lets everything happen that happens by `end`.
    pub fn run_until(&mut self, end: Instant) {
        while self.violations.is_empty() {
            let Some((at, event)) = self.schedule.next(end) else { break };
            self.now = at;
            self.on_event(event);
        }
        self.now = self.now.max(end);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Path(number) => {
                self.network.drain(self.now, PathId(number));
                self.settle_network();
            }
            Event::Host(number) => self.on_host(number as usize),
            Event::Application(number) => {
                let host = usize::from(self.endpoints[number as usize].host);
                self.step_endpoint(number);
                self.on_host(host);
            }
            Event::Restart(number) => {
                self.on_restart(number as u16);
                self.on_host(number as usize);
            }
        }
    }

    /// Gives arrived frames to their hosts, and sets the paths' next times.
    fn settle_network(&mut self) {
        let mut arrived = core::mem::take(&mut self.network.arrived);
        for frame in arrived.drain(..) {
            if let Some(observer) = &mut self.observer {
                observer.handle_arrived(&frame);
            }
            let number = usize::from(frame.destination);
            if let Some(capture) = self.capture.as_mut().filter(|capture| capture.len() < MOST_CAPTURED) {
                capture.frame(self.now, number, true, frame.head(), frame.payload());
            }
            let at = self.hosts[number].handle_arrival(self.now, frame);
            self.schedule.set_by(Event::Host(number as u32), at);
        }
        self.network.arrived = arrived;
        let mut touched = core::mem::take(&mut self.network.touched);
        for id in touched.drain(..) {
            let next = self.network.path(id).deadline().unwrap_or(Instant::FAR_FUTURE);
            self.schedule.set(Event::Path(id.0), next);
        }
        self.network.touched = touched;
    }

    /// Everything that a host has to do now.
    fn on_host(&mut self, number: usize) {
        let now = self.now;
        self.hosts[number].process_inbox(now);
        let mut room_at = None;
        for step in 0.. {
            let host = &mut self.hosts[number];
            let shown = host.clock(now);
            let due = host.stack.deadline().is_some_and(|deadline| deadline <= shown);
            if due {
                host.stack.handle_deadlines(shown);
            }
            let talked = self.run_applications(number as u16);
            room_at = self.hosts[number].fill_outbox(now).or(room_at);
            let sent = self.send_outbox(number);
            if !due && !talked && !sent {
                break;
            }
            if step == MOST_STEPS {
                self.report(format!("host {number} does not come to rest: deadline due {due}, applications {talked}, frames {sent}"));
                break;
            }
        }
        let host = &self.hosts[number];
        let timer = host.stack.deadline().map_or(Instant::FAR_FUTURE, |shown| host.when(shown));
        // A timer that is due was handled: what is left of it waits at least for the clock's next step.
        let timer = timer.max(now + Duration::from_nanos(1));
        let next = timer.min(host.processed_at).min(room_at.unwrap_or(Instant::FAR_FUTURE));
        self.schedule.set(Event::Host(number as u32), next);
    }

    /// Puts the frames that a host gave out on their way; whether there were any.
    fn send_outbox(&mut self, number: usize) -> bool {
        let mut outbox = core::mem::take(&mut self.hosts[number].outbox);
        let sent = !outbox.is_empty();
        let mtu = self.hosts[number].spec.mtu;
        for frame in outbox.drain(..) {
            if let Some(observer) = &mut self.observer {
                observer.handle_sent(self.now, &frame, mtu);
            }
            if let Some(capture) = self.capture.as_mut().filter(|capture| capture.len() < MOST_CAPTURED) {
                capture.frame(self.now, number, false, frame.head(), frame.payload());
            }
            if frame.destination == EVERYBODY {
                for destination in self.network.neighbours(frame.source) {
                    let mut copy = frame.clone();
                    copy.destination = destination;
                    self.network.forward(self.now, copy);
                }
            } else {
                self.network.forward(self.now, frame);
            }
        }
        self.hosts[number].outbox = outbox;
        self.settle_network();
        sent
    }

    pub(crate) fn report(&mut self, violation: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(format!("{:?} {violation}", self.now));
        }
    }
}
