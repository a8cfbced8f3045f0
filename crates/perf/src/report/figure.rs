//! Bars, as the pictures of the report want them: numbers become places, once, here.

use serde::Serialize;

use super::quantity::{figures, quantities};
use super::tandem::PUBLISHED;
use crate::results::Document;

/// How `bars.html` draws a [`Figure`].
pub(crate) const TEMPLATE: &str = include_str!("bars.html");
/// Where a panel's bars begin and how long the longest may get, in the picture's units.
const LEFT: f64 = 100.0;
const LONGEST: f64 = 250.0;
const ROW: f64 = 30.0;
/// An interval is drawn up to so many times the largest value: of few trials that differ it would leave no room for the bars.
const REACH: f64 = 1.4;

/// A picture: panels of bars.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) caption: String,
    pub(crate) meaning: String,
    pub(crate) panels: Vec<Panel>,
}

/// Bars on one scale.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) height: f64,
    pub(crate) bars: Vec<Bar>,
}

/// One bar, lying.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) class: String,
    pub(crate) text: String,
    pub(crate) y: f64,
    pub(crate) width: f64,
    /// The confidence interval's ends, as places.
    pub(crate) whisker: Option<(f64, f64)>,
    /// Where the text begins.
    pub(crate) text_x: f64,
}

/// A value on its way to a bar.
struct Value {
    label: String,
    class: String,
    text: String,
    value: f64,
    interval: Option<(f64, f64)>,
}

/// The pictures of a document.
pub(crate) fn draw(document: &Document) -> Vec<Figure> {
    let quantities = quantities(&document.workload.name);
    let mut drawn = Vec::new();
    for (metric, caption) in figures(&document.workload.name) {
        let Some(quantity) = quantities.iter().find(|quantity| quantity.metric == metric) else { continue };
        let values: Vec<Value> = document
            .subjects
            .iter()
            .filter_map(|subject| {
                let summary = subject.summary.get(metric)?;
                Some(Value {
                    label: subject.name.clone(),
                    class: subject.name.clone(),
                    text: (quantity.show)(summary.mean),
                    value: summary.mean,
                    interval: summary.low.zip(summary.high),
                })
            })
            .collect();
        let mut panels = vec![panel("measured", values)];
        if document.workload.name == "file" {
            panels.extend(published(metric));
        }
        drawn.push(Figure { caption: caption.to_owned(), meaning: quantity.meaning.to_owned(), panels });
    }
    drawn
}

impl Figure {
    /// Panels of values, each with its label, whose it is and how it is written.
    pub(crate) fn of(
        caption: &str,
        meaning: &str,
        panels: Vec<(&str, Vec<(String, String, String, f64)>)>,
    ) -> Self {
        let panels = panels.into_iter().map(|(title, values)| {
            let values = values.into_iter().map(|(label, class, text, value)| Value {
                label,
                class,
                text,
                value,
                interval: None,
            });
            panel(title, values.collect())
        });
        Self { caption: caption.to_owned(), meaning: meaning.to_owned(), panels: panels.collect() }
    }
}

fn published(metric: &str) -> Option<Panel> {
    let published = PUBLISHED.iter().find(|published| published.metric == metric)?;
    let values = ["host", "fep"]
        .into_iter()
        .zip(published.printed)
        .zip(published.drawn)
        .map(|((name, text), value)| Value {
            label: name.to_owned(),
            class: format!("{name} published"),
            text: text.to_owned(),
            value,
            interval: None,
        })
        .collect();
    Some(panel("published", values))
}

fn panel(title: &str, values: Vec<Value>) -> Panel {
    let reach = |value: &Value| value.interval.map_or(value.value, |(_, high)| high.max(value.value));
    let most = |of: &dyn Fn(&Value) -> f64| values.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let largest = most(&reach).min(most(&|value| value.value) * REACH);
    let place = |value: f64| (value.clamp(0.0, largest) / largest) * LONGEST;
    let bars: Vec<Bar> = values
        .into_iter()
        .enumerate()
        .map(|(number, value)| Bar {
            y: number as f64 * ROW,
            width: place(value.value),
            whisker: value.interval.map(|(low, high)| (LEFT + place(low), LEFT + place(high))),
            text_x: LEFT + place(reach(&value)) + 8.0,
            label: value.label,
            class: value.class,
            text: value.text,
        })
        .collect();
    Panel { title: title.to_owned(), height: bars.len() as f64 * ROW, bars }
}
