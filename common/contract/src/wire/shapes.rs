//! The shapes of lines that are put together member by member, as types: only their schemas are made from them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Usage;

/// The summary of a stream: the number of items, their results, and members that some verbs add.
#[derive(Serialize, JsonSchema)]
pub struct Summary {
    /// All items.
    pub total: u64,
    /// Those that were done.
    pub succeeded: u64,
    /// Those that failed; each has its record.
    pub failed: u64,
    /// Those that were left out.
    pub skipped: u64,
    /// Of a list: how many records were printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Of a list: where the next page begins; null on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Of a list: whether there is a next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
    /// Of a list: whether the limit cut it off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// The ledger that was appended to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
    /// Its bytes in base64 where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_bytes: Option<String>,
    /// The first entry that was appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Appended>,
    /// The last entry that was appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Appended>,
    /// Of a search: the files that were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Those that were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_files: Option<u64>,
    /// Of an audit or a bundle: the ledgers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledgers: Option<u64>,
    /// The claims that hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// Those that do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<u64>,
    /// Claims that could neither be proved nor refuted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u64>,
    /// Of a bundle: the lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// Its large values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs: Option<u64>,
    /// The hash of everything before this line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The same as in `meta`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The hash of the bytes of this line before this member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<String>,
    /// True where nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// The run of a tool loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Its turns of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// Those of its agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_iterations: Option<u64>,
    /// Its calls of tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Those that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_errors: Option<u64>,
    /// What its model cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// An entry that was appended.
#[derive(Serialize, JsonSchema)]
pub struct Appended {
    /// Its place in the ledger, from 0.
    pub seq: u64,
    /// Its hash, `sha256:` and 64 hex digits.
    pub hash: String,
}

/// The `error` of a line that is not `ok`: of an item, of a whole answer, or of a closing line.
#[derive(Serialize, JsonSchema)]
pub struct Failure {
    /// One of `error_codes`.
    pub code: String,
    /// What happened, for a person.
    pub message: String,
    /// Facts for programs.
    pub details: Details,
    /// Whether trying again may help.
    pub retryable: bool,
}

/// Facts about a failure. Each kind of failure has its own; these are the ones that any may have.
#[derive(Serialize, JsonSchema)]
pub struct Details {
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The place of the input line that failed, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// JSON Pointers, from `details`, to what is not ours.
    #[serde(rename = "_untrusted", default, skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
    /// More.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}
