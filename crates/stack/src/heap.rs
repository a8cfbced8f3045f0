//! Buffers in the memory of the process: for tests, simulated worlds and simple owners.
//!
//! A ring is allocated with its first byte, doubles as it fills, and is freed when its last byte has gone.

use std::collections::VecDeque;

use base::Instant;
use tcp::{NoMemory, ReceiveBuffer, SendBuffer};
use wire::checksum::Sum;

use crate::buffers::{BufferFamily, DatagramBuffer, DatagramMeta, Full};

/// A ring's first size.
const FIRST_SIZE: usize = 2048;
/// Most bytes that a stream holds in one direction unless told otherwise.
const DEFAULT_LIMIT: usize = 16 << 20;
/// Most bytes of datagrams that wait in one direction.
const DATAGRAM_LIMIT: usize = 256 << 10;

/// Buffers on the heap.
#[derive(Clone, Copy, Debug)]
pub struct HeapBuffers;

/// Both directions of a TCP connection on the heap.
#[derive(Clone, Debug, Default)]
pub struct HeapStream {
    send: Ring,
    receive: Ring,
}

/// Both directions of a UDP socket on the heap.
#[derive(Clone, Debug, Default)]
pub struct HeapDatagrams {
    received: VecDeque<(DatagramMeta, Vec<u8>)>,
    received_bytes: usize,
    to_send: VecDeque<(DatagramMeta, Vec<u8>)>,
    to_send_bytes: usize,
}

/// The bytes `start..end` of a stream; byte `n` stands at `n` modulo the size.
#[derive(Clone, Debug, Default)]
struct Ring {
    memory: Box<[u8]>,
    start: u64,
    end: u64,
}

impl BufferFamily for HeapBuffers {
    type Stream = HeapStream;
    type Datagrams = HeapDatagrams;
    type Owner = ();

    fn stream(_: &()) -> HeapStream {
        HeapStream::default()
    }
}

impl HeapStream {
    /// Queues bytes to send; returns the stream offset up to which bytes are queued now, for `Stack::tcp_send`.
    pub fn write(&mut self, bytes: &[u8]) -> u64 {
        let end = self.send.end;
        self.send.place(end, bytes);
        self.send.end
    }

    /// How far the send stream is queued.
    pub fn queued_to(&self) -> u64 {
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

    /// Takes all bytes received up to `received_to`; returns where reading stands now, for `Stack::tcp_consumed`.
    pub fn read(&mut self, received_to: u64, into: &mut Vec<u8>) -> u64 {
        for slice in self.readable(received_to) {
            into.extend_from_slice(slice);
        }
        self.consume(received_to);
        self.receive.start
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.send.memory.len() + self.receive.memory.len()
    }
}

impl SendBuffer for HeapStream {
    fn peek(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        self.send.slices(offset, len)
    }
}

impl ReceiveBuffer for HeapStream {
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        if offset + bytes.len() as u64 > self.receive.start + DEFAULT_LIMIT as u64 {
            return Err(NoMemory);
        }
        // What was read already may come again.
        let seen = self.receive.start.saturating_sub(offset).min(bytes.len() as u64);
        self.receive.place(offset + seen, &bytes[seen as usize..]);
        Ok(())
    }

    fn consumed(&mut self) -> Option<u64> {
        Some(self.receive.start)
    }

    fn place_verified(&mut self, offset: u64, bytes: [&[u8]; 2], sum: Sum) -> Result<bool, NoMemory> {
        let ring = &mut self.receive;
        let [head, tail] = bytes;
        let len = head.len() + tail.len();
        if offset < ring.start || offset + len as u64 > ring.start + DEFAULT_LIMIT as u64 {
            if sum.add(head).add(tail).finish() != 0 {
                return Ok(false);
            }
            self.place(offset, head)?;
            return self.place(offset + head.len() as u64, tail).map(|()| true);
        }
        let end = ring.end;
        let [first, second] = ring.room(offset, len);
        let good = sum.copy_across([first, second], bytes).finish() == 0;
        if !good {
            first.fill(0);
            second.fill(0);
            ring.end = end;
        }
        Ok(good)
    }
}

impl Ring {
    fn place(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let [first, second] = self.room(offset, bytes.len());
        let (head, tail) = bytes.split_at(first.len());
        first.copy_from_slice(head);
        second.copy_from_slice(tail);
    }

