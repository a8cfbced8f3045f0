//! `outboard status`: what a FEP does, as a table or as JSON.

use std::process::ExitCode;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use fep::control::{ConnectionStatus, Status};

use crate::target::{Target, exit};

/// Shows what a running front-end processor does
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// List the sockets, as `ss` does
    #[arg(long)]
    connections: bool,
    /// Show counters that are zero too
    #[arg(long)]
    all: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.target.connect()?;
    let text = if args.connections {
        let connections = client.connections().map_err(exit)?;
        if args.json { serde_json::to_string_pretty(&connections)? } else { listing(&connections) }
    } else {
        let status = client.status().map_err(exit)?;
        if args.json { serde_json::to_string_pretty(&status)? } else { table(&status, args.all) }
    };
    print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Prints to standard output; a reader that has seen enough (`| head`) is no error.
fn print(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table
}

fn listing(connections: &[ConnectionStatus]) -> String {
    let mut table = new_table();
    table.set_header(["proto", "state", "recv-q", "send-q", "local", "peer", "cwnd", "rtt", "pid"]);
    for one in connections {
        table.add_row([
            one.protocol.clone(),
            one.state.clone(),
            one.receive_queue.to_string(),
            one.send_queue.to_string(),
            one.local.clone(),
            one.remote.clone(),
            if one.congestion_window_bytes == 0 {
                String::new()
            } else {
                one.congestion_window_bytes.to_string()
            },
            if one.round_trip_us == 0 { String::new() } else { format!("{} us", one.round_trip_us) },
            if one.pid == 0 { String::new() } else { one.pid.to_string() },
        ]);
    }
    trim_lines(&table.to_string())
}

fn table(status: &Status, all: bool) -> String {
    let mut table = new_table();
    let cpu = &status.cpu;
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row(
        "fep",
        format!(
            "{} ({}), worker {}, {} restarts",
            status.name, status.version, status.worker_pid, status.worker_restarts
        ),
    );
    row("uptime", format!("{:.1} s", status.uptime_seconds));
    row(
        "cpu",
        format!(
            "work {:.3} s, polling {:.3} s; user {:.3} s, system {:.3} s",
            cpu.work_seconds, cpu.polling_seconds, cpu.user_seconds, cpu.system_seconds
        ),
    );
    row("memory", format!("{} KiB", status.memory_bytes / 1024));
    for interface in &status.interfaces {
        let offload = if interface.segmentation_offload { "offload" } else { "no offload" };
        row(
            "interface",
            format!(
                "{} {} mtu {} {} {}",
                interface.name,
                interface.addresses.join(" "),
                interface.mtu_bytes,
                interface.hardware_address,
                offload
            ),
        );
    }
    row("connections", pairs(status.connections.iter().map(|(name, count)| (name.as_str(), *count)), all));
    row("orphans", status.orphans.to_string());
    let worker = &status.worker;
    row(
        "worker",
        pairs(
            [
                ("turns", worker.turns),
                ("sleeps", worker.sleeps),
                ("wakeups", worker.wakeups),
                ("system calls", worker.system_calls),
                ("commands", worker.commands),
                ("events", worker.events),
            ]
            .into_iter(),
            true,
        ),
    );
    if !status.offences.is_empty() {
        row("offences", pairs(status.offences.iter().map(|(name, count)| (name.as_str(), *count)), all));
    }
    let mut text = trim_lines(&table.to_string());
    text.push_str(&applications(status));
    for interface in &status.interfaces {
        text.push_str(&counters(&format!("counters of {}", interface.name), &interface.counters, all));
    }
    text.push_str(&counters("counters of the stack", &status.counters, all));
    text
}

fn applications(status: &Status) -> String {
    if status.applications.is_empty() {
        return "\n\nno applications".to_owned();
    }
    let mut table = new_table();
    table.set_header(["application", "pid", "uid", "sockets", "receive buffers"]);
    for one in &status.applications {
        table.add_row([
            one.name.clone(),
            one.pid.to_string(),
            one.uid.to_string(),
            one.sockets.to_string(),
            format!("{} KiB", one.buffer_bytes / 1024),
        ]);
    }
    format!("\n\n{}", trim_lines(&table.to_string()))
}

fn counters(title: &str, counters: &std::collections::BTreeMap<String, u64>, all: bool) -> String {
    let mut table = new_table();
    for (name, value) in counters.iter().filter(|(_, value)| all || **value != 0) {
        table.add_row([name.clone(), value.to_string()]);
    }
    if table.row_iter().next().is_none() {
        return String::new();
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("\n\n{title}\n{}", trim_lines(&table.to_string()))
}

fn pairs<'a>(counts: impl Iterator<Item = (&'a str, u64)>, all: bool) -> String {
    let texts: Vec<String> = counts
        .filter(|(_, count)| all || *count != 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

fn trim_lines(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_leaves_out_zeroes_and_names_the_rest() {
        let mut status = Status { name: "default".into(), ..Status::default() };
        status.connections.insert("established".into(), 3);
        status.counters.insert("tcp_segments_in".into(), 12);
        status.counters.insert("tcp_bad_checksum".into(), 0);
        let text = table(&status, false);
        assert!(text.contains("3 established") && text.contains("tcp_segments_in"));
        assert!(!text.contains("tcp_bad_checksum"));
        assert!(table(&status, true).contains("tcp_bad_checksum"));
    }

    #[test]
    fn a_listing_has_a_line_for_each_socket() {
        let one = ConnectionStatus {
            protocol: "tcp".into(),
            state: "LISTEN".into(),
            ..ConnectionStatus::default()
        };
        assert_eq!(listing(&[one.clone(), one]).lines().count(), 3);
    }
}
