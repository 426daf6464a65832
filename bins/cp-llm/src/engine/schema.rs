//! `--schema`: the answer must be JSON of this shape, and is checked here whatever the provider promises.

use std::path::Path;

use cp_common::context::given;
use cp_common::{Error, Result};
use cp_schema::{Fault, Schema};
use serde_json::Value;
use serde_json::value::RawValue;

use super::notation;

/// The longest schema, in bytes.
const LONGEST: u64 = 4 << 20;

/// A JSON Schema that answers must match.
pub(crate) struct AnswerSchema {
    /// The schema itself, for the request.
    pub text: Value,
    compiled: Schema,
}

/// Why an answer does not match.
#[derive(Debug)]
pub(super) struct Mismatch {
    /// The JSON Pointer to what is wrong; empty for the whole.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
}

impl AnswerSchema {
    /// The schema that is given: a file, JSON itself, or the short notation. What it refers to must be in it: nothing is fetched.
    /// With `is_list` it is that of each of the `items` of a list.
    pub(crate) fn load(given: &Path, is_list: bool) -> Result<Self> {
        let written = given.to_str().filter(|text| *text != "-" && (!given.exists() || given.is_dir()));
        let place = |e: Error| if written.is_some() { e } else { e.in_file(given) };
        let wrong = |what: String| place(Error::validation(format!("not a JSON Schema: {what}"))).fatal();
        let parsed = |json: &[u8]| serde_json::from_slice(json).map_err(|e| wrong(e.to_string()));
        let text: Value = match written {
            Some(text) if text.trim_start().starts_with('{') => parsed(text.as_bytes())?,
            Some(text) => notation::schema(text).map_err(|e| not_notation(e, given).fatal())?,
            None => parsed(&given::bytes(given, LONGEST).map_err(Error::fatal)?)?,
        };
        let text = if is_list { notation::list_of(&text) } else { text };
        let compiled = Schema::compile(text.clone()).map_err(wrong)?;
        Ok(Self { text, compiled })
    }

    /// The JSON in an answer, in its own bytes, if it matches; else what is wrong with it.
    pub(super) fn parsed(&self, answer: &str) -> Result<Box<RawValue>, Mismatch> {
        let text = unfenced(answer);
        let not_json = |e: serde_json::Error| Mismatch { path: String::new(), reason: format!("not valid JSON: {e}") };
        let value: Value = serde_json::from_str(text).map_err(not_json)?;
        match self.compiled.faults(&value, 1).pop() {
            Some(Fault { pointer, message }) => Err(Mismatch { path: pointer, reason: message }),
            None => serde_json::from_str(text).map_err(not_json),
        }
    }
}

impl Mismatch {
    /// The failure of an answer that does not match, and cannot be asked for again.
    pub(super) fn failure(self, text: String) -> Error {
        let error = Error::validation(format!("the answer does not match the schema: {}", self.reason));
        let error = error.with("origin", "upstream").with("reason", "schema").with("path", self.path);
        error.with("partial", text).with("_untrusted", vec!["/partial"])
    }

    /// What the model is asked.
    pub(super) fn correction(&self) -> String {
        let place = if self.path.is_empty() { "the whole" } else { &self.path };
        format!(
            "Your answer does not fit the schema. At {place}: {}. Answer again with the corrected JSON and nothing else.",
            self.reason
        )
    }
}

/// What is neither a file nor the notation: one word that can be no field was meant as the name of a file.
fn not_notation(error: Error, given: &Path) -> Error {
    let text = given.to_string_lossy();
    match error.hint_text() {
        _ if !text.contains(|c: char| c.is_whitespace() || matches!(c, ',' | ':')) => {
            Error::not_found("no such file").in_file(given)
        }
        Some(_) => error,
        None => error.hint("name a file, write JSON, or fields as in \"name, age int, bio: one sentence\""),
    }
}

/// The text inside a fence of backticks, which models like to put around JSON.
fn unfenced(answer: &str) -> &str {
    let answer = answer.trim();
    let Some(inside) = answer.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return answer };
    inside.split_once('\n').map_or(inside, |(_, body)| body).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str) -> Result<AnswerSchema> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.json");
        std::fs::write(&file, text).unwrap();
        AnswerSchema::load(&file, false)
    }

    const PERSON: &str = r#"{"type":"object","required":["age"],"properties":{"age":{"type":"integer"}}}"#;

    #[test]
    fn json_that_matches_is_taken_as_it_is_fenced_or_not() {
        let person = schema(PERSON).unwrap();
        assert_eq!(person.parsed("{\"age\": 1e2}").unwrap().get(), "{\"age\": 1e2}");
        assert_eq!(person.parsed("```json\n{\"age\":3}\n```\n").unwrap().get(), "{\"age\":3}");
    }

    #[test]
    fn a_mismatch_is_reported_with_its_place() {
        let person = schema(PERSON).unwrap();
        assert_eq!(person.parsed("{\"age\":\"x\"}").unwrap_err().path, "/age");
        assert!(person.parsed("{}").unwrap_err().reason.contains("age"));
        assert!(person.parsed("he is 3").unwrap_err().reason.contains("not valid JSON"));
    }

    #[test]
    fn a_broken_schema_and_one_that_leads_elsewhere_are_refused() {
        assert!(schema("{").is_err());
        assert!(schema(r#"{"$ref":"https://example.com/s.json"}"#).is_err());
        assert!(schema(r#"{"$ref":"file:///etc/passwd"}"#).is_err());
    }
}
