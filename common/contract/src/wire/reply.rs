//! Answers that several programs share: the text and bytes of any answer, a page of a list, the receipt of a ledger
//! entry.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer of a program.
pub trait Reply: Serialize {
    /// Returns the text for people, without the last line feed; empty if there is nothing to print.
    fn text(&self) -> String;

    /// Returns the bytes for `--format raw`.
    fn raw(&self) -> Vec<u8> {
        let mut bytes = self.text().into_bytes();
        bytes.push(b'\n');
        bytes
    }
}

/// An answer that is built where it is printed.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Built {
    pub(crate) data: Value,
    #[serde(skip)]
    pub(crate) text: String,
}

impl Reply for Built {
    fn text(&self) -> String {
        self.text.clone()
    }
}

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

/// Names the ledger entry of an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The ledger's path.
    pub ledger: String,
    /// Base64 of the path, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_bytes: Option<String>,
    /// The ledger's origin, which does not change when the file moves; absent if the first line has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The entry's place in the ledger, from 0.
    pub seq: u64,
    /// The entry's hash, `sha256:` and 64 hex digits.
    pub hash: String,
}

impl Receipt {
    /// Makes the receipt of a ledger entry.
    pub fn new(ledger: &Path, origin: Option<String>, seq: u64, hash: String) -> Self {
        Self { ledger: ledger.display().to_string(), ledger_bytes: bytes_of(ledger), origin, seq, hash }
    }
}

impl Reply for Receipt {
    fn text(&self) -> String {
        format!("{} {}", self.seq, self.hash)
    }
}

/// Returns the base64 of a name that is not UTF-8, for a member `…_bytes` beside the readable one; `None` for UTF-8.
pub fn bytes_of(name: impl AsRef<OsStr>) -> Option<String> {
    let name = name.as_ref();
    name.to_str().is_none().then(|| STANDARD.encode(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_utf8_returns_none() {
        assert_eq!(bytes_of("grün.jsonl"), None);
        assert_eq!(bytes_of(OsStr::from_bytes(b"\xe9.jsonl")).as_deref(), Some("6S5qc29ubA=="));
    }
}
