//! The receiving side of a stream socket: reading in place, or by copying.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use super::channel::Channel;
use super::record::Record;
use crate::mapping::copy::copy;
use crate::urgent::UrgentWord;
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
    /// Urgent bytes stay in the line (`SO_OOBINLINE`).
    urgent_inline: bool,
    /// What was passed over last, as the record has it.
    passed: u32,
}

impl ReceiveStream {
    /// The receiving side of a socket that was opened or accepted and has none yet.
    pub fn new(channel: Arc<Channel>, socket: u32) -> Self {
        Self { channel, socket, consumed: 0, urgent_inline: false, passed: 0 }
    }

    /// The receiving side of a socket that was taken over, read up to there.
    pub fn resumed(channel: Arc<Channel>, socket: u32, consumed: u64) -> Self {
        // Where it was left the FEP knows.
        channel.record(socket).set_consumed(consumed, consumed);
        Self { consumed, ..Self::new(channel, socket) }
    }

    /// What can be read now.
    pub fn available(&self) -> Available {
        let record = self.channel.record(self.socket);
        // The state first: if it says that this is the end, the cursor loaded after it is the last.
        let ended = record.state().intersects(State::ENDS_READING);
        let (start, end) = self.readable(&record, self.consumed, true);
        Available { bytes: end - start, ended }
    }

    /// Bytes that can be peeked at behind the first `behind`.
    pub fn available_behind(&self, behind: u64) -> u64 {
        let (start, end) = self.readable(&self.channel.record(self.socket), self.behind(behind), true);
        end - start
    }

    fn behind(&self, bytes: u64) -> u64 {
        self.consumed.saturating_add(bytes)
    }

    /// Whether urgent bytes stay in the line (`SO_OOBINLINE`); by default they are passed over.
    pub fn set_urgent_inline(&mut self, inline: bool) {
        self.urgent_inline = inline;
    }

    /// Where one read from an offset on begins and ends: not beyond an urgent byte ahead. `past`: behind one that is next, if it is
    /// out of the line.
    #[inline]
    fn readable(&self, record: &Record<'_>, from: u64, past: bool) -> (u64, u64) {
        let received = record.received().max(from);
        // After the cursor: then it is at least as new, and nothing urgent is taken for something else.
        let word = record.urgent();
        if word == UrgentWord::default() {
            return (from, received);
        }
        match word.offset(from) {
            Some(mark) if mark > from => (from, received.min(mark)),
            Some(_) if self.urgent_inline => (from, received),
            Some(mark) if past => (received.min(mark.saturating_add(1)), received),
            Some(mark) => (mark, mark),
            None => (from, received),
        }
    }

    /// Passes over urgent bytes that are next and out of the line: to be called before bytes are taken. With `peek`, over those
    /// alone behind which the mark has gone on.
    ///
    /// # Errors
    /// As [`consume`](Self::consume).
    #[inline]
    pub fn pass_urgent(&mut self, peek: bool) -> io::Result<()> {
        let record = self.channel.record(self.socket);
        let received = record.received();
        let word = record.urgent();
        if word == UrgentWord::default() { Ok(()) } else { self.pass(received, word, peek) }
    }

    fn pass(&mut self, received: u64, word: UrgentWord, peek: bool) -> io::Result<()> {
        let is_new = core::mem::replace(&mut self.passed, word.passed()) != word.passed();
        if self.urgent_inline {
            return Ok(());
        }
        let there = received.saturating_sub(self.consumed);
        let mut over = if is_new { word.to_pass(self.consumed) } else { 0 };
        if over > there {
            over = 0; // no such bytes: what the record says is not believed
        }
        let next = self.consumed + over;
        if !peek && next < received && word.offset(next) == Some(next) {
            over += 1;
        }
        self.consume(over as usize)
    }

    /// The stream offset up to which bytes were consumed.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The bytes that can be read, in place: up to the end of the ring, and from its start. None while an urgent byte is next
    /// that was not [passed](Self::pass_urgent).
    pub fn slices(&self) -> [&[u8]; 2] {
        self.slices_from(self.consumed, false)
    }

    fn slices_from(&self, from: u64, past: bool) -> [&[u8]; 2] {
        let record = self.channel.record(self.socket);
        let (start, end) = self.readable(&record, from, past);
        let bytes = (end - start) as usize;
        if bytes == 0 {
            return [&[], &[]];
        }
        // The location after the cursor: then all of what is received lies in the ring found.
        let Some((offset, size)) = record.receive_ring() else { return [&[], &[]] };
        ring::spans(start, bytes, size).map(|span| self.channel.f.bytes(offset + span.start, span.len))
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
        self.pass_urgent(peek)?;
        let copied = copy_out(self.slices_from(self.consumed, peek), buffers);
        if !peek {
            self.consume(copied)?;
        }
        Ok(copied)
    }

    /// Copies out, as a look with `peek` does, what comes behind the first `behind` bytes; how many. An urgent byte out of the line
    /// counts among these, and is passed over if it is next.
    ///
    /// # Errors
    /// As [`consume`](Self::consume).
    pub fn peek_behind(&mut self, behind: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.pass_urgent(true)?;
        Ok(copy_out(self.slices_from(self.behind(behind), true), buffers))
    }

    /// Asks to be woken when `bytes` more than what was consumed are there. To be called before the waiter prepares.
    pub fn arm_wake(&self, bytes: u64) {
        self.channel.record(self.socket).set_read_wake(self.consumed.saturating_add(bytes.max(1)));
    }
}

/// Copies what is in two places one after the other into the buffers; how much.
fn copy_out([mut first, mut second]: [&[u8]; 2], buffers: &mut [IoSliceMut<'_>]) -> usize {
    let mut copied = 0;
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
    copied
}
