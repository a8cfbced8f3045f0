//! The receiving side of a socket: its ring in F, which the FEP allocates, grows and gives back.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use ring::{Atomics, Native, PeerCursor};
use stack::memory::{Member, Pressure};
use tcp::UrgentMark;
use wire::checksum::Sum;

use super::segments::Shared;
use crate::Offence;
use crate::layout::{MAX_RING_LOG2, PAGE_LOG2, RingLocation, record_a, record_f};
use crate::mapping::Lease;
use crate::retired::Retired;
use crate::urgent::UrgentWord;

/// The window with which connections begin, unless memory is scarce.
const FIRST_PROMISE: u64 = 64 << 10;

/// Not assigned to a record yet.
const UNASSIGNED: u32 = u32::MAX;

/// No room for bytes: the limit is reached, or there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

/// The receive ring of a socket, with its cursors: `consumed <= received <= written_to`.
#[derive(Debug)]
pub(super) struct ReceiveSide {
    shared: Arc<Shared>,
    ring: Option<Lease>,
    /// Rings that were replaced, each with what was published at that time: the application may read in it until its cursor
    /// is there.
    retired: Retired,
    consumed: PeerCursor,
    /// Published.
    received: u64,
    /// No byte from here on was ever written.
    written_to: u64,
    socket: u32,
    generation: u32,
    limit_log2: u8,
    /// The application's cursor is here at least: it was, in the segments from which this was taken over.
    resumed_at: u64,
    /// What it holds of the application's receive memory.
    member: Member,
    touched: bool,
    discarded: bool,
}

impl ReceiveSide {
    pub(super) fn new(shared: Arc<Shared>, limit: usize) -> Self {
        let mut side = Self {
            member: Member::new(&shared.budget),
            shared,
            ring: None,
            retired: Retired::default(),
            consumed: PeerCursor::default(),
            received: 0,
            written_to: 0,
            socket: UNASSIGNED,
            generation: 0,
            limit_log2: 0,
            resumed_at: 0,
            touched: false,
            discarded: false,
        };
        side.set_limit(limit);
        side
    }

    /// From now on it publishes in this socket's record.
    pub(super) fn assign(&mut self, socket: u32) {
        self.socket = socket;
        self.publish_location();
        if self.received > 0 {
            self.shared.store_f(socket, record_f::RECEIVED, self.received, Ordering::Release);
        }
    }

    pub(super) fn socket(&self) -> Option<u32> {
        (self.socket != UNASSIGNED).then_some(self.socket)
    }

    pub(super) fn set_limit(&mut self, bytes: usize) {
        let log2 = bytes.max(1).next_power_of_two().ilog2();
        self.limit_log2 = log2.clamp(PAGE_LOG2, MAX_RING_LOG2) as u8;
    }

    pub(super) fn limit(&self) -> usize {
        1 << self.limit_log2
    }

    pub(super) fn written_to(&self) -> u64 {
        self.written_to
    }

    /// The size of the ring that there is.
    pub(super) fn ring_size(&self) -> usize {
        self.ring.as_ref().map_or(0, Lease::size)
    }

