//! The table of RFCs in `docs/rfcs.md`, made from the citations in the code, so that it cannot drift.
//!
//! A citation is `RFC 9293 §3.10.7.4` (or without a section) in a comment. A deviation is a comment that starts with
//! `Deviation from RFC 1122 §4.2.3.1:` and gives its reason, on that line and the comment lines that follow it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{Finding, is_test_file, relative};

const TABLE: &str = "docs/rfcs.md";
const TITLES: &str = "xtask/rfc-titles.toml";
const DEVIATION: &str = "Deviation from RFC ";

/// What the code says of one RFC.
#[derive(Default)]
struct Cited {
    sections: BTreeSet<Section>,
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
}

/// A section's number, ordered as people order them: 3.2 before 3.10.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Section(Vec<u32>);

/// Writes the table.
pub(crate) fn write(root: &Path, sources: &[PathBuf]) -> Result<()> {
    let table = table(root, sources)?;
    std::fs::create_dir_all(root.join("docs")).context("docs/")?;
    std::fs::write(root.join(TABLE), table).with_context(|| format!("cannot write {TABLE}"))
}

/// Whether the stored table is the one that the code gives.
pub(crate) fn check(root: &Path, sources: &[PathBuf]) -> Result<Vec<Finding>> {
    let stored = std::fs::read_to_string(root.join(TABLE)).unwrap_or_default();
    let stale = stored != table(root, sources)?;
    let finding = || Finding {
        place: TABLE.to_owned(),
        what: "no longer matches the citations in the code: run `cargo xtask citations`".to_owned(),
    };
    Ok(stale.then(finding).into_iter().collect())
}

fn table(root: &Path, sources: &[PathBuf]) -> Result<String> {
    let titles = std::fs::read_to_string(root.join(TITLES)).context(TITLES)?;
    let titles: BTreeMap<String, String> = toml::from_str(&titles).context(TITLES)?;
    let mut cited: BTreeMap<u32, Cited> = BTreeMap::new();
    let mut deviations = Vec::new();
    for path in sources.iter().filter(|path| path.starts_with(root.join("crates"))) {
        let name = relative(root, path);
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let split = if is_test_file(path) { 0 } else { text.find("#[cfg(test)]").unwrap_or(text.len()) };
        for (is_test, part) in [(false, &text[..split]), (true, &text[split..])] {
            for (rfc, section) in citations(part) {
                let entry = cited.entry(rfc).or_default();
                entry.sections.extend(section);
                let places = if is_test { &mut entry.tests } else { &mut entry.code };
                places.insert(name.clone());
            }
        }
        deviations.extend(find_deviations(&text).into_iter().map(|deviation| (deviation, name.clone())));
    }
    render(&titles, &cited, &deviations)
}

fn render(
    titles: &BTreeMap<String, String>,
    cited: &BTreeMap<u32, Cited>,
    deviations: &[(String, String)],
) -> Result<String> {
    let mut out = String::from(
        "# RFCs\n\nMade by `cargo xtask citations` from the citations in the code; `cargo xtask check` fails when it is stale.\n\n\
         | RFC | title | sections cited | code | tests |\n|---|---|---|---|---|\n",
    );
    for (rfc, entry) in cited {
        let Some(title) = titles.get(&rfc.to_string()) else {
            bail!("RFC {rfc} is cited but has no title in {TITLES}: add it");
        };
        let sections: Vec<String> = entry.sections.iter().map(Section::to_string).collect();
        writeln!(
            out,
            "| {rfc} | {title} | {} | {} | {} |",
            sections.join(", "),
            list(&entry.code),
            list(&entry.tests)
        )?;
    }
    out.push_str("\n## Deviations\n\n");
    if deviations.is_empty() {
        out.push_str("None is marked in the code.\n");
    }
    for (deviation, place) in deviations {
        writeln!(out, "- {deviation} (`{place}`)")?;
    }
    Ok(out)
}

fn list(places: &BTreeSet<String>) -> String {
    places
        .iter()
        .map(|place| format!("`{}`", place.trim_start_matches("crates/")))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Every `RFC n` of the comments in `text`, with the section behind it if one is named.
fn citations(text: &str) -> Vec<(u32, Option<Section>)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((_, comment)) = line.split_once("//") else { continue };
        for part in comment.split("RFC ").skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            let Ok(rfc) = digits.parse() else { continue };
            let section = part[digits.len()..].strip_prefix(" §").and_then(Section::parse);
            found.push((rfc, section));
        }
    }
    found
}

/// The deviations marked in `text`, each as one line.
fn find_deviations(text: &str) -> Vec<String> {
    let comment = |line: &str| {
        line.split_once("//").map(|(_, rest)| rest.trim_start_matches(['/', '!']).trim().to_owned())
    };
    let mut found: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        match comment(line) {
            Some(words) if words.starts_with(DEVIATION) => {
                found.push(words);
                open = true;
            }
            Some(words) if open && !words.is_empty() => {
                if let Some(last) = found.last_mut() {
                    last.push(' ');
                    last.push_str(&words);
                }
            }
            _ => open = false,
        }
    }
    found
}

impl Section {
    fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let numbers = text[..end].trim_end_matches('.').split('.').map(str::parse).collect::<Result<_, _>>();
        numbers.ok().map(Self)
    }
}

impl std::fmt::Display for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        write!(f, "{}", numbers.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_in_comments_only_and_in_order() {
        let text = "// (RFC 9293 §3.10.7.4) and RFC 791.\nlet x = \"RFC 1\";\n/// RFC 9293 §3.2.";
        let mut found = citations(text);
        assert_eq!(found.len(), 3);
        assert!(found.remove(1).1.is_none());
        found.sort_by(|a, b| a.1.cmp(&b.1));
        let sections: Vec<String> =
            found.iter().filter_map(|(_, section)| Some(section.as_ref()?.to_string())).collect();
        assert_eq!(sections, ["3.2", "3.10.7.4"]);
    }

    #[test]
    fn a_deviation_runs_to_the_end_of_its_comment() {
        let text =
            "    // Deviation from RFC 1122 §4.2: because\n    // of that.\n    code();\n    // Other.";
        assert_eq!(find_deviations(text), ["Deviation from RFC 1122 §4.2: because of that."]);
    }
}
