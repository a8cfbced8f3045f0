//! Two documents against each other: each metric, first and second, percent difference.

use anyhow::{Result, bail};
use serde::Serialize;

use crate::metrics::{self, Better};
use crate::results::{Document, Summary};

/// A metric that must not get worse by more than so many percent.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The metric's name in the documents.
    pub metric: String,
    /// How much worse it may be.
    pub percent: f64,
}

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not METRIC=PERCENT, as in operations_per_second=5");
        let (metric, percent) = text.split_once('=').ok_or_else(wrong)?;
        let percent: f64 = percent.trim_end_matches('%').parse().map_err(|_| wrong())?;
        if metric.is_empty() || !(0.0..1e9).contains(&percent) {
            return Err(wrong());
        }
        Ok(Self { metric: metric.to_owned(), percent })
    }
}

/// The comparison.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Of this form.
    pub schema_version: u32,
    /// The workload of both.
    pub workload: String,
    /// The metrics, subject by subject.
    pub rows: Vec<Row>,
}

/// A metric in both documents.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The subject in the first document, and in the second.
    pub subjects: [String; 2],
    /// The metric.
    pub metric: String,
    /// Its means over the trials.
    pub values: [f64; 2],
    /// By how much the second is more than the first.
    pub percent_difference: f64,
    /// `better`, `worse`, `no difference` where the 95 % confidence intervals of the means overlap, `one trial` where
    /// there are none.
    pub verdict: String,
    /// Whether a limit was given that it does not keep.
    pub failed: bool,
}

/// Compares the subjects that both documents have; or the one that `subjects` names in each.
pub fn compare(
    documents: [&Document; 2],
    subjects: Option<[&str; 2]>,
    limits: &[Limit],
) -> Result<Comparison> {
    let [first, second] = documents;
    if first.workload.name != second.workload.name {
        bail!("one document is of workload {}, the other of {}", first.workload.name, second.workload.name);
    }
    let pairs: Vec<[&str; 2]> = match subjects {
        Some(pair) => vec![pair],
        None => first.subjects.iter().map(|subject| [subject.name.as_str(); 2]).collect(),
    };
    let mut rows = Vec::new();
    for names in pairs {
        let found = [first.subject(names[0]), second.subject(names[1])];
        let [Some(one), Some(other)] = found else {
            match subjects {
                Some(_) => bail!("there is no subject {} and {} to compare", names[0], names[1]),
                None => continue,
            }
        };
        for (metric, a) in &one.summary {
            if let Some(b) = other.summary.get(metric) {
                rows.push(row(names, metric, [a, b], limits));
            }
        }
    }
    if rows.is_empty() {
        bail!("the documents have no subject in common; --subject and --against name one in each");
    }
    if let Some(unknown) = limits.iter().find(|limit| rows.iter().all(|row| row.metric != limit.metric)) {
        bail!("neither document has the metric {}", unknown.metric);
    }
    Ok(Comparison { schema_version: 1, workload: first.workload.name.clone(), rows })
}

fn row(names: [&str; 2], metric: &str, [a, b]: [&Summary; 2], limits: &[Limit]) -> Row {
    let change = if a.mean == b.mean { 0.0 } else { (b.mean / a.mean - 1.0) * 100.0 };
    let worse_by = match metrics::better(metric) {
        Better::More => -change,
        Better::Less => change,
    };
    let verdict = match (a.low.zip(a.high), b.low.zip(b.high)) {
        (Some((a_low, a_high)), Some((b_low, b_high))) if a_low <= b_high && b_low <= a_high => {
            "no difference"
        }
        (Some(_), Some(_)) if worse_by > 0.0 => "worse",
        (Some(_), Some(_)) => "better",
        _ => "one trial",
    };
    let failed = limits.iter().any(|limit| limit.metric == metric && worse_by > limit.percent);
    Row {
        subjects: names.map(str::to_owned),
        metric: metric.to_owned(),
        values: [a.mean, b.mean],
        percent_difference: change,
        verdict: verdict.to_owned(),
        failed,
    }
}
