//! The input path of `tcp`: two connections and a hostile middle box between them.
//!
//! The middle box sees every segment. It delivers, drops, repeats, exchanges, splits, joins and marks them, changes their
//! headers, makes its own, and says what routers say; meanwhile the applications write, read, close and are restarted from
//! snapshots. In every case the connections' own laws hold, what is received is what was sent, nothing goes out without
//! being wanted, timers advance. When the program is over the path is clean. Then, if no header was touched, everything
//! that was queued arrives; and if one was, the two at least do not answer each other for ever.

mod acts;
mod end;

use std::collections::VecDeque;

use base::{Duration, Instant, SeqNumber};
use tcp::{
    AccurateEcn, Config, CongestionAlgorithm, Connection, Ecn, MtuProbing, OutputLimit, SegmentIn, SegmentOut,
};
use wire::tcp::{Flags, Header};

use crate::input::Input;
pub(crate) use acts::mangle;
use end::End;

/// Initial sequence numbers: both streams cross the wrap.
const ISS: [u32; 2] = [u32::MAX - 3000, u32::MAX - 100];
/// Segments that a direction holds; more are dropped.
const LINK: usize = 1000;
/// A program's most acts.
const MOST_ACTS: usize = 400;
/// Segments exchanged on a clean path in a minute by two ends that have little to say: more is a storm.
const STORM: u64 = 20_000;
/// Retransmissions in a row after which an end may rightly give up soon.
const NEARLY_GIVEN_UP: u8 = 5;
/// How long a segment takes on the clean path.
const DELAY: Duration = Duration::from_millis(5);

/// A segment on its way.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
    pub(crate) count: u16,
    pub(crate) ecn: Ecn,
    /// Its header is not what its sender wrote.
    pub(crate) forged: bool,
}

/// Two ends and what is between them.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) ends: [End; 2],
    /// On their way to each end.
    pub(crate) links: [VecDeque<Flying>; 2],
    /// The last header that each end sent.
    pub(crate) last: [Option<Header>; 2],
    /// The middle box wrote a header, or an end may rightly end the connection.
    pub(crate) may_fail: bool,
    /// An end may have any amount to send.
    pub(crate) much_to_say: bool,
    pub(crate) delivered: u64,
}

/// Runs the program in `bytes`.
///
/// # Panics
/// If a law is broken.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::open(&mut input);
    world.play(&mut input);
    world.finish();
}

impl World {
    /// A connection that opens; the middle box may have touched its SYN.
    pub(crate) fn open(input: &mut Input<'_>) -> Self {
        let now = Instant::from_millis(10_000);
        let configs = [config(input), config(input)];
        let sizes = [input.below(3), input.below(3)].map(|choice| [0, 5000, 65_000][choice]);
        let [client, server] = [40_000, 80].map(|port| ([10, 0, 0, 1], port).into());
        let iss = ISS.map(SeqNumber);
        let mut conn = Connection::connect(now, &configs[0], client, server, iss[0], input.u32());
        let Some(syn) = conn.poll_segment(now, &OutputLimit { max_payload: 0 }) else {
            panic!("a connection begins with a SYN")
        };
        let mut syn = flying(0, &syn);
        let touched = input.below(4) == 0;
        if touched {
            let flags = syn.header.flags;
            mangle(&mut syn.header, input);
            // What is not a SYN does not open a connection, and where its stream begins is what the other end is told.
            syn.header.flags = flags;
            syn.header.seq = iss[0];
        }
        let segment = syn.as_segment(now);
        let accepted = Connection::accept(now, &configs[1], server, client, iss[1], input.u32(), &segment);
        let [first, second] = sizes;
        Self {
            now,
            ends: [End::new(0, conn, first), End::new(1, accepted, second)],
            links: Default::default(),
            last: [Some(syn.header), None],
            may_fail: touched,
            much_to_say: false,
            delivered: 0,
        }
    }

    /// Acts until the program is over.
    pub(crate) fn play(&mut self, input: &mut Input<'_>) {
        self.pump();
        for _ in 0..MOST_ACTS {
            if input.is_empty() {
                return;
            }
            acts::act(self, input);
            self.pump();
        }
    }

    /// The path is clean from now on, and the applications read and uncork.
    pub(crate) fn finish(&mut self) {
        for end in &mut self.ends {
            end.conn.set_cork(false);
            end.conn.set_window_share(u32::MAX);
            end.buffer.full = false;
            let (given_up, failing) =
                (end.conn.error().is_some(), end.conn.tcp_info(self.now).retransmits > NEARLY_GIVEN_UP);
            self.may_fail |= given_up || failing;
        }
        let before = self.delivered;
        let until = self.now + Duration::from_secs(if self.may_fail { 60 } else { 900 });
        loop {
            for end in &mut self.ends {
                end.read(self.now);
            }
            self.pump();
            if !self.may_fail && self.is_all_done() {
                return;
            }
            if self.delivered - before >= STORM {
                assert!(self.much_to_say, "they answer each other for ever: {self:#?}");
                return;
            }
            let mut next = self.deadline();
            if self.links.iter().any(|link| !link.is_empty()) {
                next = next.min(self.now + DELAY);
            }
            if next > until {
                break;
            }
            self.pass_to(next);
            for side in 0..2 {
                for _ in 0..self.links[side].len() {
                    self.deliver(side);
                }
            }
        }
        assert!(self.may_fail, "nothing was forged, and yet not everything arrived: {self:#?}");
    }

