//! Buffers for simulated sockets: the stack's own on the heap, or ones that hold no bytes and check every one.

use core::ops::Range;
use std::cell::Cell;
use std::rc::Rc;

use stack::{BufferFamily, HeapBuffers, HeapDatagrams, HeapStream};
use tcp::{NoMemory, ReceiveBuffer, SendBuffer};

use crate::pattern::{self, Phase};

/// A family of buffers that simulated applications can use.
pub trait SimBuffers: BufferFamily<Datagrams = HeapDatagrams, Stream: Clone> {
    /// Who owns the buffers of a world: whatever the family needs to keep its books.
    fn owner() -> Self::Owner;

    /// How many streams of `owner` are alive, if the family keeps count.
    fn alive(owner: &Self::Owner) -> Option<usize>;

    /// Tells a stream what it sends and what it is to receive.
    fn identify(stream: &mut Self::Stream, send: Phase, receive: Phase);

    /// Queues the next `len` bytes; returns how far the stream is queued now.
    fn write(stream: &mut Self::Stream, send: Phase, len: usize) -> u64;

    /// Frees what is acknowledged.
    fn release(stream: &mut Self::Stream, acked_to: u64);

    /// Reads the bytes `[from, to)`, all received.
    ///
    /// # Errors
    /// What is wrong with them.
    fn read(stream: &mut Self::Stream, receive: Phase, range: Range<u64>) -> Result<(), String>;
}

impl SimBuffers for HeapBuffers {
    fn owner() {}

    fn alive((): &()) -> Option<usize> {
        None
    }

    fn identify(_: &mut HeapStream, _: Phase, _: Phase) {}

    fn write(stream: &mut HeapStream, send: Phase, len: usize) -> u64 {
        let mut left = len;
        while left > 0 {
            let piece = pattern::slice(send, stream.queued_to(), left);
            stream.write(piece);
            left -= piece.len();
        }
        stream.queued_to()
    }

    fn release(stream: &mut HeapStream, acked_to: u64) {
        stream.release(acked_to);
    }

    fn read(stream: &mut HeapStream, receive: Phase, range: Range<u64>) -> Result<(), String> {
        let mut offset = range.start;
        for slice in stream.readable(range.end) {
            if !pattern::matches(receive, offset, slice) {
                return Err(format!(
                    "wrong bytes between offsets {offset} and {}",
                    offset + slice.len() as u64
                ));
            }
            offset += slice.len() as u64;
        }
        if offset != range.end {
            return Err(format!("received to {} but only {offset} is readable", range.end));
        }
        stream.consume(range.end);
        Ok(())
    }
}

/// Buffers without bytes: what is sent is the pattern, and what is received is compared with it at once.
#[derive(Clone, Copy, Debug)]
pub struct PatternBuffers;

/// Counts the streams that are alive.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Rc<Cell<usize>>);

/// Both directions of a connection without its bytes.
#[derive(Debug)]
pub struct PatternStream {
    ledger: Ledger,
    phases: Option<(Phase, Phase)>,
    queued: u64,
    released: u64,
    /// Everything before it has been placed and was right.
    placed: u64,
    /// What has been placed behind a gap: ascending, apart.
    islands: Vec<Range<u64>>,
    /// What came before the stream knew what to expect.
    early: Vec<(u64, Box<[u8]>)>,
    error: Option<String>,
}

impl PatternStream {
    /// A stream that `ledger` counts.
    pub fn new(ledger: &Ledger) -> Self {
        ledger.0.set(ledger.0.get() + 1);
        Self {
            ledger: ledger.clone(),
            phases: None,
            queued: 0,
            released: 0,
            placed: 0,
            islands: Vec::new(),
            early: Vec::new(),
            error: None,
        }
    }

    fn check(&mut self, offset: u64, bytes: &[u8]) {
        match self.phases {
            None => self.early.push((offset, bytes.into())),
            Some((_, receive)) if !pattern::matches(receive, offset, bytes) => {
                let end = offset + bytes.len() as u64;
                self.error
                    .get_or_insert_with(|| format!("wrong bytes placed between offsets {offset} and {end}"));
            }
            Some(_) => {}
        }
    }

