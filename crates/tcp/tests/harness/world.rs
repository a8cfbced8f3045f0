//! Two connections over an emulated link on virtual time, repeatable from a seed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base::{Duration, Instant, Rng, SeededRng};
use tcp::{
    Config, Connection, Ecn, IsnGenerator, OutputLimit, SegmentIn, SegmentOut, Snapshot, State, Verdict,
    VerdictCounters,
};
use wire::tcp::{Flags, Header};

use super::{CheckedBuffer, pattern};

/// One direction of the link.
#[derive(Clone, Debug)]
pub struct Path {
    pub delay: Duration,
    /// Extra delay for a segment that is reordered.
    pub jitter: Duration,
    /// Probabilities a wire segment.
    pub loss: f64,
    pub duplicate: f64,
    pub reorder: f64,
    /// Bytes a second; 0: infinitely fast.
    pub rate: u64,
    /// Bytes that may wait for the link.
    pub queue: u64,
    /// Segments that wait behind this many bytes are marked, if they can be; 0: never.
    pub mark: u64,
    /// Put neighbouring segments together on arrival, up to this many (1: never).
    pub coalesce: u16,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            rate: 0,
            queue: 1 << 40,
            mark: 0,
            coalesce: 1,
        }
    }
}

/// A segment on its way.
#[derive(Clone, Debug)]
pub struct Flying {
    pub header: Header,
    pub payload: Vec<u8>,
    pub count: u16,
    pub ecn: Ecn,
}

pub struct Host {
    pub conn: Connection,
    pub buffer: CheckedBuffer,
    /// The application sends the stream up to this offset.
    pub to_send: u64,
    /// It queues at most this much beyond what is acknowledged.
    pub send_buffer: u64,
    /// It does not read.
    pub paused: bool,
    /// It shuts sending down when all is queued.
    pub close_when_sent: bool,
    pub verdicts: VerdictCounters,
    pub max_payload: u32,
    /// Everything it sent, for tests that look.
    pub log: Vec<(Instant, Header, u32)>,
    pub keep_log: bool,
    /// The stream is all zeros and is not checked: for long runs.
    pub plain: bool,
    busy_until: Instant,
}

pub struct World {
    pub now: Instant,
    pub hosts: [Host; 2],
    pub paths: [Path; 2],
    pub rng: SeededRng,
    pub seed: u64,
    /// Arrivals at each host.
    flying: BTreeMap<(Instant, u64), (usize, Flying)>,
    serial: u64,
    /// Drop the segments (by side and index among those with payload) listed here.
    /// The clock that the connections see advances in steps of this.
    pub tick: Duration,
    pub drop_list: Vec<(usize, u64)>,
    data_index: [u64; 2],
    /// A burst of this many data segments from host 0 is lost, with this probability a segment.
    pub burst: (f64, u32),
    burst_left: u32,
    pub delivered_segments: u64,
    pub dropped: u64,
    /// Called for each arriving segment; says whether to deliver it.
    pub filter: Option<fn(usize, &Flying) -> bool>,
}

pub fn addresses() -> [SocketAddr; 2] {
    ["10.0.0.1:40000".parse().unwrap(), "10.0.0.2:80".parse().unwrap()]
}

impl World {
    /// A connection being opened by host 0 to host 1, whose side is made when the SYN arrives.
    pub fn new(seed: u64, config: &Config, path: &Path) -> Self {
        Self::with_configs(seed, [config.clone(), config.clone()], [path.clone(), path.clone()])
    }

