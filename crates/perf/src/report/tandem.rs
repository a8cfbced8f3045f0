//! The published experiment `tandem` beside what was measured.
//!
//! "Achieving High Performance TCP/IP on your Tandem System", Failsafe Systems: FTP over Ethernet, a 6 MByte file again
//! and again, both directions averaged, on a Tandem CLX 800, with the TCP/IP on the host processor and on a front-end
//! processor.

use super::{Table, view};
use crate::results::Document;
use crate::units;

/// One published effect, and the metric that measures it today.
pub(super) struct Published {
    pub(super) metric: &'static str,
    pub(super) label: &'static str,
    /// As printed, for the host architecture and for the front-end processor.
    pub(super) printed: [&'static str; 2],
    /// What bars are drawn from: the printed figure, or 1 for the host architecture where only a ratio is printed.
    pub(super) drawn: [f64; 2],
    /// The front-end processor's figure divided by the host architecture's.
    pub(super) ratio: f64,
}

/// The effects, in the paper's order.
pub(super) const PUBLISHED: [Published; 4] = [
    Published {
        metric: "bits_per_second",
        label: "bandwidth",
        printed: ["0.35 Mbit/s", "2.45 Mbit/s"],
        drawn: [0.35e6, 2.45e6],
        ratio: 7.0,
    },
    Published {
        metric: "host_cpu_utilisation",
        label: "host CPU",
        printed: ["about 1.5", "1"],
        drawn: [1.5, 1.0],
        ratio: 1.0 / 1.5,
    },
    Published {
        metric: "efficiency_bits_per_host_cpu_second",
        label: "efficiency",
        printed: ["1", "nearly 10"],
        drawn: [1.0, 10.0],
        ratio: 10.0,
    },
    Published {
        metric: "elapsed_seconds",
        label: "elapsed time",
        printed: ["7", "1"],
        drawn: [7.0, 1.0],
        ratio: 1.0 / 7.0,
    },
];

/// The table, if the document has the front-end processor and something to compare it with.
pub(super) fn table(document: &Document) -> Option<Table> {
    let names: Vec<&str> = document.subjects.iter().map(|subject| subject.name.as_str()).collect();
    let against: Vec<&str> = ["host", "kernel"].into_iter().filter(|name| names.contains(name)).collect();
    if document.workload.name != "file" || !names.contains(&"fep") || against.is_empty() {
        return None;
    }
    let mut head: Vec<String> =
        ["", "published: host", "published: FEP", "FEP ÷ host"].map(str::to_owned).to_vec();
    head.extend(against.iter().map(|name| format!("measured: FEP ÷ {name}")));
    let rows = PUBLISHED
        .iter()
        .map(|published| {
            let mut row = vec![published.label.to_owned()];
            row.extend(published.printed.map(str::to_owned));
            row.push(format!("{}×", units::digits(published.ratio)));
            row.extend(against.iter().map(|name| {
                view::find(document, published.metric, "fep", name).map(view::in_words).unwrap_or_default()
            }));
            row
        })
        .collect();
    Some(Table { title: "The published experiment, and this one".to_owned(), head, rows })
}
