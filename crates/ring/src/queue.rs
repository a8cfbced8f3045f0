//! A ring of fixed-size entries from one producer to one consumer.
//!
//! Indices run freely and wrap at 2³²; an entry's slot is its index modulo the capacity, a power of two. The producer's
//! index lives in memory that the producer writes, the consumer's in memory that the consumer writes. Each side works
//! on private 64-bit counters and loads the other's index only when its last copy says *full* or *empty*.
//!
//! Entries are pushed and popped privately; [`Producer::publish`] and [`Consumer::publish`] make a whole batch visible
//! with one store.

use core::sync::atomic::Ordering;

use crate::Corrupt;

/// The memory of a ring as its producer reaches it.
pub trait ProducerMemory {
    /// One entry.
    type Entry: Copy;
    /// Number of slots, a power of two that never changes.
    fn capacity(&self) -> u32;
    /// The consumer's index.
    fn load_consumed(&self, order: Ordering) -> u32;
    /// Sets the producer's index.
    fn store_produced(&self, index: u32, order: Ordering);
    /// Writes slot `slot < capacity`.
    fn write(&self, slot: u32, entry: Self::Entry);
}

/// The memory of a ring as its consumer reaches it.
pub trait ConsumerMemory {
    /// One entry.
    type Entry: Copy;
    /// Number of slots, a power of two that never changes.
    fn capacity(&self) -> u32;
    /// The producer's index.
    fn load_produced(&self, order: Ordering) -> u32;
    /// Sets the consumer's index.
    fn store_consumed(&self, index: u32, order: Ordering);
    /// Copies slot `slot < capacity`.
    fn read(&self, slot: u32) -> Self::Entry;
}

/// Why an entry was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// Every slot holds an entry that the consumer has not taken.
    Full,
    /// The consumer's index is impossible.
    Corrupt,
}

impl From<Corrupt> for PushError {
    fn from(_: Corrupt) -> Self {
        Self::Corrupt
    }
}

/// The sending end.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    mask: u32,
    /// Entries written so far.
    produced: u64,
    /// Entries that the consumer may see.
    published: u64,
    /// The consumer's counter as last validated: `consumed <= published <= produced <= consumed + capacity`.
    consumed: u64,
}

impl<M: ProducerMemory> Producer<M> {
    /// The producer of a fresh ring, both of whose indices are zero.
    pub fn new(memory: M) -> Self {
        let capacity = memory.capacity();
        assert!(capacity.is_power_of_two(), "the capacity of a ring is a power of two");
        Self { memory, mask: capacity - 1, produced: 0, published: 0, consumed: 0 }
    }

    /// Writes an entry, invisible to the consumer until [`publish`](Self::publish). Returns its position: the number of
    /// entries before it.
    pub fn push(&mut self, entry: M::Entry) -> Result<u64, PushError> {
        if self.produced - self.consumed > u64::from(self.mask) {
            self.refresh()?;
            if self.produced - self.consumed > u64::from(self.mask) {
                return Err(PushError::Full);
            }
        }
        let position = self.produced;
        self.memory.write(position as u32 & self.mask, entry);
        self.produced += 1;
        Ok(position)
    }

    /// Shows the consumer everything pushed so far. Returns whether there was anything to show.
    pub fn publish(&mut self) -> bool {
        if self.published == self.produced {
            return false;
        }
        // Release: whoever loads this index with Acquire sees the entries before it.
        self.memory.store_produced(self.produced as u32, Ordering::Release);
        self.published = self.produced;
        true
    }

    /// How many entries the consumer has taken; all positions below are read.
    pub fn consumed(&mut self) -> Result<u64, Corrupt> {
        self.refresh()?;
        Ok(self.consumed)
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    fn refresh(&mut self) -> Result<(), Corrupt> {
        // Acquire: the consumer has copied the entries before this index; their slots may be overwritten.
        let index = self.memory.load_consumed(Ordering::Acquire);
        let advance = u64::from(index.wrapping_sub(self.consumed as u32));
        if advance > self.published - self.consumed {
            return Err(Corrupt);
        }
        self.consumed += advance;
        Ok(())
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    mask: u32,
    /// Entries taken so far.
    consumed: u64,
    /// Entries whose slots the producer may use again.
    published: u64,
    /// The producer's counter as last validated: `published <= consumed <= produced <= published + capacity`.
    produced: u64,
}

impl<M: ConsumerMemory> Consumer<M> {
    /// The consumer of a fresh ring, both of whose indices are zero.
    pub fn new(memory: M) -> Self {
        let capacity = memory.capacity();
        assert!(capacity.is_power_of_two(), "the capacity of a ring is a power of two");
        Self { memory, mask: capacity - 1, consumed: 0, published: 0, produced: 0 }
    }

    /// Takes the next entry. The producer gets the slots back at [`publish`](Self::publish); this does so itself when
    /// the ring is empty and after every quarter of the ring.
    pub fn pop(&mut self) -> Result<Option<M::Entry>, Corrupt> {
        if self.consumed == self.produced {
            self.refresh()?;
            if self.consumed == self.produced {
                self.publish();
                return Ok(None);
            }
        }
        let entry = self.memory.read(self.consumed as u32 & self.mask);
        self.consumed += 1;
        if self.consumed - self.published > u64::from(self.mask / 4) {
            self.publish();
        }
        Ok(Some(entry))
    }

    /// Takes the next entry but leaves every slot with the consumer until [`publish`](Self::publish) is called: for an
    /// entry whose effects must be complete before the producer may know that it was read.
    pub fn pop_held(&mut self) -> Result<Option<M::Entry>, Corrupt> {
        if self.consumed == self.produced {
            self.refresh()?;
            if self.consumed == self.produced {
                return Ok(None);
            }
        }
        let entry = self.memory.read(self.consumed as u32 & self.mask);
        self.consumed += 1;
        Ok(Some(entry))
    }

    /// Gives the slots of everything taken back to the producer.
    pub fn publish(&mut self) {
        if self.published != self.consumed {
            // Release: the copies out of the slots, and the effects of the entries, are before this store.
            self.memory.store_consumed(self.consumed as u32, Ordering::Release);
            self.published = self.consumed;
        }
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&mut self) -> Result<bool, Corrupt> {
        if self.consumed == self.produced {
            self.refresh()?;
        }
        Ok(self.consumed == self.produced)
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    fn refresh(&mut self) -> Result<(), Corrupt> {
        // Acquire: pairs with the producer's Release, so that the entries before the index are there.
        let index = self.memory.load_produced(Ordering::Acquire);
        let advance = u64::from(index.wrapping_sub(self.produced as u32));
        if self.produced + advance - self.published > u64::from(self.mask) + 1 {
            return Err(Corrupt);
        }
        self.produced += advance;
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
