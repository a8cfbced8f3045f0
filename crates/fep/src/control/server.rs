//! The answering side of the control socket: its connections, and who is behind each.
//!
//! What is said on a connection is the worker's business; here is only what has to be kept in order: numbers, limits on
//! how many there are, and that nothing here ever waits.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::{Duration, Instant};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};
use slab::Slab;

use crate::poller::{Poller, Source};

/// Connections at a time, applications and questions together.
const MAX_CONNECTIONS: usize = 8_192;
/// Connections at a time of one user other than root and the FEP's own, beyond the applications that the user may have.
const MAX_QUESTIONERS: u32 = 64;
/// How long nobody is let in after the operating system had no descriptor left: a waiting caller would end every sleep.
const PAUSE: Duration = Duration::from_millis(100);

/// What a FEP is called and when it started, for its status.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Its name.
    pub name: String,
    /// The supervisor's process, 0 if there is none.
    pub supervisor: u32,
    /// When it started, nanoseconds of CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// Workers before this one.
    pub restarts: u64,
}

/// Who is at the other end of a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

impl Peer {
    /// Whether the limits of a single user do not apply.
    pub(crate) fn is_privileged(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

/// A control connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    /// The application that it belongs to, once it has said HELLO.
    pub(crate) app: Option<u32>,
}

/// The control socket with its connections.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    connections: Slab<Connection>,
    /// How many connections each user has.
    of_user: HashMap<u32, u32>,
    /// Until when nobody is let in.
    paused_until: Option<Instant>,
    /// What to say of the FEP.
    pub about: About,
}

impl Server {
    /// Serves a listening, non-blocking SEQPACKET socket.
    pub fn new(listener: OwnedFd, about: About) -> Self {
        Self { listener, connections: Slab::new(), of_user: HashMap::new(), paused_until: None, about }
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes the next connection that waits; false if none does. `applications_per_user` is the limit of that name.
    pub(crate) fn accept(&mut self, poller: &Poller, applications_per_user: u32) -> io::Result<bool> {
        let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        let credentials = socket_peercred(&socket)?;
        let peer = Peer {
            pid: credentials.pid.as_raw_nonzero().get().unsigned_abs(),
            uid: credentials.uid.as_raw(),
        };
        let of_user = self.of_user.get(&peer.uid).copied().unwrap_or(0);
        let too_many = !peer.is_privileged() && of_user >= applications_per_user + MAX_QUESTIONERS;
        if too_many || self.connections.len() >= MAX_CONNECTIONS {
            // Closing it is the answer.
            return Ok(true);
        }
        let entry = self.connections.vacant_entry();
        poller.add(&socket, Source::Control(entry.key() as u32))?;
        entry.insert(Connection { socket, peer, app: None });
        self.of_user.insert(peer.uid, of_user + 1);
        Ok(true)
    }

    /// Lets nobody in for a while.
    pub(crate) fn pause(&mut self, now: Instant, poller: &Poller) {
        poller.remove(&self.listener);
        self.paused_until = Some(now + PAUSE);
    }

    /// When [`resume`](Self::resume) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Ends a pause that is over, unless the operating system has still nothing left: then it goes on.
    pub(crate) fn resume(&mut self, now: Instant, poller: &Poller) {
        if self.paused_until.is_some_and(|until| until <= now) {
            let failed = poller.add(&self.listener, Source::Listener).is_err();
            self.paused_until = failed.then_some(now + PAUSE);
        }
    }

    pub(crate) fn connection(&mut self, connection: u32) -> Option<&mut Connection> {
        self.connections.get_mut(connection as usize)
    }

    /// Closes a connection.
    pub(crate) fn hang_up(&mut self, poller: &Poller, connection: u32) -> Option<Connection> {
        let closed = self.connections.try_remove(connection as usize)?;
        poller.remove(&closed.socket);
        if let Some(of_user) = self.of_user.get_mut(&closed.peer.uid) {
            *of_user -= 1;
            if *of_user == 0 {
                self.of_user.remove(&closed.peer.uid);
            }
        }
        Some(closed)
    }
}
