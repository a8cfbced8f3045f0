//! Processor accounting of a site: one reading before, one after, the difference is the cost.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fep::control::{Client, Status};
use lab::cpu::{self, CpuTime, MachineTime};

use crate::results::{CpuSeconds, Measure};
use crate::site::Site;
use crate::steer::Receivers;

/// Everything that a site has spent up to one moment.
#[derive(Debug)]
pub struct Reading {
    at: Instant,
    /// The application's programs, and the thread that takes their packets in if there is one.
    application: CpuTime,
    receive_thread: CpuTime,
    fep: Option<FepReading>,
    peer: CpuTime,
    softirq_threads: Duration,
    machine: MachineTime,
    /// What the kernel of the peer has counted.
    peer_counters: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct FepReading {
    cpu: CpuTime,
    status: Status,
}

impl Reading {
    /// Reads the site's clocks. `applications` are the processes of the application that still run; they are only
    /// looked at where the system has no control groups for us.
    pub fn take(site: &Site, applications: &[u32]) -> Result<Self> {
        let application = match &site.applications {
            Some(group) => group.time()?,
            None => applications
                .iter()
                .try_fold(CpuTime::default(), |sum, id| Ok::<_, anyhow::Error>(sum + cpu::tree(*id)?))?,
        };
        let peer = match &site.peers {
            Some(group) => group.time()?,
            None => cpu::ended_children()?,
        };
        let fep = site.fep.as_ref().map(|fep| FepReading::take(fep.socket(), Some(fep.id()))).transpose()?;
        let read = |file: &'static str| -> Result<String> {
            Ok(site.peer().within(|| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")))??)
        };
        let mut peer_counters = named(&read("snmp")?, "Tcp: ", &SEGMENTS);
        peer_counters.extend(named(&read("netstat")?, "TcpExt: ", &ACKNOWLEDGEMENTS));
        let receivers = site.receivers.as_ref().map(Receivers::time).transpose()?;
        let receive_thread = receivers.unwrap_or_default();
        let application = application + receive_thread;
        Ok(Self { peer_counters, receive_thread, ..Self::with_machine(application, peer, fep)? })
    }

    /// Reads this process's clocks, and those of the FEP whose control socket is given.
    pub fn take_own(fep_socket: Option<&Path>) -> Result<Self> {
        let fep = fep_socket.map(|socket| FepReading::take(socket, None)).transpose()?;
        Self::with_machine(cpu::process(std::process::id())?, CpuTime::default(), fep)
    }

    fn with_machine(application: CpuTime, peer: CpuTime, fep: Option<FepReading>) -> Result<Self> {
        let (softirq_threads, machine) = (cpu::softirq_threads(), cpu::machine()?);
        let at = Instant::now();
        let (receive_thread, peer_counters) = (CpuTime::default(), BTreeMap::new());
        Ok(Self { at, application, receive_thread, fep, peer, softirq_threads, machine, peer_counters })
    }

    /// What was spent since an earlier reading, and what the FEP counted meanwhile.
    pub fn since(&self, earlier: &Self) -> (CpuSeconds, BTreeMap<String, u64>) {
        let application = self.application.since(&earlier.application);
        let machine = self.machine.since(&earlier.machine);
        let mut spent = CpuSeconds {
            application_user: application.user.as_secs_f64(),
            application_system: application.system.as_secs_f64(),
            application_receive_thread: self
                .receive_thread
                .since(&earlier.receive_thread)
                .total()
                .as_secs_f64(),
            peer: self.peer.since(&earlier.peer).total().as_secs_f64(),
            softirq_threads: self.softirq_threads.saturating_sub(earlier.softirq_threads).as_secs_f64(),
            softirq: machine.softirq.as_secs_f64(),
            machine_busy: machine.busy.as_secs_f64(),
            machine_stolen: machine.stolen.as_secs_f64(),
            ..CpuSeconds::default()
        };
        let mut counters = difference(&self.peer_counters, &earlier.peer_counters);
        if let (Some(after), Some(before)) = (&self.fep, &earlier.fep) {
            after.since(before, &mut spent);
            counters.extend(difference(&after.counters(), &before.counters()));
        }
        (spent, counters)
    }

    /// Completes a measure with the cost since an earlier reading. Its elapsed time stays if it has one.
    pub fn complete(&self, earlier: &Self, mut measure: Measure) -> Measure {
        let own_work = measure.cpu_seconds.application_own_work;
        (measure.cpu_seconds, measure.counters) = self.since(earlier);
        measure.cpu_seconds.application_own_work = own_work;
        if measure.elapsed_seconds == 0.0 {
            measure.elapsed_seconds = self.at.duration_since(earlier.at).as_secs_f64();
        }
        measure.with_rates()
    }
}

impl FepReading {
    /// By its control socket; `process` is its supervisor's, if that is not the one that it tells.
    fn take(socket: &Path, process: Option<u32>) -> Result<Self> {
        let client = Client::connect(socket).context("the FEP does not answer")?;
        let status = client.status().context("the FEP does not tell its state")?;
        let told = if status.supervisor_pid == 0 { status.worker_pid } else { status.supervisor_pid };
        let cpu = cpu::tree(process.unwrap_or(told)).context("the FEP's processor time")?;
        Ok(Self { cpu, status })
    }

