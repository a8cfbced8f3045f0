//! Where everything lies in the two segments of a channel.
//!
//! Segment **A** is written by the application and read by the FEP, segment **F** the other way round. All offsets
//! follow from a [`Geometry`], which the FEP chooses, and are computed once, by `Layout::new`.
//!
//! ```text
//!   A: header · waiter slots · command ring · socket records · send area
//!   F: header · wake counters · event ring  · socket records · receive area
//! ```
//! The header's words that change are on cache lines of their own; each part starts on a page. The parts are sparse:
//! what is never touched costs no memory.

/// Marks segment A ("OUTBRD A").
pub const MAGIC_A: u64 = u64::from_le_bytes(*b"OUTBRD A");
/// Marks segment F ("OUTBRD F").
pub const MAGIC_F: u64 = u64::from_le_bytes(*b"OUTBRD F");
/// The version of this layout, of the commands, the events and the control messages. Both sides must have the same.
pub const VERSION: u32 = 7;

/// The unit of the data areas.
pub const PAGE: usize = 1 << PAGE_LOG2;
pub(crate) const PAGE_LOG2: u32 = 12;
/// The largest ring.
pub const MAX_RING: usize = 1 << MAX_RING_LOG2;
pub(crate) const MAX_RING_LOG2: u32 = 24;
const CACHE_LINE: usize = 64;

/// Most sockets of a channel.
pub const MAX_SOCKETS: u32 = 1 << 20;
/// Most waiter slots of a channel.
pub const MAX_WAITERS: u32 = 1 << 12;
/// Most entries of a ring.
pub const MAX_ENTRIES: u32 = 1 << 20;
/// Largest data area.
pub const MAX_AREA: u64 = 1 << 40;

/// Files that an application may have lent at a time.
pub const MAX_FILES: u16 = 32;
/// The least and the most bytes of a lent file that one command queues: less is not worth it, more would hold others up.
pub const MIN_FILL: usize = 16 << 10;
/// See [`MIN_FILL`].
pub const MAX_FILL: usize = 256 << 10;

/// Words of an entry of the command ring.
pub(crate) const COMMAND_WORDS: usize = 4;
/// Words of an entry of the event ring.
pub(crate) const EVENT_WORDS: usize = 2;

/// Offsets of the words in the header of A.
pub(crate) mod header_a {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 8;
    pub(crate) const COMMANDS_PRODUCED: usize = 64;
    pub(crate) const EVENTS_CONSUMED: usize = 128;
    pub(crate) const WAITERS_USED: usize = 192;
}

/// Offsets of the words in the header of F.
pub(crate) mod header_f {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 8;
    pub(crate) const SOCKETS: usize = 16;
    pub(crate) const WAITERS: usize = 20;
    pub(crate) const COMMANDS: usize = 24;
    pub(crate) const EVENTS: usize = 28;
    pub(crate) const SEND_BYTES: usize = 32;
    pub(crate) const RECEIVE_BYTES: usize = 40;
    pub(crate) const CLOSED: usize = 64;
    pub(crate) const FEP_SLEEPING: usize = 128;
    pub(crate) const COMMANDS_CONSUMED: usize = 192;
    /// Not zero: the FEP sleeps although there are more events than the ring holds.
    pub(crate) const EVENTS_WAITING: usize = 260;
    pub(crate) const EVENTS_PRODUCED: usize = 256;
    /// The answer to the last PATH_MTU command: what the path takes, and in the upper half what the link takes.
    pub(crate) const PATH_MTU: usize = 320;
    /// No path is narrower than this, as far as is known.
    pub(crate) const NARROWEST_MTU: usize = 384;
    /// The answer to the last CLAIM command: the stream offsets up to which it is read, and queued.
    pub(crate) const CLAIMED: usize = 448;
    /// How often processes had forked when this one did last.
    pub(crate) const FORKS: usize = 464;
    /// The answer to the last INFO command, [`TcpInfo`](tcp::TcpInfo) as its bytes.
    pub(crate) const INFO: usize = 1024;
    pub(crate) const INFO_WORDS: usize = 38;
    /// The answer to the last TAKE_ERROR command.
    pub(crate) const QUEUED_ERROR: usize = 2048;
}

