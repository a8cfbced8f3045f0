//! Tables and pictures of a document.
//!
//! [`view`] takes out of a document what people want to see, once; [`text`] and [`html`] lay it out. Everything that
//! they show stands in the document too: a report can be made again from its JSON.

mod claim;
mod csv;
pub(crate) mod figure;
mod hlog;
mod html;
pub(crate) mod plot;
mod quantity;
mod table;
mod tandem;
mod text;
mod view;

pub use csv::csv;
pub use hlog::hlog;
pub use html::html;
pub use table::Table;
pub use text::text;
