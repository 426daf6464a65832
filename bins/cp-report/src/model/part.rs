//! Something of a line that is shown whole.

use std::borrow::Cow;

use serde::Serialize;

/// Something that is shown whole.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Part {
    /// What it is, where that is not plain.
    pub(crate) label: Cow<'static, str>,
    /// `text`, `code`, `command` or `difference`.
    pub(crate) form: &'static str,
    /// Whether it is folded until the reader opens it.
    pub(crate) folded: bool,
    /// The text; of a difference, none.
    pub(crate) text: String,
    /// The lines of a difference, each with what became of it before it: `+`, `-`, `@` or a space.
    pub(crate) rows: Vec<(char, String)>,
}
