//! A load between two machines: this one is the client, a server runs on the other (`outboard bench -s`).
//!
//! The document has two subjects, `client` and `server`: the same operations and bytes in both, each with the processor
//! time of its own end. The server's machine is among its options.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::ends::{self, Outcome, Plan, Said, Server, Verify};
use crate::load::{self, Load};
use crate::metrics;
use crate::progress::Progress;
use crate::results::{Document, Measure, Part, SubjectResult, Trial};
use crate::runner::{self, Description, Rounds};

/// How a load runs between two machines.
pub struct Remote {
    /// This end.
    pub own: Server,
    /// Where the server is.
    pub server: SocketAddr,
    /// How many trials, at least.
    pub trials: u32,
    /// See [`runner::Common::until`].
    pub until: Option<f64>,
    /// Whether progress is shown.
    pub quiet: bool,
    /// See [`runner::Common::json_stream`].
    pub json_stream: bool,
    /// The command line, for the document.
    pub command: Vec<String>,
}

/// Runs the workload.
pub fn run(remote: &Remote, load: &Load) -> Result<Document> {
    let mut options = load::options(load)?;
    options.insert("between".to_owned(), "two machines".into());
    let description = Description { name: load.name, options };
    let progress = Progress::new(remote.quiet, remote.json_stream);
    progress.start(description.name, &description.options);
    let rounds =
        Rounds { trials: remote.trials, until: remote.until, metric: metrics::primary(description.name) };
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    let described = RefCell::new(Value::Null);
    let mut done = 0;
    while !rounds.are_over(done, [mine.as_slice()].into_iter()) {
        done += 1;
        progress.expect(u64::from(done.max(remote.trials)));
        let (client, server) = trial(remote, load, &progress, &described)?;
        progress.trial_done("client", done, &client);
        mine.push(client);
        theirs.push(server);
    }
    progress.finish();
    let own = json!({"sockets": remote.own.net.name()});
    let subjects = vec![subject("client", own, mine), subject("server", described.into_inner(), theirs)];
    Ok(runner::finish(remote.command.clone(), description, remote.until, subjects))
}

fn subject(name: &str, options: Value, trials: Vec<Trial>) -> SubjectResult {
    let options = match options {
        Value::Object(options) => options,
        _ => Map::new(),
    };
    SubjectResult { name: name.to_owned(), options, summary: metrics::summarise(&trials), trials }
}

/// A trial as the client sees it, and as the server does.
fn trial(
    remote: &Remote,
    load: &Load,
    progress: &Progress,
    described: &RefCell<Value>,
) -> Result<(Trial, Trial)> {
    let mut parts = [Vec::new(), Vec::new()];
    for (name, plan) in &load.parts {
        progress.begin("client", name);
        let outcome = carry_out(remote, plan, progress)?;
        let server = outcome.server.as_deref().context("the server has told no outcome")?;
        described.replace(json!({"sockets": server.sockets, "machine": server.machine}));
        for (parts, end) in parts.iter_mut().zip([&outcome, server]) {
            parts.push(Part { name: name.clone(), measure: measure(&outcome, end)? });
        }
    }
    let [mine, theirs] = parts.map(|mut parts| match parts.len() {
        1 => Trial { total: parts.remove(0).measure, parts },
        _ => Trial::of_parts(parts),
    });
    Ok((mine, theirs))
}

fn carry_out(remote: &Remote, plan: &Plan, progress: &Progress) -> Result<Outcome> {
    // The threads of the load tell; this one, which has the progress, shows it afterwards or while it waits.
    let told = Mutex::new(Vec::new());
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let outcome = std::thread::scope(|scope| {
        let told = &told;
        let client = scope.spawn(move || {
            let _over = over;
            ends::run(&remote.own, remote.server, plan, &|said| {
                if let (Said::Interval(interval), Ok(mut told)) = (said, told.lock()) {
                    told.push(interval);
                }
            })
        });
        loop {
            let wait = is_over.recv_timeout(std::time::Duration::from_millis(100));
            let new = told.lock().map(|mut told| std::mem::take(&mut *told)).unwrap_or_default();
            new.iter().for_each(|interval| progress.interval("client", interval));
            if wait != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                break;
            }
        }
        match client.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let outcome = outcome.with_context(|| format!("asking {}", remote.server))?;
    if plan.verify == Verify::Pattern && !outcome.verified {
        bail!("the bytes that arrived were not checked");
    }
    Ok(outcome)
}

/// What was done, as both ends agree, with what one of them spent on it.
fn measure(outcome: &Outcome, end: &Outcome) -> Result<Measure> {
    Ok(Measure {
        longest_stall_seconds: (end.longest_stall_seconds > 0.0).then_some(end.longest_stall_seconds),
        cpu_seconds: end.cpu_seconds,
        counters: end.counters.clone(),
        ..outcome.measure()?
    }
    .with_rates())
}
