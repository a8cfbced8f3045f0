//! Paths as a user sees them: frames and times in, frames and times out.

use base::{Duration, Instant, SeededRng};
use netem::trace::Trace;
use netem::{Frame, Output, Path, PathSpec, StageStats};

/// A numbered frame of a length.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbered {
    number: u64,
    len: u32,
    flipped: u32,
}

impl Frame for Numbered {
    fn wire_len(&self) -> u32 {
        self.len
    }
    fn mark_congestion(&mut self) -> bool {
        false
    }
    fn flip_bit(&mut self, bit: u64) {
        assert!(bit < u64::from(self.len) * 8);
        self.flipped += 1;
    }
    fn duplicate(&mut self) -> Option<Self> {
        Some(self.clone())
    }
}

/// A path and what has come out of it.
struct Bench {
    path: Path<Numbered>,
    arrivals: Vec<(Instant, u64)>,
    flipped: u32,
    too_big: Vec<u32>,
}

impl Bench {
    fn new(text: &str, seed: u64) -> Self {
        Self::of(&text.parse().expect("a path"), seed)
    }

    fn of(spec: &PathSpec, seed: u64) -> Self {
        let path = Path::new(spec, &mut SeededRng::new(seed));
        Self { path, arrivals: Vec::new(), flipped: 0, too_big: Vec::new() }
    }

    /// Sends `count` frames of `len` bytes, one each `gap`, and drains the path.
    fn run(mut self, count: u64, len: u32, gap: Duration) -> Self {
        for number in 0..count {
            let now = Instant::from_nanos(gap.as_nanos() * number);
            self.drain(now);
            self.path.handle_frame(now, Numbered { number, len, flipped: 0 });
            self.collect(now);
        }
        self.drain(Instant::FAR_FUTURE);
        assert_eq!(self.path.frames(), 0);
        self
    }

    fn drain(&mut self, until: Instant) {
        while let Some(at) = self.path.deadline().filter(|at| *at <= until) {
            self.collect(at);
        }
    }

    fn collect(&mut self, now: Instant) {
        while let Some(output) = self.path.poll_output(now) {
            match output {
                Output::Deliver(frame) => {
                    self.flipped += frame.flipped;
                    self.arrivals.push((now, frame.number));
                }
                Output::TooBig { mtu, .. } => self.too_big.push(mtu),
            }
        }
    }

    fn numbers(&self) -> Vec<u64> {
        self.arrivals.iter().map(|(_, number)| *number).collect()
    }

