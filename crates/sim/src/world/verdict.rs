//! Running a world to its end, and what must hold then.

use base::{Duration, Instant};
use wire::frame::Medium;

use super::World;
use super::applications::{longest_pause, plans_fit};
use crate::application::{End, Stage};
use crate::buffers::SimBuffers;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// No conversation stands still for longer than this after the last loss on any path.
    pub patience: Duration,
    /// All conversations are over by then.
    pub end: Instant,
    /// Connections may fail: the path is worse than TCP has to bear.
    pub failures: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(300),
            end: Instant::ZERO + Duration::from_secs(36_000),
            failures: false,
        }
    }
}

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What should not have happened; empty if all is well.
    pub violations: Vec<String>,
    /// When the last conversation was over.
    pub finished_at: Instant,
}

/// How often stuck conversations are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What remains after the last TIME-WAIT record: delayed frames, probes.
const LAST_TIMERS: Duration = Duration::from_secs(10);

impl<B: SimBuffers> World<B> {
    /// Runs until every conversation is over and everything is forgotten, or until something is wrong.
    pub fn run_to_the_end(&mut self, limits: &Limits) -> Verdict {
        while self.violations.is_empty() && self.finished < self.endpoints.len() {
            let next = self.now + LOOK_EVERY;
            self.run_until(next);
            self.check_progress(limits);
        }
        let finished_at = self.now;
        if self.violations.is_empty() {
            self.check_outcomes(limits);
        }
        if self.violations.is_empty() {
            self.close_listeners();
            let longest = self.hosts.iter().map(|host| {
                let tcp = &host.spec.stack.tcp;
                // An orphan's peer may still be retransmitting into TIME-WAIT.
                tcp.time_wait.max(tcp.fin_wait_2) + tcp.time_wait + tcp.rto_max
            });
            let rest = longest.max().unwrap_or(Duration::ZERO) + LAST_TIMERS;
            self.run_until(self.now + rest);
            self.check_remains();
        }
        self.verdict(finished_at)
    }

    fn verdict(&self, finished_at: Instant) -> Verdict {
        let mut violations = self.violations.clone();
        if let Some(observer) = &self.observer {
            violations.extend(observer.violations().iter().cloned());
        }
        Verdict { violations, finished_at }
    }

    /// No conversation stands still.
    fn check_progress(&mut self, limits: &Limits) {
        let lost = self.network.lost();
        if lost > self.lost.0 {
            self.lost = (lost, self.now);
        }
        let mut stuck = Vec::new();
        for (number, pair) in self.endpoints.chunks_exact(2).enumerate() {
            let [client, server] = pair else { continue };
            debug_assert!(
                plans_fit(&client.plan, &server.plan),
                "the plans of conversation {number} do not fit"
            );
            let over = client.stage == Stage::Released && server.stage == Stage::Released;
            let pause = longest_pause(&client.plan).max(longest_pause(&server.plan));
            let moved = client.progress.max(server.progress).max(self.lost.1);
            if !over && self.now.saturating_since(moved) > limits.patience + pause {
                stuck.push(number);
            }
        }
        for number in stuck {
            if self.is_forgotten(number) {
                self.give_up(2 * number as u32);
                continue;
            }
            let ends = [2 * number, 2 * number + 1].map(|end| self.describe(end));
            self.report(format!(
                "conversation {number} is stuck\n    client {}\n    server {}",
                ends[0], ends[1]
            ));
        }
        if self.now > limits.end && self.finished < self.endpoints.len() {
            self.report(format!("{} endpoints are not done in time", self.endpoints.len() - self.finished));
        }
    }

    /// A server that restarted before the handshake was over knows nothing of it, and a client that has nothing to send
    /// cannot find out.
    fn is_forgotten(&self, conversation: usize) -> bool {
        let (client, server) = (&self.endpoints[2 * conversation], &self.endpoints[2 * conversation + 1]);
        server.stage == Stage::Waiting && self.restarted[usize::from(server.host)] && client.acked == 0
    }

    fn describe(&self, number: usize) -> String {
        let end = &self.endpoints[number];
        let what = format!(
            "{:?} queued {} of {} acked {} read {} shut {} saw the end {} error {:?}",
            end.stage, end.queued, end.plan.send, end.acked, end.read, end.shut, end.saw_end, end.error
        );
        match self.connection(number) {
            Some(connection) => {
                let host = &self.hosts[usize::from(end.host)];
                let (shown, deadline) = (host.clock(self.now), connection.deadline());
                let wants = connection.wants_output(shown);
                let stack = (host.stack.wants_transmit(), host.stack.deadline());
                format!(
                    "{what}\n      its clock {shown:?} wants output {wants} deadline {deadline:?}; stack {stack:?}\n      {:?}",
                    connection.info()
                )
            }
            None => what,
        }
    }

    /// Every conversation has come to the end that its plans provide.
    fn check_outcomes(&mut self, limits: &Limits) {
        let mut wrong = Vec::new();
        for (number, pair) in self.endpoints.chunks_exact(2).enumerate() {
            let [client, server] = pair else { continue };
            let aborted = [client, server].iter().any(|end| matches!(end.plan.end, End::Abort(_)));
            let restarted = [client, server].iter().any(|end| self.restarted[usize::from(end.host)]);
            for (own, peer, name) in [(client, server, "client"), (server, client, "server")] {
                if own.read > peer.queued {
                    wrong.push(format!("the {name} of conversation {number} read more than was sent"));
                }
                if aborted || limits.failures {
                    continue;
                }
                let ethernet = self.hosts[usize::from(own.host)].spec.medium == Medium::Ethernet;
                // Address resolution gives up after three tries, and a server that cannot reach its client forgets it.
                let excused = own.error.is_some_and(|error| match error {
                    tcp::Error::Aborted => restarted,
                    tcp::Error::Reset => restarted || ethernet,
                    tcp::Error::HostUnreachable => ethernet,
                    // Seven SYNs are lost now and then among thousands of worlds.
                    tcp::Error::TimedOut => own.established.is_none() && self.lost.0 > 6,
                    _ => false,
                });
                if own.error.is_some() && !excused {
                    wrong.push(format!("the {name} of conversation {number} failed: {:?}", own.error));
                } else if own.error.is_none() && own.read < peer.queued && !restarted && !ethernet {
                    wrong.push(format!(
                        "the {name} of conversation {number} read {} of {} bytes",
                        own.read, peer.queued
                    ));
                }
            }
        }
        for what in wrong {
            self.report(what);
        }
    }

    /// Nothing is left behind: sockets, records, timers, frames, streams.
    fn check_remains(&mut self) {
        let mut left = Vec::new();
        for host in &self.hosts {
            let stack = &host.stack;
            // Neighbours and addresses have timers of their own, and they stay.
            let timers = match host.spec.medium {
                Medium::Ip => stack.timer_count(),
                Medium::Ethernet => stack.timer_count().saturating_sub(stack.neighbours().count() + 1),
            };
            for (what, count) in [
                ("sockets", stack.socket_count()),
                ("TIME-WAIT records", stack.time_wait_count()),
                ("timers", timers),
                ("frames in the inbox", host.inbox.len()),
                ("streams", B::alive(&host.owner).unwrap_or(0)),
            ] {
                if count > 0 {
                    left.push(format!("host {} keeps {count} {what}", host.number));
                }
            }
        }
        if self.network.frames() > 0 {
            left.push(format!("{} frames are still on their way", self.network.frames()));
        }
        for what in left {
            self.report(what);
        }
    }
}
