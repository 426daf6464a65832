//! The arguments of a call: their normal form, and their check against the schema of the tool. The errors are for the
//! model.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cp_common::wire::ToolCall;
use cp_common::{Error, Result};
use cp_schema::{Fault, Schema};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::tools::aliases::canonicalize;
use crate::tools::tool::Tool;

/// The most faults that an error names.
const MOST_FAULTS: usize = 5;

/// The most characters of invalid arguments that an error repeats.
const LONGEST: usize = 300;

/// The schemas of the tools, compiled when they are first needed.
#[derive(Default)]
pub(crate) struct Arguments {
    compiled: HashMap<String, Schema>,
}

impl Arguments {
    /// Brings a call of one of these tools into its normal form: built-in tools have their own names for tools and
    /// arguments, and a boolean, number, array or object is not a text.
    pub(crate) fn normalize(&mut self, call: &mut ToolCall, tools: &[Tool]) {
        if let Ok(Value::String(text)) = serde_json::from_str(call.input.get())
            && let Ok(members @ Value::Object(_)) = serde_json::from_str::<Value>(&text)
        {
            replace_input(call, &members);
        }
        canonicalize(call, tools);
        if let Some(tool) = tools.iter().find(|tool| tool.name == call.name)
            && let (Ok(value), Ok(schema)) = (parsed(&call.input), self.schema(tool))
            && let Some(value) = schema.with_parsed_texts(&value)
        {
            replace_input(call, &value);
        }
    }

    /// The compiled schema of a tool.
    fn schema(&mut self, tool: &Tool) -> Result<&Schema> {
        match self.compiled.entry(tool.name.clone()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => Ok(new.insert(compile(&tool.input_schema)?)),
        }
    }

    /// Checks the arguments of a call. The error is for the model.
    pub(crate) fn check(&mut self, tool: &Tool, input: &RawValue) -> Result<()> {
        let faults = self.schema(tool)?.faults(&parsed(input)?, MOST_FAULTS);
        if faults.is_empty() {
            return Ok(());
        }
        let faults = faults.iter().map(described).collect::<Vec<_>>().join("; ");
        let members = serde_json::from_str::<Value>(tool.input_schema.get()).unwrap_or_default();
        let names =
            members["properties"].as_object().map(|members| members.keys().cloned().collect::<Vec<_>>().join(", "));
        let names = names.map(|names| format!("\nHint: the arguments are {names}")).unwrap_or_default();
        Err(Error::validation(format!("the arguments of {} do not fit its schema: {faults}{names}", tool.name)))
    }
}

/// Compiles a schema of arguments. References to other documents are refused, because nothing is fetched.
pub(crate) fn compile(schema: &RawValue) -> Result<Schema> {
    compile_lenient(schema).map(|(schema, _)| schema)
}

/// Like [`compile`], and returns the patterns that are not checked.
pub(crate) fn compile_lenient(schema: &RawValue) -> Result<(Schema, Vec<String>)> {
    let schema: Value =
        serde_json::from_str(schema.get()).map_err(|e| Error::validation(format!("the schema is not JSON: {e}")))?;
    if !schema.is_object() {
        return Err(Error::validation("the schema is not a JSON object"));
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err(Error::validation("the schema's type must be \"object\": arguments have names"));
    }
    Schema::compile_lenient(schema).map_err(|wrong| Error::validation(format!("the schema is not valid: {wrong}")))
}

fn replace_input(call: &mut ToolCall, value: &Value) {
    if let Ok(input) = serde_json::value::to_raw_value(value) {
        call.input = input;
    }
}

fn parsed(input: &RawValue) -> Result<Value> {
    let broken = |e: &dyn std::fmt::Display| Error::validation(format!("the arguments are not valid JSON: {e}"));
    cp_common::json::check(input.get().as_bytes()).map_err(|e| broken(&e))?;
    let value: Value = serde_json::from_str(input.get()).map_err(|e| broken(&e))?;
    if value.is_object() {
        return Ok(value);
    }
    // In the conversation such a call has no arguments, because providers accept only an object.
    let written: String =
        value.as_str().map_or_else(|| value.to_string(), str::to_owned).chars().take(LONGEST).collect();
    Err(Error::validation(format!("the arguments are not a JSON object: {written}")))
}

/// A fault with the path of its value.
fn described(fault: &Fault) -> String {
    let Fault { pointer, message } = fault;
    if pointer.is_empty() { message.clone() } else { format!("{pointer}: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tool::Origin;
    use cp_mcp_wire::Hints;

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
    fn invalid_argument_is_named_with_its_path() {
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
}
