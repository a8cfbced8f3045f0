//! The report as one HTML file that needs nothing else: no script, no style sheet, no picture from elsewhere.

use anyhow::{Context, Result};
use minijinja::{Environment, context};

use super::{Table, claim, figure, plot, tandem, view};
use crate::results::Document;

const TEMPLATE: &str = include_str!("report.html");

/// The report as HTML.
pub fn html(document: &Document) -> Result<String> {
    let mut environment = Environment::new();
    // The name's ending switches escaping on.
    environment.add_template("plot.html", plot::TEMPLATE).context("the plots' template")?;
    environment.add_template("bars.html", figure::TEMPLATE).context("the bars' template")?;
    environment.add_template("report.html", TEMPLATE).context("the report's template")?;
    let mut tables = vec![view::summary(document)];
    tables.extend(claim::table(document));
    tables.extend(tandem::table(document));
    let details: Vec<Table> = [view::parts(document), view::processors(document), view::details(document)]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect();
    let meanings: Vec<_> =
        view::shown(document).iter().map(|quantity| (quantity.label, quantity.meaning)).collect();
    let counters: Vec<_> = document
        .subjects
        .iter()
        .filter_map(|subject| {
            let last = subject.trials.last()?;
            (!last.total.counters.is_empty()).then(|| (subject.name.clone(), last.total.counters.clone()))
        })
        .collect();
    let template = environment.get_template("report.html").context("the report's template")?;
    template
        .render(context! {
            workload => document.workload.name,
            workload_line => view::workload(document),
            machine => view::machine(document),
            version => format!("{} {} {}", document.tool.name, document.tool.version, document.tool.commit),
            command => document.command.join(" "),
            tandem => document.workload.name == "file",
            verified => view::is_verified(document),
            sentences => view::sentences(document),
            held_back => view::held_back(document),
            plots => plot::of_connections(document),
            times => plot::of_times(document),
            figures => figure::draw(document),
            tables,
            details,
            meanings,
            counters,
            method => view::method(document),
        })
        .context("filling in the report's template")
}
