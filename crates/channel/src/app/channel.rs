//! The channel as all threads of an application share it.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::{Atomics, Consumer, Native, Producer, PushError, doorbell};
use rustix::io::Errno;
use stack::QueuedError;
use tcp::TcpInfo;

use super::attach::Link;
use super::offer::{Offered, Offers};
use super::record::Record;
use super::rings::Rings;
use super::waiter::{Slots, Waiter};
use crate::control::Token;
use crate::layout::{COMMAND_WORDS, EVENT_WORDS, Geometry, Layout, header_a, header_f};
use crate::mapping::{MemoryUse, ReadMapping, WriteMapping};
use crate::memory::{Incoming, Outgoing, commands_out, events_in};
use crate::offence::CLOSED_IN_ORDER;
use crate::record::info_from_words;
use crate::{Command, Event, Offence, queued};

/// How often a full command ring is tried again before the thread yields.
const SPINS: u32 = 64;
/// How often a synchronous call looks before it offers the processor. The answer comes within microseconds: to another
/// program on this processor and back takes longer.
const CALL_SPINS: u32 = 500;
/// How often it looks first where the last answer came as soon as the processor was offered: the FEP waits for this very one.
const CALL_SPINS_BESIDE: u32 = 8;
/// How long it looks, offering the processor, before it sleeps.
const CALL_PATIENCE_NS: u64 = 100_000;
/// A sleeping call looks this often whether the FEP still lives.
const ALIVE_CHECK: Duration = Duration::from_secs(1);
/// A call that found no slot to sleep in looks this often.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Why a channel is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closure {
    /// The FEP ended, or ended the channel in order.
    Ended,
    /// The FEP cut this application off.
    CutOff(Offence),
}

/// A channel to a FEP.
#[derive(Debug)]
pub struct Channel {
    pub(super) a: Arc<WriteMapping>,
    pub(super) f: Arc<ReadMapping>,
    pub(super) layout: Layout,
    pub(super) rings: Rings,
    pub(super) slots: Mutex<Slots>,
    pub(super) link: Link,
    a_file: OwnedFd,
    doorbell: OwnedFd,
    commands: Mutex<Producer<Outgoing<COMMAND_WORDS>>>,
    events: Mutex<Consumer<Incoming<EVENT_WORDS>>>,
    numbers: Mutex<Numbers>,
    /// The FEP's last sleep that this side rang for.
    rung: AtomicU32,
    sequence: AtomicU32,
    /// By this those that this process forks name it.
    token: Token,
    /// For waiters.
    pub(super) tokens: AtomicU32,
    /// F has room for one answer to INFO.
    asking: Mutex<()>,
    /// The FEP seems to be on the processor of who calls.
    is_beside: AtomicBool,
}

/// The socket numbers of the application's half.
#[derive(Debug)]
struct Numbers {
    free: Vec<u32>,
    next: u32,
    end: u32,
}

impl Channel {
    /// Over segments that were mapped and checked.
    pub(super) fn new(
        a: WriteMapping,
        f: ReadMapping,
        layout: Layout,
        a_file: OwnedFd,
        doorbell: OwnedFd,
        (link, token): (Link, Token),
    ) -> Arc<Self> {
        let (a, f) = (Arc::new(a), Arc::new(f));
        let commands = Producer::new(commands_out(&a, &f, &layout));
        let events = Consumer::new(events_in(&a, &f, &layout));
        let rings = Rings::new(&a, &layout);
        Arc::new(Self {
            rings,
            slots: Mutex::new(Slots::new(layout.geometry.waiters)),
            link,
            token,
            a_file,
            doorbell,
            commands: Mutex::new(commands),
            events: Mutex::new(events),
            numbers: Mutex::new(Numbers { free: Vec::new(), next: 0, end: layout.first_accepted() }),
            rung: AtomicU32::new(doorbell::AWAKE),
            sequence: AtomicU32::new(0),
            tokens: AtomicU32::new(doorbell::AWAKE),
            asking: Mutex::default(),
            is_beside: AtomicBool::new(false),
            a,
            f,
            layout,
        })
    }

