//! `outboard bench`: measures a workload on the kernel, the host architecture and a front-end processor.

mod end;
mod output;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use perf::file::{Direction, Load, Program};
use perf::results::Document;
use perf::runner::Common;
use perf::site::{Placement, Setup, Subject};
use perf::{file, idle, interrupt, rr, stream, units};

pub(crate) use end::{Args as EndArgs, main as end_main};
use output::Outputs;

use crate::exit::{ExitWith, FAILED, USAGE};

/// Exit status of a shell for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Measures a workload on the kernel, host and FEP architectures
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    File(FileArgs),
    Stream(StreamArgs),
    Rr(RrArgs),
    Idle(IdleArgs),
}

/// Files between a server on the subject and a client on a Linux peer, compared by SHA-256
#[derive(ClapArgs)]
struct FileArgs {
    /// Size of the file; may be given several times [default: 6MB, a hundred times, and 1GiB, once]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    size: Vec<u64>,
    /// How often the file goes, for each --size in turn [default: 1]
    #[arg(long, value_name = "N", requires = "size")]
    count: Vec<u64>,
    /// Which way files go, as the client says it
    #[arg(long, value_enum, default_value_t = Ways::Both)]
    direction: Ways,
    /// The server: pyftpdlib with curl as its client, or a native program that works in place
    #[arg(long, value_name = "pyftpdlib|native", default_value = "pyftpdlib")]
    program: Program,
    /// Let the native program neither make nor check a pattern while it is timed
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    shared: Shared,
}

/// One long transfer each way by the native program, every byte checked, stalls watched
#[derive(ClapArgs)]
struct StreamArgs {
    /// How much goes each way
    #[arg(long, value_name = "BYTES", default_value = "10GiB", value_parser = units::parse_bytes)]
    size: u64,
    /// Which way bytes go, as the peer says it
    #[arg(long, value_enum, default_value_t = Ways::Both)]
    direction: Ways,
    /// Neither make nor check a pattern while timed
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    shared: Shared,
}

/// One message and its answer at a time, over TCP
#[derive(ClapArgs)]
struct RrArgs {
    /// Size of a message and of its answer
    #[arg(long, value_name = "BYTES", default_value = "1", value_parser = units::parse_bytes)]
    size: u64,
    /// How long a trial goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    duration: f64,
    /// Let the peer look for its answers without sleeping
    #[arg(long)]
    peer_spins: bool,
    #[command(flatten)]
    shared: Shared,
}

/// What connections cost on which nothing happens
#[derive(ClapArgs)]
struct IdleArgs {
    /// How many connections
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: u64,
    /// How long a trial watches
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Clone, Copy, ValueEnum)]
enum Ways {
    Both,
    Upload,
    Download,
}

impl Ways {
    fn directions(self) -> Vec<Direction> {
        match self {
            Self::Both => vec![Direction::Download, Direction::Upload],
            Self::Upload => vec![Direction::Upload],
            Self::Download => vec![Direction::Download],
        }
    }
}

/// What all workloads share.
#[derive(ClapArgs)]
struct Shared {
    /// What to measure, alternating in this order
    #[arg(long, value_name = "SUBJECT,…", value_delimiter = ',', default_value = "kernel,host,fep")]
    on: Vec<Subject>,
    /// Trials of each subject
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// The link's largest IP packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_521))]
    mtu: u32,
    /// Congestion control of the kernel, on both sides [default: the kernel's own]
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Processors for the application, as in 0 or 0,1
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    application_cpus: Option<Vec<usize>>,
    /// Processors for the front-end processor
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    fep_cpus: Option<Vec<usize>>,
    /// Processors for the peer's program
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    peer_cpus: Option<Vec<usize>>,
    /// Further arguments of `outboard up`, as one text
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, default_value = "")]
    fep_arguments: String,
    #[command(flatten)]
    outputs: Outputs,
}

impl Shared {
    fn common(&self) -> anyhow::Result<Common> {
        let mut subjects = Vec::new();
        for subject in &self.on {
            if subjects.contains(subject) {
                return Err(ExitWith::new(USAGE, format!("{} is given twice", subject.name())).into());
            }
            subjects.push(*subject);
        }
        let default = Placement::default();
        let placement = Placement {
            application: self.application_cpus.clone().unwrap_or(default.application),
            fep: self.fep_cpus.clone().unwrap_or(default.fep),
            peer: self.peer_cpus.clone().unwrap_or(default.peer),
        };
        Ok(Common {
            subjects,
            trials: self.trials,
            setup: Setup {
                mtu: self.mtu,
                congestion_control: self.congestion_control.clone(),
                placement,
                fep_arguments: self.fep_arguments.split_whitespace().map(str::to_owned).collect(),
            },
            quiet: self.outputs.quiet,
            command: std::env::args().collect(),
        })
    }
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    // First of all: a user namespace can only be entered by a process of one thread.
    perf::lab::enter().map_err(|error| ExitWith::new(FAILED, error.to_string()))?;
    interrupt::catch()?;
    let answer = measure(&args.workload);
    match answer {
        Err(error) if error.downcast_ref::<interrupt::Interrupted>().is_some() => {
            eprintln!("outboard: interrupted; everything that was set up is taken down");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn measure(workload: &Workload) -> anyhow::Result<()> {
    let lab = perf::lab::Lab::new()?;
    match workload {
        Workload::File(args) => {
            let config = args.config()?;
            finish(&args.shared, &file::run(&lab, &config)?)
        }
        Workload::Stream(args) => {
            let config = stream::Config {
                common: args.shared.common()?,
                bytes: args.size,
                directions: args.direction.directions(),
                check: !args.no_check,
            };
            finish(&args.shared, &stream::run(&lab, &config)?)
        }
        Workload::Rr(args) => {
            let config = rr::Config {
                common: args.shared.common()?,
                bytes: args.size,
                duration: seconds(args.duration)?,
                peer_spins: args.peer_spins,
            };
            finish(&args.shared, &rr::run(&lab, &config)?)
        }
        Workload::Idle(args) => {
            let config = idle::Config {
                common: args.shared.common()?,
                connections: args.connections,
                duration: seconds(args.duration)?,
            };
            finish(&args.shared, &idle::run(&lab, &config)?)
        }
    }
}

impl FileArgs {
    fn config(&self) -> anyhow::Result<file::Config> {
        let usage = |what: &str| anyhow::Error::from(ExitWith::new(USAGE, what));
        if self.count.len() > self.size.len() {
            return Err(usage("there are more --count than --size"));
        }
        if self.size.contains(&0) || self.count.contains(&0) {
            return Err(usage("a size and a count are at least 1"));
        }
        let counts = self.count.iter().copied().chain(std::iter::repeat(1));
        let mut loads: Vec<_> =
            self.size.iter().copied().zip(counts).map(|(size, count)| Load { size, count }).collect();
        if loads.is_empty() {
            loads = vec![Load { size: 6_000_000, count: 100 }, Load { size: 1 << 30, count: 1 }];
        }
        Ok(file::Config {
            common: self.shared.common()?,
            loads,
            directions: self.direction.directions(),
            program: self.program,
            check: !self.no_check,
        })
    }
}

fn seconds(value: f64) -> anyhow::Result<Duration> {
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(ExitWith::new(USAGE, format!("{value} is no duration in seconds")).into()),
    }
}

fn finish(shared: &Shared, document: &Document) -> anyhow::Result<()> {
    shared.outputs.write(document)
}
