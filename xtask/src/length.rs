//! File and function length: a file of over 600 lines or a function of over 70 wants a second look.
//!
//! A place that had its second look and stays as it is stands in `second-look.toml` with the reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::{Finding, is_test_file, relative};

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;

/// The places that may be longer: `path` or `path::function`, and why.
#[derive(Deserialize, Default)]
struct SecondLook {
    #[serde(default)]
    longer: BTreeMap<String, String>,
}

pub(crate) fn check(root: &Path, sources: &[PathBuf]) -> Result<Vec<Finding>> {
    let allowed = read_second_looks(root)?;
    let mut used: BTreeMap<&str, bool> = allowed.longer.keys().map(|key| (key.as_str(), false)).collect();
    let mut findings = Vec::new();
    for path in sources {
        let name = relative(root, path);
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        for (key, place, lines, limit, noun) in long_places(&name, path, &text)? {
            match used.get_mut(key.as_str()) {
                Some(seen) => *seen = true,
                None => findings.push(Finding {
                    place,
                    what: format!("{noun} of {lines} lines (more than {limit}): split it, or give the reason in xtask/second-look.toml"),
                }),
            }
        }
    }
    findings.extend(used.into_iter().filter(|(_, seen)| !seen).map(|(key, _)| Finding {
        place: "xtask/second-look.toml".to_owned(),
        what: format!("{key} is no longer too long: remove the entry"),
    }));
    Ok(findings)
}

fn read_second_looks(root: &Path) -> Result<SecondLook> {
    let text =
        std::fs::read_to_string(root.join("xtask/second-look.toml")).context("xtask/second-look.toml")?;
    toml::from_str(&text).context("xtask/second-look.toml")
}

type LongPlace = (String, String, usize, usize, &'static str);

/// What in one file is too long. The length of a file counts up to its inline test module.
fn long_places(name: &str, path: &Path, text: &str) -> Result<Vec<LongPlace>> {
    let syntax = syn::parse_file(text).with_context(|| format!("cannot parse {name}"))?;
    let mut long = Vec::new();
    let lines = lines_before_tests(&syntax, text);
    if lines > MAX_FILE_LINES && !is_test_file(path) {
        long.push((name.to_owned(), format!("{name}:1"), lines, MAX_FILE_LINES, "a file"));
    }
    let mut functions = Functions { found: Vec::new() };
    functions.visit_file(&syntax);
    for (function, first, last) in functions.found {
        let lines = last - first + 1;
        if lines > MAX_FUNCTION_LINES {
            long.push((
                format!("{name}::{function}"),
                format!("{name}:{first}"),
                lines,
                MAX_FUNCTION_LINES,
                "a function",
            ));
        }
    }
    Ok(long)
}

fn lines_before_tests(syntax: &syn::File, text: &str) -> usize {
    syntax
        .items
        .iter()
        .find_map(|item| match item {
            syn::Item::Mod(module) if module.ident == "tests" && module.content.is_some() => {
                Some(module.span().start().line)
            }
            _ => None,
        })
        .unwrap_or_else(|| text.lines().count())
}

struct Functions {
    found: Vec<(String, usize, usize)>,
}

impl Functions {
    fn note(&mut self, name: &syn::Ident, block: &syn::Block) {
        self.found.push((name.to_string(), block.span().start().line, block.span().end().line));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}
