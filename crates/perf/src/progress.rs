//! What a person sees while a measurement runs: on standard error, with a live rate.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ends::Interval;
use crate::interrupt;
use crate::results::Trial;
use crate::site::Site;
use crate::units;

/// The bar of a measurement; where standard error is no terminal, a line for each trial instead.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    /// The link's bytes and the time at the last turn, to tell the rate from.
    last: Cell<Option<(u64, Instant)>>,
}

impl Progress {
    /// A bar of so many trials; a quiet one shows nothing.
    pub fn new(trials: u64, quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(trials), target);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} trials  {elapsed} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, lines: !quiet && !std::io::stderr().is_terminal(), last: Cell::new(None) }
    }

    /// Says what is being prepared.
    pub fn preparing(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A part of a trial begins.
    pub(crate) fn begin(&self, site: &Site, part: &str) {
        self.bar.set_prefix(format!("{} {part}", site.subject().name()));
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

    /// The client tells how far it is.
    pub(crate) fn interval(&self, _site: &Site, interval: &Interval) {
        let seconds = interval.end_seconds - interval.start_seconds;
        if seconds <= 0.0 {
            return;
        }
        let mut rates = Vec::new();
        if interval.operations > 0 {
            rates.push(units::scaled(interval.operations as f64 / seconds, "operations/s"));
        }
        if interval.bytes > interval.operations {
            rates.push(units::bit_rate(interval.bytes as f64 * 8.0 / seconds));
        }
        self.bar.set_message(format!("{}  {}", self.bar.prefix(), rates.join("  ")));
    }

    /// The contents are being compared.
    pub(crate) fn checking(&self) {
        self.bar.set_message(format!("{}  comparing", self.bar.prefix()));
    }

    /// A trial is done.
    pub(crate) fn trial_done(&self, site: &Site, trial: &Trial) {
        self.bar.inc(1);
        if self.lines {
            let (number, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            let rate = if trial.total.bytes > trial.total.operations {
                units::bit_rate(trial.total.bits_per_second)
            } else {
                units::scaled(trial.total.operations_per_second, "operations/s")
            };
            eprintln!("trial {number} of {all}: {}, {rate}", site.subject().name());
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
