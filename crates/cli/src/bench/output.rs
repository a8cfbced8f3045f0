//! Where a measurement's results go.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use perf::report;
use perf::results::Document;

use super::shared::usage;

/// The flags about output.
#[derive(clap::Args)]
pub(super) struct Outputs {
    /// Write the results as JSON; `-` for standard output (then without the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// As --json -
    #[arg(short = 'J', conflicts_with = "json")]
    json_on_stdout: bool,
    /// Tell what happens as lines of JSON on standard output (then without the table), the results in the last
    #[arg(long, conflicts_with_all = ["json_on_stdout", "quiet"])]
    pub(super) json_stream: bool,
    /// Write the distributions of times as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,
    /// Write a report with pictures, one self-contained file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write one line for each trial and part
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Show no progress and print no table
    #[arg(long)]
    pub(super) quiet: bool,
}

impl Outputs {
    /// Asks for what cannot be before anything is measured.
    pub(super) fn check(&self, times_operations: bool) -> anyhow::Result<()> {
        if self.json_stream && self.json.as_deref() == Some(Path::new("-")) {
            return Err(usage("--json-stream and --json - both want standard output"));
        }
        if self.hlog.is_some() && !times_operations {
            return Err(usage("the workload times no single operations: there is nothing for --hlog"));
        }
        Ok(())
    }

    pub(super) fn write(&self, document: &Document) -> anyhow::Result<()> {
        let stdout = Path::new("-");
        let json = self.json.as_deref().or(self.json_on_stdout.then_some(stdout));
        let json_on_stdout = json == Some(stdout);
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(document)? + "\n";
            if json_on_stdout {
                std::io::stdout().write_all(text.as_bytes()).context("standard output")?;
            } else {
                fs::write(path, text).with_context(|| path.display().to_string())?;
            }
        }
        if let Some(path) = &self.html {
            fs::write(path, report::html(document)?).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.csv {
            fs::write(path, report::csv(document)).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.hlog {
            fs::write(path, report::hlog(document)?).with_context(|| path.display().to_string())?;
        }
        if self.json_stream {
            return perf::progress::tell("end", document).context("standard output");
        }
        if !self.quiet && !json_on_stdout {
            writeln!(std::io::stdout(), "{}", report::text(document)).context("standard output")?;
        }
        Ok(())
    }
}