    /// The sizes of its parts.
    pub fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    /// Send memory in use.
    pub fn memory(&self) -> MemoryUse {
        self.rings.memory()
    }

    /// Gives the pages of free send memory back to the system; how many bytes.
    pub fn trim(&self) -> io::Result<u64> {
        self.rings.trim(&self.a_file)
    }

    /// Asks for a socket on which files can be lent ([`FileMessage`](crate::control::FileMessage)).
    ///
    /// # Errors
    /// The FEP is in this process, does not want to, or is gone.
    pub fn open_lender(&self) -> io::Result<OwnedFd> {
        self.link.open_lender()
    }

    /// By this those that this process forks name it.
    pub(super) fn token(&self) -> &Token {
        &self.token
    }

    /// Why it is closed, as far as the FEP said so. Costs one load.
    pub fn closed(&self) -> Option<Closure> {
        match self.f.load32(header_f::CLOSED, Ordering::Acquire) {
            0 => None,
            CLOSED_IN_ORDER => Some(Closure::Ended),
            code => Some(Offence::from_code(code).map_or(Closure::Ended, Closure::CutOff)),
        }
    }

    /// As [`closed`](Self::closed), but notices also a FEP that could not say so, by the control socket.
    pub fn check_alive(&self) -> Option<Closure> {
        self.closed().or_else(|| self.link.is_hung_up().then_some(Closure::Ended))
    }

    // --- commands -----------------------------------------------------------------------------------------------

    /// Posts a command. Waits while the ring is full.
    ///
    /// # Errors
    /// `ENETDOWN` when the channel is closed.
    pub fn post(&self, command: &Command) -> io::Result<()> {
        let words = command.encode();
        let mut tries = 0u32;
        loop {
            {
                let mut commands = lock(&self.commands);
                match commands.push(words) {
                    Ok(_) => {
                        commands.publish();
                        break;
                    }
                    Err(PushError::Full) => {}
                    Err(PushError::Corrupt) => return Err(net_down()),
                }
            }
            self.ring_doorbell();
            tries = tries.wrapping_add(1);
            if tries <= SPINS {
                core::hint::spin_loop();
            } else if self.closed().is_some() || (tries.is_multiple_of(1024) && self.link.is_hung_up()) {
                return Err(net_down());
            } else {
                std::thread::yield_now();
            }
        }
        self.ring_doorbell();
        if self.closed().is_some() { Err(net_down()) } else { Ok(()) }
    }

    /// Posts a command that is answered, and waits for the answer. One at a time for a socket.
    ///
    /// # Errors
    /// What the FEP answered; `ENETDOWN` when the channel is closed.
    pub fn call(self: &Arc<Self>, socket: u32, make: impl FnOnce(u32) -> Command) -> io::Result<()> {
        let sequence = doorbell::next_token(self.sequence.fetch_add(1, Ordering::Relaxed));
        let record = self.record(socket);
        self.post(&make(sequence))?;
        let is_beside = self.is_beside.load(Ordering::Relaxed);
        for _ in 0..if is_beside { CALL_SPINS_BESIDE } else { CALL_SPINS } {
            if let Some(answer) = record.answer(sequence) {
                return answer;
            }
            core::hint::spin_loop();
        }
        let mut offers = Offers::default();
        let mut is_first = true;
        while offers.offer(CALL_PATIENCE_NS) == Offered::Taken {
            if let Some(answer) = record.answer(sequence) {
                if is_first != is_beside {
                    self.is_beside.store(is_first, Ordering::Relaxed);
                }
                return answer;
            }
            is_first = false;
        }
        drop(offers);
        self.sleep_for_answer(socket, sequence)
    }

