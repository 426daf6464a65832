//! What a line came to: something to show and to put on record, or why it came to nothing.

use cp_common::Error;
use serde_json::{Value, json};

use crate::plane::{Failure, Read};

/// What a line came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What to show.
    pub(crate) text: String,
    /// What it is on record by.
    pub(crate) result: Value,
    /// What was written.
    pub(crate) writes: Vec<Read>,
    /// What was called.
    pub(crate) calls: Vec<Value>,
    /// Whether it failed, though what there is to show is shown already.
    pub(crate) failed: bool,
}

impl Outcome {
    /// Words alone.
    pub(crate) fn of_text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { result: json!({"text": text}), text, ..Self::default() }
    }
}

/// Why a line came to nothing.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) message: String,
    pub(crate) cure: Option<String>,
    /// The session cannot go on.
    pub(crate) end: Option<Error>,
}

impl Problem {
    /// Something that the session survives.
    pub(crate) fn new(message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { message: message.into(), cure: Some(cure.into()).filter(|cure: &String| !cure.is_empty()), end: None }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (message, cure) = (error.message().to_owned(), error.hint_text().map(str::to_owned));
        let end = if error.is_reader_gone() { Some(error) } else { None };
        Self { message, cure, end }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self { cure: failure.cure().map(str::to_owned), message: failure.message, end: None }
    }
}

/// What a line gives.
pub(crate) type Done = std::result::Result<Outcome, Problem>;
