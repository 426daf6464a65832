//! What the verbs that read ledgers share: which files and which lines are meant, and how lines are printed.

mod files;
mod jq;
mod printer;
mod select;

pub(crate) use self::files::{Target, each_line, to_read};
pub(crate) use self::printer::Printer;
pub(crate) use self::select::{Filters, Select};
