//! Two machines: `outboard bench -s` on one, `outboard bench WORKLOAD -c HOST` on the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use anyhow::Context;
use perf::ends::{self, Net, Server};
use perf::load::Load;
use perf::remote::{self, Remote};
use perf::results::Document;
use perf::site::Subject;

use super::shared::{LoadArgs, usage};
use crate::target::Target;

/// The flags of a client whose server is on another machine.
#[derive(clap::Args)]
pub(super) struct ClientArgs {
    /// Run the client here, and the server on this machine, where `outboard bench -s` runs
    #[arg(short = 'c', long = "client", value_name = "HOST", conflicts_with_all = [
        "loopback", "mtu", "application_cpus", "fep_cpus", "peer_cpus", "fep_arguments", "against",
    ])]
    pub(super) host: Option<String>,
    /// The server's port [default: 7700]
    #[arg(short = 'p', long, value_name = "PORT", requires = "host")]
    port: Option<u16>,
    /// IPv4 only
    #[arg(short = '4', requires = "host", conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only, on the kernel's sockets
    #[arg(short = '6', requires = "host")]
    ipv6: bool,
    /// With --on fep: the FEP's control socket [default: the default FEP's]
    #[arg(long, value_name = "PATH", requires = "host")]
    socket: Option<std::path::PathBuf>,
}

/// Serves the clients of `outboard bench -c` until it is stopped
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// (Tells apart from a client)
    #[arg(short = 's', long = "server", hide = true)]
    server: bool,
    /// The port to listen on; data goes over ports that are chosen for each client
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = ends::PORT)]
    port: u16,
    /// The address to listen on [default: all]
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Whose sockets to use: kernel or fep
    #[arg(long, value_name = "SUBJECT", default_value = "kernel")]
    on: Subject,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only, on the kernel's sockets
    #[arg(short = '6')]
    ipv6: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn serve(args: &ServerArgs) -> anyhow::Result<ExitCode> {
    check_family(args.on, args.ipv6)?;
    let any = if args.ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
    let address = args.bind.unwrap_or(any);
    if (args.ipv4 && address.is_ipv6()) || (args.ipv6 && address.is_ipv4()) {
        return Err(usage(format!("{address} is of the other family")));
    }
    let end = end(args.on, || args.target.socket())?;
    ends::serve(&end, SocketAddr::new(address, args.port), |address| {
        eprintln!("serving at {address} on {}", end.net.name());
    })
    .with_context(|| format!("serving at {address}, port {}", args.port))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a load against a server on another machine.
pub(super) fn run(args: &LoadArgs, mut load: Load) -> anyhow::Result<Document> {
    let (client, shared) = (&args.client, &args.shared);
    let subject = match shared.on[..] {
        [] => Subject::Kernel,
        [one] => one,
        _ => return Err(usage("with --client, --on names the sockets of this end: one subject")),
    };
    check_family(subject, client.ipv6)?;
    if shared.congestion_control.is_some() && subject != Subject::Kernel {
        return Err(usage(
            "congestion control by socket is the kernel's; the FEP's is set where it is started",
        ));
    }
    if shared.hogs.is_some() {
        return Err(usage(
            "busy programs beside the trials are started on one machine: no --hogs with --client",
        ));
    }
    for (_, plan) in &mut load.parts {
        plan.congestion_control.clone_from(&shared.congestion_control);
    }
    let host = client.host.as_deref().unwrap_or_default();
    let server = resolve(host, client.port.unwrap_or(ends::PORT), client.ipv4, client.ipv6)?;
    let socket = || fep::names::find_socket(client.socket.as_deref(), None);
    let remote = Remote {
        own: end(subject, socket)?,
        server,
        trials: shared.trials.unwrap_or(1),
        until: shared.until,
        quiet: shared.outputs.quiet,
        json_stream: shared.outputs.json_stream,
        command: std::env::args().collect(),
    };
    remote::run(&remote, &load)
}

/// One end, on the kernel's sockets or on a FEP's.
fn end(subject: Subject, socket: impl Fn() -> std::path::PathBuf) -> anyhow::Result<Server> {
    match subject {
        Subject::Kernel => Ok(Server { net: Net::Kernel, accounts: true, fep_socket: None }),
        Subject::Fep => {
            let socket = socket();
            let endpoint = outboard::Endpoint::fep(&socket)
                .with_context(|| format!("no FEP answers at {}", socket.display()))?;
            Ok(Server { net: Net::Outboard(endpoint), accounts: true, fep_socket: Some(socket) })
        }
        Subject::Host | Subject::FepUnmodified => Err(usage(
            "between two machines, an end is on `kernel` or on `fep`; `outboard run -- outboard bench …` is its other forms",
        )),
    }
}

fn check_family(subject: Subject, ipv6: bool) -> anyhow::Result<()> {
    if ipv6 && subject != Subject::Kernel {
        return Err(usage("the FEP does not speak IPv6 yet: -6 is for the kernel's sockets"));
    }
    Ok(())
}

fn resolve(host: &str, port: u16, ipv4: bool, ipv6: bool) -> anyhow::Result<SocketAddr> {
    let addresses = (host, port).to_socket_addrs().with_context(|| format!("the address of {host}"))?;
    let family = |address: &SocketAddr| if ipv6 { address.is_ipv6() } else { !ipv4 || address.is_ipv4() };
    // IPv4 first: the FEP has nothing else.
    let mut fitting: Vec<SocketAddr> = addresses.filter(family).collect();
    fitting.sort_by_key(SocketAddr::is_ipv6);
    fitting.first().copied().with_context(|| format!("{host} has no address of that family"))
}