/// A socket's record in A: offsets of its words, and its size.
pub(crate) mod record_a {
    /// Stream offset up to which the application has read.
    pub(crate) const CONSUMED: usize = 0;
    /// Wake the reader when `received` gets here.
    pub(crate) const READ_WAKE: usize = 8;
    /// Wake the writer when `acked` gets here.
    pub(crate) const WRITE_WAKE: usize = 16;
    /// Waiter to wake when readable.
    pub(crate) const READER: usize = 24;
    /// Waiter to wake when writable.
    pub(crate) const WRITER: usize = 28;
    /// Waiter to wake when a synchronous command is answered.
    pub(crate) const CALLER: usize = 32;
    /// Not zero: READY events are wanted.
    pub(crate) const WATCHED: usize = 36;
    /// Not zero: wake the reader too when `received` is here and nothing more comes for a moment.
    pub(crate) const READ_LEAST: usize = 40;
    /// Of a connection: not zero once the program has accepted it, but one more than `FORKS` then. Of a listener: how many it has
    /// accepted.
    pub(crate) const TAKEN: usize = 48;
    /// Not zero: do not wake the writer before the stream is sent up to here, either.
    pub(crate) const SENT_WAKE: usize = 56;
    pub(crate) const SIZE: usize = 64;
}

/// A socket's record in F: offsets of its words, and its size.
pub(crate) mod record_f {
    /// Stream offset up to which sent data is acknowledged.
    pub(crate) const ACKED: usize = 0;
    /// Stream offset up to which received data is in order.
    pub(crate) const RECEIVED: usize = 8;
    /// Where the receive ring lies.
    pub(crate) const RECEIVE_RING: usize = 16;
    /// [`State`](crate::State) bits, and in the upper half how many entries its queue of errors was given.
    pub(crate) const STATE: usize = 24;
    /// Count of errors in the upper half, errno of the last in the lower.
    pub(crate) const ERROR: usize = 32;
    /// Sequence of the last answered command in the upper half, its errno in the lower.
    pub(crate) const RESULT: usize = 40;
    /// The FEP wants CONSUMED when the application's cursor gets here; 0: never.
    pub(crate) const CONSUME_NOTIFY: usize = 48;
    /// Where the peer's urgent byte is, and which: [`UrgentWord`](crate::urgent::UrgentWord). On the line that a reader looks at.
    pub(crate) const URGENT: usize = 56;
    /// Three words: address (two), port, family, scope.
    pub(crate) const LOCAL: usize = 64;
    /// Three words, as `LOCAL`.
    pub(crate) const REMOTE: usize = 88;
    /// The size of a send ring that is of use, and how much of the stream was sent: [`SendWord`](crate::sending::SendWord).
    pub(crate) const SENDING: usize = 112;
    /// Stream offset up to which queued bytes are in the send ring: the FEP reads lent files into it.
    pub(crate) const FILLED: usize = 120;
    /// What it is called wherever it goes: processes that fork share their sockets. 0: it cannot be shared (yet).
    pub(crate) const IDENTITY: usize = 128;
    pub(crate) const SIZE: usize = 192;
}

const _: () = {
    assert!(record_a::TAKEN + 4 <= record_a::SENT_WAKE);
    assert!(record_a::SENT_WAKE + 8 <= record_a::SIZE && record_a::SIZE.is_multiple_of(CACHE_LINE));
    assert!(record_f::LOCAL + 24 <= record_f::REMOTE && record_f::REMOTE + 24 <= record_f::SENDING);
    assert!(record_f::SENDING < record_f::FILLED && record_f::FILLED < record_f::IDENTITY);
    assert!(record_f::IDENTITY + 8 <= record_f::SIZE);
    assert!(header_f::EVENTS_PRODUCED + CACHE_LINE <= header_f::PATH_MTU);
    assert!(header_f::PATH_MTU + CACHE_LINE <= header_f::NARROWEST_MTU);
    assert!(header_f::NARROWEST_MTU + CACHE_LINE <= header_f::CLAIMED);
    assert!(header_f::CLAIMED + CACHE_LINE <= header_f::INFO);
    assert!(header_f::INFO + 8 * header_f::INFO_WORDS <= header_f::QUEUED_ERROR);
    assert!(header_f::QUEUED_ERROR + crate::queued::SIZE <= PAGE);
    assert!(
        tcp::TcpInfo::SIZE == 8 * header_f::INFO_WORDS && header_f::INFO + 8 * header_f::INFO_WORDS <= PAGE
    );
    assert!(record_f::SIZE.is_multiple_of(CACHE_LINE));
    assert!(header_a::WAITERS_USED + CACHE_LINE <= PAGE && header_f::EVENTS_PRODUCED + CACHE_LINE <= PAGE);
    assert!(PAGE_LOG2 < MAX_RING_LOG2);
};

