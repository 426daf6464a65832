//! Arguments are checked against the tool's schema before anything is started, and the complaint goes back to the model.

use std::collections::HashMap;

use boon::{Compiler, SchemaIndex, Schemas, UrlLoader, ValidationError};
use cp_common::{Error, Result};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::tool::Tool;

/// How many complaints one answer names.
const COMPLAINTS: usize = 5;

/// The place that a schema is said to have, from which its references lead.
const PLACE: &str = "tool:///arguments";

/// The schemas of the tools of a run, compiled when first needed.
#[derive(Default)]
pub(crate) struct Arguments {
    compiled: HashMap<String, Schema>,
}

/// A compiled schema.
pub(crate) struct Schema {
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

impl Arguments {
    /// Checks the arguments of a call. The error is for the model.
    pub(crate) fn check(&mut self, tool: &Tool, input: &RawValue) -> Result<()> {
        let value = parsed(input)?;
        if !self.compiled.contains_key(&tool.name) {
            self.compiled.insert(tool.name.clone(), compile(&tool.input_schema)?);
        }
        let Some(schema) = self.compiled.get(&tool.name) else { return Ok(()) };
        let Err(error) = schema.parts.validate(&value, schema.whole) else { return Ok(()) };
        let mut complaints = Vec::new();
        collect(&error, &mut complaints);
        Err(Error::validation(format!(
            "the arguments of {} do not fit its schema: {}",
            tool.name,
            complaints.join("; ")
        )))
    }
}

/// Compiles a schema. References that lead out of it are refused: nothing is fetched.
pub(crate) fn compile(schema: &RawValue) -> Result<Schema> {
    let schema: Value =
        serde_json::from_str(schema.get()).map_err(|e| Error::validation(format!("the schema is not JSON: {e}")))?;
    if !schema.is_object() {
        return Err(Error::validation("the schema is not a JSON object"));
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err(Error::validation("the schema's type must be \"object\": arguments have names"));
    }
    let wrong =
        |e: boon::CompileError| Error::validation(format!("the schema is wrong: {}", shortened(&format!("{e:#}"))));
    let (mut compiler, mut parts) = (Compiler::new(), Schemas::new());
    compiler.use_loader(Box::new(Nowhere));
    compiler.add_resource(PLACE, schema).map_err(wrong)?;
    let whole = compiler.compile(PLACE, &mut parts).map_err(wrong)?;
    Ok(Schema { parts, whole })
}

fn parsed(input: &RawValue) -> Result<Value> {
    let broken = |e: &dyn std::fmt::Display| Error::validation(format!("the arguments are not valid JSON: {e}"));
    cp_common::json::check(input.get().as_bytes()).map_err(|e| broken(&e))?;
    let value: Value = serde_json::from_str(input.get()).map_err(|e| broken(&e))?;
    if value.is_object() { Ok(value) } else { Err(Error::validation("the arguments are not a JSON object")) }
}

/// The first complaints that have no others behind them: those say what to change.
fn collect(error: &ValidationError<'_, '_>, complaints: &mut Vec<String>) {
    if complaints.len() >= COMPLAINTS {
        return;
    }
    if error.causes.is_empty() {
        complaints.push(complaint(&error.instance_location.to_string(), &error.kind.to_string()));
    }
    error.causes.iter().for_each(|cause| collect(cause, complaints));
}

fn complaint(at: &str, what: &str) -> String {
    let what = shortened(what);
    if at.is_empty() { what } else { format!("{at}: {what}") }
}

/// A complaint quotes the value it is about, which may be long.
fn shortened(text: &str) -> String {
    const LIMIT: usize = 400;
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{Hints, Origin};

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn tool(schema: &str) -> Tool {
        Tool {
            name: "t".into(),
            description: String::new(),
            input_schema: raw(schema),
            origin: Origin::Builtin,
            hints: Hints::default(),
        }
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        let tool = tool(
            r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#,
        );
        let mut arguments = Arguments::default();
        assert!(arguments.check(&tool, &raw(r#"{"n":3}"#)).is_ok());
        let wrong = arguments.check(&tool, &raw(r#"{"n":"x"}"#)).unwrap_err();
        assert!(wrong.message().contains("/n") && wrong.message().contains("integer"), "{wrong}");
        assert!(arguments.check(&tool, &raw("{}")).unwrap_err().message().contains("missing properties 'n'"));
        assert!(arguments.check(&tool, &raw(r#"{"n":1,"m":2}"#)).unwrap_err().message().contains('m'));
        assert!(arguments.check(&tool, &raw("[1]")).unwrap_err().message().contains("object"));
        assert!(arguments.check(&tool, &raw(r#"{"n":1,"n":2}"#)).is_err());
    }

    #[test]
    fn nothing_is_fetched_for_a_schema() {
        assert!(compile(&raw(r#"{"$ref":"http://localhost/schema.json"}"#)).is_err());
        assert!(compile(&raw(r#"{"$ref":"file:///etc/passwd"}"#)).is_err());
        assert!(compile(&raw(r#"{"type":"string"}"#)).is_err());
        assert!(compile(&raw("{}")).is_ok());
        assert!(
            compile(&raw(
                r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"null"}}}"##
            ))
            .is_ok()
        );
    }
}
