//! The command and event rings of a channel, as each side reaches them.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use ring::{ConsumerMemory, ProducerMemory};

use crate::layout::{COMMAND_WORDS, EVENT_WORDS, Layout, header_a, header_f};
use crate::mapping::{ReadMapping, WriteMapping};

/// A ring that this side produces into: its entries and the producer's index lie in the segment that it writes, the
/// consumer's index in the other.
#[derive(Debug)]
pub(crate) struct Outgoing<const WORDS: usize> {
    own: Arc<WriteMapping>,
    other: Arc<ReadMapping>,
    capacity: u32,
    entries: usize,
    produced: usize,
    consumed: usize,
}

/// A ring that this side consumes.
#[derive(Debug)]
pub(crate) struct Incoming<const WORDS: usize> {
    own: Arc<WriteMapping>,
    other: Arc<ReadMapping>,
    capacity: u32,
    entries: usize,
    produced: usize,
    consumed: usize,
}

/// The command ring, written by the application.
pub(crate) fn commands_out(
    a: &Arc<WriteMapping>,
    f: &Arc<ReadMapping>,
    layout: &Layout,
) -> Outgoing<COMMAND_WORDS> {
    Outgoing {
        own: a.clone(),
        other: f.clone(),
        capacity: layout.geometry.commands,
        entries: layout.commands,
        produced: header_a::COMMANDS_PRODUCED,
        consumed: header_f::COMMANDS_CONSUMED,
    }
}

/// The command ring, read by the FEP.
pub(crate) fn commands_in(
    f: &Arc<WriteMapping>,
    a: &Arc<ReadMapping>,
    layout: &Layout,
) -> Incoming<COMMAND_WORDS> {
    Incoming {
        own: f.clone(),
        other: a.clone(),
        capacity: layout.geometry.commands,
        entries: layout.commands,
        produced: header_a::COMMANDS_PRODUCED,
        consumed: header_f::COMMANDS_CONSUMED,
    }
}

/// The event ring, written by the FEP.
pub(crate) fn events_out(
    f: &Arc<WriteMapping>,
    a: &Arc<ReadMapping>,
    layout: &Layout,
) -> Outgoing<EVENT_WORDS> {
    Outgoing {
        own: f.clone(),
        other: a.clone(),
        capacity: layout.geometry.events,
        entries: layout.events,
        produced: header_f::EVENTS_PRODUCED,
        consumed: header_a::EVENTS_CONSUMED,
    }
}

/// The event ring, read by the application.
pub(crate) fn events_in(
    a: &Arc<WriteMapping>,
    f: &Arc<ReadMapping>,
    layout: &Layout,
) -> Incoming<EVENT_WORDS> {
    Incoming {
        own: a.clone(),
        other: f.clone(),
        capacity: layout.geometry.events,
        entries: layout.events,
        produced: header_f::EVENTS_PRODUCED,
        consumed: header_a::EVENTS_CONSUMED,
    }
}

impl<const WORDS: usize> ProducerMemory for Outgoing<WORDS> {
    type Entry = [u64; WORDS];

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn load_consumed(&self, order: Ordering) -> u32 {
        self.other.load32(self.consumed, order)
    }

    fn store_produced(&self, index: u32, order: Ordering) {
        self.own.word32(self.produced).store(index, order);
    }

    fn write(&self, slot: u32, entry: Self::Entry) {
        self.own.store_words(self.entries + slot as usize * WORDS * 8, entry);
    }
}

impl<const WORDS: usize> ConsumerMemory for Incoming<WORDS> {
    type Entry = [u64; WORDS];

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn load_produced(&self, order: Ordering) -> u32 {
        self.other.load32(self.produced, order)
    }

    fn store_consumed(&self, index: u32, order: Ordering) {
        self.own.word32(self.consumed).store(index, order);
    }

    fn read(&self, slot: u32) -> Self::Entry {
        self.other.load_words(self.entries + slot as usize * WORDS * 8)
    }
}
