use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;
use proptest::prelude::*;

/// A ring in plain memory, whose indices a test may spoil.
#[derive(Clone)]
struct Plain(Rc<Inner>);

struct Inner {
    produced: Cell<u32>,
    consumed: Cell<u32>,
    slots: RefCell<Vec<u64>>,
}

impl Plain {
    fn new(capacity: usize) -> Self {
        Self(Rc::new(Inner {
            produced: Cell::new(0),
            consumed: Cell::new(0),
            slots: RefCell::new(vec![0; capacity]),
        }))
    }
}

impl ProducerMemory for Plain {
    type Entry = u64;
    fn capacity(&self) -> u32 {
        self.0.slots.borrow().len() as u32
    }
    fn load_consumed(&self, _: Ordering) -> u32 {
        self.0.consumed.get()
    }
    fn store_produced(&self, index: u32, _: Ordering) {
        self.0.produced.set(index);
    }
    fn write(&self, slot: u32, entry: u64) {
        self.0.slots.borrow_mut()[slot as usize] = entry;
    }
}

impl ConsumerMemory for Plain {
    type Entry = u64;
    fn capacity(&self) -> u32 {
        self.0.slots.borrow().len() as u32
    }
    fn load_produced(&self, _: Ordering) -> u32 {
        self.0.produced.get()
    }
    fn store_consumed(&self, index: u32, _: Ordering) {
        self.0.consumed.set(index);
    }
    fn read(&self, slot: u32) -> u64 {
        self.0.slots.borrow()[slot as usize]
    }
}

proptest! {
    #[test]
    fn a_ring_is_a_bounded_queue(log2 in 0u32..5, steps in prop::collection::vec(0u8..5, 0..400)) {
        let memory = Plain::new(1 << log2);
        let (mut producer, mut consumer) = (Producer::new(memory.clone()), Consumer::new(memory));
        let (mut hidden, mut visible, mut taken) = (VecDeque::new(), VecDeque::new(), 0);
        let mut next = 0;
        for step in steps {
            match step {
                0 | 1 => match producer.push(next) {
                    Ok(position) => {
                        prop_assert_eq!(position, next);
                        hidden.push_back(next);
                        next += 1;
                    }
                    Err(error) => {
                        prop_assert_eq!(error, PushError::Full);
                        prop_assert!(hidden.len() + visible.len() + taken >= 1 << log2);
                    }
                },
                2 => {
                    prop_assert_eq!(producer.publish(), !hidden.is_empty());
                    visible.append(&mut hidden);
                }
                3 => {
                    prop_assert_eq!(consumer.pop_held().unwrap(), visible.pop_front());
                    taken = 1 << log2; // what was taken stays the consumer's: the next push may fail at any fill
                }
                _ => {
                    prop_assert_eq!(consumer.is_empty().unwrap(), visible.is_empty());
                    consumer.publish();
                    taken = 0;
                }
            }
        }
    }

    #[test]
    fn an_impossible_index_is_corrupt_and_a_possible_one_is_not(index: u32, pushed in 0u32..9, popped in 0u32..9) {
        let memory = Plain::new(8);
        let (mut producer, mut consumer) = (Producer::new(memory.clone()), Consumer::new(memory.clone()));
        for entry in 0..pushed.min(8) {
            producer.push(u64::from(entry)).unwrap();
        }
        producer.publish();
        let mut taken = 0;
        while taken < popped && consumer.pop_held().unwrap().is_some() {
            taken += 1;
        }
        memory.0.consumed.set(index);
        prop_assert_eq!(producer.consumed().is_ok(), index <= pushed.min(8));
        memory.0.produced.set(index);
        if taken == pushed.min(8) {
            prop_assert_eq!(consumer.is_empty().is_ok(), index >= taken && index <= 8);
        }
    }
}

#[test]
fn indices_wrap() {
    let memory = Plain::new(4);
    let (mut producer, mut consumer) = (Producer::new(memory.clone()), Consumer::new(memory.clone()));
    let start = u64::from(u32::MAX) - 5;
    (producer.produced, producer.published, producer.consumed) = (start, start, start);
    (consumer.produced, consumer.published, consumer.consumed) = (start, start, start);
    memory.0.produced.set(start as u32);
    memory.0.consumed.set(start as u32);
    for round in 0..20 {
        producer.push(round).unwrap();
        producer.push(round + 100).unwrap();
        producer.publish();
        assert_eq!(consumer.pop().unwrap(), Some(round));
        assert_eq!(consumer.pop().unwrap(), Some(round + 100));
        assert_eq!(consumer.pop().unwrap(), None);
    }
    assert_eq!(producer.consumed(), Ok(start + 40));
}
