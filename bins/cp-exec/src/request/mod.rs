//! Requests: what comes in on a line or on the command line, read strictly before anything is decided.

mod file;
mod shown;

use std::collections::BTreeMap;

use cp_common::spelling::nearest;
use cp_common::{Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::file::FILE_OPERATIONS;
pub(crate) use self::file::{
    EditFile, Encoding, EntryKind, FileOperation, Find, ListDirectory, ReadFile, RemoveFile, RestoreFiles, Search,
    WriteFile, WriteMode,
};
pub(crate) use self::shown::line_of;
use crate::lowering;
use crate::lowering::steps::{Action, Join, Part, Step, Word};

/// The longest request, in bytes.
const LONGEST: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Command(Command),
    File(FileOperation),
    /// Tell about this machine, or about this program's state.
    System(SystemOperation),
    /// Call or describe an executable of a `--tools` directory.
    Tool(ToolCall),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    /// A command line that is not read yet.
    pub string: Option<String>,
    /// One list of words; more than one is a pipeline.
    pub stages: Vec<Vec<String>>,
    /// The steps of a plan, which has no stages.
    pub steps: Vec<Step>,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    pub timeout: Option<f64>,
    pub stdin: Option<String>,
    /// A token that confirms it.
    pub confirm: Option<String>,
    /// What was noticed when its string was read.
    pub notices: Vec<String>,
}

