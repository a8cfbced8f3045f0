//! When what happens next: one time for each thing that can happen, in an order that depends on nothing else.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use base::Instant;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A path has something due.
    Path(u32),
    /// A host has frames to process or a timer due.
    Host(u32),
    /// An application wants to go on.
    Application(u32),
    /// A host restarts.
    Restart(u32),
}

/// The next time of every event. At one instant events come in the order of their type, then of their number.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    heap: BinaryHeap<Reverse<(Instant, Event)>>,
    /// When each event is set to happen: an entry of the heap that says otherwise is void.
    set: [Vec<Instant>; 4],
}

impl Schedule {
    /// Sets the time of an event; `FAR_FUTURE`: it does not happen.
    pub(crate) fn set(&mut self, event: Event, at: Instant) {
        let slot = self.slot(event);
        if *slot == at {
            return;
        }
        *slot = at;
        if at != Instant::FAR_FUTURE {
            self.heap.push(Reverse((at, event)));
        }
    }

    /// Sets the time of an event, unless it is set to come sooner.
    pub(crate) fn set_by(&mut self, event: Event, at: Instant) {
        let earlier = at.min(*self.slot(event));
        self.set(event, earlier);
    }

    /// The next event that is due by `end`. It is not set any more.
    pub(crate) fn next(&mut self, end: Instant) -> Option<(Instant, Event)> {
        while let Some(Reverse((at, event))) = self.heap.peek().copied() {
            if at > end {
                return None;
            }
            self.heap.pop();
            let slot = self.slot(event);
            if *slot == at {
                *slot = Instant::FAR_FUTURE;
                return Some((at, event));
            }
        }
        None
    }

    fn slot(&mut self, event: Event) -> &mut Instant {
        let (kind, number) = match event {
            Event::Path(number) => (0, number),
            Event::Host(number) => (1, number),
            Event::Application(number) => (2, number),
            Event::Restart(number) => (3, number),
        };
        let times = &mut self.set[kind];
        let needed = number as usize + 1;
        if times.len() < needed {
            times.resize(needed, Instant::FAR_FUTURE);
        }
        &mut times[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_kind_then_number() {
        let mut schedule = Schedule::default();
        let at = Instant::from_millis;
        schedule.set(Event::Host(1), at(5));
        schedule.set(Event::Host(0), at(5));
        schedule.set(Event::Path(9), at(5));
        schedule.set(Event::Application(0), at(1));
        schedule.set(Event::Application(0), at(7));
        schedule.set_by(Event::Host(1), at(9));
        let mut order = Vec::new();
        while let Some((at, event)) = schedule.next(at(100)) {
            order.push((at.as_millis(), event));
        }
        let expected =
            [(5, Event::Path(9)), (5, Event::Host(0)), (5, Event::Host(1)), (7, Event::Application(0))];
        assert_eq!(order, expected);
    }
}
