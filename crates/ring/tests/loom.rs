//! The rings and the sleep and wake-up protocol under every interleaving that loom finds.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Notify};
use loom::thread;
use std::sync::atomic::Ordering;

use outboard_ring::doorbell::{self, Bell};
use outboard_ring::word::Loom;
use outboard_ring::{Consumer, ConsumerMemory, Producer, ProducerMemory, PushError};

/// An entry of two words: a torn one would have unequal halves.
type Entry = [u64; 2];

struct Shared {
    produced: AtomicU32,
    consumed: AtomicU32,
    slots: Vec<UnsafeCell<Entry>>,
}

#[derive(Clone)]
struct Memory(Arc<Shared>);

impl Memory {
    fn new(capacity: usize) -> Self {
        Self(Arc::new(Shared {
            produced: AtomicU32::new(0),
            consumed: AtomicU32::new(0),
            slots: (0..capacity).map(|_| UnsafeCell::new([0; 2])).collect(),
        }))
    }
}

impl ProducerMemory for Memory {
    type Entry = Entry;
    fn capacity(&self) -> u32 {
        self.0.slots.len() as u32
    }
    fn load_consumed(&self, order: Ordering) -> u32 {
        self.0.consumed.load(order)
    }
    fn store_produced(&self, index: u32, order: Ordering) {
        self.0.produced.store(index, order);
    }
    fn write(&self, slot: u32, entry: Entry) {
        // SAFETY: loom fails the test if any other access is concurrent with this one.
        self.0.slots[slot as usize].with_mut(|place| unsafe { *place = entry });
    }
}

impl ConsumerMemory for Memory {
    type Entry = Entry;
    fn capacity(&self) -> u32 {
        self.0.slots.len() as u32
    }
    fn load_produced(&self, order: Ordering) -> u32 {
        self.0.produced.load(order)
    }
    fn store_consumed(&self, index: u32, order: Ordering) {
        self.0.consumed.store(index, order);
    }
    fn read(&self, slot: u32) -> Entry {
        // SAFETY: loom fails the test if a write is concurrent with this read.
        self.0.slots[slot as usize].with(|place| unsafe { *place })
    }
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder
}

/// Pushes `count` entries, one by one or in batches of two, waiting while the ring is full.
fn produce(memory: Memory, count: u64, batch: u64) {
    let mut producer = Producer::new(memory);
    for value in 1..=count {
        while let Err(error) = producer.push([value, value]) {
            assert_eq!(error, PushError::Full);
            producer.publish();
            thread::yield_now();
        }
        if value % batch == 0 || value == count {
            producer.publish();
        }
    }
}

