//! The outcome of a line: something to show and to put on record.

use serde_json::{Value, json};

use crate::plane::Read;

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What to show.
    pub(crate) text: String,
    /// What its hash on the ledger is of.
    pub(crate) result: Value,
    /// The files that were written.
    pub(crate) writes: Vec<Read>,
    /// The programs and services that were called.
    pub(crate) calls: Vec<Value>,
    /// Whether the signals of the session are shown below it.
    pub(crate) has_strip: bool,
    /// The exit status that fits it: 0 unless it failed, though what there is to show is shown already.
    pub(crate) exit: u8,
}

impl Outcome {
    /// An outcome that is only text.
    pub(crate) fn of_text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { result: json!({"text": text}), text, ..Self::default() }
    }
}
