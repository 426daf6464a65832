//! The tools of this server, one for each risk: a table of their descriptions, and of the program that runs each call.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use cp_common::{Error, Result, words};
use cp_schema::Schema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The table.
#[derive(Deserialize)]
struct Table {
    /// The output schema of tools whose answer is text.
    text: Value,
    tools: Vec<Tool>,
}

/// A tool.
#[derive(Deserialize)]
pub(super) struct Tool {
    run: Run,
    /// The tool for `tools/list`.
    #[serde(flatten)]
    pub(super) listed: Map<String, Value>,
    #[serde(skip)]
    arguments: OnceLock<std::result::Result<Schema, String>>,
}

/// What runs a call: a tool of cp-exec, or a program with the arguments as options.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Run {
    exec: String,
    operation: Option<String>,
    argv: Vec<String>,
    /// The options of arguments whose names differ.
    options: BTreeMap<String, String>,
    /// The argument that is the program's input.
    stdin: String,
    /// The argument that is its operand, or its operands.
    operand: String,
    /// The argument that is a command line, whose words are the operands if it is one command.
    line: String,
    /// True if it reads all sessions, which is the default of the argument of this name.
    all: bool,
}

/// The action of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// A tool of cp-exec.
    Exec { tool: String, input: Map<String, Value> },
    /// A run of a program: its arguments, its input, and whether it reads all sessions.
    Ask { program: String, words: Vec<String>, input: String, all: bool },
}

/// The tools of these names, or all tools.
pub(super) fn tools_of(names: &[String]) -> Result<Vec<Tool>> {
    let table = serde_json::from_str(include_str!("tools.json"));
    let Table { text, mut tools } = table.map_err(|e| Error::validation(format!("the tools: {e}")))?;
    if let Some(unknown) = names.iter().find(|name| !tools.iter().any(|tool| tool.name() == *name)) {
        let known: Vec<&str> = tools.iter().map(Tool::name).collect();
        let otherwise = format!("the tools are {}", known.join(", "));
        let error = Error::usage(format!("there is no tool `{unknown}`"));
        return Err(error.nearest(unknown, known.iter().copied(), &otherwise));
    }
    tools.retain(|tool| names.is_empty() || names.iter().any(|name| name == tool.name()));
    for tool in tools.iter_mut().filter(|tool| tool.listed["outputSchema"] == "text") {
        tool.listed["outputSchema"] = text.clone();
    }
    Ok(tools)
}

impl Tool {
    pub(super) fn name(&self) -> &str {
        self.listed["name"].as_str().unwrap_or_default()
    }

    /// The action of a call, after a check of its arguments.
    pub(super) fn action(&self, arguments: Map<String, Value>, root: &Path) -> Result<Action> {
        let schema = &self.listed["inputSchema"];
        let compiled = self.arguments.get_or_init(|| Schema::compile(schema.clone()));
        let compiled = compiled.as_ref().map_err(|e| Error::validation(e.clone()))?;
        let arguments = Value::Object(arguments);
        if let Some(fault) = compiled.faults(&arguments, 1).first() {
            let place = if fault.pointer.is_empty() { "the arguments" } else { &fault.pointer };
            return Err(Error::validation(format!("{place}: {}", fault.message)));
        }
        let Value::Object(mut arguments) = arguments else {
            return Err(Error::validation("the arguments: not an object"));
        };
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(default) = property.get("default") {
                arguments.entry(name).or_insert_with(|| default.clone());
            }
        }
        Ok(if self.run.argv.is_empty() { self.exec(arguments, root) } else { self.program(arguments) })
    }

    fn exec(&self, mut input: Map<String, Value>, root: &Path) -> Action {
        let Run { exec, operation, .. } = &self.run;
        // The words of one command need no bash.
        let tool = if exec == "bash" && !input.contains_key("command") { "shell" } else { exec };
        if let Some(operation) = operation {
            let path = input.get("path").and_then(Value::as_str);
            let is_list = operation == "read_file" && path.is_some_and(|path| root.join(path).is_dir());
            let operation = if is_list { "list_directory" } else { operation };
            input.insert("operation".to_owned(), operation.into());
        }
        Action::Exec { tool: tool.to_owned(), input }
    }

    fn program(&self, mut arguments: Map<String, Value>) -> Action {
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        let input = arguments.remove(&self.run.stdin).map(text).unwrap_or_default();
        let mut operands: Vec<String> = match arguments.remove(&self.run.operand) {
            Some(Value::Array(words)) => words.into_iter().map(text).collect(),
            operand => operand.into_iter().map(text).collect(),
        };
        // The program of a line with one command is known; those of other lines are decided about when they start.
        if let Some(Ok(line)) = arguments.get(&self.run.line).and_then(Value::as_str).map(words::split)
            && operands.is_empty()
        {
            operands = line.argv;
            arguments.remove(&self.run.line);
        }
        let all = self.run.all || arguments.remove("all") == Some(true.into());
        let (program, verb) = (&self.run.argv[0], &self.run.argv[1..]);
        let options = arguments.into_iter().filter_map(|(name, value)| {
            let option = self.run.options.get(&name).cloned().unwrap_or_else(|| format!("--{name}="));
            match value {
                Value::Bool(is_set) => is_set.then(|| format!("--{name}")),
                // A leading `@` would name a file.
                Value::String(text) if text.starts_with('@') && program == "cp-llm" => Some(format!("{option}@{text}")),
                Value::String(text) => Some(option + &text),
                value => Some(format!("{option}{value}")),
            }
        });
        let dashes = (!operands.is_empty()).then(|| "--".to_owned());
        let operands = dashes.into_iter().chain(operands);
        let words = verb.iter().cloned().chain(options).chain(operands).collect();
        Action::Ask { program: program.clone(), words, input, all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_has_valid_schemas_and_risk() {
        let tools = tools_of(&[]).unwrap();
        assert_eq!(tools.len(), 9);
        for tool in &tools {
            for schema in ["inputSchema", "outputSchema"] {
                Schema::compile(tool.listed[schema].clone()).unwrap();
                // Models' providers take nothing else at the top.
                assert!(tool.listed[schema]["type"] == "object" && tool.listed[schema].get("oneOf").is_none());
            }
            let reads = tool.listed["annotations"]["readOnlyHint"].as_bool().unwrap();
            let changes = ["cp_run", "cp_write", "cp_edit", "cp_prompt"].contains(&tool.name());
            assert!(reads != changes && !tool.listed.contains_key("run"), "{}", tool.name());
        }
    }
}