/// The sizes of a channel's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Socket records; an even number. The lower half of the numbers is the application's to give, the upper the FEP's.
    pub sockets: u32,
    /// Waiter slots.
    pub waiters: u32,
    /// Entries of the command ring, a power of two.
    pub commands: u32,
    /// Entries of the event ring, a power of two.
    pub events: u32,
    /// Bytes of the send area in A, whole pages.
    pub send_bytes: u64,
    /// Bytes of the receive area in F, whole pages.
    pub receive_bytes: u64,
}

impl Geometry {
    /// Whether the numbers are within the bounds of this layout.
    pub fn is_valid(&self) -> bool {
        let entries = |count: u32| count.is_power_of_two() && (2..=MAX_ENTRIES).contains(&count);
        let area =
            |bytes: u64| bytes.is_multiple_of(PAGE as u64) && (PAGE as u64..=MAX_AREA).contains(&bytes);
        (2..=MAX_SOCKETS).contains(&self.sockets)
            && self.sockets.is_multiple_of(2)
            && (1..=MAX_WAITERS).contains(&self.waiters)
            && entries(self.commands)
            && entries(self.events)
            && area(self.send_bytes)
            && area(self.receive_bytes)
    }
}

/// The offsets of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    pub(crate) slots: usize,
    pub(crate) commands: usize,
    pub(crate) records_a: usize,
    pub(crate) send_area: usize,
    pub(crate) a_len: usize,
    pub(crate) wakes: usize,
    pub(crate) events: usize,
    pub(crate) records_f: usize,
    pub(crate) receive_area: usize,
    pub(crate) f_len: usize,
}

impl Layout {
    /// The layout of a valid geometry; `None` for one that is not.
    pub(crate) fn new(geometry: Geometry) -> Option<Self> {
        if !geometry.is_valid() {
            return None;
        }
        let (sockets, waiters) = (geometry.sockets as usize, geometry.waiters as usize);
        let slots = PAGE;
        let commands = slots + whole_pages(waiters * CACHE_LINE);
        let records_a = commands + whole_pages(geometry.commands as usize * COMMAND_WORDS * 8);
        let send_area = records_a + whole_pages(sockets * record_a::SIZE);
        let wakes = PAGE;
        let events = wakes + whole_pages(waiters * CACHE_LINE);
        let records_f = events + whole_pages(geometry.events as usize * EVENT_WORDS * 8);
        let receive_area = records_f + whole_pages(sockets * record_f::SIZE);
        Some(Self {
            geometry,
            slots,
            commands,
            records_a,
            send_area,
            a_len: send_area + geometry.send_bytes as usize,
            wakes,
            events,
            records_f,
            receive_area,
            f_len: receive_area + geometry.receive_bytes as usize,
        })
    }

    /// Offset in A of a waiter slot's sleeping token.
    pub(crate) fn sleeping(&self, slot: u32) -> usize {
        debug_assert!(slot < self.geometry.waiters);
        self.slots + slot as usize * CACHE_LINE
    }

    /// Offset in F of a waiter slot's wake counter.
    pub(crate) fn wake(&self, slot: u32) -> usize {
        debug_assert!(slot < self.geometry.waiters);
        self.wakes + slot as usize * CACHE_LINE
    }

    /// Offset in A of a socket's record.
    pub(crate) fn record_a(&self, socket: u32) -> usize {
        debug_assert!(socket < self.geometry.sockets);
        self.records_a + socket as usize * record_a::SIZE
    }

    /// Offset in F of a socket's record.
    pub(crate) fn record_f(&self, socket: u32) -> usize {
        debug_assert!(socket < self.geometry.sockets);
        self.records_f + socket as usize * record_f::SIZE
    }

    /// The first socket number that the FEP gives.
    pub(crate) fn first_accepted(&self) -> u32 {
        self.geometry.sockets / 2
    }
}

fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// Where a ring lies in its segment, in one word: 0 for none, else the offset in pages (32 bits), the logarithm of the
/// size (8 bits) and a generation (24 bits) that tells successive rings of one socket apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingLocation(pub u64);

impl RingLocation {
    /// No ring.
    pub const NONE: Self = Self(0);

    /// A ring of `1 << log2` bytes at `offset`, a multiple of [`PAGE`] that is not 0.
    pub(crate) fn new(offset: usize, log2: u32, generation: u32) -> Self {
        debug_assert!(offset.is_multiple_of(PAGE) && offset > 0);
        let pages = (offset >> PAGE_LOG2) as u64 & 0xffff_ffff;
        Self(pages | u64::from(log2) << 32 | u64::from(generation & 0xff_ffff) << 40)
    }

