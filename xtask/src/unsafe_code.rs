//! Where unsafe code may stand.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::{Finding, is_test_file, relative};

/// Folders and files in which unsafe code is expected, each with a SAFETY reason that clippy asks for.
const ALLOWED: [&str; 3] = ["crates/ring/", "crates/channel/src/mapping", "crates/preload/"];

pub(crate) fn check(root: &Path, sources: &[PathBuf]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in sources {
        let name = relative(root, path);
        let in_sys = path.file_name().is_some_and(|file| file == "sys.rs") || name.contains("/sys/");
        if in_sys || is_test_file(path) || ALLOWED.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("cannot parse {name}"))?;
        let mut blocks = UnsafeBlocks { lines: Vec::new() };
        blocks.visit_file(&syntax);
        findings.extend(blocks.lines.into_iter().map(|line| Finding {
            place: format!("{name}:{line}"),
            what: "unsafe code belongs in ring, channel's mapping, preload or a sys.rs".to_owned(),
        }));
    }
    Ok(findings)
}

struct UnsafeBlocks {
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for UnsafeBlocks {
    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.lines.push(block.span().start().line);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.unsafety.is_some() {
            self.lines.push(item.span().start().line);
        }
        visit::visit_item_impl(self, item);
    }
}
