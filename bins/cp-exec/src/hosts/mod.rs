//! The agents of other makers, each with a table of [`Facts`] that this program relies on, and the entries of our hook
//! in their configuration.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::ValueEnum as _;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use cp_common::home::resolved;
use cp_common::wire::quoted;
use cp_common::{Code, Context, Error, Result, json, words};
use cp_egress::Destination;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::policy::home_of;

/// The time limit that the host applies to the hook, in seconds. It is several times our own limit.
const LIMIT: u64 = 30;
/// The message after a hook failed, so that a refusal is never silent. Codex continues without a message.
const FAILED: &str = "cp-exec hook failed";

/// The names of the agents and their tables, in the order of [`Host`].
const TABLES: [(&str, &str); 5] = [
    ("claude", include_str!("claude.toml")),
    ("codex", include_str!("codex.toml")),
    ("gemini", include_str!("gemini.toml")),
    ("copilot", include_str!("copilot.toml")),
    ("opencode", include_str!("opencode.toml")),
];

/// A coding agent of another maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Host {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// GitHub Copilot CLI
    Copilot,
    /// opencode
    Opencode,
}

impl Host {
    /// Those that ask a hook before each tool call.
    pub(crate) const HOOKED: [Self; 2] = [Self::Claude, Self::Codex];

    /// The parser of the name of one of [`Self::HOOKED`].
    pub(crate) fn hooked() -> impl TypedValueParser<Value = Self> {
        let names = Self::HOOKED.iter().filter_map(Self::to_possible_value);
        PossibleValuesParser::new(names).try_map(|name| Self::from_str(&name, false))
    }

    /// The name on the command line and in the ledger.
    pub(crate) const fn name(self) -> &'static str {
        TABLES[self as usize].0
    }

    pub(crate) fn facts(self) -> &'static Facts {
        static FACTS: LazyLock<[Facts; 5]> = LazyLock::new(|| TABLES.map(|(_, text)| crate::data::parsed(text)));
        &FACTS[self as usize]
    }

    /// Its directory in a project, else that of the user.
    pub(crate) fn directory(self, project: Option<&Path>) -> PathBuf {
        let facts = self.facts();
        let (variable, below) = &facts.home;
        match (project, named(variable)) {
            (None, Some(own)) => own.join(below),
            (place, _) => place.map_or_else(person, Path::to_owned).join(&facts.directory),
        }
    }

    /// The file in which the host looks for hooks, of a project or of the user.
    pub(crate) fn hook_file(self, project: Option<&Path>) -> PathBuf {
        let hook = &self.facts().hook;
        self.directory(project).join(if project.is_some() { &hook.project } else { &hook.file })
    }
}

/// The facts about a host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facts {
    /// Its directory in a project and in the home directory of the user.
    pub directory: String,
    /// The variable that names another directory of the user, and the path below that.
    pub home: (String, String),
    /// The sandbox of a whole agent.
    pub agent: AgentFacts,
    #[serde(default)]
    pub hook: HookFacts,
    /// The tools of a host with a hook.
    #[serde(default)]
    pub tool: Vec<ToolRow>,
}

/// The sandbox of a whole agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentFacts {
    /// The command that stores a token in the state.
    pub login: Vec<String>,
    /// The domains of its service.
    pub domains: Vec<Destination>,
    /// Variables that pass: settings of its service, and keys. A `*` at the end matches any rest.
    pub environment: Vec<String>,
    /// Variables that it always gets.
    pub set: BTreeMap<String, String>,
    /// The variables that name the private state, each with its directory in the state.
    pub state: BTreeMap<String, String>,
    /// Names of telemetry and updates, whose refusal needs no message; `*.` stands for any name below.
    pub quiet: Vec<String>,
    /// Directories and members of files (`FILE#MEMBER`) of the user's own that a new state does not get.
    pub left_out: Vec<String>,
    /// Files that a new state gets from the user's own.
    pub seed: Vec<Seed>,
}

/// A file that a new state gets.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Seed {
    /// Its paths below the user's own directory of the host; the first that exists is copied.
    pub from: Vec<String>,
    /// Its path in the state.
    pub to: String,
    /// The members that are copied, as paths in which `*` stands for any name; a file without this list is copied as a
    /// whole. Members that hold credentials or run programs are not listed.
    pub members: Vec<String>,
    /// The members that name a definition, each with the table of the definitions. Without its definition a name is not
    /// copied.
    pub definitions: BTreeMap<String, String>,
}

