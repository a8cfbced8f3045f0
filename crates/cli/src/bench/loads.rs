//! The workloads of the native program: their flags, and the plans that follow from them.

use clap::Args as ClapArgs;
use perf::ends::{Flow, Plan, Protocol, Work};
use perf::load::Load;
use perf::runner::Common;
use perf::site::{Between, Placement};
use perf::units;

use super::Ways;
use super::shared::{LoadArgs, usage};

/// How long a trial goes on when nothing is said about it.
const DURATION: f64 = 3.0;
/// The same for a stream to another machine, as iperf3 has it.
const REMOTE_DURATION: f64 = 10.0;
/// How much goes each way when nothing is said about it.
const STREAM_BYTES: u64 = 10 << 30;

/// A kind of workload: its flags become a load.
pub(super) trait IntoLoad {
    /// The flags that it shares with others.
    fn shared(&self) -> &LoadArgs;
    /// Its name and its parts.
    fn parts(&self) -> anyhow::Result<(&'static str, Vec<(String, Plan)>)>;

    /// Who runs where unless flags say otherwise.
    fn placement(&self) -> Placement {
        Placement::default()
    }

    /// What trials of every kind need.
    fn common(&self) -> anyhow::Result<Common> {
        let args = self.shared();
        args.shared.common_on(&self.placement(), args.between())
    }

    /// The load; an error of the command line if it makes no sense.
    fn load(&self) -> anyhow::Result<Load> {
        let (name, parts) = self.parts()?;
        for (_, plan) in &parts {
            plan.check().map_err(usage)?;
        }
        Ok(Load { name, preset: self.shared().shared.preset.clone(), parts })
    }
}

/// Bytes by the native program, as many as go, every one checked; or a request and a long answer, again and again
#[derive(ClapArgs)]
#[command(args_override_self = true)]
pub(super) struct StreamArgs {
    /// How much goes each way on each connection [default: 10GiB, or with --client 10 s, unless --duration is given]
    #[arg(short = 'n', long, visible_alias = "bytes", value_name = "BYTES", value_parser = units::parse_bytes)]
    size: Option<u64>,
    /// Which way bytes go, as the client says it; both: one after the other [default: both; with --client upload]
    #[arg(long, value_enum)]
    direction: Option<Ways>,
    /// Bytes go to the peer only, as --direction download
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both ways at the same time
    #[arg(long)]
    bidir: bool,
    /// How much is produced and read at a time
    #[arg(short = 'l', long, value_name = "BYTES", default_value = "256KiB", value_parser = units::parse_bytes)]
    length: u64,
    /// Size of a request, which the server answers with --answer bytes; then again on the same connection
    #[arg(long, value_name = "BYTES", requires = "answer", conflicts_with_all = ["bidir", "reverse"], value_parser = units::parse_bytes)]
    request: Option<u64>,
    /// Size of an answer
    #[arg(long, value_name = "BYTES", requires = "request", value_parser = units::parse_bytes)]
    answer: Option<u64>,
    /// How many requests on each connection
    #[arg(long, value_name = "N", requires = "request")]
    count: Option<u64>,
    /// As --verify no
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    load: LoadArgs,
}

impl IntoLoad for StreamArgs {
    fn shared(&self) -> &LoadArgs {
        &self.load
    }

    /// A peer across a link works as much as the host; in answering single requests it would only be further away.
    fn placement(&self) -> Placement {
        match self.load.between() {
            Between::Link => Placement::default().with_peer_apart(),
            Between::Loopback => Placement::default(),
        }
    }

    fn parts(&self) -> anyhow::Result<(&'static str, Vec<(String, Plan)>)> {
        let work = if self.request.is_some() { Work::Exchange } else { Work::Stream };
        let mut plan = self.load.plan(Plan { chunk_bytes: self.length, ..Plan::new(work) });
        if self.no_check {
            plan.verify = perf::ends::Verify::No;
        }
        if let (Some(request_bytes), Some(answer_bytes)) = (self.request, self.answer) {
            let timed = self.count.is_none().then_some(plan.duration_seconds.unwrap_or(DURATION));
            let duration_seconds = timed.or(plan.duration_seconds);
            let plan = Plan { request_bytes, answer_bytes, count: self.count, duration_seconds, ..plan };
            return Ok(("stream", vec![("answers".to_owned(), plan)]));
        }
        plan.stream_bytes = self.size;
        let is_remote = self.load.client.host.is_some();
        if self.size.is_none() && plan.duration_seconds.is_none() {
            match is_remote {
                true => plan.duration_seconds = Some(REMOTE_DURATION),
                false => plan.stream_bytes = Some(STREAM_BYTES),
            }
        }
        // Of two machines, the client sends unless it is told otherwise, as iperf3's does.
        let direction = self.direction.unwrap_or(if is_remote { Ways::Upload } else { Ways::Both });
        let flows = match (self.bidir, self.reverse) {
            (true, _) => vec![("bidirectional", Flow::Both)],
            (false, true) => vec![("download", Flow::Download)],
            (false, false) => match direction {
                Ways::Both => vec![("download", Flow::Download), ("upload", Flow::Upload)],
                Ways::Upload => vec![("upload", Flow::Upload)],
                Ways::Download => vec![("download", Flow::Download)],
            },
        };
        let parts = flows.into_iter().map(|(name, flow)| (name.to_owned(), Plan { flow, ..plan.clone() }));
        Ok(("stream", parts.collect()))
    }
}

/// Requests and their answers on connections that stay, over TCP or UDP
#[derive(ClapArgs)]
#[command(args_override_self = true)]
pub(super) struct RrArgs {
    /// Size of a request, and of its answer
    #[arg(long, value_name = "BYTES", default_value = "1", value_parser = units::parse_bytes)]
    size: u64,
    /// Size of a request, if it is not that of its answer
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    request: Option<u64>,
    /// Size of an answer, if it is not that of its request
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    answer: Option<u64>,
    /// Over UDP
    #[arg(short = 'u', long)]
    udp: bool,
    /// Requests on the way on each connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: u64,
    /// Requests per second, begun when they are due and not when the last is answered; their time counts from then
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How many requests on each connection
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Let the client on the kernel look for its answers without sleeping
    #[arg(long, visible_alias = "peer-spins")]
    spin: bool,
    #[command(flatten)]
    load: LoadArgs,
}

impl IntoLoad for RrArgs {
    fn shared(&self) -> &LoadArgs {
        &self.load
    }

