//! Both rings of a UDP socket: the same byte rings, with a record for each datagram.

use std::sync::Arc;

use base::Instant;
use stack::{DatagramBuffer, DatagramMeta, Full};

use super::receive::{NoRoom, ReceiveSide};
use super::segments::Shared;
use super::send::SendSide;
use crate::Offence;
use crate::datagram::{
    HEADER, Header, MAX_PAYLOAD, Record, decode_start, header_bytes, pad_word, padding, record_len,
};
use crate::layout::{PAGE, RingLocation};

/// The largest receive ring unless told otherwise; holds at least one datagram of any length.
const DEFAULT_RECEIVE_LIMIT: usize = 1 << 20;

const _: () = assert!(DEFAULT_RECEIVE_LIMIT >= 2 * record_len(MAX_PAYLOAD));

/// The buffers of a UDP socket, in its application's segments. Without datagrams they hold no memory.
#[derive(Debug)]
pub struct DatagramRings {
    send: SendSide,
    receive: ReceiveSide,
    /// Everything queued before this is handed to the stack.
    sent: u64,
    /// Bytes of the record that `front` gave.
    front: u32,
}

impl DatagramRings {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let receive = ReceiveSide::new(shared.clone(), DEFAULT_RECEIVE_LIMIT);
        Self { send: SendSide::new(shared), receive, sent: 0, front: 0 }
    }

    /// From now on they publish in this socket's record.
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

    /// SEND: records are queued up to `queued_to`.
    pub fn queue(&mut self, queued_to: u64) -> Result<(), Offence> {
        if !queued_to.is_multiple_of(8) {
            return Err(Offence::QueuedBackwards);
        }
        self.send.queue(queued_to)
    }

    /// Tells the application what was received, and what was sent.
    pub fn publish(&mut self) {
        self.send.publish(self.sent);
        self.receive.publish(self.receive.written_to());
    }

    /// Everything queued before this offset was handed to the stack.
    pub fn sent_to(&self) -> u64 {
        self.sent
    }

    /// Sets the largest receive ring, rounded up to a power of two.
    pub fn set_receive_limit(&mut self, bytes: usize) {
        self.receive.set_limit(bytes);
    }

    /// The application has closed the socket: receive memory goes back at once.
    pub fn discard_receive(&mut self) {
        self.receive.discard();
    }

    /// Gives the receive ring back if it is empty and was not written since the last call. Whether none is held.
    pub fn release_idle(&mut self) -> bool {
        self.receive.release_idle()
    }

    /// Makes room for a record of `len` bytes; the padding that goes before it.
    fn make_room(&mut self, len: usize) -> Result<usize, NoRoom> {
        let at = self.receive.written_to();
        let mut size = self.receive.ring_size().max(PAGE);
        loop {
            // Where the record goes depends on the ring's size, and the size on where it goes. In a larger ring there is
            // never more padding, so this ends.
            let pad = padding(at, len, size);
            self.receive.make_room(at + (pad + len) as u64)?;
            if self.receive.ring_size() == size {
                return Ok(pad);
            }
            size = self.receive.ring_size();
        }
    }

    /// Skips padding; the payload length of the record at the front, if there is one.
    fn start_of_front(&mut self) -> Option<usize> {
        loop {
            let available = self.send.queued() - self.sent;
            if available == 0 {
                return None;
            }
            let word = self.send.word(self.sent);
            match decode_start(word, self.sent, available, self.send.size()) {
                Some(Record::Payload(length)) => return Some(length),
                Some(Record::Pad(length)) => self.sent += length as u64,
                None => {
                    self.send.note(Offence::BadDatagram);
                    // Nothing after it can be found.
                    self.sent = self.send.queued();
                    return None;
                }
            }
        }
    }
}

impl DatagramBuffer for DatagramRings {
    fn push(&mut self, now: Instant, meta: &DatagramMeta, payload: &[u8]) -> Result<(), Full> {
        let length = payload.len();
        if length > MAX_PAYLOAD {
            return Err(Full);
        }
        let pad = self.make_room(record_len(length)).map_err(|_| Full)?;
        let mut at = self.receive.written_to();
        if pad > 0 {
            self.receive.write(at, &pad_word(pad).to_ne_bytes());
            at += pad as u64;
        }
        self.receive.write(at, &header_bytes(Header::received(now, meta, length).encode()));
        self.receive.write(at + HEADER as u64, payload);
        self.receive.write_to(at + record_len(length) as u64);
        Ok(())
    }

    fn front(&mut self) -> Option<(DatagramMeta, [&[u8]; 2])> {
        let length = self.start_of_front()?;
        self.front = record_len(length) as u32;
        let header = Header::decode(self.send.words(self.sent), length);
        Some((header.outgoing(), self.send.peek(self.sent + HEADER as u64, length)))
    }

    fn pop(&mut self) {
        self.sent += u64::from(std::mem::take(&mut self.front));
    }
}
