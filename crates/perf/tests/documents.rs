//! Documents, the schema that describes them, and the reports made of them, without measuring anything.

use outboard_perf::compare::{Limit, compare};
use outboard_perf::results::{
    CpuSeconds, Document, Latency, Measure, Part, SCHEMA_VERSION, SubjectResult, Trial, Workload,
};
use outboard_perf::trace::{Sample, Trace};
use outboard_perf::{machine, metrics, report, schema};
use serde_json::{Map, Value, json};

/// A subject that moves 1 GB each way in `seconds` at `host` CPU seconds, a little different in each trial.
fn subject(name: &str, trials: u32, seconds: f64, host: f64) -> SubjectResult {
    let trial = |number: u32| {
        let drift = 1.0 + 0.01 * f64::from(number);
        let part = |name: &str| Part {
            name: name.to_owned(),
            measure: Measure {
                operations: 10,
                bytes: 1_000_000_000,
                elapsed_seconds: seconds * drift,
                cpu_seconds: CpuSeconds {
                    application_user: host * 0.25 * drift,
                    application_system: host * 0.75 * drift,
                    fep_work: if name == "fep" { 0.2 } else { 0.0 },
                    peer: 0.4,
                    machine_busy: 1.0,
                    ..CpuSeconds::default()
                },
                counters: [("segments_out".to_owned(), 7)].into(),
                verified: true,
                longest_stall_seconds: Some(0.01),
                ..Measure::default()
            }
            .with_rates(),
        };
        Trial::of_parts(vec![part("download-1GB"), part("upload-1GB")])
    };
    let trials: Vec<_> = (0..trials).map(trial).collect();
    let options = json!({"mtu_bytes": 1500, "copy_avoidance": false});
    SubjectResult {
        name: name.to_owned(),
        options: options.as_object().cloned().unwrap_or_default(),
        summary: metrics::summarise(&trials),
        trials,
    }
}

fn document(workload: &str, subjects: Vec<SubjectResult>) -> Document {
    let mut options = Map::new();
    options.insert("trials".to_owned(), subjects[0].trials.len().into());
    options.insert("program".to_owned(), "<pyftpdlib>".into());
    Document {
        schema_version: SCHEMA_VERSION,
        tool: machine::tool(),
        command: vec!["outboard".to_owned(), "bench".to_owned(), workload.to_owned()],
        machine: machine::machine(),
        workload: Workload { name: workload.to_owned(), options },
        ratios: metrics::ratios(&subjects),
        subjects,
    }
}

fn three(trials: u32) -> Document {
    document(
        "file",
        vec![
            subject("kernel", trials, 1.0, 0.4),
            subject("host", trials, 1.1, 0.5),
            subject("fep", trials, 1.0, 0.1),
        ],
    )
}

fn as_value(document: &Document) -> Value {
    serde_json::to_value(document).expect("a document is JSON")
}

#[test]
fn documents_fit_their_schema_and_come_back() {
    for document in [three(1), three(3), document("rr", vec![subject("kernel", 2, 1.0, 1.0)])] {
        let value = as_value(&document);
        schema::check(&value).unwrap();
        let again: Document = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(as_value(&again), value);
    }
}

#[test]
fn what_does_not_fit_is_found() {
    let good = as_value(&three(2));
    let spoil = |pointer: &str, wrong: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = wrong;
        schema::check(&bad).expect_err(pointer)
    };
    assert!(spoil("/subjects/0/trials/1/bytes", json!(-1)).contains("$.subjects[0].trials[1].bytes"));
    spoil("/subjects/0/trials/1/parts/0/cpu_seconds/peer", json!("much"));
    spoil("/subjects/2/name", json!(7));
    spoil("/ratios/0/verdict", json!("better"));
    spoil("/schema_version", json!(2));
    let mut bad = good.clone();
    bad.as_object_mut().expect("an object").remove("machine");
    assert!(schema::check(&bad).unwrap_err().contains("machine"));
}

#[test]
fn ratios_follow_from_the_trials() {
    let document = three(3);
    let ratio = document
        .ratios
        .iter()
        .find(|one| {
            one.metric == "efficiency_bits_per_host_cpu_second"
                && one.subject == "fep"
                && one.against == "kernel"
        })
        .unwrap();
    assert!((ratio.value - 4.0).abs() < 1e-9 && ratio.verdict == "more");
    let bandwidth = document
        .ratios
        .iter()
        .find(|one| one.metric == "bits_per_second" && one.subject == "fep" && one.against == "kernel")
        .unwrap();
    assert_eq!(bandwidth.verdict, "no difference");
    assert!(three(1).ratios.iter().all(|one| one.verdict == "one trial" && one.low.is_none()));
}

#[test]
fn the_text_shows_the_published_figures_beside_the_measured_ones() {
    let text = report::text(&three(3));
    for piece in
        ["0.35 Mbit/s", "2.45 Mbit/s", "FEP ÷ host", "7.92 Gbit/s", "no difference", "every one checked"]
    {
        assert!(text.contains(piece), "{piece} is not in:\n{text}");
    }
    assert!(text.contains("fep against kernel: bandwidth no difference"), "{text}");
}

