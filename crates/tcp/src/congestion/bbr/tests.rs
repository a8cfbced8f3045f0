//! BBR phase by phase, over a path that delivers what it is told to.

use std::collections::VecDeque;

use super::*;
use crate::recovery::rate::RateSample;

const MSS: u32 = 1000;
/// A round trip of 40 ms, in ten acknowledgements.
const RTT: Duration = Duration::from_millis(40);
const ACKS: u64 = 10;
/// Four megabytes a second: 160 kB in a round trip.
const RATE: u64 = 4_000_000;
const PRODUCT: u32 = 160_000;

struct Path {
    bbr: Bbr,
    now: Instant,
    delivered: u64,
    /// What had been delivered at each of the last acknowledgements of a round trip.
    before: VecDeque<u64>,
}

impl Path {
    fn new() -> Self {
        let before = core::iter::repeat_n(1, ACKS as usize).collect();
        Self { bbr: Bbr::new(10 * MSS), now: Instant::from_millis(1000), delivered: 1, before }
    }

    /// A round trip in which `rate` is delivered, `in_flight` stays in flight and each acknowledgement takes `rtt`.
    fn round_of(&mut self, rate: u64, in_flight: u32, rtt: Duration) {
        for _ in 0..ACKS {
            let len = rate * RTT.as_millis() / 1000 / ACKS;
            self.now += RTT / ACKS as u32;
            self.delivered += len;
            self.before.push_back(self.delivered);
            let prior = self.before.pop_front().expect("a round trip of them");
            self.bbr.on_ack(&AckSample {
                now: self.now,
                delivered: len as u32,
                window_limited: true,
                mss: MSS,
                una: self.delivered,
                nxt: self.delivered + u64::from(in_flight),
                rtt,
                srtt: rtt,
                in_flight,
                rate: Some(RateSample {
                    prior_delivered: prior,
                    delivered: self.delivered - prior,
                    rate,
                    lost: 0,
                    in_flight,
                    app_limited: false,
                }),
            });
        }
    }

    fn round(&mut self, rate: u64, in_flight: u32) {
        self.round_of(rate, in_flight, RTT);
    }

    /// Rounds at the path's rate, until the phase is another one; how many.
    fn until_changed(&mut self, in_flight: u32) -> u32 {
        let phase = self.bbr.phase;
        for round in 1..1000 {
            self.round(RATE, in_flight);
            if self.bbr.phase != phase {
                return round;
            }
        }
        panic!("{phase:?} does not end");
    }

    fn lose(&mut self, len: u32, ranges: u32) {
        self.bbr.on_lost(&LostSample {
            now: self.now,
            len,
            ranges,
            lost_since: len,
            in_flight: PRODUCT,
            app_limited: false,
            mss: MSS,
        });
    }

    /// Through Startup and Drain into the cycle.
    fn in_cycle() -> Self {
        let mut path = Self::new();
        for rate in [RATE / 4, RATE / 2, RATE, RATE, RATE, RATE] {
            path.round(rate, 2 * PRODUCT);
        }
        path.until_changed(PRODUCT / 2);
        path.round(RATE, PRODUCT / 2);
        assert_eq!(path.bbr.phase, Phase::Cruise);
        path
    }
}

#[test]
fn startup_doubles_and_ends_after_three_rounds_without_growth() {
    let mut path = Path::new();
    for rate in [RATE / 8, RATE / 4, RATE / 2, RATE] {
        path.round(rate, PRODUCT);
        assert_eq!(path.bbr.phase, Phase::Startup);
        assert!(path.bbr.pacing_rate >= rate * 27 / 10, "fast enough to double: {}", path.bbr.pacing_rate);
    }
    let rounds = path.until_changed(2 * PRODUCT);
    assert!((3..=4).contains(&rounds), "{rounds}");
    assert_eq!(path.bbr.phase, Phase::Drain);
    assert_eq!(path.bbr.model.max_bandwidth(), RATE);
}

#[test]
fn startup_ends_by_much_loss_and_bounds_what_may_be_in_flight() {
    let mut path = Path::new();
    for rate in [RATE / 4, RATE / 2, RATE] {
        path.round(rate, PRODUCT);
    }
    // A burst of a few segments is no sign of a full path, many separate ones are.
    path.lose(3 * MSS, 1);
    path.round(RATE * 3 / 2, PRODUCT);
    assert_eq!(path.bbr.phase, Phase::Startup);
    path.lose(PRODUCT / 5, 8);
    path.round(RATE * 2, PRODUCT);
    path.round(RATE * 3, PRODUCT);
    assert_ne!(path.bbr.phase, Phase::Startup);
    assert!(path.bbr.model.inflight_hi < NONE);
}

