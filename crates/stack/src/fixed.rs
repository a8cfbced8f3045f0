//! Buffers of a fixed size, allocated once: for few connections that carry much.
//!
//! A ring begins anew at its front whenever it is empty. So a stream whose reader keeps up goes through as little memory as it
//! has in flight, which stays in the processor's cache, however large the ring is.

use tcp::{NoMemory, ReceiveBuffer, SendBuffer};
use wire::checksum::Sum;

use crate::buffers::BufferFamily;
use crate::heap::HeapDatagrams;

/// Buffers of a fixed size. A listener's owner is the size of those of the connections that it accepts, in bytes each way;
/// they should hold as much as the largest window that is offered.
#[derive(Clone, Copy, Debug)]
pub struct FixedBuffers;

/// Both directions of a TCP connection, in rings that its owner writes and reads in place.
#[derive(Clone, Debug)]
pub struct FixedStream {
    send: Ring,
    receive: Ring,
}

/// The bytes `start..end` of a stream, of which some before `end` may still be missing.
#[derive(Clone, Debug)]
struct Ring {
    /// As many as a power of two.
    memory: Box<[u8]>,
    start: u64,
    end: u64,
    /// This byte stands, or stood, at the front; byte `n` at `n - front` modulo the size.
    front: u64,
}

impl BufferFamily for FixedBuffers {
    type Stream = FixedStream;
    type Datagrams = HeapDatagrams;
    type Owner = usize;

    fn stream(size: &usize) -> FixedStream {
        FixedStream::new(*size)
    }
}

impl FixedStream {
    /// Rings of `size` bytes, or the next power of two.
    pub fn new(size: usize) -> Self {
        Self { send: Ring::new(size), receive: Ring::new(size) }
    }

    /// Where the next bytes to send are to be written, all that there is room for; then comes [`queue`](Self::queue).
    pub fn writable(&mut self) -> [&mut [u8]; 2] {
        let room = self.send.memory.len() - self.unacknowledged();
        self.send.place(self.send.end, room)
    }

    /// The first `len` bytes of what is [`writable`](Self::writable) have been written, no more than there is room for. Returns
    /// the stream offset up to which bytes are queued now, for `Stack::tcp_send`.
    pub fn queue(&mut self, len: usize) -> u64 {
        let room = self.send.memory.len() - self.unacknowledged();
        self.send.end += len.min(room) as u64;
        self.send.end
    }

    /// Bytes queued and not yet released.
    pub fn unacknowledged(&self) -> usize {
        (self.send.end - self.send.start) as usize
    }

    /// Frees what has been acknowledged: bytes before stream offset `acked_to`.
    pub fn release(&mut self, acked_to: u64) {
        self.send.release(acked_to);
    }

    /// The received bytes from where reading stands up to `received_to`, as the connection reports it.
    pub fn readable(&self, received_to: u64) -> [&[u8]; 2] {
        self.receive.slices(self.receive.start, received_to.saturating_sub(self.receive.start) as usize)
    }

    /// Marks received bytes before stream offset `consumed_to` as read.
    pub fn consume(&mut self, consumed_to: u64) {
        self.receive.release(consumed_to);
    }
}

impl SendBuffer for FixedStream {
    fn peek(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        self.send.slices(offset, len)
    }
}

impl ReceiveBuffer for FixedStream {
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        let ring = &mut self.receive;
        // What was read already may come again.
        let seen = ring.start.saturating_sub(offset).min(bytes.len() as u64);
        let (offset, bytes) = (offset + seen, &bytes[seen as usize..]);
        if bytes.is_empty() {
            return Ok(());
        }
        if !ring.has_room(offset, bytes.len()) {
            return Err(NoMemory);
        }
        let [first, second] = ring.place(offset, bytes.len());
        let (head, tail) = bytes.split_at(first.len());
        first.copy_from_slice(head);
        second.copy_from_slice(tail);
        ring.end = ring.end.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn place_verified(&mut self, offset: u64, bytes: [&[u8]; 2], sum: Sum) -> Result<bool, NoMemory> {
        let ring = &mut self.receive;
        let [head, tail] = bytes;
        let len = head.len() + tail.len();
        if offset < ring.start || !ring.has_room(offset, len) {
            if sum.add(head).add(tail).finish() != 0 {
                return Ok(false);
            }
            self.place(offset, head)?;
            return self.place(offset + head.len() as u64, tail).map(|()| true);
        }
        let [first, second] = ring.place(offset, len);
        if sum.copy_across([first, second], bytes).finish() != 0 {
            first.fill(0);
            second.fill(0);
            return Ok(false);
        }
        ring.end = ring.end.max(offset + len as u64);
        Ok(true)
    }

    fn consumed(&mut self) -> Option<u64> {
        Some(self.receive.start)
    }
}

impl Ring {
    fn new(size: usize) -> Self {
        Self { memory: vec![0; size.next_power_of_two()].into(), start: 0, end: 0, front: 0 }
    }

