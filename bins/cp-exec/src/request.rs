//! Requests from a line or from the command line, parsed strictly before any decision.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use cp_common::stream::filter::Body;
use cp_common::wire::{self, quoted};
use cp_common::{Error, Result, words};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The longest request, in bytes.
const LONGEST: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Command(Command),
    File(FileOperation),
    /// Return facts about this machine, or the state of this program.
    System(SystemOperation),
    /// Call or describe an executable of a `--tools` directory.
    Tool(ToolCall),
}

impl Request {
    /// The command, if it is one.
    pub(crate) fn into_command(self) -> Result<Command> {
        let Self::Command(command) = self else {
            return Err(Error::validation("only commands are decided about: requests of the tools `shell` and `bash`"));
        };
        Ok(command)
    }
}

/// A line for a shell in the sandbox, or the arguments of one program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Command {
    #[serde(rename = "command")]
    pub line: Option<String>,
    #[serde(default)]
    pub argv: Vec<String>,
    pub cwd: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub timeout: Option<f64>,
    pub stdin: Option<String>,
    /// The token that confirms the command.
    pub confirm: Option<String>,
    /// The text that the shell runs for a line, if it is not the line itself.
    #[serde(skip)]
    pub shell_text: Option<Box<str>>,
    /// True if it stands on the command line, so that a person may have typed it.
    #[serde(skip)]
    pub typed: bool,
}

