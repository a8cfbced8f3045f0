//! `outboard down`: stops a FEP and waits until it is gone.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::target::{Target, exit};

/// How long a FEP may take: its connections drain for a few seconds at most.
const LIMIT: Duration = Duration::from_secs(15);

/// Stops a front-end processor: its connections are closed in order
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let status = args.target.connect()?.status().map_err(exit)?;
    let pid = i32::try_from(status.supervisor_pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("this FEP has no supervisor: end the program that it runs in")?;
    // A descriptor of the process cannot come to mean another one, as its number could.
    let process = pidfd_open(pid, PidfdFlags::empty()).context("cannot find the FEP's process")?;
    pidfd_send_signal(&process, Signal::TERM).context("cannot signal the FEP's process")?;
    let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).context("cannot wait")?;
    if ended == 0 {
        bail!("process {} does not end within {} s", status.supervisor_pid, LIMIT.as_secs());
    }
    Ok(ExitCode::SUCCESS)
}
