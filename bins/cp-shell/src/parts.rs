//! Asking another of our programs.

use cp_common::{Context, Result, coprocess};
use serde_json::Value;

/// The data of the answer of one of our programs to these words.
pub(crate) fn ask(context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    coprocess::ask(program, words, b"", context)?.data()
}
