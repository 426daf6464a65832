//! Where an effect was recorded.

use serde::{Deserialize, Serialize};

use super::Reply;

/// Says where something was recorded: the proof of an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The ledger's path.
    pub ledger: String,
    /// The entry's place in it, from 0.
    pub seq: u64,
    /// The entry's hash, `sha256:` and 64 hex digits.
    pub hash: String,
}

impl Reply for Receipt {
    fn text(&self) -> String {
        format!("{} {}", self.seq, self.hash)
    }
}
