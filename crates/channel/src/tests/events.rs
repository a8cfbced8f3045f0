use proptest::prelude::*;
use tcp::TcpInfo;

use super::{LIMITS, World};
use crate::app::Closure;
use crate::layout::header_a;
use crate::{Command, Event, Offence, State};

fn events(world: &World) -> Vec<Event> {
    let mut all = Vec::new();
    world.app.poll_events(&mut |event| all.push(event)).unwrap();
    all
}

#[test]
fn ready_comes_once_until_it_is_read() {
    let mut world = World::new();
    let socket = world.open();
    world.fep.notify(socket);
    assert_eq!(events(&world), []);
    world.app.record(socket).set_watched(true);
    for _ in 0..3 {
        world.fep.notify(socket);
    }
    assert!(world.app.has_events());
    assert_eq!(events(&world), [Event::Ready { socket }]);
    assert!(!world.app.has_events());
    world.fep.notify(socket);
    assert_eq!(events(&world), [Event::Ready { socket }]);
}

#[test]
fn an_accepted_number_comes_back_after_its_release_is_read() {
    let mut world = World::new();
    let listener = world.open();
    let half = LIMITS.sockets / 2;
    let numbers: Vec<u32> = (0..half).map(|_| world.fep.allocate_socket().unwrap()).collect();
    assert_eq!(numbers, (half..LIMITS.sockets).collect::<Vec<_>>());
    assert_eq!(world.fep.allocate_socket(), None);
    world.fep.return_socket(half + 3);
    assert_eq!(world.fep.allocate_socket(), Some(half + 3));
    world.fep.publish_addresses(
        half,
        Some("10.0.0.2:80".parse().unwrap()),
        Some("10.0.0.3:999".parse().unwrap()),
    );
    world.fep.publish_state(half, State::CONNECTED);
    world.fep.accepted(listener, half);
    assert_eq!(events(&world), [Event::Accepted { listener, socket: half }]);
    let record = world.app.record(half);
    assert_eq!(record.local(), Some("10.0.0.2:80".parse().unwrap()));
    assert_eq!(record.remote(), Some("10.0.0.3:999".parse().unwrap()));
    record.set_reader(0);
    record.set_read_wake(77);
    world.fep.release_socket(half);
    assert_eq!(world.fep.allocate_socket(), None);
    assert_eq!(events(&world), [Event::Released { socket: half }]);
    // Both halves of the record are as new before the number is given again.
    assert_eq!(world.fep.allocate_socket(), Some(half));
    assert_eq!((record.state(), record.local(), record.received()), (State::empty(), None, 0));
    assert_eq!(world.fep.allocate_socket(), None);
}

#[test]
fn an_own_number_comes_back_after_its_release() {
    let mut world = World::new();
    let all: Vec<u32> = (0..LIMITS.sockets / 2).map(|_| world.open()).collect();
    assert_eq!(world.app.new_socket(), None);
    world.app.post(&Command::Close { socket: all[5] }).unwrap();
    world.work().unwrap();
    assert_eq!(world.app.new_socket(), None);
    world.release(all[5]);
    // Before the application has read that, it cannot use the number again.
    assert_eq!(world.fep.check_own(all[5]), Err(Offence::AlreadyOpen));
    assert_eq!(events(&world), [Event::Released { socket: all[5] }]);
    assert_eq!(world.open(), all[5]);
    assert_eq!(world.fep.check_own(all[5]), Ok(()));
    assert_eq!(world.fep.check_own(LIMITS.sockets / 2), Err(Offence::NotYours));
}

#[test]
fn events_that_do_not_fit_come_later_and_in_order() {
    let mut world = World::new();
    let listener = world.open();
    let count = u64::from(world.fep.geometry().events) + 100;
    for _ in 0..count {
        world.fep.accepted(listener, 40);
    }
    world.app.record(listener).set_watched(true);
    for _ in 0..5 {
        world.fep.notify(listener);
    }
    assert_eq!(events(&world).len() as u64, count - 100);
    assert_eq!(events(&world), []);
    world.fep.flush_events().unwrap();
    let late = events(&world);
    assert_eq!(late.len(), 101);
    assert_eq!(late[100], Event::Ready { socket: listener });
    world.fep.notify(listener);
    assert_eq!(events(&world), [Event::Ready { socket: listener }]);
}

