//! The tools of this server, one for each risk, and the program and arguments of each call. And its prompts: the system
//! texts of the home's agents, and registered prompts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use cp_common::spelling::nearest;
use cp_common::{Code, Context, Error, Result, coprocess, words};
use cp_policy::prompts::Prompts;
use cp_policy::template;
use cp_schema::Schema;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// The tools for `tools/list`. [`output_schema`] replaces `"$output"`.
const TOOLS: &str = include_str!("tools.json");

/// The default limit of a query.
const ENTRIES: u64 = 50;

/// The tools that are offered.
pub(super) struct Tools(Vec<Tool>);

/// A tool.
struct Tool {
    name: String,
    /// The tool for `tools/list`.
    listed: Value,
    arguments: OnceLock<std::result::Result<Schema, String>>,
}

/// The action of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ToolAction {
    /// A tool of cp-exec.
    Do { tool: &'static str, input: Map<String, Value> },
    /// A decision of cp-exec about a command.
    Check { tool: &'static str, input: Map<String, Value> },
    /// A run of a program: its arguments, its input, and whether it reads all sessions.
    Ask { program: &'static str, words: Vec<String>, input: String, all: bool },
}

impl ToolAction {
    /// True if its answer is text, and not data.
    pub(super) fn has_text(&self) -> bool {
        match self {
            Self::Do { .. } | Self::Ask { program: "cp-llm", .. } => true,
            Self::Check { .. } | Self::Ask { .. } => false,
        }
    }
}

impl Tools {
    /// The tools of these names, or all tools.
    pub(super) fn of(names: &[String]) -> Result<Self> {
        let text = TOOLS.replace("\"$output\"", &output_schema().to_string());
        let all: Vec<Value> = serde_json::from_str(&text).map_err(|e| Error::validation(format!("the tools: {e}")))?;
        let name_of = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
        let known: Vec<String> = all.iter().map(name_of).collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            let error = Error::usage(format!("there is no tool `{unknown}`"));
            return Err(match nearest(unknown, known.iter().map(String::as_str)) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint(format!("the tools are {}", known.join(", "))),
            });
        }
        let offered = all.into_iter().map(|listed| Tool { name: name_of(&listed), listed, arguments: OnceLock::new() });
        Ok(Self(offered.filter(|tool| names.is_empty() || names.contains(&tool.name)).collect()))
    }

    /// The tools for `tools/list`.
    pub(super) fn listed(&self) -> Vec<&Value> {
        self.0.iter().map(|tool| &tool.listed).collect()
    }

    /// True if a tool is offered.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }

    /// The action of a call, after a check of its arguments.
    pub(super) fn operation(&self, name: &str, arguments: Map<String, Value>, root: &Path) -> Result<ToolAction> {
        let Some(tool) = self.0.iter().find(|tool| tool.name == name) else {
            return Err(Error::not_found(format!("there is no tool `{name}`")));
        };
        let schema = tool.arguments.get_or_init(|| Schema::compile(tool.listed["inputSchema"].clone()));
        let schema = schema.as_ref().map_err(|e| Error::validation(e.clone()))?;
        let arguments = Value::Object(arguments);
        if let Some(fault) = schema.faults(&arguments, 1).first() {
            let place = if fault.pointer.is_empty() { "the arguments".to_owned() } else { fault.pointer.clone() };
            return Err(Error::validation(format!("{place}: {}", fault.message)));
        }
        let Value::Object(arguments) = arguments else { return Err(Error::validation("the arguments: not an object")) };
        Ok(asked(name, arguments, root))
    }
}

/// The output schema of tools whose answer is text.
fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "output": { "type": "string" },
            "exit_code": { "type": ["integer", "null"] },
            "bytes": { "type": "integer", "description": "How long the whole is, where output is its beginning" },
            "resource": { "type": "string", "description": "Where the whole is" },
            "error": { "type": "object" },
        },
        "required": ["output"],
    })
}

