//! The figures that TCP over emulated paths has to reach, each beside its target.
//!
//! ```text
//! cargo run --release -p outboard-sim --example targets -- [SEEDS] [--seconds N] [--only WORD] [--json]
//! ```
//!
//! The default is 20 seeds of 60 s; 100 for the record. What is held against Linux lasts as long as its runs did, 20 and 60 s,
//! whatever `--seconds` says. Seeds run on all processors; progress goes to standard error.
//! `--only` takes the figures whose text has that word.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Duration;
use sim::experiment::reference::{BACK, FORWARD, LOSSY, MTU, RATE, WINDOW};
use sim::experiment::{Outcome, Transfer, congestion_control};
use tcp::CongestionAlgorithm;

/// The path of the clock's figure: 66 ms, one packet of a hundred out of order.
const CLOCK_FORWARD: &str = "rate 100mbit, queue 1MB droptail, delay 33ms, reorder 1% 1..10pkt";
const CLOCK_BACK: &str = "delay 33ms";

/// Linux 6.18 on the lossy path, in Mbit/s: control, SACK, loss, one run of 20 s, and the mean of 6 to 9 runs of 60 s of
/// `linux_over_path` (outboard-perf).
const LINUX: [(&str, bool, &str, f64, f64); 8] = [
    ("reno", false, "3e-5", 227.0, 179.5),
    ("reno", false, "3e-4", 103.0, 82.3),
    ("reno", true, "3e-5", 343.0, 358.3),
    ("reno", true, "3e-4", 124.0, 116.1),
    ("cubic", false, "3e-5", 460.0, 331.7),
    ("cubic", false, "3e-4", 148.0, 120.6),
    ("cubic", true, "3e-5", 441.0, 423.4),
    ("cubic", true, "3e-4", 161.0, 126.4),
];

/// What a figure is the mean of.
#[derive(Clone, Copy)]
struct Mean {
    bits_per_second: f64,
    /// Of the packets sent, how many were retransmissions that no loss asked for.
    needless: f64,
    fairness: f64,
}

struct Runner {
    seeds: u64,
    seconds: u64,
    only: Option<String>,
    json: bool,
    missed: u32,
    rows: u32,
}

const USAGE: &str = "usage: targets [SEEDS] [--seconds N] [--only WORD] [--json]";

