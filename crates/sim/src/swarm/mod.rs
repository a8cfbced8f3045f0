//! A swarm of random worlds: a seed makes a whole world, with all that can be different in it.
//!
//! [`run`] makes the world of a seed, runs it to its end and says what was wrong. The same seed is the same world to the
//! last frame, so a failing one is its own bug report; run it again with a capture.

mod conversations;
mod hosts;
mod paths;

use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use base::{Duration, Instant, Rng, SeededRng};
use netem::PathSpec;
use stack::HeapBuffers;
use tcp::CongestionAlgorithm;
use wire::frame::Medium;

use crate::application::ConversationSpec;
use crate::buffers::{PatternBuffers, SimBuffers};
use crate::host::HostSpec;
use crate::world::{Limits, Verdict, World};

/// A world as data.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it follows from.
    pub seed: u64,
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// The paths.
    pub paths: Vec<PathSpec>,
    /// Source, destination, and the paths between them.
    pub routes: Vec<(u16, u16, Vec<usize>)>,
    /// The conversations.
    pub conversations: Vec<ConversationSpec>,
    /// Hosts that restart, and when.
    pub restarts: Vec<(u16, Instant)>,
    /// The stack's own buffers instead of ones without bytes.
    pub heap: bool,
}

/// What became of a scenario.
#[derive(Debug)]
pub struct Report {
    /// The scenario.
    pub scenario: Scenario,
    /// What should not have happened, a panic included; empty if all is well.
    pub violations: Vec<String>,
    /// Virtual time until the last conversation was over.
    pub elapsed: Duration,
    /// Segments that hosts sent.
    pub segments: u64,
    /// Payload bytes that hosts sent, and how many of them again.
    pub bytes: (u64, u64),
    /// The capture, if one was asked for: a pcapng file.
    pub capture: Option<Vec<u8>>,
}

/// Makes the world of `seed` and runs it to its end, with a capture if one is wanted.
pub fn run(seed: u64, capture: bool) -> Report {
    Scenario::new(seed).run(capture)
}

