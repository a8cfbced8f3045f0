//! What status output lists: every socket and TIME-WAIT record, all at once or a bounded part at a time.

use core::net::SocketAddr;
use core::ops::ControlFlow;

use crate::SocketId;
use crate::buffers::BufferFamily;
use crate::slab::Key;
use crate::socket::{Kind, Socket};
use crate::stack::Stack;
use crate::tcp_sockets::TimeWaitRecord;

/// A connection, a listener or a UDP socket, for status output.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionInfo {
    /// Its name; `None` for a TIME-WAIT record.
    pub id: Option<SocketId>,
    /// What its owner attached to it.
    pub user_data: u64,
    /// What it is doing.
    pub state: ConnectionState,
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: Option<SocketAddr>,
    /// Its owner has closed it.
    pub orphan: bool,
    /// Bytes queued and not acknowledged.
    pub send_queue: u64,
    /// Bytes received and not read; of a listener: connections not accepted.
    pub receive_queue: u64,
}

/// What a socket is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Bound only.
    Bound,
    /// Listening.
    Listen,
    /// A connection in this state.
    Tcp(tcp::State),
    /// UDP.
    Udp,
}

/// Positions from here on are those of TIME-WAIT records.
const TIME_WAITS: u64 = 1 << 32;

impl<B: BufferFamily> Stack<B> {
    /// Every socket and TIME-WAIT record.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionInfo> {
        let sockets = self.sockets.iter().filter_map(|(key, socket)| info(key, socket));
        sockets.chain(self.time_waits.iter().map(|(_, record)| info_of_record(record)))
    }

    /// Shows `each` what stands from `position` on (0: the start), looking at `slots` places at most, until it breaks off.
    /// Returns the position to go on from; `None`: that was the end. What comes or goes between two calls is shown or not;
    /// what stays is shown exactly once.
    pub fn visit_connections(
        &self,
        position: u64,
        slots: u32,
        mut each: impl FnMut(ConnectionInfo) -> ControlFlow<()>,
    ) -> Option<u64> {
        let mut position = position;
        for _ in 0..slots {
            if position < TIME_WAITS && position >= u64::from(self.sockets.slots()) {
                position = TIME_WAITS;
            }
            let index = position as u32;
            let found = if position < TIME_WAITS {
                let key = self.sockets.key_at(index);
                key.zip(self.sockets.get_index(index)).and_then(|(key, socket)| info(key, socket))
            } else if index < self.time_waits.slots() {
                self.time_waits.get_index(index).map(info_of_record)
            } else {
                return None;
            };
            position += 1;
            if found.is_some_and(|found| each(found).is_break()) {
                break;
            }
        }
        Some(position)
    }
}

fn info_of_record(record: &TimeWaitRecord) -> ConnectionInfo {
    ConnectionInfo {
        id: None,
        user_data: 0,
        state: ConnectionState::Tcp(tcp::State::TimeWait),
        local: record.tuple.local,
        remote: Some(record.tuple.remote),
        orphan: true,
        send_queue: 0,
        receive_queue: 0,
    }
}

fn info<B: BufferFamily>(key: Key, socket: &Socket<B>) -> Option<ConnectionInfo> {
    let (state, send_queue, receive_queue) = match &socket.kind {
        Kind::Bound(_) => (ConnectionState::Bound, 0, 0),
        Kind::Listener(listener) => (ConnectionState::Listen, 0, listener.queues.accept_len as u64),
        Kind::Tcp(tcp) => {
            let connection = &tcp.connection;
            let send_queue = connection.queued_to().saturating_sub(connection.acked_to());
            let receive_queue = connection.received_to().saturating_sub(connection.consumed_to());
            (ConnectionState::Tcp(connection.state()), send_queue, receive_queue)
        }
        Kind::Udp(_) => (ConnectionState::Udp, 0, 0),
        Kind::Released => return None,
    };
    Some(ConnectionInfo {
        id: Some(key.into()),
        user_data: socket.user_data,
        state,
        local: socket.local()?,
        remote: socket.remote(),
        orphan: socket.orphan,
        send_queue,
        receive_queue,
    })
}
