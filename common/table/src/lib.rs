//! Tables: lines, CSV (RFC 4180) and tab-separated values, which have no quotes.
//!
//! - [`TableOptions`] selects the format, and replaces standard input by the rows of the table as JSON objects, so
//!   that a filter reads them like other rows; [`check`] finds those of damaged records
//! - [`Template`] makes a text of a row and variables
//! - [`Writer`] writes rows as a table
//! - [`Records`] reads the records of a table, and refuses damaged ones

mod input;
mod records;
mod template;

pub use self::input::{TableOptions, check};
pub use self::records::{Format, Record, Records, Writer};
pub use self::template::{Template, Variables};
