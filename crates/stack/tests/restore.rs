//! A connection goes on in another stack, from its snapshot and its surviving buffers.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use base::Duration;
use common::{Incoming, LinkConfig, Outgoing, World, host};
use outboard_stack::{RestoreError, SocketOptions, StackConfig};

/// Kills host `victim` again and again in the middle of a transfer in both directions.
fn transfer_with_deaths(seed: u64, link: LinkConfig, victim: usize, deaths: u64) {
    let mut world = World::new(seed, link);
    let (client, server) = world.pair(80);
    let mut ids = [client, server];
    let total = 1_500_000;
    let mut outgoing = [Outgoing::new(1, total), Outgoing::new(2, total)];
    let mut incoming = [Incoming::new(2), Incoming::new(1)];
    let mut died = 0;
    let done = world.run_until(Duration::from_secs(3600), |world| {
        for number in 0..2 {
            world.pump(number, ids[number], &mut outgoing[number]);
            world.drain(number, ids[number], &mut incoming[number]);
        }
        if died < deaths && incoming[1 - victim].read > (died + 1) * total / (deaths + 2) {
            died += 1;
            // Everything that left the stack is in the snapshot: it is taken after output was polled.
            world.flush();
            let snapshot = world.stack(victim).snapshot(ids[victim]).unwrap();
            let stream = world.stack(victim).stream(ids[victim]).unwrap().clone();
            let now = world.now;
            world.hosts[victim] = host(&link, StackConfig::default(), victim, seed + 100 + died, now);
            let options = SocketOptions::default();
            let id = world.stack(victim).restore_tcp(now, &snapshot, stream.clone(), &options).unwrap();
            let again = world.stack(victim).restore_tcp(now, &snapshot, stream, &options);
            assert_eq!(again, Err(RestoreError::Exists));
            ids[victim] = id;
        }
        incoming.iter().all(|incoming| incoming.finished)
    });
    assert!(done, "seed {seed}: {incoming:?}");
    assert_eq!(died, deaths);
    assert!(incoming.iter().all(|incoming| incoming.read == total));
    let now = world.now;
    for (number, id) in ids.into_iter().enumerate() {
        world.stack(number).close(now, id).unwrap();
    }
    world.run_for(Duration::from_secs(100));
    for number in 0..2 {
        assert_eq!(world.stack(number).socket_count(), 0);
    }
}

#[test]
fn a_transfer_survives_the_death_of_either_stack() {
    for seed in 0..4 {
        for victim in 0..2 {
            transfer_with_deaths(seed, LinkConfig::default(), victim, 5);
        }
    }
}

#[test]
fn a_transfer_over_a_bad_link_survives_too() {
    let link = LinkConfig {
        loss: 10,
        reorder: 50,
        duplicate: 10,
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    for seed in 10..14 {
        transfer_with_deaths(seed, link, (seed % 2) as usize, 3);
    }
}

#[test]
fn a_snapshot_of_another_host_is_refused() {
    let mut world = World::new(5, LinkConfig::default());
    let (client, _) = world.pair(80);
    let snapshot = world.stack(0).snapshot(client).unwrap();
    let now = world.now;
    let refused = world.stack(1).restore_tcp(now, &snapshot, Default::default(), &SocketOptions::default());
    assert_eq!(refused, Err(RestoreError::AddressNotAvailable));
    let mut bytes = *snapshot.as_bytes();
    bytes[40] ^= 1;
    let torn = tcp::Snapshot::from_bytes(bytes);
    let refused = world.stack(0).restore_tcp(now, &torn, Default::default(), &SocketOptions::default());
    assert_eq!(refused, Err(RestoreError::Snapshot(tcp::RestoreError::Checksum)));
}