    /// Whether there is no ring.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Offset in the segment and size, if the ring lies whole within `[start, end)` of it.
    pub(crate) fn within(self, start: usize, end: usize) -> Option<(usize, usize)> {
        let offset = ((self.0 & 0xffff_ffff) as usize) << PAGE_LOG2;
        let log2 = (self.0 >> 32) as u32 & 0xff;
        if !(PAGE_LOG2..=MAX_RING_LOG2).contains(&log2) {
            return None;
        }
        let size = 1usize << log2;
        (offset >= start && offset.checked_add(size)? <= end).then_some((offset, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn geometries()(sockets in 1u32..=1 << 19, waiters in 1u32..=MAX_WAITERS, commands in 1u32..=20, events in 1u32..=20,
                        send in 1u64..1 << 20, receive in 1u64..1 << 20) -> Geometry {
            Geometry {
                sockets: sockets * 2, waiters, commands: 1 << commands, events: 1 << events,
                send_bytes: send * PAGE as u64, receive_bytes: receive * PAGE as u64,
            }
        }
    }

    proptest! {
        #[test]
        fn parts_do_not_overlap(geometry in geometries()) {
            let layout = Layout::new(geometry).unwrap();
            let last = (geometry.waiters - 1, geometry.sockets - 1);
            prop_assert!(layout.sleeping(last.0) + CACHE_LINE <= layout.commands);
            prop_assert!(layout.commands + geometry.commands as usize * 32 <= layout.records_a);
            prop_assert!(layout.record_a(last.1) + record_a::SIZE <= layout.send_area);
            prop_assert_eq!(layout.send_area + geometry.send_bytes as usize, layout.a_len);
            prop_assert!(layout.wake(last.0) + CACHE_LINE <= layout.events);
            prop_assert!(layout.events + geometry.events as usize * 16 <= layout.records_f);
            prop_assert!(layout.record_f(last.1) + record_f::SIZE <= layout.receive_area);
            prop_assert_eq!(layout.receive_area + geometry.receive_bytes as usize, layout.f_len);
            for offset in [layout.slots, layout.commands, layout.records_a, layout.send_area, layout.a_len,
                           layout.wakes, layout.events, layout.records_f, layout.receive_area, layout.f_len] {
                prop_assert_eq!(offset % PAGE, 0);
            }
        }

        #[test]
        fn a_location_lies_within_or_is_none(word: u64, start in 1usize..64, pages in 1usize..8192) {
            let (start, end) = (start * PAGE, (start + pages) * PAGE);
            if let Some((offset, size)) = RingLocation(word).within(start, end) {
                prop_assert!(offset >= start && offset + size <= end && size.is_power_of_two());
            }
        }

        #[test]
        fn a_location_says_what_was_put_in(page in 1usize..1 << 20, log2 in 12u32..=24, generation: u32) {
            let location = RingLocation::new(page * PAGE, log2, generation);
            prop_assert_eq!(location.within(0, usize::MAX), Some((page * PAGE, 1 << log2)));
            prop_assert!(!location.is_none());
        }
    }

    #[test]
    fn the_layout_is_what_version_7_says() {
        let geometry = Geometry {
            sockets: 1024,
            waiters: 64,
            commands: 1024,
            events: 1024,
            send_bytes: 1 << 20,
            receive_bytes: 1 << 21,
        };
        let layout = Layout::new(geometry).unwrap();
        let a = [layout.slots, layout.commands, layout.records_a, layout.send_area, layout.a_len];
        assert_eq!(a, [0x1000, 0x2000, 0xa000, 0x1a000, 0x11a000]);
        let f = [layout.wakes, layout.events, layout.records_f, layout.receive_area, layout.f_len];
        assert_eq!(f, [0x1000, 0x2000, 0x6000, 0x36000, 0x236000]);
    }

    #[test]
    fn impossible_geometries_are_refused() {
        let good = Geometry {
            sockets: 64,
            waiters: 8,
            commands: 64,
            events: 64,
            send_bytes: 1 << 20,
            receive_bytes: 1 << 20,
        };
        assert!(good.is_valid());
        for bad in [
            Geometry { sockets: 0, ..good },
            Geometry { sockets: 3, ..good },
            Geometry { sockets: MAX_SOCKETS + 2, ..good },
            Geometry { waiters: 0, ..good },
            Geometry { waiters: MAX_WAITERS + 1, ..good },
            Geometry { commands: 3, ..good },
            Geometry { commands: 1, ..good },
            Geometry { events: 0, ..good },
            Geometry { events: 1 << 21, ..good },
            Geometry { send_bytes: 100, ..good },
            Geometry { send_bytes: 0, ..good },
            Geometry { receive_bytes: MAX_AREA + PAGE as u64, ..good },
        ] {
            assert_eq!(Layout::new(bad), None, "{bad:?}");
        }
    }
}
