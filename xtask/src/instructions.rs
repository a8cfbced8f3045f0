//! Instructions of the stack's operations, counted with callgrind and compared with the record in
//! `docs/instructions.toml`. Counts repeat to a fraction of a percent on any quiet or busy machine, which times do not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

const RECORD: &str = "docs/instructions.toml";
/// By so many percent a figure may be above the record.
const ALLOWANCE_PERCENT: f64 = 3.0;

/// A figure: what the benchmark is told to do, and the functions whose instructions count.
struct Figure {
    name: &'static str,
    arguments: &'static [&'static str],
    functions: &'static [&'static str],
}

const SENDER: &[&str] =
    &["client_output", "client_input", "client_queued", "client_changes", "client_deadlines"];
const RECEIVER: &[&str] =
    &["server_output", "server_input", "server_consumed", "server_changes", "server_deadlines"];

const HANDED: &[&str] = &[
    "handed_forward",
    "handed_back",
    "client_queued",
    "client_changes",
    "client_deadlines",
    "server_consumed",
    "server_changes",
    "server_deadlines",
];

const OPERATION: &[&str] = &["counted_operation"];

const FIGURES: [Figure; 26] = [
    figure("segment_of_1448_sender", &["stream", "65536", "1500"], SENDER),
    figure("segment_of_1448_receiver", &["stream", "65536", "1500"], RECEIVER),
    figure("segment_of_1448_by_twos_sender", &["stream", "2896", "1500"], SENDER),
    figure("segment_of_1448_by_twos_receiver", &["stream", "2896", "1500"], RECEIVER),
    figure("1448_bytes_of_65535_sender", &["stream", "65536", "65535"], SENDER),
    figure("1448_bytes_of_65535_receiver", &["stream", "65536", "65535"], RECEIVER),
    figure("segment_of_1448_handed_over_both_ends", &["handed", "65536", "1500"], HANDED),
    figure("1448_bytes_of_65535_handed_over_both_ends", &["handed", "65536", "65535"], HANDED),
    figure("connection_opened_and_closed_both_ends", &["churn"], &["open_and_close"]),
    figure("operation_crr_across_a_link", &["operation", "crr", "2", "1000"], OPERATION),
    figure("operation_crr_on_one_stack", &["operation", "crr", "1", "1000"], OPERATION),
    figure("operation_rr_across_a_link", &["operation", "rr", "2", "5000"], OPERATION),
    figure("operation_rr_on_one_stack", &["operation", "rr", "1", "5000"], OPERATION),
    figure("operation_stream_across_a_link", &["operation", "stream", "2", "3"], OPERATION),
    figure("operation_stream_on_one_stack", &["operation", "stream", "1", "10"], OPERATION),
    figure("operation_udp_rr_across_a_link", &["operation", "udp_rr", "2", "5000"], OPERATION),
    figure("operation_udp_rr_on_one_stack", &["operation", "udp_rr", "1", "5000"], OPERATION),
    figure("segments_out_beside_10", &["beside", "10"], &["client_output"]),
    figure("segments_out_beside_1000", &["beside", "1000"], &["client_output"]),
    figure("segments_out_beside_100000", &["beside", "100000"], &["client_output"]),
    figure("segments_in_beside_10", &["beside", "10"], &["server_input"]),
    figure("segments_in_beside_1000", &["beside", "1000"], &["server_input"]),
    figure("segments_in_beside_100000", &["beside", "100000"], &["server_input"]),
    figure("timer_beside_10", &["beside", "10"], &["client_deadlines"]),
    figure("timer_beside_1000", &["beside", "1000"], &["client_deadlines"]),
    figure("timer_beside_100000", &["beside", "100000"], &["client_deadlines"]),
];

const fn figure(
    name: &'static str,
    arguments: &'static [&'static str],
    functions: &'static [&'static str],
) -> Figure {
    Figure { name, arguments, functions }
}