/// A call of an executable tool.
#[derive(Clone, Debug)]
pub(crate) struct ToolCall {
    /// Its name: a file in a `--tools` directory.
    pub name: String,
    /// Whether it is asked to describe itself.
    pub describe: bool,
    pub arguments: Box<RawValue>,
    /// How many seconds it may take; none: as many as the policy gives a command.
    pub timeout: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SystemOperation {
    GetInfo,
    GetStatus,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    tool: String,
    operation: Option<String>,
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shell {
    command: Option<String>,
    argv: Option<Vec<String>>,
    pipeline: Option<Vec<Vec<String>>>,
    plan: Option<Vec<Step>>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    timeout: Option<f64>,
    stdin: Option<String>,
    confirm: Option<String>,
}

const SYSTEM_OPERATIONS: [&str; 2] = ["get_info", "get_status"];

/// Reads a bare request: `{"tool":…,"operation":…,"arguments":{…}}`.
pub(crate) fn of_row(row: &RawValue) -> Result<Request> {
    check_length(row)?;
    let envelope: Envelope = read(row.get(), "request")?;
    let arguments = match envelope.arguments {
        Some(arguments) => arguments,
        None => empty()?,
    };
    of(&envelope.tool, envelope.operation.as_deref(), arguments)
}

/// Reads the input of a tool call by its tool's name. For filesystem and system the operation is a member of the input.
pub(crate) fn of_call(name: &str, input: &RawValue) -> Result<Request> {
    check_length(input)?;
    if !matches!(name, "filesystem" | "system") {
        return of(name, None, input.to_owned());
    }
    let mut members: serde_json::Map<String, serde_json::Value> = read(input.get(), "input")?;
    let operation = members.remove("operation").and_then(|value| value.as_str().map(str::to_owned));
    let arguments = match members.remove("arguments") {
        Some(nested) if members.is_empty() => nested,
        Some(_) => return Err(Error::validation("`arguments` cannot be combined with other members")),
        None => members.into(),
    };
    let arguments = serde_json::value::to_raw_value(&arguments).map_err(|e| Error::validation(e.to_string()))?;
    of(name, operation.as_deref(), arguments)
}

fn of(tool: &str, operation: Option<&str>, arguments: Box<RawValue>) -> Result<Request> {
    match tool {
        "shell" => shell(operation, &arguments),
        "filesystem" => {
            let operation = known(tool, operation, &FILE_OPERATIONS)?;
            let tagged = format!(r#"{{"operation":"{operation}","arguments":{}}}"#, arguments.get());
            Ok(Request::File(read(&tagged, "arguments")?))
        }
        "system" => {
            let operation = known(tool, operation, &SYSTEM_OPERATIONS)?;
            let _: Nothing = read(arguments.get(), "arguments")?;
            Ok(Request::System(if operation == "get_info" {
                SystemOperation::GetInfo
            } else {
                SystemOperation::GetStatus
            }))
        }
        name => {
            let operation = known(name, operation.or(Some("call")), &["call", "describe"])?;
            Ok(Request::Tool(ToolCall {
                name: name.to_owned(),
                describe: operation == "describe",
                arguments,
                timeout: None,
            }))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn shell(operation: Option<&str>, arguments: &RawValue) -> Result<Request> {
    match operation {
        None | Some("execute_command") => {}
        Some(other) if FILE_OPERATIONS.contains(&other) => {
            return Err(Error::validation(format!("`{other}` is an operation of the tool `filesystem`"))
                .with("rule", "operation")
                .hint(format!(r#"send {{"tool":"filesystem","operation":"{other}",…}}"#)));
        }
        Some(other) if SYSTEM_OPERATIONS.contains(&other) => {
            return Err(Error::validation(format!("`{other}` is an operation of the tool `system`"))
                .with("rule", "operation")
                .hint(format!(r#"send {{"tool":"system","operation":"{other}"}}"#)));
        }
        Some(other) => {
            return Err(Error::validation(format!("the tool `shell` has no operation `{other}`"))
                .with("rule", "operation")
                .hint("its one operation is `execute_command`"));
        }
    }
    let shell: Shell = read(arguments.get(), "arguments")?;
    let mut command = Command {
        cwd: shell.cwd,
        env: shell.env,
        timeout: shell.timeout,
        stdin: shell.stdin,
        confirm: shell.confirm,
        ..Command::default()
    };
    match (shell.command, shell.argv, shell.pipeline, shell.plan) {
        (Some(text), None, None, None) => command.string = Some(text),
        (None, Some(argv), None, None) => command.stages = vec![argv],
        (None, None, Some(stages), None) => command.stages = stages,
        (None, None, None, Some(steps)) => command.steps = steps,
        _ => {
            return Err(Error::validation("give one of `command`, `argv`, `pipeline` and `plan`")
                .with("rule", "request")
                .hint(r#"{"command":"git status"} or {"argv":["git","status"]}"#));
        }
    }
    command.check()?;
    Ok(Request::Command(command))
}

impl Command {
    /// The same command as a plan of one pipeline.
    pub(crate) fn into_plan(mut self) -> Self {
        let part = |argv: Vec<String>| Part { argv: argv.into_iter().map(Word::Text).collect(), ..Part::default() };
        let pipeline = std::mem::take(&mut self.stages).into_iter().map(part).collect();
        self.steps = vec![Step { join: Join::Start, negated: false, action: Action::Pipeline(pipeline) }];
        self
    }

    /// Checks what words given outright may hold.
    pub(crate) fn check(&self) -> Result<()> {
        if self.string.is_some() {
            return Ok(());
        }
        if self.stages.is_empty() && !self.steps.is_empty() {
            return lowering::check(&self.steps)
                .map_err(|reason| Error::validation(format!("plan: {reason}")).with("rule", "request"));
        }
        let empty = self.stages.is_empty() || self.stages.iter().any(|argv| argv.first().is_none_or(String::is_empty));
        if empty {
            return Err(Error::validation("there is no command").with("rule", "empty"));
        }
        if self.stages.iter().flatten().any(|word| word.contains('\0')) {
            return Err(Error::validation("an argument contains a NUL byte").with("rule", "nul_byte"));
        }
        Ok(())
    }
}

/// The operation, if the tool has it.
fn known<'a>(tool: &str, operation: Option<&'a str>, known: &[&'static str]) -> Result<&'a str> {
    let Some(operation) = operation else {
        return Err(Error::validation(format!("the request to the tool `{tool}` has no `operation`"))
            .hint(format!("its operations are {}", known.join(", "))));
    };
    if known.contains(&operation) {
        return Ok(operation);
    }
    let error =
        Error::validation(format!("the tool `{tool}` has no operation `{operation}`")).with("rule", "operation");
    Err(match nearest(operation, known.iter().copied()) {
        Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("its operations are {}", known.join(", "))),
    })
}

fn check_length(value: &RawValue) -> Result<()> {
    let length = value.get().len();
    if length > LONGEST {
        return Err(Error::validation(format!("the request has {length} bytes; the limit is {LONGEST}")));
    }
    Ok(())
}

fn empty() -> Result<Box<RawValue>> {
    RawValue::from_string("{}".to_owned()).map_err(|e| Error::validation(e.to_string()))
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, what: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| {
        let text = e.to_string();
        let reason = text.split_once(" at line").map_or(text.as_str(), |(reason, _)| reason);
        Error::validation(format!("{what}: {reason}")).with("rule", "request")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Result<Request> {
        of_row(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn the_contracts_request_becomes_a_command() {
        let request = row(
            r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"npm run build","cwd":"~/x","timeout":60}}"#,
        );
        let Ok(Request::Command(command)) = request else { panic!("{request:?}") };
        assert_eq!(command.string.as_deref(), Some("npm run build"));
        assert_eq!(command.timeout, Some(60.0));
    }

    #[test]
    fn unknown_members_operations_and_tools_in_the_wrong_place_are_refused() {
        assert!(
            row(r#"{"tool":"shell","operation":"execute_command","arguments":{"command":"a","shell":true}}"#)
                .unwrap_err()
                .message()
                .contains("shell")
        );
        let e = row(r#"{"tool":"shell","operation":"read_file","arguments":{"path":"x"}}"#).unwrap_err();
        assert!(e.message().contains("filesystem"));
        assert!(
            row(r#"{"tool":"filesystem","operation":"red_file","arguments":{"path":"x"}}"#)
                .unwrap_err()
                .hint_text()
                .unwrap()
                .contains("read_file")
        );
        assert!(row(r#"{"tool":"shell","arguments":{"command":"a","argv":["a"]}}"#).is_err());
        assert!(row(r#"{"tool":"shell","arguments":{"argv":[]}}"#).is_err());
    }

    #[test]
    fn a_tool_call_of_the_siblings_names_its_operation_inside() {
        let input = RawValue::from_string(r#"{"operation":"read_file","path":"a"}"#.to_owned()).unwrap();
        assert!(matches!(of_call("filesystem", &input), Ok(Request::File(FileOperation::ReadFile(_)))));
        let input = RawValue::from_string(r#"{"a":1}"#.to_owned()).unwrap();
        assert!(matches!(of_call("weather", &input), Ok(Request::Tool(_))));
    }
}
