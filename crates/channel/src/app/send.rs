//! The sending side of a socket: its ring in A, which this side allocates, grows and gives back.

use std::io::{self, IoSlice};
use std::sync::Arc;

use stack::memory::Member;

use super::channel::{Channel, would_block};
use crate::layout::{MAX_FILL, MAX_RING_LOG2, MIN_FILL, PAGE_LOG2};
use crate::mapping::Lease;
use crate::retired::Retired;
use crate::{Command, Manner};

/// The largest send ring unless told otherwise, where the congestion window does not ask for more.
const DEFAULT_LIMIT_LOG2: u32 = 20;
/// The largest where it does (Linux: `tcp_wmem[2]`).
const TUNED_LIMIT_LOG2: u32 = 22;
/// The first send ring of a socket.
const FIRST_RING_LOG2: u32 = 14;

const _: () = assert!(PAGE_LOG2 <= FIRST_RING_LOG2 && FIRST_RING_LOG2 <= DEFAULT_LIMIT_LOG2);
const _: () = assert!(DEFAULT_LIMIT_LOG2 <= TUNED_LIMIT_LOG2 && TUNED_LIMIT_LOG2 <= MAX_RING_LOG2);

/// The ring of one socket with its cursors: `acked <= queued <= acked + size`.
#[derive(Debug)]
pub(super) struct SendRing {
    pub(super) channel: Arc<Channel>,
    pub(super) socket: u32,
    pub(super) ring: Option<Lease>,
    /// Rings that were replaced, each with what was queued at that time: the FEP may transmit from it until that is
    /// acknowledged.
    retired: Retired,
    pub(super) queued: u64,
    use_of: u32,
    generation: u32,
    /// The largest ring, if it was set (`SO_SNDBUF`); otherwise it follows the congestion window.
    fixed_log2: Option<u32>,
    /// The end of the last bytes that the FEP was asked to read from a file.
    fills_to: u64,
    /// What it holds of the application's send memory.
    member: Member,
}

/// The sending side of a stream socket: a writer's or producer's view of its ring. One thread at a time uses it.
#[derive(Debug)]
pub struct SendStream(SendRing);

impl SendRing {
    pub(super) fn new(channel: Arc<Channel>, socket: u32) -> Self {
        Self {
            use_of: channel.rings.use_of(socket),
            member: channel.rings.join(),
            channel,
            socket,
            ring: None,
            retired: Retired::default(),
            queued: 0,
            generation: 0,
            fixed_log2: None,
            fills_to: 0,
        }
    }

    pub(super) fn set_limit(&mut self, bytes: usize) {
        let log2 = bytes.max(1).next_power_of_two().ilog2().clamp(PAGE_LOG2, MAX_RING_LOG2);
        self.fixed_log2 = Some(log2);
    }

    /// The largest ring: what was set, or what the congestion window asks for.
    pub(super) fn limit(&self) -> usize {
        let tuned = || {
            let target = self.channel.record(self.socket).send_target();
            target.clamp(DEFAULT_LIMIT_LOG2, TUNED_LIMIT_LOG2)
        };
        1 << self.fixed_log2.unwrap_or_else(tuned)
    }

    /// The largest ring as memory stands. A size that was set is not tuned by that either.
    fn granted(&self) -> usize {
        let limit = self.limit();
        if self.fixed_log2.is_some() { limit } else { self.member.budget().share(limit as u64) as usize }
    }

    pub(super) fn size(&self) -> usize {
        self.ring.as_ref().map_or(0, Lease::size)
    }

    /// What is queued and not acknowledged. Frees replaced rings that are acknowledged.
    pub(super) fn unacked(&mut self) -> usize {
        let acked = self.channel.record(self.socket).acked().min(self.queued);
        if self.retired.free_until(acked) {
            self.settle();
        }
        (self.queued - acked) as usize
    }

    /// Free bytes of the ring as it is.
    fn free(&mut self) -> usize {
        let unacked = self.unacked();
        self.size().saturating_sub(unacked)
    }

    /// Bytes that can be queued now, if the ring grows as it may.
    pub(super) fn room(&mut self) -> usize {
        let unacked = self.unacked();
        self.granted().max(self.size()).saturating_sub(unacked)
    }

