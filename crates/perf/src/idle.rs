//! Workload `idle`: what many connections cost on which nothing happens.

use std::time::{Duration, Instant};

use anyhow::Result;
use lab::Lab;
use serde_json::Map;

use crate::meter::Reading;
use crate::native::Native;
use crate::progress::Progress;
use crate::results::{Document, Measure, Trial};
use crate::runner::{self, Common};
use crate::site::Site;

/// What `outboard bench idle` does.
#[derive(Debug, Clone)]
pub struct Config {
    /// What all workloads have in common.
    pub common: Common,
    /// How many connections.
    pub connections: u64,
    /// How long a trial watches them.
    pub duration: Duration,
}

/// After the last connection has come, and before watching begins: what spinning and timers are still going on end.
const SETTLING: Duration = Duration::from_secs(1);

/// Runs the workload. Its measures have `operations` connections, and processor time over `elapsed_seconds`.
pub fn run(lab: &Lab, config: &Config) -> Result<Document> {
    let mut options = Map::new();
    options.insert("connections".to_owned(), config.connections.into());
    options.insert("duration_seconds".to_owned(), config.duration.as_secs_f64().into());
    runner::run(
        lab,
        &config.common,
        runner::Description { name: "idle", options },
        |site| {
            let mut native = Native::start(lab, site)?;
            let holder = native.hold(site, config.connections)?;
            Ok((native, holder))
        },
        |site, (native, _holder), progress| watch(config, site, native, progress),
    )
}

fn watch(config: &Config, site: &Site, native: &Native, progress: &Progress) -> Result<Trial> {
    progress.begin(site.name(), "idle");
    sleep(SETTLING, site, progress)?;
    let applications: Vec<u32> = native.id().into_iter().collect();
    let before = Reading::take(site, &applications)?;
    sleep(config.duration, site, progress)?;
    let after = Reading::take(site, &applications)?;
    let total = after.complete(&before, Measure { operations: config.connections, ..Measure::default() });
    Ok(Trial { total, parts: Vec::new() })
}

fn sleep(duration: Duration, site: &Site, progress: &Progress) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < duration {
        std::thread::sleep(Duration::from_millis(100).min(duration.saturating_sub(began.elapsed())));
        progress.turn(site)?;
    }
    Ok(())
}
