//! A page of a list, and the cursor of the next page.

use serde::Serialize;

use crate::wire::Reply;

/// A page of a list.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Number of items on this page.
    pub count: usize,
    /// The cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
    /// True if there is a next page.
    pub has_more: bool,
    /// JSON Pointers to untrusted members.
    #[serde(rename = "_untrusted", default, skip_serializing_if = "<[_]>::is_empty")]
    pub untrusted: &'static [&'static str],
}

impl<T> Page<T> {
    /// Marks the items as untrusted, because a model, a tool or a person wrote them.
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
