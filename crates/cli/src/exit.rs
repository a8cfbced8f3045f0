//! The exit statuses that all commands share.

use std::fmt;
use std::process::ExitCode;

/// Something failed.
pub(crate) const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub(crate) const USAGE: u8 = 2;
/// A threshold that was given is missed.
pub(crate) const MISSED: u8 = 3;
/// No FEP answers.
pub(crate) const NO_FEP: u8 = 4;

/// An error that asks for an exit status other than 1.
#[derive(Debug)]
pub(crate) struct ExitWith {
    /// The exit status.
    pub(crate) status: u8,
    /// What to tell.
    pub(crate) message: String,
}

impl ExitWith {
    /// An error with its exit status.
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl fmt::Display for ExitWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExitWith {}

/// Prints the error and gives the exit status that it asks for.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("outboard: {error:#}");
    let status =
        error.chain().find_map(|cause| cause.downcast_ref::<ExitWith>()).map_or(FAILED, |exit| exit.status);
    ExitCode::from(status)
}
