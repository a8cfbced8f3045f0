//! Applications that come and die by the thousand leave nothing. A test program of its own with this one test: it counts what
//! the process holds, and a test beside it would hold something, too.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::World;

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// One application that connects, is connected to, is in the middle of transfers both ways, and dies.
fn live_and_die(world: &mut World, listener: stack::SocketId) {
    let mut app = world.app();
    app.listen(7);
    let mut out = app.connect(80);
    world.settle();
    let peer = world.peer.tcp_accept(listener).unwrap();
    let other = world.peer_connects(7);
    world.settle();
    let accepted = app.accepted();
    let mut incoming = app.stream(accepted[0]);
    out.write(&[1; 20_000]);
    incoming.write(&[2; 20_000]);
    world.peer_sends(peer, &[3; 20_000]);
    world.peer_sends(other, &[4; 20_000]);
    world.worker.turn(world.now);
    world.worker.end_application(app.place);
    drop((out, incoming, app));
    world.settle();
    for socket in [peer, other] {
        world.peer.tcp_abort(socket);
        let _ = world.peer.close(world.now, socket);
    }
    world.settle();
    world.peer_looks();
}

#[test]
fn ten_thousand_connect_and_die_cycles_leave_nothing() {
    let mut world = World::new();
    let listener = world.peer_listens(80);
    for _ in 0..500 {
        live_and_die(&mut world, listener);
    }
    world.let_linger();
    world.assert_empty();
    let (memory, open) = (resident(), descriptors());
    for round in 0..10_000 {
        live_and_die(&mut world, listener);
        if round % 1_000 == 0 {
            world.let_linger();
        }
    }
    world.let_linger();
    world.assert_empty();
    assert_eq!(descriptors(), open);
    let growth = resident().saturating_sub(memory);
    assert!(growth < 4 << 20, "{growth} bytes more than before");
}
