//! Calls in the forms of other programs: models write the names of tools and arguments that they know. Such a call
//! becomes a call of a built-in tool before anything is decided about it, so that approvals and records have one form.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cp_common::wire::ToolCall;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::tools::tool::{BASH, Origin, Tool};

const FILESYSTEM: &str = "filesystem";
const SHELL: &str = "shell";

/// Our names, each with the names of other programs for the same.
type Names = BTreeMap<String, Vec<String>>;

/// The names that models write.
#[derive(Default, Deserialize)]
struct Table {
    tools: Names,
    /// The operations of `filesystem`, as names of tools and of operations.
    operations: Names,
    /// The arguments of every operation on files, of one operation, and of a command.
    arguments: BTreeMap<String, Names>,
    /// Arguments that have no effect here.
    ignored: Vec<String>,
    /// Arguments that are never a text.
    not_texts: Vec<String>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| serde_json::from_str(include_str!("aliases.json")).unwrap_or_default());

/// Timeouts from this value on are milliseconds, because no policy allows as many seconds.
const MILLISECONDS: f64 = 1000.0;

/// Our name for a name, if it has one.
fn own_name<'a>(names: &'a Names, name: &str) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    names.iter().find(|(own, others)| **own == name || others.contains(&name)).map(|(own, _)| own.as_str())
}

/// Brings a call into the form of the built-in tool that it means. A call of another tool of the run stays as it is.
pub(crate) fn canonicalize(call: &mut ToolCall, tools: &[Tool]) {
    let is_builtin = |name: &str| tools.iter().any(|tool| tool.name == name && tool.origin == Origin::Builtin);
    let Ok(input) = serde_json::from_str::<Value>(call.input.get()) else { return };
    let patch = run_patch(&input).filter(|_| is_builtin(FILESYSTEM));
    let name = if patch.is_some() { "apply_patch" } else { &*call.name };
    let is_own = patch.is_none() && tools.iter().any(|tool| tool.name == name);
    let (tool, operation) = match (own_name(&TABLE.tools, name), own_name(&TABLE.operations, name)) {
        _ if is_own => (name, None),
        (Some(tool), _) => (tool, None),
        (None, Some(operation)) => (FILESYSTEM, Some(operation)),
        (None, None) => return,
    };
    if !is_builtin(tool) || ![FILESYSTEM, SHELL, BASH].contains(&tool) {
        return;
    }
    // Some models write the patch itself in place of the arguments.
    let patch = patch.or_else(|| input.as_str().filter(|_| operation == Some("edit_file")));
    let mut members = match (patch, &input) {
        (Some(patch), _) => Map::from_iter([("patch".to_owned(), patch.into())]),
        (None, Value::Object(members)) => members.clone(),
        (None, _) => return,
    };
    for name in &TABLE.not_texts {
        let text = members.get(name).and_then(Value::as_str);
        if let Some(value) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            members.insert(name.clone(), value);
        }
    }
    let members = if tool == FILESYSTEM { file_members(members, operation, !is_own) } else { command_members(members) };
    if Value::Object(members.clone()) == input && tool == call.name {
        return;
    }
    if let Ok(changed) = serde_json::value::to_raw_value(&members) {
        (call.name, call.input) = (tool.to_owned(), changed);
    }
}

/// The patch of the command `apply_patch`, as Codex runs it.
fn run_patch(input: &Value) -> Option<&str> {
    match input.get("argv").or_else(|| input.get("command"))?.as_array()?.as_slice() {
        [program, patch] if program == "apply_patch" => patch.as_str(),
        _ => None,
    }
}

