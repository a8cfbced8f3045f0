//! The native program on a site ([`crate::ends`]): a server on the subject's stack, and clients on the peer or on the
//! same stack.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::{Lab, Process, Spawn, wait_for_port};

use crate::ends::{self, Outcome, Plan, Protocol, Said, Verify, Work};
use crate::interrupt;
use crate::meter::Reading;
use crate::progress::Progress;
use crate::results::{CpuSeconds, Measure};
use crate::site::{Between, Site};
use crate::trace::Watch;

/// How long the server may take to answer.
const START: Duration = Duration::from_secs(20);

/// A running native server of one site.
pub(crate) struct Native {
    /// None where the client's process is the server too: a stack in a process is reached on itself from within only.
    server: Option<Process>,
}

impl Native {
    pub(crate) fn start(lab: &Lab, site: &Site) -> Result<Self> {
        if site.shares_process() {
            return Ok(Self { server: None });
        }
        let address = SocketAddr::new(site.address(), ends::PORT);
        let mut spawn = site.native()?;
        spawn.args(["serve", "--address"]).arg(address.to_string());
        let mut process = lab.start(&format!("native-{}", site.name()), spawn)?;
        wait_for_port(site.peer(), address, &mut process, START)
            .with_context(|| format!("the native server on {}", site.name()))?;
        Ok(Self { server: Some(process) })
    }

    /// Carries out a plan between two readings.
    pub(crate) fn run(&mut self, site: &Site, plan: &Plan, progress: &Progress) -> Result<Measure> {
        let spawn = self.client(site, plan)?;
        let applications: Vec<u32> = self.server.iter().map(Process::id).collect();
        let mut before = Reading::take(site, &applications)?;
        let mut client = Process::start(site.directory(), "native-client", spawn)?;
        let mut heard = Heard::default();
        let mut watch = followed(plan).then(|| Watch::new(site));
        client
            .wait_for_success_while(plan.patience(), || {
                interrupt::check()?;
                if heard.listen(&client_output(site)?, |interval| progress.interval(site.name(), interval))? {
                    before = Reading::take(site, &applications)?;
                    watch.as_mut().map(Watch::restart);
                }
                watch.as_mut().map_or(Ok(()), Watch::turn)
            })
            .with_context(|| self.server_text())?;
        let after = Reading::take(site, &applications)?;
        heard.listen(&client.stdout()?, |interval| progress.interval(site.name(), interval))?;
        let outcome = heard.outcome.context("the client has not told its outcome")?;
        if plan.verify == Verify::Pattern && !outcome.verified {
            bail!("the bytes that arrived were not checked");
        }
        let measure = measure(site, plan, &outcome)?;
        let tcp_connections = watch.map(Watch::into_traces).unwrap_or_default();
        Ok(after.complete(&before, Measure { tcp_connections, ..measure }))
    }

    /// Opens connections and keeps them open as long as the process given back lives.
    pub(crate) fn hold(&mut self, site: &Site, count: u64) -> Result<Process> {
        let plan = Plan { connections: count, ..Plan::new(Work::Hold) };
        // Holders of all subjects live at the same time.
        let mut client = Process::start(site.directory(), "holder", self.client(site, &plan)?)?;
        let began = Instant::now();
        let mut heard = Heard::default();
        while !heard.is_held {
            heard.listen(&client.stdout()?, |_| ())?;
            if !client.is_running()? || began.elapsed() > plan.patience() {
                bail!("the connections do not come up:\n{}\n{}", client.text(), self.server_text());
            }
            std::thread::sleep(Duration::from_millis(20));
            interrupt::check()?;
        }
        Ok(client)
    }

    /// The server's process, where there is one.
    pub(crate) fn id(&self) -> Option<u32> {
        self.server.as_ref().map(Process::id)
    }

    fn client(&self, site: &Site, plan: &Plan) -> Result<Spawn> {
        let mut spawn = match site.between() {
            Between::Link => {
                let mut spawn = site.peer_program(lab::executable()?)?;
                spawn.args(["bench-end", "client"]);
                spawn
            }
            Between::Loopback => {
                let mut spawn = site.native()?;
                spawn.arg(if site.shares_process() { "both" } else { "client" });
                spawn
            }
        };
        let address = SocketAddr::new(site.address(), ends::PORT);
        spawn.arg("--address").arg(address.to_string());
        spawn.arg("--plan").arg(serde_json::to_string(plan)?);
        Ok(spawn)
    }

    fn server_text(&self) -> String {
        match &self.server {
            Some(server) => format!("the native server says:\n{}", server.text()),
            None => "the server is in the client's process".to_owned(),
        }
    }
}

/// Whether a plan's connections live long enough to be looked at while they do, and are few enough.
fn followed(plan: &Plan) -> bool {
    let stays = matches!(plan.work, Work::Exchange | Work::Stream | Work::Messages);
    stays && plan.protocol == Protocol::Tcp
}

fn client_output(site: &Site) -> Result<String> {
    Ok(std::fs::read_to_string(site.directory().join("native-client.out"))?)
}

/// What a client has told so far.
#[derive(Default)]
struct Heard {
    /// Of its output, what has been read.
    read: usize,
    is_held: bool,
    outcome: Option<Box<Outcome>>,
}

impl Heard {
    /// Takes the lines in that are new; whether from now on everything counts.
    fn listen(&mut self, text: &str, mut interval: impl FnMut(&ends::Interval)) -> Result<bool> {
        let mut counts = false;
        while let Some(end) = text[self.read..].find('\n') {
            let line = &text[self.read..self.read + end];
            self.read += end + 1;
            match serde_json::from_str(line).with_context(|| format!("the client says: {line}"))? {
                Said::Interval(one) => interval(&one),
                Said::Counting => counts = true,
                Said::Held(_) => self.is_held = true,
                Said::Outcome(outcome) => self.outcome = Some(outcome),
            }
        }
        Ok(counts)
    }
}

/// What the ends have told, but for what the readings will tell.
fn measure(site: &Site, plan: &Plan, outcome: &Outcome) -> Result<Measure> {
    let server = outcome.server.as_deref().context("the server has told no outcome")?;
    let mut own_work = server.own_work_seconds;
    if site.between() == Between::Loopback {
        own_work += outcome.own_work_seconds;
    }
    let receives = matches!(plan.work, Work::Stream | Work::Exchange | Work::Transact);
    Ok(Measure {
        longest_stall_seconds: (receives && outcome.longest_stall_seconds > 0.0)
            .then_some(outcome.longest_stall_seconds),
        cpu_seconds: CpuSeconds { application_own_work: own_work, ..CpuSeconds::default() },
        ..outcome.measure()?
    })
}
