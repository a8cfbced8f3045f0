//! Both rings of a TCP connection.

use std::sync::Arc;

use tcp::{NoMemory, ReceiveBuffer, SendBuffer, UrgentMark};
use wire::checksum::Sum;

use super::lent::{Filling, LentFile};
use super::receive::ReceiveSide;
use super::segments::{Owner, Shared};
use super::send::SendSide;
use crate::Offence;
use crate::layout::RingLocation;

/// The largest receive ring unless told otherwise.
const DEFAULT_RECEIVE_LIMIT: usize = 4 << 20;

/// The buffers of a TCP connection, in its application's segments. Without bytes they hold no memory.
#[derive(Debug)]
pub struct StreamRings {
    send: SendSide,
    receive: ReceiveSide,
}

impl StreamRings {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let receive = ReceiveSide::new(shared.clone(), DEFAULT_RECEIVE_LIMIT);
        Self { send: SendSide::new(shared), receive }
    }

    /// From now on they publish in this socket's record: directly after they were made, or, for an accepted connection,
    /// when it gets its number.
    pub fn assign(&mut self, socket: u32) {
        self.send.assign(socket);
        self.receive.assign(socket);
    }

    /// The socket they are assigned to.
    pub fn socket(&self) -> Option<u32> {
        self.receive.socket()
    }

    /// ATTACH_SEND.
    pub fn attach_send(&mut self, location: RingLocation) -> Result<(), Offence> {
        self.send.attach(location)
    }

    /// SEND: the stream is queued up to `queued_to`.
    pub fn queue(&mut self, queued_to: u64) -> Result<(), Offence> {
        self.send.queue(queued_to)
    }

    /// FILL: as SEND, but the bytes are in a file that was lent.
    pub fn fill(&mut self, queued_to: u64, file: Arc<LentFile>, offset: u64) -> Result<Filling, Offence> {
        self.send.fill(queued_to, file, offset)
    }

    /// The bytes of a file that were waited for.
    pub fn put(&mut self, bytes: &[u8]) -> Filling {
        self.send.put(bytes)
    }

    /// The stream offset up to which what is queued is there and can be sent.
    pub fn filled_to(&self) -> u64 {
        self.send.filled_to()
    }

    /// The stream offset up to which the application has queued.
    pub fn queued(&self) -> u64 {
        self.send.queued()
    }

    /// The read cursor as last heard.
    pub fn consumed_to(&self) -> u64 {
        self.receive.consumed()
    }

    /// Reads the application's read cursor: the stream offset up to which it has consumed.
    pub fn poll_consumed(&mut self) -> Result<u64, Offence> {
        self.receive.poll_consumed()
    }

    /// Asks for a CONSUMED command when the read cursor reaches `offset`. True: it already has, and no command
    /// need come.
    pub fn notify_consumed_at(&mut self, offset: u64) -> Result<bool, Offence> {
        self.receive.notify_consumed_at(offset)
    }

    /// Tells the application up to where its stream is acknowledged. True: what was queued behind what was
    /// [taken over](Self::take_over) can be sent from now on, up to [`filled_to`](Self::filled_to).
    pub fn publish_acked(&mut self, acked_to: u64) -> bool {
        self.send.publish(acked_to)
    }

    /// Takes over the streams of other rings, as they stand: what is received and not read lies in these from now on, and what is
    /// queued and not acknowledged is kept apart until it is acknowledged. These are assigned and new; the others are of no use
    /// afterwards, except that after an error they are as they were. How many bytes were copied.
    ///
    /// # Errors
    /// There is no memory for that.
    pub fn take_over(&mut self, other: &mut Self) -> Result<u64, NoMemory> {
        let received = self.receive.take_over(&mut other.receive).map_err(|_| NoMemory)?;
        let queued = self.send.take_over(&other.send).map_err(|_| NoMemory)?;
        Ok(received + queued)
    }

    /// Whether they are in this application's segments.
    pub fn are_of(&self, owner: &Owner) -> bool {
        self.send.is_in(&owner.0)
    }

    /// Whether bytes of lent files are queued that are not there yet.
    pub fn is_filling(&self) -> bool {
        self.send.is_filling()
    }

    /// Tells the application how large a send ring is of use: twice the congestion window.
    pub fn publish_window(&mut self, congestion_window: u32) {
        self.send.publish_target(congestion_window);
    }

    /// Tells the application what has been sent of all it is known to have queued.
    pub fn publish_sent(&mut self, sent_to: u64) {
        self.send.publish_sent(sent_to);
    }

    /// Tells the application where its peer's urgent byte is, before [`publish_received`](Self::publish_received) tells of it. True:
    /// that is news, and who waits is to be told by [`AppChannel::notify_urgent`](super::AppChannel::notify_urgent).
    pub fn publish_urgent(&mut self, mark: UrgentMark) -> bool {
        self.receive.publish_urgent(mark)
    }

    /// Tells the application up to where it can read.
    pub fn publish_received(&mut self, received_to: u64) {
        self.receive.publish(received_to);
    }

    /// Sets the largest receive ring, rounded up to a power of two; a connection must not offer a window beyond it.
    pub fn set_receive_limit(&mut self, bytes: usize) {
        self.receive.set_limit(bytes);
    }

    /// The largest receive ring.
    pub fn receive_limit(&self) -> usize {
        self.receive.limit()
    }

    /// The application has closed the socket: receive memory goes back at once, and bytes find no room from now on.
    pub fn discard_receive(&mut self) {
        self.receive.discard();
    }

    /// Gives the receive ring back if it is empty and was not written since the last call, or memory is scarce. Whether none
    /// is held.
    pub fn release_idle(&mut self) -> bool {
        self.receive.release_idle()
    }
}

impl SendBuffer for StreamRings {
    fn peek(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        self.send.peek(offset, len)
    }

    fn is_blocked(&self) -> bool {
        self.send.is_blocked()
    }
}

impl ReceiveBuffer for StreamRings {
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        // What was consumed must not be placed again: its position may belong to bytes ahead of it.
        let skip = self.receive.consumed().saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (offset, bytes) = (offset + skip as u64, &bytes[skip..]);
        if bytes.is_empty() {
            return Ok(());
        }
        self.receive.make_room(offset + bytes.len() as u64).map_err(|_| NoMemory)?;
        self.receive.write(offset, bytes);
        Ok(())
    }

    fn place_verified(&mut self, offset: u64, bytes: [&[u8]; 2], sum: Sum) -> Result<bool, NoMemory> {
        let [head, tail] = bytes;
        let end = offset + (head.len() + tail.len()) as u64;
        // Bytes over others, which a wrong one must not harm, are summed first.
        let is_new = offset >= self.receive.written_to();
        if is_new && self.receive.make_room(end).is_ok() {
            return Ok(self.receive.write_verified(offset, bytes, sum));
        }
        if sum.add(head).add(tail).finish() != 0 {
            return Ok(false);
        }
        self.place(offset, head)?;
        self.place(offset + head.len() as u64, tail).map(|()| true)
    }

    fn consumed(&mut self) -> Option<u64> {
        self.receive.look_at_consumed()
    }

    fn share(&self) -> u32 {
        self.receive.share()
    }
}
