//! The `outboard` command.
//!
//! One file per command, each with its `Args` (what clap parses) and a `main(args)` that answers with the exit
//! status. An error is printed with its causes, one line, to stderr; its exit status is 1 unless it says otherwise
//! ([`exit`]). Text for people goes to stdout, progress and the log to stderr.

mod bench;
mod compare;
mod down;
mod exit;
mod fep_worker;
mod reach;
mod reproduce;
mod run;
mod schema;
mod status;
mod target;
mod up;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::exit::ExitWith;

/// A TCP/IP stack that runs outboard: in a process of its own, on its own core.
#[derive(Parser)]
#[command(name = "outboard", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Args),
    Down(down::Args),
    Status(status::Args),
    Run(run::Args),
    Bench(Box<bench::Args>),
    Compare(compare::Args),
    Reproduce(reproduce::Args),
    Schema(schema::Args),
    #[command(hide = true)]
    BenchEnd(bench::EndArgs),
    #[command(hide = true)]
    FepWorker(fep_worker::Args),
}

fn main() -> ExitCode {
    let cli = match bench::expand(std::env::args_os().collect()) {
        Ok(arguments) => Cli::parse_from(arguments),
        Err(error) => return exit::report(&ExitWith::new(exit::USAGE, error).into()),
    };
    start_log();
    let answer = match cli.command {
        Command::Up(args) => up::main(args),
        Command::Down(args) => down::main(args),
        Command::Status(args) => status::main(args),
        Command::Run(args) => run::main(args),
        Command::Bench(args) => bench::main(*args),
        Command::Compare(args) => compare::main(args),
        Command::Reproduce(args) => reproduce::main(args),
        Command::Schema(args) => schema::main(args),
        Command::BenchEnd(args) => bench::end_main(args),
        Command::FepWorker(args) => fep_worker::main(args),
    };
    answer.unwrap_or_else(|error| exit::report(&error))
}

/// The log goes to stderr; `OUTBOARD_LOG` chooses what of it, as in `OUTBOARD_LOG=debug` or `OUTBOARD_LOG=fep=trace`.
fn start_log() {
    let filter = EnvFilter::try_from_env("OUTBOARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A FEP that is about to detach has the terminal only for a moment; colours do not belong into its log.
    let colours =
        std::io::stderr().is_terminal() && !std::env::args_os().any(|argument| argument == "--announce");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