/// Formats a word as itself, or in the quotes of bash that escape bytes if it is not UTF-8.
pub(crate) fn word_text(word: &OsString) -> String {
    let escaped = |byte: &u8| match byte {
        b'\\' | b'\'' => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    let bytes = || word.as_bytes().iter().map(escaped).collect::<String>();
    word.to_str().map_or_else(|| format!("$'{}'", bytes()), str::to_owned)
}

/// A call of an executable tool.
#[derive(Clone, Debug)]
pub(crate) struct ToolCall {
    /// The name of the tool: a file in a `--tools` directory.
    pub name: String,
    /// True if the tool describes itself instead of running.
    pub describe: bool,
    pub arguments: Box<RawValue>,
    /// The time limit in seconds. The default is that of a command.
    pub timeout: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SystemOperation {
    GetInfo {},
    GetStatus {},
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    tool: String,
    operation: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

const OPERATIONS: &str = "shell and bash: execute_command; filesystem: read_file, list_directory, write_file, \
     edit_file, remove_file; system: get_info, get_status; a tool of --tools: call, describe";

/// The request, which determines the form of the answer.
pub(crate) struct Source {
    /// The id and the tool of a tool call; `None` for a bare request.
    pub call: Option<[String; 2]>,
    request: Box<RawValue>,
}

/// Only a refusal is recorded with its request.
impl Serialize for Source {
    fn serialize<S: Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        let request = without_values(&self.request);
        match &self.call {
            Some([_, name]) => json!({ "name": name, "input": request }).serialize(out),
            None => request.serialize(out),
        }
    }
}

/// Parses a line as a request. An invalid one is refused in order, like any other. `home` is the value of `~`.
pub(crate) fn of_line(body: Body<'_>, home: &str) -> Result<(Source, Result<Request>)> {
    match body {
        Body::Text(_) => Err(Error::validation("requests are JSON objects, one per line")
            .hint("for a command line use -c STRING or -- COMMAND ARG…")),
        Body::Row(row) => {
            let request = check_length(row).and_then(|()| {
                let Envelope { tool, operation, arguments } = read(row.get(), "request")?;
                if operation.is_none() && tool != "bash" {
                    return Err(refused(format!("the request names no operation of `{tool}`")).hint(OPERATIONS));
                }
                of(&tool, operation.as_deref(), arguments.map_or("{}", RawValue::get), home)
            });
            Ok((Source { call: None, request: row.to_owned() }, request))
        }
        Body::Record(record) => {
            let call: wire::ToolCall = record.read()?;
            let mut request = check_length(&call.input).and_then(|()| of(&call.name, None, call.input.get(), home));
            if let Ok(Request::Tool(tool)) = &mut request {
                tool.timeout = call.timeout;
            }
            Ok((Source { call: Some([call.id, call.name]), request: call.input }, request))
        }
    }
}

/// A request for the ledger, with the names but not the values of its variables.
fn without_values(request: &RawValue) -> Value {
    let mut value = serde_json::from_str(request.get()).unwrap_or_else(|_| Value::from(request.get()));
    // The last one is that of a record which is not valid.
    for pointer in ["/env", "/arguments/env", "/data/input/env"] {
        let variables = value.pointer_mut(pointer).and_then(Value::as_object_mut);
        variables.into_iter().flatten().for_each(|(_, value)| *value = "…".into());
    }
    value
}

/// Parses the arguments of an operation of a tool.
fn of(tool: &str, operation: Option<&str>, arguments: &str, home: &str) -> Result<Request> {
    Ok(match (tool, operation) {
        ("filesystem", _) => Request::File(of_operation(operation, arguments)?),
        ("system", _) => Request::System(of_operation(operation, arguments)?),
        ("shell" | "bash", None | Some("execute_command")) => Request::Command(command(tool, arguments, home)?),
        (name, None | Some("call" | "describe")) if !matches!(name, "shell" | "bash") => {
            let (name, arguments) = (name.to_owned(), read(arguments, "arguments")?);
            Request::Tool(ToolCall { name, describe: operation == Some("describe"), arguments, timeout: None })
        }
        (_, other) => {
            let message = format!("the tool `{tool}` has no operation `{}`", other.unwrap_or_default());
            return Err(Error::validation(message).with("rule", "operation").hint(OPERATIONS));
        }
    })
}

/// Parses an operation. If it has no name of its own, its arguments have it, as the input of a tool call does.
fn of_operation<T: DeserializeOwned>(operation: Option<&str>, arguments: &str) -> Result<T> {
    let mut members: Map<String, Value> = read(arguments, "arguments")?;
    let named = members.remove("operation");
    let Some(operation) = operation.map(Value::from).xor(named) else {
        return Err(refused("name one operation").hint(OPERATIONS));
    };
    members.insert("operation".to_owned(), operation);
    read(&Value::Object(members).to_string(), "arguments").map_err(|error| error.hint(OPERATIONS))
}

/// Parses a command of the tool `shell`, or a line for a shell of the tool `bash`.
fn command(tool: &str, arguments: &str, home: &str) -> Result<Command> {
    let mut command: Command = read(arguments, "arguments")?;
    let (has_line, has_argv) = (command.line.is_some(), !command.argv.is_empty());
    if tool == "bash" && (!has_line || has_argv || command.confirm.is_some()) {
        return Err(refused("the tool `bash` takes one `command`, and no `confirm`"));
    }
    if has_line == has_argv {
        return Err(
            refused("give either `command` or `argv`").hint(r#"{"command":"git status"} or {"argv":["git","status"]}"#)
        );
    }
    if let Some(text) = command.line.take_if(|_| tool == "shell") {
        command.argv = words::split(&text)?.with_home(home);
    }
    command.check().map(|()| command)
}

impl Command {
    /// The command of a command line of this program: a line, or words. Words that are not UTF-8 make a line, in which
    /// bash decodes them.
    pub(crate) fn of(line: Option<&str>, words: &[OsString]) -> Self {
        let texts = words.iter().map(|word| word.to_str().map(str::to_owned)).collect();
        if let (None, Some(argv)) = (line, texts) {
            return Self { argv, ..Self::default() };
        }
        let word = |word: &OsString| word.to_str().map_or_else(|| word_text(word), quoted);
        let line = line.map_or_else(|| words.iter().map(word).collect::<Vec<_>>().join(" "), str::to_owned);
        Self { line: Some(line), ..Self::default() }
    }

    /// Checks that there is a command without NUL bytes.
    pub(crate) fn check(&self) -> Result<()> {
        let (argv, has_nul) = (&self.argv, |text: &String| text.contains('\0'));
        let (is_empty, has_nul) = match &self.line {
            Some(line) => (line.trim().is_empty(), has_nul(line)),
            None => (argv.first().is_none_or(String::is_empty), argv.iter().any(has_nul)),
        };
        match (is_empty, has_nul) {
            (true, _) => Err(Error::validation("there is no command").with("rule", "empty")),
            (_, true) => Err(Error::validation("an argument contains a NUL byte").with("rule", "nul_byte")),
            _ => Ok(()),
        }
    }
}

fn check_length(value: &RawValue) -> Result<()> {
    let length = value.get().len();
    if length > LONGEST {
        return Err(Error::validation(format!("the request has {length} bytes; the limit is {LONGEST}")));
    }
    Ok(())
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, what: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| {
        let text = e.to_string();
        let reason = text.split_once(" at line").map_or(text.as_str(), |(reason, _)| reason);
        refused(format!("{what}: {reason}"))
    })
}

fn refused(why: impl Into<String>) -> Error {
    Error::validation(why).with("rule", "request")
}

/// The operations of the tool `filesystem`, and their arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum FileOperation {
    ReadFile(ReadFile),
    ListDirectory(ListDirectory),
    WriteFile(WriteFile),
    EditFile(EditFile),
    RemoveFile { path: String },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    pub path: String,
    /// The first line, from 1.
    pub line: Option<u64>,
    /// The most lines to return.
    pub lines: Option<u64>,
    /// True if each line starts with its number.
    #[serde(default)]
    pub numbered: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListDirectory {
    pub path: String,
    /// The most entries to return.
    pub limit: Option<usize>,
    /// The position at which the last page ended.
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    pub path: String,
    pub content: String,
    #[serde(default)]
    pub mode: WriteMode,
}

/// The behaviour if the file already exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WriteMode {
    /// An existing file is an error.
    #[default]
    Create,
    /// An existing file is replaced.
    Overwrite,
}

/// Replaces text of a file, or applies a patch to one or more files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    /// The file. A patch that names its files does not need it.
    pub path: Option<String>,
    /// The text to replace. An empty text creates the file.
    pub old: Option<String>,
    /// The new text.
    pub new: Option<String>,
    /// True if every occurrence is replaced. Otherwise there must be exactly one.
    #[serde(default)]
    pub all: bool,
    /// A patch (`*** Begin Patch`), instead of `old` and `new`.
    pub patch: Option<String>,
}