    /// The scheduler's clock says how much the FEP has used. Its own account says which share of that was polling, and
    /// the kernel's estimate how the rest splits into user and system.
    fn since(&self, earlier: &Self, spent: &mut CpuSeconds) {
        let total = self.cpu.since(&earlier.cpu).total().as_secs_f64();
        let share = |part: f64, other: f64| if part + other > 0.0 { part / (part + other) } else { 0.0 };
        let (now, then) = (&self.status.cpu, &earlier.status.cpu);
        let difference = |now: f64, then: f64| (now - then).max(0.0);
        let polling = share(
            difference(now.polling_seconds, then.polling_seconds),
            difference(now.work_seconds, then.work_seconds),
        );
        let system = share(
            difference(now.system_seconds, then.system_seconds),
            difference(now.user_seconds, then.user_seconds),
        );
        spent.fep_polling = total * polling;
        spent.fep_system = total * (1.0 - polling) * system;
        // Where there was hardly any work, the rounding of the parts may exceed the whole.
        spent.fep_work = (total - spent.fep_polling - spent.fep_system).max(0.0);
    }

    /// The stack's, the device's and the worker's counters under one roof.
    fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = self.status.counters.clone();
        for interface in &self.status.interfaces {
            for (name, count) in &interface.counters {
                *counters.entry(format!("device_{name}")).or_default() += count;
            }
        }
        let worker = &self.status.worker;
        counters.extend([
            ("system_calls".to_owned(), worker.system_calls),
            ("wakeups".to_owned(), worker.wakeups),
            ("sleeps".to_owned(), worker.sleeps),
            ("turns".to_owned(), worker.turns),
            ("commands".to_owned(), worker.commands),
            ("events".to_owned(), worker.events),
        ]);
        counters
    }
}

/// What has been counted since, where anything was.
fn difference(now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let since = |name: &String, count: u64| count.saturating_sub(then.get(name).copied().unwrap_or_default());
    now.iter()
        .map(|(name, count)| (name.clone(), since(name, *count)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// TCP's segments in a kernel's `/proc/net/snmp`. Those that it sent are counted one by one; a super-segment that it
/// received counts as one packet.
const SEGMENTS: [(&str, &str); 3] =
    [("InSegs", "peer_packets_in"), ("OutSegs", "peer_segments_out"), ("RetransSegs", "peer_retransmits")];
/// Acknowledgements without data that it received, in its `/proc/net/netstat`.
const ACKNOWLEDGEMENTS: [(&str, &str); 1] = [("TCPPureAcks", "peer_acks_in")];

/// Some of a kernel's counters, under our names: the first line that begins so has names, the second values.
fn named(text: &str, begin: &str, wanted: &[(&str, &str)]) -> BTreeMap<String, u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(begin));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return BTreeMap::new() };
    let pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs
        .filter_map(|(name, value)| {
            let (_, ours) = wanted.iter().find(|(wanted, _)| *wanted == name)?;
            Some(((*ours).to_owned(), value.parse().ok()?))
        })
        .collect()
}

/// How often the threads of a process have gone to sleep of their own accord: as often something woke them.
pub(crate) fn sleeps(process: u32) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let statuses =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let counts = statuses.filter_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_found_by_their_names() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin InSegs OutSegs RetransSegs\nTcp: 200 70 50 0\nUdp: InSegs\nUdp: 9\n";
        let counted = named(text, "Tcp: ", &SEGMENTS);
        assert_eq!((counted["peer_packets_in"], counted["peer_segments_out"]), (70, 50));
        let later = BTreeMap::from([("peer_packets_in".to_owned(), 75), ("new".to_owned(), 2)]);
        let since = difference(&later, &counted);
        assert_eq!(since, BTreeMap::from([("peer_packets_in".to_owned(), 5), ("new".to_owned(), 2)]));
    }
}
