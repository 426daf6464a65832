//! A part of a list, and where the list goes on.

use serde::Serialize;

use crate::wire::Reply;

/// A page of a list.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Page<T> {
    /// What is on the page.
    pub items: Vec<T>,
    /// How many there are on it.
    pub count: usize,
    /// Where the next page begins; null on the last.
    pub next_cursor: Option<String>,
    /// Whether there is a next page.
    pub has_more: bool,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted", default, skip_serializing_if = "<[_]>::is_empty")]
    pub untrusted: &'static [&'static str],
}

impl<T> Page<T> {
    /// The same page, its items marked as what a model, a tool or a person wrote.
    #[must_use]
    pub fn untrusted(self) -> Self {
        Self { untrusted: &["/items"], ..self }
    }
}

impl<T: Reply> Reply for Page<T> {
    fn text(&self) -> String {
        self.items.iter().map(Reply::text).collect::<Vec<_>>().join("\n")
    }
}
