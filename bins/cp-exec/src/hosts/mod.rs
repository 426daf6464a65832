//! The configuration of the hosts: the files of their hooks, edits that add and remove our hook, and the test that a
//! host calls it.

pub(crate) mod facts;
pub(crate) mod shell;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use cp_common::wire::quoted;
use cp_common::{Result, words};
use cp_hosts::{Host, Text, pretty, uneditable};
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::facts::Facts;
use self::shell::SHELL_PREFIX;

/// The time limit that the host applies to the hook, in seconds. It is several times our own limit.
const LIMIT: u64 = 30;
/// The message after a hook failed, so that a refusal is never silent. Codex continues without a message.
const FAILED: &str = "cp-exec hook failed";
/// The sign before the text of a file that some editors write, which JSON does not allow.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A host that asks a hook before each tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Host"))]
#[serde(rename_all = "lowercase")]
pub(crate) enum HookHost {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
}

impl HookHost {
    pub(crate) const fn agent(self) -> Host {
        match self {
            Self::Claude => Host::Claude,
            Self::Codex => Host::Codex,
        }
    }

    /// The name on the command line and in the ledger.
    pub(crate) const fn name(self) -> &'static str {
        self.agent().name()
    }

    pub(crate) fn facts(self) -> &'static Facts {
        Facts::of(self.agent())
    }

    /// The file in which the host looks for hooks, of a project or of the user.
    pub(crate) fn file(self, project: Option<&Path>, home: &Path) -> PathBuf {
        self.agent().directory(project, home).join(match self {
            // The settings that Claude Code keeps out of the repository.
            Self::Claude if project.is_some() => "settings.local.json",
            Self::Claude => "settings.json",
            Self::Codex => "hooks.json",
        })
    }

    /// The events for which the host calls the hook.
    const fn events(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["PreToolUse", "PostToolUse", "PostToolUseFailure", "SessionStart", "SessionEnd"],
            Self::Codex => &["PreToolUse", "PostToolUse", "SessionStart", "SessionEnd"],
        }
    }
}

/// The hook command: this program with its home, which no variable of a project can change.
pub(crate) struct Command<'a> {
    pub host: HookHost,
    pub program: &'a str,
    pub home: &'a str,
}

impl Command<'_> {
    fn words(&self) -> Vec<&str> {
        vec![self.program, "--home", self.home, "hook", self.host.name()]
    }

    /// The command line for the host's shell. If the program is missing or killed, the line exits with 2, which is
    /// the only status that hosts accept as a refusal. After a refusal of the hook its own message is kept.
    pub(crate) fn line(&self) -> String {
        let words: Vec<String> = self.words().into_iter().map(quoted).collect();
        format!("{} || {{ [ $? -eq 2 ] || echo '{FAILED}' >&2; exit 2; }}", words.join(" "))
    }

    /// The configuration entry for one event of the host.
    fn entry(&self) -> Value {
        let mut handler = json!({"type": "command", "command": self.line(), "timeout": LIMIT});
        if self.host == HookHost::Claude {
            handler["onFailure"] = "block".into();
        }
        json!({"matcher": "*", "hooks": [handler]})
    }
}

/// Returns the text with our hook, once for each event. Replaces earlier entries of our hook.
pub(crate) fn add_hook(command: &Command<'_>, text: Option<&str>) -> Result<String> {
    let host = command.host;
    match text {
        Some(text) if text.trim().is_empty() => return add_hook(command, None),
        Some(text) if text.starts_with(BYTE_ORDER_MARK) => {
            let edited = add_hook(command, text.strip_prefix(BYTE_ORDER_MARK))?;
            return Ok(format!("{BYTE_ORDER_MARK}{edited}"));
        }
        _ => {}
    }
    let entry = command.entry();
    let lists = host.events().iter().map(|event| ((*event).to_owned(), json!([entry])));
    let mut all = json!({ "hooks": lists.collect::<Map<_, _>>() });
    let variables = shell::variables(command);
    if let Some(variables) = &variables {
        all["env"] = variables.clone();
    }
    let rest = match text {
        None => None,
        Some(text) => {
            let edited = checked(text, &all)?;
            let value: Value = serde_json::from_str(text).unwrap_or_default();
            let has = |event: &&str| value["hooks"][event].as_array().is_some_and(|list| list.contains(&entry));
            let has_shell = variables.as_ref().is_none_or(|all| value["env"][SHELL_PREFIX] == all[SHELL_PREFIX]);
            let count = hook_entries(host, &edited).len();
            if has_shell && host.events().iter().all(has) && count == host.events().len() {
                return Ok(text.to_owned());
            }
            remove_hook(host, text)?
        }
    };
    let Some(rest) = rest else {
        return Ok(pretty(&all, "  ") + "\n");
    };
    let mut text = checked(&rest, &all)?;
    match text.member(&[], "hooks") {
        None => text.append(&[], Some("hooks"), &all["hooks"]),
        Some(hooks) => {
            for event in host.events() {
                match text.member(&[hooks], event) {
                    Some(event) => text.append(&[hooks, event], None, &entry),
                    None => text.append(&[hooks], Some(event), &json!([entry])),
                }
            }
        }
    }
    if let Some(variables) = &variables {
        shell::add(&mut text, variables)?;
    }
    Ok(text.into_text())
}

