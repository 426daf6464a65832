//! The built-in tools, which run through cp-exec under the same policy as all others.

use cp_common::{Code, Error, Result};
use cp_mcp_wire::Hints;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::tools::tool::{BASH, Origin, Tool};

const FILESYSTEM_SCHEMA: &str = r#"{"type":"object","properties":{"operation":{"type":"string","enum":["read_file","list_directory","edit_file","write_file","remove_file"]},"path":{"type":"string","description":"The file or directory; a patch that names its files needs none"},"limit":{"type":"integer","minimum":1,"description":"list_directory: how many entries"},"line":{"type":"integer","minimum":1,"description":"read_file: the first line, from 1"},"lines":{"type":"integer","minimum":1,"description":"read_file: how many lines"},"numbered":{"type":"boolean","description":"read_file: a number and a tab before each line; they are no part of the file"},"cursor":{"type":"string","description":"list_directory: where the last page ended"},"old":{"type":"string","description":"edit_file: the text to replace, exactly as it is in the file, with enough around it that it occurs once; empty creates the file"},"new":{"type":"string","description":"edit_file: what comes in its place"},"all":{"type":"boolean","description":"edit_file: replace every occurrence"},"patch":{"type":"string","description":"edit_file: changes of one or more files in place of old and new: *** Begin Patch, *** Update File: FILE, @@ and lines that begin with a blank, - or +, *** End Patch; unchanged lines must match the file"},"content":{"type":"string","description":"write_file: the whole content"},"mode":{"type":"string","enum":["create","overwrite"],"description":"write_file: overwrite replaces a file that exists"}},"required":["operation"],"additionalProperties":false}"#;

const SYSTEM_SCHEMA: &str = r#"{"type":"object","properties":{"operation":{"type":"string","enum":["get_info","get_status"]}},"required":["operation"],"additionalProperties":false}"#;

const SHELL_SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"string","description":"One command with its arguments, quoted as for a shell"},"argv":{"type":"array","items":{"type":"string"},"minItems":1,"description":"One command with its arguments, word by word; instead of command"},"cwd":{"type":"string","description":"The directory to run it in"},"timeout":{"type":"number","exclusiveMinimum":0,"description":"Seconds until it is stopped"}},"additionalProperties":false}"#;

const BASH_SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"string","minLength":1,"description":"A command line for bash"},"cwd":{"type":"string","description":"The directory to run it in"},"env":{"type":"object","additionalProperties":{"type":"string"},"description":"Environment variables to set"},"timeout":{"type":"number","exclusiveMinimum":0,"description":"Seconds until it is stopped"},"stdin":{"type":"string","description":"Text for its standard input"}},"required":["command"],"additionalProperties":false}"#;

/// The names of the built-in tools, which no other tool can have.
pub(crate) const NAMES: [&str; 4] = ["filesystem", "system", "shell", BASH];

/// The read-only operations of the filesystem tool.
const READING: [&str; 2] = ["read_file", "list_directory"];

/// The description of the read-only operations.
const LOOKING: &str =
    "Work with files. read_file: a file, or some of its lines. list_directory: the entries of one directory.";

/// The description of the other operations.
const CHANGING: &str = " edit_file: replace text, or apply a patch to one or more files, all or none; a file that changed since you \
     read it has to be read again. write_file: create a file with its directories. remove_file: remove a file that you have read.";

/// The built-in tools, in order of preference.
pub(super) fn all(read_only: bool) -> Result<Vec<Tool>> {
    let harmless = Hints { read_only: true, ..Hints::default() };
    let (filesystem, schema, limits) = if read_only {
        ("", reading(FILESYSTEM_SCHEMA)?, "Nothing can be written.")
    } else {
        (CHANGING, FILESYSTEM_SCHEMA.to_owned(), "The policy decides what runs, and where files can be written.")
    };
    let filesystem = format!(
        "{LOOKING}{filesystem} Always prefer this to shell and bash for anything about files: a cat, head, ls or find that stands alone is \
         refused by shell. \
         {limits}"
    );
    let shell = format!(
        "Run one command in a sandbox. No shell reads it: a pipe, list, redirection or substitution is refused. \
         Use it only where neither filesystem nor system serves. {limits}"
    );
    let bash = format!(
        "Run a command line with bash in a sandbox: pipes, lists, redirections, loops, variables and substitutions work. Each program \
         is checked when it starts, and one that is refused ends with status 126 while the line goes on. \
         Prefer filesystem and system where they serve, and shell for one command. {limits}"
    );
    Ok(vec![
        tool("filesystem", &filesystem, &schema, Hints { read_only, ..Hints::default() })?,
        tool(
            "system",
            "Tell about this machine: get_info gives operating system, architecture, host and user; get_status gives load, memory \
             and disk space. Always prefer this to shell and bash for such questions.",
            SYSTEM_SCHEMA,
            Hints { idempotent: true, ..harmless },
        )?,
        tool("shell", &shell, SHELL_SCHEMA, Hints { read_only, ..Hints::default() })?,
        tool(BASH, &bash, BASH_SCHEMA, Hints { read_only, ..Hints::default() })?,
    ])
}

