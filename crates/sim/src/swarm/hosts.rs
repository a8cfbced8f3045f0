//! Random hosts.

use base::{Duration, Rng, SeededRng};
use stack::{ConflictDetection, StackConfig};
use tcp::{AccurateEcn, MtuProbing};
use wire::frame::Medium;

use super::{between, chance, span_between};
use crate::host::{DeviceSpec, HostSpec};

/// The coarsest clock of a host.
const COARSEST: Duration = Duration::from_millis(10);

/// A host with a clock, a device and a TCP that may lack this and that.
pub(super) fn random(rng: &mut SeededRng, medium: Medium, mtu: u16, checksums: bool) -> HostSpec {
    let granularity = match rng.below(4) {
        0 => Duration::from_millis(1),
        1 => span_between(rng, Duration::from_micros(1), COARSEST),
        _ => Duration::from_micros(1),
    };
    let mut tcp = tcp::Config {
        timestamps: chance(rng, 0.8),
        window_scaling: chance(rng, 0.85),
        selective_acks: chance(rng, 0.8),
        ecn: chance(rng, 0.3),
        accurate_ecn: if chance(rng, 0.5) { AccurateEcn::Offer } else { AccurateEcn::Accept },
        mtu_probing: if chance(rng, 0.2) { MtuProbing::Always } else { MtuProbing::OnBlackHole },
        nodelay: chance(rng, 0.3),
        clock_granularity: granularity,
        // An orphan's peer may be a slow reader.
        fin_wait_2: Duration::from_secs(600),
        ..tcp::Config::default()
    };
    if chance(rng, 0.3) {
        tcp.window_limit = between(rng, 4096, 1 << 20) as u32;
        tcp.initial_window = tcp.initial_window.min(tcp.window_limit);
    }
    let stack = StackConfig {
        tcp,
        orphan_timeout: Duration::from_secs(3600),
        conflict_detection: ConflictDetection::Off,
        ..StackConfig::default()
    };
    HostSpec {
        stack,
        medium,
        mtu,
        checksums: checksums || chance(rng, 0.3),
        max_segmentation: if chance(rng, 0.5) { 65_535 } else { 0 },
        granularity,
        clock_offset: Duration::from_nanos(rng.below(10_000_000_000_000)),
        processing_delay: if chance(rng, 0.3) {
            span_between(rng, Duration::from_micros(1), Duration::from_millis(20))
        } else {
            Duration::ZERO
        },
        coalesce: false,
        device: chance(rng, 0.2).then(|| DeviceSpec {
            frames: 1 + rng.below(20) as usize,
            every: span_between(rng, Duration::from_micros(1), Duration::from_millis(1)),
        }),
    }
}
