//! What bandwidth costs over five years: the paper's life cycle, with today's prices. All of it can be set in a TOML file;
//! the report prints what was used.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// The model with its documented defaults, as a file to begin with.
pub const DEFAULTS: &str = include_str!("costs.toml");

const HOURS_A_YEAR: f64 = 24.0 * 365.25;

/// Prices in one currency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// What the prices are in.
    pub currency: String,
    /// The life cycle.
    pub years: f64,
    /// One processor core for an hour.
    pub core_hour: f64,
    /// What is bought once, whichever the architecture.
    pub machine: f64,
    /// A year's licence of the host architecture's TCP/IP.
    pub host_licence_a_year: f64,
    /// A year's licence of the front-end processor's.
    pub fep_licence_a_year: f64,
}

impl Costs {
    /// From a file, or the defaults.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let (text, name) = match path {
            Some(path) => {
                let name = path.display().to_string();
                (std::fs::read_to_string(path).with_context(|| name.clone())?, name)
            }
            None => (DEFAULTS.to_owned(), "the defaults".to_owned()),
        };
        let costs: Self = toml::from_str(&text).with_context(|| format!("the cost model of {name}"))?;
        let numbers = [
            costs.years,
            costs.core_hour,
            costs.machine,
            costs.host_licence_a_year,
            costs.fep_licence_a_year,
        ];
        ensure!(
            costs.years > 0.0 && numbers.iter().all(|number| (0.0..1e12).contains(number)),
            "{name}: a price is not negative, and a life cycle is longer than no time"
        );
        Ok(costs)
    }

    /// The life cycle's cost of so many cores in use, with the licence of one of the architectures.
    pub fn life_cycle(&self, cores: f64, is_fep: bool) -> f64 {
        let licence = if is_fep { self.fep_licence_a_year } else { self.host_licence_a_year };
        self.machine + self.years * (licence + cores * self.core_hour * HOURS_A_YEAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_read_and_cost_what_they_say() {
        let costs = Costs::load(None).unwrap();
        assert_eq!(costs.years, 5.0);
        let idle = costs.life_cycle(0.0, true);
        let one = costs.life_cycle(1.0, true) - idle;
        assert!((one - 5.0 * 8766.0 * costs.core_hour).abs() < 1e-6);
        assert_eq!(idle, costs.machine + 5.0 * costs.fep_licence_a_year);
    }

    #[test]
    fn a_bad_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.toml");
        for (bad, word) in [
            ("years = 5", "missing field"),
            (&DEFAULTS.replace("years = 5.0", "years = -5.0"), "not negative"),
            (&format!("{DEFAULTS}\nbribes = 3.0"), "bribes"),
        ] {
            std::fs::write(&path, bad).unwrap();
            let error = format!("{:#}", Costs::load(Some(&path)).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}
