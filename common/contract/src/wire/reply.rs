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

/// Defines the members of a path in an answer: its readable form and, if it is not UTF-8, its bytes. For `serde(flatten)`.
macro_rules! names {
    ($($(#[$about:meta])* $type:ident = $member:ident, $bytes:ident;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $type {
            $(#[$about])*
            pub $member: String,
            /// Base64 of the path, if it is not UTF-8.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $bytes: Option<String>,
        }

        impl From<&Path> for $type {
            fn from(path: &Path) -> Self {
                Self { $member: path.display().to_string(), $bytes: bytes_of(path) }
            }
        }
    )*};
}

names! {
    /// The path of a ledger.
    LedgerName = ledger, ledger_bytes;
    /// The path of the closed segment of a ledger.
    SegmentName = segment, segment_bytes;
    /// The path of the file with the archived turns.
    ArchiveName = archive, archive_bytes;
    /// The path of a checkpoint.
    CheckpointName = checkpoint, checkpoint_bytes;
    /// The path of the file that signs. Keep it where the one whose ledger it signs cannot read it.
    KeyName = key, key_bytes;
    /// The path of the file that proves.
    PublicName = public, public_bytes;
    /// The path of a file.
    FileName = file, file_bytes;
    /// The path of the ledger with the turns, or of the file that was written.
    PathName = path, path_bytes;
    /// The directory in which something was begun.
    CwdName = cwd, cwd_bytes;
    /// The path of a directory.
    DirectoryName = directory, directory_bytes;
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
