//! Distributions of times: HdrHistogram's, from a nanosecond to a minute with three digits.

use std::io;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::results::Latency;

/// An empty one.
pub(crate) fn new() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|error| io::Error::other(error.to_string()))
}

/// Its percentiles.
pub(crate) fn latency(histogram: &Histogram<u64>) -> Latency {
    Latency {
        min: histogram.min(),
        p50: histogram.value_at_quantile(0.5),
        p90: histogram.value_at_quantile(0.9),
        p99: histogram.value_at_quantile(0.99),
        p99_9: histogram.value_at_quantile(0.999),
        p99_99: histogram.value_at_quantile(0.9999),
        max: histogram.max(),
    }
}

/// HdrHistogram's V2 form with deflate, in hexadecimal digits.
pub(crate) fn to_text(histogram: &Histogram<u64>) -> io::Result<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Back from [`to_text`].
pub(crate) fn from_text(text: &str) -> io::Result<Histogram<u64>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a histogram");
    let digits = text.as_bytes().chunks(2);
    let bytes = digits
        .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(wrong)?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_comes_back_from_its_text() {
        let mut histogram = new().unwrap();
        for value in [1, 999, 20_000, 20_000, 5_000_000_000] {
            histogram.record(value).unwrap();
        }
        let again = from_text(&to_text(&histogram).unwrap()).unwrap();
        assert_eq!(again, histogram);
        assert_eq!(latency(&again).p50, latency(&histogram).p50);
        assert!(from_text("zz").is_err() && from_text("").is_err());
    }
}
