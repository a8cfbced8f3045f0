//! The bench commands from end to end, with sizes so small that they say nothing about speed.

#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use perf::results::Document;
use perf::schema;

/// Runs `outboard bench` with some arguments, its results going to a folder.
fn bench(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_outboard"))
        .arg("bench")
        .args(arguments)
        .args(["--json", "out.json", "--html", "report.html", "--csv", "out.csv", "--trials", "1"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The document that a successful command has written, checked against the schema, with its report.
fn measured(arguments: &[&str]) -> (Document, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(folder.path(), arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{errors}", output.status);
    let text = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    schema::check(&value).unwrap();
    let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(html.contains("<svg"), "the report has no picture");
    for foreign in ["http:", "https:", "<script", "<link", "src=", "url(", "@import"] {
        assert!(!html.contains(foreign), "the report needs something from elsewhere: {foreign}");
    }
    let csv = std::fs::read_to_string(folder.path().join("out.csv")).unwrap();
    assert!(csv.lines().count() > 1);
    (serde_json::from_value(value).unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// Every subject has moved so many bytes, and its receiving end has checked each.
fn assert_moved(document: &Document, subjects: &[&str], bytes: u64) {
    let names: Vec<&str> = document.subjects.iter().map(|subject| subject.name.as_str()).collect();
    assert_eq!(names, subjects);
    for subject in &document.subjects {
        for trial in &subject.trials {
            assert_eq!(trial.total.bytes, bytes, "{}", subject.name);
            assert!(trial.total.verified, "{}", subject.name);
            assert!(trial.total.cpu_seconds.host() > 0.0, "{} has cost nothing", subject.name);
        }
    }
}

#[test]
fn an_unmodified_ftp_server_moves_files_on_every_subject() {
    let (document, text) = measured(&["file", "--size", "100kB", "--count", "3", "--size", "1MiB"]);
    assert_moved(&document, &["kernel", "host", "fep"], 2 * (3 * 100_000 + (1 << 20)));
    assert_eq!(document.subjects[0].trials[0].parts.len(), 4);
    assert!(text.contains("2.45 Mbit/s"), "the published figures are missing:\n{text}");
    let fep = &document.subjects[2].trials[0].total;
    // How its time splits is the kernel's estimate at its tick.
    assert!(fep.cpu_seconds.fep_work + fep.cpu_seconds.fep_system > 0.0 && !fep.counters.is_empty());
}

#[test]
fn an_ftp_server_that_forks_moves_files() {
    let (document, text) = measured(&[
        "file", "--server", "vsftpd", "--on", "kernel", "--size", "100kB", "--count", "3", "--size", "1MiB",
    ]);
    assert_moved(&document, &["kernel"], 2 * (3 * 100_000 + (1 << 20)));
    assert_eq!(document.workload.options["server"], "vsftpd");
    assert!(text.contains("server:   vsftpd "), "{text}");
    // Its sessions are other processes than the stack's.
    let folder = tempfile::tempdir().unwrap();
    let refused = bench(folder.path(), &["file", "--server", "vsftpd", "--on", "kernel,host"]);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("a process for each session") && told.contains("--on kernel,fep"), "{told}");
}

/// Whether this process is root on the machine, and not in a user namespace only.
fn is_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[test]
fn packets_are_taken_in_on_the_hosts_own_processors() {
    let arguments = ["stream", "-n", "20MB", "--on", "kernel,fep", "--steer"];
    let (document, _) = measured(&arguments);
    assert!(document.subjects.iter().all(|subject| subject.options["steer"] == "rps"));
    let folder = tempfile::tempdir().unwrap();
    if !is_root() {
        // The kernel's threads are nobody else's to place.
        let refused = bench(folder.path(), &[&arguments[..], &["napi"]].concat());
        assert!(!refused.status.success());
        return;
    }
    let (document, text) = measured(&[&arguments[..], &["napi"]].concat());
    assert_moved(&document, &["kernel", "fep"], 40_000_000);
    let [kernel, fep] = [0, 1].map(|subject: usize| document.subjects[subject].trials[0].total.cpu_seconds);
    assert!(kernel.application_receive_thread > 0.0 && fep.application_receive_thread == 0.0);
    // It is contained in the application's.
    assert!(kernel.application_receive_thread <= kernel.application_system, "{kernel:?}");
    assert!(text.contains("the thread that takes packets in"), "{text}");
    assert_eq!(bench(folder.path(), &["rr", "--steer", "west"]).status.code(), Some(2));
}

#[test]
fn the_native_program_moves_files_on_every_subject() {
    let (document, _) =
        measured(&["file", "--server", "native", "--size", "1MB", "--count", "2", "--mtu", "9000"]);
    assert_moved(&document, &["kernel", "host", "fep"], 4_000_000);
}

#[test]
fn a_stream_is_checked_byte_by_byte() {
    let (document, _) = measured(&["stream", "--size", "5MiB", "--on", "fep,kernel"]);
    assert_moved(&document, &["fep", "kernel"], 10 << 20);
    assert!(document.subjects.iter().all(|subject| subject.trials[0].total.longest_stall_seconds.is_some()));
}

#[test]
fn round_trips_have_a_distribution() {
    let (document, text) = measured(&["rr", "--duration", "0.2"]);
    for subject in &document.subjects {
        let total = &subject.trials[0].total;
        let latency = total.latency_ns.unwrap();
        assert!(total.operations > 0 && total.verified);
        assert!(latency.min <= latency.p50 && latency.p50 <= latency.p99 && latency.p99 <= latency.max);
        let each = total.cpu_seconds_per_operation.unwrap();
        assert!((each.host() * total.operations as f64 - total.cpu_seconds.host()).abs() < 1e-9);
    }
    assert!(text.contains("Processor time per operation"), "{text}");
}

#[test]
fn busy_programs_are_beside_the_trials_and_gone_after_them() {
    let (document, _) = measured(&["rr", "-n", "20", "--on", "kernel,fep", "--loopback", "--hogs", "2:19"]);
    assert_eq!(document.workload.options["hogs"], serde_json::json!({ "count": 2, "nice": 19 }));
    assert_eq!(document.workload.options["on"], serde_json::json!(["kernel", "fep"]));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(bench(folder.path(), &["rr", "--hogs", "2:20"]).status.code(), Some(2));
    assert_eq!(bench(folder.path(), &["rr", "--client", "127.0.0.1", "--hogs", "1"]).status.code(), Some(2));
}

/// A program that is killed however its test ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_program_computes_at_its_nice_value() {
    let hog = Killed(
        Command::new(env!("CARGO_BIN_EXE_outboard")).args(["bench-end", "hog", "--nice=7"]).spawn().unwrap(),
    );
    // The name, in parentheses, may hold anything; utime is the 12th field after it, nice the 17th.
    let fields = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", hog.0.id())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        (fields[11].parse::<u64>().unwrap(), fields[16].parse::<i32>().unwrap())
    };
    let began = std::time::Instant::now();
    while fields().0 < 10 && began.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (computed, nice) = fields();
    assert!(computed >= 10, "it has computed for {computed} ticks");
    assert_eq!(nice, 7);
}

const EVERYWHERE: &str = "kernel,host,fep,fep-unmodified";

/// So many operations on every subject, all checked; `bytes` of each.
fn assert_done(arguments: &[&str], operations: u64, bytes: u64) -> Document {
    let (document, _) = measured(&[&arguments[..1], &["--on", EVERYWHERE], &arguments[1..]].concat());
    assert_eq!(document.subjects.len(), 4);
    for subject in &document.subjects {
        let total = &subject.trials[0].total;
        assert_eq!((total.operations, total.bytes), (operations, operations * bytes), "{}", subject.name);
        assert!(total.verified, "{}", subject.name);
    }
    document
}

#[test]
fn transactions_are_made_on_one_stack_and_across_a_link() {
    let loopback = assert_done(&["crr", "-n", "30", "--loopback"], 30, 64 + 8192);
    assert!(loopback.subjects.iter().all(|subject| subject.trials[0].total.latency_ns.is_some()));
    assert_done(&["crr", "-n", "20", "-P", "2", "--request", "3", "--answer", "600kB"], 40, 600_003);
}

/// The same over UDP. What is not answered in 200 ms counts as lost, also where the machine stood still; but nothing is lost
/// every time.
fn assert_done_by_datagrams(arguments: &[&str], operations: u64, bytes: u64) {
    let mut losses = Vec::new();
    for _ in 0..5 {
        let (document, _) =
            measured(&[&arguments[..1], &["--udp", "--on", EVERYWHERE], &arguments[1..]].concat());
        assert_eq!(document.subjects.len(), 4);
        losses.clear();
        for subject in &document.subjects {
            let total = &subject.trials[0].total;
            let lost = total.details["lost_datagrams"];
            assert_eq!(total.operations as f64 + lost, operations as f64, "{}", subject.name);
            assert_eq!(total.bytes, total.operations * bytes, "{}", subject.name);
            assert!(total.verified, "{}", subject.name);
            if lost > 0.0 {
                losses.push((subject.name.clone(), lost));
            }
        }
        if losses.is_empty() {
            return;
        }
    }
    panic!("{arguments:?}: {losses:?} lost");
}

#[test]
fn round_trips_go_over_udp_and_pipelined_and_at_a_rate() {
    assert_done_by_datagrams(
        &["rr", "--request", "200", "--answer", "1000", "-n", "50", "--loopback"],
        50,
        1200,
    );
    assert_done_by_datagrams(&["rr", "--size", "8", "-n", "64", "--depth", "8"], 64, 16);
    assert_done(
        &["rr", "--request", "5", "--answer", "3000", "-n", "200", "--depth", "20", "-P", "2"],
        400,
        3005,
    );
    assert_done(&["rr", "-n", "40", "--rate", "1000", "--loopback"], 40, 2);
    assert_done_by_datagrams(&["rr", "--size", "16", "-n", "20", "--rate", "500", "-P", "2"], 40, 32);
}

#[test]
fn streams_go_both_ways_at_once_and_as_answers() {
    let everywhere = ["--on", EVERYWHERE, "--loopback", "-w", "1MB"];
    let subjects = ["kernel", "host", "fep", "fep-unmodified"];
    let (document, _) =
        measured(&[&["stream", "--bidir", "-n", "700kB", "-P", "3"], &everywhere[..]].concat());
    assert_moved(&document, &subjects, 2 * 3 * 700_000);
    let (document, _) = measured(&[&["stream", "-R", "-n", "700kB", "-P", "3"], &everywhere[..]].concat());
    assert_moved(&document, &subjects, 3 * 700_000);
    assert_done(&["stream", "--request", "1", "--answer", "2MB", "--count", "3", "--loopback"], 3, 2_000_001);
    let (document, _) = measured(&["stream", "-t", "1", "-O", "0.1", "-R", "--on", "kernel,fep"]);
    for subject in &document.subjects {
        let total = &subject.trials[0].total;
        assert!(total.bytes > 0 && total.verified && total.elapsed_seconds > 0.0, "{}", subject.name);
    }
}

#[test]
fn messages_arrive_one_by_one() {
    assert_done(&["messages", "-n", "300"], 300, 1408);
    let (document, _) = measured(&["messages", "--udp", "-n", "100", "--rate", "2000", "--on", "kernel,fep"]);
    for subject in &document.subjects {
        let total = &subject.trials[0].total;
        assert_eq!(total.operations as f64 + total.details["lost_datagrams"], 100.0, "{}", subject.name);
    }
}

#[test]
fn connections_are_held_and_replaced() {
    let (document, _) = measured(&[
        "connections",
        "--on",
        EVERYWHERE,
        "--hold",
        "20",
        "--ramp",
        "2000",
        "--churn",
        "50",
        "--duration",
        "1.01",
        "--loopback",
    ]);
    assert_eq!(document.subjects.len(), 4);
    for subject in &document.subjects {
        let total = &subject.trials[0].total;
        let [held, replaced] = ["held_connections", "replaced_connections"].map(|name| total.details[name]);
        // 51 come due; a machine with much else to do reaches the end before the last of them has its turn.
        assert!(held == 20.0 && (1.0..=51.0).contains(&replaced), "{}: {held}, {replaced}", subject.name);
        assert_eq!(total.operations as f64, held + replaced, "{}", subject.name);
        assert!(total.verified, "{}", subject.name);
    }
}

#[test]
fn idle_connections_are_held() {
    let (document, _) = measured(&["idle", "--connections", "50", "--duration", "0.3", "--on", "kernel,fep"]);
    assert!(document.subjects.iter().all(|subject| subject.trials[0].total.operations == 50));
    assert!(document.subjects[1].summary.contains_key("fep_cpu_utilisation"));
}

/// Runs `outboard` in a folder.
fn outboard(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_outboard"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn standard_output(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn events_are_told_as_lines_of_json_and_the_last_is_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["bench", "crr", "--on", "kernel", "-n", "200", "--trials", "2", "-i", "0.01", "--json-stream"];
    let text =
        standard_output(&outboard(folder.path(), &[&arguments[..], &["--hlog", "times.hlog"]].concat()));
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let of = |event: &str| events.iter().filter(|one| one["event"] == event).collect::<Vec<_>>();
    assert_eq!(of("start")[0]["data"]["workload"], "crr");
    assert_eq!(of("trial").len(), 2);
    let counted: u64 = of("interval").iter().map(|one| one["data"]["operations"].as_u64().unwrap()).sum();
    assert_eq!(counted, 400, "every operation is in one interval");
    assert_eq!(events.last().unwrap()["event"], "end");
    schema::check(&events.last().unwrap()["data"]).unwrap();
    let log = std::fs::read_to_string(folder.path().join("times.hlog")).unwrap();
    assert!(
        log.contains("#[Histogram log format version 1.") && log.matches("Tag=kernel,").count() == 2,
        "{log}"
    );
}

#[test]
fn trials_are_repeated_until_the_interval_is_narrow() {
    let folder = tempfile::tempdir().unwrap();
    // So wide an interval is reached at once, but not before there are two trials.
    let arguments =
        ["bench", "messages", "--on", "kernel", "-n", "2000", "--trials", "1", "--until", "99%", "-J"];
    let text = standard_output(&outboard(folder.path(), &arguments));
    let document: Document = serde_json::from_str(&text).unwrap();
    assert!(document.subjects[0].trials.len() >= 2);
    assert_eq!(document.workload.options["trials"], document.subjects[0].trials.len());
}

#[test]
fn results_are_compared_and_a_regression_exits_3() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["bench", "rr", "--on", "kernel", "-n", "50", "--trials", "2", "--quiet", "--json", "a.json"];
    standard_output(&outboard(folder.path(), &arguments));
    let text = std::fs::read_to_string(folder.path().join("a.json")).unwrap();
    let mut document: Document = serde_json::from_str(&text).unwrap();
    let summary = document.subjects[0].summary.get_mut("operations_per_second").unwrap();
    summary.mean /= 2.0;
    std::fs::write(folder.path().join("b.json"), serde_json::to_string(&document).unwrap()).unwrap();
    let same =
        outboard(folder.path(), &["compare", "a.json", "a.json", "--fail-on", "operations_per_second=1"]);
    assert!(standard_output(&same).contains("operations_per_second"));
    let of_one = ["compare", "a.json", "--subject", "kernel", "--against", "kernel"];
    assert!(standard_output(&outboard(folder.path(), &of_one)).contains("no difference"));
    assert_eq!(outboard(folder.path(), &["compare", "a.json"]).status.code(), Some(2));
    let worse = ["compare", "a.json", "b.json", "--fail-on"];
    let strict = outboard(folder.path(), &[&worse[..], &["operations_per_second=49"]].concat());
    assert_eq!(strict.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&strict.stderr).contains("-50.0 %"));
    assert!(String::from_utf8_lossy(&strict.stdout).contains("-50.0"));
    let lenient = outboard(folder.path(), &[&worse[..], &["operations_per_second=51%", "--json"]].concat());
    let told: serde_json::Value = serde_json::from_str(&standard_output(&lenient)).unwrap();
    assert_eq!(told["workload"], "rr");
    let unknown = outboard(folder.path(), &[&worse[..], &["beauty=1"]].concat());
    assert_eq!(unknown.status.code(), Some(2));
}

/// A server of `outboard bench -s`, stopped when the test is over.
struct Server {
    child: std::process::Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        use std::io::{BufRead, BufReader};
        let mut child = Command::new(env!("CARGO_BIN_EXE_outboard"))
            .args(["bench", "-s", "-4", "-B", "127.0.0.1", "-p", "0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        // "serving at 127.0.0.1:PORT on kernel"
        let port = line.split([':', ' ']).nth(3).unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, port }
    }

    fn ask(&self, arguments: &[&str]) -> Document {
        let folder = tempfile::tempdir().unwrap();
        let client = ["-c", "127.0.0.1", "-p", &self.port, "-J"];
        let text = standard_output(&outboard(folder.path(), &[&["bench"], arguments, &client].concat()));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        schema::check(&value).unwrap();
        serde_json::from_value(value).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_and_a_server_of_two_machines_give_one_document() {
    let server = Server::start();
    let document = server.ask(&["-P", "2", "-n", "500kB", "-l", "64KiB", "-w", "256KiB"]);
    let names: Vec<&str> = document.subjects.iter().map(|subject| subject.name.as_str()).collect();
    assert_eq!(names, ["client", "server"]);
    assert_eq!(document.workload.name, "stream");
    for subject in &document.subjects {
        let total = &subject.trials[0].total;
        assert!(total.verified && total.bytes == 1_000_000, "{}", subject.name);
        assert!(total.cpu_seconds.host() > 0.0, "{} has cost nothing", subject.name);
    }
    assert_eq!(document.subjects[1].options["sockets"], "kernel");
    assert!(document.subjects[1].options["machine"]["cores"].as_u64().unwrap() > 0);
    let document = server.ask(&["-R", "-n", "300kB", "--trials", "2"]);
    assert_eq!(document.subjects[0].trials.len(), 2);
    let document = server.ask(&["--bidir", "-t", "0.3", "-O", "0.1", "-C", "reno"]);
    assert!(document.subjects[0].trials[0].total.verified);
    let document = server.ask(&["TCP_RR", "-n", "20"]);
    assert_eq!(
        (document.workload.name.as_str(), document.subjects[1].trials[0].total.operations),
        ("rr", 20)
    );
}

#[test]
fn what_two_machines_cannot_do_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, status, word) in [
        (&["-c", "127.0.0.1", "-6", "--on", "fep"][..], 2, "IPv6"),
        (&["-s", "-6", "--on", "fep"], 2, "IPv6"),
        (&["-s", "-6", "-B", "127.0.0.1"], 2, "family"),
        (&["-c", "127.0.0.1", "--loopback"], 2, "loopback"),
        (&["-c", "127.0.0.1", "--mtu", "9000"], 2, "mtu"),
        (&["-c", "127.0.0.1", "--on", "kernel,fep"], 2, "one subject"),
        (&["-c", "127.0.0.1", "-p", "1"], 1, "127.0.0.1:1"),
        (&["-c", "127.0.0.1", "--json-stream", "--json", "-"], 2, "standard output"),
        (&["-c", "127.0.0.1", "--hlog", "x"], 2, "--hlog"),
    ] {
        let output = outboard(folder.path(), &[&["bench"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn the_published_experiments_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["reproduce", "all", "--trials", "1", "-t", "0.2", "--count", "1", "--out", "out"];
    let text = standard_output(&outboard(
        folder.path(),
        &[&arguments[..], &["--against", env!("CARGO_BIN_EXE_outboard")]].concat(),
    ));
    for piece in [
        "212.99",
        "87.90",
        "1745.09",
        "measured: fep-against",
        "2.45 Mbit/s",
        "Figure 10",
        "Figures 7 to 11: pyftpdlib",
        "Figures 7 to 11: vsftpd",
        "Figures 12 and 13",
        "Figure 14",
        "core-hour",
        "A host without connections",
        "977",
    ] {
        assert!(text.contains(piece), "{piece} is not in:\n{text}");
    }
    let out = |name: &str| std::fs::read_to_string(folder.path().join("out").join(name)).unwrap();
    let vm: serde_json::Value = serde_json::from_str(&out("vm.json")).unwrap();
    assert_eq!(vm["documents"].as_array().unwrap().len(), 3);
    for document in vm["documents"].as_array().unwrap() {
        schema::check(document).unwrap();
        assert!(document["subjects"][2]["name"] == "fep-against");
    }
    let tandem: serde_json::Value = serde_json::from_str(&out("tandem.json")).unwrap();
    let by_vsftpd = &tandem["documents"][1];
    schema::check(by_vsftpd).unwrap();
    assert_eq!(
        (&by_vsftpd["workload"]["server"], by_vsftpd["subjects"].as_array().unwrap().len()),
        (&"vsftpd".into(), 2)
    );
    let total = &tandem["documents"][0]["subjects"][0]["trials"][0];
    // 6 MByte by packets of 1448 B are more than 4000 segments; whoever counted super-segments as one counted few.
    assert!(total["counters"]["peer_segments_out"].as_u64().unwrap() > 4000, "{}", total["counters"]);
    // In every storm something was sent: four at the host without a load, four at it under load and four elsewhere.
    let zero: serde_json::Value = serde_json::from_str(&out("zero.json")).unwrap();
    let document = &zero["documents"][0];
    schema::check(document).unwrap();
    for subject in document["subjects"].as_array().unwrap() {
        let parts = subject["trials"][0]["parts"].as_array().unwrap();
        let sent =
            |part: &&serde_json::Value| part["details"]["storm_frames_per_second"].as_f64() > Some(0.0);
        assert_eq!(parts.iter().filter(sent).count(), 12);
    }
    assert!(out("index.html").contains("vm.html") && out("tandem.html").contains("Figure 7"));
    // FTP by two servers, the native program, and FTP at four speeds; Figure 14's lines are drawn.
    assert_eq!(tandem["documents"].as_array().unwrap().len(), 7);
    assert!(out("tandem.html").contains("<polyline class=\"fep-line\""));
}

#[test]
fn the_cost_model_can_be_shown_and_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let shown = standard_output(&outboard(folder.path(), &["reproduce", "tandem", "--show-costs"]));
    std::fs::write(folder.path().join("costs.toml"), shown.replace("core_hour", "soul")).unwrap();
    let output = outboard(folder.path(), &["reproduce", "tandem", "--costs", "costs.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("soul"));
}

#[test]
fn the_schema_is_published() {
    let output = Command::new(env!("CARGO_BIN_EXE_outboard")).arg("schema").output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), schema::TEXT);
}

#[test]
fn json_on_standard_output_stands_alone() {
    let output = Command::new(env!("CARGO_BIN_EXE_outboard"))
        .args(["bench", "stream", "--on", "kernel", "--size", "1MB", "--trials", "1", "--json", "-"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    schema::check(&serde_json::from_slice(&output.stdout).unwrap()).unwrap();
}

#[test]
fn an_interrupt_takes_everything_down() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_outboard"))
        .args(["bench", "idle", "--on", "kernel", "--connections", "5", "--duration", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    // Once its programs run, everything is set up.
    while descendants(id).len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "the measurement has ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    let programs = descendants(id);
    Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    for program in programs {
        assert!(!Path::new(&format!("/proc/{program}")).exists(), "process {program} is still there");
    }
}

#[test]
fn a_wrong_command_line_is_told_apart() {
    for wrong in [
        &["file", "--on", "kernel,kernel"][..],
        &["file", "--size", "6 parsecs"],
        &["file", "--count", "2"],
        &["file", "--mtu", "100"],
        &["rr", "--duration", "0"],
        &["rr", "--udp", "--depth", "2"],
        &["rr", "--depth", "5000"],
        &["rr", "--udp", "--size", "70000"],
        &["stream", "--bidir", "-R"],
        &["stream", "--request", "1"],
        &["connections", "-P", "2"],
        &["crr", "--preset", "vm-rr"],
        &["--preset", "vax"],
        &["teleport"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = bench(folder.path(), wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The processes below one, by the kernel's own list.
fn descendants(id: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { return Vec::new() };
    let children: Vec<u32> = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
        .collect();
    children.into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

#[test]
fn connections_are_sampled_and_the_report_says_what_held_them_back() {
    let folder = tempfile::tempdir().unwrap();
    // Twenty samples are due in so long; two are enough.
    let arguments = ["bench", "stream", "--on", "kernel,fep", "--trials", "1", "-t", "2", "--verify", "no"];
    let output =
        outboard(folder.path(), &[&arguments[..], &["--json", "out.json", "--html", "out.html"]].concat());
    let text = standard_output(&output);
    for subject in ["kernel, download: ", "fep, download: ", "fep, upload: "] {
        let sentence = text.lines().find(|line| line.starts_with(subject) && line.contains("held back by"));
        assert!(sentence.is_some(), "no sentence about {subject} in:\n{text}");
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let document: serde_json::Value = serde_json::from_str(&read("out.json")).unwrap();
    schema::check(&document).unwrap();
    for subject in document["subjects"].as_array().unwrap() {
        let part = &subject["trials"][0]["parts"][0];
        let traces = part["tcp_connections"].as_array().unwrap();
        let sender = traces.iter().find(|trace| trace["end"] == "subject").expect("the subject's end");
        let samples = sender["samples"].as_array().unwrap();
        assert!(samples.len() > 1 && samples[0]["congestion_window_bytes"].as_u64() > Some(0), "{sender}");
        // Its own end tells of the bytes that the peer's end received.
        let last = samples.last().unwrap();
        assert!(last["bytes_sent"].as_u64() > Some(0));
        assert!(traces.iter().any(|trace| trace["end"] == "peer" && trace["local"] == sender["remote"]));
        assert_eq!(subject["options"]["congestion_control"], sender["congestion_control"]);
    }
    assert!(read("out.html").contains("<polyline"));
}
