//! The sending side of a socket: a ring in A that the application says is there.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use stack::memory::Member;

use super::lent::{Fill, Filling, Fills, LentFile};
use super::receive::NoRoom;
use super::segments::Shared;
use crate::Offence;
use crate::layout::{MAX_FILL, MIN_FILL, RingLocation, record_a, record_f};
use crate::sending::SendWord;

const UNASSIGNED: u32 = u32::MAX;

/// The send ring of a socket, with its cursors: `acked <= queued <= acked + size`.
#[derive(Debug)]
pub(super) struct SendSide {
    shared: Arc<Shared>,
    /// Offset in A and size, validated; size 0: no ring.
    offset: usize,
    size: usize,
    queued: u64,
    /// Published.
    acked: u64,
    /// Published: the ring that is of use, and how much was sent, if the application wants to know.
    told: SendWord,
    socket: u32,
    /// Bytes of lent files that are queued and not in the ring yet.
    fills: Fills,
    /// What was queued in other segments, from which this was taken over.
    kept: Option<Box<Kept>>,
}

/// The bytes of a stream that were queued and not acknowledged when its socket went from one application to another, which has no
/// ring for them. Nothing that is queued behind them is sent before they are acknowledged.
#[derive(Debug)]
struct Kept {
    /// The stream offset of the first.
    start: u64,
    bytes: Box<[u8]>,
    /// They count as receive memory: it is memory of this process.
    _member: Member,
}

impl Kept {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// As much of the range as there is.
    fn peek(&self, offset: u64, len: usize) -> &[u8] {
        let start = offset.saturating_sub(self.start).min(self.bytes.len() as u64) as usize;
        &self.bytes[start..self.bytes.len().min(start + len)]
    }
}

