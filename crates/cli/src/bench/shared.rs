//! The flags that all workloads share, and those that the native program's workloads share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use perf::ends::{Plan, Verify};
use perf::hogs::Hogs;
use perf::runner::Common;
use perf::site::{Between, Placement, Setup, Subject};
use perf::steer::Steer;
use perf::units;

use super::output::Outputs;
use super::remote::ClientArgs;
use crate::exit::{ExitWith, USAGE};

/// What is measured unless something else is said.
const SUBJECTS: [Subject; 3] = [Subject::Kernel, Subject::Host, Subject::Fep];
/// How often.
const TRIALS: u32 = 3;

/// What all workloads share.
#[derive(ClapArgs)]
pub(super) struct Shared {
    /// What to measure, alternating in this order: kernel, host, fep, fep-unmodified [default: kernel,host,fep; with
    /// --client, the sockets of this end: kernel]
    #[arg(long, value_name = "SUBJECT,…", value_delimiter = ',')]
    pub(super) on: Vec<Subject>,
    /// Trials of each subject, at least [default: 3; with --client 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) trials: Option<u32>,
    /// Repeat trials until the 95 % confidence interval of every subject's main metric is that narrow: its mean ± 2%; at
    /// most 100 trials
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(super) until: Option<f64>,
    /// The link's largest IP packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_521))]
    mtu: u32,
    /// Congestion control of the kernel, on both sides [default: the kernel's own]
    #[arg(short = 'C', long, visible_alias = "congestion", value_name = "NAME")]
    pub(super) congestion_control: Option<String>,
    /// Processors for the application, as in 0 or 0,1
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    application_cpus: Option<Vec<usize>>,
    /// Processors for the front-end processor
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    fep_cpus: Option<Vec<usize>>,
    /// Processors for the peer's program
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    peer_cpus: Option<Vec<usize>>,
    /// Each host of the kernel's takes packets in on its own processors, as with a network card of its own, and not on those of
    /// the host that sends: rps, by softirqs (receive packet steering); napi, the kernel subject by a thread that counts
    /// as its own, for which its peer cuts what it sends [default: no; alone: rps]
    #[arg(long, value_name = "rps|napi", num_args = 0..=1, default_value = "no", default_missing_value = "rps", hide_default_value = true)]
    steer: Steer,
    /// Further arguments of `outboard up`, as one text
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, default_value = "")]
    fep_arguments: String,
    /// Another release's `outboard`: every subject but the kernel is measured with it too
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Busy programs beside all trials, which compute and do nothing else; with a nice value, as in 2:5
    #[arg(long, value_name = "N[:NICE]")]
    pub(super) hogs: Option<Hogs>,
    /// The parameters of a published experiment, which further flags change: vm-crr, vm-stream, vm-rr, tandem-ftp,
    /// hp3000-messages
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<String>,
    #[command(flatten)]
    pub(super) outputs: Outputs,
}

impl Shared {
    pub(super) fn common(&self, between: Between) -> anyhow::Result<Common> {
        self.common_on(&Placement::default(), between)
    }

    /// With this placement, but for what the flags say otherwise.
    pub(super) fn common_on(&self, default: &Placement, between: Between) -> anyhow::Result<Common> {
        let mut subjects = Vec::new();
        for subject in &self.on {
            if subjects.contains(subject) {
                return Err(usage(format!("{} is given twice", subject.name())));
            }
            subjects.push(*subject);
        }
        if subjects.is_empty() {
            subjects = SUBJECTS.to_vec();
        }
        if let Some(path) = self.against.as_ref().filter(|path| !path.is_file()) {
            return Err(usage(format!("{} is no program", path.display())));
        }
        let given =
            |flag: &Option<Vec<usize>>, default: &[usize]| flag.clone().unwrap_or_else(|| default.to_vec());
        let placement = Placement {
            application: given(&self.application_cpus, &default.application),
            fep: given(&self.fep_cpus, &default.fep),
            peer: given(&self.peer_cpus, &default.peer),
        };
        Ok(Common {
            subjects,
            trials: self.trials.unwrap_or(TRIALS),
            until: self.until,
            json_stream: self.outputs.json_stream,
            setup: Setup {
                mtu: self.mtu,
                congestion_control: self.congestion_control.clone(),
                placement,
                between,
                fep_arguments: self.fep_arguments.split_whitespace().map(str::to_owned).collect(),
                executable: None,
                steer: self.steer,
                application_share: None,
            },
            against: self.against.clone(),
            hogs: self.hogs,
            quiet: self.outputs.quiet,
            command: std::env::args().collect(),
        })
    }
}

/// `2%` or `2`, as a share.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    match number {
        Ok(number) if number > 0.0 && number < 100.0 => Ok(number / 100.0),
        _ => Err(format!("`{text}` is no share in percent")),
    }
}

/// What the workloads of the native program share.
#[derive(ClapArgs)]
pub(super) struct LoadArgs {
    /// Client and server on one stack, and not a Linux peer across a link
    #[arg(long)]
    loopback: bool,
    #[command(flatten)]
    pub(super) client: ClientArgs,
    /// How long a trial goes on
    #[arg(short = 't', long, visible_alias = "time", value_name = "SECONDS")]
    pub(super) duration: Option<f64>,
    /// How long at a trial's beginning nothing counts
    #[arg(short = 'O', long, value_name = "SECONDS", default_value_t = 0.0)]
    omit: f64,
    /// Connections at a time, each with a thread at either end
    #[arg(short = 'P', long, visible_alias = "streams", value_name = "N", default_value_t = 1)]
    parallel: u64,
    /// Limit of the socket buffers at both ends [default: they grow as they need]
    #[arg(short = 'w', long, value_name = "BYTES", value_parser = units::parse_bytes)]
    window: Option<u64>,
    /// What the receiving end does with the bytes: compare with a pattern that the sending end makes, read, or nothing
    #[arg(long, value_name = "pattern|read|no", default_value = "pattern")]
    verify: Verify,
    /// How often progress is told
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    #[command(flatten)]
    pub(super) shared: Shared,
}

impl LoadArgs {
    pub(super) fn between(&self) -> Between {
        if self.loopback { Between::Loopback } else { Between::Link }
    }

    /// A plan with these options in it.
    pub(super) fn plan(&self, plan: Plan) -> Plan {
        Plan {
            connections: self.parallel,
            duration_seconds: self.duration,
            omit_seconds: self.omit,
            socket_buffer_bytes: self.window,
            verify: self.verify,
            interval_seconds: self.interval,
            ..plan
        }
    }
}

/// An error about the command line.
pub(super) fn usage(what: impl Into<String>) -> anyhow::Error {
    ExitWith::new(USAGE, what).into()
}

pub(super) fn seconds(value: f64) -> anyhow::Result<Duration> {
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(usage(format!("{value} is no duration in seconds"))),
    }
}
