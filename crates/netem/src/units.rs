//! Rates, sizes, spans and probabilities as text: `527mbit`, `3MB`, `22.5ms`, `3e-5`, `1%`.

use base::Duration;
use core::fmt;

/// A data rate in bits per second, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// `bits` per second, or `None` for zero.
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Reads `100kbit`, `527mbit`, `1.5gbit` or `9600bit`.
    pub fn parse(text: &str) -> Option<Self> {
        let bits = scaled(text, &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)])?;
        Self::from_bits_per_second(bits)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unscaled(f, self.0, &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)])
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Reads `1500B`, `64KB`, `64KiB`, `3MB`, `3MiB` or `1GB`; K, M and G are decimal, Ki, Mi and Gi binary.
    pub fn parse(text: &str) -> Option<Self> {
        const UNITS: [(&str, f64); 7] = [
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("GiB", 1_073_741_824.0),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("B", 1.0),
        ];
        scaled(text, &UNITS).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unscaled(f, self.0, &[("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000), ("B", 1)])
    }
}

/// A span, for its text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// Reads `100ns`, `10us`, `22.5ms` or `3s`.
    pub fn parse(text: &str) -> Option<Self> {
        let nanos = scaled(text, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])?;
        Some(Self(Duration::from_nanos(nanos)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unscaled(f, self.0.as_nanos(), &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)])
    }
}

/// Reads a probability: `3e-5`, `0.01` or `1%`.
pub fn parse_probability(text: &str) -> Option<f64> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        None => text.parse::<f64>().ok()?,
    };
    (0.0..=1.0).contains(&value).then_some(value)
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, *factor)))?;
    let value = number.parse::<f64>().ok()? * factor;
    (0.0..=1e18).contains(&value).then_some(value.round() as u64)
}

/// Writes `value` in the largest unit that keeps it short and exact: at most three decimals.
fn unscaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    for (unit, factor) in units {
        let step = (factor / 1000).max(1);
        if value >= *factor && value.is_multiple_of(step) {
            let (whole, rest) = (value / factor, value % factor / step);
            let digits = if *factor == 1 { 0 } else { 3 };
            return match format!("{rest:0digits$}").trim_end_matches('0') {
                "" => write!(f, "{whole}{unit}"),
                decimals if rest > 0 => write!(f, "{whole}.{decimals}{unit}"),
                _ => write!(f, "{whole}{unit}"),
            };
        }
    }
    write!(f, "{value}{}", units.last().map_or("", |(unit, _)| unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree_both_ways() {
        for text in ["527mbit", "1gbit", "1.5gbit", "9600bit", "9.6kbit"] {
            let rate = Rate::parse(text).unwrap();
            assert_eq!(Rate::parse(&rate.to_string()), Some(rate), "{text}");
        }
        assert_eq!(Rate::parse("527mbit").unwrap().to_string(), "527mbit");
        assert_eq!(Span::parse("22.5ms").unwrap().to_string(), "22.5ms");
        assert_eq!(Span::parse("0s").unwrap().to_string(), "0ns");
        assert_eq!(Span::parse("22.5ms").unwrap().0.as_micros(), 22_500);
        assert_eq!(Bytes::parse("3MB"), Some(Bytes(3_000_000)));
        assert_eq!(Bytes::parse("64KiB"), Some(Bytes(65_536)));
        assert_eq!(Bytes(65_536).to_string(), "65.536KB");
        assert_eq!(Bytes(1_048_577).to_string(), "1048.577KB");
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Rate::parse("0mbit"), None);
        assert_eq!(Rate::parse("527"), None);
        assert_eq!(Span::parse("-3ms"), None);
        assert_eq!(Bytes::parse("MB"), None);
        assert_eq!(parse_probability("1.5"), None);
        assert_eq!(parse_probability("NaN"), None);
        assert_eq!(parse_probability("1%"), Some(0.01));
        assert_eq!(parse_probability("3e-5"), Some(3e-5));
    }
}
