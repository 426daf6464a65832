//! The tools of this server, one for each risk, and the program and arguments of each call. And its prompts: the system texts of the home's
//! agents, and registered prompts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use cp_common::spelling::nearest;
use cp_common::wire::ToolCall;
use cp_common::wire::record::{Kind, closed_line};
use cp_common::{Code, Context, Error, Result, coprocess, words};
use cp_policy::prompts::Prompts;
use cp_policy::template;
use cp_schema::Schema;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The tools for `tools/list`. [`output_schema`] replaces `"$output"`.
const TOOLS: &str = include_str!("tools.json");

/// The tool of cp-exec that runs a command line.
pub(super) const BASH: &str = "bash";

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

/// The run of a program that carries out a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub program: &'static str,
    pub words: Vec<String>,
    /// The arguments of a call of cp-exec, or the standard input of another program.
    pub input: String,
    /// The tool of cp-exec.
    pub tool: Option<&'static str>,
    /// True if it reads all sessions.
    pub all: bool,
}

impl Run {
    /// True if its answer is the result of a call of cp-exec, and not a decision about it.
    pub(super) fn is_of_result(&self) -> bool {
        self.tool.is_some() && self.words.is_empty()
    }

    /// True if its answer is text, and not data.
    pub(super) fn has_text(&self) -> bool {
        self.is_of_result() || self.program == "cp-llm"
    }

