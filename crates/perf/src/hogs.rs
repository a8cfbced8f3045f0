//! Busy programs beside what is measured: they compute and do nothing else.
//!
//! A stack that waits by looking, or that leaves the processor to whoever is next, shows beside them what that costs.

use std::str::FromStr;

use anyhow::{Context, Result};
use lab::{Lab, Process};
use serde_json::{Value, json};

/// Most of them.
const MOST: u32 = 64;

/// How many busy programs there are, and how they are placed among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hogs {
    /// How many: the kernel puts them where it likes.
    pub count: u32,
    /// Their nice value.
    pub nice: i32,
}

impl Hogs {
    /// Starts them. They end when the answer is dropped.
    pub(crate) fn start(self, lab: &Lab) -> Result<Vec<Process>> {
        (0..self.count)
            .map(|number| {
                let mut spawn = lab::Spawn::new(std::process::Command::new(lab::executable()?));
                spawn.args(["bench-end", "hog"]).arg(format!("--nice={}", self.nice));
                lab.start(&format!("hog{number}"), spawn)
            })
            .collect()
    }

    /// As the document has it.
    pub(crate) fn to_json(self) -> Value {
        json!({ "count": self.count, "nice": self.nice })
    }
}

impl FromStr for Hogs {
    type Err = String;

    /// `2`, or `2:5` for two of nice value 5.
    fn from_str(text: &str) -> Result<Self, String> {
        let (count, nice) = text.split_once(':').unwrap_or((text, "0"));
        let hogs = count.parse().ok().zip(nice.parse().ok()).map(|(count, nice)| Self { count, nice });
        let fits = |hogs: &Self| (1..=MOST).contains(&hogs.count) && (-20..=19).contains(&hogs.nice);
        hogs.filter(fits).ok_or_else(|| {
            format!("`{text}` is not a number from 1 to {MOST}, with a nice value from -20 to 19 behind a colon or without")
        })
    }
}

/// Computes until it is killed.
///
/// # Errors
/// The operating system refuses the nice value.
pub fn hog(nice: i32) -> Result<()> {
    rustix::process::setpriority_process(None, nice).with_context(|| format!("the nice value {nice}"))?;
    let mut number = 1_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_nice_value_are_read() {
        assert_eq!("2".parse(), Ok(Hogs { count: 2, nice: 0 }));
        assert_eq!("3:-5".parse(), Ok(Hogs { count: 3, nice: -5 }));
        for wrong in ["", "0", "65", "2:", "2:20", ":5", "two"] {
            assert!(wrong.parse::<Hogs>().is_err(), "{wrong}");
        }
    }
}
