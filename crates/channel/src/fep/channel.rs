//! The channel of one application, as the FEP sees it.

use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ring::{Atomics, Consumer, Native, doorbell};
use stack::memory::Budget;

use super::events::Events;
use super::segments::{self, Files, Limits, Offer, Owner, Shared};
use super::waiters::{Bells, WaiterError, Waiters, Woken};
use crate::layout::{COMMAND_WORDS, Geometry, header_f, record_a, record_f};
use crate::mapping::MemoryUse;
use crate::memory::{self, Incoming};
use crate::offence::CLOSED_IN_ORDER;
use crate::record::{address_words, info_words};
use crate::sending::SendWord;
use crate::{Command, Event, Offence, State, queued};

/// One application's channel: commands in, events and records out. Dropping it closes it.
///
/// Everything that an application can do wrong comes back as an [`Offence`] from a method that returns one, at the latest
/// from the next [`poll_command`](Self::poll_command). After the first the channel is only to be closed.
#[derive(Debug)]
pub struct AppChannel {
    files: Files,
    shared: Arc<Shared>,
    commands: Consumer<Incoming<COMMAND_WORDS>>,
    events: Events,
    waiters: Waiters,
    /// Numbers from the upper half that were given and came back.
    free: Vec<u32>,
    /// The next number from the upper half that was never given.
    next: u32,
    token: u32,
    /// Everyone who sleeps is to be woken, when there is time for it.
    wake_all: bool,
    /// Commands taken since.
    taken: u32,
    closed: bool,
}

/// Waking everyone may cost a system call for each slot, so it is done once for this many commands at most.
const WAKE_ALL_EVERY: u32 = 64;

impl AppChannel {
    /// Makes the segments of a new channel.
    pub fn create(limits: &Limits) -> io::Result<Self> {
        Self::make(limits, None)
    }

    /// The same, its receive memory being a part of what several applications may have together.
    pub fn create_within(limits: &Limits, around: &Arc<Budget>) -> io::Result<Self> {
        Self::make(limits, Some(around))
    }

    fn make(limits: &Limits, around: Option<&Arc<Budget>>) -> io::Result<Self> {
        let (files, shared) = segments::create(limits, around)?;
        let layout = &shared.layout;
        let commands = Consumer::new(memory::commands_in(&shared.f, &shared.a, layout));
        let events = Events::new(memory::events_out(&shared.f, &shared.a, layout), layout.first_accepted());
        let waiters = Waiters::new(layout.geometry.waiters);
        let next = layout.first_accepted();
        Ok(Self {
            files,
            shared,
            commands,
            events,
            waiters,
            free: Vec::new(),
            next,
            token: doorbell::AWAKE,
            wake_all: false,
            taken: 0,
            closed: false,
        })
    }