    fn parts(&self) -> anyhow::Result<(&'static str, Vec<(String, Plan)>)> {
        let plan = Plan {
            protocol: if self.udp { Protocol::Udp } else { Protocol::Tcp },
            request_bytes: self.request.unwrap_or(self.size),
            answer_bytes: self.answer.unwrap_or(self.size),
            depth: self.depth,
            rate_per_second: self.rate,
            client_spins: self.spin,
            ..Plan::new(Work::Exchange)
        };
        Ok(("rr", vec![("round trips".to_owned(), timed(self.load.plan(plan), self.count))]))
    }
}

/// Connect, a request, its answer, disconnect; again and again, over TCP
#[derive(ClapArgs)]
#[command(args_override_self = true)]
pub(super) struct CrrArgs {
    /// Size of a request
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = units::parse_bytes)]
    request: u64,
    /// Size of an answer
    #[arg(long, value_name = "BYTES", default_value = "8KiB", value_parser = units::parse_bytes)]
    answer: u64,
    /// Transactions per second, begun when they are due; their time counts from then
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How many transactions of each client
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    load: LoadArgs,
}

impl IntoLoad for CrrArgs {
    fn shared(&self) -> &LoadArgs {
        &self.load
    }

    fn parts(&self) -> anyhow::Result<(&'static str, Vec<(String, Plan)>)> {
        let plan = Plan {
            request_bytes: self.request,
            answer_bytes: self.answer,
            rate_per_second: self.rate,
            ..Plan::new(Work::Transact)
        };
        Ok(("crr", vec![("transactions".to_owned(), timed(self.load.plan(plan), self.count))]))
    }
}

/// Messages of one size from the client to the server, each sent and received as one
#[derive(ClapArgs)]
#[command(args_override_self = true)]
pub(super) struct MessagesArgs {
    /// Size of a message
    #[arg(short = 'l', long, visible_alias = "length", value_name = "BYTES", default_value = "1408", value_parser = units::parse_bytes)]
    size: u64,
    /// Over UDP
    #[arg(short = 'u', long)]
    udp: bool,
    /// Messages per second [default: as many as go]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How many messages on each connection [default: 20000, unless --duration is given]
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    load: LoadArgs,
}

impl IntoLoad for MessagesArgs {
    fn shared(&self) -> &LoadArgs {
        &self.load
    }

    fn parts(&self) -> anyhow::Result<(&'static str, Vec<(String, Plan)>)> {
        /// Of the published experiment `hp3000`.
        const COUNT: u64 = 20_000;
        let count = self.count.or_else(|| self.load.duration.is_none().then_some(COUNT));
        let plan = Plan {
            protocol: if self.udp { Protocol::Udp } else { Protocol::Tcp },
            request_bytes: self.size,
            rate_per_second: self.rate,
            count,
            ..Plan::new(Work::Messages)
        };
        Ok(("messages", vec![("messages".to_owned(), self.load.plan(plan))]))
    }
}

/// Connections that are opened, held, and replaced by others
#[derive(ClapArgs)]
#[command(args_override_self = true)]
pub(super) struct ConnectionsArgs {
    /// How many are held
    #[arg(long, value_name = "N", default_value_t = 1000)]
    hold: u64,
    /// How many are opened per second until so many are held [default: as many as go]
    #[arg(long, value_name = "N")]
    ramp: Option<f64>,
    /// How many are replaced per second, oldest first [default: none]
    #[arg(long, value_name = "N")]
    churn: Option<f64>,
    #[command(flatten)]
    load: LoadArgs,
}

impl IntoLoad for ConnectionsArgs {
    fn shared(&self) -> &LoadArgs {
        &self.load
    }

    fn parts(&self) -> anyhow::Result<(&'static str, Vec<(String, Plan)>)> {
        let mut plan = self.load.plan(Plan {
            rate_per_second: self.ramp,
            churn_per_second: self.churn,
            ..Plan::new(Work::Hold)
        });
        if plan.connections != 1 || plan.omit_seconds != 0.0 {
            return Err(usage(
                "connections are opened by one thread, and all count: no --parallel, no --omit",
            ));
        }
        plan.connections = self.hold;
        plan.duration_seconds.get_or_insert(DURATION);
        Ok(("connections", vec![("connections".to_owned(), plan)]))
    }
}

/// So many operations, or for a time; for the usual time if nothing is said.
fn timed(plan: Plan, count: Option<u64>) -> Plan {
    let duration_seconds = plan.duration_seconds.or_else(|| count.is_none().then_some(DURATION));
    Plan { count, duration_seconds, ..plan }
}
