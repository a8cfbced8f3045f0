//! What a fuzzer calls: ring entries made of any bytes, and a hand that writes what it likes into segment A.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::pwrite;

use crate::command::Command;
use crate::event::Event;
use crate::fep::AppChannel;
use crate::layout::{COMMAND_WORDS, Geometry, Layout, PAGE, RingLocation, header_a, record_a};

/// The words of an entry of the command ring.
pub type Words = [u64; COMMAND_WORDS];

/// Gives `bytes` to the decoders of both rings.
///
/// # Panics
/// If a command that was understood is another one after it was encoded.
pub fn entries(bytes: &[u8]) {
    let mut words = [0; COMMAND_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    let geometry = Geometry {
        sockets: 64,
        waiters: 8,
        commands: 64,
        events: 64,
        send_bytes: 1 << 20,
        receive_bytes: 1 << 20,
    };
    // As it is, and with a socket's number that is mostly in the table.
    for head in [words[0], words[0] & 0x7f_ffff_ffff] {
        let words = [head, words[1], words[2], words[3]];
        if let Ok(command) = Command::decode(words, &geometry) {
            assert_eq!(Command::decode(command.encode(), &geometry), Ok(command));
        }
        let _ = Event::decode([words[0], words[1]], geometry.sockets);
    }
}

/// The words of a command, to be changed before they are written.
pub fn words(command: &Command) -> Words {
    command.encode()
}

/// Writes into segment A as no library would.
#[derive(Debug)]
pub struct Scribbler {
    a: OwnedFd,
    layout: Layout,
    produced: u32,
}

impl Scribbler {
    /// For the application of `half`.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(half: &AppChannel) -> io::Result<Self> {
        let Some(layout) = Layout::new(*half.geometry()) else {
            unreachable!("a channel's geometry is valid")
        };
        Ok(Self { a: half.offer().a.try_clone_to_owned()?, layout, produced: 0 })
    }

    /// Appends an entry to the command ring, whether there is room or not.
    pub fn command(&mut self, words: Words) {
        let slot = (self.produced % self.layout.geometry.commands) as usize;
        for (index, word) in words.iter().enumerate() {
            self.put(self.layout.commands + slot * size_of::<Words>() + index * 8, &word.to_ne_bytes());
        }
        self.produced = self.produced.wrapping_add(1);
        self.put(header_a::COMMANDS_PRODUCED, &self.produced.to_ne_bytes());
    }

    /// Writes a word of a socket's record.
    pub fn record(&self, socket: u32, field: usize, value: u64) {
        let field = (field % record_a::SIZE) & !3;
        let bytes = value.to_ne_bytes();
        let len = if field.is_multiple_of(8) { 8 } else { 4 };
        self.put(self.layout.record_a(socket % self.layout.geometry.sockets) + field, &bytes[..len]);
    }

    /// Writes one of the indices in the header.
    pub fn header(&self, field: usize, value: u32) {
        let fields = [
            header_a::COMMANDS_PRODUCED,
            header_a::EVENTS_CONSUMED,
            header_a::WAITERS_USED,
            header_a::MAGIC,
            header_a::VERSION,
        ];
        self.put(fields[field % fields.len()], &value.to_ne_bytes());
    }

    /// Writes a waiter slot's flag.
    pub fn slot(&self, slot: u32, value: u32) {
        self.put(self.layout.sleeping(slot % self.layout.geometry.waiters), &value.to_ne_bytes());
    }

    /// Writes into the first quarter of a megabyte of the send area, where rings are.
    pub fn area(&self, at: usize, bytes: &[u8]) {
        self.put(self.layout.send_area + at % (256 << 10), bytes);
    }

    /// Writes anywhere before the send area.
    pub fn anywhere(&self, at: usize, bytes: &[u8]) {
        self.put(at % self.layout.send_area, bytes);
    }

    /// A ring of `1 << log2` bytes that starts at a page of the send area.
    pub fn ring(&self, page: usize, log2: u32, generation: u16) -> RingLocation {
        RingLocation::new((self.layout.send_area / PAGE + page) * PAGE, log2, generation.into())
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        // The segment's size is sealed: what would go beyond it is not written.
        let _ = pwrite(&self.a, bytes, offset as u64);
    }
}