/// Returns the text without our hook; `None` if the file would be empty.
pub(crate) fn remove_hook(host: HookHost, text: &str) -> Result<Option<String>> {
    if let Some(text) = text.strip_prefix(BYTE_ORDER_MARK) {
        return Ok(remove_hook(host, text)?.map(|text| format!("{BYTE_ORDER_MARK}{text}")));
    }
    let mut edited = checked(text, &Value::Null)?;
    if let Some((way, _)) =
        shell::setting(&edited).filter(|(_, value)| host == HookHost::Claude && shell::is_ours(value))
        && !edited.remove(&way)
    {
        return Ok(None);
    }
    // In reverse order, so that the indexes of earlier entries stay valid.
    for (way, _) in hook_entries(host, &edited).into_iter().rev() {
        if !edited.remove(&way) {
            return Ok(None);
        }
    }
    Ok(Some(edited.into_text()))
}

/// The command lines of a text that run this program.
pub(crate) fn lines(host: HookHost, text: &str) -> Result<Vec<String>> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    Ok(hook_entries(host, &checked(text, &Value::Null)?).into_iter().map(|(_, line)| line).collect())
}

/// Our entries: the path of the element to remove for each, and its command line.
fn hook_entries(host: HookHost, text: &Text) -> Vec<(Vec<usize>, String)> {
    let Some(hooks) = text.member(&[], "hooks") else { return Vec::new() };
    let mut all = Vec::new();
    for event in 0..text.children(&[hooks]).len() {
        for (group, raw) in text.children(&[hooks, event]).into_iter().enumerate() {
            let way = vec![hooks, event, group];
            if let Some(line) = line_of(host, raw) {
                all.push((way, line));
                continue;
            }
            let Some(list) = text.member(&way, "hooks") else { continue };
            let handlers = text.children(&[&way[..], &[list]].concat());
            let mine: Vec<_> = handlers.into_iter().map(|raw| line_of(host, raw)).collect();
            // A group that contains only our handlers is removed as a whole.
            let is_whole = mine.iter().all(Option::is_some);
            let mine = mine.into_iter().enumerate().filter_map(|(at, line)| Some((at, line?)));
            all.extend(mine.take(if is_whole { 1 } else { usize::MAX }).map(|(handler, line)| {
                (if is_whole { way.clone() } else { [&way[..], &[list, handler]].concat() }, line)
            }));
        }
    }
    all
}

/// The command line of a handler that runs `cp-exec hook HOST`, at any path and with any ending.
fn line_of(host: HookHost, raw: &str) -> Option<String> {
    let handler: Value = serde_json::from_str(raw).ok()?;
    let line = handler["command"].as_str()?;
    program_in(host, line).is_some_and(|program| program.ends_with("cp-exec")).then(|| line.to_owned())
}

/// The program that a line runs with `hook HOST`.
pub(crate) fn program_in(host: HookHost, line: &str) -> Option<PathBuf> {
    let (before, _) = line.split_once(&format!(" hook {}", host.name()))?;
    words::split(before).ok()?.argv.into_iter().next().map(PathBuf::from)
}

/// Parses a text that can be edited. `paste` is the text for the user to insert if it cannot be edited.
fn checked(text: &str, paste: &Value) -> Result<Text> {
    let (text, value) = Text::checked(text, "hooks", paste)?;
    if value.get("env").is_some_and(|env| !env.is_object()) {
        return Err(uneditable("`env` is not an object".to_owned(), paste));
    }
    let mut lists = value["hooks"].as_object().into_iter().flatten();
    match lists.find(|(_, list)| !list.is_array()) {
        Some((event, _)) => Err(uneditable(format!("`hooks.{event}` is not an array"), paste)),
        None => Ok(text),
    }
}
