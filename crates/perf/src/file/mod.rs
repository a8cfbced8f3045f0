//! Workload `file`: files cross between a host and its peer, in both directions, checked.
//!
//! The work of the published experiment `tandem`: an FTP server on the subject's stack, an FTP client on a workstation
//! (here a host on the Linux kernel), a file of 6 MB again and again, and a large one. The server is an unmodified
//! program ([`ftp`]) or a native one that works in place ([`crate::native`]).

mod ftp;
mod server;

use anyhow::{Error, Result, bail};
use lab::Lab;
use serde_json::{Map, Value, json};

use crate::ends::{Plan, Verify, Work};
use crate::native::Native;
use crate::progress::Progress;
use crate::results::{Document, Part, Trial};
use crate::runner::{self, Common};
use crate::site::{Site, Subject};
use crate::units;

pub use server::FtpServer;

/// Which way files go, as the user of a client says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the subject to the peer.
    Download,
    /// From the peer to the subject.
    Upload,
}

impl Direction {
    /// Its name in commands and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
        }
    }
}

/// Which server runs on the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// An unmodified FTP server, with curl as its client.
    Ftp(FtpServer),
    /// A small server on the library's calls in place; on the kernel, on `std::net`.
    Native,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Ftp(server) => server.name(),
            Self::Native => "native",
        }
    }

    /// Whether it can run on a subject; an error says why not, and what to do instead.
    pub fn check(self, subject: Subject) -> Result<(), String> {
        match self {
            Self::Ftp(server) => server.check(subject),
            Self::Native => Ok(()),
        }
    }
}

impl std::str::FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Ftp(FtpServer::Pyftpdlib), Self::Ftp(FtpServer::Vsftpd), Self::Native];
        let found = all.into_iter().find(|program| program.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of pyftpdlib, vsftpd, native"))
    }
}

/// A file of some size, so many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The file's size in bytes.
    pub size: u64,
    /// How often it goes.
    pub count: u64,
}

impl Load {
    fn name(self, direction: Direction) -> String {
        format!("{}-{}", direction.name(), units::bytes(self.size))
    }
}

/// What `outboard bench file` does.
#[derive(Debug, Clone)]
pub struct Config {
    /// What all workloads have in common.
    pub common: Common,
    /// The files.
    pub loads: Vec<Load>,
    /// The directions, in this order.
    pub directions: Vec<Direction>,
    /// The server.
    pub program: Program,
    /// Whether native ends check every byte while they are timed. Files of the FTP server are always compared.
    pub check: bool,
}

/// One site's server, whichever it is.
enum Server<'a> {
    Ftp(ftp::Ftp<'a>),
    Native(Native),
}

/// Runs the workload.
pub fn run(lab: &Lab, config: &Config) -> Result<Document> {
    if config.loads.is_empty() || config.directions.is_empty() {
        bail!("there is nothing to transfer");
    }
    for subject in &config.common.subjects {
        config.program.check(*subject).map_err(Error::msg)?;
    }
    let ftp = match config.program {
        Program::Ftp(server) => Some((server, ftp::Originals::create(lab, &config.loads)?)),
        Program::Native => None,
    };
    runner::run(
        lab,
        &config.common,
        runner::Description { name: "file", options: options(config) },
        |site| {
            Ok(match &ftp {
                Some((server, originals)) => Server::Ftp(ftp::Ftp::start(lab, site, *server, originals)?),
                None => Server::Native(Native::start(lab, site)?),
            })
        },
        |site, server, progress| trial(config, site, server, progress),
    )
}

fn options(config: &Config) -> Map<String, Value> {
    let loads: Vec<_> =
        config.loads.iter().map(|load| json!({"file_bytes": load.size, "count": load.count})).collect();
    let directions: Vec<_> = config.directions.iter().map(|direction| direction.name()).collect();
    let mut options = Map::new();
    options.insert("program".to_owned(), config.program.name().into());
    if let Program::Ftp(server) = config.program {
        options.insert("server".to_owned(), server.name().into());
        options.insert("server_version".to_owned(), server.version().into());
    }
    options.insert("files".to_owned(), loads.into());
    options.insert("directions".to_owned(), directions.into());
    let checked = match config.program {
        Program::Ftp(_) => "sha256 of every file, after its trial",
        Program::Native if config.check => "pattern, every byte, while timed",
        Program::Native => "no",
    };
    options.insert("verification".to_owned(), checked.into());
    options
}

/// Each file on a connection of its own, against a byte that asks for it or says that it has come.
fn plan(config: &Config, direction: Direction, load: Load) -> Plan {
    let (request_bytes, answer_bytes) = match direction {
        Direction::Download => (1, load.size),
        Direction::Upload => (load.size, 1),
    };
    let verify = if config.check { Verify::Pattern } else { Verify::No };
    Plan { request_bytes, answer_bytes, count: Some(load.count), verify, ..Plan::new(Work::Transact) }
}

fn trial(config: &Config, site: &Site, server: &mut Server<'_>, progress: &Progress) -> Result<Trial> {
    let mut parts = Vec::new();
    for direction in &config.directions {
        for load in &config.loads {
            let name = load.name(*direction);
            progress.begin(site.name(), &name);
            let measure = match server {
                Server::Ftp(ftp) => ftp.transfer(site, *direction, *load, progress)?,
                Server::Native(native) => {
                    let mut measure = native.run(site, &plan(config, *direction, *load), progress)?;
                    measure.bytes = load.size * load.count;
                    measure.with_rates()
                }
            };
            parts.push(Part { name, measure });
        }
    }
    Ok(Trial::of_parts(parts))
}