/// The arguments of `filesystem`; `is_foreign` if the call has the name of a tool of another program.
fn file_members(mut members: Map<String, Value>, operation: Option<&str>, is_foreign: bool) -> Map<String, Value> {
    // The form of a row of cp-exec.
    if let Some(Value::Object(nested)) = members.get("arguments").cloned() {
        members.retain(|name, _| name != "arguments" && name != "tool");
        members.extend(nested);
    }
    rename(&mut members, "file");
    let given = members.get("operation").and_then(Value::as_str).map(str::to_owned);
    let known = operation.or_else(|| own_name(&TABLE.operations, given.as_deref()?)).unwrap_or_default();
    if !known.is_empty() {
        members.insert("operation".to_owned(), known.into());
    }
    let range: Vec<u64> =
        members.get("view_range").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect();
    if let ("read_file", Some(first)) = (known, range.first()) {
        members.remove("view_range");
        members.insert("line".to_owned(), (*first).into());
        // The range may end with -1, for the end of the file.
        range.get(1).map(|last| members.insert("lines".to_owned(), (last.saturating_sub(*first) + 1).into()));
    }
    rename(&mut members, known);
    if is_foreign && known == "write_file" && given.is_none() {
        members.entry("mode").or_insert("overwrite".into());
    }
    if known == "edit_file" && given.as_deref() == Some("str_replace") {
        // Without a new text the editor removes the old one.
        members.entry("new").or_insert("".into());
    }
    members
}

/// The arguments of `shell` and `bash`.
fn command_members(mut members: Map<String, Value>) -> Map<String, Value> {
    rename(&mut members, "command");
    if let Some(words @ Value::Array(_)) = members.get("command").cloned() {
        members.remove("command");
        members.insert("argv".to_owned(), words);
    }
    if let Some(milliseconds) = members.get("timeout").and_then(Value::as_f64).filter(|given| *given >= MILLISECONDS) {
        members.insert("timeout".to_owned(), (milliseconds / MILLISECONDS).into());
    }
    members
}

/// Renames the arguments of this group, unless the argument exists, and removes those without effect.
fn rename(members: &mut Map<String, Value>, group: &str) {
    members.retain(|name, _| !TABLE.ignored.contains(name));
    let Some(names) = TABLE.arguments.get(group) else { return };
    for name in members.keys().cloned().collect::<Vec<_>>() {
        if let Some(own) = own_name(names, &name).filter(|own| !members.contains_key(*own))
            && let Some(value) = members.remove(&name)
        {
            members.insert(own.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;
    use cp_mcp_wire::Hints;

    fn tool(name: &str, origin: Origin) -> Tool {
        let input_schema = to_raw_value(&json!({"type": "object"})).unwrap();
        Tool { name: name.to_owned(), description: String::new(), input_schema, origin, hints: Hints::default() }
    }

    fn canonical(name: &str, input: &Value, tools: &[Tool]) -> (String, Value) {
        let input = to_raw_value(input).unwrap();
        let mut call =
            ToolCall { id: "c".to_owned(), name: name.to_owned(), input, timeout: None, untrusted: Vec::new() };
        canonicalize(&mut call, tools);
        (call.name, serde_json::from_str(call.input.get()).unwrap())
    }

    /// Each row has the name and the input of a call, and those that it becomes.
    #[test]
    fn foreign_call_becomes_call_of_builtin_tool() {
        let tools = [FILESYSTEM, SHELL, BASH].map(|name| tool(name, Origin::Builtin));
        let rows: Vec<(String, Value, String, Value)> =
            serde_json::from_str(include_str!("aliases_cases.json")).unwrap();
        for (name, input, expected, members) in rows {
            assert_eq!(canonical(&name, &input, &tools), (expected, members), "{name} {input}");
        }
    }

    #[test]
    fn call_of_tool_of_the_run_is_kept() {
        let own = Origin::Mcp { server: "s".to_owned(), tool: "Edit".to_owned() };
        let tools = [tool("Edit", own), tool(FILESYSTEM, Origin::Builtin)];
        let input = json!({"file_path": "a", "old_string": "x"});
        assert_eq!(canonical("Edit", &input, &tools), ("Edit".to_owned(), input.clone()));
        // A tool that the run does not have gives no access to a built-in one.
        for tools in [&tools[..1], &[]] {
            assert_eq!(canonical("Write", &input, tools), ("Write".to_owned(), input.clone()));
        }
    }
}
