//! An unmodified FTP server on the subject, and curl as its client.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::{Lab, Process, cpu, wait_for_port};

use super::server::{FtpServer, PORT};
use super::{Direction, Load};
use crate::content::{self, Hash};
use crate::meter::{self, Reading};
use crate::progress::Progress;
use crate::reserve::Reserve;
use crate::results::Measure;
use crate::site::Site;
use crate::trace::Watch;
use crate::units;

/// How long the server may take to answer.
const START: Duration = Duration::from_secs(20);
/// How long a session may take to end after its client has.
const END: Duration = Duration::from_secs(20);
/// How long one part of a trial may take before it counts as stuck: this, and as if bytes went at 10 MB/s.
const PART: Duration = Duration::from_secs(60);
const SLOWEST_BYTES_PER_SECOND: u64 = 10_000_000;

/// Files that a server has sent and taken before the first of them is counted: its buffers exist then.
const WARM_UP: u64 = 10;
/// Files take memory in pages of this size.
const HUGE_PAGE: u64 = 2 << 20;

/// The files to transfer, by size, and memory for their copies.
#[derive(Debug)]
pub(super) struct Originals {
    files: BTreeMap<u64, (PathBuf, Hash)>,
    reserve: Mutex<Reserve>,
}

impl Originals {
    pub(super) fn create(lab: &Lab, loads: &[Load]) -> Result<Self> {
        let folder = lab.file("original");
        std::fs::create_dir(&folder)?;
        let mut files = BTreeMap::new();
        for load in loads {
            let path = folder.join(units::bytes(load.size));
            let hash = content::create(&path, load.size, load.size)?;
            files.insert(load.size, (path, hash));
        }
        let most =
            loads.iter().map(|load| load.size.next_multiple_of(HUGE_PAGE) * load.count.max(WARM_UP)).max();
        let reserve = Mutex::new(Reserve::create(lab.directory(), most.unwrap_or_default())?);
        Ok(Self { files, reserve })
    }
}

/// A running FTP server of one site, and what its client needs.
pub(super) struct Ftp<'a> {
    server: FtpServer,
    process: Process,
    originals: &'a Originals,
    is_warm: bool,
    /// Where uploads arrive; below the server's root.
    uploads: PathBuf,
    /// Where downloads arrive.
    downloads: PathBuf,
    /// The client's list of things to do.
    list: PathBuf,
}

impl<'a> Ftp<'a> {
    pub(super) fn start(lab: &Lab, site: &Site, server: FtpServer, originals: &'a Originals) -> Result<Self> {
        let root = site.directory().join("root");
        let (uploads, downloads) = (root.join("uploads"), site.directory().join("downloads"));
        std::fs::create_dir_all(&uploads)?;
        std::fs::create_dir_all(&downloads)?;
        for (path, _) in originals.files.values() {
            // Another name of the same file: its pages are in memory once.
            std::fs::hard_link(path, root.join(path.file_name().context("a file without a name")?))?;
        }
        let spawn = server.spawn(site, &root, &uploads)?;
        let mut process = lab.start(&format!("{}-{}", server.name(), site.name()), spawn)?;
        wait_for_port(site.peer(), SocketAddr::new(site.address(), PORT), &mut process, START)
            .with_context(|| format!("the FTP server on {}", site.subject().name()))?;
        let list = site.directory().join("curl");
        Ok(Self { server, process, originals, is_warm: false, uploads, downloads, list })
    }

    /// Lets the client transfer a load, and compares what arrived.
    pub(super) fn transfer(
        &mut self,
        site: &Site,
        direction: Direction,
        load: Load,
        progress: &Progress,
    ) -> Result<Measure> {
        if !std::mem::replace(&mut self.is_warm, true)
            && let Some(size) = self.originals.files.keys().next()
        {
            for direction in [Direction::Download, Direction::Upload] {
                self.transfer_once(site, direction, Load { size: *size, count: WARM_UP }, progress)?;
            }
        }
        self.transfer_once(site, direction, load, progress)
    }

    fn transfer_once(
        &self,
        site: &Site,
        direction: Direction,
        load: Load,
        progress: &Progress,
    ) -> Result<Measure> {
        let (original, hash) = self.originals.files.get(&load.size).context("no such file was made")?;
        std::fs::write(&self.list, self.instructions(site, direction, load, original))?;
        let mut reserve = self.originals.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        let placement = site.placement();
        let writers = if direction == Direction::Download { &placement.peer } else { &placement.application };
        let measure = reserve.lend(writers, || self.run_client(site, load, progress))?;
        progress.checking();
        let arrived = if direction == Direction::Download { &self.downloads } else { &self.uploads };
        for path in content::verify(arrived, load.count, hash)? {
            reserve.take_back(&path)?;
        }
        Ok(measure)
    }

    fn run_client(&self, site: &Site, load: Load, progress: &Progress) -> Result<Measure> {
        let bytes = load.size * load.count;
        let server = self.process.id();
        self.wait_for_sessions()?;
        let mut spawn = site.peer_program("curl")?;
        spawn.args(["--silent", "--show-error", "--fail-early"]);
        // Active mode: the server connects for the data. In passive mode curl 7.88 forgets, of every few files one, to go on
        // when its own connection stands at once, until its timer of a second; on a fast link that would be most of the time.
        spawn.args(["--ftp-port", "-", "--config"]).arg(&self.list);
        let (before, sleeps) = (Reading::take(site, &[server])?, meter::sleeps(server));
        let began = Instant::now();
        let mut client = Process::start(site.directory(), "curl-run", spawn)?;
        let mut watch = Watch::new(site);
        client.wait_for_success_while(patience(bytes), || progress.turn(site).and_then(|()| watch.turn()))?;
        let elapsed_seconds = began.elapsed().as_secs_f64();
        self.wait_for_sessions()?;
        let after = Reading::take(site, &[server])?;
        let sleeps = meter::sleeps(server).saturating_sub(sleeps);
        let measure = Measure {
            operations: load.count,
            bytes,
            elapsed_seconds,
            verified: true,
            tcp_connections: watch.into_traces(),
            ..Measure::default()
        };
        let mut measure = after.complete(&before, measure);
        // How often a process has slept nobody knows any more once it has ended.
        if !self.server.forks() {
            measure.counters.insert("application_sleeps".to_owned(), sleeps);
        }
        Ok(measure)
    }

    /// Waits until no session's process is left. It ends a moment after its client; what it has cost is known then, wherever it
    /// is counted, and none of it falls into what is measured next.
    fn wait_for_sessions(&self) -> Result<()> {
        let began = Instant::now();
        while self.server.forks() && !cpu::children(self.process.id()).is_empty() {
            if began.elapsed() > END {
                bail!(
                    "a session of {} has not ended {} s after its client:\n{}",
                    self.server.name(),
                    END.as_secs(),
                    self.process.text()
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn instructions(&self, site: &Site, direction: Direction, load: Load, original: &Path) -> String {
        let name = units::bytes(load.size);
        let server = format!("ftp://{}:{PORT}", site.address());
        let mut text = String::new();
        for number in 0..load.count {
            let result = match direction {
                Direction::Download => {
                    let to = self.downloads.join(number.to_string());
                    writeln!(text, "url = \"{server}/{name}\"\noutput = \"{}\"", to.display())
                }
                Direction::Upload => writeln!(
                    text,
                    "url = \"{server}/uploads/{number}\"\nupload-file = \"{}\"",
                    original.display()
                ),
            };
            result.expect("writing to a string does not fail");
        }
        text
    }
}

fn patience(bytes: u64) -> Duration {
    PART + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
}
