//! The receipt of a ledger entry.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Reply;
use super::bytes::bytes_of;

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
