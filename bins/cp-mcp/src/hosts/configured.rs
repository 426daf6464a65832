//! The configuration files of hosts: where each host keeps its servers, and the text with our server added or removed.

use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use cp_hosts::{Host, Text, named, pretty, uneditable};
use serde_json::{Map, Value, json};

/// The name of our server in hosts, which is part of the name of each tool.
const NAME: &str = "cp";

/// The configuration file of a host, for a project or for the user.
pub(crate) fn file_of(host: Host, project: Option<&Path>, person: &Path) -> PathBuf {
    let directory = host.directory(project, person);
    match (host, project) {
        (Host::Claude, Some(project)) => project.join(".mcp.json"),
        // The file is next to the directory, unless the variable names one.
        (Host::Claude, None) => named("CLAUDE_CONFIG_DIR").unwrap_or_else(|| person.to_owned()).join(".claude.json"),
        (Host::Codex, _) => directory.join("config.toml"),
        (Host::Gemini, _) => directory.join("settings.json"),
        (Host::Copilot, Some(_)) => directory.join("mcp.json"),
        (Host::Copilot, None) => directory.join("mcp-config.json"),
        (Host::Opencode, _) => directory.join("opencode.json"),
    }
}

/// The member of that file that holds the servers.
const fn member(host: Host) -> &'static str {
    match host {
        Host::Claude | Host::Gemini | Host::Copilot => "mcpServers",
        Host::Codex => "mcp_servers",
        Host::Opencode => "mcp",
    }
}

/// The command of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
}

/// The entry of a server with this command.
fn entry(host: Host, argv: &[String]) -> Value {
    let (program, arguments) = (argv.first(), argv.get(1..));
    match host {
        Host::Claude => json!({"type": "stdio", "command": program, "args": arguments}),
        // Without this, Codex refuses every tool that is not read-only if it runs unattended. Our policy decides about approval.
        Host::Codex => json!({"command": program, "args": arguments, "default_tools_approval_mode": "approve"}),
        Host::Gemini => json!({"command": program, "args": arguments}),
        Host::Copilot => json!({"type": "local", "command": program, "args": arguments, "tools": ["*"]}),
        Host::Opencode => json!({"type": "local", "command": argv, "enabled": true}),
    }
}

/// Our server in the configuration of a host. Another program of that name is not ours.
fn ours(host: Host, whole: &Value) -> Option<Server> {
    let entry = &whole[member(host)][NAME];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array().into_iter().flatten().filter_map(text).collect::<Vec<_>>();
    let argv = match &entry["command"] {
        Value::String(program) => [vec![program.clone()], list(&entry["args"])].concat(),
        command => list(command),
    };
    let env = entry["env"].as_object().or_else(|| entry["environment"].as_object());
    let env = env.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect();
    let is_ours =
        argv.first().is_some_and(|program| Path::new(program).file_name().is_some_and(|name| name == "cp-mcp"));
    is_ours.then_some(Server { argv, env })
}

/// The parsed configuration. `paste` is the text for the user if the file cannot be edited.
fn whole(host: Host, text: &str, paste: &Value) -> Result<Value> {
    match host {
        Host::Codex => parse_toml(text).map_err(|e| refused(host, &e, paste)),
        _ => Text::checked(text, member(host), paste).map(|(_, value)| value),
    }
}

fn refused(host: Host, why: &str, paste: &Value) -> Error {
    let error = uneditable(why.to_owned(), paste);
    if host == Host::Codex { error.hint("correct the file, or add the text of `paste` yourself") } else { error }
}

/// Our server in the file of a host.
pub(crate) fn server(host: Host, text: &str) -> Result<Option<Server>> {
    Ok(ours(host, &whole(host, text, &Value::Null)?))
}

/// The text with our server, with this command.
pub(crate) fn with_ours(host: Host, argv: &[String], text: Option<&str>) -> Result<String> {
    let entry = entry(host, argv);
    let all = json!({ member(host): { NAME: entry } });
    let is_toml = host == Host::Codex;
    let made = if is_toml { toml_block(NAME, &entry, "\n") } else { pretty(&all, "  ") };
    let Some(text) = text else { return Ok(made + "\n") };
    let paste = if is_toml { made.into() } else { all };
    let before = whole(host, text, &paste)?;
    let there = &before[member(host)][NAME];
    // Members that the user has added are kept if the command is the same.
    if entry.as_object().into_iter().flatten().all(|(name, value)| there.get(name) == Some(value)) {
        return Ok(text.to_owned());
    }
    if !there.is_null() && ours(host, &before).is_none() {
        return Err(refused(host, &format!("`{}.{NAME}` is another server", member(host)), &paste)
            .hint("give that one another name, or put ours in yourself as `paste` shows, under another name"));
    }
    let Some(rest) = without_ours(host, text)? else { return with_ours(host, argv, None) };
    if is_toml {
        let with = append_table(&rest, NAME, &entry);
        let why = format!("a table [{}.{NAME}] cannot be added at the end of the file", member(host));
        return if server(host, &with).is_ok_and(|server| server.is_some()) {
            Ok(with)
        } else {
            Err(refused(host, &why, &paste))
        };
    }
    let (mut text, _) = Text::checked(&rest, member(host), &paste)?;
    match text.member(&[], member(host)) {
        Some(servers) => text.append(&[servers], Some(NAME), &entry),
        None => text.append(&[], Some(member(host)), &paste[member(host)]),
    }
    Ok(text.into_text())
}

