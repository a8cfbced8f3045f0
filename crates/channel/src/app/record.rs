//! A socket's record, as the application sees it.

use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use std::io;

use ring::{Atomics, Native};

use super::channel::Channel;
use crate::State;
use crate::fep::ALL_WAITERS;
use crate::layout::{header_f, record_a, record_f};
use crate::record::address_from_words;
use crate::sending::SendWord;
use crate::urgent::UrgentWord;

/// What the FEP published of a socket, and what this side tells of it.
///
/// Load [`state`](Self::state) before the cursors: if it says that the peer has closed, the cursors loaded then are final.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    channel: &'a Channel,
    a: usize,
    f: usize,
}

impl<'a> Record<'a> {
    pub(super) fn new(channel: &'a Channel, socket: u32) -> Self {
        Self { channel, a: channel.layout.record_a(socket), f: channel.layout.record_f(socket) }
    }

    /// What the socket is doing.
    pub fn state(&self) -> State {
        State::from_bits_truncate(self.load(record_f::STATE) as u32)
    }

    /// Stream offset up to which sent data is acknowledged (datagrams: sent).
    pub fn acked(&self) -> u64 {
        self.load(record_f::ACKED)
    }

    /// Stream offset up to which received data can be read.
    pub fn received(&self) -> u64 {
        self.load(record_f::RECEIVED)
    }

    /// Where the peer's urgent byte is. To be loaded after `received`.
    pub(super) fn urgent(&self) -> UrgentWord {
        UrgentWord(self.load(record_f::URGENT))
    }

    /// Whether the peer ever sent urgent data.
    pub fn was_urgent(&self) -> bool {
        self.urgent() != UrgentWord::default()
    }

    /// The stream offset of the peer's urgent byte, if a reader that has read up to `consumed` has not passed it, and the byte if
    /// it has come.
    pub fn urgent_mark(&self, consumed: u64) -> Option<(u64, Option<u8>)> {
        let word = self.urgent();
        Some((word.offset(consumed)?, word.byte()))
    }

    /// The logarithm of the size of a send ring that is of use; 0: not known.
    pub(super) fn send_target(&self) -> u32 {
        SendWord(self.load(record_f::SENDING)).target()
    }

    /// Of a stream that is queued up to `queued`: bytes that have not been sent, as far as the FEP has told, and whether it has
    /// heard of all of them. To be asked of sockets only whose FEP was told that this matters (`SocketOption::TellSent`).
    pub fn unsent(&self, queued: u64) -> (u64, bool) {
        SendWord(self.load(record_f::SENDING)).unsent(queued)
    }

    /// Stream offset up to which the FEP has read lent files into the send ring.
    pub(super) fn filled(&self) -> u64 {
        self.load(record_f::FILLED)
    }

    /// How many entries the queue of errors was given; wraps.
    pub fn queued_errors(&self) -> u32 {
        (self.load(record_f::STATE) >> 32) as u32
    }

    /// How many errors there were, and the errno of the last.
    pub fn error(&self) -> (u32, i32) {
        let word = self.load(record_f::ERROR);
        ((word >> 32) as u32, word as u32 as i32)
    }

    /// What it is called wherever it goes; `None`: it is none that can be shared with a forked process.
    pub fn identity(&self) -> Option<u64> {
        Some(self.load(record_f::IDENTITY)).filter(|&identity| identity != 0)
    }

    /// The local address.
    pub fn local(&self) -> Option<SocketAddr> {
        self.address(record_f::LOCAL)
    }