    /// Whether these bytes, none of which was released, are among those that the ring can hold.
    fn has_room(&self, offset: u64, len: usize) -> bool {
        offset + len as u64 <= self.start + self.memory.len() as u64
    }

    /// Where `len` bytes from `offset` on stand, for which there is room.
    #[inline]
    fn place(&mut self, offset: u64, len: usize) -> [&mut [u8]; 2] {
        let at = (offset - self.front) as usize & (self.memory.len() - 1);
        let first = len.min(self.memory.len() - at);
        let (before, from) = self.memory.split_at_mut(at);
        [&mut from[..first], &mut before[..len - first]]
    }

    #[inline]
    fn slices(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        let from = offset.clamp(self.start, self.end);
        let len = len.min((self.end - from) as usize);
        let at = (from - self.front) as usize & (self.memory.len() - 1);
        let first = len.min(self.memory.len() - at);
        [&self.memory[at..at + first], &self.memory[..len - first]]
    }

    fn release(&mut self, to: u64) {
        self.start = self.start.max(to.min(self.end));
        if self.start == self.end {
            self.front = self.start;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;
    use base::{Rng, SeededRng};

    const SIZE: usize = 4096;

    fn byte(offset: u64) -> u8 {
        (offset.wrapping_mul(31) >> 3) as u8
    }

    fn bytes(from: u64, len: usize) -> Vec<u8> {
        (from..from + len as u64).map(byte).collect()
    }

    #[test]
    fn bytes_that_are_written_are_peeked_wherever_the_ring_stands() {
        let mut rng = SeededRng::new(3);
        let mut stream = FixedStream::new(SIZE);
        let (mut queued, mut acked) = (0u64, 0u64);
        for _ in 0..4000 {
            let room = SIZE - (queued - acked) as usize;
            let len = rng.below(room as u64 + 1) as usize;
            let [first, second] = stream.writable();
            assert_eq!(first.len() + second.len(), room);
            let places = first.iter_mut().chain(second).take(len);
            places.zip(bytes(queued, len)).for_each(|(to, byte)| *to = byte);
            queued = stream.queue(len);
            // All of it in one of two rounds: then the ring begins anew.
            acked = if rng.below(2) == 0 { queued } else { acked + rng.below(queued - acked + 1) };
            stream.release(acked);
            assert_eq!(stream.unacknowledged() as u64, queued - acked);
            assert_eq!(stream.peek(acked, SIZE).concat(), bytes(acked, (queued - acked) as usize));
        }
    }

    #[test]
    fn more_than_there_is_room_for_is_not_queued() {
        let mut stream = FixedStream::new(SIZE);
        assert_eq!(stream.queue(SIZE + 1), SIZE as u64);
        stream.release(10);
        assert_eq!(stream.queue(SIZE), SIZE as u64 + 10);
    }

    #[test]
    fn bytes_fall_into_place_in_any_order_and_again() {
        let mut rng = SeededRng::new(5);
        let mut stream = FixedStream::new(SIZE);
        let mut read = 0u64;
        for _ in 0..300 {
            let end = read + rng.below(SIZE as u64 + 1);
            let mut starts: Vec<u64> = (read..end).step_by(300).collect();
            starts.sort_by_key(|start| start.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            for start in starts.into_iter().flat_map(|start| [start.saturating_sub(100), start]) {
                let part = bytes(start, 300.min((end - start) as usize));
                let (head, tail) = part.split_at(rng.below(part.len() as u64 + 1) as usize);
                // The complement of the whole's sum, as a checksum field would be.
                let sum = Sum::ZERO.add_u16(Sum::of(&part).finish());
                assert_eq!(stream.place_verified(start, [head, tail], sum), Ok(true));
                stream.place(start, &part).unwrap();
            }
            assert_eq!(stream.readable(end).concat(), bytes(read, (end - read) as usize));
            read = if rng.below(2) == 0 { end } else { read + rng.below(end - read + 1) };
            stream.consume(read);
            assert_eq!(stream.consumed(), Some(read));
            if read < end {
                // What was placed beyond stands where it stood.
                assert_eq!(stream.readable(end).concat(), bytes(read, (end - read) as usize));
            }
        }
    }

    #[test]
    fn what_does_not_fit_or_is_damaged_leaves_nothing() {
        let mut stream = FixedStream::new(SIZE);
        assert_eq!(stream.place(1, &[1; SIZE]), Err(NoMemory));
        let wrong = Sum::ZERO.add_u16(1);
        assert_eq!(stream.place_verified(0, [&[1; 100], &[2; 100]], wrong), Ok(false));
        assert_eq!(stream.place_verified(SIZE as u64, [&[0; 100], &[]], wrong), Ok(false));
        let right = Sum::ZERO.add_u16(0xffff);
        assert_eq!(stream.place_verified(SIZE as u64, [&[0; 100], &[]], right), Err(NoMemory));
        stream.place(200, &[3]).unwrap();
        assert_eq!(stream.readable(200).concat(), [0; 200]);
    }
}
