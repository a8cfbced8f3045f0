//! The native program on a site: a server on the subject's stack and clients on the peer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::{Lab, Process, wait_for_port};

use crate::ends::{self, Outcome};
use crate::file::Direction;
use crate::meter::Reading;
use crate::progress::Progress;
use crate::results::{CpuSeconds, Measure};
use crate::site::Site;

/// How long the server may take to answer.
const START: Duration = Duration::from_secs(20);
/// How long a transfer may take before it counts as stuck: this, and as if bytes went at 10 MB/s.
const PART: Duration = Duration::from_secs(60);
const SLOWEST_BYTES_PER_SECOND: u64 = 10_000_000;

/// A running native server of one site.
pub(crate) struct Native {
    process: Process,
    /// How many of its outcomes have been read.
    outcomes_seen: usize,
}

/// Bytes to move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) direction: Direction,
    /// In one transfer.
    pub(crate) bytes: u64,
    /// How many transfers, one after the other.
    pub(crate) count: u64,
    /// Whether both ends make and check the pattern.
    pub(crate) check: bool,
}

/// Messages to exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrips {
    /// Of a message, in each direction.
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    /// Whether the peer looks for its answers without sleeping.
    pub(crate) peer_spins: bool,
}

impl Native {
    pub(crate) fn start(lab: &Lab, site: &Site) -> Result<Self> {
        let address = SocketAddr::new(site.address(), ends::PORT);
        let mut spawn = site.native()?;
        spawn.args(["serve", "--address"]).arg(address.to_string());
        let mut process = lab.start(&format!("native-{}", site.subject().name()), spawn)?;
        wait_for_port(site.peer(), address, &mut process, START)
            .with_context(|| format!("the native server on {}", site.subject().name()))?;
        Ok(Self { process, outcomes_seen: 0 })
    }

    /// Moves bytes.
    pub(crate) fn transfer(
        &mut self,
        site: &Site,
        transfer: &Transfer,
        progress: &Progress,
    ) -> Result<Measure> {
        let operation = if transfer.direction == Direction::Download { "get" } else { "put" };
        let mut arguments = vec![
            ("--operation", operation.to_owned()),
            ("--bytes", transfer.bytes.to_string()),
            ("--count", transfer.count.to_string()),
        ];
        if transfer.check {
            arguments.push(("--check", "true".to_owned()));
        }
        let total = transfer.bytes * transfer.count;
        let patience = PART + Duration::from_secs(total / SLOWEST_BYTES_PER_SECOND);
        let (mut measure, client) = self.measure(site, &arguments, patience, progress)?;
        let served = self.outcomes(transfer.count)?;
        // The receiving end says whether it is right, and how it was kept waiting.
        measure.verified = client.verified;
        measure.cpu_seconds.application_own_work = served.iter().map(|one| one.own_work_seconds).sum();
        let stall =
            served.iter().map(|one| one.longest_stall_seconds).fold(client.longest_stall_seconds, f64::max);
        measure.longest_stall_seconds = Some(stall);
        if transfer.check && !measure.verified {
            bail!("the bytes that arrived were not checked");
        }
        Ok(measure)
    }

    /// Exchanges messages, one at a time.
    pub(crate) fn round_trips(
        &mut self,
        site: &Site,
        work: &RoundTrips,
        progress: &Progress,
    ) -> Result<Measure> {
        let arguments = [
            ("--operation", "echo".to_owned()),
            ("--bytes", work.bytes.to_string()),
            ("--seconds", work.duration.as_secs_f64().to_string()),
            ("--spin", work.peer_spins.to_string()),
        ];
        let (measure, _) = self.measure(site, &arguments, PART + work.duration, progress)?;
        self.outcomes(1)?;
        Ok(measure)
    }

    /// Opens connections and keeps them open as long as the process given back lives.
    pub(crate) fn hold(&mut self, lab: &Lab, site: &Site, count: u64) -> Result<Process> {
        let mut client = lab.start(
            "holder",
            self.client(site, &[("--operation", "hold".to_owned()), ("--count", count.to_string())])?,
        )?;
        let began = Instant::now();
        while !client.stdout()?.ends_with('\n') {
            if !client.is_running()? || began.elapsed() > PART {
                bail!("the connections do not come up:\n{}\n{}", client.text(), self.process.text());
            }
            std::thread::sleep(Duration::from_millis(20));
            crate::interrupt::check()?;
        }
        Ok(client)
    }

    /// The server's process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn client(&self, site: &Site, arguments: &[(&str, String)]) -> Result<lab::Spawn> {
        let mut spawn = site.peer_program(lab::executable()?)?;
        let address = SocketAddr::new(site.address(), ends::PORT);
        spawn.args(["bench-end", "client", "--address"]).arg(address.to_string());
        for (name, value) in arguments {
            spawn.arg(name).arg(value);
        }
        Ok(spawn)
    }

    /// Runs a client to its end between two readings.
    fn measure(
        &mut self,
        site: &Site,
        arguments: &[(&str, String)],
        patience: Duration,
        progress: &Progress,
    ) -> Result<(Measure, Outcome)> {
        let spawn = self.client(site, arguments)?;
        let before = Reading::take(site, &[self.process.id()])?;
        let mut client = Process::start(site.directory(), "native-client", spawn)?;
        client
            .wait_for_success_while(patience, || progress.turn(site))
            .with_context(|| format!("the native server says:\n{}", self.process.text()))?;
        let after = Reading::take(site, &[self.process.id()])?;
        let outcome: Outcome = serde_json::from_str(client.stdout()?.trim())
            .context("the client's outcome is not understood")?;
        let measure = Measure {
            operations: outcome.operations,
            bytes: outcome.bytes,
            elapsed_seconds: outcome.elapsed_seconds,
            latency_ns: outcome.latency_ns,
            verified: outcome.verified,
            cpu_seconds: CpuSeconds::default(),
            ..Measure::default()
        };
        Ok((after.complete(&before, measure), outcome))
    }

    /// The server's outcomes of the connections that have just ended.
    fn outcomes(&mut self, count: u64) -> Result<Vec<Outcome>> {
        let wanted = self.outcomes_seen + usize::try_from(count)?;
        let began = Instant::now();
        loop {
            let text = self.process.stdout()?;
            let lines: Vec<&str> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
            if lines.len() >= wanted {
                let new = &lines[self.outcomes_seen..wanted];
                self.outcomes_seen = wanted;
                return new.iter().map(|line| Ok(serde_json::from_str(line)?)).collect();
            }
            if began.elapsed() > START || !self.process.is_running()? {
                bail!("the native server has not told its outcome:\n{}", self.process.text());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
