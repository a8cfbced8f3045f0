//! The sending side of a datagram socket.

use core::net::{IpAddr, SocketAddr};
use std::io::{self, IoSlice};
use std::sync::Arc;

use rustix::io::Errno;

use super::channel::{Channel, would_block};
use super::send::SendRing;
use crate::datagram::{HEADER, Header, header_bytes, pad_word, padding, record_len};
use crate::layout::PAGE;

/// The longest payload of a UDP datagram over IPv4.
const MAX_DATAGRAM: usize = 65_507;

/// With what a datagram is sent instead of the socket's own; 0: as the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramManner {
    /// The time to live.
    pub ttl: u8,
    /// The type of service.
    pub tos: u8,
    /// Not 0: it is a run of datagrams of this length, the last of which may be shorter.
    pub segment: u16,
    /// The address that it is from, one of the stack's; `None`: the socket's, or that of the route.
    pub source: Option<IpAddr>,
}

/// The sending side of a datagram socket. One thread at a time uses it.
#[derive(Debug)]
pub struct SendDatagrams(SendRing);

impl SendDatagrams {
    /// The sending side of a socket that was opened and has none yet.
    pub fn new(channel: Arc<Channel>, socket: u32) -> Self {
        let mut ring = SendRing::new(channel, socket);
        ring.set_limit(1 << 18);
        Self(ring)
    }

    /// Sets the largest ring, rounded up to a power of two; at least what one datagram of any length needs.
    pub fn set_limit(&mut self, bytes: usize) {
        self.0.set_limit(bytes.max(2 * record_len(MAX_DATAGRAM)));
    }

    /// The largest ring.
    pub fn limit(&self) -> usize {
        self.0.limit()
    }

    /// Whether a datagram of `bytes` can be queued now.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        // What padding there will be depends on the ring; at most as much as the record is long.
        self.0.room() >= 2 * record_len(bytes)
    }

    /// Queues a datagram for `remote`, or for the connected peer; its length.
    ///
    /// # Errors
    /// `EMSGSIZE`: too long. `EAGAIN`: no room. `ENETDOWN`: the channel is closed.
    pub fn send(
        &mut self,
        remote: Option<SocketAddr>,
        buffers: &[IoSlice<'_>],
        manner: &DatagramManner,
    ) -> io::Result<usize> {
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if length > MAX_DATAGRAM {
            return Err(Errno::MSGSIZE.into());
        }
        let record = record_len(length);
        let pad = self.make_room(record)?;
        let Some(ring) = &mut self.0.ring else { return Err(would_block()) };
        let mut at = self.0.queued;
        if pad > 0 {
            ring.write(at, &pad_word(pad).to_ne_bytes());
            at += pad as u64;
        }
        let &DatagramManner { ttl, tos, segment, source } = manner;
        let mut header = Header { ttl, tos, segment, ..Header::to_send(remote, length) };
        if let Some(source) = source {
            header.local = SocketAddr::new(source, 0);
        }
        ring.write(at, &header_bytes(header.encode()));
        at += HEADER as u64;
        for buffer in buffers {
            ring.write(at, buffer);
            at += buffer.len() as u64;
        }
        self.0.commit(pad + record)?;
        Ok(length)
    }

    /// Asks to be woken when there is useful room. To be called before the waiter prepares.
    pub fn arm_wake(&mut self) {
        self.0.arm_wake();
    }

    /// How far the records are queued.
    pub fn queued(&self) -> u64 {
        self.0.queued
    }

    /// Gives the ring back if all is sent. Whether none is held.
    pub fn release_idle(&mut self) -> bool {
        self.0.release_idle()
    }

    /// Makes room for a record; the padding before it.
    fn make_room(&mut self, record: usize) -> io::Result<usize> {
        let mut size = self.0.size().max(PAGE);
        loop {
            let pad = padding(self.0.queued, record, size);
            let free = self.0.make_room(pad + record)?;
            if self.0.size() != size {
                // Another ring, another place; the padding never grows with the ring, so this ends.
                size = self.0.size();
                if size == 0 {
                    return Err(would_block());
                }
                continue;
            }
            return if free >= pad + record { Ok(pad) } else { Err(would_block()) };
        }
    }
}
