//! Sockets that processes have in common because one forked the other.
//!
//! One process uses such a socket at a time; the others have it all the same, and it lives until all have closed it. Who wants to use
//! it claims it. Before a fork: [`Endpoint::announce_child`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use channel::State;
use channel::app::{ReceiveStream, SendStream};

use super::Options;
use super::sides::{ReceiveSide, SendSide};
use super::socket::{Kind, Socket, new_number};
use crate::Endpoint;

/// What the last user of a socket asked for is waited for no longer than this.
const CLAIM_LIMIT: Duration = Duration::from_secs(5);

impl Socket {
    /// What the socket is called by all processes that have it; `None`: it cannot be shared with those that are forked.
    pub fn identity(&self) -> Option<u64> {
        self.record().identity()
    }

    /// Whether another process that has the socket uses it: receiving and sending fail with `ESTALE`, and this process has to
    /// [`claim`](Self::claim) it to use it again.
    pub fn is_moved(&self) -> bool {
        self.record().state().contains(State::MOVED)
    }

    /// Takes over the use of a socket that this process has in common with others by a fork. `options`: those that were set.
    ///
    /// # Errors
    /// `ENOTCONN`: it is over, or this process has not got it.
    pub fn claim(endpoint: &Endpoint, identity: u64, options: Options) -> io::Result<Self> {
        let (channel, number) = (endpoint.channel(), new_number(endpoint)?);
        let deadline = Instant::now() + CLAIM_LIMIT;
        let (consumed, queued) = loop {
            match channel.claim(number, identity) {
                Ok(places) => break places,
                // Something that its last user asked for is not done yet.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && Instant::now() < deadline => {
                    std::thread::yield_now();
                }
                Err(error) => {
                    channel.return_socket(number);
                    return Err(error);
                }
            }
        };
        let send = SendStream::resumed(Arc::clone(channel), number, queued);
        let limit = send.limit();
        let receive = ReceiveStream::resumed(Arc::clone(channel), number, consumed);
        let (send, receive) = (SendSide::Stream(send), ReceiveSide::Stream(receive));
        let socket = Self::new(endpoint, number, Kind::Stream, send, receive, limit);
        socket.shared.queued.store(queued, Ordering::Relaxed);
        socket.progress.consumed.store(consumed, Ordering::Relaxed);
        let state = socket.record().state();
        if state.intersects(State::CONNECTED | State::CONNECTING) {
            socket.progress.connect_called.store(true, Ordering::Relaxed);
            socket.progress.connect_told.store(state.contains(State::CONNECTED), Ordering::Relaxed);
        }
        if state.contains(State::LISTENING) {
            socket.record().set_accepted(socket.shared.open_accepted());
        }
        socket.inherit(options);
        Ok(socket)
    }
}
