//! The direction of the dependencies between the workspace's crates: only down the list of ARCHITECTURE.md.

use std::path::Path;

use anyhow::{Context, Result};

use crate::Finding;

/// From the bottom up; a crate may depend only on crates that stand before it.
const ORDER: [&str; 16] = [
    "base", "lab", "wire", "tcp", "stack", "netem", "sim", "ring", "device", "channel", "fep", "fuzz",
    "outboard", "preload", "perf", "cli",
];

pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).context("crates/")? {
        let folder = entry?.file_name().to_string_lossy().into_owned();
        let place = format!("crates/{folder}/Cargo.toml");
        let Some(level) = ORDER.iter().position(|name| *name == folder) else {
            findings.push(Finding {
                place,
                what: "the crate is not in the order of xtask/src/dependencies.rs".into(),
            });
            continue;
        };
        let text = std::fs::read_to_string(root.join(&place)).with_context(|| place.clone())?;
        let manifest: toml::Table = toml::from_str(&text).with_context(|| place.clone())?;
        for name in manifest
            .get("dependencies")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            if ORDER.iter().position(|other| other == name).is_some_and(|other| other >= level) {
                findings.push(Finding {
                    place: place.clone(),
                    what: format!(
                        "{folder} may not depend on {name}: dependencies only point down the list of crates"
                    ),
                });
            }
        }
    }
    Ok(findings)
}
