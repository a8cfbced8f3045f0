//! Sleeping until the FEP has something.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ring::{Native, doorbell};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::thread::futex;

use super::channel::{Channel, lock, would_block};
use crate::layout::header_a;

/// The waiter slots of a channel.
#[derive(Debug)]
pub(super) struct Slots {
    free: Vec<u32>,
    /// Free slots that have a bell.
    free_bells: Vec<(u32, OwnedFd, u32)>,
    next: u32,
    end: u32,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self { free: Vec::new(), free_bells: Vec::new(), next: 0, end: count }
    }

    fn take(&mut self, used: &AtomicU32) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        // The FEP looks at no slot beyond, when it wakes all.
        used.store(self.next, Ordering::Relaxed);
        Some(self.next - 1)
    }
}

/// A slot to sleep in: for one thread, or for one poll instance. Dropping it gives it back.
///
/// `prepare`, then look at every condition once more, then `sleep` (or poll the bell), then `cancel` or prepare again.
/// What the FEP publishes after `prepare` ends the sleep, if the record of its socket names this slot.
#[derive(Debug)]
pub struct Waiter {
    channel: Arc<Channel>,
    slot: u32,
    /// The FEP's counter at `prepare`.
    seen: u32,
    bell: Option<Bell>,
}

#[derive(Debug)]
struct Bell {
    socket: OwnedFd,
    /// The FEP's counter up to which rings were taken from the socket.
    taken: u32,
}

impl Waiter {
    pub(super) fn new(channel: &Arc<Channel>) -> io::Result<Self> {
        let slot = lock(&channel.slots).take(channel.a.word32(header_a::WAITERS_USED));
        let slot = slot.ok_or_else(would_block)?;
        Ok(Self { channel: channel.clone(), slot, seen: 0, bell: None })
    }

    pub(super) fn with_bell(channel: &Arc<Channel>) -> io::Result<Self> {
        if let Some((slot, socket, taken)) = lock(&channel.slots).free_bells.pop() {
            let bell = Some(Bell { socket, taken });
            return Ok(Self { channel: channel.clone(), slot, seen: 0, bell });
        }
        // The FEP makes one bell for each slot. A slot whose bell was asked for and lost is of no use any more.
        let room = channel.link.make_room_for_bell()?;
        let slot = lock(&channel.slots).take(channel.a.word32(header_a::WAITERS_USED));
        let slot = slot.ok_or_else(would_block)?;
        let asks = room.is_some();
        let socket = channel.link.make_bell(slot, room).inspect_err(|_| {
            if !asks {
                lock(&channel.slots).free.push(slot);
            }
        })?;
        let mut waiter = Self { channel: channel.clone(), slot, seen: 0, bell: None };
        waiter.bell = Some(Bell { socket, taken: waiter.counter().load(Ordering::Acquire) });
        Ok(waiter)
    }

    /// Its number, to be named in records.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// What becomes readable when it is woken, if it has a bell. It may also be readable for an earlier sleep.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.socket.as_fd())
    }

    /// Announces the sleep. The conditions must be looked at once more after this.
    pub fn prepare(&mut self) {
        self.seen = self.counter().load(Ordering::Acquire);
        if let Some(bell) = &mut self.bell {
            bell.drain(self.seen);
        }
        let flag = self.flag();
        let token = doorbell::next_token(self.next_token());
        doorbell::announce::<Native>(flag, token);
    }

    /// Whether the FEP has rung since `prepare`.
    pub fn is_rung(&self) -> bool {
        self.counter().load(Ordering::Acquire) != self.seen
    }

    /// Sleeps until it is woken; false if the time is over first. It counts as awake then.
    ///
    /// # Errors
    /// `EINTR`: a signal came.
    pub fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let answer = futex::wait(self.counter(), futex::Flags::empty(), self.seen, timeout.as_ref());
        self.cancel();
        match answer {
            // AGAIN: it was rung before it slept.
            Ok(()) | Err(Errno::AGAIN) => Ok(true),
            Err(Errno::TIMEDOUT) => Ok(self.is_rung()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the announcement back.
    pub fn cancel(&mut self) {
        doorbell::retract(self.flag());
    }

    /// Tokens are drawn from the whole channel's, so that a slot with a new owner never repeats its last.
    fn next_token(&self) -> u32 {
        self.channel.tokens.fetch_add(1, Ordering::Relaxed)
    }

    fn flag(&self) -> &AtomicU32 {
        self.channel.a.word32(self.channel.layout.sleeping(self.slot))
    }

    fn counter(&self) -> &AtomicU32 {
        self.channel.f.word32_to_load(self.channel.layout.wake(self.slot))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.cancel();
        let mut slots = lock(&self.channel.slots);
        match self.bell.take() {
            Some(bell) => slots.free_bells.push((self.slot, bell.socket, bell.taken)),
            None => slots.free.push(self.slot),
        }
    }
}

impl Bell {
    /// Takes the rings up to the FEP's counter from the socket, without a system call when there are none.
    fn drain(&mut self, counter: u32) {
        let mut buffer = [0; 8];
        while self.taken != counter {
            match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(_) => self.taken = self.taken.wrapping_add(1),
                Err(Errno::INTR) => {}
                // The FEP has counted but not rung yet; the sleep will end early, and it is taken the next time.
                Err(_) => break,
            }
        }
    }
}
