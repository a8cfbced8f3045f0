//! The frame of every measurement: sites for all subjects, alternating trials, one document.

use std::path::PathBuf;

use anyhow::{Context, Result};
use lab::Lab;
use serde_json::{Map, Value};

use crate::hogs::Hogs;
use crate::progress::Progress;
use crate::results::{Document, SCHEMA_VERSION, SubjectResult, Trial, Workload};
use crate::site::{Between, Setup, Site, Subject};
use crate::{interrupt, machine, metrics};

/// What all workloads have in common.
#[derive(Debug, Clone)]
pub struct Common {
    /// The subjects, in the order in which they alternate.
    pub subjects: Vec<Subject>,
    /// Trials of each subject.
    pub trials: u32,
    /// Goes on until half of the confidence interval of every subject's main metric is at most this share of its mean,
    /// or [`MAX_TRIALS`] are done.
    pub until: Option<f64>,
    /// Whether what happens is told on standard output, as lines of JSON.
    pub json_stream: bool,
    /// How sites are set up.
    pub setup: Setup,
    /// Another release of the program: every subject but the kernel is measured with it too.
    pub against: Option<PathBuf>,
    /// Busy programs beside the trials, if any.
    pub hogs: Option<Hogs>,
    /// Whether progress is shown.
    pub quiet: bool,
    /// The command line, for the document.
    pub command: Vec<String>,
}

/// Trials of each subject, however wide the interval still is.
pub const MAX_TRIALS: u32 = 100;

/// A workload's name and options, for the document.
pub(crate) struct Description {
    pub(crate) name: &'static str,
    pub(crate) options: Map<String, Value>,
}

impl Common {
    /// The subjects, each with how its site is set up; with another release, that is a subject of its own.
    fn arms(&self) -> Vec<(Subject, Setup)> {
        let own = self.subjects.iter().map(|subject| (*subject, self.setup.clone()));
        let other = self.against.iter().flat_map(|executable| {
            let setup = Setup { executable: Some(executable.clone()), ..self.setup.clone() };
            let subjects = self.subjects.iter().filter(|subject| **subject != Subject::Kernel);
            subjects.map(move |subject| (*subject, setup.clone()))
        });
        own.chain(other).collect()
    }
}

/// When there are trials enough.
pub(crate) struct Rounds<'a> {
    pub(crate) trials: u32,
    pub(crate) until: Option<f64>,
    /// The metric that the workload is about.
    pub(crate) metric: &'a str,
}

impl Rounds<'_> {
    /// Whether `done` rounds are enough; `trials` are each subject's.
    pub(crate) fn are_over<'t>(&self, done: u32, mut trials: impl Iterator<Item = &'t [Trial]>) -> bool {
        let is_narrow = |until: f64| {
            trials.all(|trials| metrics::half_width(trials, self.metric).is_some_and(|width| width <= until))
        };
        done >= self.trials && (done >= MAX_TRIALS || self.until.is_none_or(is_narrow))
    }
}

/// Sets up a site for each subject, prepares each, and runs the trials: A B C A B C.
pub(crate) fn run<P>(
    lab: &Lab,
    common: &Common,
    description: Description,
    mut prepare: impl FnMut(&Site) -> Result<P>,
    mut trial: impl FnMut(&Site, &mut P, &Progress) -> Result<Trial>,
) -> Result<Document> {
    let progress = Progress::new(common.quiet, common.json_stream);
    progress.start(description.name, &description.options);
    let mut sites: Vec<(Site, P, Vec<Trial>)> = Vec::new();
    for (subject, setup) in common.arms() {
        interrupt::check()?;
        progress.preparing(&format!("setting up {}", subject.name()));
        let site = Site::new(lab, subject, &setup).with_context(|| format!("subject {}", subject.name()))?;
        let prepared = prepare(&site)?;
        sites.push((site, prepared, Vec::new()));
    }
    let hogs =
        common.hogs.map(|hogs| hogs.start(lab)).transpose().context("busy programs beside the trials")?;
    let metric = metrics::primary(description.name);
    let rounds = Rounds { trials: common.trials, until: common.until, metric };
    let mut done = 0;
    while !rounds.are_over(done, sites.iter().map(|(_, _, trials)| trials.as_slice())) {
        done += 1;
        progress.expect(u64::from(done.max(common.trials)) * sites.len() as u64);
        for (site, prepared, trials) in &mut sites {
            interrupt::check()?;
            let one = trial(site, prepared, &progress).with_context(|| format!("subject {}", site.name()))?;
            progress.trial_done(site.name(), done, &one);
            trials.push(one);
        }
    }
    progress.finish();
    drop(hogs);
    let mut subjects = Vec::new();
    for (site, prepared, trials) in sites {
        subjects.push(SubjectResult {
            name: site.name().to_owned(),
            options: site.options()?,
            summary: metrics::summarise(&trials),
            trials,
        });
        drop(prepared);
        site.close()?;
    }
    Ok(document(common, description, subjects))
}

fn document(common: &Common, description: Description, subjects: Vec<SubjectResult>) -> Document {
    let mut options = description.options;
    let between = match common.setup.between {
        Between::Link => "link",
        Between::Loopback => "loopback",
    };
    options.insert("between".to_owned(), between.into());
    options.insert("mtu_bytes".to_owned(), common.setup.mtu.into());
    let names: Vec<_> = subjects.iter().map(|subject| subject.name.as_str()).collect();
    options.insert("on".to_owned(), names.into());
    options.insert("hogs".to_owned(), common.hogs.map(Hogs::to_json).into());
    options.insert("congestion_control".to_owned(), common.setup.congestion_control.clone().into());
    finish(common.command.clone(), Description { options, ..description }, common.until, subjects)
}

/// The document of trials that were done.
pub(crate) fn finish(
    command: Vec<String>,
    description: Description,
    until: Option<f64>,
    subjects: Vec<SubjectResult>,
) -> Document {
    let mut options = description.options;
    let trials = subjects.first().map_or(0, |subject| subject.trials.len());
    options.insert("trials".to_owned(), trials.into());
    options.insert("until".to_owned(), until.into());
    Document {
        schema_version: SCHEMA_VERSION,
        tool: machine::tool(),
        command,
        machine: machine::machine(),
        workload: Workload { name: description.name.to_owned(), options },
        ratios: metrics::ratios(&subjects),
        subjects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Measure;

    fn trials(rates: &[f64]) -> Vec<Trial> {
        let total = |rate: &f64| Measure { operations_per_second: *rate, ..Measure::default() };
        rates.iter().map(|rate| Trial { total: total(rate), parts: Vec::new() }).collect()
    }

    #[test]
    fn trials_go_on_until_every_interval_is_narrow() {
        let rounds = |trials, until| Rounds { trials, until, metric: "operations_per_second" };
        let (narrow, wide) = (trials(&[100.0, 100.5, 100.2]), trials(&[100.0, 150.0, 80.0]));
        let both = || [narrow.as_slice(), wide.as_slice()].into_iter();
        let one = || [narrow.as_slice()].into_iter();
        assert!(rounds(3, None).are_over(3, both()) && !rounds(4, None).are_over(3, both()));
        assert!(!rounds(3, Some(0.02)).are_over(3, both()));
        assert!(rounds(3, Some(0.02)).are_over(3, one()));
        assert!(!rounds(1, Some(0.02)).are_over(1, [&narrow[..1]].into_iter()), "one trial has no interval");
        assert!(rounds(3, Some(0.02)).are_over(MAX_TRIALS, both()), "it ends all the same");
    }
}
