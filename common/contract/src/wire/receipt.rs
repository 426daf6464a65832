//! Where an effect was recorded.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Reply;
use super::bytes::bytes_of;

/// Says where something was recorded: the proof of an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The ledger's path.
    pub ledger: String,
    /// Its bytes in base64 where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_bytes: Option<String>,
    /// The ledger's own name, which is the same wherever the file lies; absent where its first line gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The entry's place in it, from 0.
    pub seq: u64,
    /// The entry's hash, `sha256:` and 64 hex digits.
    pub hash: String,
}

impl Receipt {
    /// The proof of a line of a ledger.
    pub fn new(ledger: &Path, origin: Option<String>, seq: u64, hash: String) -> Self {
        Self { ledger: ledger.display().to_string(), ledger_bytes: bytes_of(ledger), origin, seq, hash }
    }
}

impl Reply for Receipt {
    fn text(&self) -> String {
        format!("{} {}", self.seq, self.hash)
    }
}
