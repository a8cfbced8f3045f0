//! The control socket: applications come and go, people ask.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use channel::app::{Channel, ConnectError};
use channel::control::sys::{Received, receive, send};
use channel::control::{Answer, Request};
use channel::{Command, State};
use device::memory;
use outboard_fep::clock;
use outboard_fep::config::{Limits, Network, NetworkRoute, WorkerConfig};
use outboard_fep::control::{About, AskError, Client, Server, Status, connect_to, open_listener};
use outboard_fep::worker::{Caller, Stop, Worker};

/// A worker on a thread, with a control socket and nobody on the wire.
struct Fep {
    directory: tempfile::TempDir,
    caller: Arc<Caller>,
    thread: Option<JoinHandle<()>>,
}

impl Fep {
    fn start(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = open_listener(&directory.path().join("fep.sock"), 0o600).unwrap();
        let (device, handle) = memory::queue(common::capabilities(2)).unwrap();
        let network = Network {
            interface: "mem0".into(),
            addresses: vec!["10.9.0.2/24".parse().unwrap()],
            routes: vec![NetworkRoute {
                destination: "0.0.0.0/0".parse().unwrap(),
                gateway: "10.9.0.1".parse().ok(),
                mtu: None,
            }],
            mtu: 1500,
        };
        let config = WorkerConfig { limits, ..WorkerConfig::default() };
        let mut worker = Worker::new(clock::now(), device, network, config).unwrap();
        worker.serve(Server::new(listener, About { name: "test".into(), ..About::default() })).unwrap();
        let caller = Arc::new(Caller::new().unwrap());
        let stop = Stop { caller: Some(caller.clone()), ..Stop::default() };
        let thread = std::thread::spawn(move || {
            worker.run(&stop).unwrap();
            drop(handle);
        });
        Self { directory, caller, thread: Some(thread) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("fep.sock")
    }

    fn connect(&self, name: &str) -> Result<Arc<Channel>, ConnectError> {
        Channel::connect(connect_to(&self.path()).unwrap(), name).map(|(channel, _)| channel)
    }

    fn status(&self) -> Status {
        Client::connect(&self.path()).unwrap().status().unwrap()
    }

    /// Asks until the answer pleases. What is awaited happens in another thread, soon but not at once.
    fn until(&self, pleases: impl Fn(&Status) -> bool) -> Status {
        loop {
            let status = self.status();
            if pleases(&status) {
                return status;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Fep {
    fn drop(&mut self) {
        self.caller.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn ask(socket: &OwnedFd, message: &[u8]) -> Vec<u8> {
    send(socket, message, &[]).unwrap();
    let mut buffer = vec![0; 1 << 17];
    match receive(socket, &mut buffer).unwrap() {
        Received::Message(length, _) => buffer[..length].to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_application_gets_a_channel_and_is_seen() {
    let fep = Fep::start(common::small_limits());
    let control = connect_to(&fep.path()).unwrap();
    let (channel, network) = Channel::connect(control, "worm").unwrap();
    assert_eq!(network.addresses, ["10.9.0.2/24".parse().unwrap()]);
    assert_eq!(network.routes.len(), 1);
    let socket = channel.new_socket().unwrap();
    channel.call(socket, |sequence| Command::OpenTcp { socket, sequence }).unwrap();
    let local = "0.0.0.0:8080".parse().unwrap();
    channel.call(socket, |sequence| Command::Bind { socket, sequence, local }).unwrap();
    channel.call(socket, |sequence| Command::Listen { socket, sequence, backlog: 5 }).unwrap();
    assert!(channel.record(socket).state().contains(State::LISTENING));

    let status = fep.status();
    assert_eq!(status.name, "test");
    let [application] = &status.applications[..] else { panic!("{status:?}") };
    assert_eq!((application.name.as_str(), application.sockets), ("worm", 1));
    assert_eq!(application.pid, std::process::id());
    assert_eq!(status.connections.get("listen"), Some(&1));
    let rows = Client::connect(&fep.path()).unwrap().connections().unwrap();
    assert_eq!((rows[0].state.as_str(), rows[0].local.as_str()), ("LISTEN", "0.0.0.0:8080"));
    assert_eq!(rows[0].pid, std::process::id());

    drop(channel);
    fep.until(|status| status.applications.is_empty() && status.connections.is_empty());
}

#[test]
fn commands_are_answered_with_the_errno_of_linux() {
    let fep = Fep::start(common::small_limits());
    let channel = fep.connect("errno").unwrap();
    let open = || {
        let socket = channel.new_socket().unwrap();
        channel.call(socket, |sequence| Command::OpenTcp { socket, sequence }).unwrap();
        socket
    };
    let errno = |outcome: std::io::Result<()>| outcome.unwrap_err().raw_os_error().unwrap();
    let bind = |socket, local: &str| {
        channel.call(socket, |sequence| Command::Bind { socket, sequence, local: local.parse().unwrap() })
    };
    let (first, second) = (open(), open());
    bind(first, "10.9.0.2:70").unwrap();
    assert_eq!(errno(bind(second, "10.9.0.2:70")), libc::EADDRINUSE);
    assert_eq!(errno(bind(second, "10.9.0.77:70")), libc::EADDRNOTAVAIL);
    assert_eq!(errno(bind(first, "10.9.0.2:71")), libc::EINVAL);
    bind(second, "0.0.0.0:0").unwrap();
    assert_ne!(channel.record(second).local().unwrap().port(), 0);
    let shutdown = channel.call(first, |sequence| Command::Shutdown {
        socket: first,
        sequence,
        how: std::net::Shutdown::Both,
    });
    assert_eq!(errno(shutdown), libc::ENOTCONN);
    let unknown = channel.call(first, |sequence| Command::UnknownOption { socket: first, sequence });
    assert_eq!(errno(unknown), libc::ENOPROTOOPT);
}

#[test]
fn limits_on_applications_are_told() {
    let fep = Fep::start(Limits { applications: 2, ..common::small_limits() });
    let _first = fep.connect("one").unwrap();
    let second = fep.connect("two").unwrap();
    let Err(ConnectError::Refused(text)) = fep.connect("three") else { panic!() };
    assert!(text.contains("limits.applications"), "{text}");
    drop(second);
    fep.until(|status| status.applications.len() == 1);
    fep.connect("three").unwrap();
}

#[test]
fn another_version_is_told_what_to_do() {
    let fep = Fep::start(common::small_limits());
    let control = connect_to(&fep.path()).unwrap();
    let hello = Request::Hello { version: 999, pid: 1, name: "old".into(), parent: None }.encode();
    let Some(Answer::Refused(text)) = Answer::decode(&ask(&control, &hello)) else { panic!() };
    assert!(text.contains("999"), "{text}");
    assert!(fep.status().applications.is_empty());
}

#[test]
fn nonsense_is_refused_and_ends_an_application() {
    let fep = Fep::start(common::small_limits());
    let stranger = connect_to(&fep.path()).unwrap();
    assert!(String::from_utf8(ask(&stranger, b"DANCE")).unwrap().contains("error"));
    assert!(matches!(Answer::decode(&ask(&stranger, b"HELLO   ")), Some(Answer::Refused(_))));
    // An application that says HELLO twice.
    let control = connect_to(&fep.path()).unwrap();
    let (version, name) = (channel::layout::VERSION, "twice".into());
    let hello = Request::Hello { version, pid: 1, name, parent: None }.encode();
    assert!(matches!(Answer::decode(&ask(&control, &hello)), Some(Answer::Welcome { .. })));
    send(&control, &hello, &[]).unwrap();
    let status = fep.until(|status| status.applications.is_empty());
    assert_eq!(status.offences.get("bad_message"), Some(&1));
}

#[test]
fn nobody_there_is_an_error_that_names_the_fix() {
    let Err(error @ AskError::Nobody(_)) = Client::connect(Path::new("/nowhere/fep.sock")) else { panic!() };
    assert!(error.to_string().contains("outboard up"));
}

#[test]
fn ten_thousand_channels_come_and_go() {
    let fep = Fep::start(common::small_limits());
    let cycle = || {
        let channel = fep.connect("mayfly").unwrap();
        let socket = channel.new_socket().unwrap();
        channel.post(&Command::OpenTcp { socket, sequence: 0 }).unwrap();
        let remote = Some("10.9.0.1:80".parse().unwrap());
        channel.post(&Command::Connect { socket, sequence: 0, remote }).unwrap();
    };
    let gone = |status: &Status| status.applications.is_empty() && status.connections.is_empty();
    for _ in 0..200 {
        cycle();
    }
    let before = fep.until(gone);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let open = descriptors();
    for _ in 0..10_000 {
        cycle();
    }
    let after = fep.until(gone);
    assert_eq!(after.worker.applications_seen, before.worker.applications_seen + 10_000);
    let growth = after.memory_bytes.saturating_sub(before.memory_bytes);
    assert!(growth < 8 << 20, "{growth} bytes more than before");
    // Other tests of this process open and close descriptors meanwhile, but not thousands.
    assert!(descriptors().abs_diff(open) < 200);
}

/// A control connection that asks and never listens does not hold the others up.
#[test]
fn one_who_does_not_listen_is_hung_up_on() {
    let fep = Fep::start(common::small_limits());
    let deaf = connect_to(&fep.path()).unwrap();
    let mut asked = 0;
    while asked < 100_000 && send(deaf.as_fd(), b"STATUS", &[]).is_ok() {
        asked += 1;
    }
    assert!(asked < 100_000);
    fep.status();
}
