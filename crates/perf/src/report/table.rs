//! Tables of text, and how a terminal shows them.

use std::ops::Range;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ContentArrangement};
use serde::Serialize;

/// A table of text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The columns' names.
    pub head: Vec<String>,
    /// The rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// As text without the title: names at the left, values at the right.
    pub fn text(&self) -> String {
        self.text_with_values(1..self.head.len())
    }

    /// The same; `values` are the columns that stand at the right.
    pub fn text_with_values(&self, values: Range<usize>) -> String {
        let mut laid_out = comfy_table::Table::new();
        laid_out.load_preset(ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
        laid_out.set_header(&self.head).add_rows(&self.rows);
        for column in laid_out.column_iter_mut().take(values.end).skip(values.start) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        laid_out.to_string()
    }
}