    fn stats(&self, index: usize) -> StageStats {
        self.path.stats().nth(index).map(|(_, stats)| *stats).expect("a stage of that index")
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn serialisation_and_propagation_add_up_exactly() {
    // 1500 bytes at 12 Mbit/s take 1 ms.
    let bench = Bench::new("rate 12mbit, delay 10ms", 1).run(3, 1500, Duration::ZERO);
    let expected = [11, 12, 13].map(Instant::from_millis);
    assert_eq!(bench.arrivals.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected);
}

#[test]
fn the_rate_holds_over_a_long_time_to_the_nanosecond() {
    // 9180 · 8 / 527 Mbit/s is not a whole number of nanoseconds; the remainder is carried.
    let bench = Bench::new("rate 527mbit, queue 10GB", 1).run(100_000, 9180, Duration::ZERO);
    let expected = 100_000u128 * 9180 * 8 * 1_000_000_000 / 527_000_000;
    assert_eq!(u128::from(bench.arrivals.last().unwrap().0.as_nanos()), expected);
}

#[test]
fn framing_costs_what_the_link_adds() {
    let atm = Bench::new("rate 424mbit atm", 1).run(1, 9180, MS);
    // 9196 bytes with LLC and trailer: 192 cells of 53 bytes, 8 µs each hundred bits at 424 Mbit/s.
    assert_eq!(atm.arrivals[0].0.as_micros(), 192);
    let ethernet = Bench::new("rate 1gbit ethernet", 1).run(1, 1500, MS);
    assert_eq!(ethernet.arrivals[0].0.as_nanos(), 1538 * 8);
}

#[test]
fn a_full_queue_drops_and_an_empty_path_forgets() {
    let bench = Bench::new("rate 12mbit, queue 4500B", 1).run(10, 1500, Duration::ZERO);
    assert_eq!(bench.numbers(), [0, 1, 2, 3]);
    assert_eq!(bench.stats(0).dropped, 6);
    assert_eq!(bench.stats(0).peak_bytes, 4500);
    assert_eq!(bench.path.dropped(), 6);
}

#[test]
fn the_same_seed_repeats_and_another_differs() {
    let text = "rate 100mbit, queue 50pkt red min 10KB max 40KB, delay 5ms jitter 2ms normal reorder, loss 2%, \
                duplicate 1%, reorder 2% 1..5pkt, corrupt 1%";
    let run = |seed| Bench::new(text, seed).run(3000, 1500, Duration::from_micros(115)).arrivals;
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_stage_added_behind_leaves_earlier_draws_alone() {
    let lost = |text| {
        let bench = Bench::new(text, 3).run(2000, 100, MS);
        (0..2000).filter(|number| !bench.numbers().contains(number)).collect::<Vec<_>>()
    };
    assert_eq!(lost("loss 1%, delay 1ms"), lost("loss 1%, delay 1ms jitter 1ms, duplicate 1%"));
}

#[test]
fn jitter_keeps_the_order_unless_told_otherwise() {
    let in_order = Bench::new("delay 20ms jitter 15ms", 2).run(1000, 100, MS);
    assert!(in_order.numbers().is_sorted());
    let any_order = Bench::new("delay 20ms jitter 15ms reorder", 2).run(1000, 100, MS);
    assert!(!any_order.numbers().is_sorted());
    assert!(any_order.stats(0).reordered > 100);
    for bench in [in_order, any_order] {
        assert!(bench.arrivals.iter().all(|(at, number)| (5..=35).contains(&(at.as_millis() - number))));
    }
    let normal = Bench::new("delay 20ms jitter 5ms normal reorder", 2).run(2000, 100, MS);
    let within = normal.arrivals.iter().filter(|(at, number)| (at.as_millis() - number).abs_diff(20) <= 5);
    assert!((0.62..0.78).contains(&(within.count() as f64 / 2000.0)));
}

#[test]
fn bursts_start_with_their_probability_and_have_their_length() {
    let count = 2_000_000;
    let bench = Bench::new("loss burst 3 3e-4", 5).run(count, 100, MS);
    let share = bench.stats(0).dropped as f64 / count as f64;
    assert!((8.3e-4..9.7e-4).contains(&share), "{share}");
    let gaps = bench
        .numbers()
        .windows(2)
        .map(|pair| pair[1] - pair[0] - 1)
        .filter(|gap| *gap > 0)
        .collect::<Vec<_>>();
    assert!(gaps.iter().filter(|gap| **gap == 3).count() * 100 > gaps.len() * 98);
}

#[test]
fn gilbert_elliott_loses_in_runs() {
    let count = 1_000_000;
    let bench = Bench::new("loss gilbert 1% 25%", 5).run(count, 100, MS);
    // The share of the bad state is p / (p + r).
    let share = bench.stats(0).dropped as f64 / count as f64;
    assert!((0.036..0.041).contains(&share), "{share}");
    let runs = bench.numbers().windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
    let mean = bench.stats(0).dropped as f64 / runs as f64;
    assert!((3.8..4.2).contains(&mean), "{mean}");
}

#[test]
fn an_explicit_list_loses_exactly_that() {
    let bench = Bench::new("loss packets 1 4 6..7", 1).run(8, 100, MS);
    assert_eq!(bench.numbers(), [1, 2, 4, 7]);
}

#[test]
fn reordering_by_packets_lets_that_many_pass() {
    let spec = "reorder 1% 4pkt";
    let bench = Bench::new(spec, 9).run(10_000, 100, MS);
    let held = bench.stats(0).reordered;
    assert!((60..140).contains(&held), "{held}");
    let numbers = bench.numbers();
    assert_eq!(numbers.len(), 10_000);
    let late: Vec<u64> = (0..numbers.len())
        .filter(|index| numbers[..*index].iter().rev().take(10).any(|earlier| *earlier > numbers[*index]))
        .map(|index| {
            (numbers[..index].iter().rev().take(10)).filter(|earlier| **earlier > numbers[index]).count()
                as u64
        })
        .collect();
    assert!(late.iter().filter(|passed| **passed == 4).count() * 10 > late.len() * 8);
}

#[test]
fn the_last_packet_is_not_held_for_ever() {
    let bench = Bench::new("reorder 100% 10pkt", 9).run(3, 100, MS);
    assert_eq!(bench.numbers(), [0, 1, 2]);
    assert_eq!(bench.arrivals[0].0, Instant::from_millis(200));
}

#[test]
fn reordering_by_time_stays_within_it() {
    let bench = Bench::new("reorder 10% 2ms..10ms", 9).run(10_000, 100, MS);
    let held = bench.arrivals.iter().map(|(at, number)| at.saturating_since(Instant::from_millis(*number)));
    let held: Vec<Duration> = held.filter(|span| *span > Duration::ZERO).collect();
    assert_eq!(held.len() as u64, bench.stats(0).reordered);
    assert!(held.iter().all(|span| (2..=10).contains(&span.as_millis())));
}

#[test]
fn duplicates_and_damage_are_counted() {
    let bench = Bench::new("duplicate 10%, corrupt 10% bits 3", 4).run(10_000, 100, MS);
    let copies = bench.stats(0).duplicated;
    assert!((900..1100).contains(&copies));
    assert_eq!(bench.arrivals.len() as u64, 10_000 + copies);
    let corrupted = bench.stats(1).corrupted;
    assert!((950..1250).contains(&corrupted));
    assert_eq!(u64::from(bench.flipped), 3 * corrupted);
}

#[test]
fn the_mtu_answers_or_swallows() {
    let told = Bench::new("mtu 1400", 1).run(2, 1500, MS);
    assert_eq!((told.too_big.as_slice(), told.arrivals.len()), (&[1400, 1400][..], 0));
    let hole = Bench::new("mtu 1400 blackhole", 1).run(2, 1500, MS);
    assert_eq!((hole.too_big.len(), hole.stats(0).dropped), (0, 2));
    assert_eq!(Bench::new("mtu 1400", 1).run(2, 1400, MS).arrivals.len(), 2);
}

#[test]
fn a_policer_passes_its_burst_then_its_rate() {
    // 12 Mbit/s is one packet of 1500 bytes a millisecond.
    let bench = Bench::new("policer 12mbit burst 15KB", 1).run(1000, 1500, Duration::from_micros(500));
    let passed = bench.arrivals.len();
    assert!((508..=510).contains(&passed), "{passed}");
    assert!(bench.arrivals[..10].iter().map(|(_, number)| *number).eq(0..10));
}

#[test]
fn a_trace_delivers_at_its_opportunities() {
    let trace = Trace::parse("t", "2\n2\n5\n").unwrap();
    let spec = PathSpec::parse_with_traces("trace t, queue 100pkt", |_| Ok(trace.clone())).unwrap();
    let bench = Bench::of(&spec, 1).run(4, 1504, Duration::ZERO);
    assert_eq!(bench.arrivals.iter().map(|(at, _)| at.as_millis()).collect::<Vec<_>>(), [2, 2, 5, 7]);
    // Two small packets share an opportunity, a large one needs several.
    let small = Bench::of(&spec, 1).run(3, 752, Duration::ZERO);
    assert_eq!(small.arrivals.iter().map(|(at, _)| at.as_millis()).collect::<Vec<_>>(), [2, 2, 2]);
    let large = Bench::of(&spec, 1).run(2, 4000, Duration::ZERO);
    assert_eq!(large.arrivals.iter().map(|(at, _)| at.as_millis()).collect::<Vec<_>>(), [5, 10]);
}

#[test]
fn outages_lose_or_hold() {
    let lossy = Bench::new("outage at 10ms for 5ms every 20ms", 1).run(40, 100, MS);
    let expected: Vec<u64> = (0..40).filter(|number| !(10..15).contains(&(number % 20))).collect();
    assert_eq!(lossy.numbers(), expected);
    let hold = Bench::new("outage at 10ms for 5ms hold", 1).run(20, 100, MS);
    assert_eq!(hold.numbers(), (0..20).collect::<Vec<_>>());
    assert_eq!(hold.arrivals[10].0, Instant::from_millis(15));
}