    /// The read cursor as last validated.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed.position()
    }

    /// Reads the application's cursor.
    pub(super) fn poll_consumed(&mut self) -> Result<u64, Offence> {
        let Some(socket) = self.socket() else { return Ok(self.consumed()) };
        // Acquire: the application's reads of the ring are before its store, so the memory may be written again.
        let copy = self.shared.load_a(socket, record_a::CONSUMED, Ordering::Acquire).max(self.resumed_at);
        let before = self.consumed();
        self.consumed
            .advance(copy, self.received)
            .map_err(|_| if copy < before { Offence::ConsumedBackwards } else { Offence::ConsumedTooFar })?;
        if self.retired.free_until(copy) {
            self.settle();
        }
        Ok(copy)
    }

    /// The application's cursor as it is now, if it is one.
    pub(super) fn look_at_consumed(&mut self) -> Option<u64> {
        self.poll_consumed().map_err(|offence| self.shared.note(offence)).ok()
    }

    /// Asks for a CONSUMED command when the cursor reaches `offset`; true: it has already.
    pub(super) fn notify_consumed_at(&mut self, offset: u64) -> Result<bool, Offence> {
        let Some(socket) = self.socket() else { return Ok(self.consumed() >= offset) };
        self.shared.store_f(socket, record_f::CONSUME_NOTIFY, offset, Ordering::Relaxed);
        // Either the application, after moving its cursor, sees this wish, or the cursor is seen here.
        Native::full_fence();
        Ok(self.poll_consumed()? >= offset)
    }

    /// Makes the ring hold stream bytes up to `end`.
    pub(super) fn make_room(&mut self, end: u64) -> Result<(), NoRoom> {
        if self.discarded {
            return Err(NoRoom);
        }
        if end.saturating_sub(self.consumed()) <= self.ring_size() as u64 {
            return Ok(());
        }
        if let Err(offence) = self.poll_consumed() {
            self.shared.note(offence);
            return Err(NoRoom);
        }
        let span = end.saturating_sub(self.consumed());
        if span <= self.ring_size() as u64 {
            return Ok(());
        }
        if span > self.limit() as u64 {
            return Err(NoRoom);
        }
        self.grow(span.next_power_of_two().ilog2().max(PAGE_LOG2))
    }

    /// Writes stream bytes for which there is room.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(ring) = &mut self.ring {
            ring.write(offset, bytes);
            self.written_to = self.written_to.max(offset + bytes.len() as u64);
            self.touched = true;
        }
    }

    /// Writes stream bytes for which there is room, and for which nothing was written yet, if they are what `sum`, of all else
    /// that their checksum covers, says. `false`: they are not, and nothing of them stays.
    pub(super) fn write_verified(&mut self, offset: u64, bytes: [&[u8]; 2], sum: Sum) -> bool {
        let len = bytes[0].len() + bytes[1].len();
        let Some(ring) = &mut self.ring else { return sum.add(bytes[0]).add(bytes[1]).finish() == 0 };
        let [first, second] = ring::spans(offset, len, ring.size());
        let head = wire::cut::slice(bytes, 0, first.len);
        let sum = sum.copy_across([ring.slice_mut(first), &mut []], head);
        let tail = wire::cut::slice(bytes, first.len, second.len);
        if sum.copy_across([ring.slice_mut(second), &mut []], tail).finish() != 0 {
            ring.slice_mut(first).fill(0);
            ring.slice_mut(second).fill(0);
            return false;
        }
        self.written_to = self.written_to.max(offset + len as u64);
        self.touched = true;
        true
    }

    /// Moves the end of what is written over bytes that need no contents, for which there is room.
    pub(super) fn write_to(&mut self, offset: u64) {
        self.written_to = self.written_to.max(offset);
    }

    /// Shows the application the stream up to `to`, all of which is written.
    pub(super) fn publish(&mut self, to: u64) {
        if to <= self.received || self.discarded {
            return;
        }
        debug_assert!(to <= self.written_to, "only what is written is published");
        self.received = to;
        if let Some(socket) = self.socket() {
            // Release: the bytes, and the location of their ring, are before this.
            self.shared.store_f(socket, record_f::RECEIVED, to, Ordering::Release);
        }
    }

    /// Tells the application of urgent data, before what is received of them; whether that is news.
    pub(super) fn publish_urgent(&mut self, mark: UrgentMark) -> bool {
        let word = UrgentWord::new(mark).0;
        let Some(socket) = self.socket() else { return false };
        if self.shared.load_f(socket, record_f::URGENT) == word {
            return false;
        }
        self.shared.store_f(socket, record_f::URGENT, word, Ordering::Release);
        true
    }

    /// The owner reads no more: all memory goes back.
    pub(super) fn discard(&mut self) {
        self.discarded = true;
        self.ring = None;
        self.retired.clear();
        self.settle();
    }

    /// How many bytes a peer may be promised, as memory stands: less for who has not shown yet that it reads.
    pub(super) fn share(&self) -> u32 {
        let wanted = self.limit() as u64;
        let budget = self.member.budget();
        let mut share = budget.share(wanted);
        if self.consumed() == 0 && share > FIRST_PROMISE {
            let first = budget.share_of_newcomer(FIRST_PROMISE);
            share = if first < FIRST_PROMISE { first } else { share };
        }
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    /// Takes over a stream from other segments: what was not read there is copied.
    pub(super) fn take_over(&mut self, other: &mut Self) -> Result<u64, NoRoom> {
        // What the other application did wrong is its own affair: its cursor counts as it was last.
        let _ = other.look_at_consumed();
        let (from, to) = (other.consumed(), other.written_to.max(other.consumed()));
        self.limit_log2 = other.limit_log2;
        if let Some(old) = other.ring.as_ref().filter(|_| to > from) {
            let log2 = (to - from).next_power_of_two().ilog2().max(PAGE_LOG2);
            if !self.member.hold(1 << log2) {
                return Err(NoRoom);
            }
            let Some(mut ring) = self.shared.area.lease(log2) else {
                self.settle();
                return Err(NoRoom);
            };
            ring.copy_from(old, from, to);
            self.ring = Some(ring);
        }
        (self.resumed_at, self.received, self.written_to) = (from, from, to);
        self.discarded = other.discarded;
        // Neither goes back nor beyond what is received.
        let _ = self.consumed.advance(from, from);
        self.publish_location();
        if let (Some(socket), Some(before)) = (self.socket(), other.socket()) {
            let urgent = other.shared.load_f(before, record_f::URGENT);
            self.shared.store_f(socket, record_f::URGENT, urgent, Ordering::Release);
        }
        self.publish(other.received.max(from));
        Ok(to - from)
    }

    /// Gives the ring back if it is empty and was not written since the last call, or memory is scarce; whether nothing
    /// is held.
    pub(super) fn release_idle(&mut self) -> bool {
        if self.ring.is_none() {
            return self.retired.is_empty();
        }
        if std::mem::take(&mut self.touched) && self.member.budget().pressure() == Pressure::Below {
            return false;
        }
        match self.poll_consumed() {
            Ok(consumed) if consumed == self.written_to => {
                // The application has read all that it was shown, so nobody reads the ring.
                self.ring = None;
                self.publish_location();
                self.settle();
                self.retired.is_empty()
            }
            Ok(_) => false,
            Err(offence) => {
                self.shared.note(offence);
                false
            }
        }
    }

    fn grow(&mut self, log2: u32) -> Result<(), NoRoom> {
        let keeps_old = self.received > self.consumed();
        let others = self.held() - if keeps_old { 0 } else { self.ring_size() as u64 };
        if !self.member.hold(others + (1 << log2)) {
            return Err(NoRoom);
        }
        let Some(mut larger) = self.shared.area.lease(log2) else {
            self.settle();
            return Err(NoRoom);
        };
        if let Some(old) = self.ring.take() {
            larger.copy_from(&old, self.consumed(), self.written_to.max(self.consumed()));
            if self.received > self.consumed() {
                self.retired.push(self.received, old);
            }
        }
        self.ring = Some(larger);
        self.publish_location();
        Ok(())
    }

    /// Bytes of memory leased.
    fn held(&self) -> u64 {
        (self.retired.bytes() + self.ring_size()) as u64
    }

    /// Tells the budget of memory that went back.
    fn settle(&mut self) {
        let held = self.held();
        // Less is always granted.
        self.member.hold(held);
    }

    fn publish_location(&mut self) {
        let Some(socket) = self.socket() else { return };
        self.generation = self.generation.wrapping_add(1);
        let location = self.ring.as_ref().map_or(RingLocation::NONE, |ring| ring.location(self.generation));
        // Release: what was copied into the ring is before this.
        self.shared.store_f(socket, record_f::RECEIVE_RING, location.0, Ordering::Release);
    }
}