    /// Free bytes of the ring, after growing it for `wanted` bytes as far as it may and can.
    pub(super) fn make_room(&mut self, wanted: usize) -> io::Result<usize> {
        let unacked = self.unacked();
        let free = self.size().saturating_sub(unacked);
        if free >= wanted {
            return Ok(free);
        }
        let limit = self.granted();
        if free > 0 && self.size() >= limit {
            return Ok(free);
        }
        if self.is_filling() {
            return Ok(free);
        }
        let needed = unacked + wanted.min(1 << MAX_RING_LOG2);
        let log2 = needed.next_power_of_two().ilog2().clamp(FIRST_RING_LOG2, MAX_RING_LOG2);
        let log2 = log2.min(limit.ilog2());
        if 1 << log2 <= self.size() || !self.grow(log2, unacked)? {
            return Ok(free);
        }
        Ok(self.size().saturating_sub(unacked))
    }

    /// Whether the FEP is about to write into the ring: what it has not written yet could not be copied to a larger one.
    fn is_filling(&self) -> bool {
        self.fills_to > 0 && self.channel.record(self.socket).filled() < self.fills_to
    }

    /// Makes the ring as large as it may be, before the FEP is asked to fill it: it could not grow then.
    fn grow_ahead(&mut self) -> io::Result<()> {
        let limit = self.granted();
        if self.size() < limit && !self.is_filling() {
            let unacked = self.unacked();
            // Without memory for that it stays as it is.
            self.grow(limit.ilog2(), unacked)?;
        }
        Ok(())
    }

    /// Replaces the ring by a larger one. False: there is no memory for it.
    fn grow(&mut self, log2: u32, unacked: usize) -> io::Result<bool> {
        let smallest = self.size().max(1 << (PAGE_LOG2 - 1)).ilog2() + 1;
        let kept = self.retired.bytes() + if unacked > 0 { self.size() } else { 0 };
        let lease = (smallest..=log2).rev().find_map(|log2| {
            let granted = self.member.hold((kept + (1 << log2)) as u64);
            granted.then(|| self.channel.rings.lease(log2)).flatten()
        });
        let Some(mut larger) = lease else {
            self.settle();
            return Ok(false);
        };
        if let Some(old) = &self.ring {
            larger.copy_from(old, self.queued - unacked as u64, self.queued);
        }
        self.generation = self.generation.wrapping_add(1);
        let location = larger.location(self.generation);
        // From here on the new ring may be read by the FEP.
        if let Some(old) = self.ring.replace(larger)
            && unacked > 0
        {
            self.retired.push(self.queued, old);
        }
        self.channel.post(&Command::AttachSend { socket: self.socket, location })?;
        Ok(true)
    }

    /// Tells the budget of memory that went back.
    fn settle(&mut self) {
        let held = self.retired.bytes() + self.size();
        // Less is always granted.
        self.member.hold(held as u64);
    }

    /// Queues `count` more bytes, which are in the ring.
    pub(super) fn commit(&mut self, count: usize) -> io::Result<()> {
        self.commit_in(count, Manner::Plain)
    }

    /// As [`commit`](Self::commit), in that manner.
    fn commit_in(&mut self, count: usize, manner: Manner) -> io::Result<()> {
        self.queued += count as u64;
        let (socket, queued_to) = (self.socket, self.queued);
        self.channel.post(&match manner {
            Manner::Plain => Command::Send { socket, queued_to },
            Manner::More => Command::SendMore { socket, queued_to },
            Manner::Urgent => Command::SendUrgent { socket, queued_to },
        })
    }

    /// Asks to be woken when half of the largest ring is free.
    pub(super) fn arm_wake(&mut self) {
        let keep = (self.size().max(self.limit()) / 2) as u64;
        let record = self.channel.record(self.socket);
        record.set_write_wake(self.queued.saturating_sub(keep));
    }

    /// Gives the memory back if nothing is queued in it; whether none is held.
    pub(super) fn release_idle(&mut self) -> bool {
        if self.unacked() == 0 {
            self.ring = None;
            self.settle();
        }
        self.ring.is_none() && self.retired.is_empty()
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        let unacked = self.unacked();
        let mut rings = self.retired.take();
        rings.extend(self.ring.take());
        if unacked > 0 {
            // What is left counts as before; this one holds nothing any more.
            let member = std::mem::replace(&mut self.member, self.channel.rings.join());
            self.channel.rings.leave(self.socket, self.use_of, rings, member);
        }
    }
}

impl SendStream {
    /// The sending side of a socket that was opened or accepted and has none yet.
    pub fn new(channel: Arc<Channel>, socket: u32) -> Self {
        Self(SendRing::new(channel, socket))
    }

