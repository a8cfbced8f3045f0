//! Urgent data between the two halves: reads stop at the mark and pass over the byte.

use std::io::IoSliceMut;

use tcp::{ReceiveBuffer, UrgentMark};

use super::{World, bytes};
use crate::app::ReceiveStream;

struct Ends {
    world: World,
    socket: u32,
    reader: ReceiveStream,
    placed: u64,
}

impl Ends {
    fn new() -> Self {
        let mut world = World::new();
        let socket = world.open();
        let reader = ReceiveStream::new(world.app.clone(), socket);
        Self { world, socket, reader, placed: 0 }
    }

    /// The mark is told, then bytes up to `to`.
    fn publish(&mut self, offset: Option<u64>, passed_to: u64, to: u64) {
        let rings = self.world.stream(self.socket);
        if to > self.placed {
            rings.place(self.placed, &bytes(self.placed, (to - self.placed) as usize)).unwrap();
        }
        rings.publish_urgent(UrgentMark { offset, byte: None, passed_to });
        rings.publish_received(to);
        self.placed = self.placed.max(to);
    }

    /// What a read gives: where it began, and how much.
    fn read(&mut self, peek: bool) -> (u64, usize) {
        let mut buffer = vec![0; 100];
        let count = self.reader.read(&mut [IoSliceMut::new(&mut buffer)], peek).unwrap();
        let from = (0..=self.placed).find(|&from| bytes(from, count) == buffer[..count]).unwrap();
        (if count == 0 { self.reader.consumed() } else { from }, count)
    }
}

#[test]
fn a_read_stops_at_the_mark_and_the_next_passes_over_the_byte() {
    let mut ends = Ends::new();
    ends.publish(Some(5), 0, 10);
    assert_eq!(ends.reader.available().bytes, 5);
    assert_eq!(ends.read(true), (0, 5));
    assert_eq!(ends.read(false), (0, 5));
    assert_eq!(ends.reader.fill(), [0u8; 0], "not before it is passed");
    assert_eq!(ends.read(true), (6, 4));
    assert_eq!(ends.reader.consumed(), 5, "looking passes nothing");
    ends.reader.pass_urgent(false).unwrap();
    assert_eq!(ends.reader.fill(), bytes(6, 4));
    assert_eq!(ends.read(false), (6, 4));
    assert_eq!(ends.reader.consumed(), 10);
}

#[test]
fn the_urgent_byte_alone_is_nothing_to_read() {
    let mut ends = Ends::new();
    ends.publish(Some(0), 0, 0);
    assert_eq!(ends.read(false), (0, 0));
    ends.publish(Some(0), 0, 1);
    assert_eq!(ends.reader.available().bytes, 0);
    assert_eq!(ends.read(true), (0, 0));
    assert_eq!(ends.read(false), (1, 0));
    ends.publish(Some(0), 0, 3);
    assert_eq!(ends.read(false), (1, 2));
}

#[test]
fn in_line_a_read_stops_at_the_mark_and_goes_on_with_the_byte() {
    let mut ends = Ends::new();
    ends.reader.set_urgent_inline(true);
    ends.publish(Some(5), 3, 10);
    assert_eq!(ends.read(false), (0, 5));
    assert_eq!(ends.read(false), (5, 5));
}

#[test]
fn bytes_behind_which_the_mark_has_gone_on_are_passed_once() {
    let mut ends = Ends::new();
    ends.publish(Some(5), 0, 5);
    assert_eq!(ends.read(false), (0, 5));
    ends.publish(Some(5), 0, 6);
    ends.publish(Some(8), 6, 8);
    ends.reader.pass_urgent(true).unwrap();
    assert_eq!(ends.reader.consumed(), 6);
    ends.reader.pass_urgent(true).unwrap();
    assert_eq!(ends.read(false), (6, 2));
    ends.publish(Some(20), 6, 20);
    assert_eq!(ends.read(false), (8, 12));
    // A record that asks for the impossible is not believed.
    ends.publish(Some(40), 1000, 30);
    assert_eq!(ends.read(false), (20, 10));
}

#[test]
fn the_other_side_sees_the_cursor_as_it_is() {
    let mut ends = Ends::new();
    ends.publish(None, 0, 10);
    ends.read(false);
    let rings = ends.world.stream(ends.socket);
    assert_eq!(ReceiveBuffer::consumed(rings), Some(10));
    assert!(rings.publish_urgent(UrgentMark { offset: Some(12), byte: Some(7), passed_to: 0 }));
    assert!(!rings.publish_urgent(UrgentMark { offset: Some(12), byte: Some(7), passed_to: 0 }), "no news");
    let record = ends.world.app.record(ends.socket);
    assert_eq!(record.urgent_mark(10), Some((12, Some(7))));
    assert_eq!(record.urgent_mark(13), None);
    assert!(record.was_urgent());
}
