//! Random paths.

use base::{Duration, Instant, Rng, SeededRng};
use netem::PathSpec;
use netem::bottleneck::{Framing, Server};
use netem::queue::{CodelSpec, Discipline, Limit, QueueSpec, RedSpec};
use netem::spec::{DelaySpec, HoldBack, Jitter, LossSpec, OutageSpec, ReorderSpec, StageSpec};
use netem::units::Rate;

use super::{between, chance, span_between};

const MS: Duration = Duration::from_millis(1);

/// A rate in bits per second, from a modem's to a LAN's.
pub(super) fn random_rate(rng: &mut SeededRng) -> u64 {
    between(rng, 200_000, 2_000_000_000)
}

/// A path of that rate with a few of all the things that can happen on one.
pub(super) fn random(rng: &mut SeededRng, rate: u64, mtu: u16) -> PathSpec {
    let mut stages = vec![bottleneck(rng, rate, mtu), delay(rng)];
    if chance(rng, 0.5) {
        stages.push(StageSpec::Loss(loss(rng)));
    }
    if chance(rng, 0.25) {
        stages.push(StageSpec::Reorder(reorder(rng)));
    }
    if chance(rng, 0.15) {
        stages.push(StageSpec::Duplicate(rng.unit() * 0.05));
    }
    if chance(rng, 0.1) {
        // One bit: the Internet checksum always sees it.
        stages.push(StageSpec::Corrupt { probability: rng.unit() * 0.02, bits: 1 });
    }
    if chance(rng, 0.1) && mtu > 600 {
        let small = 576 + rng.below(u64::from(mtu) - 576) as u32;
        stages.insert(0, StageSpec::Mtu { mtu: small, icmp: chance(rng, 0.6) });
    }
    if chance(rng, 0.1) {
        let policed = rate / 2 + rng.below(rate / 2);
        let burst = (u64::from(mtu) * 4).max(between(rng, 10_000, 1_000_000));
        if let Some(rate) = Rate::from_bits_per_second(policed) {
            stages.insert(0, StageSpec::Policer { rate, burst });
        }
    }
    if chance(rng, 0.1) {
        stages.push(StageSpec::Outage(OutageSpec {
            start: Instant::ZERO + span_between(rng, MS, Duration::from_secs(5)),
            length: span_between(rng, MS, Duration::from_secs(15)),
            every: None,
            hold: chance(rng, 0.5),
        }));
    }
    PathSpec { stages }
}

/// A path that only takes time.
pub(super) fn random_delay(rng: &mut SeededRng) -> PathSpec {
    PathSpec { stages: vec![delay(rng)] }
}

/// Whether a path damages packets.
pub(super) fn corrupts(path: &PathSpec) -> bool {
    path.stages.iter().any(|stage| matches!(stage, StageSpec::Corrupt { .. }))
}

fn bottleneck(rng: &mut SeededRng, rate: u64, mtu: u16) -> StageSpec {
    let frame = u64::from(mtu);
    let limit = if chance(rng, 0.7) {
        Limit::Bytes(between(rng, 2 * frame, 400 * frame))
    } else {
        Limit::Frames(between(rng, 2, 400))
    };
    let discipline = match rng.below(10) {
        0..=6 => Discipline::DropTail,
        7..=8 => Discipline::Codel(CodelSpec { ecn: chance(rng, 0.5), ..CodelSpec::default() }),
        _ => Discipline::Red(RedSpec {
            min: 5 * frame,
            max: 20 * frame,
            probability: 0.1,
            weight: RedSpec::WEIGHT,
            ecn: chance(rng, 0.5),
        }),
    };
    let framing = match rng.below(4) {
        0 => Framing::Bytes(38),
        1 => Framing::Atm,
        _ => Framing::None,
    };
    let rate = Rate::from_bits_per_second(rate.max(1)).expect("at least one bit a second");
    StageSpec::Bottleneck { server: Server::Rate(rate, framing), queue: QueueSpec { limit, discipline } }
}

fn delay(rng: &mut SeededRng) -> StageSpec {
    let delay = span_between(rng, Duration::from_micros(5), MS * 150);
    let jitter = chance(rng, 0.3).then(|| Jitter {
        spread: Duration::from_nanos(rng.below(delay.as_nanos() / 2 + 1)),
        normal: chance(rng, 0.5),
        reorder: chance(rng, 0.4),
    });
    StageSpec::Delay(DelaySpec { delay, jitter })
}

fn loss(rng: &mut SeededRng) -> LossSpec {
    match rng.below(4) {
        0 => LossSpec::Bernoulli(rng.unit() * 0.1),
        1 => LossSpec::Burst { length: 1 + rng.below(4), probability: rng.unit() * 0.02 },
        // A bad state does not last through all the retries of a lone packet.
        2 => LossSpec::Gilbert {
            to_bad: rng.unit() * 0.03,
            to_good: 0.4 + rng.unit() * 0.5,
            in_bad: 0.7,
            in_good: 0.0,
        },
        _ => {
            let mut numbers: Vec<u64> = (0..1 + rng.below(8)).map(|_| 1 + rng.below(60)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            LossSpec::Packets(numbers.into_iter().map(|number| number..=number).collect())
        }
    }
}

fn reorder(rng: &mut SeededRng) -> ReorderSpec {
    let by = if chance(rng, 0.5) {
        HoldBack::Frames { least: 1, most: between(rng, 1, 20) }
    } else {
        HoldBack::Time { least: Duration::ZERO, most: span_between(rng, MS / 10, MS * 50) }
    };
    ReorderSpec { probability: rng.unit() * 0.1, by }
}