/// The record.
#[derive(Deserialize, Serialize)]
struct Record {
    /// What compiled it; with another compiler the figures are others.
    compiler: String,
    /// Instructions a unit, by the figure's name.
    figures: BTreeMap<String, u64>,
}

/// Counts the figures whose name has `only` in it, and compares them with the record or writes it anew.
pub(crate) fn run(root: &Path, only: Option<&str>, write: bool) -> Result<ExitCode> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        bail!("valgrind is not installed (Debian: valgrind)");
    }
    let compiler = compiler(root)?;
    let path = root.join(RECORD);
    let mut record: Record = match std::fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text).context(RECORD)?,
        Err(_) if write => Record { compiler: compiler.clone(), figures: BTreeMap::new() },
        Err(error) => return Err(error).context(RECORD),
    };
    if record.compiler != compiler && !write {
        println!("counted with {compiler}; the record was made with {}", record.compiler);
    }
    let program = build(root)?;
    println!("| figure | record | now | |");
    println!("|---|---|---|---|");
    let mut failed = false;
    for figure in FIGURES.iter().filter(|figure| only.is_none_or(|word| figure.name.contains(word))) {
        let now = count(&program, figure).with_context(|| figure.name)?;
        let before = record.figures.insert(figure.name.to_owned(), now);
        let change = before.map_or(0.0, |before| (now as f64 / before as f64 - 1.0) * 100.0);
        failed |= before.is_none() || change > ALLOWANCE_PERCENT;
        let before = before.map_or("-".to_owned(), |before| before.to_string());
        println!("| {} | {before} | {now} | {change:+.1} % |", figure.name);
    }
    if write {
        record.compiler = compiler;
        let text = format!(
            "# Instructions of the stack's operations: `cargo xtask instructions` counts them and compares, with `--write`\n\
             # they are recorded anew. A unit is what the name says; 1448 bytes are the payload of a segment of 1500.\n\
             # An operation costs client and server together: crr connects, sends 64 B, gets 8 KiB and disconnects; rr is a byte and\n\
             # its answer, udp_rr 200 B and 1000 B; stream a byte and 20 MB, all of MTU 1500.\n\n{}",
            toml::to_string(&record)?
        );
        std::fs::write(&path, text).context(RECORD)?;
        return Ok(ExitCode::SUCCESS);
    }
    if failed {
        println!("more than {ALLOWANCE_PERCENT} % above the record, or not recorded (--write)");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn compiler(root: &Path) -> Result<String> {
    let output = Command::new("rustc").arg("--version").current_dir(root).output().context("rustc")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Builds the benchmark and says where it is.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["bench", "--no-run", "-p", "outboard-stack", "--bench", "cost", "--message-format=json"])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo")?;
    if !output.status.success() {
        bail!("the benchmark does not build");
    }
    // One JSON object a line; only that of the program has a string here.
    let text = String::from_utf8_lossy(&output.stdout);
    let mark = "\"executable\":\"";
    let line = text.lines().rev().find(|line| line.contains(mark)).context("cargo names no program")?;
    let (_, rest) = line.split_once(mark).context("cargo names no program")?;
    Ok(rest.split('"').next().unwrap_or_default().into())
}

/// Instructions a unit of one figure.
fn count(program: &Path, figure: &Figure) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(figure.functions.iter().map(|name| format!("--toggle-collect=*{name}*")))
        .arg(program)
        .args(figure.arguments)
        .output()
        .context("valgrind")?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("the benchmark failed: {err}");
    }
    let after = |text: &str, mark: &str| {
        let line = text.lines().find_map(|line| line.split_once(mark).map(|(_, rest)| rest.to_owned()));
        line.and_then(|rest| rest.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()))
    };
    let units = after(&out, "units ").filter(|units| *units > 0).context("the benchmark tells no units")?;
    let collected = after(&err, "Collected : ").with_context(|| format!("no count from callgrind: {err}"))?;
    Ok((collected + units / 2) / units)
}