    pub fn with_configs(seed: u64, configs: [Config; 2], paths: [Path; 2]) -> Self {
        let mut rng = SeededRng::new(seed);
        let now = Instant::from_millis(1000 + rng.below(1_000_000));
        let [a, b] = addresses();
        let mut key = [0; 16];
        key[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        let isn = IsnGenerator::new(key);
        let mut client =
            Connection::connect(now, &configs[0], a, b, isn.isn(now, a, b), isn.timestamp_offset(a, b));
        let syn = client.poll_segment(now, &OutputLimit { max_payload: 0 }).unwrap();
        let syn =
            SegmentIn { header: syn.header, payload: &[], arrival: now, segment_count: 1, ecn: Ecn::NotEct };
        let server = Connection::accept(
            now + paths[0].delay,
            &configs[1],
            b,
            a,
            isn.isn(now, b, a),
            isn.timestamp_offset(b, a),
            &syn,
        );
        let mut world = Self::from_connections(seed, [client, server], paths);
        world.now = now + world.paths[0].delay;
        world.rng = rng;
        world
    }

    pub fn from_connections(seed: u64, connections: [Connection; 2], paths: [Path; 2]) -> Self {
        let mut side = 0;
        let hosts = connections.map(|conn| {
            side += 1;
            Host {
                conn,
                buffer: CheckedBuffer::new(2 - side),
                to_send: 0,
                send_buffer: 4 << 20,
                paused: false,
                close_when_sent: false,
                verdicts: VerdictCounters::default(),
                max_payload: 0,
                log: Vec::new(),
                keep_log: false,
                plain: false,
                busy_until: Instant::ZERO,
            }
        });
        Self {
            now: Instant::from_millis(1000),
            hosts,
            paths,
            rng: SeededRng::new(seed),
            seed,
            flying: BTreeMap::new(),
            serial: 0,
            tick: Duration::from_nanos(1),
            drop_list: Vec::new(),
            data_index: [0; 2],
            burst: (0.0, 0),
            burst_left: 0,
            delivered_segments: 0,
            dropped: 0,
            filter: None,
        }
    }

    /// Runs until `done`, or fails when `limit` of virtual time has passed.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now + limit;
        self.pump();
        while !done(self) {
            let Some(next) = self.next_time() else {
                panic!("seed {}: nothing left to happen: {}", self.seed, self.describe())
            };
            assert!(next <= end, "seed {}: not done after {limit:?}: {}", self.seed, self.describe());
            self.step(next);
        }
    }