    fn note(&mut self, offset: u64, end: u64) {
        if offset > self.placed {
            self.islands.push(offset..end);
            self.islands.sort_by_key(|island| island.start);
            self.islands.dedup_by(|later, earlier| {
                let joined = later.start <= earlier.end;
                if joined {
                    earlier.end = earlier.end.max(later.end);
                }
                joined
            });
            return;
        }
        self.placed = self.placed.max(end);
        let reached = self.islands.iter().take_while(|island| island.start <= self.placed).count();
        if reached > 0 {
            self.placed = self.islands.drain(..reached).map(|island| island.end).fold(self.placed, u64::max);
            self.note(self.placed, self.placed);
        }
    }
}

impl Clone for PatternStream {
    fn clone(&self) -> Self {
        let mut copy = Self::new(&self.ledger);
        copy.phases = self.phases;
        copy.queued = self.queued;
        copy.released = self.released;
        copy.placed = self.placed;
        copy.islands.clone_from(&self.islands);
        copy.early.clone_from(&self.early);
        copy.error.clone_from(&self.error);
        copy
    }
}

impl Drop for PatternStream {
    fn drop(&mut self) {
        self.ledger.0.set(self.ledger.0.get() - 1);
    }
}

impl SendBuffer for PatternStream {
    fn peek(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        let Some((send, _)) = self.phases.filter(|_| len > 0) else { return [&[], &[]] };
        assert!(
            offset >= self.released && offset + len as u64 <= self.queued,
            "asked for bytes [{offset}, +{len}) while [{}, {}) is held",
            self.released,
            self.queued
        );
        [pattern::slice(send, offset, len), &[]]
    }
}

impl ReceiveBuffer for PatternStream {
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        self.check(offset, bytes);
        self.note(offset, offset + bytes.len() as u64);
        Ok(())
    }
}

impl BufferFamily for PatternBuffers {
    type Stream = PatternStream;
    type Datagrams = HeapDatagrams;
    type Owner = Ledger;

    fn stream(owner: &Ledger) -> PatternStream {
        PatternStream::new(owner)
    }
}

impl SimBuffers for PatternBuffers {
    fn owner() -> Ledger {
        Ledger::default()
    }

    fn alive(owner: &Ledger) -> Option<usize> {
        Some(owner.0.get())
    }

    fn identify(stream: &mut PatternStream, send: Phase, receive: Phase) {
        stream.phases = Some((send, receive));
        for (offset, bytes) in core::mem::take(&mut stream.early) {
            stream.check(offset, &bytes);
        }
    }

    fn write(stream: &mut PatternStream, _: Phase, len: usize) -> u64 {
        stream.queued += len as u64;
        stream.queued
    }

    fn release(stream: &mut PatternStream, acked_to: u64) {
        stream.released = stream.released.max(acked_to);
    }

    fn read(stream: &mut PatternStream, _: Phase, range: Range<u64>) -> Result<(), String> {
        if let Some(error) = stream.error.take() {
            return Err(error);
        }
        if range.end > stream.placed {
            return Err(format!("received to {} but only {} was placed", range.end, stream.placed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_streams_keep_track_of_what_was_placed() {
        let owner = PatternBuffers::owner();
        let mut stream = PatternBuffers::stream(&owner);
        let (send, receive) = (Phase::of_stream(1), Phase::of_stream(2));
        let bytes =
            |range: Range<u64>| pattern::slice(receive, range.start, (range.end - range.start) as usize);
        stream.place(20, bytes(20..30)).unwrap();
        PatternBuffers::identify(&mut stream, send, receive);
        stream.place(40, bytes(40..50)).unwrap();
        stream.place(10, bytes(10..25)).unwrap();
        assert_eq!(stream.islands, [10..30, 40..50]);
        stream.place(0, bytes(0..12)).unwrap();
        assert_eq!((stream.placed, stream.islands.len(), stream.islands[0].start), (30, 1, 40));
        assert!(PatternBuffers::read(&mut stream, receive, 0..31).is_err());
        stream.place(30, bytes(30..40)).unwrap();
        assert_eq!((stream.placed, stream.islands.len()), (50, 0));
        assert_eq!(PatternBuffers::read(&mut stream, receive, 0..50), Ok(()));
        stream.place(50, bytes(51..60)).unwrap();
        assert!(PatternBuffers::read(&mut stream, receive, 50..59).is_err());
        assert_eq!(PatternBuffers::alive(&owner), Some(1));
        drop(stream);
        assert_eq!(PatternBuffers::alive(&owner), Some(0));
    }
}
