//! The answer to a request, in the control plane's own envelope.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::plane::{Failure, Read};
use cp_ledger::format::canonical::hash_value;

/// An answer: a result or an error, and the evidence.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields))]
pub(crate) struct Response {
    /// ok or error.
    pub(super) status: Status,
    /// What the operation answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Fault>,
    /// What was read and written, and the hashes of what went in and came out.
    pub(super) evidence: Evidence,
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Status {
    /// There is a result.
    Ok,
    /// There is an error.
    Error,
}

/// Why a request failed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields))]
pub(crate) struct Fault {
    /// `MISSING_FIELD`, and the like.
    pub(super) code: String,
    /// What happened.
    pub(super) message: String,
    /// Facts for programs.
    pub(super) details: Map<String, Value>,
}

/// What an answer rests on.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields))]
pub(crate) struct Evidence {
    /// When it was answered.
    pub(super) timestamp: String,
    /// The hash of the request; of `{"cmd": text}`, if it is no JSON.
    pub(super) input_hash: String,
    /// The hash of the result, or of the error.
    pub(super) output_hash: String,
    /// How long it took.
    pub(super) duration_ms: u64,
    /// The files that were read, with the hashes of the bytes that were read.
    pub(super) declared_reads: Vec<Read>,
    /// The files that were written.
    pub(super) declared_writes: Vec<Read>,
}

impl Response {
    /// The answer that an outcome makes. The evidence has everything but the hash of the output.
    pub(super) fn new(outcome: Result<Value, Failure>, mut evidence: Evidence) -> Self {
        match outcome {
            Ok(result) => {
                evidence.output_hash = hash_value(&result);
                Self { status: Status::Ok, result: Some(result), error: None, evidence }
            }
            Err(failure) => {
                let failure = failure.hinted();
                evidence.output_hash = hash_value(&failure.to_value());
                let Failure { code, message, details } = failure;
                let error = Fault { code: code.to_owned(), message, details };
                Self { status: Status::Error, result: None, error: Some(error), evidence }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_type() {
        cp_common::wire::schemas::same_or_update(
            env!("CARGO_MANIFEST_DIR"),
            "response",
            &schemars::schema_for!(Response),
        );
    }
}
