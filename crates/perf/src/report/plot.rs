//! Lines over an axis, as the pages want them: numbers become places, once, here.

use serde::Serialize;

use super::view;
use crate::results::Document;
use crate::trace::{Sample, Trace};
use crate::units;

/// How `plot.html` draws a [`Plot`].
pub(crate) const TEMPLATE: &str = include_str!("plot.html");
/// Where the axes stand, in the picture's units; as in the template.
const LEFT: f64 = 8.0;
const TOP: f64 = 12.0;
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 160.0;
/// Lines of one plot.
const MAX_LINES: usize = 16;

/// A picture.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plot {
    pub(crate) caption: String,
    pub(crate) y_most: String,
    pub(crate) x_least: String,
    pub(crate) x_most: String,
    pub(crate) lines: Vec<Line>,
}

/// A line, or marks without one.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Whose it is, for its colour.
    pub(crate) class: String,
    pub(crate) points: String,
    pub(crate) marks: Vec<(f64, f64)>,
    /// Where its label stands.
    pub(crate) label_y: f64,
}

/// A line on its way to a picture: its label, whose it is, its points, and whether they are marked and joined.
pub(crate) struct Course {
    pub(crate) label: String,
    pub(crate) class: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) marked: bool,
    pub(crate) joined: bool,
}

impl Plot {
    /// Both axes begin at 0. `None` where there is nothing to draw.
    pub(crate) fn new(
        caption: String,
        courses: Vec<Course>,
        show_x: impl Fn(f64) -> String,
        show_y: impl Fn(f64) -> String,
    ) -> Option<Self> {
        let all = || courses.iter().flat_map(|course| &course.points);
        let most = |coordinate: fn(&(f64, f64)) -> f64| all().map(coordinate).fold(0.0, f64::max);
        let (x_most, y_most) = (most(|point| point.0), most(|point| point.1));
        if x_most <= 0.0 || y_most <= 0.0 {
            return None;
        }
        let place = |&(x, y): &(f64, f64)| {
            let round = |value: f64| (value * 10.0).round() / 10.0;
            (round(LEFT + x / x_most * WIDTH), round(TOP + HEIGHT - y / y_most * HEIGHT))
        };
        let mut lines: Vec<Line> = Vec::new();
        for course in courses.into_iter().take(MAX_LINES) {
            let places: Vec<(f64, f64)> = course.points.iter().map(place).collect();
            let points: Vec<String> = places.iter().map(|(x, y)| format!("{x},{y}")).collect();
            // Beside the line's end, but not on another label.
            let mut label_y = places.last().map_or(TOP, |last| last.1 + 4.0);
            while lines.iter().any(|other| !other.label.is_empty() && (other.label_y - label_y).abs() < 13.0)
            {
                label_y -= 13.0;
            }
            lines.push(Line {
                label: course.label,
                class: course.class,
                points: if course.joined { points.join(" ") } else { String::new() },
                marks: if course.marked { places } else { Vec::new() },
                label_y,
            });
        }
        Some(Self { caption, y_most: show_y(y_most), x_least: show_x(0.0), x_most: show_x(x_most), lines })
    }
}

/// Windows and round trips of the last trial's connections.
pub(super) fn of_connections(document: &Document) -> Vec<Plot> {
    type Quantity = (&'static str, fn(&Sample) -> f64, fn(f64) -> String);
    const QUANTITIES: [Quantity; 2] = [
        (
            "congestion window",
            |sample| sample.congestion_window_bytes as f64,
            |value| units::scaled(value, "B"),
        ),
        (
            "smoothed round trip",
            |sample| f64::from(sample.round_trip_us),
            |value| format!("{} µs", units::digits(value)),
        ),
    ];
    let mut plots = Vec::new();
    for name in view::part_names(document) {
        for (quantity, value, show) in QUANTITIES {
            let mut courses = Vec::new();
            for subject in &document.subjects {
                let Some(last) = view::measures(subject, name).last() else { continue };
                let mut label = subject.name.clone();
                for trace in senders(&last.tcp_connections) {
                    let points = trace.samples.iter().map(|sample| (sample.seconds, value(sample))).collect();
                    let class = subject.name.split('-').next().unwrap_or_default().to_owned();
                    courses.push(Course { label, class, points, marked: false, joined: true });
                    label = String::new();
                }
            }
            let caption = if name.is_empty() { quantity.to_owned() } else { format!("{name}: {quantity}") };
            plots.extend(Plot::new(caption, courses, |x| format!("{} s", units::digits(x)), show));
        }
    }
    plots
}

/// How the times of operations are spread.
pub(super) fn of_times(document: &Document) -> Vec<Plot> {
    type Within = fn(&crate::results::Latency) -> u64;
    const STEPS: [Within; 5] = [
        |latency| latency.p50,
        |latency| latency.p90,
        |latency| latency.p99,
        |latency| latency.p99_9,
        |latency| latency.p99_99,
    ];
    let mut plots = Vec::new();
    for name in view::part_names(document) {
        let mut courses = Vec::new();
        for subject in &document.subjects {
            let of_trials: Vec<_> =
                view::measures(subject, name).filter_map(|one| one.latency_ns.as_ref()).collect();
            if of_trials.is_empty() {
                continue;
            }
            let points = STEPS.iter().enumerate().map(|(step, within)| {
                let sum: f64 =
                    of_trials.iter().map(|latency| (within(latency).max(1000) as f64).log10()).sum();
                // From 1 µs on.
                (step as f64, sum / of_trials.len() as f64 - 3.0)
            });
            courses.push(Course {
                label: subject.name.clone(),
                class: subject.name.split('-').next().unwrap_or_default().to_owned(),
                points: points.collect(),
                marked: true,
                joined: true,
            });
        }
        let caption = if name.is_empty() { "times".to_owned() } else { format!("{name}: times") };
        let show_x = |x: f64| if x > 0.0 { "99.99 %" } else { "50 %" }.to_owned();
        let show_y = |y: f64| format!("{} µs", units::digits(10_f64.powf(y)));
        plots.extend(Plot::new(caption, courses, show_x, show_y));
    }
    plots
}

/// Of each connection the end that sent more, if it was seen. Where only one end can be seen, it tells itself.
fn senders(traces: &[Trace]) -> impl Iterator<Item = &Trace> {
    let sent = |trace: &Trace| trace.samples.last().map_or(0, |last| last.bytes_sent);
    traces.iter().filter(move |trace| {
        let other = traces.iter().find(|other| other.local == trace.remote && other.remote == trace.local);
        let received = trace.samples.last().map_or(0, |last| last.bytes_received);
        sent(trace) >= other.map_or(received, sent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_values_reach_the_ends_of_the_axes_and_labels_keep_apart() {
        let course = |label: &str, y: f64| Course {
            label: label.to_owned(),
            class: "fep".to_owned(),
            points: vec![(0.0, 0.0), (10.0, y)],
            marked: true,
            joined: true,
        };
        let show = |value: f64| value.to_string();
        let plot = Plot::new("P".to_owned(), vec![course("a", 5.0), course("b", 4.9)], show, show).unwrap();
        assert_eq!(plot.lines[0].marks, [(LEFT, TOP + HEIGHT), (LEFT + WIDTH, TOP)]);
        assert!((plot.lines[0].label_y - plot.lines[1].label_y).abs() >= 13.0);
        assert_eq!((plot.x_most.as_str(), plot.y_most.as_str()), ("10", "5"));
        assert!(Plot::new("P".to_owned(), Vec::new(), show, show).is_none());
    }
}
