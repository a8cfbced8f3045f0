//! Workload `rr`: one message and its answer at a time, between the subject and a peer on the kernel.

use std::time::Duration;

use anyhow::Result;
use lab::Lab;
use serde_json::Map;

use crate::native::{Native, RoundTrips};
use crate::results::{Document, Trial};
use crate::runner::{self, Common};

/// What `outboard bench rr` does.
#[derive(Debug, Clone)]
pub struct Config {
    /// What all workloads have in common.
    pub common: Common,
    /// The size of a message, and of its answer.
    pub bytes: u64,
    /// How long a trial goes on.
    pub duration: Duration,
    /// Whether the peer looks for its answers without sleeping (for every subject alike).
    pub peer_spins: bool,
}

/// Runs the workload.
pub fn run(lab: &Lab, config: &Config) -> Result<Document> {
    let mut options = Map::new();
    options.insert("message_bytes".to_owned(), config.bytes.into());
    options.insert("duration_seconds".to_owned(), config.duration.as_secs_f64().into());
    options.insert("peer_spins".to_owned(), config.peer_spins.into());
    let work = RoundTrips { bytes: config.bytes, duration: config.duration, peer_spins: config.peer_spins };
    runner::run(
        lab,
        &config.common,
        runner::Description { name: "rr", options },
        |site| Native::start(lab, site),
        |site, native, progress| {
            progress.begin(site, "round trips");
            let total = native.round_trips(site, &work, progress)?;
            Ok(Trial { total, parts: Vec::new() })
        },
    )
}
