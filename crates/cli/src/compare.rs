//! `outboard compare`: two results of `outboard bench` against each other.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use perf::compare::{Comparison, Limit, compare};
use perf::report::Table;
use perf::results::Document;
use perf::units;

use crate::exit::{ExitWith, MISSED, USAGE};

/// Compares two JSON results, metric by metric; exits 3 if one that --fail-on names got worse by more than it may
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The first, which the second is compared with
    first: PathBuf,
    /// The second [default: the first, for two of its subjects]
    #[arg(required_unless_present = "against")]
    second: Option<PathBuf>,
    /// The subject of the second document (and of the first, unless --against names another) [default: those that both
    /// have]
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// The subject of the first document
    #[arg(long, value_name = "NAME", requires = "subject")]
    against: Option<String>,
    /// Exit with 3 if the metric's mean got worse by more; may be given several times
    #[arg(long, value_name = "METRIC=PERCENT")]
    fail_on: Vec<Limit>,
    /// Show the metrics of a trial's parts too
    #[arg(long)]
    parts: bool,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let (first, second) = (read(&args.first)?, read(args.second.as_ref().unwrap_or(&args.first))?);
    let subjects =
        args.subject.as_deref().map(|subject| [args.against.as_deref().unwrap_or(subject), subject]);
    let comparison = compare([&first, &second], subjects, &args.fail_on)
        .map_err(|error| ExitWith::new(USAGE, error.to_string()))?;
    let text =
        if args.json { serde_json::to_string_pretty(&comparison)? } else { table(&comparison, args.parts) };
    writeln!(std::io::stdout(), "{text}").context("standard output")?;
    let mut missed = false;
    for row in comparison.rows.iter().filter(|row| row.failed) {
        missed = true;
        eprintln!(
            "outboard: {} of {} got worse: {} instead of {} ({:+.1} %)",
            row.metric,
            row.subjects[1],
            units::digits(row.values[1]),
            units::digits(row.values[0]),
            row.percent_difference,
        );
    }
    Ok(if missed { ExitCode::from(MISSED) } else { ExitCode::SUCCESS })
}

fn read(path: &Path) -> anyhow::Result<Document> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
    let value: serde_json::Value = serde_json::from_str(&text).with_context(|| name.clone())?;
    perf::schema::check(&value)
        .map_err(|error| anyhow::anyhow!("{name} is no result of outboard: {error}"))?;
    serde_json::from_value(value).with_context(|| name)
}

fn table(comparison: &Comparison, parts: bool) -> String {
    let shown = comparison.rows.iter().filter(|row| parts || row.failed || !row.metric.contains('.'));
    let rows = shown.map(|row| {
        let [one, other] = &row.subjects;
        let subject = if one == other { one.clone() } else { format!("{one} → {other}") };
        let [a, b] = row.values.map(units::plain);
        let difference = format!("{:+.1}", row.percent_difference);
        vec![subject, row.metric.clone(), a, b, difference, row.verdict.clone()]
    });
    let head = ["subject", "metric", "first", "second", "percent difference", ""];
    let table = Table { title: String::new(), rows: rows.collect(), head: head.map(str::to_owned).to_vec() };
    table.text_with_values(2..5)
}