fn in_order_once_and_whole(capacity: usize, count: u64, batch: u64) {
    bounded(3).check(move || {
        let memory = Memory::new(capacity);
        let other = memory.clone();
        let thread = thread::spawn(move || produce(other, count, batch));
        let mut consumer = Consumer::new(memory);
        for value in 1..=count {
            let entry = loop {
                match consumer.pop().unwrap() {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(entry, [value, value]);
        }
        assert!(consumer.is_empty().unwrap());
        thread.join().unwrap();
    });
}

#[test]
fn entries_arrive_in_order_once_and_whole() {
    in_order_once_and_whole(2, 4, 1);
}

#[test]
fn batches_arrive_in_order_once_and_whole() {
    in_order_once_and_whole(2, 5, 2);
}

#[test]
fn a_ring_of_one_slot_works() {
    in_order_once_and_whole(1, 3, 1);
}

/// The consumer sleeps whenever it finds nothing; a lost wake-up would be a deadlock, which loom reports.
fn nothing_sleeps_for_ever(count: u64) {
    bounded(3).check(move || {
        let memory = Memory::new(4);
        let flag = Arc::new(AtomicU32::new(doorbell::AWAKE));
        let bell = Arc::new(Notify::new());
        let producer = {
            let (memory, flag, bell) = (memory.clone(), flag.clone(), bell.clone());
            thread::spawn(move || {
                let mut producer = Producer::new(memory);
                let mut rung = Bell::default();
                for value in 1..=count {
                    producer.push([value, value]).unwrap();
                    producer.publish();
                    if rung.must_ring(doorbell::sleeper::<Loom>(&*flag)) {
                        bell.notify();
                    }
                }
            })
        };
        let mut consumer = Consumer::new(memory);
        let mut token = doorbell::AWAKE;
        let mut expected = 1;
        while expected <= count {
            match consumer.pop().unwrap() {
                Some(entry) => {
                    assert_eq!(entry, [expected, expected]);
                    expected += 1;
                }
                None => {
                    token = doorbell::next_token(token);
                    doorbell::announce::<Loom>(&*flag, token);
                    if consumer.is_empty().unwrap() {
                        bell.wait();
                    }
                    doorbell::retract(&*flag);
                }
            }
        }
        producer.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost() {
    nothing_sleeps_for_ever(2);
}

#[test]
fn no_wake_up_is_lost_over_several_sleeps() {
    nothing_sleeps_for_ever(3);
}

/// The ring of a socket's received bytes is replaced by a larger one while the application reads: the location is
/// stored before the cursor, the application loads the cursor before the location (crate `channel`, receive rings).
#[test]
fn a_reader_finds_every_byte_while_its_ring_is_replaced() {
    bounded(3).check(|| {
        let received = Arc::new(AtomicU32::new(0));
        let consumed = Arc::new(AtomicU32::new(0));
        let location = Arc::new(AtomicU32::new(0));
        let rings: Arc<[UnsafeCell<[u8; 2]>; 2]> =
            Arc::new([UnsafeCell::new([0; 2]), UnsafeCell::new([0; 2])]);
        let writer = {
            let (received, consumed, location, rings) =
                (received.clone(), consumed.clone(), location.clone(), rings.clone());
            thread::spawn(move || {
                // SAFETY: (all of them) loom fails the test if accesses to one cell conflict.
                rings[0].with_mut(|ring| unsafe { (*ring)[0] = 1 });
                location.store(0, Ordering::Release);
                received.store(1, Ordering::Release);
                // The larger ring: copy, publish the location, then the cursor.
                let unread = rings[0].with(|ring| unsafe { (*ring)[0] });
                rings[1].with_mut(|ring| unsafe { *ring = [unread, 2] });
                location.store(1, Ordering::Release);
                received.store(2, Ordering::Release);
                // The old ring is used for something else once everything it held at the switch is consumed.
                while consumed.load(Ordering::Acquire) < 1 {
                    thread::yield_now();
                }
                rings[0].with_mut(|ring| unsafe { *ring = [9, 9] });
            })
        };
        let mut next = 0;
        while next < 2 {
            let available = received.load(Ordering::Acquire);
            if available == next {
                thread::yield_now();
                continue;
            }
            let ring = &rings[location.load(Ordering::Acquire) as usize];
            for at in next..available {
                // SAFETY: as above.
                assert_eq!(ring.with(|ring| unsafe { (*ring)[at as usize] }), at as u8 + 1);
            }
            next = available;
            consumed.store(next, Ordering::Release);
        }
        writer.join().unwrap();
    });
}

/// The FEP asks to hear when the application's cursor reaches an offset (crate `channel`, `notify_consumed_at` and
/// `set_consumed`): either it sees that it has already, or the application sees the wish.
#[test]
fn a_wish_to_hear_of_a_cursor_is_not_missed() {
    use outboard_ring::Atomics;
    const WANTED: u32 = 2;
    loom::model(|| {
        let consumed = Arc::new(AtomicU32::new(0));
        let wish = Arc::new(AtomicU32::new(0));
        let application = {
            let (consumed, wish) = (consumed.clone(), wish.clone());
            thread::spawn(move || {
                let mut told = 0;
                for before in 0..3 {
                    consumed.store(before + 1, Ordering::Release);
                    Loom::full_fence();
                    let wanted = wish.load(Ordering::Relaxed);
                    told += u32::from(before < wanted && wanted <= before + 1);
                }
                told
            })
        };
        wish.store(WANTED, Ordering::Relaxed);
        Loom::full_fence();
        let passed = consumed.load(Ordering::Acquire) >= WANTED;
        let told = application.join().unwrap();
        assert!(passed || told == 1);
        assert!(told <= 1);
    });
}

/// READY is not repeated while the last one is unread (crate `channel`, `post_ready` and `poll_events`): all the same,
/// whoever looks after the last event sees the last state.
#[test]
fn no_change_is_missed_when_its_event_is_left_out() {
    use outboard_ring::Atomics;
    bounded(3).check(|| {
        let memory = Memory::new(4);
        let state = Arc::new(AtomicU32::new(0));
        let fep = {
            let (memory, state) = (memory.clone(), state.clone());
            thread::spawn(move || {
                let mut events = Producer::new(memory);
                let mut last = None;
                for value in 1..=2 {
                    state.store(value, Ordering::Release);
                    Loom::full_fence();
                    let unread = last.is_some_and(|position| position >= events.consumed().unwrap());
                    if !unread {
                        last = Some(events.push([1, 1]).unwrap());
                        events.publish();
                    }
                }
            })
        };
        let mut events = Consumer::new(memory);
        let mut seen = 0;
        let mut look = |seen: &mut u32| {
            let mut any = false;
            while events.pop_held().unwrap().is_some() {
                any = true;
            }
            if any {
                events.publish();
                Loom::full_fence();
                *seen = state.load(Ordering::Acquire);
            }
        };
        look(&mut seen);
        look(&mut seen);
        fep.join().unwrap();
        look(&mut seen);
        assert_eq!(seen, 2);
    });
}
