//! The frame of every measurement: sites for all subjects, alternating trials, one document.

use anyhow::{Context, Result};
use lab::Lab;
use serde_json::{Map, Value};

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
    /// How sites are set up.
    pub setup: Setup,
    /// Whether progress is shown.
    pub quiet: bool,
    /// The command line, for the document.
    pub command: Vec<String>,
}

/// A workload's name and options, for the document.
pub(crate) struct Description {
    pub(crate) name: &'static str,
    pub(crate) options: Map<String, Value>,
}

/// Sets up a site for each subject, prepares each, and runs the trials: A B C A B C.
pub(crate) fn run<P>(
    lab: &Lab,
    common: &Common,
    description: Description,
    mut prepare: impl FnMut(&Site) -> Result<P>,
    mut trial: impl FnMut(&Site, &mut P, &Progress) -> Result<Trial>,
) -> Result<Document> {
    let progress = Progress::new(u64::from(common.trials) * common.subjects.len() as u64, common.quiet);
    let mut sites = Vec::new();
    for subject in &common.subjects {
        interrupt::check()?;
        progress.preparing(&format!("setting up {}", subject.name()));
        let site =
            Site::new(lab, *subject, &common.setup).with_context(|| format!("subject {}", subject.name()))?;
        let prepared = prepare(&site)?;
        sites.push((site, prepared, Vec::new()));
    }
    for _ in 0..common.trials {
        for (site, prepared, trials) in &mut sites {
            interrupt::check()?;
            let one = trial(site, prepared, &progress)
                .with_context(|| format!("subject {}", site.subject().name()))?;
            progress.trial_done(site, &one);
            trials.push(one);
        }
    }
    progress.finish();
    let mut subjects = Vec::new();
    for (site, prepared, trials) in sites {
        subjects.push(SubjectResult {
            name: site.subject().name().to_owned(),
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
    options.insert("trials".to_owned(), common.trials.into());
    let between = match common.setup.between {
        Between::Link => "link",
        Between::Loopback => "loopback",
    };
    options.insert("between".to_owned(), between.into());
    options.insert("mtu_bytes".to_owned(), common.setup.mtu.into());
    let names: Vec<_> = common.subjects.iter().map(|subject| subject.name()).collect();
    options.insert("on".to_owned(), names.into());
    options.insert("congestion_control".to_owned(), common.setup.congestion_control.clone().into());
    Document {
        schema_version: SCHEMA_VERSION,
        tool: machine::tool(),
        command: common.command.clone(),
        machine: machine::machine(),
        workload: Workload { name: description.name.to_owned(), options },
        ratios: metrics::ratios(&subjects),
        subjects,
    }
}