#[test]
fn the_html_needs_nothing_else() {
    for document in [three(3), three(1), document("stream", vec![subject("kernel", 1, 1.0, 1.0)])] {
        let html = report::html(&document).unwrap();
        for foreign in ["http:", "https:", "<script", "<link", "src=", "url(", "@import", "NaN", "inf"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
        assert!(html.contains("<svg") && html.contains("prefers-color-scheme: dark"));
        // The numbers are those of the experiment that moved files.
        let is_file = document.workload.name == "file";
        assert_eq!(html.contains("Figure 7") && html.contains("Figure 11"), is_file);
        // What stands in a document is text, whatever it holds.
        assert!(!html.contains("<pyftpdlib>"));
    }
}

#[test]
fn the_csv_has_a_line_for_each_trial_and_part() {
    let csv = report::csv(&three(2));
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 3 * 2 * 3);
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns), "{csv}");
    assert!(lines[1].starts_with("kernel,1,all,20,2000000000,2,"), "{}", lines[1]);
}

#[test]
fn latency_percentiles_are_metrics() {
    let latency = Latency { p50: 20_000, p99: 90_000, ..Latency::default() };
    let total =
        Measure { operations: 5, elapsed_seconds: 1.0, latency_ns: Some(latency), ..Measure::default() };
    let summary = metrics::summarise(&[Trial { total: total.with_rates(), parts: Vec::new() }]);
    assert_eq!(summary["latency_p50_ns"].mean, 20_000.0);
    assert_eq!(summary["operations_per_second"].mean, 5.0);
}

fn limit(text: &str) -> Vec<Limit> {
    vec![text.parse().expect("a limit")]
}

#[test]
fn documents_are_compared_metric_by_metric() {
    let before = three(3);
    let after = document(
        "file",
        vec![subject("kernel", 3, 1.0, 0.4), subject("host", 3, 1.1, 0.25), subject("fep", 3, 2.0, 0.1)],
    );
    let same = compare([&before, &before], None, &limit("bits_per_second=0")).unwrap();
    assert!(same.rows.iter().all(|row| row.percent_difference == 0.0 && !row.failed));
    assert!(same.rows.iter().all(|row| row.verdict == "no difference"));
    let changed = compare([&before, &after], None, &limit("bits_per_second=10%")).unwrap();
    let row = |subject: &str, metric: &str| {
        changed.rows.iter().find(|row| row.subjects[1] == subject && row.metric == metric).unwrap()
    };
    // Half as fast, which is worse; half the cost, which is better.
    let slower = row("fep", "bits_per_second");
    assert!((slower.percent_difference + 50.0).abs() < 1e-9 && slower.failed && slower.verdict == "worse");
    let cheaper = row("host", "host_cpu_seconds_per_gigabyte");
    assert!((cheaper.percent_difference + 50.0).abs() < 1e-9 && cheaper.verdict == "better");
    assert!(!row("kernel", "bits_per_second").failed);
    assert!(changed.rows.iter().all(|row| !row.failed || row.subjects[1] == "fep"));
    // A limit holds only against what is worse.
    assert!(
        compare([&before, &after], None, &limit("host_cpu_seconds_per_gigabyte=1"))
            .unwrap()
            .rows
            .iter()
            .all(|row| !row.failed)
    );
    let across = compare([&before, &after], Some(["kernel", "fep"]), &[]).unwrap();
    assert!(across.rows.iter().all(|row| row.subjects == ["kernel", "fep"]));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let rr = document("rr", vec![subject("kernel", 1, 1.0, 1.0)]);
    assert!(compare([&three(1), &rr], None, &[]).unwrap_err().to_string().contains("workload"));
    assert!(compare([&three(1), &three(1)], Some(["kernel", "vax"]), &[]).is_err());
    assert!(
        compare([&three(1), &three(1)], None, &limit("beauty=1")).unwrap_err().to_string().contains("beauty")
    );
    for bad in ["bits_per_second", "=5", "bits_per_second=much", "bits_per_second=-1"] {
        assert!(bad.parse::<Limit>().is_err(), "{bad}");
    }
}

#[test]
fn without_distributions_there_is_no_histogram_log() {
    assert!(report::hlog(&three(1)).is_err());
}

/// An end that sent up to `sent` bytes in a second and a quarter.
fn trace(end: &str, sent: u64, limited_by: &[(&str, f64)]) -> Trace {
    let sample = |seconds: f64, sent: u64| Sample {
        seconds,
        congestion_window_bytes: 14_480 + sent,
        round_trip_us: 80,
        bytes_sent: sent,
        ..Sample::default()
    };
    let (own, other) = ("10.77.0.2:5000".to_owned(), "10.77.0.1:6000".to_owned());
    let (local, remote) = if end == "subject" { (own, other) } else { (other, own) };
    Trace {
        end: end.to_owned(),
        local,
        remote,
        congestion_control: "cubic".to_owned(),
        limited_by_seconds: limited_by.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect(),
        samples: vec![sample(0.0, 0), sample(1.25, sent)],
    }
}

#[test]
fn reports_say_what_held_the_runs_back_and_draw_the_connections() {
    let mut document = three(1);
    for subject in &mut document.subjects {
        let part = &mut subject.trials[0].parts[0];
        part.measure.tcp_connections = vec![
            trace("subject", 900_000, &[("congestion_window", 1.0), ("application", 0.25)]),
            trace("peer", 40, &[("application", 1.25)]),
        ];
    }
    schema::check(&as_value(&document)).expect("traces are in the schema");
    let sentence = "fep, download-1GB: the sender was held back by the congestion window 80.0 %, the application, which had no \
                    more to send 20.0 % of the time.";
    assert!(report::text(&document).contains(sentence), "{}", report::text(&document));
    let page = report::html(&document).expect("a page");
    assert!(page.contains(sentence));
    // Two pictures of three subjects' senders each; the ends that only acknowledged are not drawn.
    assert_eq!(page.matches("<polyline").count(), 6, "{page}");
    assert!(!report::text(&three(1)).contains("held back"));
}