    /// What the application needs to map it.
    pub fn offer(&self) -> Offer<'_> {
        Offer {
            geometry: *self.geometry(),
            a: self.files.a.as_fd(),
            f: self.files.f.as_fd(),
            doorbell: self.files.doorbell.as_fd(),
        }
    }

    /// The sizes of its parts.
    pub fn geometry(&self) -> &Geometry {
        &self.shared.layout.geometry
    }

    /// The eventfd by which the application wakes the FEP. To be watched edge-triggered and never read: the application
    /// holds it too, and could make a read of it wait.
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.files.doorbell.as_fd()
    }

    /// Makes buffers for its sockets.
    pub fn owner(&self) -> Owner {
        Owner(self.shared.clone())
    }

    /// Receive memory in use.
    pub fn memory(&self) -> MemoryUse {
        self.shared.area.memory()
    }

    /// From now on lent files can be read into its send rings.
    pub fn allow_filling(&self) -> io::Result<()> {
        self.shared.open_a(self.files.a.as_fd())
    }

    /// What its sockets may have of the receive memory.
    pub fn budget(&self) -> &Budget {
        &self.shared.budget
    }

    // --- commands and sleep -------------------------------------------------------------------------------------

    /// The next command. The caller bounds how many it takes at a time.
    pub fn poll_command(&mut self) -> Result<Option<Command>, Offence> {
        if let Some(offence) = self.shared.offence() {
            return Err(offence);
        }
        let words = self.commands.pop().map_err(|_| Offence::CommandIndex)?;
        self.taken += 1;
        if words.is_none() || self.taken >= WAKE_ALL_EVERY {
            self.settle()?;
        }
        words.map(|words| Command::decode(words, &self.shared.layout.geometry)).transpose()
    }

    /// Whether a command waits.
    pub fn has_commands(&mut self) -> Result<bool, Offence> {
        self.commands.is_empty().map(|empty| !empty).map_err(|_| Offence::CommandIndex)
    }

    /// Says that the FEP is about to sleep. False: a command waits, and the FEP counts as awake.
    pub fn prepare_sleep(&mut self) -> Result<bool, Offence> {
        self.settle()?;
        self.token = doorbell::next_token(self.token);
        let waiting = self.events.is_waiting();
        let f = &self.shared.f;
        f.word32(header_f::EVENTS_WAITING).store(waiting.into(), Ordering::Relaxed);
        doorbell::announce::<Native>(f.word32(header_f::FEP_SLEEPING), self.token);
        // Either the room that the application has made by now is seen here, or it rings when it makes some.
        let work = if waiting { self.settle() } else { Ok(()) }.and_then(|()| self.has_commands());
        if work != Ok(false) {
            self.end_sleep();
        }
        work.map(|work| !work)
    }

    /// Says that the FEP is awake.
    pub fn end_sleep(&mut self) {
        doorbell::retract(self.shared.f.word32(header_f::FEP_SLEEPING));
    }

    // --- socket numbers -----------------------------------------------------------------------------------------

    /// Checks that a number is the application's to open: of its half, and its last use, if any, released and that read.
    pub fn check_own(&mut self, socket: u32) -> Result<(), Offence> {
        if socket >= self.shared.layout.first_accepted() {
            return Err(Offence::NotYours);
        }
        if self.events.is_release_read(socket)? { Ok(()) } else { Err(Offence::AlreadyOpen) }
    }

    /// A number for an accepted connection; `None` when all are in use.
    pub fn allocate_socket(&mut self) -> Option<u32> {
        if let Some(socket) = self.free.pop() {
            return Some(socket);
        }
        match self.events.take_released() {
            Ok(Some(socket)) => return Some(socket),
            Ok(None) => {}
            Err(offence) => self.shared.note(offence),
        }
        if self.next == self.shared.layout.geometry.sockets {
            return None;
        }
        self.shared.reset_record(self.next);
        self.next += 1;
        Some(self.next - 1)
    }

    /// Takes back a number that was allocated but never announced.
    pub fn return_socket(&mut self, socket: u32) {
        self.shared.reset_record(socket);
        self.free.push(socket);
    }

    /// The stack is done with a closed socket: its record begins anew, and the application is told. A number from the
    /// FEP's half can be given again once the application has read that.
    pub fn release_socket(&mut self, socket: u32) {
        self.shared.reset_record(socket);
        let posted = self.events.post_released(socket);
        self.note(posted);
    }

    /// Whether a number was given to an accepted connection that the program has not taken yet, as far as it says.
    pub fn is_untaken(&self, socket: u32) -> bool {
        self.is_for_accepted(socket) && self.taken_after(socket).is_none()
    }

    /// How often processes had forked when the program accepted a connection that was given this number, as far as it says; `None`:
    /// it has not.
    pub fn taken_after(&self, socket: u32) -> Option<u32> {
        self.shared.load_a32(socket, record_a::TAKEN, Ordering::Relaxed).checked_sub(1)
    }

    /// Whether a number is one of those that are given to accepted connections.
    pub fn is_for_accepted(&self, socket: u32) -> bool {
        socket >= self.shared.layout.first_accepted()
    }

    /// Publishes how often processes have forked, this one being the last.
    pub fn publish_forks(&mut self, forks: u32) {
        self.shared.f.word32(header_f::FORKS).store(forks, Ordering::Relaxed);
    }

    /// How many of a listener's connections the program has accepted, as far as it says; wraps.
    pub fn accepted_by_program(&self, listener: u32) -> u32 {
        self.shared.load_a32(listener, record_a::TAKEN, Ordering::Relaxed)
    }

    // --- records ------------------------------------------------------------------------------------------------

    /// Publishes a socket's state, after the cursors that belong to it. What is said of its queue of errors stays.
    pub fn publish_state(&mut self, socket: u32, state: State) {
        let before = self.shared.load_f(socket, record_f::STATE);
        let queued = State::from_bits_truncate(before as u32) & State::HAS_QUEUED;
        let word = before >> 32 << 32 | u64::from((state | queued).bits());
        if word != before {
            self.store(socket, record_f::STATE, word);
        }
    }

    /// Publishes whether a socket's queue of errors holds any, and that it was given so many more. Who waits is told.
    pub fn publish_queued(&mut self, socket: u32, has_any: bool, more: u32) {
        let before = self.shared.load_f(socket, record_f::STATE);
        let mut state = State::from_bits_truncate(before as u32);
        state.set(State::HAS_QUEUED, has_any);
        let given = ((before >> 32) as u32).wrapping_add(more);
        self.store(socket, record_f::STATE, u64::from(given) << 32 | u64::from(state.bits()));
        if more > 0 {
            self.notify(socket);
        }
    }

    /// Publishes an error that leaves the socket as it is; 0: the last one does not count any more.
    pub fn publish_passing_error(&mut self, socket: u32, errno: i32) {
        let before = self.shared.load_f(socket, record_f::ERROR);
        if errno != 0 || before as u32 != 0 {
            let count = ((before >> 32) as u32).wrapping_add(1);
            self.store(socket, record_f::ERROR, counted(count, errno));
        }
        if errno != 0 {
            self.notify(socket);
            self.wake(socket, record_a::READER);
            self.wake(socket, record_a::WRITER);
        }
    }

    /// The state last published.
    pub fn state(&self, socket: u32) -> State {
        State::from_bits_truncate(self.shared.load_f(socket, record_f::STATE) as u32)
    }

    /// Publishes an error, also in the state.
    pub fn publish_error(&mut self, socket: u32, errno: i32) {
        let count = (self.shared.load_f(socket, record_f::ERROR) >> 32) as u32;
        self.store(socket, record_f::ERROR, counted(count.wrapping_add(1), errno));
        let state = self.state(socket) | State::ERROR;
        self.publish_state(socket, state);
    }

    /// Publishes a socket's addresses; visible with the next state, answer or event.
    pub fn publish_addresses(&mut self, socket: u32, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
        let record = self.shared.layout.record_f(socket);
        self.shared.f.store_words(record + record_f::LOCAL, address_words(local));
        self.shared.f.store_words(record + record_f::REMOTE, address_words(remote));
    }

    /// Publishes what INFO asked for; visible with the answer, until the next one is published.
    pub fn publish_info(&mut self, info: &tcp::TcpInfo) {
        self.shared.f.store_words(header_f::INFO, info_words(info));
    }

    /// Publishes what TAKE_ERROR asked for; visible with the answer, until the next one is published.
    pub fn publish_queued_error(&mut self, error: &stack::QueuedError) {
        let words = queued::encode(error);
        self.shared.f.store_words(header_f::QUEUED_ERROR, words);
        let payload = &error.payload[..queued::payload_len(words)];
        self.shared.f.copy_in(header_f::QUEUED_ERROR + 8 * queued::HEAD_WORDS, payload);
    }

    /// Publishes what a socket is called wherever it goes; visible with the next state, answer or event.
    pub fn publish_identity(&mut self, socket: u32, identity: u64) {
        self.shared.store_f(socket, record_f::IDENTITY, identity, Ordering::Relaxed);
    }

    /// Publishes what CLAIM asked for; visible with the answer.
    pub fn publish_claimed(&mut self, consumed: u64, queued: u64) {
        self.shared.f.store_words(header_f::CLAIMED, [consumed, queued]);
    }

    /// Publishes what PATH_MTU asked for; visible with the answer.
    pub fn publish_path_mtu(&mut self, path: u16, link: u16) {
        let word = u64::from(path) | u64::from(link) << 32;
        self.shared.f.word64(header_f::PATH_MTU).store(word, Ordering::Relaxed);
    }

    /// Publishes how narrow paths are at most; a datagram that fits need not be asked for.
    pub fn publish_narrowest_mtu(&mut self, mtu: u16) {
        self.shared.f.word32(header_f::NARROWEST_MTU).store(mtu.into(), Ordering::Relaxed);
    }

    /// Answers a command, with 0 for success. Sequence 0 wants no answer.
    pub fn answer(&mut self, socket: u32, sequence: u32, errno: i32) {
        if sequence != 0 {
            self.store(socket, record_f::RESULT, counted(sequence, errno));
            Native::full_fence();
            self.wake(socket, record_a::CALLER);
        }
    }

    fn store(&mut self, socket: u32, field: usize, value: u64) {
        // Release: whoever sees this sees what was published before.
        self.shared.store_f(socket, field, value, Ordering::Release);
    }

    // --- events and wake-ups ------------------------------------------------------------------------------------

    /// Announces a new connection of a listener. Its state and addresses are published before.
    pub fn accepted(&mut self, listener: u32, socket: u32) {
        let posted = self.events.post(Event::Accepted { listener, socket });
        self.note(posted);
        self.notify(listener);
    }

    /// To be called after something of a socket was published: posts READY if the socket is watched, wakes its reader and
    /// its writer if what they wait for is there.
    ///
    /// True: the reader has something but asked to be woken for it only when nothing more comes; that is to be told by
    /// [`notify_pause`](Self::notify_pause), some time soon.
    pub fn notify(&mut self, socket: u32) -> bool {
        // Before it: what was published. After it: who sleeps, and what is unread.
        Native::full_fence();
        if self.shared.load_a32(socket, record_a::WATCHED, Ordering::Relaxed) != 0 {
            let posted = self.events.post_ready(socket);
            self.note(posted);
        }
        let state = self.state(socket);
        let reached = |cursor, mark| {
            self.shared.load_f(socket, cursor) >= self.shared.load_a(socket, mark, Ordering::Relaxed)
        };
        let readable = state.intersects(State::ENDS_READING | State::LISTENING | State::HAS_QUEUED)
            || reached(record_f::RECEIVED, record_a::READ_WAKE);
        let writable = state.intersects(State::ENDS_WRITING | State::HAS_QUEUED)
            || (reached(record_f::ACKED, record_a::WRITE_WAKE) && self.has_sent_enough(socket));
        if readable {
            self.wake(socket, record_a::READER);
        }
        if writable {
            self.wake(socket, record_a::WRITER);
        }
        !readable && self.has_least(socket)
    }

    /// Wakes the reader whatever it waits for: it may be urgent data. After [`notify`](Self::notify), which has told the others.
    pub fn notify_urgent(&mut self, socket: u32) {
        self.wake(socket, record_a::READER);
    }

    /// Nothing more comes for now: wakes the reader for what there is.
    pub fn notify_pause(&mut self, socket: u32) {
        Native::full_fence();
        if self.has_least(socket) {
            self.wake(socket, record_a::READER);
        }
    }

    /// Whether there is what a reader wants to be woken for in a pause.
    fn has_least(&self, socket: u32) -> bool {
        let least = self.shared.load_a(socket, record_a::READ_LEAST, Ordering::Relaxed);
        least != 0 && self.shared.load_f(socket, record_f::RECEIVED) >= least
    }

    /// Whether as much is sent as a writer that cares for that waits for.
    fn has_sent_enough(&self, socket: u32) -> bool {
        let mark = self.shared.load_a(socket, record_a::SENT_WAKE, Ordering::Relaxed);
        mark == 0 || SendWord(self.shared.load_f(socket, record_f::SENDING)).has_sent(mark)
    }

    /// Moves events that did not fit into the ring. Polling commands and preparing to sleep do it too.
    pub fn flush_events(&mut self) -> Result<(), Offence> {
        self.settle()
    }

    /// How many sleeps of the application's threads were ended by [`notify`](Self::notify) and its like.
    pub fn wakeups(&self) -> u64 {
        self.waiters.woken
    }

    /// How many events the application was given.
    pub fn events_posted(&self) -> u64 {
        self.events.posted
    }

    /// Makes a bell for a waiter slot; the end for the application.
    pub fn add_waiter(&mut self, slot: u32) -> Result<OwnedFd, WaiterError> {
        self.waiters.bells().make(slot)
    }

    /// Ends the channel: says why in F, and wakes everyone who sleeps.
    pub fn close(&mut self, why: Option<Offence>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let code = why.map_or(CLOSED_IN_ORDER, Offence::code);
        self.shared.f.word32(header_f::CLOSED).store(code, Ordering::Release);
        Native::full_fence();
        self.waiters.wake_all(&self.shared);
    }

    /// The bells, for an application's half in this process.
    pub(crate) fn bells(&self) -> &Arc<Bells> {
        self.waiters.bells()
    }

    fn wake(&mut self, socket: u32, field: usize) {
        match self.waiters.wake_named(&self.shared, socket, field) {
            Ok(Woken::Named) => {}
            Ok(Woken::ToWakeAll) => self.wake_all = true,
            Err(offence) => self.shared.note(offence),
        }
    }

    /// Does what was put off.
    fn settle(&mut self) -> Result<(), Offence> {
        self.taken = 0;
        if std::mem::take(&mut self.wake_all) {
            self.waiters.wake_all(&self.shared);
        }
        if self.events.is_waiting() { self.events.flush() } else { Ok(()) }
    }

    fn note(&self, outcome: Result<(), Offence>) {
        if let Err(offence) = outcome {
            self.shared.note(offence);
        }
    }
}

impl Drop for AppChannel {
    fn drop(&mut self) {
        self.close(None);
    }
}

fn counted(count: u32, errno: i32) -> u64 {
    u64::from(count) << 32 | u64::from(errno as u32)
}