    /// The peer's address.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.address(record_f::REMOTE)
    }

    /// The FEP's answer to the command with this sequence, once it is there.
    pub(super) fn answer(&self, sequence: u32) -> Option<io::Result<()>> {
        let word = self.load(record_f::RESULT);
        ((word >> 32) as u32 == sequence).then_some(match word as u32 {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno as i32)),
        })
    }

    /// Names the waiter to wake when the socket is readable. With another already there, all sleepers are woken from now on.
    pub fn set_reader(&self, slot: u32) {
        self.name(record_a::READER, slot);
    }

    /// Takes the name back, unless others were named too.
    pub fn clear_reader(&self, slot: u32) {
        self.unname(record_a::READER, slot);
    }

    /// Names the waiter to wake when the socket is writable, as [`set_reader`](Self::set_reader).
    pub fn set_writer(&self, slot: u32) {
        self.name(record_a::WRITER, slot);
    }

    /// Takes the name back, unless others were named too.
    pub fn clear_writer(&self, slot: u32) {
        self.unname(record_a::WRITER, slot);
    }

    /// The reader is woken when `received` is at least this; at the end of the stream or an error in any case.
    pub fn set_read_wake(&self, offset: u64) {
        self.store(record_a::READ_LEAST, 0);
        self.store(record_a::READ_WAKE, offset);
    }

    /// The reader is woken when `received` is at least `offset`, and when it is at least `least` and the FEP has seen
    /// nothing more for a moment: a bulk reader is not woken for every batch, and yet not later than the peer pauses.
    pub fn set_read_wake_or_pause(&self, least: u64, offset: u64) {
        self.store(record_a::READ_WAKE, offset);
        self.store(record_a::READ_LEAST, least);
    }

    /// The writer is woken when `acked` is at least this; at the end of sending or an error in any case.
    pub fn set_write_wake(&self, offset: u64) {
        self.store(record_a::WRITE_WAKE, offset);
    }

    /// The writer is not woken either before the stream is sent up to `offset`, which is not beyond what is queued; 0: that does
    /// not matter.
    pub fn set_sent_wake(&self, offset: u64) {
        self.store(record_a::SENT_WAKE, offset);
    }

    /// Asks for READY events. Look at the socket after switching them on: only what changes from then on makes events.
    pub fn set_watched(&self, watched: bool) {
        let word = self.channel.a.word32(self.a + record_a::WATCHED);
        word.store(watched.into(), Ordering::Relaxed);
        Native::full_fence();
    }

    /// Says whether the program has accepted this connection: if it ends before, the connection is reset.
    pub fn set_taken(&self, taken: bool) {
        // Whom it has forked before does not have it.
        let forks = || self.channel.f.load32(header_f::FORKS, Ordering::Relaxed).saturating_add(1);
        let word = if taken { forks() } else { 0 };
        self.channel.a.word32(self.a + record_a::TAKEN).store(word, Ordering::Relaxed);
    }

    /// Says how many of this listener's connections the program has accepted; wraps.
    pub fn set_accepted(&self, count: u32) {
        self.channel.a.word32(self.a + record_a::TAKEN).store(count, Ordering::Relaxed);
    }

    pub(super) fn set_caller(&self, slot: Option<u32>) {
        let name = slot.map_or(0, |slot| slot + 1);
        self.channel.a.word32(self.a + record_a::CALLER).store(name, Ordering::Relaxed);
    }

    /// Where the receive ring lies in F, if there is one: offset and size. To be loaded after `received`.
    pub(super) fn receive_ring(&self) -> Option<(usize, usize)> {
        let location = crate::layout::RingLocation(self.load(record_f::RECEIVE_RING));
        location.within(self.channel.layout.receive_area, self.channel.layout.f_len)
    }

    /// Moves the read cursor from `before` to `after`; whether the FEP wants to hear of it.
    pub(super) fn set_consumed(&self, before: u64, after: u64) -> bool {
        // Release: the reads of the ring are before this; the FEP may write there again.
        self.channel.a.word64(self.a + record_a::CONSUMED).store(after, Ordering::Release);
        Native::full_fence();
        let wanted = self.channel.f.load64(self.f + record_f::CONSUME_NOTIFY, Ordering::Relaxed);
        before < wanted && wanted <= after
    }

    /// Brings this side's half to its beginnings.
    pub(super) fn reset(&self) {
        for field in (0..record_a::SIZE).step_by(8) {
            self.channel.a.word64(self.a + field).store(0, Ordering::Relaxed);
        }
    }

    fn name(&self, field: usize, slot: u32) {
        let word = self.channel.a.word32(self.a + field);
        let name = slot + 1;
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if let Err(other) = word.compare_exchange(0, name, set, get)
            && other != name
        {
            word.store(ALL_WAITERS, Ordering::Relaxed);
        }
    }

    fn unname(&self, field: usize, slot: u32) {
        let word = self.channel.a.word32(self.a + field);
        // If it names others by now, it stays.
        let _ = word.compare_exchange(slot + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn address(&self, field: usize) -> Option<SocketAddr> {
        address_from_words(self.channel.f.load_words(self.f + field))
    }

    fn load(&self, field: usize) -> u64 {
        // Acquire: pairs with the FEP's Release.
        self.channel.f.load64(self.f + field, Ordering::Acquire)
    }

    fn store(&self, field: usize, value: u64) {
        self.channel.a.word64(self.a + field).store(value, Ordering::Relaxed);
    }
}
