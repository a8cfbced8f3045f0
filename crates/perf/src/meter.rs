//! Processor accounting of a site: one reading before, one after, the difference is the cost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fep::control::{Client, Status};
use lab::cpu::{self, CpuTime, MachineTime};

use crate::results::{CpuSeconds, Measure};
use crate::site::Site;

/// Everything that a site has spent up to one moment.
#[derive(Debug)]
pub struct Reading {
    at: Instant,
    application: CpuTime,
    fep: Option<FepReading>,
    peer: CpuTime,
    softirq_threads: Duration,
    machine: MachineTime,
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
        let fep = site.fep.as_ref().map(FepReading::take).transpose()?;
        Ok(Self {
            at: Instant::now(),
            application,
            fep,
            peer,
            softirq_threads: cpu::softirq_threads(),
            machine: cpu::machine()?,
        })
    }

    /// What was spent since an earlier reading, and what the FEP counted meanwhile.
    pub fn since(&self, earlier: &Self) -> (CpuSeconds, BTreeMap<String, u64>) {
        let application = self.application.since(&earlier.application);
        let machine = self.machine.since(&earlier.machine);
        let mut spent = CpuSeconds {
            application_user: application.user.as_secs_f64(),
            application_system: application.system.as_secs_f64(),
            peer: self.peer.since(&earlier.peer).total().as_secs_f64(),
            softirq_threads: self.softirq_threads.saturating_sub(earlier.softirq_threads).as_secs_f64(),
            softirq: machine.softirq.as_secs_f64(),
            machine_busy: machine.busy.as_secs_f64(),
            machine_stolen: machine.stolen.as_secs_f64(),
            ..CpuSeconds::default()
        };
        let mut counters = BTreeMap::new();
        if let (Some(after), Some(before)) = (&self.fep, &earlier.fep) {
            after.since(before, &mut spent);
            counters = after.counters_since(before);
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
    fn take(fep: &lab::Fep) -> Result<Self> {
        let client = Client::connect(fep.socket()).context("the FEP does not answer")?;
        let status = client.status().context("the FEP does not tell its state")?;
        Ok(Self { cpu: cpu::tree(fep.id()).context("the FEP's processor time")?, status })
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

    fn counters_since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        let (now, then) = (self.counters(), earlier.counters());
        now.into_iter()
            .map(|(name, count)| {
                let before = then.get(&name).copied().unwrap_or_default();
                (name, count.saturating_sub(before))
            })
            .filter(|(_, count)| *count > 0)
            .collect()
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
