//! Mahimahi traces: the moments at which a link may deliver, in milliseconds, one a line (Netravali et al. 2015).
//!
//! Each line is an opportunity to deliver 1504 bytes; after the last line the trace starts again.

use core::fmt;
use std::sync::Arc;

use base::{Duration, Instant};

/// What one line of a trace lets through.
pub const OPPORTUNITY_BYTES: u32 = 1504;

/// The delivery opportunities of a link, shared by all that use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    name: Arc<str>,
    millis: Arc<[u64]>,
}

/// Why a text is not a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseTraceError {
    /// There is no line, or the last one is at zero milliseconds.
    Empty,
    /// This line, counted from one, is not a number.
    Number(usize),
    /// This line, counted from one, is earlier than the one before it.
    Backwards(usize),
}

impl Trace {
    /// Reads the text of a trace file.
    pub fn parse(name: &str, text: &str) -> Result<Self, ParseTraceError> {
        let mut millis = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let at: u64 = line.trim().parse().map_err(|_| ParseTraceError::Number(index + 1))?;
            if millis.last().is_some_and(|last| at < *last) {
                return Err(ParseTraceError::Backwards(index + 1));
            }
            millis.push(at);
        }
        match millis.last() {
            None | Some(0) => Err(ParseTraceError::Empty),
            Some(_) => Ok(Self { name: name.into(), millis: millis.into() }),
        }
    }

    /// The name that the trace was read under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time after which the trace repeats.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.millis.last().copied().unwrap_or(1))
    }

    /// The first opportunity at or after `now`.
    pub(crate) fn cursor_at(&self, now: Instant) -> Cursor {
        let period = self.period().as_nanos();
        let (cycle, rest) = (now.as_nanos() / period, now.as_nanos() % period);
        let index = self.millis.partition_point(|at| at * 1_000_000 < rest);
        Cursor { cycle, index }
    }

    pub(crate) fn time_of(&self, cursor: Cursor) -> Instant {
        let start = cursor.cycle * self.period().as_nanos();
        Instant::from_nanos(start + self.millis[cursor.index] * 1_000_000)
    }

    pub(crate) fn after(&self, cursor: Cursor) -> Cursor {
        match cursor.index + 1 {
            next if next < self.millis.len() => Cursor { index: next, ..cursor },
            _ => Cursor { cycle: cursor.cycle + 1, index: 0 },
        }
    }
}

/// A position in an endlessly repeated trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    cycle: u64,
    index: usize,
}

impl fmt::Display for ParseTraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the trace has no delivery opportunity after time zero"),
            Self::Number(line) => write!(f, "line {line} of the trace is not a whole number of milliseconds"),
            Self::Backwards(line) => write!(f, "line {line} of the trace is earlier than the line before it"),
        }
    }
}

impl core::error::Error for ParseTraceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_repeats_after_its_last_line() {
        let trace = Trace::parse("t", "1\n1\n5\n10\n").unwrap();
        let cursor = trace.cursor_at(Instant::from_millis(6));
        assert_eq!(trace.time_of(cursor), Instant::from_millis(10));
        let cursor = trace.after(cursor);
        assert_eq!(trace.time_of(cursor), Instant::from_millis(11));
        assert_eq!(trace.time_of(trace.after(cursor)), Instant::from_millis(11));
        assert_eq!(trace.time_of(trace.cursor_at(Instant::from_millis(1234))), Instant::from_millis(1235));
    }

    #[test]
    fn bad_traces_say_the_line() {
        assert_eq!(Trace::parse("t", ""), Err(ParseTraceError::Empty));
        assert_eq!(Trace::parse("t", "1\nx"), Err(ParseTraceError::Number(2)));
        assert_eq!(Trace::parse("t", "3\n2"), Err(ParseTraceError::Backwards(2)));
    }
}
