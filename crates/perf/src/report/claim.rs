//! What the main job is to prove: that it costs the host's processors less than through the kernel.

use super::{Table, view};
use crate::results::{Document, Ratio};
use crate::units;

const METRIC: &str = "host_cpu_seconds_per_gigabyte";
/// What the front-end processor is to cost the host under an unmodified program, as a share of what the kernel does.
const TARGET: f64 = 0.5;

/// A row for both directions together and for each part, if the document has the kernel and the front-end processor.
pub(super) fn table(document: &Document) -> Option<Table> {
    if document.workload.name != "file" {
        return None;
    }
    view::find(document, METRIC, "fep", "kernel")?;
    let head = ["", "kernel", "FEP", "FEP ÷ kernel (95 %)", "less than the kernel?", "at most half?"];
    let names = view::part_names(document).into_iter().filter(|name| !name.is_empty());
    let parts = names.map(|name| (name.to_owned(), format!("{name}.{METRIC}")));
    let rows = std::iter::once(("all together".to_owned(), METRIC.to_owned()))
        .chain(parts)
        .filter_map(|(label, metric)| {
            let ratio = view::find(document, &metric, "fep", "kernel")?;
            let median = |name: &str| {
                let subject = document.subjects.iter().find(|subject| subject.name == name)?;
                Some(format!("{} s", units::digits(subject.summary.get(&metric)?.median)))
            };
            Some(vec![
                label,
                median("kernel")?,
                median("fep")?,
                view::in_words(ratio),
                is_below(ratio, 1.0).to_owned(),
                is_below(ratio, TARGET).to_owned(),
            ])
        })
        .collect();
    Some(Table {
        title: "Host CPU per GByte: medians, and what the trials prove".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows,
    })
}

/// What the interval says.
fn is_below(ratio: &Ratio, limit: f64) -> &'static str {
    match (ratio.low, ratio.high) {
        (_, Some(high)) if high < limit => "proven",
        (Some(low), _) if low > limit => "no",
        _ if ratio.value <= limit => "likely, not proven",
        _ => "not shown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    #[test]
    fn only_an_interval_proves() {
        let ratio = |value, bounds| Ratio::new(METRIC, "fep", "kernel", Interval { value, bounds });
        assert_eq!(is_below(&ratio(0.6, Some((0.5, 0.8))), 1.0), "proven");
        assert_eq!(is_below(&ratio(0.6, Some((0.55, 0.8))), TARGET), "no");
        assert_eq!(is_below(&ratio(0.6, Some((0.4, 1.2))), 1.0), "likely, not proven");
        assert_eq!(is_below(&ratio(0.6, Some((0.4, 1.2))), TARGET), "not shown");
        assert_eq!(is_below(&ratio(0.4, None), 1.0), "likely, not proven");
    }
}
