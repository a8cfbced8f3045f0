//! `outboard reproduce`: the published experiments again, the published figures beside the measured ones.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use perf::interrupt;
use perf::reproduce::costs::{Costs, DEFAULTS};
use perf::reproduce::{Reproduction, page, tandem, vm, zero};
use perf::runner::Common;
use perf::site::{Between, Placement, Setup, Subject};
use perf::steer::Steer;

use crate::exit::{ExitWith, FAILED, USAGE};

/// Exit status of a shell for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Runs published experiments again, and prints their figures beside the measured ones
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which: vm (a stack against another: connect-request-response, streaming, request-response), tandem (FTP, host against
    /// front-end processor), zero (its zero traffic: storms of ARP requests and broadcasts), or all
    experiment: Experiment,
    /// What to measure, alternating in this order [default: vm, zero: kernel,fep; tandem: kernel,host,fep]
    #[arg(long, value_name = "SUBJECT,…", value_delimiter = ',')]
    on: Vec<Subject>,
    /// Another release's `outboard`: vm compares this one with it, too
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Trials of each subject
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// vm: how long each trial goes on; the published ones went on for 400 s. zero: how long each storm does
    /// [default: vm 10, zero 2]
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// tandem: how many files of 6 MByte go each way in a trial
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// tandem: the cost model [default: as --show-costs prints it]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Print the cost model's defaults as a file to begin with, and do nothing else
    #[arg(long)]
    show_costs: bool,
    /// Write NAME.json, NAME.html and index.html there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the results as JSON, a list of experiments; `-` for standard output (then without the tables)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Experiment {
    Vm,
    Tandem,
    Zero,
    All,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    if args.show_costs {
        std::io::stdout().write_all(DEFAULTS.as_bytes()).context("standard output")?;
        return Ok(ExitCode::SUCCESS);
    }
    let usage = |what: String| ExitWith::new(USAGE, what);
    let costs = Costs::load(args.costs.as_deref()).map_err(|error| usage(format!("{error:#}")))?;
    if let Some(path) = args.against.as_ref().filter(|path| !path.is_file()) {
        return Err(usage(format!("{} is no program", path.display())).into());
    }
    // First of all: a user namespace can only be entered by a process of one thread.
    perf::lab::enter().map_err(|error| ExitWith::new(FAILED, error.to_string()))?;
    interrupt::catch()?;
    match args.run(&costs) {
        Err(error) if error.downcast_ref::<interrupt::Interrupted>().is_some() => {
            eprintln!("outboard: interrupted; everything that was set up is taken down");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error),
        Ok(results) => args.write(&results).map(|()| ExitCode::SUCCESS),
    }
}

impl Args {
    fn run(&self, costs: &Costs) -> anyhow::Result<Vec<Reproduction>> {
        let mut results = Vec::new();
        if matches!(self.experiment, Experiment::Vm | Experiment::All) {
            let lab = perf::lab::Lab::new()?;
            let common = self.common(Between::Loopback, &[Subject::Kernel, Subject::Fep]);
            results.push(vm::run(&lab, &common, self.duration.unwrap_or(Duration::from_secs(10)))?);
        }
        if matches!(self.experiment, Experiment::Tandem | Experiment::All) {
            let subjects = [Subject::Kernel, Subject::Host, Subject::Fep];
            let mut common = Common { against: None, ..self.common(Between::Link, &subjects) };
            common.setup.placement = common.setup.placement.with_peer_apart();
            results.push(tandem::run(&common, self.count, costs)?);
        }
        if matches!(self.experiment, Experiment::Zero | Experiment::All) {
            let lab = perf::lab::Lab::new()?;
            let common = self.common(Between::Loopback, &[Subject::Kernel, Subject::Fep]);
            let common = Common { against: None, ..common };
            results.push(zero::run(&lab, &common, self.duration.unwrap_or(Duration::from_secs(2)))?);
        }
        Ok(results)
    }

    fn common(&self, between: Between, default: &[Subject]) -> Common {
        Common {
            subjects: if self.on.is_empty() { default.to_vec() } else { self.on.clone() },
            trials: self.trials,
            until: None,
            json_stream: false,
            setup: Setup {
                mtu: 1500,
                congestion_control: None,
                placement: Placement::default(),
                between,
                fep_arguments: Vec::new(),
                executable: None,
                steer: Steer::No,
                application_share: None,
            },
            against: self.against.clone(),
            hogs: None,
            quiet: self.quiet,
            command: std::env::args().collect(),
        }
    }

    fn write(&self, results: &[Reproduction]) -> anyhow::Result<()> {
        let all = serde_json::to_string_pretty(results)? + "\n";
        match self.json.as_deref() {
            Some(path) if path == Path::new("-") => {
                std::io::stdout().write_all(all.as_bytes()).context("standard output")?;
            }
            Some(path) => fs::write(path, all).with_context(|| path.display().to_string())?,
            None => {}
        }
        if let Some(folder) = &self.out {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            let write = |name: String, text: String| {
                let path = folder.join(name);
                fs::write(&path, text).with_context(|| path.display().to_string())
            };
            for result in results {
                write(format!("{}.json", result.experiment), serde_json::to_string(result)? + "\n")?;
                write(format!("{}.html", result.experiment), page::html(result)?)?;
            }
            write("index.html".to_owned(), page::index(results)?)?;
        }
        if self.json.as_deref() != Some(Path::new("-")) {
            for result in results {
                writeln!(std::io::stdout(), "{}", page::text(result)).context("standard output")?;
            }
        }
        Ok(())
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|one| !one.is_zero()).ok_or_else(|| format!("`{text}` is no duration in seconds"))
}
