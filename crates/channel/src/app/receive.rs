//! The receiving side of a stream socket: reading in place, or by copying.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use super::channel::Channel;
use crate::mapping::copy::copy;
use crate::{Command, State};

/// What can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// After them comes nothing any more: the peer closed, or the connection failed.
    pub ended: bool,
}

/// The receiving side of a stream socket. One thread at a time uses it.
#[derive(Debug)]
pub struct ReceiveStream {
    pub(super) channel: Arc<Channel>,
    pub(super) socket: u32,
    pub(super) consumed: u64,
}

impl ReceiveStream {
    /// The receiving side of a socket that was opened or accepted and has none yet.
    pub fn new(channel: Arc<Channel>, socket: u32) -> Self {
        Self { channel, socket, consumed: 0 }
    }

    /// What can be read now.
    pub fn available(&self) -> Available {
        let record = self.channel.record(self.socket);
        // The state first: if it says that this is the end, the cursor loaded after it is the last.
        let ended = record.state().intersects(State::ENDS_READING);
        Available { bytes: record.received().saturating_sub(self.consumed), ended }
    }

    /// The stream offset up to which bytes were consumed.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The bytes that can be read, in place: up to the end of the ring, and from its start.
    pub fn slices(&self) -> [&[u8]; 2] {
        let record = self.channel.record(self.socket);
        let received = record.received();
        let bytes = received.saturating_sub(self.consumed) as usize;
        if bytes == 0 {
            return [&[], &[]];
        }
        // The location after the cursor: then all of what is received lies in the ring found.
        let Some((offset, size)) = record.receive_ring() else { return [&[], &[]] };
        ring::spans(self.consumed, bytes, size)
            .map(|span| self.channel.f.bytes(offset + span.start, span.len))
    }

    /// The bytes that can be read in one piece, in place.
    pub fn fill(&self) -> &[u8] {
        self.slices()[0]
    }

    /// Gives the first `count` of the bytes back.
    ///
    /// # Errors
    /// `ENETDOWN`: the channel is closed.
    pub fn consume(&mut self, count: usize) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let record = self.channel.record(self.socket);
        assert!(
            count as u64 <= record.received().saturating_sub(self.consumed),
            "only what was received is consumed"
        );
        let before = self.consumed;
        self.consumed += count as u64;
        if record.set_consumed(before, self.consumed) {
            self.channel.post(&Command::Consumed { socket: self.socket })?;
        }
        Ok(())
    }

    /// Copies bytes out; how many. With `peek` they stay.
    ///
    /// # Errors
    /// As [`consume`](Self::consume).
    pub fn read(&mut self, buffers: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<usize> {
        let mut copied = 0;
        {
            let [mut first, mut second] = self.slices();
            for buffer in buffers {
                let mut place: &mut [u8] = buffer;
                while !place.is_empty() && !first.is_empty() {
                    let count = place.len().min(first.len());
                    let (now, later) = place.split_at_mut(count);
                    copy(now, &first[..count]);
                    place = later;
                    first = &first[count..];
                    copied += count;
                    if first.is_empty() {
                        first = std::mem::take(&mut second);
                    }
                }
            }
        }
        if !peek {
            self.consume(copied)?;
        }
        Ok(copied)
    }

    /// Asks to be woken when `bytes` more than what was consumed are there. To be called before the waiter prepares.
    pub fn arm_wake(&self, bytes: u64) {
        self.channel.record(self.socket).set_read_wake(self.consumed.saturating_add(bytes.max(1)));
    }
}