#[test]
fn drain_is_slow_until_the_queue_is_gone() {
    let mut path = Path::new();
    for rate in [RATE / 2, RATE, RATE, RATE, RATE] {
        path.round(rate, 2 * PRODUCT);
    }
    assert_eq!(path.bbr.phase, Phase::Drain);
    path.round(RATE, PRODUCT * 3 / 2);
    assert_eq!(path.bbr.phase, Phase::Drain);
    assert!(path.bbr.pacing_rate < RATE * 36 / 100);
    path.round(RATE, PRODUCT / 2);
    assert!(path.bbr.is_in_cycle());
}

#[test]
fn the_cycle_cruises_for_seconds_then_refills_and_probes_once() {
    let mut path = Path::in_cycle();
    assert_eq!(path.bbr.pacing_rate, RATE * 99 / 100);
    // Two to three seconds, or as many rounds as Reno would take for a loss: 63 at most.
    let rounds = path.until_changed(PRODUCT / 2);
    assert!((45..=75).contains(&rounds), "{rounds}");
    assert_eq!(path.bbr.phase, Phase::Refill);
    path.until_changed(PRODUCT);
    assert_eq!(path.bbr.phase, Phase::Up);
    path.round(RATE, PRODUCT * 5 / 4);
    assert_eq!(path.bbr.pacing_rate, RATE * 125 / 100 * 99 / 100);
    let rounds = path.until_changed(PRODUCT * 3 / 2);
    assert!(rounds <= 4, "no more bandwidth to find: {rounds}");
    assert_eq!(path.bbr.phase, Phase::Down);
    path.until_changed(PRODUCT / 2);
    assert_eq!(path.bbr.phase, Phase::Cruise);
}

#[test]
fn more_bandwidth_is_found_by_probing() {
    let mut path = Path::in_cycle();
    while path.bbr.phase != Phase::Up {
        path.round(RATE, PRODUCT / 2);
    }
    for rate in [RATE * 5 / 4, RATE * 3 / 2, RATE * 2] {
        path.round(rate, PRODUCT);
    }
    assert_eq!(path.bbr.model.bandwidth(), RATE * 2);
}

#[test]
fn the_round_trip_is_probed_with_half_a_window_when_it_was_not_seen_for_five_seconds() {
    let mut path = Path::in_cycle();
    let seen_at = path.now;
    while path.bbr.phase != Phase::ProbeRtt {
        path.round_of(RATE, PRODUCT, RTT + Duration::from_millis(5)); // a standing queue
        assert!(path.now < seen_at + Duration::from_secs(7));
    }
    assert!(path.bbr.is_probing_rtt());
    assert!(path.bbr.window() <= PRODUCT / 2 + 4 * MSS, "{}", path.bbr.window());
    let began = path.now;
    while path.bbr.phase == Phase::ProbeRtt {
        path.round_of(RATE / 2, PRODUCT / 2, RTT);
    }
    let took = path.now.saturating_since(began);
    assert!(took >= Duration::from_millis(160) && took < Duration::from_millis(400), "{took:?}");
    assert_eq!(path.bbr.phase, Phase::Cruise);
    path.round(RATE, PRODUCT);
    assert!(path.bbr.window() >= PRODUCT, "the window of before is back: {}", path.bbr.window());
}

#[test]
fn random_loss_does_not_lower_the_bounds_and_congestion_does() {
    let mut path = Path::in_cycle();
    for _ in 0..10 {
        path.lose(3 * MSS, 1);
        path.round(RATE * 99 / 100, PRODUCT / 2);
        path.round(RATE * 99 / 100, PRODUCT / 2);
    }
    assert_eq!(path.bbr.model.bandwidth(), RATE, "all that was paced came through");
    path.lose(3 * MSS, 1);
    path.round(RATE * 8 / 10, PRODUCT / 2);
    path.round(RATE * 8 / 10, PRODUCT / 2);
    path.lose(3 * MSS, 1);
    path.round(RATE * 8 / 10, PRODUCT / 2);
    path.round(RATE * 8 / 10, PRODUCT / 2);
    let bandwidth = path.bbr.model.bandwidth();
    assert!((RATE * 7 / 10..RATE * 95 / 100).contains(&bandwidth), "a fifth less did: {bandwidth}");
}

#[test]
fn a_timeout_starts_from_one_segment_and_the_window_comes_back() {
    let mut path = Path::in_cycle();
    let before = path.bbr.window();
    path.bbr.save();
    path.bbr.on_timeout(path.now, PRODUCT, MSS, true);
    assert_eq!(path.bbr.window(), MSS);
    path.bbr.on_timeout_recovered();
    assert_eq!(path.bbr.window(), before);
}
