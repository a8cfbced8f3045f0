//! The report of experiments: text for a terminal, and pages that need nothing else.

use std::fmt::Write;

use anyhow::{Context, Result};
use minijinja::{Environment, context};

use super::Reproduction;
use crate::report::{figure, plot};

const FRAME: &str = include_str!("frame.html");
const TEMPLATE: &str = include_str!("page.html");
const INDEX: &str = include_str!("index.html");

/// As text.
pub fn text(result: &Reproduction) -> String {
    let mut text = format!("{}: {}\n", result.experiment, result.about);
    for table in &result.tables {
        write!(text, "\n{}\n{}\n", table.title, table.text()).expect("writing to a string does not fail");
    }
    for note in &result.notes {
        write!(text, "\n{note}\n").expect("writing to a string does not fail");
    }
    text
}

/// As a page.
pub fn html(result: &Reproduction) -> Result<String> {
    render(
        TEMPLATE,
        context! { result, machine => machine(result), plots => result.plots, figures => result.figures },
    )
}

/// A page that leads to the others.
pub fn index(results: &[Reproduction]) -> Result<String> {
    let machine = results.first().map(machine);
    render(INDEX, context! { results, machine })
}

fn machine(result: &Reproduction) -> String {
    let machine = &result.machine;
    format!(
        "{}, {} processors, Linux {}, congestion control {}",
        machine.cpu_model, machine.cores, machine.kernel, machine.congestion_control
    )
}

fn render(template: &str, context: minijinja::Value) -> Result<String> {
    let mut environment = Environment::new();
    // The name's ending switches escaping on.
    environment.add_template("frame.html", FRAME).context("the pages' frame")?;
    environment.add_template("plot.html", plot::TEMPLATE).context("the plots' template")?;
    environment.add_template("bars.html", figure::TEMPLATE).context("the bars' template")?;
    environment.add_template("page.html", template).context("the page's template")?;
    environment.get_template("page.html").and_then(|page| page.render(context)).context("filling in the page")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Table;

    #[test]
    fn pages_need_nothing_else_and_show_text_as_text() {
        let mut result = Reproduction::new("vm", "about", vec!["outboard".to_owned()]);
        let row = vec!["<b>".to_owned(), "1".to_owned()];
        result.tables.push(Table { title: "T".to_owned(), head: row.clone(), rows: vec![row] });
        let bar = ("fep".to_owned(), "fep".to_owned(), "1 <i>".to_owned(), 1.0);
        result.figures.push(figure::Figure::of("Figure 10", "meaning", vec![("measured", vec![bar])]));
        let page = html(&result).unwrap();
        assert!(page.contains("Figure 10") && page.contains("1 &lt;i&gt;"), "{page}");
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
        let index = index(&[result]).unwrap();
        assert!(index.contains("href=\"vm.html\""));
        for text in [page, index] {
            for foreign in ["http:", "https:", "<script", "<link", "src=", "url("] {
                assert!(!text.contains(foreign), "{foreign}");
            }
        }
    }
}
