//! `outboard bench-end`: one end of a native transfer, as `outboard bench` starts it in a process of its own.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use perf::ends::{self, ClientOptions, Net, Operation, Request};

/// One end of a native transfer, started by `outboard bench`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose sockets the server uses: kernel, host or fep
    #[arg(long, default_value = "kernel")]
    on: String,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Does what clients ask for
    Serve {
        #[arg(long)]
        address: SocketAddr,
    },
    /// Asks a server
    Client(ClientArgs),
}

#[derive(clap::Args)]
struct ClientArgs {
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    operation: Operation,
    #[arg(long, default_value_t = 1)]
    bytes: u64,
    #[arg(long, default_value_t = 1)]
    count: u64,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
    check: bool,
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
    spin: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    raise_descriptor_limit();
    match args.role {
        Role::Serve { address } => {
            let net = Net::named(&args.on).with_context(|| format!("no sockets on {}", args.on))?;
            ends::serve(&net, address).with_context(|| format!("serving at {address}"))?;
        }
        Role::Client(client) => {
            let request = Request { operation: client.operation, check: client.check, bytes: client.bytes };
            let duration = Duration::try_from_secs_f64(client.seconds).context("the duration")?;
            ends::client(&ClientOptions {
                address: client.address,
                request,
                count: client.count,
                duration,
                spin: client.spin,
            })
            .with_context(|| format!("asking {}", client.address))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Ten thousand connections need as many descriptors on the kernel.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, opening the connection too many says why.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
