//! Which FEP a command means, and how to reach it.

use std::path::PathBuf;

use fep::control::{AskError, Client};
use fep::names;

use crate::exit::{ExitWith, FAILED, NO_FEP};

/// The flags that choose a FEP.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// The FEP's name, if there are several
    #[arg(long)]
    name: Option<String>,
    /// The FEP's control socket; the environment's OUTBOARD_SOCKET does the same
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Target {
    /// The control socket meant.
    pub(crate) fn socket(&self) -> PathBuf {
        names::find_socket(self.socket.as_deref(), self.name.as_deref())
    }

    /// A connection to the FEP meant; exit status 4 if nobody answers.
    pub(crate) fn connect(&self) -> Result<Client, ExitWith> {
        Client::connect(&self.socket()).map_err(exit)
    }
}

/// An unanswered question with its exit status.
pub(crate) fn exit(error: AskError) -> ExitWith {
    let status = match error {
        AskError::Nobody(_) | AskError::Forbidden(_) => NO_FEP,
        AskError::Refused(_) | AskError::System(_) => FAILED,
    };
    ExitWith::new(status, error.to_string())
}
