//! The figures that TCP over emulated paths has to reach, each beside its target.
//!
//! `cargo run --release -p outboard-sim --example targets -- [SEEDS]` (default 20; 100 for the record)

use std::process::ExitCode;

use base::Duration;
use sim::experiment::{Transfer, congestion_control};
use tcp::CongestionAlgorithm;

/// The path of most figures.
const RATE: f64 = 527e6;
const FORWARD: &str = "rate 527mbit, queue 3MB droptail, delay 22.5ms";
const BACK: &str = "delay 22.5ms";
/// The path of the clock's figure: 66 ms, one packet of a hundred out of order.
const CLOCK_FORWARD: &str = "rate 100mbit, queue 1MB droptail, delay 33ms, reorder 1% 1..10pkt";
const CLOCK_BACK: &str = "delay 33ms";

/// Linux 6.18 on the lossy path, one run of 20 s each, in Mbit/s: control, SACK, loss, figure.
const LINUX: [(&str, bool, &str, f64); 8] = [
    ("reno", false, "3e-5", 227.0),
    ("reno", false, "3e-4", 103.0),
    ("reno", true, "3e-5", 343.0),
    ("reno", true, "3e-4", 124.0),
    ("cubic", false, "3e-5", 460.0),
    ("cubic", false, "3e-4", 148.0),
    ("cubic", true, "3e-5", 441.0),
    ("cubic", true, "3e-4", 161.0),
];

/// What a figure is the mean of.
#[derive(Clone, Copy)]
struct Mean {
    bits_per_second: f64,
    resent: f64,
    fairness: f64,
}

struct Runner {
    seeds: u64,
    missed: u32,
}

fn main() -> ExitCode {
    let seeds = std::env::args().nth(1).map_or(Ok(20), |text| text.parse::<u64>());
    let Ok(seeds) = seeds else {
        eprintln!("usage: targets [SEEDS]");
        return ExitCode::from(2);
    };
    let mut runner = Runner { seeds, missed: 0 };
    println!("{seeds} seeds each, means; start-up included");
    println!("| what | figure | target | |");
    println!("|---|---|---|---|");
    runner.lossy();
    runner.reordering();
    runner.coarse_clock();
    runner.fairness();
    println!("{} missed", runner.missed);
    if runner.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Runner {
    /// 60 s over the path with bursts of three lost packets.
    fn lossy(&mut self) {
        for (name, sack, loss, linux) in LINUX {
            let forward = format!("{FORWARD}, loss burst 3 {loss}");
            let Some(mut transfer) = transfer(name, &forward, BACK, 9180) else { continue };
            transfer.tcp.selective_acks = sack;
            let mbit = self.mean(&transfer).bits_per_second / 1e6;
            let what =
                format!("{name}, {} SACK, loss bursts {loss}: Mbit/s", if sack { "with" } else { "without" });
            self.row(&what, mbit, linux, mbit >= linux);
        }
        for loss in ["3e-5", "3e-4"] {
            let forward = format!("{FORWARD}, loss burst 3 {loss}");
            let Some(transfer) = transfer("bbr", &forward, BACK, 9180) else { continue };
            let share = self.mean(&transfer).bits_per_second / RATE;
            self.row(&format!("bbr, loss bursts {loss}: share of the path"), share, 0.95, share >= 0.95);
        }
    }

    /// Reordering alone costs no throughput and few retransmissions.
    fn reordering(&mut self) {
        for (by, name) in [("1..10pkt", "10 packets"), ("0..10ms", "10 ms")] {
            for control in ["reno", "cubic", "bbr"] {
                let forward = format!("{FORWARD}, reorder 1% {by}");
                let Some(transfer) = transfer(control, &forward, BACK, 9180) else { continue };
                let mean = self.mean(&transfer);
                let share = mean.bits_per_second / RATE;
                let what = format!("{control}, 1 % reordered by up to {name}");
                self.row(&format!("{what}: share of the path"), share, 0.95, share >= 0.95);
                self.row(&format!("{what}: sent again"), mean.resent, 1e-3, mean.resent < 1e-3);
            }
        }
    }

    /// A clock of a millisecond is as good as one of a microsecond.
    fn coarse_clock(&mut self) {
        for control in ["reno", "cubic", "bbr"] {
            let Some(mut transfer) = transfer(control, CLOCK_FORWARD, CLOCK_BACK, 1500) else { continue };
            let fine = self.mean(&transfer).bits_per_second;
            transfer.granularity = Duration::from_millis(1);
            let ratio = self.mean(&transfer).bits_per_second / fine;
            let what =
                format!("{control}, 66 ms, 1 % reordered, {:.1} Mbit/s: with a clock of 1 ms", fine / 1e6);
            self.row(&what, ratio, 0.95, (0.95..1.05).contains(&ratio));
        }
    }

    /// Flows share a bottleneck; nothing is demanded of unlike ones.
    fn fairness(&mut self) {
        let pairs = [
            ("reno", "reno"),
            ("cubic", "cubic"),
            ("bbr", "bbr"),
            ("cubic", "reno"),
            ("bbr", "cubic"),
            ("bbr", "reno"),
        ];
        for (control, rival) in pairs {
            let forward = "rate 100mbit, queue 500KB droptail, delay 20ms";
            let Some(mut transfer) = transfer(control, forward, "delay 20ms", 1500) else { continue };
            let Some(rival_control) = congestion_control(rival) else { continue };
            transfer.rival = Some(rival_control);
            transfer.flows = 4;
            let fairness = self.mean(&transfer).fairness;
            let wanted = if control == rival { 0.9 } else { 0.0 };
            self.row(
                &format!("two {control} and two {rival}: Jain's index"),
                fairness,
                wanted,
                fairness >= wanted,
            );
        }
    }

    fn mean(&self, transfer: &Transfer) -> Mean {
        let mut sum = Mean { bits_per_second: 0.0, resent: 0.0, fairness: 0.0 };
        for seed in 1..=self.seeds {
            let outcome = transfer.run(seed);
            sum.bits_per_second += outcome.bits_per_second();
            sum.resent += outcome.retransmitted as f64 / outcome.delivered.iter().sum::<u64>().max(1) as f64;
            sum.fairness += outcome.fairness();
        }
        let count = self.seeds as f64;
        Mean {
            bits_per_second: sum.bits_per_second / count,
            resent: sum.resent / count,
            fairness: sum.fairness / count,
        }
    }

    fn row(&mut self, what: &str, figure: f64, target: f64, reached: bool) {
        self.missed += u32::from(!reached);
        println!("| {what} | {figure:.4} | {target} | {} |", if reached { "ok" } else { "MISSED" });
    }
}

/// A transfer of 60 s; `None`: that congestion control does not exist.
fn transfer(control: &str, forward: &str, back: &str, mtu: u16) -> Option<Transfer> {
    let congestion: CongestionAlgorithm = congestion_control(control)?;
    let mut transfer = Transfer::over(forward, back, mtu).ok()?;
    transfer.tcp.congestion = congestion;
    // Room for the path and its queue, twice.
    transfer.tcp.window_limit = 16 << 20;
    Some(transfer)
}