#[test]
fn answers_reach_the_caller() {
    let mut world = World::new();
    let socket = world.open();
    let app = world.app.clone();
    let caller = std::thread::spawn(move || {
        let info = app.tcp_info(socket).map_err(|error| error.to_string());
        let no = app.call(socket, |sequence| Command::Listen { socket, sequence, backlog: 5 });
        (info, no.unwrap_err().raw_os_error())
    });
    let info = TcpInfo { state: 1, rtt: 2, snd_cwnd_bytes: 14_600, ..TcpInfo::default() };
    let mut answered = 0;
    while answered < 2 {
        match world.fep.poll_command().unwrap() {
            Some(Command::Info { socket, sequence }) => {
                world.fep.publish_info(&info);
                world.fep.answer(socket, sequence, 0);
                answered += 1;
            }
            Some(Command::Listen { socket, sequence, backlog: 5 }) => {
                // Let the caller fall asleep, often enough.
                std::thread::sleep(std::time::Duration::from_millis(2));
                world.fep.answer(socket, sequence, libc::EADDRINUSE);
                answered += 1;
            }
            Some(other) => panic!("{other:?}"),
            None => std::thread::yield_now(),
        }
    }
    assert_eq!(caller.join().unwrap(), (Ok(info), Some(libc::EADDRINUSE)));
}

#[test]
fn errors_are_counted() {
    let mut world = World::new();
    let socket = world.open();
    assert_eq!(world.app.record(socket).error(), (0, 0));
    world.fep.publish_error(socket, libc::ECONNREFUSED);
    world.fep.publish_error(socket, libc::ECONNREFUSED);
    assert_eq!(world.app.record(socket).error(), (2, libc::ECONNREFUSED));
    assert_eq!(world.app.record(socket).state(), State::ERROR);
}

#[test]
fn a_closed_channel_says_why_and_takes_nothing() {
    let mut world = World::new();
    assert_eq!(world.app.closed(), None);
    world.fep.close(Some(Offence::BadLocation));
    world.fep.close(None);
    assert_eq!(world.app.closed(), Some(Closure::CutOff(Offence::BadLocation)));
    let error = world.app.post(&Command::Consumed { socket: 0 }).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
    let World { fep, app, .. } = World::new();
    drop(fep);
    assert_eq!(app.closed(), Some(Closure::Ended));
    assert_eq!(app.check_alive(), Some(Closure::Ended));
    assert!(app.call(0, |sequence| Command::Info { socket: 0, sequence }).is_err());
}

#[test]
fn a_full_command_ring_ends_with_the_channel() {
    let World { fep, app, .. } = World::new();
    let poster = std::thread::spawn(move || {
        let mut posted = 0u32;
        while app.post(&Command::Consumed { socket: 0 }).is_ok() {
            posted += 1;
        }
        posted
    });
    // As many as there is room for, then it waits until nobody will ever read them.
    let mut produced = [0; 4];
    while u32::from_ne_bytes(produced) < fep.geometry().commands {
        rustix::io::pread(fep.offer().a, &mut produced, header_a::COMMANDS_PRODUCED as u64).unwrap();
        std::thread::yield_now();
    }
    drop(fep);
    assert!(poster.join().unwrap() >= 4095);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Sockets opened, accepted, closed and released in any order: numbers never collide, and all come back.
    #[test]
    fn numbers_survive_churn(steps in prop::collection::vec(0u8..6, 1..400)) {
        let mut world = World::new();
        let (mut own, mut accepted) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                0 | 1 => if let Some(socket) = world.app.new_socket() {
                    prop_assert!(socket < 32 && !own.contains(&socket));
                    world.app.post(&Command::OpenTcp { socket, sequence: 0 }).unwrap();
                    prop_assert_eq!(world.work(), Ok(vec![]));
                    own.push(socket);
                },
                2 => if let Some(socket) = world.fep.allocate_socket() {
                    prop_assert!((32..64).contains(&socket) && !accepted.contains(&socket));
                    world.fep.accepted(0, socket);
                    accepted.push(socket);
                },
                3 => if let Some(socket) = own.pop() { world.release(socket) },
                4 => if !accepted.is_empty() {
                    let socket = accepted.remove(accepted.len() / 2);
                    world.release(socket);
                },
                _ => { events(&world); }
            }
        }
        for socket in own.into_iter().chain(accepted) {
            world.release(socket);
        }
        events(&world);
        let (mut ours, mut theirs) = (0, 0);
        while world.app.new_socket().is_some() { ours += 1; }
        while world.fep.allocate_socket().is_some() { theirs += 1; }
        prop_assert_eq!((ours, theirs), (32, 32));
    }
}
