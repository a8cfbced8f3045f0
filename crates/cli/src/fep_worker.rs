//! `outboard fep-worker`: the worker process that the supervisor starts. Its orders come over standard input.

use std::process::ExitCode;

/// The worker of a FEP, started by its supervisor
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitCode> {
    fep::process::serve_supervisor()?;
    Ok(ExitCode::SUCCESS)
}
