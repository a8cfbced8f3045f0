//! The report as text, for a terminal.

use std::fmt::Write;

use super::{claim, tandem, view};
use crate::results::Document;

/// The report as text.
pub fn text(document: &Document) -> String {
    let mut text = String::new();
    let mut line = |content: &str| writeln!(text, "{content}").expect("writing to a string does not fail");
    line(&format!("machine:  {}", view::machine(document)));
    line(&format!("workload: {}", view::workload(document)));
    if let Some(server) = view::server(document) {
        line(&format!("server:   {server}"));
    }
    let mut tables = vec![view::summary(document)];
    tables.extend(claim::table(document));
    tables.extend(tandem::table(document));
    let parts = view::parts(document);
    if parts.rows.len() > 1 {
        tables.push(parts);
    }
    tables.push(view::processors(document));
    let details = view::details(document);
    if !details.rows.is_empty() {
        tables.push(details);
    }
    for table in &tables {
        line(&format!("\n{}", table.title));
        line(&table.text());
    }
    line("");
    for sentence in view::sentences(document).into_iter().chain(view::held_back(document)) {
        line(&sentence);
    }
    if let Some(stall) = longest_stall(document) {
        line(&format!("longest time without a byte: {stall:.3} s"));
    }
    let bytes: u64 = totals(document).map(|total| total.bytes).sum();
    if bytes > 0 {
        let verdict =
            if view::is_verified(document) { "checked by the receiving end" } else { "not checked" };
        line(&format!("{bytes} bytes moved, every one {verdict}"));
    }
    text
}

fn totals(document: &Document) -> impl Iterator<Item = &crate::results::Measure> {
    document.subjects.iter().flat_map(|subject| &subject.trials).map(|trial| &trial.total)
}

fn longest_stall(document: &Document) -> Option<f64> {
    totals(document).filter_map(|total| total.longest_stall_seconds).reduce(f64::max)
}
