//! `TCP_NOTSENT_LOWAT`: a send queues more only while little of what is queued waits to be sent, as Linux decides it.
//!
//! Linux sends within the call, and looks only where a new segment buffer begins. Here the stack sends, on another processor, a
//! moment later; so whoever wants to know how much is not sent waits for that moment, unless even all that the stack has not
//! heard of yet would be little. Sockets that did not ask for this pay one load.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use channel::Manner;
use channel::app::SendStream;

use super::socket::{Socket, errno};

/// How long to wait for the stack to hear of what was queued. It takes some microseconds unless the stack has no processor; then
/// all of it counts as not sent, and the caller waits as for anything else.
const PATIENCE: Duration = Duration::from_millis(2);
/// The most that one of Linux' segment buffers takes.
const LARGEST_BUFFER: u32 = (64 << 10) - 1;

impl Socket {
    /// Bytes of a stream that are queued and were never sent. Asks the stack.
    pub fn unsent(&self) -> usize {
        let is_open = |info: &tcp::TcpInfo| info.state != tcp::TcpInfo::CLOSE;
        self.info().ok().filter(is_open).map_or(0, |info| info.notsent_bytes as usize)
    }

    pub(super) fn set_not_sent_low_water(&self, bytes: u32) {
        self.progress.not_sent_low_water.store(bytes, Ordering::Relaxed);
        if bytes == 0 {
            self.record().set_sent_wake(0);
        }
    }

    /// Bytes not sent that keep a send from queueing more, if that matters.
    pub(super) fn not_sent_low_water(&self) -> Option<u64> {
        let low_water = self.progress.not_sent_low_water.load(Ordering::Relaxed);
        (low_water > 0).then_some(low_water.into())
    }

    /// Whether as much is sent as makes the socket writable (Linux: `tcp_stream_memory_free`, for a wake-up).
    #[inline]
    pub(super) fn has_sent_enough(&self) -> bool {
        self.not_sent_low_water().is_none_or(|low_water| {
            let queued = self.shared.queued.load(Ordering::Relaxed);
            self.unsent_if(queued, |unsent| 2 * unsent < low_water) * 2 < low_water
        })
    }

    /// The stack rings once as much is sent as makes the socket writable.
    pub(super) fn set_sent_mark(&self, queued: u64) {
        if let Some(low_water) = self.not_sent_low_water() {
            self.record().set_sent_wake(queued.saturating_sub((low_water - 1) / 2));
        }
    }

    /// Bytes before the offset `queued` that are not sent. With what the stack has not heard of yet, if they are so few that this
    /// is enough.
    fn unsent_if(&self, queued: u64, is_enough: impl Fn(u64) -> bool) -> u64 {
        let mut until = None;
        loop {
            let (unsent, is_heard) = self.record().unsent(queued);
            if is_heard || is_enough(unsent) {
                return unsent;
            }
            let now = Instant::now();
            if now > *until.get_or_insert(now + PATIENCE) || self.endpoint.is_dead() {
                return unsent;
            }
            std::thread::yield_now();
        }
    }

    /// How many of `wanted` bytes may be queued behind the offset `queued` now, with this low-water mark.
    pub(super) fn sendable(&self, queued: u64, wanted: usize, low_water: u64) -> usize {
        // Where even all of it is little, Linux would take it, too.
        let few = low_water.saturating_sub(wanted as u64);
        let unsent = self.unsent_if(queued, |unsent| unsent < few);
        if unsent < few {
            return wanted;
        }
        // What was begun is filled up; a new one is begun only below the mark.
        let buffer = self.segment_buffer();
        let rest = match unsent % buffer {
            0 if unsent >= low_water => 0,
            begun => buffer - begun,
        };
        wanted.min(rest as usize)
    }

    /// What one of Linux' segment buffers would take (`tcp_xmit_size_goal`): whole segments, half of the peer's window at most.
    fn segment_buffer(&self) -> u64 {
        let known = self.progress.segment_buffer.load(Ordering::Relaxed);
        if known > 0 {
            return known.into();
        }
        let Ok(info) = self.info() else { return LARGEST_BUFFER.into() };
        let segment = info.snd_mss.max(1);
        let whole = |bytes: u32| (bytes / segment * segment).max(segment);
        let buffer = whole(LARGEST_BUFFER.min(info.snd_wnd / 2));
        if buffer == whole(LARGEST_BUFFER) {
            // The peer's window has no say in it any more.
            self.progress.segment_buffer.store(buffer, Ordering::Relaxed);
        }
        buffer.into()
    }

    /// Queues in pieces, each when enough of those before it is sent. How many bytes were taken.
    ///
    /// # Errors
    /// `EAGAIN`: none, because too many wait to be sent or there is no room. As [`SendStream::write_in`].
    pub(super) fn send_below(
        &self,
        stream: &mut SendStream,
        buffers: &[IoSlice<'_>],
        manner: Manner,
        low_water: u64,
    ) -> io::Result<usize> {
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut taken = 0;
        while taken < wanted {
            let left = wanted - taken;
            let piece = self.sendable(stream.queued(), left, low_water);
            let manner = if piece < left { Manner::More } else { manner };
            let queued = match piece {
                0 => Err(errno(libc::EAGAIN)),
                _ => stream.write_in(&part_of(buffers, taken, piece), manner),
            };
            match queued {
                Ok(count) => taken += count,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if taken < wanted {
            // Nothing follows at once after all; an urgent byte is the last that was taken.
            stream.announce(if manner == Manner::Urgent { Manner::Urgent } else { Manner::Plain })?;
        }
        Ok(taken)
    }
}

/// `length` bytes of the buffers behind the first `skip`.
fn part_of<'a>(buffers: &'a [IoSlice<'_>], mut skip: usize, mut length: usize) -> Vec<IoSlice<'a>> {
    let mut part = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let from = skip.min(buffer.len());
        let to = (from + length).min(buffer.len());
        if to > from {
            part.push(IoSlice::new(&buffer[from..to]));
        }
        skip -= from;
        length -= to - from;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_lies_between() {
        let buffers = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defgh"), IoSlice::new(b"ij")];
        let whole = b"abcdefghij";
        for skip in 0..=whole.len() {
            for length in 0..=whole.len() - skip {
                let part: Vec<u8> = part_of(&buffers, skip, length).iter().flat_map(|s| s.to_vec()).collect();
                assert_eq!(part, whole[skip..skip + length]);
            }
        }
    }
}
