//! The tools that are part of these programs: they go through cp-exec like all others, under the same policy.

use cp_common::{Error, Result};
use serde_json::value::RawValue;

use crate::tools::tool::{AGENT, Hints, Origin, Tool};

const FILESYSTEM_SCHEMA: &str = r#"{"type":"object","properties":{"operation":{"type":"string","enum":["read_file","list_directory","write_file"]},"path":{"type":"string","description":"The file or directory"},"offset":{"type":"integer","minimum":0,"description":"read_file: the first byte"},"limit":{"type":"integer","minimum":1,"description":"read_file: how many bytes; list_directory: how many entries"},"encoding":{"type":"string","enum":["utf-8","base64"]},"cursor":{"type":"string","description":"list_directory: where the last page ended"},"content":{"type":"string","description":"write_file: the whole new content"},"mode":{"type":"string","enum":["create","overwrite"],"description":"write_file: overwrite replaces a file that exists"}},"required":["operation"],"additionalProperties":false}"#;

const SYSTEM_SCHEMA: &str = r#"{"type":"object","properties":{"operation":{"type":"string","enum":["get_info","get_status"]}},"required":["operation"],"additionalProperties":false}"#;

const AGENT_SCHEMA: &str = r#"{"type":"object","properties":{"task":{"type":"string","minLength":1,"description":"What it is to do and what to answer. It knows nothing of this conversation: say everything it needs"},"system":{"type":"string","description":"What it is told of itself"},"tools":{"type":"array","items":{"type":"string"},"description":"The tools it may use, by name; all of yours if not given"},"max_iterations":{"type":"integer","minimum":1,"description":"The most turns it may take"}},"required":["task"],"additionalProperties":false}"#;

const SHELL_SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"string","description":"One command with its arguments, as one string; quotes work, nothing else of a shell does"},"argv":{"type":"array","items":{"type":"string"},"minItems":1,"description":"One command with its arguments, word by word; instead of command"},"cwd":{"type":"string","description":"The directory to run it in"},"timeout":{"type":"number","exclusiveMinimum":0,"description":"Seconds until it is stopped"}},"additionalProperties":false}"#;

/// The names that no other tool can have.
pub(crate) const NAMES: [&str; 4] = ["filesystem", "system", AGENT, "shell"];

/// The built-in tools, those to be preferred first.
pub(crate) fn all() -> Result<Vec<Tool>> {
    Ok(vec![
        tool(
            "filesystem",
            "Read a file, list a directory, or write a file. Always prefer this to shell for anything about files: cat, head, \
             ls, find and redirections are refused there.",
            FILESYSTEM_SCHEMA,
            Hints::default(),
        )?,
        tool(
            "system",
            "Tell about this machine: get_info gives operating system, architecture, host and user; get_status gives load, memory \
             and disk space. Always prefer this to shell for such questions: uname, hostname and whoami are refused there.",
            SYSTEM_SCHEMA,
            Hints { idempotent: true, ..Hints::default() },
        )?,
        tool(
            AGENT,
            "Hand a task to another model run with the same tools, which works on its own and answers once, at its end. It takes its share of \
             your budget. Use it for work that needs many steps whose details you do not need.",
            AGENT_SCHEMA,
            Hints::default(),
        )?,
        tool(
            "shell",
            "Run one program with its arguments. There is no shell: no pipes, redirections, globs, variables or several commands. \
             Use it only where neither filesystem nor system serves; policy decides which programs may run.",
            SHELL_SCHEMA,
            Hints::default(),
        )?,
    ])
}

fn tool(name: &str, description: &str, schema: &str, hints: Hints) -> Result<Tool> {
    let input_schema = RawValue::from_string(schema.to_owned())
        .map_err(|e| Error::new(cp_common::Code::Unknown, format!("the schema of {name} is broken: {e}")))?;
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
    use super::{NAMES, all};

    #[test]
    fn every_built_in_has_a_schema_that_compiles() {
        let tools = all().unwrap();
        assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), NAMES);
        assert!(tools.iter().all(|tool| crate::tools::arguments::compile(&tool.input_schema).is_ok()));
    }
}