    /// The bytes for its standard input.
    pub(super) fn sent(&self, id: &str) -> Result<Vec<u8>> {
        let Some(tool) = self.tool else { return Ok(self.input.clone().into_bytes()) };
        let input = RawValue::from_string(self.input.clone()).map_err(|e| Error::validation(e.to_string()))?;
        let (id, name) = (id.to_owned(), tool.to_owned());
        closed_line(Kind::ToolCall.name(), &ToolCall { id, name, input, timeout: None, untrusted: Vec::new() })
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

    /// The tools for `tools/list`. A tool that may change nothing under the policy is not annotated as destructive.
    pub(super) fn listed(&self, context: &Context) -> Vec<Value> {
        let shown =
            coprocess::ask("cp-exec", &["policy", "show"], b"", context).and_then(|answer| answer.data::<Value>());
        let is = |pointer: &str, value: Value| shown.as_ref().is_ok_and(|shown| shown.pointer(pointer) == Some(&value));
        let writes = !is("/policy/paths/write", json!([]));
        let reaches = !is("/policy/exec/network", json!([]));
        let changes = |name: &str| writes || (reaches && name == "cp_run");
        let listed = self.0.iter().map(|tool| {
            let mut listed = tool.listed.clone();
            if listed["annotations"]["destructiveHint"] == true && !changes(&tool.name) {
                listed["annotations"]["destructiveHint"] = false.into();
            }
            listed
        });
        listed.collect()
    }

    /// True if a tool is offered.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }

    /// What a call runs, after a check of its arguments.
    pub(super) fn run(&self, name: &str, arguments: Map<String, Value>, root: &Path) -> Result<Run> {
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

fn asked(name: &str, mut arguments: Map<String, Value>, root: &Path) -> Run {
    let tool = match name {
        "cp_check" => checked_tool(&arguments),
        "cp_run" => command_tool(&arguments),
        _ => "filesystem",
    };
    let operation = match name {
        "cp_read" => {
            let path = arguments.get("path").and_then(Value::as_str).unwrap_or_default();
            Some(if root.join(path).is_dir() { "list_directory" } else { "read_file" })
        }
        "cp_write" => Some("write_file"),
        "cp_edit" => Some("edit_file"),
        _ => None,
    };
    arguments.extend(operation.map(|operation| ("operation".to_owned(), operation.into())));
    let (program, verb) = match name {
        "cp_ledger_query" => ("cp-log", "query"),
        "cp_verify" => ("cp-log", "verify"),
        "cp_session_search" => ("cp-session", "search"),
        "cp_prompt" => ("cp-llm", "--input=text"),
        _ => {
            let words = (name == "cp_check").then(|| "check".to_owned()).into_iter().collect();
            let input = Value::Object(arguments).to_string();
            return Run { program: "cp-exec", words, input, tool: Some(tool), all: false };
        }
    };
    let mut words = vec![verb.to_owned()];
    let [input, operand] = ["prompt", "query"].map(|name| arguments.remove(name));
    let all = arguments.remove("all") == Some(true.into()) || verb == "search";
    words.extend((arguments.remove("newest_first") == Some(true.into())).then(|| "--reverse".to_owned()));
    if ["query", "search"].contains(&verb) {
        arguments.entry("limit").or_insert(ENTRIES.into());
    }
    words.extend(arguments.into_iter().map(|(name, given)| {
        let value = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
        // A leading `@` would name a file.
        let escape = if name == "system" && value.starts_with('@') { "@" } else { "" };
        format!("--{name}={escape}{value}")
    }));
    let text = |value: Value| value.as_str().map(str::to_owned);
    words.extend(operand.and_then(text).into_iter().flat_map(|operand| ["--".to_owned(), operand]));
    Run { program, words, input: input.and_then(text).unwrap_or_default(), tool: None, all }
}

/// The tool of cp-exec that runs a command: words start one program, a shell runs a line.
fn command_tool(arguments: &Map<String, Value>) -> &'static str {
    if arguments.contains_key("command") { BASH } else { "shell" }
}

/// The tool of cp-exec that decides about a command before it runs. The program of a line with one command is known; the programs of other
/// lines are decided about when they start.
fn checked_tool(arguments: &Map<String, Value>) -> &'static str {
    match arguments.get("command").and_then(Value::as_str) {
        Some(line) if words::split(line).is_ok() => "shell",
        _ => command_tool(arguments),
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
    for row in registered.table().rows() {
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
    let system = coprocess::ask("cp-compose", &words, b"", context)?.data::<Value>()?;
    let text = system["system"].as_str().unwrap_or_default();
    Ok(json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, arguments: Value) -> Result<Run> {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        Tools::of(&[]).unwrap().run(name, arguments, Path::new("/"))
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
    fn arguments_become_run_or_error_with_path() {
        let input_of = |name, arguments| serde_json::from_str::<Value>(&run(name, arguments).unwrap().input).unwrap();
        let read = input_of("cp_read", json!({"path": "etc/hostname", "line": 2}));
        assert_eq!(read, json!({"path": "etc/hostname", "line": 2, "operation": "read_file"}));
        assert_eq!(input_of("cp_read", json!({"path": "etc"}))["operation"], "list_directory");
        for (name, arguments, program, words, all) in [
            (
                "cp_ledger_query",
                json!({"event": "-x", "newest_first": true, "all": true}),
                "cp-log",
                "query --reverse --event=-x --limit=50",
                true,
            ),
            ("cp_verify", json!({}), "cp-log", "verify", false),
            (
                "cp_session_search",
                json!({"query": "--help", "limit": 3}),
                "cp-session",
                "search --limit=3 -- --help",
                true,
            ),
            ("cp_prompt", json!({"prompt": "p", "system": "@/x"}), "cp-llm", "--input=text --system=@@/x", false),
        ] {
            let run = run(name, arguments).unwrap();
            assert_eq!((run.program, run.words.join(" ").as_str(), run.all), (program, words, all));
            assert_eq!(
                (run.input.as_str(), run.has_text()),
                if name == "cp_prompt" { ("p", true) } else { ("", false) }
            );
        }
        for (arguments, tool, checked) in [
            (json!({"command": "a | b"}), "bash", "bash"),
            (json!({"command": "a b"}), "bash", "shell"),
            (json!({"argv": ["a"]}), "shell", "shell"),
        ] {
            let tools = ["cp_run", "cp_check"].map(|name| run(name, arguments.clone()).unwrap().tool);
            assert_eq!(tools, [Some(tool), Some(checked)], "{arguments}");
        }
        for (name, arguments, place) in [
            ("cp_read", json!({}), "the arguments: "),
            ("cp_read", json!({"path": 1}), "/path: "),
            ("cp_run", json!({"command": "x", "shell": true}), "the arguments: "),
        ] {
            let error = run(name, arguments).unwrap_err();
            assert!(error.message().starts_with(place), "{error}");
        }
    }
}
