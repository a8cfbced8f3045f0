//! `outboard schema`: what the results of measurements look like, for programs.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

/// Prints the JSON Schema of the results that `outboard bench --json` writes
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(perf::schema::TEXT.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}
