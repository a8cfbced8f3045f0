//! What the worlds of several test programs are made of.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use base::{Duration, Instant};
use netem::PathSpec;
use sim::{HostSpec, Limits, SimBuffers, World};

pub fn path(text: &str) -> PathSpec {
    text.parse().expect("a path")
}

/// A client, host 0, and a server, host 1, with a path each way; observed.
pub fn pair<B: SimBuffers>(seed: u64, host: &HostSpec, forward: &str, back: &str) -> World<B> {
    let mut world = World::new(seed);
    let (client, server) = (world.add_host(host.clone()), world.add_host(host.clone()));
    let (forward, back) = (world.add_path(&path(forward)), world.add_path(&path(back)));
    world.route(client, server, vec![forward]);
    world.route(server, client, vec![back]);
    world.observe();
    world
}

/// Runs the world to its end; nothing may be wrong. Returns when the last conversation was over.
pub fn finish<B: SimBuffers>(world: &mut World<B>) -> Duration {
    let verdict = world.run_to_the_end(&Limits::default());
    assert!(verdict.violations.is_empty(), "{}", verdict.violations.join("\n"));
    verdict.finished_at.saturating_since(Instant::ZERO)
}
