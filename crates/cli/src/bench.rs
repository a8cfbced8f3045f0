//! `outboard bench`: measures a workload on the kernel, the host architecture and a front-end processor.

mod end;
mod forms;
mod loads;
mod output;
mod remote;
mod shared;

use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use perf::file::{Direction, Load, Program};
use perf::results::Document;
use perf::site::{Between, Placement};
use perf::{file, idle, interrupt, load, units};

pub(crate) use end::{Args as EndArgs, main as end_main};
pub(crate) use forms::expand;
use loads::{ConnectionsArgs, CrrArgs, IntoLoad, MessagesArgs, RrArgs, StreamArgs};
use remote::ServerArgs;
use shared::{Shared, seconds, usage};

use crate::exit::{ExitWith, FAILED};

/// Exit status of a shell for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Measures a workload on the kernel, host and FEP architectures
#[derive(ClapArgs)]
#[command(after_help = forms::HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    File(FileArgs),
    Stream(StreamArgs),
    Rr(RrArgs),
    Crr(CrrArgs),
    Messages(MessagesArgs),
    Connections(ConnectionsArgs),
    Idle(IdleArgs),
    Server(ServerArgs),
}

/// Files between a server on the subject and a client on a Linux peer, compared by SHA-256
#[derive(ClapArgs)]
#[command(args_override_self = true)]
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
    /// The server: an FTP server of the system with curl as its client (pyftpdlib: one process, in Python; vsftpd: a process for
    /// each session, in C; not on `host`), or a native program that works in place
    #[arg(
        long,
        visible_alias = "program",
        value_name = "pyftpdlib|vsftpd|native",
        default_value = "pyftpdlib"
    )]
    server: Program,
    /// Let the native program neither make nor check a pattern while it is timed
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    shared: Shared,
}

/// What connections cost on which nothing happens
#[derive(ClapArgs)]
#[command(args_override_self = true)]
struct IdleArgs {
    /// How many connections
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: u64,
    /// How long a trial watches
    #[arg(short = 't', long, alias = "time", value_name = "SECONDS", default_value_t = 10.0)]
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

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    // Two machines need no laboratory, and nothing to take down.
    if let Workload::Server(server) = &args.workload {
        return remote::serve(server);
    }
    if let Some(load) = args.workload.load().filter(|load| load.shared().client.host.is_some()) {
        let flags = load.shared();
        let load = load.load()?;
        flags.shared.outputs.check(load.times_operations())?;
        return finish(&flags.shared, &remote::run(flags, load)?).map(|()| ExitCode::SUCCESS);
    }
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
    if let Some(load) = workload.load() {
        return measure_load(&lab, load);
    }
    match workload {
        Workload::File(args) => {
            args.shared.outputs.check(false)?;
            let config = args.config()?;
            finish(&args.shared, &file::run(&lab, &config)?)
        }
        Workload::Idle(args) => {
            args.shared.outputs.check(false)?;
            let config = idle::Config {
                common: args.shared.common(Between::Link)?,
                connections: args.connections,
                duration: seconds(args.duration)?,
            };
            finish(&args.shared, &idle::run(&lab, &config)?)
        }
        Workload::Stream(_)
        | Workload::Rr(_)
        | Workload::Crr(_)
        | Workload::Messages(_)
        | Workload::Connections(_)
        | Workload::Server(_) => Ok(()),
    }
}

impl Workload {
    /// The load, if it is one of the native program's.
    fn load(&self) -> Option<&dyn IntoLoad> {
        match self {
            Self::Stream(args) => Some(args),
            Self::Rr(args) => Some(args),
            Self::Crr(args) => Some(args),
            Self::Messages(args) => Some(args),
            Self::Connections(args) => Some(args),
            Self::File(_) | Self::Idle(_) | Self::Server(_) => None,
        }
    }
}

fn measure_load(lab: &perf::lab::Lab, args: &dyn IntoLoad) -> anyhow::Result<()> {
    let (common, load) = (args.common()?, args.load()?);
    args.shared().shared.outputs.check(load.times_operations())?;
    finish(&args.shared().shared, &load::run(lab, &common, &load)?)
}

impl FileArgs {
    fn config(&self) -> anyhow::Result<file::Config> {
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
        let placement = Placement::default().with_peer_apart();
        let mut common = self.shared.common_on(&placement, Between::Link)?;
        if self.shared.on.is_empty() {
            common.subjects.retain(|subject| self.server.check(*subject).is_ok());
        }
        for subject in &common.subjects {
            self.server.check(*subject).map_err(usage)?;
        }
        Ok(file::Config {
            common,
            loads,
            directions: self.direction.directions(),
            program: self.server,
            check: !self.no_check,
        })
    }
}

fn finish(shared: &Shared, document: &Document) -> anyhow::Result<()> {
    shared.outputs.write(document)
}
