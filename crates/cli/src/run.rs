//! `outboard run`: runs an unmodified program over an outboard stack.
//!
//! The program is executed in place of this command with the preload library in front of its C library, so its exit
//! status, its signals and its terminal are its own. Before that, what can fail is tried: nothing falls back to the
//! kernel silently.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::ValueEnum;
use fep::names;
use outboard::scheduling::SLICE_VARIABLE;

use crate::exit::{ExitWith, NO_FEP, USAGE};
use crate::reach;

/// What the dynamic linker loads before everything else.
const LD_PRELOAD: &str = "LD_PRELOAD";
/// Where the preload library is, if not where an installation has it.
const PRELOAD_VARIABLE: &str = "OUTBOARD_PRELOAD";
const PRELOAD_NAME: &str = "liboutboard_preload.so";
/// A shell's status for a program that is there but cannot be executed, and for one that is not there.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs an unmodified program over an outboard stack
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which stack: a front-end processor's, or one inside the program's own process
    #[arg(long, value_enum, default_value_t = Architecture::Fep)]
    arch: Architecture,
    /// The FEP's control socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The FEP's name, if there are several
    #[arg(long)]
    name: Option<String>,
    /// With --arch host: the TAP device (or OUTBOARD_TAP)
    #[arg(long, value_name = "NAME")]
    tap: Option<OsString>,
    /// With --arch host: the stack's address with its prefix length (or OUTBOARD_ADDRESS)
    #[arg(long, value_name = "CIDR")]
    address: Option<OsString>,
    /// With --arch host: the gateway of the default route (or OUTBOARD_GATEWAY)
    #[arg(long, value_name = "IP")]
    gateway: Option<OsString>,
    /// With --arch host: the largest IP packet (or OUTBOARD_MTU)
    #[arg(long, value_name = "BYTES")]
    mtu: Option<OsString>,
    /// With --arch host: the congestion control, cubic, reno or bbr (or OUTBOARD_CONGESTION_CONTROL)
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<OsString>,
    /// The slice that threads ask the scheduler for when they wait for sockets; 0: they stay as they are
    #[arg(long, value_name = "MICROSECONDS", value_parser = slice_us)]
    slice: Option<u64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Where the stack runs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Architecture {
    /// In a front-end processor
    Fep,
    /// In a thread of the program's process
    Host,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(ExitWith::new(USAGE, "no program to run").into());
    };
    let mut command = Command::new(program);
    command.args(arguments).env(LD_PRELOAD, preload_list()?);
    if let Some(slice) = args.slice {
        command.env(SLICE_VARIABLE, slice.to_string());
    }
    match args.arch {
        Architecture::Fep => use_fep(&args, &mut command)?,
        Architecture::Host => use_host(&args, &mut command)?,
    }
    if let Some(reason) = reach::out_of_reach(Path::new(program)) {
        eprintln!(
            "outboard: warning: {} {reason}; its sockets stay with the kernel",
            Path::new(program).display()
        );
    }
    let error = command.exec();
    let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    Err(ExitWith::new(status, format!("{}: {error}", Path::new(program).display())).into())
}

/// The FEP must answer before the program starts.
fn use_fep(args: &Args, command: &mut Command) -> anyhow::Result<()> {
    let socket = names::find_socket(args.socket.as_deref(), args.name.as_deref());
    let socket = std::path::absolute(&socket)?;
    let unreachable =
        |error: io::Error| ExitWith::new(NO_FEP, format!("no FEP answers at {}: {error}", socket.display()));
    drop(outboard::Endpoint::fep(&socket).map_err(unreachable)?);
    command.env(names::SOCKET_VARIABLE, &socket).env_remove("OUTBOARD_ARCH");
    Ok(())
}

/// The device must be there and free before the program starts.
fn use_host(args: &Args, command: &mut Command) -> anyhow::Result<()> {
    command.env("OUTBOARD_ARCH", "host").env_remove(names::SOCKET_VARIABLE);
    let given = [
        ("OUTBOARD_TAP", &args.tap),
        ("OUTBOARD_ADDRESS", &args.address),
        ("OUTBOARD_GATEWAY", &args.gateway),
        ("OUTBOARD_MTU", &args.mtu),
        ("OUTBOARD_CONGESTION_CONTROL", &args.congestion_control),
    ];
    let setting = |name: &str| -> Option<OsString> {
        let flag =
            given.iter().find(|(variable, _)| *variable == name).and_then(|(_, value)| (*value).clone());
        flag.or_else(|| std::env::var_os(name)).filter(|value| !value.is_empty())
    };
    for (name, value) in given {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let settings =
        outboard::HostSettings::read(setting).map_err(|error| ExitWith::new(USAGE, error.to_string()))?;
    let tap = settings.tap.clone();
    settings
        .open_device()
        .map_err(|error| ExitWith::new(NO_FEP, format!("the device {tap} cannot be used: {error}")))?;
    Ok(())
}

fn slice_us(text: &str) -> Result<u64, String> {
    let slice = text.parse().ok().filter(|slice| *slice == 0 || (100..=100_000).contains(slice));
    slice.ok_or_else(|| format!("`{text}` is neither 0 nor from 100 to 100000 (microseconds)"))
}

/// The preload library in front of what is preloaded already.
fn preload_list() -> anyhow::Result<OsString> {
    let library = find_preload()?;
    let mut list = library.into_os_string();
    if let Some(others) = std::env::var_os(LD_PRELOAD).filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    Ok(list)
}

/// Next to this executable, in the library directory of its installation, or where the environment says.
fn find_preload() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(PRELOAD_VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(std::path::absolute(path)?);
    }
    let executable = std::env::current_exe()?;
    let directory = executable.parent().unwrap_or(Path::new("/"));
    let candidates = [
        directory.join(PRELOAD_NAME),
        directory.join("deps").join(PRELOAD_NAME),
        directory.join("../lib/outboard").join(PRELOAD_NAME),
    ];
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        ExitWith::new(crate::exit::FAILED, format!("{PRELOAD_NAME} is in none of {}", places.join(", ")))
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let cli = Cli::try_parse_from(["run", "--arch", "host", "--", "curl", "--socket", "x"]).unwrap();
        assert!(cli.args.arch == Architecture::Host);
        assert_eq!(cli.args.program, ["curl", "--socket", "x"].map(OsString::from));
        assert_eq!(cli.args.socket, None);
        assert!(Cli::try_parse_from(["run"]).is_err());
    }
}