/// The configuration of a hook.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookFacts {
    /// The file with hooks in the directory of the user, and that of a project.
    pub file: String,
    pub project: String,
    /// The events for which the host calls the hook.
    pub events: Vec<String>,
    /// Members of a handler that only this host has.
    #[serde(default)]
    pub handler: Map<String, Value>,
    /// The next step for the user after the installation.
    pub next: String,
}

/// Tools of one kind. The lists hold the names of members of a tool's input.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToolRow {
    pub names: Vec<String>,
    pub does: Does,
    /// The members that hold a command line, the input of a command, or a patch.
    pub command: Vec<String>,
    pub paths: Vec<String>,
    /// The members that hold path patterns.
    pub patterns: Vec<String>,
    /// The members that name the working directory.
    pub directory: Vec<String>,
    /// Inputs, each with the effects that the tool has in the directory /w.
    pub examples: Vec<(String, Vec<String>)>,
}

/// The kind of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Does {
    /// Runs a command line.
    Shell,
    /// Writes to the standard input of a running command.
    Stdin,
    /// Runs the command lines of a file.
    Skill,
    Read,
    Write,
    /// Changes the files that a patch names.
    Patch,
    /// Reads files below a directory, which is the working directory if no member names one.
    Search,
    /// Requests something from the network.
    Fetch,
    /// Anything that its input names, because no table has the tool.
    #[serde(skip)]
    Unknown,
    /// Nothing outside of the host. Another agent that it starts asks about its own tool calls.
    #[default]
    None,
}

impl Facts {
    /// The row of a tool.
    pub(crate) fn tool(&self, name: &str) -> Option<&ToolRow> {
        self.tool.iter().find(|row| row.names.iter().any(|known| known == name))
    }
}

/// The path in an environment variable; `None` if it is empty.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The user's home directory, as the agents determine it.
fn person() -> PathBuf {
    named("HOME").unwrap_or_else(|| home_of(rustix::process::getuid().as_raw()))
}

/// The path of a program that an update keeps: an installed release is also `current`, beside it.
fn lasting(program: PathBuf) -> PathBuf {
    let release = program.ancestors().nth(2).filter(|release| release.file_name().is_some());
    let of_current = |release: &Path| Some(release.with_file_name("current").join(program.strip_prefix(release).ok()?));
    let kept = release.and_then(of_current).filter(|kept| kept.canonicalize().is_ok_and(|file| file == program));
    kept.unwrap_or(program)
}

pub(crate) fn text_of(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| Error::validation("the path is not UTF-8").in_file(path))
}

/// The hook command: this program with its home, which no variable of a project can change. Both are absolute paths.
pub(crate) struct Command {
    pub host: Host,
    pub program: String,
    pub home: String,
    /// True inside of the agent's sandbox, where each line of its shell is decided about anyway.
    pub is_inside: bool,
}

impl Command {
    pub(crate) fn of(host: Host, context: &Context) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| Error::io("finding this program", e))?;
        let home = text_of(&resolved(context.home.root()))?;
        Ok(Self { host, program: text_of(&lasting(program))?, home, is_inside: false })
    }

    /// The command line for the host's shell. If the program is missing or killed, the line exits with 2, which is
    /// the only status that hosts accept as a refusal. After a refusal of the hook its own message is kept.
    pub(crate) fn line(&self) -> String {
        let words = [&self.program, "--home", &self.home, "hook", self.host.name()].map(quoted);
        format!("{} || {{ [ $? -eq 2 ] || echo '{FAILED}' >&2; exit 2; }}", words.join(" "))
    }

    /// The members of the host's configuration.
    fn members(&self) -> Value {
        let hook = &self.host.facts().hook;
        let mut handler = json!({"type": "command", "command": self.line(), "timeout": LIMIT});
        handler.as_object_mut().into_iter().for_each(|members| members.extend(hook.handler.clone()));
        let groups = json!([{"matcher": "*", "hooks": [handler]}]);
        let lists = hook.events.iter().map(|event| (event.clone(), groups.clone()));
        let mut all = json!({ "hooks": lists.collect::<Map<_, _>>() });
        if self.host == Host::Claude && !self.is_inside {
            all["env"] = json!({ SHELL_PREFIX: self.shell_file() });
        }
        all
    }

    /// The file of the program of [`SHELL_PREFIX`].
    pub(crate) fn shell_file(&self) -> PathBuf {
        Path::new(&self.home).join(SHELL_FILE)
    }

    /// The text of the program.
    pub(crate) fn shell_text(&self) -> String {
        let name = self.host.name();
        let words = [&self.program, "--home", &self.home, "--format", "raw", "hook", "shell", name, "--"].map(quoted);
        format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "))
    }

    /// True if Claude Code starts its command lines with our program, unchanged, according to the environment of this
    /// process, and not with another one, which for example the settings of a project name.
    pub(crate) fn is_shell(&self) -> bool {
        let named = named(SHELL_PREFIX).filter(|program| self.host == Host::Claude && *program == self.shell_file());
        named.is_some_and(|program| std::fs::read_to_string(program).is_ok_and(|text| text == self.shell_text()))
    }
}

