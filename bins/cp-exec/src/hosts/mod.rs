//! The agents of other makers, each with a table of [`facts`], and the entries of our hook in their configuration.

pub(crate) mod facts;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::ValueEnum as _;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use cp_common::home::resolved;
use cp_common::wire::quoted;
use cp_common::{Code, Context, Error, Result, json, words};
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::facts::Facts;

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

    /// Its directory in a project, else that of the user, whose home directory is `home`.
    pub(crate) fn directory(self, project: Option<&Path>, home: &Path) -> PathBuf {
        let facts = self.facts();
        let (variable, below) = &facts.home;
        match (project, named(variable)) {
            (None, Some(own)) => own.join(below),
            (place, _) => place.unwrap_or(home).join(&facts.directory),
        }
    }

    /// The file in which the host looks for hooks, of a project or of the user.
    pub(crate) fn hook_file(self, project: Option<&Path>, home: &Path) -> PathBuf {
        let hook = &self.facts().hook;
        self.directory(project, home).join(if project.is_some() { &hook.project } else { &hook.file })
    }
}

/// The path in an environment variable; `None` if it is empty.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The user's home directory, as the agents determine it.
pub(crate) fn person() -> Option<PathBuf> {
    named("HOME")
}

/// This program and its home as absolute paths, for an agent's configuration.
pub(crate) fn own(context: &Context) -> Result<(String, String)> {
    let program = std::env::current_exe().map_err(|e| Error::io("finding this program", e))?;
    Ok((text_of(&lasting(program))?, text_of(&resolved(context.home.root()))?))
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

/// The hook command: this program with its home, which no variable of a project can change.
pub(crate) struct Command<'a> {
    pub host: Host,
    pub program: &'a str,
    pub home: &'a str,
    /// True inside of the agent's sandbox, where each line of its shell is decided about anyway.
    pub is_inside: bool,
}

impl Command<'_> {
    /// The command line for the host's shell. If the program is missing or killed, the line exits with 2, which is
    /// the only status that hosts accept as a refusal. After a refusal of the hook its own message is kept.
    pub(crate) fn line(&self) -> String {
        let words = [self.program, "--home", self.home, "hook", self.host.name()].map(quoted);
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
            all["env"] = json!({ SHELL_PREFIX: shell_file(Path::new(self.home)) });
        }
        all
    }
}

/// Returns the text with our hook, once for each event. Replaces earlier entries of our hook.
pub(crate) fn add_hook(command: &Command<'_>, text: Option<&str>) -> Result<String> {
    let (host, members, text) = (command.host, command.members(), text.unwrap_or_default());
    let mut value = parsed(text, &members)?;
    if take_ours(host, &mut value) == take_ours(host, &mut members.clone()) {
        return Ok(text.to_owned());
    }
    merge("the text", &mut value, &members).map_err(|why| uneditable(why, &members))?;
    Ok(format!("{value:#}\n"))
}

/// Returns the text without our hook; `None` if nothing is left.
pub(crate) fn remove_hook(host: Host, text: &str) -> Result<Option<String>> {
    let mut value = parsed(text, &Value::Null)?;
    if take_ours(host, &mut value).is_empty() {
        return Ok(Some(text.to_owned()));
    }
    Ok((value != json!({})).then(|| format!("{value:#}\n")))
}

/// True if a text has an entry of our hook.
pub(crate) fn has_hook(host: Host, text: &str) -> Result<bool> {
    Ok(!take_ours(host, &mut parsed(text, &Value::Null)?).is_empty())
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

/// Takes our entries out of a value, and containers that have nothing else. Returns the entries, each with the name of
/// its member or list, in an order that does not depend on the text.
fn take_ours(host: Host, value: &mut Value) -> Vec<String> {
    let mut taken = Vec::new();
    take_out(host, "", value, &mut taken);
    taken.sort();
    taken
}

/// Moves our entries from a value to `taken`. True if nothing else is in it.
fn take_out(host: Host, name: &str, value: &mut Value, taken: &mut Vec<String>) -> bool {
    if is_ours(host, name, value) {
        taken.push(format!("{name}: {value}"));
        return true;
    }
    match value {
        Value::Object(members) => {
            let count = members.len();
            members.retain(|name, member| !take_out(host, name, member, taken));
            count > 0 && members.is_empty()
        }
        Value::Array(values) => {
            let count = values.len();
            values.retain_mut(|element| !take_out(host, name, element, taken));
            count > 0 && values.is_empty()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// True for our handler, a group of our handlers, and our program of [`SHELL_PREFIX`].
fn is_ours(host: Host, name: &str, value: &Value) -> bool {
    let group = value["hooks"].as_array().filter(|handlers| !handlers.is_empty());
    let is_prefix = host == Host::Claude && name == SHELL_PREFIX && value.as_str().is_some_and(is_shell_file);
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
const FILE: &str = "bin/claude-shell";

/// The file of the program in a home.
pub(crate) fn shell_file(home: &Path) -> PathBuf {
    home.join(FILE)
}

/// True for the program of any home.
fn is_shell_file(value: &str) -> bool {
    Path::new(value).ends_with(FILE)
}

/// The text of the program.
pub(crate) fn shell_text(command: &Command<'_>) -> String {
    let name = command.host.name();
    let words = [command.program, "--home", command.home, "--format", "raw", "hook", "shell", name, "--"].map(quoted);
    format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "))
}

/// True if the program is in its file, unchanged.
pub(crate) fn is_shell_written(command: &Command<'_>) -> bool {
    std::fs::read_to_string(shell_file(Path::new(command.home))).is_ok_and(|now| now == shell_text(command))
}

/// The program that runs the command lines of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostShell {
    /// Our program, which runs them in the sandbox.
    Sandboxed,
    /// Another program, which for example the settings of a project name.
    Foreign,
    /// The shell of the host.
    Default,
}

impl HostShell {
    /// The program that Claude Code uses, according to the environment of this process.
    pub(crate) fn of(command: &Command<'_>) -> Self {
        match std::env::var_os(SHELL_PREFIX).filter(|_| command.host == Host::Claude) {
            Some(prefix) if prefix == shell_file(Path::new(command.home)) && is_shell_written(command) => {
                Self::Sandboxed
            }
            Some(_) => Self::Foreign,
            None => Self::Default,
        }
    }
}
