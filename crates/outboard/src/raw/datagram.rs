//! The data paths of a UDP socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use channel::State;
use channel::app::ReceiveDatagrams;

use super::errors::MOST_PAYLOAD;
use super::sides::{ReceiveSide, SendSide};
use super::socket::{Socket, errno};
use super::{Datagram, DatagramOptions};
use crate::endpoint::lock;

/// A socket counts as writable when a datagram of this length can be queued.
const USEFUL_ROOM: usize = 32 << 10;

impl Socket {
    /// Queues a datagram for `remote`, or for the connected peer.
    pub fn send_to(&self, buffers: &[IoSlice<'_>], remote: Option<SocketAddr>) -> io::Result<usize> {
        self.send_to_with(buffers, remote, DatagramOptions::default())
    }

    /// As [`send_to`](Self::send_to), with options of its own.
    pub fn send_to_with(
        &self,
        buffers: &[IoSlice<'_>],
        remote: Option<SocketAddr>,
        options: DatagramOptions,
    ) -> io::Result<usize> {
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if length > usize::from(u16::MAX) {
            return Err(errno(libc::EMSGSIZE));
        }
        if let Some(error) = self.take_error()? {
            return Err(error);
        }
        if remote.is_none() && !self.record().state().contains(State::CONNECTED) {
            return Err(errno(libc::EDESTADDRREQ));
        }
        if self.is_write_shut() {
            return Err(errno(libc::EPIPE));
        }
        if self.endpoint.is_dead() {
            return Err(errno(libc::ENETDOWN));
        }
        if let Some(remote) = remote {
            if remote.port() == 0 {
                return Err(errno(libc::EINVAL));
            }
            if self.endpoint.is_broadcast(remote.ip()) && !self.options().broadcast {
                return Err(errno(libc::EACCES));
            }
        }
        // To whom it was connected when this was called: it may be another, or nobody, when the stack takes it.
        let remote = remote.or_else(|| self.record().remote());
        if let Some(remote) = remote {
            if options.segment > 0 {
                self.check_run(remote, length, options.segment.into())?;
            } else if length > MOST_PAYLOAD || self.progress.refuses_long.load(Ordering::Relaxed) {
                self.check_length(remote, length)?;
            }
        }
        let mut side = lock(&self.send.side);
        let SendSide::Datagrams(datagrams) = &mut *side else { return Err(errno(libc::EISCONN)) };
        let outcome = datagrams.send(remote, buffers, &options);
        self.look_after_memory();
        if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.progress.blocked_sends.fetch_add(1, Ordering::Relaxed);
            self.progress.write_mark_set.store(true, Ordering::Relaxed);
            datagrams.arm_wake();
        }
        outcome
    }

    /// Takes a datagram. `peek` leaves it.
    pub fn recv_from(&self, buffers: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<Datagram> {
        self.look_or_take(
            |datagrams| if peek { datagrams.peek(None, buffers) } else { datagrams.receive(buffers) },
        )
    }

    /// Looks at the datagram that has the byte at an offset in all of what is queued, from there on (`SO_PEEK_OFF`).
    pub fn peek_from_offset(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Datagram> {
        self.look_or_take(|datagrams| datagrams.peek(Some(offset), buffers))
    }

    fn look_or_take(
        &self,
        attempt: impl FnOnce(&mut ReceiveDatagrams) -> io::Result<Option<channel::app::Datagram>>,
    ) -> io::Result<Datagram> {
        // As on Linux an error comes before what was received before it.
        if self.has_new_error()
            && let Some(error) = self.take_error()?
        {
            return Err(error);
        }
        let mut side = lock(&self.receive);
        let ReceiveSide::Datagrams(datagrams) = &mut *side else { return Err(errno(libc::EOPNOTSUPP)) };
        if let Some(datagram) = attempt(datagrams)? {
            return Ok(Datagram {
                copied: datagram.copied,
                length: datagram.length,
                remote: datagram.remote,
                local: datagram.local,
                ttl: datagram.ttl,
                tos: datagram.tos,
                segment: datagram.segment,
                arrival_ns: datagram.arrival_ns,
            });
        }
        Err(match self.take_error()? {
            Some(error) => error,
            None => errno(libc::EAGAIN),
        })
    }

    /// Whether nothing more is to be received since the program has said so.
    pub fn is_read_shut(&self) -> bool {
        self.progress.read_shut.load(Ordering::Acquire)
    }

    /// Whether nothing more is to be sent since the program has said so.
    pub fn is_write_shut(&self) -> bool {
        self.progress.write_shut.load(Ordering::Acquire)
    }

    pub(super) fn has_datagram(&self) -> bool {
        match &*lock(&self.receive) {
            ReceiveSide::Datagrams(datagrams) => datagrams.has_next(),
            ReceiveSide::Stream(_) => false,
        }
    }

    pub(super) fn has_datagram_room(&self) -> bool {
        match &mut *lock(&self.send.side) {
            SendSide::Datagrams(datagrams) => datagrams.has_room(USEFUL_ROOM),
            SendSide::Stream(_) => false,
        }
    }

    /// Has the stack ring when there is room.
    pub(super) fn set_datagram_room_mark(&self) {
        if let SendSide::Datagrams(datagrams) = &mut *lock(&self.send.side) {
            datagrams.arm_wake();
        }
    }

    /// Has the stack ring when there is a datagram.
    pub(super) fn set_datagram_mark(&self) {
        if let ReceiveSide::Datagrams(datagrams) = &*lock(&self.receive) {
            datagrams.arm_wake();
        }
    }

    pub(super) fn next_datagram_length(&self) -> Option<usize> {
        match &mut *lock(&self.receive) {
            ReceiveSide::Datagrams(datagrams) => datagrams.next_length().ok().flatten(),
            ReceiveSide::Stream(_) => None,
        }
    }
}
