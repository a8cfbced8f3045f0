//! `outboard bench-end`: one end of a native load, as `outboard bench` starts it in a process of its own.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use perf::ends::{self, Net, Plan, Said, Server};

/// One end of a native load, started by `outboard bench`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose sockets this end uses: kernel, host or fep
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
    /// Serves, and asks itself: client and server on the stack of one process
    Both(ClientArgs),
    /// Uses the processor for a time that is known, to check the accounting with
    Burn(BurnArgs),
    /// Computes until it is killed
    Hog {
        #[arg(long, allow_hyphen_values = true)]
        nice: i32,
    },
    /// Sends ARP requests and broadcasts that are for nobody
    Storm(StormArgs),
}

#[derive(clap::Args)]
struct StormArgs {
    #[arg(long)]
    device: String,
    /// Frames per second
    #[arg(long)]
    rate: f64,
    #[arg(long)]
    seconds: f64,
}

#[derive(clap::Args)]
struct BurnArgs {
    /// Seconds in its own code
    #[arg(long)]
    user: f64,
    /// Seconds in the kernel's
    #[arg(long)]
    system: f64,
    /// Sleep afterwards, and do not end
    #[arg(long)]
    stay: bool,
}

#[derive(clap::Args)]
struct ClientArgs {
    #[arg(long)]
    address: SocketAddr,
    /// What to do, as JSON
    #[arg(long, value_parser = parse_plan)]
    plan: Plan,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    // Ten thousand connections need as many descriptors on the kernel.
    fep::process::raise_descriptor_limit();
    let end = || -> anyhow::Result<Server> {
        let net = Net::named(&args.on).with_context(|| format!("no sockets on {}", args.on))?;
        // Whoever started this reads the clocks.
        Ok(Server { net, accounts: false, fep_socket: None })
    };
    match args.role {
        Role::Burn(burn) => {
            let time = |seconds: f64| Duration::try_from_secs_f64(seconds).context("a time to use");
            ends::burn(time(burn.user)?, time(burn.system)?, burn.stay)?;
        }
        Role::Hog { nice } => perf::hogs::hog(nice)?,
        Role::Storm(args) => {
            let duration = Duration::try_from_secs_f64(args.seconds).context("the duration")?;
            let storm = perf::storm::storm(&args.device, args.rate, duration)
                .with_context(|| format!("sending out of {}", args.device))?;
            println!("{}", serde_json::to_string(&storm)?);
        }
        Role::Serve { address } => {
            ends::serve(&end()?, address, |_| ()).with_context(|| format!("serving at {address}"))?;
        }
        Role::Client(client) => ask(&end()?, &client)?,
        Role::Both(client) => {
            let end = end()?;
            let (ready, is_ready) = mpsc::channel::<()>();
            let (own, address) = (end.clone(), client.address);
            std::thread::spawn(move || {
                if let Err(error) = ends::serve(&own, address, |_| drop(ready)) {
                    eprintln!("outboard: serving at {address}: {error}");
                }
            });
            // Hung up either way: a server that failed is not there to be asked.
            let _ = is_ready.recv();
            ask(&end, &client)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(end: &Server, client: &ClientArgs) -> anyhow::Result<()> {
    let outcome = ends::run(end, client.address, &client.plan, &|said| ends::print(&said))
        .with_context(|| format!("asking {}", client.address))?;
    ends::print(&Said::Outcome(Box::new(outcome)));
    Ok(())
}

fn parse_plan(text: &str) -> Result<Plan, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
