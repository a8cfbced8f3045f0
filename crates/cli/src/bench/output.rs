//! Where a measurement's results go.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use perf::report;
use perf::results::Document;

/// The flags about output.
#[derive(clap::Args)]
pub(super) struct Outputs {
    /// Write the results as JSON; `-` for standard output (then without the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
    pub(super) fn write(&self, document: &Document) -> anyhow::Result<()> {
        let json_on_stdout = self.json.as_deref() == Some(Path::new("-"));
        if let Some(path) = &self.json {
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
        if !self.quiet && !json_on_stdout {
            writeln!(std::io::stdout(), "{}", report::text(document)).context("standard output")?;
        }
        Ok(())
    }
}