    /// Runs for a span of virtual time.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        self.pump();
        while let Some(next) = self.next_time().filter(|&next| next <= end) {
            self.step(next);
        }
        self.now = end;
    }

    pub fn established(&mut self) {
        self.run_until(Duration::from_secs(60), |world| {
            world.hosts.iter().all(|host| host.conn.state() == State::Established)
        });
    }

    pub fn describe(&self) -> String {
        self.hosts
            .iter()
            .map(|host| {
                format!(
                    "\n{} acked {} sent {} queued {} of {} received {} deadline {:?} {:?} error {:?}",
                    host.conn.state(),
                    host.conn.acked_to(),
                    host.conn.sent_to(),
                    host.conn.queued_to(),
                    host.to_send,
                    host.conn.received_to(),
                    host.conn.deadline(),
                    host.conn.info(),
                    host.conn.error()
                )
            })
            .collect()
    }

    fn next_time(&self) -> Option<Instant> {
        let arrival = self.flying.keys().next().map(|&(at, _)| at);
        let tick = self.tick.as_nanos();
        let deadlines = self.hosts.iter().filter_map(|host| host.conn.deadline());
        let deadlines =
            deadlines.map(|at| Instant::from_nanos(at.as_nanos().div_ceil(tick).saturating_mul(tick)));
        arrival.into_iter().chain(deadlines).min().map(|at| at.max(self.now))
    }

    /// The time as the connections see it.
    fn clock(&self) -> Instant {
        let tick = self.tick.as_nanos();
        Instant::from_nanos(self.now.as_nanos() / tick * tick)
    }

    fn step(&mut self, at: Instant) {
        self.now = at;
        let clock = self.clock();
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= at) {
            let (side, mut segment) = entry.remove();
            self.coalesce(side, at, &mut segment);
            self.deliver(side, &segment);
        }
        for host in &mut self.hosts {
            if host.conn.deadline().is_some_and(|deadline| deadline <= clock) {
                host.conn.handle_deadline(clock);
                assert!(host.conn.deadline().is_none_or(|next| next > clock), "a timer did not advance");
            }
        }
        self.pump();
    }

    fn coalesce(&mut self, side: usize, at: Instant, segment: &mut Flying) {
        let most = self.paths[1 - side].coalesce;
        while segment.count < most && !segment.payload.is_empty() {
            let Some(entry) = self.flying.first_entry() else { break };
            let (to, next) = entry.get();
            let follows = *to == side
                && entry.key().0 <= at
                && next.header.seq == segment.header.seq + segment.payload.len() as u32
                && next.header.ack == segment.header.ack
                && next.header.flags.difference(Flags::PSH) == segment.header.flags
                && next.header.options == segment.header.options
                && next.header.window == segment.header.window
                && segment.payload.len().is_multiple_of(usize::from(segment.count))
                && next.payload.len() <= segment.payload.len() / usize::from(segment.count)
                && !next.payload.is_empty();
            if !follows {
                break;
            }
            let (_, next) = entry.remove();
            segment.payload.extend_from_slice(&next.payload);
            segment.header.flags |= next.header.flags;
            segment.count += 1;
            if segment.header.flags.contains(Flags::PSH) {
                break;
            }
        }
    }

    /// Hands a segment to a host and keeps the laws.
    pub fn deliver(&mut self, side: usize, segment: &Flying) -> Verdict {
        if self.filter.is_some_and(|filter| !filter(side, segment)) {
            return Verdict::Closed;
        }
        self.delivered_segments += u64::from(segment.count);
        let clock = self.clock();
        let host = &mut self.hosts[side];
        host.buffer.limit = host.conn.consumed_to() + host.conn.receive_limit();
        let before = (host.conn.received_to(), host.conn.acked_to());
        let input = SegmentIn {
            header: segment.header.clone(),
            payload: &segment.payload,
            arrival: clock,
            segment_count: segment.count,
            ecn: segment.ecn,
        };
        let verdict = host.conn.handle_segment(clock, &input, &mut host.buffer);
        host.verdicts.add(verdict);
        let reset = if verdict.wants_reset() { tcp::reset_for(&input) } else { None };
        assert!(host.conn.received_to() >= before.0 && host.conn.acked_to() >= before.1);
        assert!(
            host.buffer.covers(host.conn.received_to()),
            "seed {}: received up to what was not placed",
            self.seed
        );
        host.conn.check_invariants().unwrap_or_else(|law| panic!("seed {}: {law}", self.seed));
        if let Some(reset) = reset {
            self.put_on_link(side, cut(side, &reset, false).remove(0));
        }
        verdict
    }

    /// Applications and output of both hosts.
    pub fn pump(&mut self) {
        for side in 0..2 {
            let now = self.clock();
            let host = &mut self.hosts[side];
            let conn = &mut host.conn;
            if !host.paused {
                let received = conn.received_to();
                conn.handle_consumed(now, received);
            }
            let queue = host.to_send.min(conn.acked_to() + host.send_buffer);
            conn.handle_send(queue);
            if host.close_when_sent && conn.queued_to() >= host.to_send && !conn.is_send_closed() {
                conn.handle_shutdown();
            }
            let limit = OutputLimit { max_payload: host.max_payload };
            let mut count = 0;
            let mut wanted = conn.wants_output(now);
            while let Some(segment) = self.hosts[side].conn.poll_segment(now, &limit) {
                assert!(wanted, "seed {}: output without wants_output", self.seed);
                count += 1;
                assert!(count < 100_000, "seed {}: endless output", self.seed);
                self.transmit(side, &segment);
                wanted = self.hosts[side].conn.wants_output(now);
            }
            let conn = &self.hosts[side].conn;
            assert!(
                !conn.wants_output(now),
                "seed {}: wants output but has none: {}",
                self.seed,
                self.describe()
            );
            conn.check_invariants().unwrap_or_else(|law| panic!("seed {}: {law}", self.seed));
        }
    }

    fn transmit(&mut self, side: usize, segment: &SegmentOut) {
        let host = &mut self.hosts[side];
        // A probe of the path's MTU is one segment, larger than the others.
        let one = segment.len == u32::from(segment.segment_size);
        assert!(one || segment.len <= host.max_payload.max(u32::from(host.conn.mss())));
        if host.keep_log {
            host.log.push((self.now, segment.header.clone(), segment.len));
        }
        for piece in cut(side, segment, host.plain) {
            self.put_on_link(side, piece);
        }
    }

    fn put_on_link(&mut self, side: usize, mut piece: Flying) {
        let path = self.paths[side].clone();
        if !piece.payload.is_empty() {
            let index = self.data_index[side];
            self.data_index[side] += 1;
            if side == 0 && self.burst_left == 0 && self.burst.0 > 0.0 && self.rng.unit() < self.burst.0 {
                self.burst_left = self.burst.1;
            }
            if side == 0 && self.burst_left > 0 {
                self.burst_left -= 1;
                self.dropped += 1;
                return;
            }
            if self.drop_list.contains(&(side, index)) {
                self.dropped += 1;
                return;
            }
        }
        if self.rng.unit() < path.loss {
            self.dropped += 1;
            return;
        }
        let size = piece.payload.len() as u64 + 40 + piece.header.options.emitted_len() as u64;
        let busy_until = self.hosts[side].busy_until;
        let mut departure = self.now.max(busy_until);
        if path.rate > 0 {
            let waiting = departure.saturating_since(self.now).as_nanos() as u128 * u128::from(path.rate)
                / 1_000_000_000;
            if path.mark > 0 && waiting as u64 > path.mark && piece.ecn != Ecn::NotEct {
                piece.ecn = Ecn::Ce;
            }
            if waiting as u64 + size > path.queue {
                self.dropped += 1;
                return;
            }
            departure += Duration::from_nanos(size * 1_000_000_000 / path.rate);
            self.hosts[side].busy_until = departure;
        }
        let copies = if self.rng.unit() < path.duplicate { 2 } else { 1 };
        for _ in 0..copies {
            let mut arrival = departure + path.delay;
            if self.rng.unit() < path.reorder {
                arrival += Duration::from_nanos(self.rng.below(path.jitter.as_nanos() + 1));
            }
            self.serial += 1;
            self.flying.insert((arrival, self.serial), (1 - side, piece.clone()));
        }
    }

    /// Takes a snapshot of a host's connection and goes on from it: output already given out is on its way or lost.
    pub fn restart(&mut self, side: usize) {
        let host = &mut self.hosts[side];
        let snapshot = host.conn.snapshot();
        let copy = Snapshot::from_bytes(*snapshot.as_bytes());
        host.conn = Connection::restore(&copy, self.now).unwrap();
        let received = host.conn.received_to();
        host.buffer.forget_beyond(received);
    }

    /// Everything sent has arrived, and both sides know.
    pub fn transfers_done(&self) -> bool {
        (0..2).all(|side| {
            self.hosts[side].conn.acked_to() == self.hosts[side].to_send
                && self.hosts[1 - side].conn.received_to() == self.hosts[side].to_send
        })
    }

    pub fn both_closed(&self) -> bool {
        self.hosts.iter().all(|host| matches!(host.conn.state(), State::Closed | State::TimeWait))
    }
}

/// The wire segments of a super-segment, as a device cuts them.
pub fn cut(side: usize, segment: &SegmentOut, plain: bool) -> Vec<Flying> {
    let size = u32::from(segment.segment_size);
    let pieces = segment.len.div_ceil(size).max(1);
    (0..pieces)
        .map(|index| {
            let from = index * size;
            let len = size.min(segment.len - from.min(segment.len));
            let mut header = segment.header.clone();
            header.seq += from;
            if index + 1 < pieces {
                header.flags.remove(Flags::FIN | Flags::PSH);
            }
            if index > 0 {
                header.flags.remove(Flags::CWR);
            }
            let offset = segment.offset + u64::from(from);
            let payload = if plain {
                vec![0; len as usize]
            } else {
                (0..u64::from(len)).map(|i| pattern(side, offset + i)).collect()
            };
            Flying { header, payload, count: 1, ecn: segment.ecn }
        })
        .collect()
}
