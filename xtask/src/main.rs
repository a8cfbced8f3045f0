//! Checks on the source tree that neither rustc nor clippy makes.
//!
//! `cargo xtask check` runs all of them: file and function length (STYLE rule 4), the direction of the dependencies
//! between crates, where unsafe code may stand, and whether `docs/rfcs.md` is what the code's citations give. It exits 1
//! when one fails. `cargo xtask citations` writes that file anew; `cargo xtask instructions` counts what operations cost.

mod citations;
mod dependencies;
mod instructions;
mod length;
mod unsafe_code;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

/// One thing that a check found wrong.
struct Finding {
    /// `path:line`, relative to the workspace.
    place: String,
    /// What is wrong and what to do about it.
    what: String,
}

fn main() -> Result<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some("check") => check(),
        Some("citations") => {
            let root = root()?;
            citations::write(root, &rust_files(root)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Some("instructions") => {
            instructions::count(root()?)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprintln!("usage: cargo xtask check | citations | instructions");
            Ok(ExitCode::from(2))
        }
    }
}

fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")
}

fn check() -> Result<ExitCode> {
    let root = root()?;
    let sources = rust_files(root)?;
    let mut findings = dependencies::check(root)?;
    findings.extend(length::check(root, &sources)?);
    findings.extend(unsafe_code::check(root, &sources)?);
    findings.extend(citations::check(root, &sources)?);
    for finding in &findings {
        println!("{}: {}", finding.place, finding.what);
    }
    println!("xtask check: {} files, {} findings", sources.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every Rust file under `crates/` and `xtask/`, sorted.
fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// `path` as it is written from the workspace's root.
fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// Whether a file holds only tests: `tests.rs`, or anything in a `tests/` folder.
fn is_test_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs")
        || path.components().any(|component| component.as_os_str() == "tests")
}
