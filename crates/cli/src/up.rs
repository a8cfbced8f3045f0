//! `outboard up`: starts a FEP, in the foreground or behind the terminal.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use fep::config::{Config, OneOrMany, RouteSetting, Settings};
use fep::names;
use fep::supervisor::{SupervisorError, supervise};
use tracing::info;

use crate::exit::{ExitWith, FAILED, USAGE};

/// What a detached FEP says to the waiting command when it answers.
const READY: &str = "ready";

/// Starts a front-end processor: a worker, and the supervisor that keeps it running
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The TAP device, created if it is absent
    #[arg(long, value_name = "NAME")]
    tap: Option<String>,
    /// An address of the stack with its prefix length, as in 10.80.0.2/24; may be given several times
    #[arg(long, value_name = "CIDR")]
    address: Vec<String>,
    /// The gateway of the default route
    #[arg(long, value_name = "IP")]
    gateway: Option<IpAddr>,
    /// A further route, as in "10.81.0.0/16 via 10.80.0.254 mtu 1400"; may be given several times
    #[arg(long, value_name = "ROUTE")]
    route: Vec<RouteSetting>,
    /// The largest IP packet, 576 to 65521 bytes (65535 with --tun)
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// An address for the kernel's side of the device, handy for a first try
    #[arg(long, value_name = "CIDR")]
    kernel_address: Option<String>,
    /// A TOML file with the same settings and more; flags win
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The FEP's name, if there are several
    #[arg(long)]
    name: Option<String>,
    /// The control socket, if not the one that follows from the name
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Write every frame to this pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Segment and checksum in software
    #[arg(long)]
    no_offload: bool,
    /// Carry bare IP packets over a TUN device instead of Ethernet frames over a TAP device
    #[arg(long)]
    tun: bool,
    /// The congestion control of connections that choose none: cubic, reno or bbr
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// How long to look for work before sleeping
    #[arg(long, value_name = "MICROSECONDS")]
    spin: Option<u64>,
    /// The slice that the worker asks the scheduler for; 0: the system's
    #[arg(long, value_name = "MICROSECONDS")]
    slice: Option<u64>,
    /// Return when the FEP answers, and leave it running
    #[arg(long)]
    detach: bool,
    /// Where a detached FEP writes its log
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Set by the command that detaches: say on standard output when the FEP answers
    #[arg(long, hide = true)]
    announce: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let settings = settings(&args).map_err(|error| ExitWith::new(USAGE, error.to_string()))?;
    let config = Config::new(&settings).map_err(|error| ExitWith::new(USAGE, error.to_string()))?;
    let log = args.log.clone().unwrap_or_else(|| names::run_directory().join(format!("{}.log", config.name)));
    if args.detach && !args.announce {
        return detach(&log);
    }
    let mut terminal = args.announce.then(|| Terminal::leave(&log)).transpose()?;
    let announced = |config: &Config| {
        let addresses: Vec<String> = config.network.addresses.iter().map(ToString::to_string).collect();
        info!("{} answers on {} with {}", config.socket.display(), config.tap, addresses.join(", "));
        if let Some(terminal) = terminal.take() {
            terminal.announce();
        }
    };
    let outcome = supervise(&settings, worker_command, announced);
    if let (Err(_), Some(terminal)) = (&outcome, &terminal) {
        terminal.restore();
    }
    outcome.map_err(|error| match error {
        SupervisorError::Config(error) => ExitWith::new(USAGE, error.to_string()),
        error => ExitWith::new(FAILED, error.to_string()),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &Args) -> Result<Settings, fep::config::ConfigError> {
    let flags = Settings {
        name: args.name.clone(),
        socket: args.socket.clone(),
        tap: args.tap.clone(),
        address: (!args.address.is_empty()).then(|| OneOrMany::Many(args.address.clone())),
        gateway: args.gateway,
        route: (!args.route.is_empty()).then(|| args.route.clone()),
        kernel_address: args.kernel_address.clone(),
        mtu: args.mtu,
        offload: args.no_offload.then_some(false),
        tun: args.tun.then_some(true),
        congestion_control: args.congestion_control.clone(),
        spin_us: args.spin,
        slice_us: args.slice,
        capture: args.capture.clone(),
        ..Settings::default()
    };
    let file = args.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
    let mut settings = flags.over(file);
    // The environment names a socket where neither a flag nor the file does.
    if settings.socket.is_none() && settings.name.is_none() {
        settings.socket =
            std::env::var_os(names::SOCKET_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    }
    Ok(settings)
}

fn worker_command() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("fep-worker");
    Ok(command)
}

/// Starts this same command in a session of its own and waits until its FEP answers or it ends.
fn detach(log: &Path) -> anyhow::Result<ExitCode> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--announce")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .current_dir(std::env::current_dir()?)
        .spawn()
        .context("cannot start the FEP")?;
    let mut line = String::new();
    let said = child.stdout.take().context("the FEP has no output")?;
    BufReader::new(said).read_line(&mut line).context("cannot hear the FEP")?;
    if line.trim_end() == READY {
        info!("detached; the log is {}", log.display());
        return Ok(ExitCode::SUCCESS);
    }
    // It has said why on stderr, which it shares with this process.
    let status = child.wait().context("cannot wait for the FEP")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)))
}

/// The terminal of the command that detached this process: kept until the FEP answers, so that a failure before that
/// can be told there, while the log of both processes goes to its file from the start.
struct Terminal {
    stderr: OwnedFd,
}

impl Terminal {
    fn leave(log: &Path) -> anyhow::Result<Self> {
        // Failing means that this process leads a session already.
        let _ = rustix::process::setsid();
        if let Some(directory) = log.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write the log {}: give another --log", log.display()))?;
        let stderr = io::stderr().as_fd().try_clone_to_owned().context("cannot keep standard error")?;
        rustix::stdio::dup2_stderr(&file).context("cannot redirect standard error")?;
        Ok(Self { stderr })
    }

    /// Tells whoever waits on standard output that the FEP answers, and lets go.
    fn announce(self) {
        let mut out = io::stdout();
        // The waiting command may have been interrupted; the FEP runs on.
        let _ = writeln!(out, "{READY}");
        let _ = out.flush();
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    }

    fn restore(&self) {
        // Without it the reason stands in the log alone.
        let _ = rustix::stdio::dup2_stderr(&self.stderr);
    }
}
