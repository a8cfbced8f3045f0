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
use netem::units::Span;
use sim::experiment::{Outcome, Transfer};
use tcp::CongestionAlgorithm;

const USAGE: &str = "usage: lossy_path [--cc LIST] [--loss LIST] [--seeds N] [--first-seed N] [--seconds N] [--sack LIST] \
                     [--path PATH] [--back PATH] [--mtu N] [--granularity SPAN] [--flows N] [--rival CC] [--segmentation N]";

struct Arguments {
    controls: Vec<CongestionAlgorithm>,
    losses: Vec<String>,
    sacks: Vec<bool>,
    seeds: u64,
    first_seed: u64,
    seconds: u64,
    path: String,
    back: String,
    mtu: u16,
    granularity: Duration,
    flows: u16,
    rival: Option<CongestionAlgorithm>,
    segmentation: u32,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            controls: vec![
                CongestionAlgorithm::NewReno,
                CongestionAlgorithm::Cubic,
                CongestionAlgorithm::Bbr,
            ],
            losses: vec!["3e-5".into(), "3e-4".into()],
            sacks: vec![true, false],
            seeds: 100,
            first_seed: 1,
            seconds: 60,
            path: "rate 527mbit, queue 3MB droptail, delay 22.5ms, loss burst 3 {loss}".into(),
            back: "delay 22.5ms".into(),
            mtu: 9180,
            granularity: Duration::from_micros(1),
            flows: 1,
            rival: None,
            segmentation: 0,
        }
    }
}

/// The congestion control of a name.
fn control(name: &str) -> Result<CongestionAlgorithm, String> {
    sim::experiment::congestion_control(name)
        .ok_or_else(|| format!("no congestion control is called \"{name}\""))
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
        match name.as_str() {
            "--cc" => arguments.controls = value.split(',').map(control).collect::<Result<_, _>>()?,
            "--loss" => arguments.losses = value.split(',').map(str::to_owned).collect(),
            "--sack" => arguments.sacks = value.split(',').map(|word| word == "on").collect(),
            "--seeds" => arguments.seeds = number()?,
            "--first-seed" => arguments.first_seed = number()?,
            "--seconds" => arguments.seconds = number()?,
            "--path" => arguments.path = value,
            "--back" => arguments.back = value,
            "--mtu" => arguments.mtu = number()? as u16,
            "--flows" => arguments.flows = number()? as u16,
            "--segmentation" => arguments.segmentation = number()? as u32,
            "--rival" => arguments.rival = Some(control(&value)?),
            "--granularity" => {
                arguments.granularity = Span::parse(&value).ok_or_else(|| format!("{value}: not a span"))?.0;
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|arguments| table(&arguments)) {
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
    // Room for the path and its queue, twice.
    transfer.tcp.window_limit = 16 << 20;
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
