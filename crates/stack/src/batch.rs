//! Received frames in a batch: what follows from them is done once where it can be.
//!
//! A connection that gets many segments of a stream in a row does the same for each: acknowledgement and window, timestamp,
//! timers, its owner and the queues around it. In a batch the payload of such a segment is verified and placed at once, and the
//! connection is told of all of them when something else comes or the batch ends. It is what receive coalescing
//! does, without another copy: what comes of it is the same as of the segments one by one.
//!
//! Nobody can see what is not told yet: the batch has the stack for itself. See `tcp_sockets/run.rs` for which segments these are.

use base::Instant;
use wire::frame::RxFrame;

use crate::InterfaceId;
use crate::buffers::BufferFamily;
use crate::stack::Stack;
use crate::tcp_sockets::{Gathered, Split};

/// Received frames that are processed at one time, one after the other.
pub struct Batch<'a, B: BufferFamily> {
    stack: &'a mut Stack<B>,
    now: Instant,
    /// Segments that are placed, of which the connection has still to be told.
    pub(crate) gathered: Option<Gathered>,
}

impl<B: BufferFamily> Stack<B> {
    /// Begins a batch of received frames, which ends when it is dropped. The same as [`handle_frame`](Self::handle_frame) for
    /// each of them, and cheaper where a device gives several at a time.
    pub fn begin_batch(&mut self, now: Instant) -> Batch<'_, B> {
        Batch { stack: self, now, gathered: None }
    }
}

impl<B: BufferFamily> Batch<'_, B> {
    /// Takes a frame in that has just been received.
    #[inline]
    pub fn handle_frame(&mut self, interface: InterfaceId, frame: &RxFrame<'_>) {
        self.handle_frame_at(self.now, interface, frame);
    }

    /// Takes a frame in that the device received at `arrival`; see [`Stack::handle_frame_at`].
    pub fn handle_frame_at(&mut self, arrival: Instant, interface: InterfaceId, frame: &RxFrame<'_>) {
        if let Some(gathered) = &mut self.gathered
            && let Some(split) = Split::of(frame, gathered.link_len)
            && self.stack.gather(gathered, arrival, interface, &split)
        {
            return;
        }
        self.handle_another(arrival, interface, frame);
    }

    /// Takes a frame in that is not to be gathered with those before it.
    #[inline(never)]
    fn handle_another(&mut self, arrival: Instant, interface: InterfaceId, frame: &RxFrame<'_>) {
        self.tell();
        if self.stack.run.is_some()
            && let Some(link_len) = self.stack.link_header_len(interface)
            && let Some(split) = Split::of(frame, link_len)
        {
            self.gathered = self.stack.begin_gathering(arrival, interface, &split);
        }
        if self.gathered.is_none() {
            self.stack.handle_frame_at(self.now, arrival, interface, frame);
        }
    }

    /// Takes a frame in whose headers and payload stand apart, as a sink is given them: for a link that hands frames from one
    /// stack to another in the same program. The checksums are verified, and it comes to the same as the frame in one piece; but the
    /// payload of a run is copied only once, from the sender's buffer to the receiver's. Anything else is put together first.
    pub fn handle_parts(&mut self, interface: InterfaceId, headers: &[u8], payload: [&[u8]; 2]) {
        self.handle_parts_at(self.now, interface, headers, payload);
    }

    /// The same of a frame that arrived at `arrival`.
    pub fn handle_parts_at(
        &mut self,
        arrival: Instant,
        interface: InterfaceId,
        headers: &[u8],
        payload: [&[u8]; 2],
    ) {
        if let Some(gathered) = &mut self.gathered
            && let Some(split) = Split::apart(headers, payload, gathered.link_len)
            && self.stack.gather(gathered, arrival, interface, &split)
        {
            return;
        }
        self.handle_other_parts(arrival, interface, headers, payload);
    }

    /// The same of one that is not to be gathered with those before it.
    #[inline(never)]
    fn handle_other_parts(
        &mut self,
        arrival: Instant,
        interface: InterfaceId,
        headers: &[u8],
        payload: [&[u8]; 2],
    ) {
        self.tell();
        if self.stack.link_header_len(interface) == Some(0)
            && let Some(split) = Split::apart(headers, payload, 0)
        {
            self.gathered = self.stack.begin_gathering(arrival, interface, &split);
            if self.gathered.is_some() || self.stack.take_apart(self.now, arrival, interface, split) {
                return;
            }
        }
        let mut whole = core::mem::take(&mut self.stack.put_together);
        whole.clear();
        for part in [headers, payload[0], payload[1]] {
            whole.extend_from_slice(part);
        }
        self.stack.handle_frame_at(self.now, arrival, interface, &RxFrame::plain(&whole));
        self.stack.put_together = whole;
    }

    fn tell(&mut self) {
        if let Some(gathered) = self.gathered.take() {
            self.stack.tell_gathered(self.now, &gathered);
        }
    }
}

impl<B: BufferFamily> Drop for Batch<'_, B> {
    fn drop(&mut self) {
        self.tell();
    }
}
