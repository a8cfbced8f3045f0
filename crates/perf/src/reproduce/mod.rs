//! The published experiments again (`outboard reproduce`): each runs its workloads, and prints what was published beside
//! what was measured.
//!
//! Old absolute figures are context; what is compared is the effect, the ratio between two configurations of one run.
//! [`vm`], [`tandem`] and its [`zero`] traffic are the experiments, [`costs`] the cost model of the second, [`page`] their report.

pub mod costs;
pub mod page;
pub mod tandem;
pub mod vm;
pub mod zero;

use serde::Serialize;

use crate::machine;
use crate::report::Table;
use crate::report::figure::Figure;
use crate::report::plot::Plot;
use crate::results::{Document, Machine, SubjectResult, Tool};
use crate::stats;

/// The version of [`Reproduction`]'s form.
pub const SCHEMA_VERSION: u32 = 1;

/// An experiment that was run again.
#[derive(Debug, Serialize)]
pub struct Reproduction {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// `vm`, `tandem` or `zero`.
    pub experiment: &'static str,
    /// What it is about, in a sentence.
    pub about: &'static str,
    /// The program that measured.
    pub tool: Tool,
    /// The command line.
    pub command: Vec<String>,
    /// Where it ran.
    pub machine: Machine,
    /// The published figures beside the measured ones.
    pub tables: Vec<Table>,
    /// Pictures of them: bars, and lines.
    #[serde(skip)]
    pub(crate) figures: Vec<Figure>,
    /// See above.
    #[serde(skip)]
    pub(crate) plots: Vec<Plot>,
    /// What is to be said about them.
    pub notes: Vec<String>,
    /// Everything that was measured.
    pub documents: Vec<Document>,
}

impl Reproduction {
    pub(crate) fn new(experiment: &'static str, about: &'static str, command: Vec<String>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            experiment,
            about,
            tool: machine::tool(),
            command,
            machine: machine::machine(),
            tables: Vec::new(),
            figures: Vec::new(),
            plots: Vec::new(),
            notes: Vec::new(),
            documents: Vec::new(),
        }
    }
}

/// The mean of a quantity over a subject's trials.
pub(crate) fn mean(subject: &SubjectResult, quantity: impl Fn(&crate::results::Measure) -> f64) -> f64 {
    let values: Vec<f64> = subject.trials.iter().map(|trial| quantity(&trial.total)).collect();
    stats::mean(&values).map_or(0.0, |mean| mean.value)
}

/// By how many percent `after` is more than `before`, as the published tables print it.
pub(crate) fn percent_difference(before: f64, after: f64) -> String {
    if before == 0.0 { String::new() } else { format!("{:+.1}", (after / before - 1.0) * 100.0) }
}
