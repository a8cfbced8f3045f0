use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::LIMITS;
use crate::app::{Channel, Closure, ConnectError};
use crate::control::sys::{Received, receive, refuse_descriptors, send};
use crate::control::{Answer, Network, Request, version_refusal};
use crate::fep::{AppChannel, WaiterError};
use crate::layout::VERSION;
use crate::{Command, Offence};

fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn next_request(socket: &OwnedFd) -> Option<Request> {
    let mut buffer = [0; 4096];
    match receive(socket, &mut buffer).unwrap() {
        Received::Message(length, descriptors) => {
            assert!(descriptors.is_empty());
            Some(Request::decode(&buffer[..length]).unwrap().unwrap())
        }
        Received::HungUp => None,
        Received::Truncated => panic!(),
    }
}

/// What a worker does with a control connection, until it hangs up or the command CLOSE comes.
fn serve(socket: OwnedFd) -> AppChannel {
    let Some(Request::Hello { version: VERSION, pid, name, parent: None }) = next_request(&socket) else {
        panic!()
    };
    assert_eq!((pid, name.as_str()), (std::process::id(), "test"));
    let mut half = AppChannel::create(&LIMITS).unwrap();
    let offer = half.offer();
    let welcome = Answer::Welcome { geometry: offer.geometry, network: Network::default(), token: [0; 16] };
    send(&socket, &welcome.encode(), &[offer.a, offer.f, offer.doorbell]).unwrap();
    loop {
        match next_request(&socket) {
            Some(Request::NewWaiter { slot }) => match half.add_waiter(slot) {
                Ok(bell) => send(&socket, &Answer::Bell { slot }.encode(), &[bell.as_fd()]).unwrap(),
                Err(WaiterError::Offence(_)) => break,
                Err(error) => panic!("{error}"),
            },
            Some(other) => panic!("{other:?}"),
            None => break,
        }
    }
    half
}

#[test]
fn a_channel_comes_over_the_control_socket() {
    let (ours, theirs) = sockets();
    let fep = std::thread::spawn(move || serve(theirs));
    let (app, network) = Channel::connect(ours, "test").unwrap();
    assert_eq!(network, Network::default());
    let waiter = app.waiter_with_bell().unwrap();
    assert!(waiter.bell().is_some());
    app.post(&Command::Close { socket: 3 }).unwrap();
    assert_eq!(app.check_alive(), None);
    drop((waiter, app));
    let mut half = fep.join().unwrap();
    assert_eq!(half.poll_command(), Ok(Some(Command::Close { socket: 3 })));
    assert!(matches!(half.add_waiter(0), Err(WaiterError::Offence(Offence::BadWaiter))));
    assert!(matches!(half.add_waiter(LIMITS.waiters), Err(WaiterError::Offence(Offence::BadWaiter))));
}

#[test]
fn a_bell_over_the_control_socket_rings() {
    let (ours, theirs) = sockets();
    let fep = std::thread::spawn(move || serve(theirs));
    let second = ours.try_clone().unwrap();
    let (app, _) = Channel::connect(ours, "test").unwrap();
    let mut waiter = app.waiter_with_bell().unwrap();
    waiter.prepare();
    // Asking for the same bell again is an offence: the worker drops its half, which wakes everybody.
    send(&second, &Request::NewWaiter { slot: waiter.slot() }.encode(), &[]).unwrap();
    drop(fep.join().unwrap());
    let bell = waiter.bell().unwrap();
    let mut descriptors = [PollFd::new(&bell, PollFlags::IN)];
    assert_eq!(poll(&mut descriptors, None).unwrap(), 1);
    assert_eq!(app.check_alive(), Some(Closure::Ended));
}

#[test]
fn a_refusal_is_told_as_it_was_said() {
    let (ours, theirs) = sockets();
    let fep = std::thread::spawn(move || {
        let Some(Request::Hello { .. }) = next_request(&theirs) else { panic!() };
        send(&theirs, &Answer::Refused(version_refusal(999).unwrap()).encode(), &[]).unwrap();
    });
    let error = Channel::connect(ours, "test").unwrap_err();
    assert!(matches!(&error, ConnectError::Refused(text) if text.contains("version 999")), "{error}");
    fep.join().unwrap();
}

#[test]
fn a_fep_that_vanishes_is_noticed() {
    let (ours, theirs) = sockets();
    let duplicate = theirs.try_clone().unwrap();
    let fep = std::thread::spawn(move || {
        // As if killed: the half is forgotten, not dropped.
        let half = AppChannel::create(&LIMITS).unwrap();
        let offer = half.offer();
        let welcome =
            Answer::Welcome { geometry: offer.geometry, network: Network::default(), token: [0; 16] };
        next_request(&theirs).unwrap();
        send(&theirs, &welcome.encode(), &[offer.a, offer.f, offer.doorbell]).unwrap();
        std::mem::forget(half);
    });
    let (app, _) = Channel::connect(ours, "test").unwrap();
    fep.join().unwrap();
    assert_eq!(app.check_alive(), None);
    drop(duplicate);
    assert_eq!(app.closed(), None);
    assert_eq!(app.check_alive(), Some(Closure::Ended));
    // A call that is never answered ends all the same.
    let error = app.call(0, |sequence| Command::Info { socket: 0, sequence }).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
}

#[test]
fn descriptors_that_nobody_wants_do_not_arrive() {
    let (ours, theirs) = sockets();
    // A kernel before 6.16 cannot do this.
    if refuse_descriptors(&theirs).unwrap() {
        let error = send(&ours, b"HELLO", &[ours.as_fd()]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }
    send(&ours, b"HELLO", &[]).unwrap();
    send(&theirs, b"WELCOME", &[theirs.as_fd()]).unwrap();
    let mut buffer = [0; 100];
    assert!(
        matches!(receive(&theirs, &mut buffer), Ok(Received::Message(5, descriptors)) if descriptors.is_empty())
    );
    assert!(
        matches!(receive(&ours, &mut buffer), Ok(Received::Message(7, descriptors)) if descriptors.len() == 1)
    );
}

#[test]
fn segments_that_are_not_what_was_said_are_refused() {
    for (swap, wrong) in [(true, false), (false, true)] {
        let (ours, theirs) = sockets();
        let fep = std::thread::spawn(move || {
            let half = AppChannel::create(&LIMITS).unwrap();
            let offer = half.offer();
            let mut geometry = offer.geometry;
            geometry.sockets += if wrong { 1000 } else { 0 };
            next_request(&theirs).unwrap();
            let (a, f) = if swap { (offer.f, offer.a) } else { (offer.a, offer.f) };
            let welcome = Answer::Welcome { geometry, network: Network::default(), token: [0; 16] };
            send(&theirs, &welcome.encode(), &[a, f, offer.doorbell]).unwrap();
        });
        assert!(matches!(Channel::connect(ours, "test"), Err(ConnectError::Nonsense(_))));
        fep.join().unwrap();
    }
}
