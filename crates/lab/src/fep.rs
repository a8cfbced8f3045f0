//! A front-end processor in the laboratory, and applications on it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{Lab, Namespace, Process, Spawn};

/// How long a FEP may take to come up or to go.
const PATIENCE: Duration = Duration::from_secs(60);

/// The `outboard` executable: `OUTBOARD_BIN`, or this program itself if it is `outboard`, or the one that stands beside
/// it or above it in cargo's target folder.
pub fn executable() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("OUTBOARD_BIN") {
        return Ok(path.into());
    }
    let here = std::env::current_exe().context("where is this program?")?;
    if here.file_stem().is_some_and(|stem| stem == "outboard") {
        return Ok(here);
    }
    let above = here.ancestors().skip(1).take(3).map(|folder| folder.join("outboard"));
    let mut candidates = above.filter(|path| path.is_file());
    candidates.next().with_context(|| {
        format!("no `outboard` executable near {} (build it, or name it in OUTBOARD_BIN)", here.display())
    })
}

/// How to start a front-end processor.
#[derive(Debug, Clone)]
pub struct FepConfig<'a> {
    /// The namespace whose kernel is its peer; the TAP device lies there.
    pub peer: &'a Namespace,
    /// The TAP device's name ([`Namespace::tap`] has made it).
    pub tap: &'a str,
    /// The FEP's own address.
    pub address: IpAddr,
    /// The prefix length of the address.
    pub prefix: u8,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// The processors it may run on; none: all.
    pub processors: &'a [usize],
    /// Further arguments of `outboard up`.
    pub arguments: &'a [&'a str],
}

/// A running front-end processor.
#[derive(Debug)]
pub struct Fep {
    process: Process,
    socket: PathBuf,
    outboard: PathBuf,
}

impl Fep {
    /// Starts `outboard up` and waits until it answers.
    pub fn start(lab: &Lab, name: &str, config: &FepConfig<'_>) -> Result<Self> {
        Self::start_with(executable()?, lab, name, config)
    }

    /// The same with another `outboard` executable.
    pub fn start_with(outboard: PathBuf, lab: &Lab, name: &str, config: &FepConfig<'_>) -> Result<Self> {
        let socket = lab.file(&format!("{name}.sock"));
        let mut spawn = config.peer.command(&outboard);
        spawn
            .args(["up", "--tap", config.tap])
            .arg("--address")
            .arg(format!("{}/{}", config.address, config.prefix))
            .arg("--mtu")
            .arg(config.mtu.to_string())
            .arg("--socket")
            .arg(&socket)
            .args(config.arguments)
            .on_processors(config.processors);
        let process = lab.start(name, spawn)?;
        let mut fep = Self { process, socket, outboard };
        let began = Instant::now();
        while let Err(error) = fep.status() {
            if !fep.process.is_running()? || began.elapsed() > PATIENCE {
                bail!("the FEP does not come up: {error:#}:\n{}", fep.process.text());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(fep)
    }

    /// Its control socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process that was started (the supervisor); the worker is its child.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The process that was started.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What `outboard status --json` says.
    pub fn status(&self) -> Result<String> {
        let mut spawn = Spawn::new(Command::new(&self.outboard));
        spawn.args(["status", "--json", "--socket"]).arg(&self.socket);
        let output = spawn.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        String::from_utf8(output.stdout).context("the status is not text")
    }

    /// An unmodified program on this FEP, to be started inside `namespace` (an empty one shows that no byte takes
    /// another way): `outboard run -- PROGRAM`. Add the program's arguments to what is given back.
    pub fn run(&self, namespace: &Namespace, program: &str) -> Spawn {
        let mut spawn = namespace.command(&self.outboard);
        spawn.args(["run", "--socket"]).arg(&self.socket).args(["--", program]);
        spawn
    }

    /// Stops it in order; an error unless it exits with 0.
    pub fn stop(self) -> Result<()> {
        let status = self.process.stop(PATIENCE)?;
        ensure!(status.success(), "the FEP ended with {status}");
        Ok(())
    }
}
