//! `--schema`: the answer must be JSON of this shape, and is checked here whatever the provider promises.

use std::path::Path;

use boon::{CompileError, Compiler, SchemaIndex, Schemas, UrlLoader, ValidationError};
use cp_common::{Error, Result};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::shortened;

/// The place that the schema is said to have, from which its references lead.
const PLACE: &str = "answer:///schema";

/// A JSON Schema, ready to check answers.
pub(crate) struct Schema {
    /// The schema itself.
    pub text: Value,
    parts: Schemas,
    whole: SchemaIndex,
}

/// Fetches nothing.
struct Nowhere;

impl UrlLoader for Nowhere {
    fn load(&self, url: &str) -> std::result::Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} leads out of the schema, and nothing is fetched").into())
    }
}

impl Schema {
    /// Reads a schema. What it refers to must be in it: nothing is fetched.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        let bytes = std::fs::read(file).map_err(|e| crate::options::unreadable(e, file))?;
        let wrong = |what: String| Error::validation(format!("not a JSON Schema: {what}")).in_file(file).fatal();
        let text: Value = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        let unfit = |e: CompileError| wrong(shortened(&format!("{e:#}")));
        let (mut compiler, mut parts) = (Compiler::new(), Schemas::new());
        compiler.use_loader(Box::new(Nowhere));
        compiler.add_resource(PLACE, text.clone()).map_err(unfit)?;
        let whole = compiler.compile(PLACE, &mut parts).map_err(unfit)?;
        Ok(Self { text, parts, whole })
    }

    /// The JSON in an answer, if it has the shape; else what is wrong with it, in words for the model and with the place.
    pub(crate) fn parsed(&self, answer: &str) -> Result<Box<RawValue>, Misfit> {
        let text = unfenced(answer);
        let value: Value = serde_json::from_str(text)
            .map_err(|e| Misfit { path: String::new(), complaint: format!("not valid JSON: {e}") })?;
        if let Err(error) = self.parts.validate(&value, self.whole) {
            let error = innermost(&error);
            let complaint = shortened(&error.kind.to_string());
            return Err(Misfit { path: error.instance_location.to_string(), complaint });
        }
        serde_json::from_str(text).map_err(|e| Misfit { path: String::new(), complaint: e.to_string() })
    }
}

/// Why an answer does not fit.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The JSON Pointer to the place.
    pub path: String,
    /// What is wrong there.
    pub complaint: String,
}

impl Misfit {
    /// What the model is told.
    pub(crate) fn request(&self) -> String {
        let place = if self.path.is_empty() { "the whole" } else { &self.path };
        format!(
            "Your answer does not fit the schema. At {place}: {}. Answer again with the corrected JSON and nothing else.",
            self.complaint
        )
    }
}

/// The first complaint that has no other behind it: that says what to change.
fn innermost<'a, 's, 'v>(error: &'a ValidationError<'s, 'v>) -> &'a ValidationError<'s, 'v> {
    error.causes.first().map_or(error, innermost)
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

    fn schema(text: &str) -> Result<Schema> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.json");
        std::fs::write(&file, text).unwrap();
        Schema::load(&file)
    }

    const PERSON: &str = r#"{"type":"object","required":["age"],"properties":{"age":{"type":"integer"}}}"#;

    #[test]
    fn json_that_fits_is_taken_as_it_is_fenced_or_not() {
        let person = schema(PERSON).unwrap();
        assert_eq!(person.parsed("{\"age\": 1e2}").unwrap().get(), "{\"age\": 1e2}");
        assert_eq!(person.parsed("```json\n{\"age\":3}\n```\n").unwrap().get(), "{\"age\":3}");
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        let person = schema(PERSON).unwrap();
        assert_eq!(person.parsed("{\"age\":\"x\"}").unwrap_err().path, "/age");
        assert!(person.parsed("{}").unwrap_err().complaint.contains("age"));
        assert!(person.parsed("he is 3").unwrap_err().complaint.contains("not valid JSON"));
    }

    #[test]
    fn a_broken_schema_and_one_that_leads_elsewhere_are_refused() {
        assert!(schema("{").is_err());
        assert!(schema(r#"{"$ref":"https://example.com/s.json"}"#).is_err());
        assert!(schema(r#"{"$ref":"file:///etc/passwd"}"#).is_err());
    }
}