fn asked(name: &str, mut arguments: Map<String, Value>, root: &Path) -> ToolAction {
    let files = |operation: &str, mut input: Map<String, Value>| {
        input.insert("operation".to_owned(), operation.into());
        ToolAction::Do { tool: "filesystem", input }
    };
    match name {
        "cp_check" => ToolAction::Check { tool: checked_tool(&arguments), input: arguments },
        "cp_read" => {
            let path = arguments.get("path").and_then(Value::as_str).unwrap_or_default();
            let is_directory = root.join(path).is_dir();
            files(if is_directory { "list_directory" } else { "read_file" }, arguments)
        }
        "cp_write" => files("write_file", arguments),
        "cp_edit" => files("edit_file", arguments),
        "cp_run" => ToolAction::Do { tool: command_tool(&arguments), input: arguments },
        "cp_prompt" => {
            let mut words = Vec::new();
            // A leading `@` would name a file.
            let text = |text: String| if text.starts_with('@') { format!("@{text}") } else { text };
            words.extend(taken(&mut arguments, "system").map(|system| format!("--system={}", text(system))));
            words.extend(taken(&mut arguments, "model").map(|model| format!("--model={model}")));
            words.push("--input=text".to_owned());
            let input = taken(&mut arguments, "prompt").unwrap_or_default();
            ToolAction::Ask { program: "cp-llm", words, input, all: false }
        }
        _ => {
            let (program, verb) = match name {
                "cp_session_search" => ("cp-session", "search"),
                "cp_verify" => ("cp-log", "verify"),
                _ => ("cp-log", "query"),
            };
            let mut words = vec![verb.to_owned()];
            let operand = taken(&mut arguments, "query");
            let all = arguments.remove("all") == Some(true.into()) || verb == "search";
            if arguments.remove("newest_first") == Some(true.into()) {
                words.push("--reverse".to_owned());
            }
            if verb != "verify" {
                arguments.entry("limit").or_insert(ENTRIES.into());
            }
            let value = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            words.extend(arguments.into_iter().map(|(name, given)| format!("--{name}={}", value(given))));
            words.extend(operand.into_iter().flat_map(|operand| ["--".to_owned(), operand]));
            ToolAction::Ask { program, words, input: String::new(), all }
        }
    }
}

/// The tool of cp-exec that runs a command: words start one program, a shell runs a line.
fn command_tool(arguments: &Map<String, Value>) -> &'static str {
    if arguments.contains_key("command") { "bash" } else { "shell" }
}

/// The tool of cp-exec that decides about a command before it runs. The program of a line with one command is known;
/// the programs of other lines are decided about when they start.
fn checked_tool(arguments: &Map<String, Value>) -> &'static str {
    match arguments.get("command").and_then(Value::as_str) {
        Some(line) if words::split(line).is_ok() => "shell",
        _ => command_tool(arguments),
    }
}

