//! The two directions of a socket: the data paths. No system call is made here unless the stack sleeps and must be
//! rung.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use channel::app::{ReceiveDatagrams, ReceiveStream, SendDatagrams, SendStream};
use channel::{Manner, State};

use super::LentFile;
use super::socket::{Socket, errno};
use crate::endpoint::lock;

/// The receiving half of the channel's socket.
pub(super) enum ReceiveSide {
    Stream(ReceiveStream),
    Datagrams(ReceiveDatagrams),
}

/// The sending half of the channel's socket.
pub(super) enum SendSide {
    Stream(SendStream),
    Datagrams(SendDatagrams),
}

/// The sending half with its lock, known to the endpoint while it holds memory.
pub(crate) struct Sending {
    pub(super) side: Mutex<SendSide>,
    /// The endpoint looks after its memory.
    listed: AtomicBool,
}

impl Sending {
    pub(super) fn new(side: SendSide) -> Self {
        Self { side: Mutex::new(side), listed: AtomicBool::new(false) }
    }

    /// Gives the memory back if nothing was queued since `queued` and all is acknowledged. What is queued now, and
    /// whether memory is still held; `None`: it is being used.
    pub(crate) fn give_back_idle(&self, queued: u64) -> Option<(u64, bool)> {
        let mut side = self.side.try_lock().ok()?;
        let (now, held) = match &mut *side {
            SendSide::Stream(stream) => {
                let now = stream.queued();
                (now, now != queued || !stream.release_idle())
            }
            SendSide::Datagrams(datagrams) => {
                let now = datagrams.queued();
                (now, now != queued || !datagrams.release_idle())
            }
        };
        if !held {
            self.listed.store(false, Ordering::Relaxed);
        }
        Some((now, held))
    }
}

impl SendSide {
    /// Sets the largest ring; what it is then.
    pub(super) fn set_limit(&mut self, bytes: usize) -> usize {
        match self {
            Self::Stream(stream) => {
                stream.set_limit(bytes);
                stream.limit()
            }
            Self::Datagrams(datagrams) => {
                datagrams.set_limit(bytes);
                datagrams.limit()
            }
        }
    }
}

impl Socket {
    /// Queues bytes to send; how many were taken.
    pub fn send(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_in(buffers, Manner::Plain)
    }

    /// As [`send`](Self::send), in that manner: more follows (less than a full segment waits for that, for an acknowledgement or
    /// 200 ms), or the last byte that was taken is urgent.
    pub fn send_in(&self, buffers: &[IoSlice<'_>], manner: Manner) -> io::Result<usize> {
        self.sender().send_in(buffers, manner)
    }

    /// Takes received bytes; 0 at the end of the stream. `peek` leaves them.
    pub fn recv(&self, buffers: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<usize> {
        self.receiver().recv(buffers, peek)
    }

    /// Throws away up to `count` received bytes; how many.
    pub fn discard(&self, count: usize) -> io::Result<usize> {
        let mut receiver = self.receiver();
        if count == 0 {
            return receiver.recv(&mut [], false);
        }
        let mut done = 0;
        while done < count {
            if done > 0 && self.is_at_mark() {
                break;
            }
            let there = match receiver.fill_buf() {
                Ok(bytes) => bytes.len().min(count - done),
                Err(error) if done == 0 => return Err(error),
                Err(_) => 0,
            };
            if there == 0 {
                break;
            }
            receiver.consume(there);
            done += there;
        }
        Ok(done)
    }

    /// The receiving side, locked.
    pub fn receiver(&self) -> Receiver<'_> {
        Receiver { socket: self, side: lock(&self.receive) }
    }

    /// The sending side, locked.
    pub fn sender(&self) -> Sender<'_> {
        Sender { socket: self, side: lock(&self.send.side), allowance: usize::MAX }
    }
}

/// The receiving side of a stream socket; other threads that receive on it wait while this lives.
pub struct Receiver<'a> {
    socket: &'a Socket,
    side: MutexGuard<'a, ReceiveSide>,
}