fn main() -> ExitCode {
    let Some(mut runner) = Runner::from_arguments(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    runner.begin();
    runner.lossy();
    runner.reordering();
    runner.coarse_clock();
    runner.fairness();
    runner.end();
    if runner.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Runner {
    fn from_arguments(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut runner = Self { seeds: 20, seconds: 60, only: None, json: false, missed: 0, rows: 0 };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => runner.json = true,
                "--only" => runner.only = Some(words.next()?),
                "--seconds" => runner.seconds = words.next()?.parse().ok()?,
                seeds => runner.seeds = seeds.parse().ok()?,
            }
        }
        Some(runner)
    }

    fn begin(&self) {
        if self.json {
            println!("{{\"seeds\":{},\"seconds\":{},\"rows\":[", self.seeds, self.seconds);
            return;
        }
        println!("{} seeds of {} s each, means; start-up included", self.seeds, self.seconds);
        println!();
        println!("| what | figure | target | |");
        println!("|---|---|---|---|");
    }

    fn end(&self) {
        if self.json {
            println!("],\"missed\":{}}}", self.missed);
        } else {
            println!();
            println!("{} missed", self.missed);
        }
    }

    /// Whether the figure is asked for; says so on standard error.
    fn wants(&self, what: &str) -> bool {
        let wanted = self.only.as_ref().is_none_or(|word| what.contains(word.as_str()));
        if wanted {
            eprintln!("{what} …");
        }
        wanted
    }

    /// The path with bursts of three lost packets, for as long as Linux had.
    fn lossy(&mut self) {
        for (name, sack, loss, short, long) in LINUX {
            let forward = LOSSY.replace("{loss}", loss);
            let Some(mut transfer) = self.transfer(name, &forward, BACK, MTU) else { continue };
            transfer.tcp.selective_acks = sack;
            let with = if sack { "with" } else { "without" };
            for (seconds, linux) in [(20, short), (60, long)] {
                transfer.duration = Duration::from_secs(seconds);
                let what = format!("{name}, {with} SACK, loss bursts {loss}, {seconds} s: Mbit/s");
                if !self.wants(&what) {
                    continue;
                }
                let mbit = self.mean(&transfer).bits_per_second / 1e6;
                self.row(&what, mbit, linux, mbit >= linux);
            }
        }
        for loss in ["3e-5", "3e-4"] {
            let forward = LOSSY.replace("{loss}", loss);
            let Some(transfer) = self.transfer("bbr", &forward, BACK, MTU) else { continue };
            let what = format!("bbr, loss bursts {loss}: share of the path");
            if !self.wants(&what) {
                continue;
            }
            let share = self.mean(&transfer).bits_per_second / RATE;
            self.row(&what, share, 0.95, share >= 0.95);
        }
    }

    /// Reordering alone costs no throughput and few retransmissions.
    fn reordering(&mut self) {
        for (by, name) in [("1..10pkt", "10 packets"), ("0..10ms", "10 ms")] {
            for control in ["reno", "cubic", "bbr"] {
                let forward = format!("{FORWARD}, reorder 1% {by}");
                let Some(transfer) = self.transfer(control, &forward, BACK, MTU) else { continue };
                let what = format!("{control}, 1 % reordered by up to {name}");
                if !self.wants(&what) {
                    continue;
                }
                let mean = self.mean(&transfer);
                let share = mean.bits_per_second / RATE;
                self.row(&format!("{what}: share of the path"), share, 0.95, share >= 0.95);
                self.row(
                    &format!("{what}: needlessly sent again"),
                    mean.needless,
                    1e-3,
                    mean.needless < 1e-3,
                );
            }
        }
    }

    /// A clock of a millisecond is as good as one of a microsecond.
    fn coarse_clock(&mut self) {
        for control in ["reno", "cubic", "bbr"] {
            let Some(mut transfer) = self.transfer(control, CLOCK_FORWARD, CLOCK_BACK, 1500) else {
                continue;
            };
            let what = format!("{control}, 66 ms, 1 % reordered, coarse clock");
            if !self.wants(&what) {
                continue;
            }
            let fine = self.mean(&transfer).bits_per_second;
            self.row(&format!("{what}: Mbit/s with 1 us"), fine / 1e6, 0.0, true);
            for (millis, target) in [(1, 0.95), (10, 0.0)] {
                transfer.granularity = Duration::from_millis(millis);
                let ratio = self.mean(&transfer).bits_per_second / fine;
                let reached = target == 0.0 || (target..2.0 - target).contains(&ratio);
                self.row(&format!("{what}: share of that with {millis} ms"), ratio, target, reached);
            }
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
            let Some(mut transfer) = self.transfer(control, forward, "delay 20ms", 1500) else { continue };
            let Some(rival_control) = congestion_control(rival) else { continue };
            transfer.rival = Some(rival_control);
            transfer.flows = 4;
            let what = format!("two {control} and two {rival}: Jain's index");
            if !self.wants(&what) {
                continue;
            }
            let fairness = self.mean(&transfer).fairness;
            let wanted = if control == rival { 0.9 } else { 0.0 };
            self.row(&what, fairness, wanted, fairness >= wanted);
        }
    }

    /// The mean over all seeds, which run on all processors.
    fn mean(&self, transfer: &Transfer) -> Mean {
        let (next, done) = (AtomicU64::new(1), Mutex::new(Vec::new()));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed > self.seeds {
                            break;
                        }
                        let outcome = transfer.run(seed);
                        if let Ok(mut done) = done.lock() {
                            done.push((seed, outcome));
                            eprint!("\r{}/{} ", done.len(), self.seeds);
                        }
                    }
                });
            }
        });
        eprint!("\r");
        let mut outcomes = done.into_inner().unwrap_or_default();
        // Sums of floating-point numbers depend on the order.
        outcomes.sort_by_key(|(seed, _)| *seed);
        let mss = f64::from(transfer.mtu) - 52.0;
        let mean = |value: &dyn Fn(&Outcome) -> f64| {
            outcomes.iter().map(|(_, outcome)| value(outcome)).sum::<f64>() / outcomes.len().max(1) as f64
        };
        Mean {
            bits_per_second: mean(&Outcome::bits_per_second),
            needless: mean(&|outcome| {
                let needless = (outcome.retransmitted as f64 / mss - outcome.dropped as f64).max(0.0);
                needless / outcome.packets.max(1) as f64
            }),
            fairness: mean(&Outcome::fairness),
        }
    }

    fn row(&mut self, what: &str, figure: f64, target: f64, reached: bool) {
        self.missed += u32::from(!reached);
        if self.json {
            let comma = if self.rows > 0 { "," } else { "" };
            let what = what.replace('"', "'");
            println!(
                "{comma}{{\"what\":\"{what}\",\"figure\":{figure},\"target\":{target},\"reached\":{reached}}}"
            );
        } else {
            // Zero: nothing is demanded.
            let target = if target == 0.0 { "-".to_owned() } else { target.to_string() };
            println!("| {what} | {figure:.4} | {target} | {} |", if reached { "ok" } else { "MISSED" });
        }
        self.rows += 1;
    }

    /// A transfer of so many seconds; `None`: that congestion control does not exist.
    fn transfer(&self, control: &str, forward: &str, back: &str, mtu: u16) -> Option<Transfer> {
        let congestion: CongestionAlgorithm = congestion_control(control)?;
        let mut transfer = Transfer::over(forward, back, mtu).ok()?;
        transfer.duration = Duration::from_secs(self.seconds);
        transfer.tcp.congestion = congestion;
        transfer.tcp.window_limit = WINDOW;
        Some(transfer)
    }
}
