//! The answering side of the control socket: its connections, and who is behind each.
//!
//! What is said on a connection is the worker's business; here is only what has to be kept in order: numbers, limits on
//! how many there are, and that nothing here ever waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};
use slab::Slab;

use crate::poller::{Poller, Source};

/// Connections at a time, applications and questions together.
const MAX_CONNECTIONS: usize = 8_192;

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
    /// What to say of the FEP.
    pub about: About,
}

impl Server {
    /// Serves a listening, non-blocking SEQPACKET socket.
    pub fn new(listener: OwnedFd, about: About) -> Self {
        Self { listener, connections: Slab::new(), about }
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes the next connection that waits; false if none does.
    pub(crate) fn accept(&mut self, poller: &Poller) -> io::Result<bool> {
        let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        if self.connections.len() >= MAX_CONNECTIONS {
            // Closing it is the answer.
            return Ok(true);
        }
        let credentials = socket_peercred(&socket)?;
        let peer = Peer {
            pid: credentials.pid.as_raw_nonzero().get().unsigned_abs(),
            uid: credentials.uid.as_raw(),
        };
        let entry = self.connections.vacant_entry();
        poller.add(&socket, Source::Control(entry.key() as u32))?;
        entry.insert(Connection { socket, peer, app: None });
        Ok(true)
    }

    pub(crate) fn connection(&mut self, connection: u32) -> Option<&mut Connection> {
        self.connections.get_mut(connection as usize)
    }

    /// Closes a connection.
    pub(crate) fn hang_up(&mut self, poller: &Poller, connection: u32) -> Option<Connection> {
        let closed = self.connections.try_remove(connection as usize)?;
        poller.remove(&closed.socket);
        Some(closed)
    }
}