impl Scenario {
    /// The world of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let medium = if chance(&mut rng, 0.15) { Medium::Ethernet } else { Medium::Ip };
        let mut scenario = Self {
            seed,
            hosts: Vec::new(),
            paths: Vec::new(),
            routes: Vec::new(),
            conversations: Vec::new(),
            restarts: Vec::new(),
            heap: chance(&mut rng, 0.5),
        };
        let mtu = [576, 1280, 1500, 1500, 1500, 4000, 9180, 65_535][rng.below(8) as usize];
        let slowest = match rng.below(10) {
            0..=5 => scenario.two_hosts(&mut rng, mtu),
            6..=8 => scenario.dumbbell(&mut rng, mtu),
            _ => scenario.parking_lot(&mut rng, mtu),
        };
        let corrupts = scenario.paths.iter().any(paths::corrupts);
        for host in &mut scenario.hosts {
            *host = hosts::random(&mut rng, medium, mtu, corrupts);
        }
        conversations::add(&mut rng, &mut scenario, slowest, mtu);
        // Drawn apart, as whatever else comes to the swarm later should be: the worlds of old seeds stay what they are.
        let mut later = SeededRng::new(seed ^ 0x636f_616c);
        for host in &mut scenario.hosts {
            host.coalesce = chance(&mut later, 0.5);
            host.stack.tcp.congestion = match later.below(4) {
                0 => CongestionAlgorithm::NewReno,
                1 => CongestionAlgorithm::Bbr,
                _ => CongestionAlgorithm::Cubic,
            };
        }
        if chance(&mut rng, 0.15) {
            let host = rng.below(scenario.hosts.len() as u64) as u16;
            let at = Instant::from_nanos(rng.below(5_000_000_000));
            scenario.restarts.push((host, at));
        }
        scenario
    }

    /// Runs it.
    pub fn run(self, capture: bool) -> Report {
        if self.heap {
            self.run_with::<HeapBuffers>(capture)
        } else {
            self.run_with::<PatternBuffers>(capture)
        }
    }

    fn run_with<B: SimBuffers>(self, capture: bool) -> Report {
        let mut world = World::<B>::new(self.seed);
        for host in &self.hosts {
            world.add_host(host.clone());
        }
        let ids: Vec<_> = self.paths.iter().map(|path| world.add_path(path)).collect();
        for (source, destination, route) in &self.routes {
            world.route(*source, *destination, route.iter().map(|index| ids[*index]).collect());
        }
        world.observe();
        if capture {
            world.capture();
        }
        for conversation in &self.conversations {
            world.converse(conversation.clone());
        }
        for (host, at) in &self.restarts {
            world.restart_at(*host, *at);
        }
        let limits = Limits::default();
        let ran = catch_unwind(AssertUnwindSafe(|| world.run_to_the_end(&limits)));
        let verdict = ran.unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let what = format!("{:?} panic: {}", world.now(), text.unwrap_or_default());
            Verdict { violations: vec![what], finished_at: world.now() }
        });
        let observer = world.observer();
        Report {
            violations: verdict.violations,
            elapsed: verdict.finished_at.saturating_since(Instant::ZERO),
            segments: observer.map_or(0, |observer| observer.segments),
            bytes: observer.map_or((0, 0), |observer| (observer.bytes_sent, observer.bytes_resent)),
            capture: world.take_capture(),
            scenario: self,
        }
    }

    /// A client and a server; returns the slowest rate on the way.
    fn two_hosts(&mut self, rng: &mut SeededRng, mtu: u16) -> u64 {
        self.hosts = vec![HostSpec::default(); 2];
        let rate = paths::random_rate(rng);
        self.paths = vec![paths::random(rng, rate, mtu), paths::random(rng, rate, mtu)];
        self.routes = vec![(0, 1, vec![0]), (1, 0, vec![1])];
        rate
    }

    /// Pairs of hosts that share one bottleneck each way, each with a delay of its own.
    fn dumbbell(&mut self, rng: &mut SeededRng, mtu: u16) -> u64 {
        let pairs = 2 + rng.below(3) as u16;
        self.hosts = vec![HostSpec::default(); usize::from(pairs) * 2];
        let rate = paths::random_rate(rng);
        self.paths = vec![paths::random(rng, rate, mtu), paths::random(rng, rate, mtu)];
        for pair in 0..pairs {
            let own = self.paths.len();
            self.paths.push(paths::random_delay(rng));
            self.routes.push((2 * pair, 2 * pair + 1, vec![own, 0]));
            self.routes.push((2 * pair + 1, 2 * pair, vec![1, own]));
        }
        rate
    }

    /// One pair across three bottlenecks, and a pair across each of them.
    fn parking_lot(&mut self, rng: &mut SeededRng, mtu: u16) -> u64 {
        self.hosts = vec![HostSpec::default(); 8];
        let rate = paths::random_rate(rng);
        for _ in 0..3 {
            let own = rate + rng.below(rate);
            self.paths.push(paths::random(rng, own, mtu));
        }
        self.paths.push(paths::random_delay(rng));
        self.routes = vec![(0, 1, vec![0, 1, 2]), (1, 0, vec![3])];
        for hop in 0..3_u16 {
            self.routes.push((2 + 2 * hop, 3 + 2 * hop, vec![usize::from(hop)]));
            self.routes.push((3 + 2 * hop, 2 + 2 * hop, vec![3]));
        }
        rate
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {}", self.seed, if self.heap { "heap buffers" } else { "pattern buffers" })?;
        for (number, path) in self.paths.iter().enumerate() {
            writeln!(f, "  path {number}: {path}")?;
        }
        for (source, destination, route) in &self.routes {
            writeln!(f, "  route {source} > {destination}: {route:?}")?;
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let tcp = &host.stack.tcp;
            writeln!(
                f,
                "  host {number}: {:?} mtu {} checksums {} segmentation {} clock {:?}+{:?} delay {:?} coalesce {} device {:?} \
                 timestamps {} scaling {} sack {} ecn {} window {}..{} {:?}",
                host.medium,
                host.mtu,
                host.checksums,
                host.max_segmentation,
                host.clock_offset,
                host.granularity,
                host.processing_delay,
                host.coalesce,
                host.device.map(|device| (device.frames, device.every)),
                tcp.timestamps,
                tcp.window_scaling,
                tcp.selective_acks,
                tcp.ecn,
                tcp.initial_window,
                tcp.window_limit,
                tcp.congestion,
            )?;
        }
        let total = self.conversations.len();
        for (number, conversation) in self.conversations.iter().enumerate().take(10) {
            let ConversationSpec { client, server, start, client_plan, server_plan, .. } = conversation;
            writeln!(f, "  conversation {number} of {total}: {client} > {server} at {start:?}")?;
            for (name, plan) in [("client", client_plan), ("server", server_plan)] {
                writeln!(
                    f,
                    "    {name} sends {} {:?} chunk {} buffer {} reads {:?} ends {:?} nodelay {}",
                    plan.send, plan.pace, plan.chunk, plan.buffer, plan.read, plan.end, plan.options.nodelay
                )?;
            }
        }
        self.restarts.iter().try_for_each(|(host, at)| writeln!(f, "  host {host} restarts at {at:?}"))
    }
}

fn chance(rng: &mut SeededRng, probability: f64) -> bool {
    rng.unit() < probability
}

/// A number between the bounds whose order of magnitude is uniform.
fn between(rng: &mut SeededRng, least: u64, most: u64) -> u64 {
    let (mut low, mut high) = (least.max(1), most.max(1));
    // Halving the span of magnitudes by draws of one bit needs no logarithm.
    while high > low.saturating_mul(2) {
        let ratio = (high as f64 / low as f64).sqrt();
        let middle = (low as f64 * ratio) as u64;
        if rng.next_u64() & 1 == 0 { high = middle } else { low = middle }
    }
    low + rng.below(high - low + 1)
}

fn span_between(rng: &mut SeededRng, least: Duration, most: Duration) -> Duration {
    Duration::from_nanos(between(rng, least.as_nanos(), most.as_nanos()))
}