    /// What the FEP's stack tells of a TCP socket. One call at a time for a socket, as [`call`](Self::call).
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the socket is none of TCP's; `ENETDOWN` when the channel is closed.
    pub fn tcp_info(self: &Arc<Self>, socket: u32) -> io::Result<TcpInfo> {
        let _one = lock(&self.asking);
        self.call(socket, |sequence| Command::Info { socket, sequence })?;
        Ok(info_from_words(self.f.load_words(header_f::INFO)))
    }

    /// Takes the oldest entry of a socket's queue of errors. One call at a time for a socket, as [`call`](Self::call).
    ///
    /// # Errors
    /// `EAGAIN`: there is none; `ENETDOWN` when the channel is closed.
    pub fn take_queued_error(self: &Arc<Self>, socket: u32) -> io::Result<QueuedError> {
        let _one = lock(&self.asking);
        self.call(socket, |sequence| Command::TakeError { socket, sequence })?;
        let words = self.f.load_words(header_f::QUEUED_ERROR);
        let place = header_f::QUEUED_ERROR + 8 * queued::HEAD_WORDS;
        let payload = self.f.bytes(place, queued::payload_len(words)).to_vec();
        queued::decode(words, payload).ok_or_else(net_down)
    }

    /// The largest packet on the way to `remote`, or to the socket's peer, and on the link. One call at a time for a socket.
    ///
    /// # Errors
    /// `ENOTCONN`: it has no peer; `ENETUNREACH`; `ENETDOWN` when the channel is closed.
    pub fn path_mtu(self: &Arc<Self>, socket: u32, remote: Option<SocketAddr>) -> io::Result<(u32, u32)> {
        let _one = lock(&self.asking);
        self.call(socket, |sequence| Command::PathMtu { socket, sequence, remote })?;
        let word = self.f.load64(header_f::PATH_MTU, Ordering::Relaxed);
        Ok((word as u32, (word >> 32) as u32))
    }

    /// Takes over a socket from the application that forked this one, or back from one that it forked, under this number, which is not
    /// open. Where its streams stand: up to where it is read, and queued.
    ///
    /// # Errors
    /// `EAGAIN`: not yet; `ENOTCONN`: it is over, or was never this one's; `ENETDOWN` when the channel is closed.
    pub fn claim(self: &Arc<Self>, socket: u32, identity: u64) -> io::Result<(u64, u64)> {
        let _one = lock(&self.asking);
        self.call(socket, |sequence| Command::Claim { socket, sequence, identity })?;
        Ok(self.claimed())
    }

    /// What the answer to the last claim has told: up to where that socket is read, and queued.
    pub fn claimed(&self) -> (u64, u64) {
        let [consumed, queued] = self.f.load_words(header_f::CLAIMED);
        (consumed, queued)
    }

    /// A socket that this process has from the one that forked it is of no use here.
    ///
    /// # Errors
    /// The FEP is gone.
    pub fn release(&self, identity: u64) -> io::Result<()> {
        self.link.release(identity)
    }

    /// A packet that is no longer than this fits on every path, as far as is known. Costs one load.
    pub fn narrowest_mtu(&self) -> u32 {
        self.f.load32(header_f::NARROWEST_MTU, Ordering::Relaxed)
    }

    fn sleep_for_answer(self: &Arc<Self>, socket: u32, sequence: u32) -> io::Result<()> {
        let record = self.record(socket);
        // Without a free slot it looks now and then.
        let mut waiter = self.waiter().ok();
        record.set_caller(waiter.as_ref().map(Waiter::slot));
        let answer = loop {
            if let Some(waiter) = &mut waiter {
                waiter.prepare();
            }
            if let Some(answer) = record.answer(sequence) {
                break answer;
            }
            if self.check_alive().is_some() {
                break Err(net_down());
            }
            match &mut waiter {
                // A signal does not end a call that was posted.
                Some(waiter) => drop(waiter.sleep(Some(ALIVE_CHECK))),
                None => std::thread::sleep(LOOK_AGAIN),
            }
        };
        record.set_caller(None);
        answer
    }

