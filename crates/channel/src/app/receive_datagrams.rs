//! The receiving side of a datagram socket.

use core::net::SocketAddr;
use std::io::{self, IoSliceMut};
use std::sync::Arc;

use super::channel::{Channel, net_down};
use super::receive::ReceiveStream;
use crate::datagram::{HEADER, Header, NOBODY, Record, decode_start, record_len};

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes copied into the caller's buffers.
    pub copied: usize,
    /// Bytes that it had; more than `copied` if it was cut.
    pub length: usize,
    /// Who sent it.
    pub remote: SocketAddr,
    /// The address it was sent to.
    pub local: SocketAddr,
    /// Time to live.
    pub ttl: u8,
    /// Type of service.
    pub tos: u8,
    /// Not 0: it is a run of datagrams of this length, the last of which may be shorter.
    pub segment: u16,
    /// When it came, in nanoseconds of CLOCK_MONOTONIC.
    pub arrival_ns: u64,
}

/// The receiving side of a datagram socket. One thread at a time uses it.
#[derive(Debug)]
pub struct ReceiveDatagrams(ReceiveStream);

impl ReceiveDatagrams {
    /// The receiving side of a socket that was opened and has none yet.
    pub fn new(channel: Arc<Channel>, socket: u32) -> Self {
        Self(ReceiveStream::new(channel, socket))
    }

    /// Whether a datagram waits.
    pub fn has_next(&self) -> bool {
        self.0.available().bytes > 0
    }

    /// Payload bytes of the next datagram.
    pub fn next_length(&mut self) -> io::Result<Option<usize>> {
        Ok(self.front()?.map(|(_, header)| header.length))
    }

    /// Takes the next datagram, if there is one; what does not fit into the buffers is lost. With `peek` it stays.
    ///
    /// # Errors
    /// `ENETDOWN`: the channel is closed, or makes no sense.
    pub fn receive(&mut self, buffers: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<Option<Datagram>> {
        let Some((payload, header)) = self.front()? else { return Ok(None) };
        let mut rest = self.0.channel.f.bytes(payload, header.length);
        let mut copied = 0;
        for buffer in buffers {
            let count = buffer.len().min(rest.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            copied += count;
        }
        if !peek {
            self.0.consume(record_len(header.length))?;
        }
        let Header { length, remote, local, ttl, tos, segment, arrival } = header;
        let remote = remote.unwrap_or(NOBODY);
        let arrival_ns = arrival.as_nanos();
        Ok(Some(Datagram { copied, length, remote, local, ttl, tos, segment, arrival_ns }))
    }

    /// Asks to be woken when there is a datagram. To be called before the waiter prepares.
    pub fn arm_wake(&self) {
        self.0.arm_wake(1);
    }

    /// Skips padding; where in F the payload of the next datagram lies, and its header.
    fn front(&mut self) -> io::Result<Option<(usize, Header)>> {
        loop {
            let record = self.0.channel.record(self.0.socket);
            let available = record.received().saturating_sub(self.0.consumed);
            if available == 0 {
                return Ok(None);
            }
            let (ring, size) = record.receive_ring().ok_or_else(net_down)?;
            let place = ring + (self.0.consumed as usize & (size - 1));
            let word = self.0.channel.f.load_words::<1>(place)[0];
            match decode_start(word, self.0.consumed, available, size) {
                Some(Record::Payload(length)) => {
                    let header = Header::decode(self.0.channel.f.load_words(place), length);
                    return Ok(Some((place + HEADER, header)));
                }
                Some(Record::Pad(length)) => self.0.consume(length)?,
                None => return Err(net_down()),
            }
        }
    }
}