impl SendSide {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            offset: 0,
            size: 0,
            queued: 0,
            acked: 0,
            told: SendWord::default(),
            socket: UNASSIGNED,
            fills: None,
            kept: None,
        }
    }

    pub(super) fn assign(&mut self, socket: u32) {
        self.socket = socket;
    }

    pub(super) fn is_in(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// ATTACH_SEND. Only bounds matter: a ring that overlaps another spoils nobody's data but its owner's.
    pub(super) fn attach(&mut self, location: RingLocation) -> Result<(), Offence> {
        let layout = &self.shared.layout;
        let (offset, size) = location.within(layout.send_area, layout.a_len).ok_or(Offence::BadLocation)?;
        if self.queued - self.acked > size as u64 {
            return Err(Offence::RingTooSmall);
        }
        if self.fills.is_some() {
            // What is still to be read would not be in the copy.
            return Err(Offence::BadFile);
        }
        (self.offset, self.size) = (offset, size);
        Ok(())
    }

    /// SEND. The application cannot know of more acknowledged than was published, so more than a ring is a lie.
    pub(super) fn queue(&mut self, queued_to: u64) -> Result<(), Offence> {
        if queued_to < self.queued {
            return Err(Offence::QueuedBackwards);
        }
        if queued_to > self.queued && self.size == 0 {
            return Err(Offence::NoRing);
        }
        if queued_to - self.acked > self.size as u64 {
            return Err(Offence::QueuedTooFar);
        }
        self.queued = queued_to;
        Ok(())
    }

    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    /// The stream offset up to which bytes can be sent: they are in the ring, and all that was kept before them is acknowledged.
    pub(super) fn filled_to(&self) -> u64 {
        let filled = self.fills.as_ref().and_then(|fills| fills.front()).map_or(self.queued, |fill| fill.at);
        self.kept.as_ref().map_or(filled, |kept| filled.min(kept.end()))
    }

    /// Whether bytes of lent files are queued that are not in the ring yet.
    pub(super) fn is_filling(&self) -> bool {
        self.fills.is_some()
    }

    /// Takes over a stream from other segments, which may have queued no lent file that is not read.
    pub(super) fn take_over(&mut self, other: &Self) -> Result<u64, NoRoom> {
        let mut bytes = Vec::new();
        let (acked, queued) = (other.acked, other.queued);
        if queued > acked {
            let mut member = Member::new(&self.shared.budget);
            if !member.hold(queued - acked) {
                return Err(NoRoom);
            }
            let kept_to = other.kept.as_ref().map_or(acked, |kept| kept.end());
            for (from, to) in [(acked, kept_to), (kept_to, queued)] {
                let [first, second] = other.peek(from, (to - from) as usize);
                bytes.extend_from_slice(first);
                bytes.extend_from_slice(second);
            }
            // Without a ring nothing can be queued; what is missing would be sent as zeroes.
            bytes.resize((queued - acked) as usize, 0);
            self.kept = Some(Box::new(Kept { start: acked, bytes: bytes.into(), _member: member }));
        }
        (self.queued, self.acked) = (queued, acked);
        if self.socket != UNASSIGNED {
            self.shared.store_f(self.socket, record_f::ACKED, acked, Ordering::Release);
        }
        Ok(queued - acked)
    }

    /// FILL: as SEND, but the bytes are in a file.
    pub(super) fn fill(
        &mut self,
        queued_to: u64,
        file: Arc<LentFile>,
        offset: u64,
    ) -> Result<Filling, Offence> {
        let at = self.queued;
        self.queue(queued_to)?;
        let len = queued_to - at;
        if !(MIN_FILL as u64..=MAX_FILL as u64).contains(&len) || offset > i64::MAX as u64 - len {
            return Err(Offence::BadFile);
        }
        let fills = self.fills.get_or_insert_default();
        fills.push_back(Fill { at, to: queued_to, file, offset });
        if fills.len() > 1 {
            return Ok(Filling::Behind);
        }
        Ok(self.go_on())
    }

    /// What had to be waited for is here.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Filling {
        let Some(mut fill) = self.fills.as_mut().and_then(|fills| fills.pop_front()) else {
            return Filling::Done;
        };
        if bytes.len() != fill.len() {
            return Filling::Failed;
        }
        if let Some(a) = self.shared.writable_a() {
            let [first, second] = ring::spans(fill.at, bytes.len(), self.size);
            a.copy_in(self.offset + first.start, &bytes[..first.len]);
            a.copy_in(self.offset + second.start, &bytes[first.len..]);
        }
        fill.advance(bytes.len());
        self.go_on()
    }

    /// Reads what is in memory.
    fn go_on(&mut self) -> Filling {
        let Some(a) = self.shared.writable_a() else { return Filling::Failed };
        let Some(fills) = &mut self.fills else { return Filling::Done };
        let mut outcome = Filling::Done;
        while let Some(fill) = fills.front_mut() {
            let places =
                ring::spans(fill.at, fill.len(), self.size).map(|span| (self.offset + span.start, span.len));
            match a.read_file(fill.file.descriptor(), fill.offset, places, fill.file.is_in_memory()) {
                Ok(0) => {
                    outcome = Filling::Failed;
                    break;
                }
                Ok(count) => fill.advance(count),
                // Not in memory, or something else that whoever waits for it will find out.
                Err(_) => {
                    outcome = Filling::Wait(fill.reading());
                    break;
                }
            }
            if fill.at == fill.to {
                fills.pop_front();
            }
        }
        if fills.is_empty() {
            self.fills = None;
        }
        if self.socket != UNASSIGNED {
            self.shared.store_f(self.socket, record_f::FILLED, self.filled_to(), Ordering::Release);
        }
        outcome
    }

    /// Tells the application that the stream is acknowledged up to `to`. True: what is queued behind what was kept can be sent from
    /// now on.
    pub(super) fn publish(&mut self, to: u64) -> bool {
        let to = to.min(self.queued);
        if to <= self.acked {
            return false;
        }
        self.acked = to;
        if self.socket != UNASSIGNED {
            // Release: what was read from the ring is before this; the application may write there again.
            self.shared.store_f(self.socket, record_f::ACKED, to, Ordering::Release);
        }
        let goes_on = self.kept.as_ref().is_some_and(|kept| to >= kept.end());
        if goes_on {
            self.kept = None;
        }
        goes_on
    }

    /// Tells the application what ring is of use: one that holds a window in flight and one being written.
    pub(super) fn publish_target(&mut self, congestion_window: u32) {
        let log2 = (u64::from(congestion_window.max(1)) * 2).next_power_of_two().ilog2() as u8;
        self.tell(self.told.with_target(log2));
    }

    /// Tells the application that of all it is known to have queued, what is before `sent_to` has been sent.
    pub(super) fn publish_sent(&mut self, sent_to: u64) {
        self.tell(self.told.with_sent(self.queued, sent_to));
    }

    fn tell(&mut self, word: SendWord) {
        if word != self.told && self.socket != UNASSIGNED {
            self.told = word;
            self.shared.store_f(self.socket, record_f::SENDING, word.0, Ordering::Release);
        }
    }

    /// The stream's bytes `[offset, offset + len)`; empty slices without a ring. The contents may change under the
    /// reader: see [`ReadMapping::bytes`](crate::mapping::ReadMapping::bytes).
    pub(super) fn peek(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        if let Some(kept) = self.kept.as_ref().filter(|kept| offset < kept.end()) {
            return [kept.peek(offset, len), &[]];
        }
        if self.size == 0 {
            return [&[], &[]];
        }
        ring::spans(offset, len, self.size)
            .map(|span| self.shared.a.bytes(self.offset + span.start, span.len))
    }

    /// One word of the stream, copied; `offset` is a multiple of 8.
    pub(super) fn word(&self, offset: u64) -> u64 {
        self.shared.a.load64(self.place(offset), Ordering::Relaxed)
    }

    /// Words of the stream that do not wrap, copied; `offset` is a multiple of 8.
    pub(super) fn words<const N: usize>(&self, offset: u64) -> [u64; N] {
        self.shared.a.load_words(self.place(offset))
    }

    /// Whether the application waits for room: its mark for that lies ahead, and much of its ring is full.
    pub(super) fn is_blocked(&self) -> bool {
        if self.socket == UNASSIGNED || (self.queued - self.acked) as usize * 2 < self.size.max(1) {
            return false;
        }
        // An idle mark lies at the end of all streams.
        let mark = self.shared.load_a(self.socket, record_a::WRITE_WAKE, Ordering::Relaxed);
        self.acked < mark && mark <= self.queued
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Gives a reason to cut the application off.
    pub(super) fn note(&self, offence: Offence) {
        self.shared.note(offence);
    }

    fn place(&self, offset: u64) -> usize {
        self.offset + (offset as usize & (self.size - 1))
    }
}