    /// Wakes the FEP if it sleeps, once a sleep.
    fn ring_doorbell(&self) {
        let token = doorbell::sleeper::<Native>(self.f.word32_to_load(header_f::FEP_SLEEPING));
        if token != doorbell::AWAKE && self.rung.swap(token, Ordering::Relaxed) != token {
            // A full counter rings already; a FEP that is gone is noticed elsewhere.
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }

    // --- sockets ------------------------------------------------------------------------------------------------

    /// A number for a socket to be opened; `None` when all are in use. It comes back with RELEASED, so
    /// [`poll_events`](Self::poll_events) may help.
    pub fn new_socket(&self) -> Option<u32> {
        let mut numbers = lock(&self.numbers);
        if let Some(number) = numbers.free.pop() {
            return Some(number);
        }
        if numbers.next == numbers.end {
            return None;
        }
        numbers.next += 1;
        Some(numbers.next - 1)
    }

    /// Takes back a number that was never opened.
    pub fn return_socket(&self, socket: u32) {
        lock(&self.numbers).free.push(socket);
    }

    /// A socket's record.
    pub fn record(&self, socket: u32) -> Record<'_> {
        assert!(socket < self.layout.geometry.sockets, "a socket number of this channel");
        Record::new(self, socket)
    }

    /// A waiter to sleep with.
    ///
    /// # Errors
    /// `EAGAIN` when all slots are in use.
    pub fn waiter(self: &Arc<Self>) -> io::Result<Waiter> {
        Waiter::new(self)
    }

    /// A waiter with a bell, to sleep in `poll` or `epoll` with other descriptors.
    pub fn waiter_with_bell(self: &Arc<Self>) -> io::Result<Waiter> {
        Waiter::with_bell(self)
    }

    // --- events -------------------------------------------------------------------------------------------------

    /// Takes all events and hands them to `handle`, in order; how many. One thread at a time does this; `handle` must
    /// not call this again.
    ///
    /// A RELEASED is prepared before `handle` sees it: the socket's record and ring memory are as of a new socket. If it has
    /// a number of the application's half, that can be used again when this returns.
    ///
    /// After it returned, what the FEP publishes of the sockets named by the events makes new events; so look at them
    /// only then, or look again.
    pub fn poll_events(&self, handle: &mut dyn FnMut(Event)) -> io::Result<usize> {
        let mut events = lock(&self.events);
        let mut released = Vec::new();
        let mut count = 0;
        while let Some(words) = events.pop_held().map_err(|_| net_down())? {
            let event = Event::decode(words, self.layout.geometry.sockets).ok_or_else(net_down)?;
            if let Event::Released { socket } = event {
                self.record(socket).reset();
                self.rings.release(socket);
                if socket < self.layout.first_accepted() {
                    released.push(socket);
                }
            }
            handle(event);
            count += 1;
        }
        if count > 0 {
            // Only now may the FEP give a released number again.
            events.publish();
            // Either the FEP sees that READY was read, or whoever looks at the sockets now sees what it published. And
            // either it sees the room for further events, or here is seen that it sleeps with some.
            Native::full_fence();
            if self.f.load32(header_f::EVENTS_WAITING, Ordering::Relaxed) != 0 {
                self.ring_doorbell();
            }
        }
        drop(events);
        if !released.is_empty() {
            lock(&self.numbers).free.append(&mut released);
        }
        Ok(count)
    }

    /// Whether an event waits. Cheap, but a look without a promise: another thread may be taking it.
    pub fn has_events(&self) -> bool {
        self.f.load32(header_f::EVENTS_PRODUCED, Ordering::Acquire)
            != self.a.load32(header_a::EVENTS_CONSUMED, Ordering::Relaxed)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is protected stays consistent at every point where a panic could be.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn net_down() -> io::Error {
    Errno::NETDOWN.into()
}

pub(super) fn would_block() -> io::Error {
    Errno::AGAIN.into()
}
