//! How flows share a bottleneck: Jain's index, printed for each pair of algorithms (`cargo test -- --nocapture`).

use base::Duration;
use sim::experiment::{Transfer, congestion_control};

/// Jain's index of two flows over 20 Mbit/s and 40 ms with a queue of one bandwidth-delay product.
fn index(control: &str, rival: &str) -> f64 {
    let forward = "rate 20mbit, queue 100KB droptail, delay 20ms";
    let mut transfer = Transfer::over(forward, "delay 20ms", 1500).expect("a path");
    transfer.tcp.congestion = congestion_control(control).expect("a control");
    transfer.rival = congestion_control(rival);
    transfer.flows = 2;
    transfer.duration = Duration::from_secs(20);
    let outcome = transfer.run(1);
    println!("{control} and {rival}: Jain's index {:.3}", outcome.fairness());
    assert!(outcome.bits_per_second() > 0.85 * 20e6, "{control} and {rival}: {outcome:?}");
    outcome.fairness()
}

#[test]
fn flows_of_one_kind_share_alike() {
    for control in ["reno", "cubic", "bbr"] {
        let index = index(control, control);
        assert!(index > 0.8, "{control}: {index}");
    }
}

#[test]
fn unlike_flows_leave_each_other_something() {
    // 0.5 is one flow with everything. The literature has BBR far ahead of flows that back off at every loss.
    for (control, rival) in [("cubic", "reno"), ("bbr", "cubic"), ("bbr", "reno")] {
        let index = index(control, rival);
        assert!(index > 0.52, "{control} and {rival}: {index}");
    }
}