    /// Where the bytes `offset..offset + len` go, at least one; they count as held from now on.
    fn room(&mut self, offset: u64, len: usize) -> [&mut [u8]; 2] {
        let end = self.end.max(offset + len as u64);
        self.reserve((end - self.start) as usize);
        self.end = end;
        let at = offset as usize & (self.memory.len() - 1);
        let first = len.min(self.memory.len() - at);
        let (before, from) = self.memory.split_at_mut(at);
        [&mut from[..first], &mut before[..len - first]]
    }

    fn reserve(&mut self, wanted: usize) {
        if wanted <= self.memory.len() {
            return;
        }
        let mut larger = Self {
            memory: vec![0; wanted.next_power_of_two().max(FIRST_SIZE)].into(),
            start: self.start,
            end: self.start,
        };
        if !self.memory.is_empty() {
            let held = self.slices(self.start, (self.end - self.start) as usize);
            larger.place(self.start, held[0]);
            larger.place(self.start + held[0].len() as u64, held[1]);
        }
        larger.end = self.end;
        *self = larger;
    }

    fn slices(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        let from = offset.clamp(self.start, self.end);
        let len = len.min((self.end - from) as usize);
        if len == 0 {
            return [&[], &[]];
        }
        let at = from as usize & (self.memory.len() - 1);
        let first = len.min(self.memory.len() - at);
        [&self.memory[at..at + first], &self.memory[..len - first]]
    }

    fn release(&mut self, to: u64) {
        self.start = self.start.max(to.min(self.end));
        if self.start == self.end {
            self.memory = Box::default();
        }
    }
}

impl HeapDatagrams {
    /// Queues a datagram to send. `false`: the queue is full.
    pub fn send(&mut self, meta: DatagramMeta, payload: &[u8]) -> bool {
        if self.to_send_bytes + payload.len() > DATAGRAM_LIMIT {
            return false;
        }
        self.to_send_bytes += payload.len();
        self.to_send.push_back((meta, payload.to_vec()));
        true
    }

    /// The next received datagram.
    pub fn receive(&mut self) -> Option<(DatagramMeta, Vec<u8>)> {
        let (meta, payload) = self.received.pop_front()?;
        self.received_bytes -= payload.len();
        Some((meta, payload))
    }

    /// How many datagrams wait to be sent.
    pub fn unsent(&self) -> usize {
        self.to_send.len()
    }
}

impl DatagramBuffer for HeapDatagrams {
    fn push(&mut self, _: Instant, meta: &DatagramMeta, payload: &[u8]) -> Result<(), Full> {
        if self.received_bytes + payload.len() > DATAGRAM_LIMIT {
            return Err(Full);
        }
        self.received_bytes += payload.len();
        self.received.push_back((*meta, payload.to_vec()));
        Ok(())
    }

    fn front(&mut self) -> Option<(DatagramMeta, [&[u8]; 2])> {
        self.to_send.front().map(|(meta, payload)| (*meta, [payload.as_slice(), &[]]))
    }

    fn pop(&mut self) {
        if let Some((_, payload)) = self.to_send.pop_front() {
            self.to_send_bytes -= payload.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Rng, SeededRng};

    #[test]
    fn a_stream_keeps_its_bytes_through_wraps_and_growth() {
        let mut rng = SeededRng::new(11);
        let mut stream = HeapStream::default();
        let byte = |offset: u64| (offset.wrapping_mul(31) >> 3) as u8;
        let (mut queued, mut acked) = (0u64, 0u64);
        for _ in 0..2000 {
            let count = rng.below(3000);
            let bytes: Vec<u8> = (queued..queued + count).map(byte).collect();
            queued = stream.write(&bytes);
            acked += rng.below(queued - acked + 1);
            stream.release(acked);
            let from = acked + rng.below(queued - acked + 1);
            let slices = stream.peek(from, (queued - from) as usize);
            let seen: Vec<u8> = slices.concat();
            assert!(seen.iter().zip(from..queued).all(|(&seen, offset)| seen == byte(offset)));
            assert_eq!(seen.len() as u64, queued - from);
        }
        stream.release(queued);
        assert_eq!(stream.memory(), 0);
    }

    #[test]
    fn out_of_order_bytes_fall_into_place() {
        let mut stream = HeapStream::default();
        stream.place(5, b"world").unwrap();
        stream.place(0, b"hello").unwrap();
        let mut read = Vec::new();
        assert_eq!(stream.read(10, &mut read), 10);
        assert_eq!(read, b"helloworld");
        assert_eq!(stream.memory(), 0);
        stream.place(3, b"lowo").unwrap();
        stream.place(10, b"!").unwrap();
        stream.read(11, &mut read);
        assert_eq!(read, b"helloworld!");
    }
}
