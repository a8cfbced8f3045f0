//! Messages of one size out of a byte stream: as many as come at once.

use std::io;

/// A buffer of at least so many bytes, so that many short messages take one call.
const LEAST: usize = 64 * 1024;

/// Reads messages.
pub(super) struct Batch {
    buffer: Vec<u8>,
    size: usize,
    /// Bytes in the buffer, and of them those of messages that were handed out.
    filled: usize,
    taken: usize,
}

impl Batch {
    /// For messages of `size` bytes.
    pub(super) fn new(size: usize) -> Self {
        Self { buffer: vec![0; size.max(LEAST)], size, filled: 0, taken: 0 }
    }

    /// Whole messages, at least one; `None` at the end of the stream. `read` is a read call.
    pub(super) fn next(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<&[u8]>> {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        while self.filled < self.size {
            let count = read(&mut self.buffer[self.filled..])?;
            if count == 0 {
                return if self.filled == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            self.filled += count;
        }
        self.taken = self.filled / self.size * self.size;
        Ok(Some(&self.buffer[..self.taken]))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn messages_come_whole_however_the_stream_is_cut() {
        let stream: Vec<u8> = (0..250).collect();
        for piece in 1..60 {
            let mut source = stream.as_slice();
            let mut batch = Batch::new(25);
            let mut seen = Vec::new();
            let mut read = |room: &mut [u8]| {
                let most = room.len().min(piece);
                source.read(&mut room[..most])
            };
            while let Some(messages) = batch.next(&mut read).unwrap() {
                assert!(!messages.is_empty() && messages.len() % 25 == 0);
                seen.extend_from_slice(messages);
            }
            assert_eq!(seen, stream);
        }
    }

    #[test]
    fn half_a_message_at_the_end_is_an_error() {
        let mut source = &[0; 30][..];
        let mut batch = Batch::new(25);
        let mut read = |room: &mut [u8]| source.read(room);
        assert_eq!(batch.next(&mut read).unwrap().map(<[u8]>::len), Some(25));
        assert_eq!(batch.next(&mut read).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
