//! `outboard status`: what a FEP does, as a table or as JSON.

use std::process::ExitCode;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use fep::control::{ConnectionStatus, Status, TcpStatus};

use crate::target::{Target, exit};

/// Shows what a running front-end processor does
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// List the sockets, as `ss -ti` does, and what limits each connection
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
    let rows = trim_lines(&table.to_string());
    let mut rows = rows.lines();
    let mut text = rows.next().unwrap_or_default().to_owned();
    for (row, one) in rows.zip(connections) {
        text.push('\n');
        text.push_str(row);
        if let Some(tcp) = &one.tcp {
            text.push_str("\n      ");
            text.push_str(&details(tcp));
        }
    }
    text
}

/// What `ss -ti` shows of a connection, and how long each reason limited it.
fn details(tcp: &TcpStatus) -> String {
    let mut words = vec![tcp.congestion_control.clone()];
    for (on, name) in [(tcp.timestamps, "ts"), (tcp.sack, "sack"), (tcp.ecn, "ecn")] {
        if on {
            words.push(name.to_owned());
        }
    }
    if tcp.wscale {
        words.push(format!("wscale:{},{}", tcp.snd_wscale, tcp.rcv_wscale));
    }
    let millis = |us: u32| f64::from(us) / 1e3;
    words.push(format!("{} rto:{}", tcp.ca_state, millis(tcp.rto_us)));
    words.push(format!("rtt:{}/{}", millis(tcp.rtt_us), millis(tcp.rttvar_us)));
    words.push(format!("mss:{} pmtu:{}", tcp.snd_mss_bytes, tcp.pmtu_bytes));
    words.push(format!("cwnd:{} ssthresh:{}", tcp.snd_cwnd_segments, tcp.snd_ssthresh_segments));
    words.push(format!("snd_wnd:{} rcv_wnd:{}", tcp.snd_wnd_bytes, tcp.rcv_wnd_bytes));
    let counts = [
        ("bytes_sent", tcp.bytes_sent),
        ("bytes_retrans", tcp.bytes_retrans),
        ("bytes_acked", tcp.bytes_acked),
        ("bytes_received", tcp.bytes_received),
        ("notsent", tcp.notsent_bytes.into()),
        ("segs_out", tcp.segs_out.into()),
        ("segs_in", tcp.segs_in.into()),
        ("unacked", tcp.unacked_segments.into()),
        ("sacked", tcp.sacked_segments.into()),
        ("lost", tcp.lost_segments.into()),
        ("retrans", tcp.total_retrans_segments.into()),
        ("timeouts", tcp.total_rto.into()),
        ("rcv_ooopack", tcp.rcv_ooopack.into()),
    ];
    words
        .extend(counts.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name}:{count}")));
    for (name, rate) in
        [("pacing", tcp.pacing_rate_bytes_per_second), ("delivery", tcp.delivery_rate_bytes_per_second)]
    {
        if rate > 0 && rate < u64::MAX {
            words.push(format!("{name}_rate:{:.1}Mbit/s", rate as f64 * 8.0 / 1e6));
        }
    }
    let total: u64 = tcp.limited_by_ns.values().sum();
    for (reason, ns) in tcp.limited_by_ns.iter().filter(|(_, ns)| **ns > 0) {
        let share = 100.0 * *ns as f64 / total.max(1) as f64;
        words.push(format!("{reason}:{:.1}ms({share:.1}%)", *ns as f64 / 1e6));
    }
    words.join(" ")
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
    row("memory", memory(status));
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
                ("file bytes", worker.file_bytes),
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

fn memory(status: &Status) -> String {
    let buffers = &status.receive_buffers;
    format!(
        "{} KiB; receive buffers {} of {} KiB ({})",
        status.memory_bytes / 1024,
        buffers.used_bytes / 1024,
        buffers.cap_bytes / 1024,
        buffers.pressure
    )
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
        assert_eq!(listing(&[one.clone(), one.clone()]).lines().count(), 3);
        let tcp = TcpStatus {
            congestion_control: "bbr".into(),
            rtt_us: 45_500,
            limited_by_ns: [("application".into(), 3_000_000), ("pacing".into(), 1_000_000)].into(),
            ..TcpStatus::default()
        };
        let text = listing(&[ConnectionStatus { tcp: Some(tcp), ..one.clone() }, one]);
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("bbr") && text.contains("rtt:45.5/0"), "{text}");
        assert!(text.contains("application:3.0ms(75.0%) pacing:1.0ms(25.0%)"), "{text}");
    }
}
