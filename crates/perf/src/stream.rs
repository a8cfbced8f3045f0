//! Workload `stream`: one long transfer each way by the native program, every byte checked, stalls watched.

use anyhow::Result;
use lab::Lab;
use serde_json::{Map, json};

use crate::file::Direction;
use crate::native::{Native, Transfer};
use crate::results::{Document, Part, Trial};
use crate::runner::{self, Common};

/// What `outboard bench stream` does.
#[derive(Debug, Clone)]
pub struct Config {
    /// What all workloads have in common.
    pub common: Common,
    /// How many bytes go each way.
    pub bytes: u64,
    /// The directions, in this order.
    pub directions: Vec<Direction>,
    /// Whether both ends make and check a pattern.
    pub check: bool,
}

/// Runs the workload.
pub fn run(lab: &Lab, config: &Config) -> Result<Document> {
    let mut options = Map::new();
    options.insert("bytes_each_way".to_owned(), config.bytes.into());
    let directions: Vec<_> = config.directions.iter().map(|direction| direction.name()).collect();
    options.insert("directions".to_owned(), directions.into());
    options.insert(
        "verification".to_owned(),
        json!(if config.check { "pattern, every byte, while timed" } else { "no" }),
    );
    runner::run(
        lab,
        &config.common,
        runner::Description { name: "stream", options },
        |site| Native::start(lab, site),
        |site, native, progress| {
            let mut parts = Vec::new();
            for direction in &config.directions {
                progress.begin(site, direction.name());
                let transfer =
                    Transfer { direction: *direction, bytes: config.bytes, count: 1, check: config.check };
                let measure = native.transfer(site, &transfer, progress)?;
                parts.push(Part { name: direction.name().to_owned(), measure });
            }
            Ok(Trial::of_parts(parts))
        },
    )
}
