//! Carrying a connection over to another stack: what a restarted or upgraded FEP does.

use base::Instant;
use core::fmt;

use crate::buffers::BufferFamily;
use crate::config::SocketOptions;
use crate::flow::Target;
use crate::ports::{Claim, Manner};
use crate::socket::{Kind, Socket, Stage, TcpSocket};
use crate::stack::{SocketId, Stack};

/// Why a connection cannot go on here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// The snapshot itself.
    Snapshot(tcp::RestoreError),
    /// Its local address is not one of this host's.
    AddressNotAvailable,
    /// A connection with the same ends exists.
    Exists,
    /// The table of sockets is full.
    TooManySockets,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(error) => error.fmt(f),
            Self::AddressNotAvailable => f.write_str("the connection's address is not this host's"),
            Self::Exists => f.write_str("the connection exists already"),
            Self::TooManySockets => f.write_str("too many sockets"),
        }
    }
}

impl core::error::Error for RestoreError {}

impl<B: BufferFamily> Stack<B> {
    /// Everything that a connection needs to go on, but for its buffers and options.
    pub fn snapshot(&self, id: SocketId) -> Option<tcp::Snapshot> {
        self.tcp(id).map(tcp::Connection::snapshot)
    }

    /// A connection goes on from its snapshot, with the buffers that outlived its former stack. It belongs to its owner,
    /// even if its snapshot was made while it waited to be accepted; one that was closed by its owner is an orphan again.
    ///
    /// # Errors
    /// [`RestoreError`]; nothing has changed.
    pub fn restore_tcp(
        &mut self,
        now: Instant,
        snapshot: &tcp::Snapshot,
        buffers: B::Stream,
        options: &SocketOptions,
    ) -> Result<SocketId, RestoreError> {
        let connection = tcp::Connection::restore(snapshot, now).map_err(RestoreError::Snapshot)?;
        if !self.is_local(connection.local().ip()) {
            return Err(RestoreError::AddressNotAvailable);
        }
        if !self.has_socket_room() {
            return Err(RestoreError::TooManySockets);
        }
        let closed = connection.state() == tcp::State::Closed;
        let mut tcp = TcpSocket::<B>::new(now, connection, buffers, Stage::Owned);
        let tuple = tcp.tuple();
        if !closed && self.find_tcp(&tuple).is_some() {
            return Err(RestoreError::Exists);
        }
        tcp.in_flows = !closed;
        let orphan = tcp.connection.is_orphaned();
        let manner = Manner {
            reuse_address: options.reuse_address,
            reuse_port: options.reuse_port,
            ..Manner::default()
        };
        let mut socket = Socket::new(Kind::Tcp(tcp), (!closed).then_some(manner), options, self.config.ttl);
        socket.orphan = orphan;
        self.orphans += usize::from(orphan);
        let key = self.sockets.insert(socket);
        if !closed {
            self.tcp_ports.hold(&Claim { local: tuple.local, manner });
            self.insert_flow(&tuple, Target::Socket(key.index));
        }
        self.schedule(key.index);
        self.sync_timer(key.index);
        Ok(key.into())
    }
}
