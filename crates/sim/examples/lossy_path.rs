//! Throughput over a lossy path, by congestion control, with selective acknowledgements and without.
//!
//! ```text
//! cargo run --release -p outboard-sim --example lossy_path -- [--cc reno,cubic] [--loss 3e-5,3e-4] [--seeds 100]
//!     [--seconds 60] [--sack on,off] [--path PATH] [--back PATH] [--mtu 9180] [--granularity 1us] [--flows 1] [--rival cubic]
//! ```
//!
//! The default is 527 Mbit/s, 45 ms, MTU 9180, a drop-tail queue of 3 MB, and bursts of three lost packets that start with
//! the given probability. `{loss}` in a path stands for it. Figures are means over the seeds, start-up included.

use std::process::ExitCode;

use base::Duration;
use clap::Parser;
use clap::builder::BoolishValueParser;
use netem::units::Span;
use sim::experiment::{Outcome, Transfer, reference};
use tcp::CongestionAlgorithm;

/// Throughput over a lossy path, by congestion control, with selective acknowledgements and without.
#[derive(Parser)]
struct Arguments {
    /// Congestion controls.
    #[arg(long = "cc", value_delimiter = ',', value_parser = control, default_value = "reno,cubic,bbr")]
    controls: Vec<CongestionAlgorithm>,
    /// Probabilities, each of which stands for `{loss}` in a path.
    #[arg(long = "loss", value_delimiter = ',', default_value = "3e-5,3e-4")]
    losses: Vec<String>,
    /// With selective acknowledgements, and without.
    #[arg(long = "sack", value_delimiter = ',', value_parser = BoolishValueParser::new(), default_value = "on,off")]
    sacks: Vec<bool>,
    /// Runs of each.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The seed of the first of them.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// How long a run sends.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The way of the data.
    #[arg(long, default_value = reference::LOSSY)]
    path: String,
    /// The way of the acknowledgements.
    #[arg(long, default_value = reference::BACK)]
    back: String,
    /// The MTU of both hosts, in bytes.
    #[arg(long, default_value_t = reference::MTU)]
    mtu: u16,
    /// The granularity of both clocks, as in 1us or 10ms.
    #[arg(long, value_parser = granularity, default_value = "1us")]
    granularity: Duration,
    /// Flows that share the path.
    #[arg(long, default_value_t = 1)]
    flows: u16,
    /// The congestion control of every second flow.
    #[arg(long, value_parser = control)]
    rival: Option<CongestionAlgorithm>,
    /// The largest super-segment that the devices cut, in bytes.
    #[arg(long, default_value_t = 0)]
    segmentation: u32,
}

/// The congestion control of a name.
fn control(name: &str) -> Result<CongestionAlgorithm, String> {
    sim::experiment::congestion_control(name)
        .ok_or_else(|| format!("no congestion control is called \"{name}\""))
}

fn granularity(text: &str) -> Result<Duration, String> {
    Span::parse(text).map(|span| span.0).ok_or_else(|| format!("{text} is not a span of time"))
}

fn main() -> ExitCode {
    match table(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn table(arguments: &Arguments) -> Result<(), String> {
    println!(
        "path {}; back {}; MTU {}; {} seeds of {} s",
        arguments.path, arguments.back, arguments.mtu, arguments.seeds, arguments.seconds
    );
    println!(
        "| control | SACK | loss | Mbit/s | least | most | lost | sent again | time-outs | recoveries | undone | fairness |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for control in &arguments.controls {
        for &sack in &arguments.sacks {
            for loss in &arguments.losses {
                let transfer = transfer(arguments, *control, sack, loss)?;
                let seeds = arguments.first_seed..arguments.first_seed + arguments.seeds;
                let outcomes: Vec<Outcome> = seeds.map(|seed| transfer.run(seed)).collect();
                row(&format!("{control:?}"), sack, loss, &outcomes);
            }
        }
    }
    Ok(())
}

fn transfer(
    arguments: &Arguments,
    control: CongestionAlgorithm,
    sack: bool,
    loss: &str,
) -> Result<Transfer, String> {
    let forward = arguments.path.replace("{loss}", loss);
    let back = arguments.back.replace("{loss}", loss);
    let mut transfer = Transfer::over(&forward, &back, arguments.mtu).map_err(|error| error.to_string())?;
    transfer.tcp.congestion = control;
    transfer.tcp.selective_acks = sack;
    transfer.tcp.window_limit = reference::WINDOW;
    transfer.duration = Duration::from_secs(arguments.seconds);
    transfer.granularity = arguments.granularity;
    transfer.flows = arguments.flows;
    transfer.rival = arguments.rival;
    transfer.max_segmentation = arguments.segmentation;
    Ok(transfer)
}

fn row(control: &str, sack: bool, loss: &str, outcomes: &[Outcome]) {
    let count = outcomes.len().max(1) as f64;
    let mean = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>() / count;
    let rates = outcomes.iter().map(|outcome| outcome.bits_per_second() / 1e6);
    let (least, most) =
        rates.fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    println!(
        "| {control} | {} | {loss} | {:.1} | {least:.1} | {most:.1} | {:.1e} | {:.2e} | {:.1} | {:.1} | {:.1} | {:.3} |",
        if sack { "yes" } else { "no" },
        mean(|outcome| outcome.bits_per_second() / 1e6),
        mean(|outcome| outcome.dropped as f64 / outcome.packets.max(1) as f64),
        mean(|outcome| outcome.retransmitted as f64 / outcome.delivered.iter().sum::<u64>().max(1) as f64),
        mean(|outcome| outcome.timeouts as f64),
        mean(|outcome| outcome.recoveries as f64),
        mean(|outcome| outcome.undone as f64),
        mean(Outcome::fairness),
    );
}