    fn is_all_done(&self) -> bool {
        (0..2).all(|side| {
            let (here, there) = (&self.ends[side].conn, &self.ends[1 - side].conn);
            here.acked_to() == here.queued_to()
                && there.received_to() == here.queued_to()
                && (!here.is_send_closed() || here.is_send_acknowledged())
        })
    }

    /// The next segment for an end arrives.
    pub(crate) fn deliver(&mut self, side: usize) {
        let Some(flying) = self.links[side].pop_front() else { return };
        self.delivered += 1;
        if let Some(reset) = self.ends[side].take(self.now, &flying) {
            self.launch(side, flying_forged(side, &reset));
        }
    }

    /// Puts a segment of `side` on its way.
    pub(crate) fn launch(&mut self, side: usize, flying: Flying) {
        if self.links[1 - side].len() < LINK {
            self.links[1 - side].push_back(flying);
        }
    }

    fn deadline(&self) -> Instant {
        let deadlines = self.ends.iter().filter_map(|end| end.conn.deadline());
        deadlines.min().unwrap_or(Instant::FAR_FUTURE).max(self.now)
    }

    /// Lets time pass up to `end`, and everything happen that is due.
    pub(crate) fn pass_to(&mut self, end: Instant) {
        for _ in 0..10_000 {
            let next = self.deadline();
            if next > end {
                break;
            }
            self.now = next;
            for end in &mut self.ends {
                end.expire(next);
            }
            self.pump();
        }
        self.now = end;
    }

    /// Advances to the next thing that is due, if it is within a day.
    pub(crate) fn pass_to_deadline(&mut self) {
        let next = self.deadline();
        if next < self.now + Duration::from_secs(86_400) {
            self.pass_to(next);
        }
    }

    /// Takes out what the ends want to send.
    pub(crate) fn pump(&mut self) {
        for side in 0..2 {
            let mut count = 0;
            while let Some(segment) = self.ends[side].poll(self.now) {
                count += 1;
                assert!(count < 100_000, "endless output: {self:#?}");
                self.last[side] = Some(segment.header.clone());
                let flying = flying(side, &segment);
                self.launch(side, flying);
            }
        }
    }
}

impl Flying {
    pub(crate) fn as_segment(&self, arrival: Instant) -> SegmentIn<'_> {
        SegmentIn {
            header: self.header.clone(),
            payload: &self.payload,
            arrival,
            segment_count: self.count,
            ecn: self.ecn,
        }
    }
}

/// A segment as it leaves, its bytes filled in. Super-segments stay whole: the middle box may split them.
fn flying(side: usize, segment: &SegmentOut) -> Flying {
    let bytes = (segment.offset..segment.offset + u64::from(segment.len)).map(|at| end::pattern(side, at));
    Flying {
        header: segment.header.clone(),
        payload: bytes.collect(),
        count: segment.len.div_ceil(u32::from(segment.segment_size)).clamp(1, 1000) as u16,
        ecn: segment.ecn,
        forged: false,
    }
}

/// The reset of an end that knows no connection: not a header of the connection's own.
fn flying_forged(side: usize, segment: &SegmentOut) -> Flying {
    Flying { forged: true, ..flying(side, segment) }
}

/// A configuration, from four bytes.
fn config(input: &mut Input<'_>) -> Config {
    let (features, sizes) = (input.byte(), input.byte());
    let probing = [MtuProbing::OnBlackHole, MtuProbing::Off, MtuProbing::Always];
    let accurate = [AccurateEcn::Accept, AccurateEcn::Off, AccurateEcn::Offer];
    let mss = [1460, 536, 8960, 88][usize::from(sizes & 3)];
    Config {
        mss,
        announced_mss: mss,
        initial_window: [65_535, 4000, 1 << 20, 100][usize::from(sizes >> 2 & 3)],
        window_limit: [6 << 20, 65_535, 1 << 30, 5000][usize::from(sizes >> 4 & 3)],
        timestamps: features & 1 == 0,
        window_scaling: features & 2 == 0,
        selective_acks: features & 4 == 0,
        ecn: features & 8 != 0,
        pacing: features & 16 == 0,
        nodelay: features & 32 != 0,
        quickack: features & 64 != 0,
        congestion: CongestionAlgorithm::ALL[input.below(3)],
        mtu_probing: probing[usize::from(sizes >> 6) % 3],
        accurate_ecn: accurate[input.below(3)],
        clock_granularity: Duration::from_micros(if features & 128 == 0 { 1 } else { 10_000 }),
        ..Config::default()
    }
}

/// The flags that a middle box plays with most.
pub(crate) const USUAL: [Flags; 6] = [
    Flags::ACK,
    Flags::RST,
    Flags::SYN,
    Flags::FIN.union(Flags::ACK),
    Flags::RST.union(Flags::ACK),
    Flags::SYN.union(Flags::ACK),
];