impl Receiver<'_> {
    fn stream(&mut self) -> io::Result<&mut ReceiveStream> {
        match &mut *self.side {
            ReceiveSide::Stream(stream) => Ok(stream),
            ReceiveSide::Datagrams(_) => Err(errno(libc::EOPNOTSUPP)),
        }
    }

    /// Whether a receive would not wait.
    pub fn is_ready(&self) -> bool {
        self.socket.readiness().readable || self.socket.has_error()
    }

    /// As [`Socket::recv`].
    pub fn recv(&mut self, buffers: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<usize> {
        loop {
            let stream = self.stream()?;
            let count = stream.read(buffers, peek)?;
            self.note_consumed();
            if count > 0 {
                return Ok(count);
            }
            if let Some(outcome) = self.outcome_of_nothing(buffers.iter().all(|buffer| buffer.is_empty()), 0)
            {
                return outcome;
            }
        }
    }

    /// Looks at what comes behind the first `behind` bytes (`SO_PEEK_OFF`); 0 at the end of the stream.
    pub fn peek_behind(&mut self, behind: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let wants_nothing = buffers.iter().all(|buffer| buffer.is_empty());
        loop {
            let count = self.stream()?.peek_behind(behind, buffers)?;
            self.note_consumed();
            if count > 0 {
                return Ok(count);
            }
            if let Some(outcome) = self.outcome_of_nothing(wants_nothing, behind) {
                return outcome;
            }
        }
    }

    /// How many bytes [`peek_behind`](Self::peek_behind) could give; 0 at the end of the stream.
    pub fn count_behind(&mut self, behind: u64) -> io::Result<usize> {
        loop {
            self.stream()?.pass_urgent(true)?;
            self.note_consumed();
            let count = self.stream()?.available_behind(behind) as usize;
            if count > 0 {
                return Ok(count);
            }
            if let Some(outcome) = self.outcome_of_nothing(false, behind) {
                return outcome;
            }
        }
    }

    /// The received bytes in one piece; empty at the end of the stream.
    pub fn fill_buf(&mut self) -> io::Result<&[u8]> {
        loop {
            self.stream()?.pass_urgent(false)?;
            self.note_consumed();
            if !self.stream()?.fill().is_empty() {
                return Ok(self.stream()?.fill());
            }
            match self.outcome_of_nothing(false, 0) {
                Some(Ok(_)) => return Ok(&[]),
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
    }

    /// Gives the first `count` of these bytes back.
    ///
    /// # Panics
    /// If `count` is more than there are.
    pub fn consume(&mut self, count: usize) {
        if let ReceiveSide::Stream(stream) = &mut *self.side {
            // A closed channel is noticed by the next receive.
            let _ = stream.consume(count);
        }
        self.note_consumed();
    }

    fn note_consumed(&self) {
        if let ReceiveSide::Stream(stream) = &*self.side {
            self.socket.progress.consumed.store(stream.consumed(), Ordering::Relaxed);
        }
    }

    /// No bytes were found behind the first `behind`: what that means, in the order in which Linux asks. `None`: some have come
    /// meanwhile.
    fn outcome_of_nothing(&mut self, wanted_nothing: bool, behind: u64) -> Option<io::Result<usize>> {
        let socket = self.socket;
        // The state first: if it is final, so is the cursor that is loaded after it.
        let state = socket.state();
        let has_bytes = self.stream().is_ok_and(|stream| stream.available_behind(behind) > 0);
        if has_bytes {
            return wanted_nothing.then_some(Ok(0));
        }
        if state.contains(State::MOVED) {
            return Some(Err(errno(libc::ESTALE)));
        }
        if let Ok(Some(error)) = socket.take_error() {
            return Some(Err(error));
        }
        let ended = state.intersects(State::PEER_CLOSED | State::CLOSED);
        if ended || socket.progress.read_shut.load(Ordering::Acquire) {
            return Some(Ok(0));
        }
        if !state.intersects(State::CONNECTED | State::CONNECTING) {
            return Some(Err(errno(libc::ENOTCONN)));
        }
        Some(Err(errno(libc::EAGAIN)))
    }
}

/// The sending side of a stream socket; other threads that send on it wait while this lives.
pub struct Sender<'a> {
    socket: &'a Socket,
    side: MutexGuard<'a, SendSide>,
    /// How much of the space may be filled.
    allowance: usize,
}

impl Sender<'_> {
    fn stream(&mut self) -> io::Result<&mut SendStream> {
        match &mut *self.side {
            SendSide::Stream(stream) => Ok(stream),
            SendSide::Datagrams(_) => Err(errno(libc::EOPNOTSUPP)),
        }
    }

    /// As [`Socket::send`].
    pub fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_in(buffers, Manner::Plain)
    }

    fn send_in(&mut self, buffers: &[IoSlice<'_>], manner: Manner) -> io::Result<usize> {
        self.check_open()?;
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let socket = self.socket;
        let stream = self.stream()?;
        let outcome = match socket.not_sent_low_water() {
            None => stream.write_in(buffers, manner),
            Some(low_water) => socket.send_below(stream, buffers, manner, low_water),
        };
        let queued = stream.queued();
        self.note(queued, !matches!(outcome, Ok(count) if count == wanted));
        outcome
    }

    /// Queues up to `count` bytes of a lent file from `offset` on, which the stack reads by itself. `None`: this file's bytes
    /// must be copied, or so few at this place.
    pub fn send_file(&mut self, file: &LentFile, offset: u64, count: usize) -> io::Result<Option<usize>> {
        let Some(number) = file.number() else { return Ok(None) };
        self.check_open()?;
        if self.socket.not_sent_low_water().is_some() {
            // It is queued bit by bit.
            return Ok(None);
        }
        let stream = self.stream()?;
        let outcome = stream.fill(number, offset, count);
        let queued = stream.queued();
        self.note(queued, outcome.is_err());
        outcome.map(|count| (count > 0).then_some(count))
    }

    /// Makes room to produce in, at least one byte; fails with `EAGAIN` if there is none.
    pub fn prepare(&mut self, wanted: usize) -> io::Result<()> {
        self.check_open()?;
        let socket = self.socket;
        let stream = self.stream()?;
        let queued = stream.queued();
        let allowance = match socket.not_sent_low_water() {
            None => usize::MAX,
            Some(low_water) => socket.sendable(queued, wanted, low_water),
        };
        let outcome = match allowance {
            0 if wanted > 0 => Err(errno(libc::EAGAIN)),
            _ => stream.reserve(wanted.min(allowance)).map(|_| ()),
        };
        self.allowance = allowance;
        if outcome.is_err() {
            let queued = self.stream()?.queued();
            self.note(queued, true);
        }
        outcome
    }

    /// The room that [`prepare`](Self::prepare) made, in one piece, at most `wanted` bytes.
    pub fn space(&mut self, wanted: usize) -> &mut [u8] {
        let wanted = wanted.min(self.allowance);
        match &mut *self.side {
            SendSide::Stream(stream) => stream.space(wanted),
            SendSide::Datagrams(_) => &mut [],
        }
    }

    /// Sends the first `count` bytes of the space.
    ///
    /// # Panics
    /// If `count` is more than there is.
    pub fn commit(&mut self, count: usize) -> io::Result<()> {
        let stream = self.stream()?;
        stream.commit(count)?;
        let queued = stream.queued();
        self.note(queued, false);
        Ok(())
    }

    /// After a send: what is queued now; whether it found too little room.
    fn note(&mut self, queued: u64, blocked: bool) {
        let socket = self.socket;
        socket.shared.queued.store(queued, Ordering::Relaxed);
        socket.look_after_memory();
        if blocked {
            let is_full =
                socket.not_sent_low_water().is_none() || self.stream().is_ok_and(|stream| stream.room() == 0);
            socket.note_blocked(is_full);
        }
    }

    /// What a send says of a connection that cannot send, in the order in which Linux asks.
    fn check_open(&self) -> io::Result<()> {
        let socket = self.socket;
        let state = socket.state();
        let closed =
            state.intersects(State::ENDS_WRITING) || socket.progress.write_shut.load(Ordering::Acquire);
        if state.contains(State::CONNECTED) && !closed && !socket.has_new_error() {
            return Ok(());
        }
        if state.contains(State::MOVED) {
            return Err(errno(libc::ESTALE));
        }
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if state.contains(State::CONNECTED)
            && !state.intersects(State::SEND_CLOSED | State::CLOSED)
            && !closed
        {
            return Ok(());
        }
        if state.contains(State::CONNECTING) {
            return if socket.begins_with_send() { Ok(()) } else { Err(errno(libc::EAGAIN)) };
        }
        Err(errno(libc::EPIPE))
    }
}

impl Socket {
    /// The send ring goes back when it idles. To be called with the sending side locked, once it may hold memory.
    pub(super) fn look_after_memory(&self) {
        if !self.send.listed.load(Ordering::Relaxed) {
            self.send.listed.store(true, Ordering::Relaxed);
            self.endpoint.look_after(&self.send);
        }
    }

    /// A send found too little room, and the stack is asked to say when there is more. `is_full`: what is queued is what fits.
    pub(super) fn note_blocked(&self, is_full: bool) {
        let taken = self.unacknowledged();
        if is_full && taken > 0 {
            self.progress.send_capacity.store(taken, Ordering::Relaxed);
        }
        self.progress.blocked_sends.fetch_add(1, Ordering::Relaxed);
        self.set_write_mark();
    }
}
