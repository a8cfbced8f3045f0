//! A queue and the link that drains it: at a constant rate, or at a trace's opportunities.

use base::{Duration, Instant, SeededRng};

use crate::frame::Frame;
use crate::queue::{Queue, QueueSpec};
use crate::stats::StageStats;
use crate::trace::{Cursor, OPPORTUNITY_BYTES, Trace};
use crate::units::Rate;

/// What a link adds to an IP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Nothing: the rate is that of IP packets.
    #[default]
    None,
    /// This many bytes a packet; Ethernet with preamble and gap adds 38.
    Bytes(u32),
    /// LLC/SNAP and an AAL5 trailer, then cells of 53 bytes for 48 (RFC 2684 §5.1).
    Atm,
}

impl Framing {
    /// The bytes on the link of a packet of `len` bytes.
    pub const fn on_link(self, len: u32) -> u64 {
        match self {
            Self::None => len as u64,
            Self::Bytes(extra) => len as u64 + extra as u64,
            Self::Atm => (len as u64 + 8 + 8).div_ceil(48) * 53,
        }
    }
}

/// What drains the queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Server {
    /// A serial link of constant rate.
    Rate(Rate, Framing),
    /// A link that delivers at a trace's opportunities.
    Trace(Trace),
}

/// A queue with the link behind it.
#[derive(Debug)]
pub(crate) struct Bottleneck<F> {
    queue: Queue<F>,
    link: Link,
    in_transmission: Option<F>,
    /// When something happens to the frame in transmission.
    due: Instant,
}

#[derive(Debug)]
enum Link {
    /// `remainder` is the part of a nanosecond, over the rate, that earlier frames left.
    Rate { rate: Rate, framing: Framing, remainder: u64 },
    /// `credit` bytes may still leave at this opportunity; the frame in transmission lacks `missing`.
    Trace { trace: Trace, next: Cursor, credit: u32, missing: u32 },
}

impl<F: Frame> Bottleneck<F> {
    pub(crate) fn new(server: &Server, queue: &QueueSpec, rng: SeededRng) -> Self {
        let link = match server {
            Server::Rate(rate, framing) => Link::Rate { rate: *rate, framing: *framing, remainder: 0 },
            Server::Trace(trace) => {
                let next = trace.cursor_at(Instant::ZERO);
                Link::Trace { trace: trace.clone(), next, credit: 0, missing: 0 }
            }
        };
        Self { queue: Queue::new(queue, rng), link, in_transmission: None, due: Instant::ZERO }
    }

    pub(crate) fn handle_frame(&mut self, now: Instant, frame: F, stats: &mut StageStats) {
        self.queue.handle_frame(now, frame, stats);
        if self.in_transmission.is_none() {
            self.start_next(now, stats);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.in_transmission.as_ref().map(|_| self.due)
    }

    pub(crate) fn frames(&self) -> usize {
        self.queue.frames() + usize::from(self.in_transmission.is_some())
    }

    /// The frame that leaves the link at `now`, a deadline.
    pub(crate) fn poll_frame(&mut self, now: Instant, stats: &mut StageStats) -> Option<F> {
        if now < self.due || !self.is_complete() {
            return None;
        }
        let frame = self.in_transmission.take();
        self.start_next(now, stats);
        frame
    }

    /// Uses the opportunity that has come; whether the frame in transmission has left in full.
    fn is_complete(&mut self) -> bool {
        match &mut self.link {
            Link::Rate { .. } => self.in_transmission.is_some(),
            Link::Trace { trace, next, credit, missing } => {
                if *credit == 0 {
                    *credit = OPPORTUNITY_BYTES;
                    *next = trace.after(*next);
                }
                let used = (*credit).min(*missing);
                *credit -= used;
                *missing -= used;
                if *missing > 0 {
                    self.due = trace.time_of(*next);
                }
                *missing == 0
            }
        }
    }

    fn start_next(&mut self, now: Instant, stats: &mut StageStats) {
        let Some(frame) = self.queue.poll_frame(now, stats) else {
            if let Link::Trace { credit, .. } = &mut self.link {
                *credit = 0;
            }
            return;
        };
        self.due = match &mut self.link {
            Link::Rate { rate, framing, remainder } => {
                // A packet is below 2³² bytes and its bits below 2³⁵·10⁹: 128 bits never overflow.
                let bits = u128::from(framing.on_link(frame.wire_len())) * 8;
                let scaled = bits * 1_000_000_000 + u128::from(*remainder);
                let rate = u128::from(rate.bits_per_second());
                *remainder = (scaled % rate) as u64;
                now + Duration::from_nanos((scaled / rate) as u64)
            }
            Link::Trace { trace, next, credit, missing } => {
                *missing = frame.wire_len();
                if *credit > 0 {
                    now
                } else {
                    if trace.time_of(*next) < now {
                        *next = trace.cursor_at(now);
                    }
                    trace.time_of(*next)
                }
            }
        };
        self.in_transmission = Some(frame);
    }
}
