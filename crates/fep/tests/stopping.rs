//! A worker that was told to stop and waits for what its last connections still have to deliver.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{World, pattern};
use outboard_fep::worker::Stop;
use rustix::event::{EventfdFlags, eventfd};

#[test]
fn it_sleeps_while_it_waits() {
    let mut world = World::new();
    world.peer_listens(80);
    let app = world.app();
    let mut stream = app.connect(80);
    world.settle();
    // Nothing of it is ever acknowledged: from here on the peer has no time of its own.
    let sent = pattern(3, 0, 300_000);
    assert_eq!(stream.write(&sent), sent.len());
    // A signal that has come, and that nobody takes off.
    let signal = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
    let stop = Stop { signal: Some(signal), ..Stop::default() };
    world.worker.run(&stop).unwrap();
    // It waits for seconds, with a timer of the connection now and then and 50 µs of looking for work after each.
    let counters = world.worker.status().worker;
    assert!(counters.sleeps > 0);
    assert!(counters.turns < 20_000, "{} turns while there was nothing to do", counters.turns);
}
