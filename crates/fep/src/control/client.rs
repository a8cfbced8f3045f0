//! The asking side of the control socket, for people's commands.
//!
//! A question is one message of text, the answer one message of JSON. An application says HELLO instead and gets its
//! channel; that side lives in the `channel` crate.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::listener::connect_to;
use super::report::{CensusPage, ConnectionPage, ConnectionStatus, Status};
use channel::control::sys::{self as seqpacket, Received};

/// The longest answer.
pub(crate) const MAX_ANSWER: usize = 192 * 1024;
/// Asks for a [`Status`].
pub(crate) const ASK_STATUS: &str = "STATUS";
/// Asks for a [`ConnectionPage`]; the position to start from follows.
pub(crate) const ASK_CONNECTIONS: &str = "CONNECTIONS";

/// Asks for a [`CensusPage`]; the position to start from follows.
pub(crate) const ASK_CENSUS: &str = "CENSUS";

/// Why a FEP gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens there.
    #[error("no FEP answers at {path}: start one with `outboard up --tap NAME --address CIDR`, or name another with --name or --socket", path = .0.display())]
    Nobody(PathBuf),
    /// This user may not ask.
    #[error("{path}: permission denied; ask as the user who runs the FEP, or set `socket_mode`", path = .0.display())]
    Forbidden(PathBuf),
    /// The answer was a refusal.
    #[error("the FEP refuses: {0}")]
    Refused(String),
    /// Something else went wrong between the two.
    #[error("cannot talk to the FEP: {0}")]
    System(#[from] io::Error),
}

/// A connection to ask questions over.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
}

/// What an answer looks like when it is a refusal.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl Client {
    /// Connects to the FEP at `path`.
    pub fn connect(path: &Path) -> Result<Self, AskError> {
        match connect_to(path) {
            Ok(socket) => Ok(Self { socket }),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    AskError::Nobody(path.to_owned())
                }
                io::ErrorKind::PermissionDenied => AskError::Forbidden(path.to_owned()),
                _ => AskError::System(error),
            }),
        }
    }

    /// The FEP's state. Its connections are counted page by page, so that no count holds its worker up.
    pub fn status(&self) -> Result<Status, AskError> {
        let mut status: Status = self.ask(ASK_STATUS)?;
        let mut next = Some(0);
        while let Some(position) = next {
            let page: CensusPage = self.ask(&format!("{ASK_CENSUS} {position}"))?;
            for (state, count) in page.connections {
                *status.connections.entry(state).or_default() += count;
            }
            status.orphans += page.orphans;
            next = page.next.filter(|next| *next > position);
        }
        Ok(status)
    }

    /// A page of the sockets of the stack; 0 is the position of the first.
    pub fn connection_page(&self, position: u64) -> Result<ConnectionPage, AskError> {
        self.ask(&format!("{ASK_CONNECTIONS} {position}"))
    }

    /// All sockets of the stack.
    pub fn connections(&self) -> Result<Vec<ConnectionStatus>, AskError> {
        let mut all = Vec::new();
        let mut next = Some(0);
        while let Some(position) = next {
            let page = self.connection_page(position)?;
            all.extend(page.connections);
            next = page.next.filter(|next| *next > position);
        }
        Ok(all)
    }

    fn ask<A: DeserializeOwned>(&self, question: &str) -> Result<A, AskError> {
        seqpacket::send(&self.socket, question.as_bytes(), &[])?;
        let mut buffer = vec![0; MAX_ANSWER];
        let wrong =
            |what: &str| AskError::System(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
        match seqpacket::receive(&self.socket, &mut buffer)? {
            Received::Message(length, _) => {
                let answer = &buffer[..length];
                if let Ok(refusal) = serde_json::from_slice::<Refusal>(answer) {
                    return Err(AskError::Refused(refusal.error));
                }
                serde_json::from_slice(answer).map_err(|error| wrong(&error.to_string()))
            }
            Received::HungUp => Err(wrong("it hung up")),
            Received::Truncated => Err(wrong("its answer is too long")),
        }
    }
}