/// A schema without the operations that write, and without the members that only those operations have.
fn reading(schema: &str) -> Result<String> {
    let wrong = |e: serde_json::Error| Error::new(Code::Unknown, format!("a built-in schema is broken: {e}"));
    let mut schema: Value = serde_json::from_str(schema).map_err(wrong)?;
    let Some(properties) = schema["properties"].as_object_mut() else { return Ok(schema.to_string()) };
    let reads = |name: &str| READING.contains(&name);
    if let Some(operations) = properties.get_mut("operation").and_then(|operation| operation["enum"].as_array_mut()) {
        operations.retain(|name| name.as_str().is_some_and(reads));
    }
    // A description starts with the operations of its member, unless the member is for all.
    properties.retain(|_, member| {
        let words = member["description"].as_str().and_then(|text| text.split_once(": "));
        words.is_none_or(|(names, _)| READING.iter().any(|name| names.contains(name)))
    });
    Ok(schema.to_string())
}

fn tool(name: &str, description: &str, schema: &str, hints: Hints) -> Result<Tool> {
    let input_schema = RawValue::from_string(schema.to_owned())
        .map_err(|e| Error::new(Code::Unknown, format!("the schema of {name} is broken: {e}")))?;
    Ok(Tool {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema,
        origin: Origin::Builtin,
        hints,
    })
}

#[cfg(test)]
mod tests {
    use cp_common::wire::ToolCall;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tools::arguments::Arguments;

    #[test]
    fn built_in_tool_has_schema_that_compiles() {
        for read_only in [false, true] {
            let tools = all(read_only).unwrap();
            assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), NAMES);
            assert!(tools.iter().all(|tool| crate::tools::arguments::compile(&tool.input_schema).is_ok()));
            assert_eq!(tools.iter().all(|tool| tool.hints.read_only), read_only);
        }
    }

    /// The values of a schema that are not invalid by their own, with texts that look like other values.
    fn values(schema: &Value) -> BoxedStrategy<Value> {
        if let Some(names) = schema["enum"].as_array() {
            return prop::sample::select(names.clone()).boxed();
        }
        match schema["type"].as_str().unwrap() {
            "boolean" => any::<bool>().prop_map(Value::from).boxed(),
            "integer" => (1..5000_u32).prop_map(Value::from).boxed(),
            "number" => (1..5000_u32).prop_map(|quarters| json!(f64::from(quarters) / 4.0)).boxed(),
            "string" => prop::sample::select(vec!["true", "3", "null", "[1]", "{\"a\":1}", "\"x\"", "a b\n"])
                .prop_map(Value::from)
                .boxed(),
            "array" => prop::collection::vec(values(&schema["items"]), 1..4).prop_map(Value::from).boxed(),
            _ => match schema["properties"].as_object() {
                None => prop::collection::btree_map("[A-Z]{1,4}", values(&schema["additionalProperties"]), 0..3)
                    .prop_map(|members| json!(members))
                    .boxed(),
                Some(members) => {
                    let required = schema["required"].as_array().cloned().unwrap_or_default();
                    let member = |(name, schema): (&String, &Value)| {
                        let value = values(schema);
                        let value = if required.contains(&json!(name)) {
                            value.prop_map(Some).boxed()
                        } else {
                            prop::option::of(value).boxed()
                        };
                        (Just(name.clone()), value)
                    };
                    let members: Vec<_> = members.iter().map(member).collect();
                    let object = |members: Vec<(String, Option<Value>)>| {
                        members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect::<Value>()
                    };
                    members.prop_map(object).boxed()
                }
            },
        }
    }

    /// The value with some of its parts that are not texts as JSON text, chosen by the bits of `choice`.
    fn as_texts(value: &Value, choice: &mut u64) -> Value {
        let value = match value {
            Value::Array(items) => items.iter().map(|item| as_texts(item, choice)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), as_texts(value, choice))).collect()
            }
            other => other.clone(),
        };
        *choice = choice.rotate_right(1);
        if value.is_string() || *choice & 1 == 0 { value } else { Value::from(value.to_string()) }
    }

    proptest! {
        #[test]
        fn text_form_of_arguments_means_their_values(
            (at, input) in (0..NAMES.len()).prop_flat_map(|at| {
                let tools = all(false).unwrap();
                let schema = serde_json::from_str(tools[at].input_schema.get()).unwrap();
                (Just(at), values(&schema))
            }),
            mut choice: u64,
        ) {
            let tools = all(false).unwrap();
            let mut arguments = Arguments::default();
            let mut normal = |input: &Value| {
                let input = serde_json::value::to_raw_value(input).unwrap();
                let id = "c".to_owned();
                let mut call = ToolCall { id, name: NAMES[at].to_owned(), input, timeout: None, untrusted: Vec::new() };
                arguments.normalize(&mut call, &tools);
                prop_assert!(arguments.check(&tools[at], &call.input).is_ok(), "{}", call.input);
                Ok(serde_json::from_str::<Value>(call.input.get()).unwrap())
            };
            let texts = as_texts(&input, &mut choice);
            prop_assert_eq!(normal(&texts)?, normal(&input)?, "{}", texts);
        }
    }

    #[test]
    fn read_only_schema_has_no_members_of_writes() {
        let schema: Value = serde_json::from_str(&reading(FILESYSTEM_SCHEMA).unwrap()).unwrap();
        let operations = schema["properties"]["operation"]["enum"].as_array().unwrap();
        assert!(operations.iter().all(|name| READING.contains(&name.as_str().unwrap())) && operations.len() > 1);
        let members = schema["properties"].as_object().unwrap();
        let kept = ["path", "limit", "line", "cursor"];
        assert!(kept.iter().all(|name| members.contains_key(*name)), "{members:?}");
        assert!(["content", "mode", "old", "patch"].iter().all(|name| !members.contains_key(*name)), "{members:?}");
    }
}
