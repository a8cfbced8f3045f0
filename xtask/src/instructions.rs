//! `cargo xtask instructions`: what an operation of the workloads costs the stack, in instructions, counted by callgrind.
//!
//! The count needs no quiet machine and repeats exactly for one compiler. Each workload of `crates/stack/examples/operations.rs`
//! runs twice; what the longer run does more, divided by its operations more, is an operation's cost.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// A workload: its name there, what an operation is, and the operations of the shorter and of the longer run.
const WORKLOADS: [(&str, &str, [u32; 2]); 3] = [
    ("crr", "connect, 64 B, 8 KiB back, disconnect", [200, 600]),
    ("rr", "1 B and 1 B back", [500, 2500]),
    ("stream", "1 B and 1 MB back", [5, 25]),
];

/// Builds the program, counts, and prints the table.
pub(crate) fn count(root: &Path) -> Result<()> {
    need_valgrind(root)?;
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--package", "outboard-stack", "--example", "operations"])
        .current_dir(root)
        .status()
        .context("cargo")?;
    ensure!(built.success(), "the program to measure with is not built");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let program = target.join("release/examples/operations");
    println!("| an operation of | is | instructions, client and server together |\n|---|---|---|");
    for (name, meaning, runs) in WORKLOADS {
        let [short, long] = [run(&program, name, runs[0])?, run(&program, name, runs[1])?];
        let each = long.saturating_sub(short) / u64::from(runs[1] - runs[0]);
        println!("| `{name}` | {meaning} | {each} |");
    }
    Ok(())
}

/// It is installed only for whoever counts.
fn need_valgrind(root: &Path) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let installed = Command::new(root.join("scripts/install-packages"))
        .arg("instructions")
        .status()
        .context("scripts/install-packages")?;
    ensure!(installed.success(), "valgrind is missing: install the Debian package valgrind");
    Ok(())
}

/// The instructions of one run.
fn run(program: &Path, workload: &str, count: u32) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([workload, &count.to_string()])
        .output()
        .context("valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} {workload} {count} under callgrind: {}\n{text}", program.display(), output.status);
    }
    collected(&text).with_context(|| format!("callgrind has told no count:\n{text}"))
}

/// Callgrind's last words: `==123== Collected : 456`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_among_callgrinds_words() {
        let text = "==7== Events    : Ir\n==7== Collected : 3052134\n==7==\n==7== I   refs:      3,052,134\n";
        assert_eq!(collected(text), Some(3_052_134));
        assert_eq!(collected("==7== Collected :"), None);
    }
}
