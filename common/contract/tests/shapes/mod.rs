//! Types of lines that the programs assemble member by member. Only their schemas are used.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use cp_common::wire::Usage;

/// The summary of a stream: the number of items, their outcomes, and members that some verbs add.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Summary {
    /// Number of items.
    pub(crate) total: u64,
    /// Number of items that succeeded.
    pub(crate) succeeded: u64,
    /// Number of items that failed; each has an `error` record.
    pub(crate) failed: u64,
    /// Number of items that were skipped.
    pub(crate) skipped: u64,
    /// Of a list: number of records printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<u64>,
    /// Of a list: the cursor of the next page; null on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
    /// Of a list: true if there is a next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) has_more: Option<bool>,
    /// Of a list: true if the limit truncated it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) truncated: Option<bool>,
    /// The ledger that was appended to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ledger: Option<String>,
    /// Base64 of the path, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ledger_bytes: Option<String>,
    /// The first entry that was appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<Appended>,
    /// The last entry that was appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<Appended>,
    /// Of a search: number of files read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<u64>,
    /// Of a search: number of files skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped_files: Option<u64>,
    /// Of an audit: number of ledgers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ledgers: Option<u64>,
    /// Of an audit: number of claims that hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<u64>,
    /// Of an audit: number of claims that do not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken: Option<u64>,
    /// Of an audit: number of claims that could be neither proved nor refuted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unknown: Option<u64>,
    /// True if nothing was done because of `--dry-run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dry_run: Option<bool>,
    /// The run of a tool loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<String>,
    /// Of a tool loop: number of model turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) iterations: Option<u64>,
    /// Of a dry run over rows: what the requests would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) estimate: Option<Estimate>,
    /// Of a tool loop: number of tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_calls: Option<u64>,
    /// Of a tool loop: number of tool calls that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_errors: Option<u64>,
    /// Of a tool loop: tokens and cost of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
}

/// An entry that was appended.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Appended {
    /// Its place in the ledger, from 0.
    pub(crate) seq: u64,
    /// Its hash, `sha256:` and 64 hex digits.
    pub(crate) hash: String,
}

/// The `error` of a line that is not `ok`: of an item, an answer, or a closing line.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Failure {
    /// One of `error_codes`.
    pub(crate) code: String,
    /// The message for a person.
    pub(crate) message: String,
    /// Details for programs.
    pub(crate) details: Details,
    /// True if a retry may succeed.
    pub(crate) retryable: bool,
}

/// Details of a failure. Each kind of failure adds its own members to these.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Details {
    /// The hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The place of the input line that failed, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u64>,
    /// JSON Pointers, relative to `details`, to untrusted members.
    #[serde(rename = "_untrusted", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) untrusted: Vec<String>,
    /// Other members.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// The requests of a dry run: their number, tokens and cost.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Estimate {
    /// Number of requests.
    pub(crate) requests: u64,
    /// Estimated tokens of the input.
    pub(crate) input_tokens: u64,
    /// The most tokens of the output; null if a request sets no limit.
    pub(crate) max_output_tokens: Option<u64>,
    /// Estimated cost of the input; null if a model is unpriced.
    pub(crate) input_usd: Option<f64>,
    /// The highest cost; null if it is unknown.
    pub(crate) max_usd: Option<f64>,
}
