//! The workloads of the native program: a load is a list of plans, its parts, carried out one after the other.

use anyhow::{Result, bail};
use lab::Lab;
use serde_json::{Map, Value};

use crate::ends::{Plan, Work};
use crate::native::Native;
use crate::results::{Document, Part, Trial};
use crate::runner::{self, Common};

/// What `outboard bench crr` and its like do.
#[derive(Debug, Clone)]
pub struct Load {
    /// The workload's name.
    pub name: &'static str,
    /// The published experiment whose parameters these are, if they are one's.
    pub preset: Option<String>,
    /// The parts with their names.
    pub parts: Vec<(String, Plan)>,
}

impl Load {
    /// Whether single operations are timed.
    pub fn times_operations(&self) -> bool {
        self.parts.iter().any(|(_, plan)| matches!(plan.work, Work::Exchange | Work::Transact | Work::Hold))
    }
}

/// Runs the workload.
pub fn run(lab: &Lab, common: &Common, load: &Load) -> Result<Document> {
    if let Some(reason) = load.parts.iter().find_map(|(_, plan)| plan.check().err()) {
        bail!(reason);
    }
    runner::run(
        lab,
        common,
        runner::Description { name: load.name, options: options(load)? },
        |site| Native::start(lab, site),
        |site, native, progress| {
            let mut parts = Vec::new();
            for (name, plan) in &load.parts {
                progress.begin(site.name(), name);
                let measure = native.run(site, plan, progress)?;
                parts.push(Part { name: name.clone(), measure });
            }
            Ok(match parts.len() {
                1 => Trial { total: parts.remove(0).measure, parts },
                _ => Trial::of_parts(parts),
            })
        },
    )
}

/// Every option in effect: what all parts have in common, and the parts' names.
pub fn options(load: &Load) -> Result<Map<String, Value>> {
    let mut options = Map::new();
    let mut plans = Vec::new();
    for (_, plan) in &load.parts {
        match serde_json::to_value(plan)? {
            Value::Object(map) => plans.push(map),
            _ => bail!("a plan is an object"),
        }
    }
    if let Some((first, others)) = plans.split_first() {
        options = first.clone();
        options.retain(|name, value| {
            !matches!(name.as_str(), "version" | "interval_seconds")
                && others.iter().all(|other| other.get(name) == Some(value))
        });
    }
    if load.parts.len() > 1 {
        let names: Vec<_> = load.parts.iter().map(|(name, _)| name.as_str()).collect();
        options.insert("parts".to_owned(), names.into());
    }
    options.insert("preset".to_owned(), load.preset.clone().into());
    Ok(options)
}
