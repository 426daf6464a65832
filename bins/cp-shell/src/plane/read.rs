//! What was read, as evidence has it.

use serde::Serialize;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Read {
    /// Its real path.
    pub(crate) path: String,
    /// The hash of the bytes that were read, `sha256:` and 64 hex digits.
    pub(crate) hash: String,
    /// Where the bytes that were read begin, if not all of the file was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// How many were read, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

impl Read {
    /// A file that was read whole.
    pub(crate) fn whole(path: String, hash: String) -> Self {
        Self { path, hash, offset: None, bytes: None }
    }
}