/// Returns the text of a configuration without earlier entries of our hook, and with those that are added, once for each
/// event and after all other entries; `None` if nothing is left.
pub(crate) fn with_hook(host: Host, text: &str, added: Option<&Command>) -> Result<Option<String>> {
    let members = added.map_or(Value::Null, Command::members);
    let before = parsed(text, &members)?;
    let mut value = before.clone();
    take_out(host, "", &mut value);
    if added.is_some() {
        merge("the text", &mut value, &members).map_err(|why| uneditable(why, &members))?;
    }
    if value == before {
        return Ok(Some(text.to_owned()));
    }
    Ok((value != json!({})).then(|| format!("{value:#}\n")))
}

/// Parses a strict JSON text. `paste` is shown in an error, for the user to insert by hand.
fn parsed(text: &str, paste: &Value) -> Result<Value> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    json::check(text.as_bytes()).map_err(|fault| {
        let line = text.as_bytes()[..fault.offset.min(text.len())].split(|&byte| byte == b'\n').count();
        uneditable(format!("not strict JSON: {}", fault.reason), paste).at_line(line as u64)
    })?;
    serde_json::from_str(text).map_err(|e| uneditable(e.to_string(), paste))
}

fn uneditable(why: String, paste: &Value) -> Error {
    let hint = "correct the file, or add the JSON in `paste` by hand; files with comments are not edited";
    Error::new(Code::Conflict, why).with("rule", "format").with("paste", paste.clone()).hint(hint)
}

/// Adds members and elements, each after those that are there.
fn merge(name: &str, value: &mut Value, added: &Value) -> std::result::Result<(), String> {
    match (value, added) {
        (Value::Object(members), Value::Object(added)) => {
            for (name, one) in added {
                match members.get_mut(name) {
                    Some(own) => merge(name, own, one)?,
                    None => _ = members.insert(name.clone(), one.clone()),
                }
            }
        }
        (Value::Array(values), Value::Array(added)) => values.extend_from_slice(added),
        (value, _) => return Err(format!("{name} is already {value}")),
    }
    Ok(())
}

/// Takes our entries out of a value, and containers that have nothing else. True if nothing else is in it.
fn take_out(host: Host, name: &str, value: &mut Value) -> bool {
    let count = |value: &Value| value.as_object().map_or(0, Map::len) + value.as_array().map_or(0, Vec::len);
    let before = count(value);
    match value {
        _ if is_ours(host, name, value) => return true,
        Value::Object(members) => members.retain(|name, member| !take_out(host, name, member)),
        Value::Array(values) => values.retain_mut(|element| !take_out(host, name, element)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    before > 0 && count(value) == 0
}

/// True for our handler, a group of our handlers, and our program of [`SHELL_PREFIX`].
fn is_ours(host: Host, name: &str, value: &Value) -> bool {
    let group = value["hooks"].as_array().filter(|handlers| !handlers.is_empty());
    let is_prefix = host == Host::Claude
        && name == SHELL_PREFIX
        && value.as_str().is_some_and(|file| Path::new(file).ends_with(SHELL_FILE));
    is_prefix || is_handler(host, value) || group.is_some_and(|all| all.iter().all(|one| is_handler(host, one)))
}

/// True for a handler that runs `cp-exec hook HOST`, at any path and with any ending.
fn is_handler(host: Host, value: &Value) -> bool {
    let before = value["command"].as_str().and_then(|line| line.split_once(&format!(" hook {}", host.name())));
    let words = before.and_then(|(before, _)| words::split(before).ok());
    words.is_some_and(|words| words.argv.first().is_some_and(|program| Path::new(program).ends_with("cp-exec")))
}

/// The environment variable with the program that Claude Code puts before each command line of tools, skills, hooks and
/// servers: a script that runs `cp-exec hook shell`. It is one file without arguments, because Claude Code starts servers
/// with it directly.
pub(crate) const SHELL_PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";

/// The file of the program below a home. Commands inside of an agent use it as well, so it is not in a hidden
/// directory.
pub(crate) const SHELL_FILE: &str = "bin/claude-shell";
