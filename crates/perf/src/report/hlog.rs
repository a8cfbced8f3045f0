//! The distributions as an HdrHistogram interval log, which HistogramLogAnalyzer and its like read.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::results::{Document, Measure};

/// One line for each trial, or for each of its parts, that has a distribution; nanoseconds, tagged by subject and part.
/// An error if there is none.
pub fn hlog(document: &Document) -> Result<String> {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("[Histogram log format version 1.3]");
    builder.add_comment(&format!("outboard {}: times in nanoseconds", document.workload.name));
    let mut log = builder.begin_log_with(&mut bytes, &mut serializer).context("the histogram log")?;
    let mut written = 0;
    for subject in &document.subjects {
        let mut start = Duration::ZERO;
        for trial in &subject.trials {
            let whole = std::iter::once((subject.name.clone(), &trial.total));
            let parts =
                trial.parts.iter().map(|part| (format!("{}.{}", subject.name, part.name), &part.measure));
            for (name, measure) in whole.chain(parts) {
                let Measure { histogram: Some(histogram), elapsed_seconds, .. } = measure else { continue };
                let name = name.replace([' ', ','], "-");
                let length = Duration::from_secs_f64(*elapsed_seconds);
                log.write_histogram(histogram, start, length, Tag::new(&name))
                    .map_err(|error| anyhow!("the histogram log: {error:?}"))?;
                written += 1;
            }
            start += Duration::from_secs_f64(trial.total.elapsed_seconds);
        }
    }
    if written == 0 {
        return Err(anyhow!("the workload {} times no single operations", document.workload.name));
    }
    String::from_utf8(bytes).context("the histogram log")
}
