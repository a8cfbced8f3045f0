//! Frames that the stack made itself and that wait for a device, or for the stack's own input: replies, errors,
//! fragments, ARP, and whatever goes from one own socket to another. Bounded; buffers are used again.

use std::collections::VecDeque;

/// Buffers kept for the next frames.
const SPARE_BUFFERS: usize = 64;
/// A larger buffer is not kept.
const LARGEST_SPARE: usize = 4096;

/// A frame, complete with its checksums, or (between own sockets) with none needed.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    pub(crate) bytes: Vec<u8>,
    /// Not zero: a super-segment; only between own sockets.
    pub(crate) segment_size: u16,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct FrameQueue {
    frames: VecDeque<QueuedFrame>,
    bytes: usize,
    max_frames: usize,
    max_bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl FrameQueue {
    pub(crate) fn new(max_frames: usize, max_bytes: usize) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, max_frames, max_bytes, spare: Vec::new() }
    }

    /// Whether one more frame of any size may be put in.
    pub(crate) fn has_room(&self) -> bool {
        self.frames.len() < self.max_frames && self.bytes < self.max_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// An empty buffer to make a frame in.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Puts a frame in; `false`: there was no room and it is gone.
    pub(crate) fn push(&mut self, frame: QueuedFrame) -> bool {
        if !self.has_room() {
            self.recycle(frame.bytes);
            return false;
        }
        self.bytes += frame.bytes.len();
        self.frames.push_back(frame);
        true
    }

    pub(crate) fn front(&self) -> Option<&QueuedFrame> {
        self.frames.front()
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedFrame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.bytes.len();
        if self.frames.is_empty() && self.frames.capacity() > SPARE_BUFFERS {
            self.frames.shrink_to(SPARE_BUFFERS);
        }
        Some(frame)
    }

    /// Gives a buffer back.
    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && bytes.capacity() <= LARGEST_SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_gives_what_it_took_in_order() {
        let mut queue = FrameQueue::new(3, 1000);
        for number in 0..5u8 {
            let mut bytes = queue.buffer();
            bytes.push(number);
            assert_eq!(queue.push(QueuedFrame { bytes, segment_size: 0 }), number < 3);
        }
        for number in 0..3u8 {
            let frame = queue.pop().expect("queued");
            assert_eq!(frame.bytes, [number]);
            queue.recycle(frame.bytes);
        }
        assert!(queue.pop().is_none());
        assert!(queue.push(QueuedFrame { bytes: vec![0; 2000], segment_size: 0 }));
        assert!(!queue.has_room());
    }
}