fn taken(arguments: &mut Map<String, Value>, name: &str) -> Option<String> {
    match arguments.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// The prefix of an agent's name.
const AGENT: &str = "agent-";

/// The result of `prompts/list`.
pub(super) fn listed_prompts(context: &Context) -> Result<Value> {
    let agents = context.home.agents::<IgnoredAny>()?;
    let mut prompts: Vec<Value> = agents
        .keys()
        .map(
            |id| json!({ "name": format!("{AGENT}{id}"), "description": format!("the system text of the agent {id}") }),
        )
        .collect();
    let registered = match Prompts::load(context) {
        Ok(registered) => registered,
        Err(error) if error.code() == Code::NotFound => return Ok(json!({ "prompts": prompts })),
        Err(error) => return Err(error),
    };
    for row in registered.table.rows() {
        let id = row.get("prompt_id");
        // A prompt that cannot be used is not offered.
        let Ok(text) = registered.text(id) else { continue };
        let argument = |name: &str| json!({ "name": name, "required": true });
        let arguments: Vec<Value> = template::variables(&text).into_iter().map(argument).collect();
        prompts.push(json!({ "name": id, "description": row.get("title"), "arguments": arguments }));
    }
    Ok(json!({ "prompts": prompts }))
}

/// The result of `prompts/get`.
pub(super) fn prompt_text(name: &str, arguments: &BTreeMap<String, String>, context: &Context) -> Result<Value> {
    let named = match name.strip_prefix(AGENT) {
        Some(agent) => format!("--agent={agent}"),
        None if name.starts_with("PRM-") => format!("--prompt={name}"),
        None => return Err(Error::not_found(format!("there is no prompt `{name}`"))),
    };
    let variables = arguments.iter().map(|(name, value)| format!("--var={name}={value}"));
    let words: Vec<String> = ["system".to_owned(), named].into_iter().chain(variables).collect();
    let system: Value = coprocess::ask("cp-compose", &words, b"", context)?;
    let text = system["system"].as_str().unwrap_or_default();
    Ok(json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(name: &str, arguments: Value) -> Result<ToolAction> {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        Tools::of(&[]).unwrap().operation(name, arguments, Path::new("/"))
    }

    #[test]
    fn tool_has_valid_schemas_and_risk() {
        let tools = Tools::of(&[]).unwrap();
        assert_eq!(tools.0.len(), 9);
        for tool in &tools.0 {
            for schema in ["inputSchema", "outputSchema"] {
                Schema::compile(tool.listed[schema].clone()).unwrap();
                // Models' providers take nothing else at the top.
                assert!(tool.listed[schema]["type"] == "object" && tool.listed[schema].get("oneOf").is_none());
            }
            let reads = tool.listed["annotations"]["readOnlyHint"].as_bool().unwrap();
            let changes = ["cp_run", "cp_write", "cp_edit", "cp_prompt"].contains(&tool.name.as_str());
            assert_ne!(reads, changes, "{}", tool.name);
        }
    }

    #[test]
    fn unknown_tool_name_is_an_error_with_suggestion() {
        let tools = Tools::of(&["cp_read".to_owned()]).unwrap();
        assert!(tools.has("cp_read") && !tools.has("cp_run") && tools.0.len() == 1);
        let Err(error) = Tools::of(&["cp_rum".to_owned()]) else { panic!() };
        assert_eq!(error.hint_text(), Some("did you mean `cp_run`?"));
    }

    #[test]
    fn arguments_become_action_or_error_with_path() {
        let read = operation("cp_read", json!({"path": "etc/hostname", "line": 2})).unwrap();
        let ToolAction::Do { tool: "filesystem", input } = read else { panic!("{read:?}") };
        assert_eq!(Value::Object(input), json!({"path": "etc/hostname", "line": 2, "operation": "read_file"}));
        let listed = operation("cp_read", json!({"path": "etc"})).unwrap();
        assert!(matches!(listed, ToolAction::Do { input, .. } if input["operation"] == "list_directory"));
        let query = operation("cp_ledger_query", json!({"event": "-x", "newest_first": true, "all": true})).unwrap();
        let ToolAction::Ask { program: "cp-log", words, all: true, .. } = query else { panic!("{query:?}") };
        assert_eq!(words, ["query", "--reverse", "--event=-x", "--limit=50"]);
        let search = operation("cp_session_search", json!({"query": "--help", "limit": 3})).unwrap();
        assert!(matches!(search, ToolAction::Ask { words, .. } if words == ["search", "--limit=3", "--", "--help"]));
        for (arguments, run, check) in [
            (json!({"command": "a | b"}), "bash", "bash"),
            (json!({"command": "a b"}), "bash", "shell"),
            (json!({"argv": ["a"]}), "shell", "shell"),
        ] {
            for (name, expected) in [("cp_run", run), ("cp_check", check)] {
                let (ToolAction::Do { tool, .. } | ToolAction::Check { tool, .. }) =
                    operation(name, arguments.clone()).unwrap()
                else {
                    panic!("{name}")
                };
                assert_eq!(tool, expected, "{name} {arguments}");
            }
        }
        let prompt = operation("cp_prompt", json!({"prompt": "p", "system": "@/etc/passwd"})).unwrap();
        assert!(matches!(prompt, ToolAction::Ask { words, .. } if words[0] == "--system=@@/etc/passwd"));
        for (name, arguments, place) in [
            ("cp_read", json!({}), "the arguments: "),
            ("cp_read", json!({"path": 1}), "/path: "),
            ("cp_run", json!({"command": "x", "shell": true}), "the arguments: "),
        ] {
            let error = operation(name, arguments).unwrap_err();
            assert!(error.message().starts_with(place), "{error}");
        }
    }
}
