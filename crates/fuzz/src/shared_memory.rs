//! The shared memory between an application and the FEP: one application writes what it likes, another transfers.
//!
//! A whole worker runs, on virtual time, with a peer on its wire. The hostile application opens, binds, listens, connects and
//! queues like any other, forks, claims what it has from its parent and what it has not, and scribbles over its segment meanwhile. The worker may end its channel; it does not panic, the other
//! application's bytes are intact, and when the hostile one has gone nothing of it is left.

mod world;

use std::net::{Shutdown, SocketAddr};

use base::Duration;
use channel::{Command, Stamp};
use stack::{MtuDiscovery, SocketOption};

use crate::input::Input;
use world::World;

/// A program's most acts.
const MOST_ACTS: usize = 300;

/// Runs the program in `bytes`.
///
/// # Panics
/// If the worker is harmed, or the other application.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new();
    for _ in 0..MOST_ACTS {
        if input.is_empty() {
            break;
        }
        act(&mut world, &mut input);
    }
    world.finish();
}

fn act(world: &mut World, input: &mut Input<'_>) {
    let choice = input.byte();
    match choice % 20 {
        0..=8 => {
            let command = command(world, input);
            world.hand.command(channel::fuzz::words(&command));
        }
        9 => {
            // A command with some bits turned.
            let mut words = channel::fuzz::words(&command(world, input));
            words[input.below(4)] ^= input.nasty();
            world.hand.command(words);
        }
        10 => world.hand.record(input.byte().into(), input.byte().into(), input.nasty()),
        11 => world.hand.header(input.below(5), input.nasty() as u32),
        12 => world.hand.slot(input.byte().into(), input.nasty() as u32),
        13 => {
            // What may be taken for a datagram's record, or that of a run.
            let segment = u64::from(choice / 20) << 16;
            let word = u64::from(input.u16()) | segment | u64::from(input.byte() & 3) << 32;
            world.hand.area(usize::from(input.u16()) << 3, &word.to_ne_bytes());
        }
        14 => world.hand.anywhere(input.u32() as usize, input.take(16)),
        15 => world.pass(Duration::from_micros(u64::from(input.u16()) * 50)),
        16 => world.peer_acts(input),
        17 => world.transfer(),
        18 if choice < 40 => world.fork(),
        18 => world.change(),
        _ => world.settle(),
    }
}

/// A command that decodes and mostly makes sense.
fn command(world: &World, input: &mut Input<'_>) -> Command {
    let (socket, sequence) = (u32::from(input.byte() & 7), u32::from(input.byte() & 3));
    let remote: SocketAddr = ([10, 9, 0, 1], [80, 7, 9, 0][input.below(4)]).into();
    match input.below(16) {
        0 => Command::OpenTcp { socket, sequence },
        1 => Command::OpenUdp { socket, sequence },
        2 => {
            let address = [[0, 0, 0, 0], [10, 9, 0, 2], [10, 9, 0, 3], [127, 0, 0, 1]][input.below(4)];
            let port = [1000, 0, 7, input.u16()][input.below(4)];
            Command::Bind { socket, sequence, local: (address, port).into() }
        }
        3 => Command::Listen { socket, sequence, backlog: input.nasty() as u32 },
        4 => Command::Connect { socket, sequence, remote: (input.byte() != 0).then_some(remote) },
        5 | 6 => {
            let (page, log2) = (input.byte() & 63, 12 + u32::from(input.byte() % 6));
            let location = world.hand.ring(page.into(), log2, input.byte().into());
            Command::AttachSend { socket, location }
        }
        7 | 8 => Command::Send { socket, queued_to: input.nasty() },
        9 => Command::SendUrgent { socket, queued_to: input.nasty() },
        10 if sequence == 3 => {
            let wanted = input.byte();
            let (scheduled, sent, acknowledged) = (wanted & 1 != 0, wanted & 2 != 0, wanted & 4 != 0);
            let stamp = Stamp { scheduled, sent, acknowledged, key: wanted.into() };
            Command::Stamp { socket, offset: input.nasty(), stamp }
        }
        10 => Command::Consumed { socket },
        11 => Command::Shutdown {
            socket,
            sequence,
            how: [Shutdown::Read, Shutdown::Write, Shutdown::Both][input.below(3)],
        },
        12 => Command::Close { socket },
        13 => Command::Abort { socket },
        14 => Command::SetOption { socket, sequence, option: option(input) },
        _ => match sequence {
            1 => Command::Claim { socket, sequence, identity: input.nasty() },
            2 => Command::TakeError { socket, sequence },
            3 => Command::PathMtu { socket, sequence, remote: Some(remote) },
            _ => Command::Info { socket, sequence },
        },
    }
}

fn option(input: &mut Input<'_>) -> SocketOption {
    let nasty = input.nasty();
    let time = Some(Duration::from_millis(nasty & 0xffff_ffff));
    match input.below(8) {
        0 => SocketOption::ReuseAddress(input.bit()),
        1 => SocketOption::ReusePort(input.bit()),
        2 => SocketOption::Ttl(input.byte()),
        3 => SocketOption::NoDelay(input.bit()),
        4 => SocketOption::Cork(input.bit()),
        5 => SocketOption::ReceiveLimit(input.nasty() as u32),
        6 => SocketOption::UserTimeout(time),
        _ => match nasty >> 32 & 7 {
            1 => SocketOption::QueueErrors(nasty & 1 == 0),
            2 => SocketOption::ReceiveRuns(true),
            3 => SocketOption::MtuDiscovery(MtuDiscovery::from_number(nasty as u8 % 6).unwrap_or_default()),
            4 => SocketOption::TellSent(true),
            _ => SocketOption::Linger2(time),
        },
    }
}
