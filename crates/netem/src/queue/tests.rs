use core::ops::Range;

use base::{Duration, Instant, Rng, SeededRng};

use super::*;

/// A frame that is only a length and an ECN field.
#[derive(Clone, Debug)]
struct Plain {
    len: u32,
    capable: bool,
    marked: bool,
}

impl Frame for Plain {
    fn wire_len(&self) -> u32 {
        self.len
    }
    fn mark_congestion(&mut self) -> bool {
        self.marked |= self.capable;
        self.capable
    }
    fn flip_bit(&mut self, _bit: u64) {}
    fn duplicate(&mut self) -> Option<Self> {
        Some(self.clone())
    }
}

fn frame(len: u32) -> Plain {
    Plain { len, capable: false, marked: false }
}

fn queue(limit: Limit, discipline: Discipline) -> Queue<Plain> {
    Queue::new(&QueueSpec { limit, discipline }, SeededRng::new(1))
}

#[test]
fn drop_tail_counts_bytes_or_frames_and_holds_at_least_one() {
    let mut stats = StageStats::default();
    let mut bytes = queue(Limit::Bytes(3000), Discipline::DropTail);
    for _ in 0..4 {
        bytes.handle_frame(Instant::ZERO, frame(1000), &mut stats);
    }
    assert_eq!((bytes.frames(), bytes.bytes(), stats.dropped), (3, 3000, 1));
    let mut frames = queue(Limit::Frames(2), Discipline::DropTail);
    for _ in 0..4 {
        frames.handle_frame(Instant::ZERO, frame(9000), &mut stats);
    }
    assert_eq!((frames.frames(), stats.dropped), (2, 3));
    let mut tiny = queue(Limit::Bytes(10), Discipline::DropTail);
    tiny.handle_frame(Instant::ZERO, frame(1000), &mut stats);
    assert_eq!(tiny.frames(), 1);
}

/// Offers a frame each 0.5 ms and serves one each millisecond in these seconds.
fn overload(queue: &mut Queue<Plain>, stats: &mut StageStats, seconds: Range<u64>, capable: bool) {
    for tick in seconds.start * 2000..seconds.end * 2000 {
        let now = Instant::from_micros(tick * 500);
        queue.handle_frame(now, Plain { len: 1500, capable, marked: false }, stats);
        if tick % 2 == 1 {
            queue.poll_frame(now, stats);
        }
    }
}

#[test]
fn codel_drops_ever_faster_while_the_wait_stays_long() {
    let mut stats = StageStats::default();
    let mut codel = queue(Limit::Bytes(100_000_000), Discipline::Codel(CodelSpec::default()));
    overload(&mut codel, &mut stats, 0..1, false);
    let early = stats.dropped;
    overload(&mut codel, &mut stats, 1..2, false);
    assert!(early > 5 && stats.dropped > 3 * early, "{stats}");
}

#[test]
fn codel_marks_what_can_be_marked() {
    let mut stats = StageStats::default();
    let spec = CodelSpec { ecn: true, ..CodelSpec::default() };
    let mut codel = queue(Limit::Bytes(100_000_000), Discipline::Codel(spec));
    overload(&mut codel, &mut stats, 0..1, true);
    assert!(stats.marked > 5 && stats.dropped == 0, "{stats}");
}

#[test]
fn codel_leaves_a_short_queue_alone() {
    let mut stats = StageStats::default();
    let mut codel: Queue<Plain> = queue(Limit::Frames(1000), Discipline::Codel(CodelSpec::default()));
    for tick in 0..5000 {
        let now = Instant::from_millis(tick);
        codel.handle_frame(now, frame(1500), &mut stats);
        assert!(codel.poll_frame(now + Duration::from_micros(900), &mut stats).is_some());
    }
    assert_eq!(stats.dropped, 0);
}

#[test]
fn codel_follows_the_control_law() {
    let spec = CodelSpec::default();
    let mut codel = Codel::new(spec);
    let (wait, mut drops) = (Duration::from_millis(50), Vec::new());
    for millis in 0..700 {
        if codel.on_departure(Instant::from_millis(millis), wait, 1_000_000) == Verdict::Signal {
            drops.push(millis);
        }
    }
    // The first after an interval, then interval/√1, interval/√2, interval/√3 … later (RFC 8289 §5.3).
    assert_eq!(&drops[..5], &[100, 200, 271, 329, 379]);
}

#[test]
fn red_keeps_the_average_between_its_thresholds() {
    let spec = RedSpec { min: 30_000, max: 90_000, probability: 0.1, weight: RedSpec::WEIGHT, ecn: false };
    let mut stats = StageStats::default();
    let mut red = queue(Limit::Bytes(10_000_000), Discipline::Red(spec));
    let mut rng = SeededRng::new(5);
    let mut peak_late = 0;
    for tick in 0..100_000u64 {
        let now = Instant::from_micros(tick * 500);
        if rng.unit() < 0.525 {
            red.handle_frame(now, frame(1500), &mut stats);
        }
        if tick % 2 == 1 {
            red.poll_frame(now, &mut stats);
        }
        if tick > 50_000 {
            peak_late = peak_late.max(red.bytes());
        }
    }
    assert!(stats.dropped > 1000 && peak_late < 300_000, "{stats} {peak_late}");
}

#[test]
fn red_marks_before_it_drops() {
    let spec = RedSpec { min: 10_000, max: 5_000_000, probability: 0.5, weight: 0.02, ecn: true };
    let mut stats = StageStats::default();
    let mut red = queue(Limit::Bytes(10_000_000), Discipline::Red(spec));
    overload(&mut red, &mut stats, 0..1, true);
    assert!(stats.marked > 0 && stats.dropped == 0, "{stats}");
}
