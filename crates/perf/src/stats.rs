//! Summaries of few samples: the trials of a measurement.
//!
//! Trials of the subjects alternate (A B C A B C …), so the n-th trials of two subjects ran close together. A ratio is
//! therefore taken round by round, and its interval is Student's over the logarithms: what a drifting machine does to
//! a whole round cancels out.

use crate::results::Summary;

/// A value with the 95 % confidence interval around it, if there are samples enough for one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The value.
    pub value: f64,
    /// The interval's ends, from two samples on.
    pub bounds: Option<(f64, f64)>,
}

/// The 97.5 % quantile of Student's t for 1, 2, … degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same for any more of them.
const NORMAL: f64 = 1.96;

/// The mean of `samples` with its confidence interval. `None`: no samples.
pub fn mean(samples: &[f64]) -> Option<Interval> {
    if samples.is_empty() {
        return None;
    }
    let count = samples.len() as f64;
    let value = samples.iter().sum::<f64>() / count;
    let bounds = (samples.len() > 1).then(|| {
        let student = STUDENT.get(samples.len() - 2).copied().unwrap_or(NORMAL);
        let margin = student * deviation(samples, value) / count.sqrt();
        (value - margin, value + margin)
    });
    Some(Interval { value, bounds })
}

/// The geometric mean of `a[i] / b[i]` with its confidence interval. `None`: no pair of positive samples.
pub fn ratio(a: &[f64], b: &[f64]) -> Option<Interval> {
    let logarithms: Vec<f64> =
        a.iter().zip(b).filter(|(a, b)| **a > 0.0 && **b > 0.0).map(|(a, b)| (a / b).ln()).collect();
    let mean = mean(&logarithms)?;
    Some(Interval { value: mean.value.exp(), bounds: mean.bounds.map(|(low, high)| (low.exp(), high.exp())) })
}

/// All that a summary tells of `samples`. `None`: no samples.
pub fn summary(samples: &[f64]) -> Option<Summary> {
    let interval = mean(samples)?;
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Some(Summary {
        median,
        mean: interval.value,
        stddev: deviation(samples, interval.value),
        low: interval.bounds.map(|(low, _)| low),
        high: interval.bounds.map(|(_, high)| high),
    })
}

/// The standard deviation of a sample; 0 for one value.
fn deviation(samples: &[f64], mean: f64) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (squares / (samples.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_what_a_textbook_says() {
        let summary = summary(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((summary.median, summary.mean), (4.5, 5.0));
        assert!((summary.stddev - 2.138).abs() < 0.001);
        // 2.365 · 2.138 / √8
        assert!((summary.high.unwrap() - 6.788).abs() < 0.001);
    }

    #[test]
    fn one_sample_has_no_interval_and_none_no_summary() {
        assert_eq!(mean(&[3.0]), Some(Interval { value: 3.0, bounds: None }));
        assert!(summary(&[]).is_none());
        assert!(ratio(&[1.0], &[0.0]).is_none());
    }

    #[test]
    fn a_common_drift_cancels_in_a_ratio() {
        let ratio = ratio(&[2.0, 4.0, 8.0], &[1.0, 2.0, 4.0]).unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-12);
        let (low, high) = ratio.bounds.unwrap();
        assert!(high - low < 1e-9);
    }
}
