//! What a person sees while a measurement runs: on standard error, with a live rate.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::ends::Interval;
use crate::interrupt;
use crate::results::Trial;
use crate::site::Site;
use crate::units;

/// The bar of a measurement; where standard error is no terminal, a line for each trial instead. And, where it is wanted,
/// lines of JSON on standard output: `{"event": …, "data": …}`, as iperf3 has them.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    json: bool,
    /// Whether operations are what counts, and not bytes.
    by_operation: Cell<bool>,
    workload: RefCell<String>,
    /// The link's bytes and the time at the last turn, to tell the rate from.
    last: Cell<Option<(u64, Instant)>>,
}

/// What a line of JSON tells of an interval.
#[derive(Serialize)]
struct Told<'a> {
    subject: &'a str,
    part: String,
    #[serde(flatten)]
    interval: &'a Interval,
    operations_per_second: f64,
    bits_per_second: f64,
}

impl Progress {
    /// A bar; a quiet one shows nothing.
    pub fn new(quiet: bool, json: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} trials  {elapsed} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(250));
        let lines = !quiet && !std::io::stderr().is_terminal();
        Self {
            bar,
            lines,
            json,
            by_operation: Cell::new(false),
            workload: RefCell::default(),
            last: Cell::new(None),
        }
    }

    /// What is about to be done.
    pub(crate) fn start(&self, workload: &str, options: &Map<String, Value>) {
        workload.clone_into(&mut self.workload.borrow_mut());
        self.by_operation.set(matches!(workload, "rr" | "crr" | "connections" | "zero"));
        self.tell("start", &json!({"workload": workload, "options": options}));
    }

    /// So many trials are to be done in all.
    pub(crate) fn expect(&self, trials: u64) {
        self.bar.set_length(trials);
    }

    /// Says what is being prepared.
    pub fn preparing(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A part of a trial begins.
    pub(crate) fn begin(&self, subject: &str, part: &str) {
        self.bar.set_prefix(format!("{subject} {part}"));
        self.bar.set_message(self.bar.prefix());
        self.last.set(None);
    }

    /// Called ten times a second: shows the rate at which bytes cross the link. An error once interrupted.
    pub(crate) fn turn(&self, site: &Site) -> Result<()> {
        interrupt::check()?;
        let (now, bytes) = (Instant::now(), site.link_bytes()?);
        if let Some((before, then)) = self.last.get() {
            let rate = bytes.saturating_sub(before) as f64 * 8.0 / now.duration_since(then).as_secs_f64();
            self.bar.set_message(format!("{}  {}", self.bar.prefix(), units::bit_rate(rate)));
        }
        self.last.set(Some((bytes, now)));
        Ok(())
    }

    /// The client on `subject` tells how far it is.
    pub(crate) fn interval(&self, subject: &str, interval: &Interval) {
        let seconds = interval.end_seconds - interval.start_seconds;
        if seconds <= 0.0 {
            return;
        }
        let operations_per_second = interval.operations as f64 / seconds;
        let bits_per_second = interval.bytes as f64 * 8.0 / seconds;
        let mut rates = Vec::new();
        if interval.operations > 0 {
            rates.push(units::scaled(operations_per_second, "operations/s"));
        }
        if interval.bytes > interval.operations {
            rates.push(units::bit_rate(bits_per_second));
        }
        self.bar.set_message(format!("{}  {}", self.bar.prefix(), rates.join("  ")));
        let part = self.bar.prefix();
        self.tell("interval", &Told { subject, part, interval, operations_per_second, bits_per_second });
    }

    /// The contents are being compared.
    pub(crate) fn checking(&self) {
        self.bar.set_message(format!("{}  comparing", self.bar.prefix()));
    }

    /// Trial `number` of a subject is done.
    pub(crate) fn trial_done(&self, subject: &str, number: u32, trial: &Trial) {
        self.bar.inc(1);
        self.tell("trial", &json!({"subject": subject, "trial": number, "result": trial}));
        if self.lines {
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            let rate = if trial.total.bytes > trial.total.operations && !self.by_operation.get() {
                units::bit_rate(trial.total.bits_per_second)
            } else {
                units::scaled(trial.total.operations_per_second, "operations/s")
            };
            eprintln!("{}, trial {done} of {all}: {subject}, {rate}", self.workload.borrow());
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn tell(&self, event: &str, data: &impl Serialize) {
        if self.json {
            // Whoever does not listen does not want to know.
            let _ = tell(event, data);
        }
    }
}

/// Writes a line of JSON about an event to standard output.
pub fn tell(event: &str, data: &impl Serialize) -> std::io::Result<()> {
    let line = serde_json::to_string(&json!({"event": event, "data": data}))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