/// The text without our server; `None` if the file would be empty.
pub(crate) fn without_ours(host: Host, text: &str) -> Result<Option<String>> {
    let before = whole(host, text, &Value::Null)?;
    if ours(host, &before).is_none() {
        return Ok(Some(text.to_owned()));
    }
    if host == Host::Codex {
        let without = remove_table(text, NAME);
        let after = parse_toml(without.as_deref().unwrap_or_default());
        if after.is_ok_and(|after| after[member(host)].get(NAME).is_none() && others(after) == others(before)) {
            return Ok(without);
        }
        let why = format!("`{}.{NAME}` is not a table of its own", member(host));
        return Err(refused(host, &why, &Value::Null).hint("take it out yourself"));
    }
    let (mut text, _) = Text::checked(text, member(host), &Value::Null)?;
    let servers = text.member(&[], member(host));
    let way = servers.and_then(|servers| Some([servers, text.member(&[servers], NAME)?]));
    Ok(way.is_none_or(|way| text.remove(&way)).then(|| text.into_text()))
}

/// The rest of the file, and the other servers in it.
fn others(mut whole: Value) -> (Value, Map<String, Value>) {
    let mut servers = whole[member(Host::Codex)].take().as_object().cloned().unwrap_or_default();
    servers.shift_remove(NAME);
    (whole, servers)
}

/// The table that holds the servers.
const SERVERS: &str = "mcp_servers";

/// Parses a TOML text.
fn parse_toml(text: &str) -> Result<Value, String> {
    toml::from_str(text).map_err(|e| format!("not TOML: {}", e.message()))
}

/// The table of a server, without a final line feed. Strings and lists have the same form in JSON and TOML.
fn toml_block(name: &str, entry: &Value, newline: &str) -> String {
    let members = entry.as_object().into_iter().flatten();
    members.fold(format!("[{SERVERS}.{name}]"), |text, (name, value)| format!("{text}{newline}{name} = {value}"))
}

/// The text with that table at its end, after a blank line. It ends with a line feed if the text did, so that removing the table restores
/// the text.
fn append_table(text: &str, name: &str, entry: &Value) -> String {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let block = toml_block(name, entry, newline);
    match text {
        "" => block,
        text if text.ends_with('\n') => format!("{text}{newline}{block}{newline}"),
        text => format!("{text}{newline}{newline}{block}"),
    }
}

/// The text without that table and its subtables; `None` if the file has no other content.
fn remove_table(text: &str, name: &str) -> Option<String> {
    let (own, below) = (format!("[{SERVERS}.{name}]"), format!("[{SERVERS}.{name}."));
    // The last table counts, because an earlier line may be part of a string.
    let last = text.split_inclusive('\n').filter(|line| line.trim() == own).count();
    let (mut left, mut seen) = (Vec::<&str>::new(), 0);
    // Lines between two tables belong to the second one.
    let mut between = Vec::new();
    let mut is_ours = false;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        if bare.starts_with('[') {
            seen += usize::from(bare == own);
            is_ours = bare == own && seen == last || bare.starts_with(&below);
            left.append(&mut between);
            if is_ours && left.last().is_some_and(|line| line.trim().is_empty()) {
                left.pop();
            }
        }
        match (is_ours, bare.is_empty() || bare.starts_with('#')) {
            (true, true) => between.push(line),
            (true, false) => between.clear(),
            (false, _) => left.push(line),
        }
    }
    let is_open = between.is_empty() && is_ours && !text.ends_with('\n');
    left.append(&mut between);
    let rest = left.concat();
    match rest.strip_suffix('\n').filter(|_| is_open) {
        Some(rest) => Some(rest.strip_suffix('\r').unwrap_or(rest).to_owned()),
        None => (is_open || !rest.is_empty()).then_some(rest),
    }
}
