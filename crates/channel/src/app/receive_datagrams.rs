//! The receiving side of a datagram socket.

use core::net::SocketAddr;
use std::collections::BTreeSet;
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
pub struct ReceiveDatagrams {
    queue: ReceiveStream,
    /// Where in the queue empty datagrams lie that were peeked at.
    peeked_empty: BTreeSet<u64>,
}

impl ReceiveDatagrams {
    /// The receiving side of a socket that was opened and has none yet.
    pub fn new(channel: Arc<Channel>, socket: u32) -> Self {
        Self { queue: ReceiveStream::new(channel, socket), peeked_empty: BTreeSet::new() }
    }

    /// Whether a datagram waits.
    pub fn has_next(&self) -> bool {
        self.queue.available().bytes > 0
    }

    /// Payload bytes of the next datagram.
    pub fn next_length(&mut self) -> io::Result<Option<usize>> {
        Ok(self.front()?.map(|(_, header)| header.length))
    }

    /// Takes the next datagram, if there is one; what does not fit into the buffers is lost.
    ///
    /// # Errors
    /// `ENETDOWN`: the channel is closed, or makes no sense.
    pub fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Option<Datagram>> {
        let Some((payload, header)) = self.front()? else { return Ok(None) };
        let datagram = self.copy_out(payload, header, 0, buffers);
        self.queue.consume(record_len(header.length))?;
        Ok(Some(datagram))
    }

    /// Looks at the next datagram, or at that which has the byte at an offset in all the queue's payload, from there on (Linux:
    /// `__skb_try_recv_from_queue`). An empty one at the offset is given once.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn peek(
        &mut self,
        offset: Option<u64>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> io::Result<Option<Datagram>> {
        let mut skipped = offset.unwrap_or(0);
        let mut place = self.queue.consumed();
        self.peeked_empty = self.peeked_empty.split_off(&place);
        while let Some(found) = self.at(place)? {
            let Record::Payload(length) = found.record else {
                place += found.length as u64;
                continue;
            };
            let is_before = skipped >= length as u64 && (skipped > 0 || self.peeked_empty.contains(&place));
            if offset.is_some() && is_before {
                skipped -= length as u64;
                place += found.length as u64;
                continue;
            }
            if length == 0 {
                self.peeked_empty.insert(place);
            }
            let header = self.header(found.place, length);
            return Ok(Some(self.copy_out(found.place + HEADER, header, skipped as usize, buffers)));
        }
        Ok(None)
    }

    /// Asks to be woken when there is a datagram. To be called before the waiter prepares.
    pub fn arm_wake(&self) {
        self.queue.arm_wake(1);
    }

    /// Skips padding; where in F the payload of the next datagram lies, and its header.
    fn front(&mut self) -> io::Result<Option<(usize, Header)>> {
        loop {
            let Some(found) = self.at(self.queue.consumed())? else { return Ok(None) };
            match found.record {
                Record::Payload(length) => {
                    return Ok(Some((found.place + HEADER, self.header(found.place, length))));
                }
                Record::Pad(length) => self.queue.consume(length)?,
            }
        }
    }

    /// What begins at an offset of the queue.
    fn at(&self, offset: u64) -> io::Result<Option<Found>> {
        let record = self.queue.channel.record(self.queue.socket);
        let available = record.received().saturating_sub(offset);
        if available == 0 {
            return Ok(None);
        }
        let (ring, size) = record.receive_ring().ok_or_else(net_down)?;
        if offset - self.queue.consumed() >= size as u64 {
            return Err(net_down()); // more than a ring holds: it would be walked round and round
        }
        let place = ring + (offset as usize & (size - 1));
        let word = self.queue.channel.f.load_words::<1>(place)[0];
        let record = decode_start(word, offset, available, size).ok_or_else(net_down)?;
        let length = match record {
            Record::Payload(length) => record_len(length),
            Record::Pad(length) => length,
        };
        Ok(Some(Found { record, place, length }))
    }

    fn header(&self, place: usize, length: usize) -> Header {
        Header::decode(self.queue.channel.f.load_words(place), length)
    }

    /// Copies a datagram's payload, which lies in F at this place, but for the first bytes.
    fn copy_out(
        &self,
        payload: usize,
        header: Header,
        skipped: usize,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Datagram {
        let mut rest = &self.queue.channel.f.bytes(payload, header.length)[skipped..];
        let mut copied = 0;
        for buffer in buffers {
            let count = buffer.len().min(rest.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            copied += count;
        }
        let Header { length, remote, local, ttl, tos, segment, arrival } = header;
        let remote = remote.unwrap_or(NOBODY);
        let arrival_ns = arrival.as_nanos();
        Datagram { copied, length, remote, local, ttl, tos, segment, arrival_ns }
    }
}

/// What begins somewhere in the queue.
struct Found {
    record: Record,
    /// Where it lies in F.
    place: usize,
    /// Bytes that it takes of the queue.
    length: usize,
}