    /// The sending side of a socket that was taken over, queued up to there.
    pub fn resumed(channel: Arc<Channel>, socket: u32, queued: u64) -> Self {
        let mut ring = SendRing::new(channel, socket);
        ring.queued = queued;
        Self(ring)
    }

    /// Sets the largest ring, rounded up to a power of two; it does not follow the congestion window any more.
    pub fn set_limit(&mut self, bytes: usize) {
        self.0.set_limit(bytes);
    }

    /// The largest ring.
    pub fn limit(&self) -> usize {
        self.0.limit()
    }

    /// Bytes that can be queued now.
    pub fn room(&mut self) -> usize {
        self.0.room()
    }

    /// The stream offset up to which bytes are queued.
    pub fn queued(&self) -> u64 {
        self.0.queued
    }

    /// How many of them are not acknowledged.
    pub fn unacked(&mut self) -> usize {
        self.0.unacked()
    }

    /// Queues as much of the buffers as there is room for.
    ///
    /// # Errors
    /// `EAGAIN`: no room at all. `ENETDOWN`: the channel is closed.
    pub fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_in(buffers, Manner::Plain)
    }

    /// As [`write`](Self::write), in that manner; what the ring has no room for does not follow at once.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_in(&mut self, buffers: &[IoSlice<'_>], manner: Manner) -> io::Result<usize> {
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        if wanted == 0 {
            return Ok(0);
        }
        let free = self.0.make_room(wanted)?;
        let Some(ring) = self.0.ring.as_mut().filter(|_| free > 0) else {
            return Err(would_block());
        };
        let mut taken = 0;
        for buffer in buffers {
            let count = buffer.len().min(free - taken);
            ring.write(self.0.queued + taken as u64, &buffer[..count]);
            taken += count;
        }
        let manner = if manner == Manner::More && taken < wanted { Manner::Plain } else { manner };
        self.0.commit_in(taken, manner)?;
        Ok(taken)
    }

    /// Queues up to `count` bytes of a lent file from `offset` on, without having them: the FEP reads them. None are taken
    /// where there is less room than the FEP bothers for ([`MIN_FILL`]), or `count` is less.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn fill(&mut self, file: u16, offset: u64, count: usize) -> io::Result<usize> {
        let wanted = count.min(MAX_FILL);
        self.0.grow_ahead()?;
        let free = self.0.make_room(wanted.max(1))?;
        if free == 0 {
            return Err(would_block());
        }
        let count = free.min(wanted);
        if count < MIN_FILL {
            return Ok(0);
        }
        let (socket, queued_to) = (self.0.socket, self.0.queued + count as u64);
        (self.0.queued, self.0.fills_to) = (queued_to, queued_to);
        self.0.channel.post(&Command::Fill { socket, file, queued_to, offset })?;
        Ok(count)
    }

    /// Says in which manner what was queued last was meant.
    ///
    /// # Errors
    /// `ENETDOWN`: the channel is closed.
    pub fn announce(&mut self, manner: Manner) -> io::Result<()> {
        self.0.commit_in(0, manner)
    }

    /// Room to produce in, in one piece: at least one byte, at most `wanted`. [`commit`](Self::commit) queues what was
    /// produced there; reserving or writing again before that gives it up.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn reserve(&mut self, wanted: usize) -> io::Result<&mut [u8]> {
        if self.0.make_room(wanted.max(1))? == 0 {
            return Err(would_block());
        }
        Ok(self.space(wanted))
    }

    /// The room that is there without asking for more, in one piece, at most `wanted`; perhaps none.
    pub fn space(&mut self, wanted: usize) -> &mut [u8] {
        let free = self.0.free();
        let queued = self.0.queued;
        match &mut self.0.ring {
            Some(ring) => {
                let [first, _] = ring::spans(queued, free.min(wanted), ring.size());
                ring.slice_mut(first)
            }
            None => &mut [],
        }
    }

    /// Queues the first `count` bytes of what [`reserve`](Self::reserve) gave.
    ///
    /// # Errors
    /// `ENETDOWN`: the channel is closed.
    pub fn commit(&mut self, count: usize) -> io::Result<()> {
        assert!(count <= self.0.free(), "only room that was reserved is committed");
        if count == 0 {
            return Ok(());
        }
        self.0.commit(count)
    }

    /// Asks to be woken when there is useful room. To be called before the waiter prepares.
    pub fn arm_wake(&mut self) {
        self.0.arm_wake();
    }

    /// Gives the ring back if all is acknowledged. Whether none is held.
    pub fn release_idle(&mut self) -> bool {
        self.0.release_idle()
    }
}
