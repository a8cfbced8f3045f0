//! Waking the application's threads.
//!
//! A waiter slot is a token in A (zero: awake), a counter in F and perhaps a *bell*. Waking bumps the counter, then wakes
//! whoever waits on it as a futex and writes to the bell. The bell is a Unix datagram socket pair made here: its
//! writing end is this side's alone, and a send that must not wait does not wait, whatever the application does to its end.
//! (An eventfd or a pipe that both hold does not give that: flags are shared, and a full one blocks.)

use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use ring::doorbell::{self, Bell};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::thread::futex;

use super::segments::Shared;
use crate::Offence;
use crate::layout::{header_a, record_a};

/// Every waiter that sleeps, in place of a slot's name.
pub(crate) const ALL: u32 = u32::MAX;

/// Why a slot got no bell.
#[derive(Debug, thiserror::Error)]
pub enum WaiterError {
    /// The application asks for what cannot be.
    #[error("the waiter slot does not exist or has a bell already")]
    Offence(Offence),
    /// The system refused.
    #[error("cannot make a bell: {0}")]
    System(#[from] std::io::Error),
}

/// The writing ends of the bells, by slot. In the host architecture the application's half shares it.
#[derive(Debug)]
pub(crate) struct Bells {
    slots: Box<[OnceLock<OwnedFd>]>,
    count: AtomicU32,
}

/// Most bells of an application; each costs the FEP a descriptor.
const MAX_BELLS: u32 = 256;

impl Bells {
    fn new(slots: u32) -> Self {
        Self { slots: (0..slots).map(|_| OnceLock::new()).collect(), count: AtomicU32::new(0) }
    }

    /// Makes the bell of a slot; the reading end.
    pub(crate) fn make(&self, slot: u32) -> Result<OwnedFd, WaiterError> {
        let place = self.slots.get(slot as usize).ok_or(WaiterError::Offence(Offence::BadWaiter))?;
        if self.count.fetch_add(1, Ordering::Relaxed) >= MAX_BELLS {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(WaiterError::System(Errno::MFILE.into()));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).map_err(std::io::Error::from)?;
        place.set(ours).map_err(|_| WaiterError::Offence(Offence::BadWaiter))?;
        Ok(theirs)
    }

    fn ring(&self, slot: u32) {
        if let Some(bell) = self.slots.get(slot as usize).and_then(OnceLock::get) {
            // A full bell rings already; a closed one has nobody to wake.
            let _ = send(bell, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// What became of a wish to wake whom a record names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// He was woken, if he slept.
    Named,
    /// It names all: that is the caller's to do, some time soon.
    ToWakeAll,
}

/// All waiter slots of an application.
#[derive(Debug)]
pub(super) struct Waiters {
    bells: Arc<Bells>,
    /// The last token woken, by slot.
    rung: Vec<Bell>,
    /// Sleeps that were ended.
    pub(super) woken: u64,
}

impl Waiters {
    pub(super) fn new(slots: u32) -> Self {
        Self { bells: Arc::new(Bells::new(slots)), rung: Vec::new(), woken: 0 }
    }

    pub(super) fn bells(&self) -> &Arc<Bells> {
        &self.bells
    }

    /// Wakes the waiter that a word of the socket's record names, if it sleeps. A full fence passed since what it waits
    /// for was published.
    pub(super) fn wake_named(
        &mut self,
        shared: &Shared,
        socket: u32,
        field: usize,
    ) -> Result<Woken, Offence> {
        debug_assert!(matches!(field, record_a::READER | record_a::WRITER | record_a::CALLER));
        match shared.load_a32(socket, field, Ordering::Relaxed) {
            0 => {}
            ALL => return Ok(Woken::ToWakeAll),
            name if name <= shared.layout.geometry.waiters => self.wake(shared, name - 1),
            _ => return Err(Offence::BadWaiter),
        }
        Ok(Woken::Named)
    }

    /// Wakes everyone who sleeps.
    pub(super) fn wake_all(&mut self, shared: &Shared) {
        let used = shared.a.load32(header_a::WAITERS_USED, Ordering::Relaxed);
        for slot in 0..used.min(shared.layout.geometry.waiters) {
            self.wake(shared, slot);
        }
    }

    fn wake(&mut self, shared: &Shared, slot: u32) {
        let token = shared.a.load32(shared.layout.sleeping(slot), Ordering::Relaxed);
        if token == doorbell::AWAKE {
            return;
        }
        let index = slot as usize;
        if index >= self.rung.len() {
            self.rung.resize(index + 1, Bell::default());
        }
        if !self.rung[index].must_ring(token) {
            return;
        }
        self.woken += 1;
        let counter = shared.f.word32(shared.layout.wake(slot));
        counter.fetch_add(1, Ordering::Release);
        self.bells.ring(slot);
        // Nothing to do about an error: the word is mapped, and nobody need be waiting.
        let _ = futex::wake(counter, futex::Flags::empty(), 1);
    }
}
