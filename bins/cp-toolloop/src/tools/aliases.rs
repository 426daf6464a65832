//! Calls in the forms of other programs: models write the names of tools and arguments that they know. Such a call becomes
//! a call of a built-in tool before anything is decided about it, so that hooks, approvals and records have one form.

use cp_common::wire::ToolCall;
use serde_json::{Map, Value};

use crate::tools::tool::{BASH, Origin, Tool};

const FILESYSTEM: &str = "filesystem";
const SHELL: &str = "shell";

/// Names of tools and operations, with the operation of `filesystem` that each means.
const OPERATIONS: [(&str, &[&str]); 5] = [
    (
        "edit_file",
        &[
            "apply_patch",
            "edit",
            "multiedit",
            "multi_edit",
            "str_replace",
            "replace",
            "insert",
            "patch",
            "search_replace",
        ],
    ),
    ("write_file", &["write", "create", "create_file", "write_to_file", "overwrite"]),
    ("read_file", &["read", "view", "open", "open_file", "view_file", "read_many_files"]),
    ("remove_file", &["remove", "delete", "delete_file"]),
    ("list_directory", &["ls", "list", "list_dir", "list_files"]),
];

/// Names of tools whose operation is an argument.
const EDITORS: [&str; 3] = ["str_replace_based_edit_tool", "str_replace_editor", "text_editor"];

/// Names of the tool that runs a command line.
const SHELLS: [&str; 6] =
    ["bash", "run_shell_command", "run_terminal_cmd", "execute_command", "run_command", "terminal"];

/// Names of arguments, with the name that each means.
const MEMBERS: [(&str, &[&str]); 9] = [
    ("path", &["file_path", "filepath", "filename", "file", "absolute_path", "target_file", "dir_path", "directory"]),
    ("old", &["old_string", "old_str", "oldstring", "old_text", "oldtext"]),
    ("new", &["new_string", "new_str", "newstring", "new_text", "newtext", "insert_text"]),
    ("all", &["replace_all", "replaceall", "allow_multiple"]),
    ("patch", &["input", "diff", "patch_text", "patchtext"]),
    ("content", &["file_text", "contents", "file_content"]),
    ("limit", &["head_limit", "max_results"]),
    ("command", &["cmd", "command_line"]),
    ("cwd", &["workdir", "working_directory", "directory", "dir_path"]),
];

/// Arguments that have no effect here.
const IGNORED: [&str; 6] = ["description", "explanation", "instruction", "-n", "output_mode", "respect_git_ignore"];

/// Arguments that are never a text.
const NOT_TEXTS: [&str; 4] = ["arguments", "edits", "view_range", "timeout"];

/// Timeouts from this value on are milliseconds, because no policy allows as many seconds.
const MILLISECONDS: f64 = 1000.0;

/// The operation that a name means.
fn operation_of(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    OPERATIONS.iter().find(|(own, others)| *own == name || others.contains(&name.as_str())).map(|(own, _)| *own)
}

/// Brings a call into the form of the built-in tool that it means. A call of another tool of the run stays as it is.
pub(crate) fn canonicalize(call: &mut ToolCall, tools: &[Tool]) {
    let is_builtin = |name: &str| tools.iter().any(|tool| tool.name == name && tool.origin == Origin::Builtin);
    let lower = call.name.to_ascii_lowercase();
    let is_own = tools.iter().any(|tool| tool.name == call.name);
    let Ok(input) = serde_json::from_str::<Value>(call.input.get()) else { return };
    let patch =
        || input.pointer("/argv/1").or_else(|| input.pointer("/command/1")).filter(|_| runs_apply_patch(&input));
    let (tool, operation) = match (is_own, patch()) {
        (_, Some(_)) if is_builtin(FILESYSTEM) => (FILESYSTEM, Some("edit_file")),
        (true, _) => (call.name.as_str(), None),
        (false, _) if SHELLS.contains(&lower.as_str()) => (BASH, None),
        (false, _) if EDITORS.contains(&lower.as_str()) => (FILESYSTEM, None),
        (false, _) => (FILESYSTEM, operation_of(&lower)),
    };
    let is_known = is_own || operation.is_some() || tool == BASH || EDITORS.contains(&lower.as_str());
    if !is_known || !is_builtin(tool) || ![FILESYSTEM, SHELL, BASH].contains(&tool) {
        return;
    }
    let mut members = match (&input, patch()) {
        (_, Some(patch)) if operation == Some("edit_file") => Map::from_iter([("patch".to_owned(), patch.clone())]),
        (Value::Object(members), _) => members.clone(),
        // Some models write the patch itself in place of the arguments.
        (Value::String(text), _) if operation == Some("edit_file") => {
            Map::from_iter([("patch".to_owned(), text.clone().into())])
        }
        _ => return,
    };
    for name in NOT_TEXTS {
        let text = members.get(name).and_then(Value::as_str);
        if let Some(value) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            members.insert(name.to_owned(), value);
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

/// True if a command is `apply_patch` with a patch, as Codex runs it.
fn runs_apply_patch(input: &Value) -> bool {
    let words = input.get("argv").or_else(|| input.get("command")).and_then(Value::as_array);
    words.is_some_and(|words| words.len() == 2 && words[0] == "apply_patch")
}

/// The arguments of `filesystem`; `is_foreign` if the call has the name of a tool of another program.
fn file_members(mut members: Map<String, Value>, operation: Option<&str>, is_foreign: bool) -> Map<String, Value> {
    // The form of a row of cp-exec.
    if let Some(Value::Object(nested)) = members.get("arguments").cloned() {
        members.retain(|name, _| name != "arguments" && name != "tool");
        members.extend(nested);
    }
    if operation.is_none() && !members.contains_key("operation") {
        members.remove("command").map(|command| members.insert("operation".to_owned(), command));
    }
    let given = members.get("operation").and_then(Value::as_str).map(str::to_owned);
    let known = operation.or_else(|| given.as_deref().and_then(operation_of));
    if let Some(known) = known {
        members.insert("operation".to_owned(), known.into());
    }
    let range: Vec<u64> =
        members.get("view_range").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect();
    if let (Some("read_file"), Some(first)) = (known, range.first()) {
        members.remove("view_range");
        members.insert("line".to_owned(), (*first).into());
        // The range may end with -1, for the end of the file.
        range.get(1).map(|last| members.insert("lines".to_owned(), (last.saturating_sub(*first) + 1).into()));
    }
    let own = |name: &str| match known {
        // Other programs count lines here.
        Some("read_file") if is_foreign && name == "offset" => Some("line"),
        Some("read_file") if is_foreign && name == "limit" => Some("lines"),
        Some("edit_file") => member_of(name, &["path", "old", "new", "all", "patch"]),
        Some("write_file") => member_of(name, &["path", "content"]),
        _ => member_of(name, &["path", "limit"]),
    };
    rename(&mut members, own);
    let edits = members.get_mut("edits").and_then(Value::as_array_mut).into_iter().flatten();
    for edit in edits.filter_map(Value::as_object_mut) {
        rename(edit, |name| member_of(name, &["path", "old", "new", "all"]));
    }
    if is_foreign && known == Some("write_file") && given.is_none() {
        members.entry("mode").or_insert("overwrite".into());
    }
    if known == Some("edit_file") && given.as_deref() == Some("str_replace") {
        // Without a new text the editor removes the old one.
        members.entry("new").or_insert("".into());
    }
    members
}

/// The arguments of `shell` and `bash`.
fn command_members(mut members: Map<String, Value>) -> Map<String, Value> {
    rename(&mut members, |name| member_of(name, &["command", "cwd"]));
    if let Some(words @ Value::Array(_)) = members.get("command").cloned() {
        members.remove("command");
        members.insert("argv".to_owned(), words);
    }
    if let Some(milliseconds) = members.get("timeout").and_then(Value::as_f64).filter(|given| *given >= MILLISECONDS) {
        members.insert("timeout".to_owned(), (milliseconds / MILLISECONDS).into());
    }
    members
}

/// The member, of these, that a name means.
fn member_of(name: &str, members: &[&'static str]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let known = MEMBERS.iter().filter(|(own, _)| members.contains(own));
    known.clone().find(|(_, others)| others.contains(&name.as_str())).map(|(own, _)| *own)
}

/// Renames members, unless the member exists, and removes those without effect.
fn rename(members: &mut Map<String, Value>, own: impl Fn(&str) -> Option<&'static str>) {
    members.retain(|name, _| !IGNORED.contains(&name.as_str()));
    for name in members.keys().cloned().collect::<Vec<_>>() {
        if let Some(own) = own(&name).filter(|own| !members.contains_key(*own))
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
    use crate::tools::tool::Hints;

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

    #[test]
    fn foreign_call_becomes_call_of_builtin_tool() {
        let tools = [FILESYSTEM, SHELL, BASH].map(|name| tool(name, Origin::Builtin));
        let patch = "*** Begin Patch\n*** End Patch";
        let edit = |more: Value| {
            let mut edit = json!({"operation": "edit_file"});
            edit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            edit
        };
        for (name, input, expected, members) in [
            ("apply_patch", json!({"input": patch}), FILESYSTEM, edit(json!({"patch": patch}))),
            ("apply_patch", json!(patch), FILESYSTEM, edit(json!({"patch": patch}))),
            ("shell", json!({"command": ["apply_patch", patch]}), FILESYSTEM, edit(json!({"patch": patch}))),
            (
                "Edit",
                json!({"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": true}),
                FILESYSTEM,
                edit(json!({"path": "a", "old": "x", "new": "y", "all": true})),
            ),
            (
                "MultiEdit",
                json!({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}),
                FILESYSTEM,
                edit(json!({"path": "a", "edits": [{"old": "x", "new": "y"}]})),
            ),
            (
                "filesystem",
                json!({"operation": "edit_file", "file_path": "a", "edits": "[{\"oldText\":\"x\",\"newText\":\"y\"}]"}),
                FILESYSTEM,
                edit(json!({"path": "a", "edits": [{"old": "x", "new": "y"}]})),
            ),
            (
                "str_replace_based_edit_tool",
                json!({"command": "str_replace", "path": "a", "old_str": "x"}),
                FILESYSTEM,
                edit(json!({"path": "a", "old": "x", "new": ""})),
            ),
            (
                "str_replace_based_edit_tool",
                json!({"command": "insert", "path": "a", "insert_line": 2, "insert_text": "x"}),
                FILESYSTEM,
                edit(json!({"path": "a", "insert_line": 2, "new": "x"})),
            ),
            (
                "str_replace_based_edit_tool",
                json!({"command": "view", "path": "a", "view_range": [3, 5]}),
                FILESYSTEM,
                json!({"operation": "read_file", "path": "a", "line": 3, "lines": 3}),
            ),
            (
                "str_replace_based_edit_tool",
                json!({"command": "create", "path": "a", "file_text": "x"}),
                FILESYSTEM,
                json!({"operation": "write_file", "path": "a", "content": "x"}),
            ),
            (
                "Write",
                json!({"file_path": "a", "content": "x"}),
                FILESYSTEM,
                json!({"operation": "write_file", "path": "a", "content": "x", "mode": "overwrite"}),
            ),
            (
                "Read",
                json!({"file_path": "a", "offset": 10, "limit": 5}),
                FILESYSTEM,
                json!({"operation": "read_file", "path": "a", "line": 10, "lines": 5}),
            ),
            (
                "filesystem",
                json!({"operation": "read_file", "path": "a", "offset": 10, "limit": 5}),
                FILESYSTEM,
                json!({"operation": "read_file", "path": "a", "offset": 10, "limit": 5}),
            ),
            (
                "filesystem",
                json!({"tool": "filesystem", "operation": "read_file", "arguments": {"path": "a"}}),
                FILESYSTEM,
                json!({"operation": "read_file", "path": "a"}),
            ),
            (
                "Bash",
                json!({"command": "ls", "description": "list", "timeout": 120_000}),
                BASH,
                json!({"command": "ls", "timeout": 120.0}),
            ),
            ("bash", json!({"command": "ls", "timeout": 90}), BASH, json!({"command": "ls", "timeout": 90})),
            ("shell", json!({"command": ["ls", "-l"]}), SHELL, json!({"argv": ["ls", "-l"]})),
            ("weather", json!({"file_path": "a"}), "weather", json!({"file_path": "a"})),
        ] {
            assert_eq!(canonical(name, &input, &tools), (expected.to_owned(), members), "{name} {input}");
        }
    }

    #[test]
    fn member_in_json_text_is_read_before_it_is_renamed() {
        let tools = [FILESYSTEM, SHELL, BASH].map(|name| tool(name, Origin::Builtin));
        for (name, input, expected, members) in [
            (
                "str_replace_based_edit_tool",
                json!({"command": "view", "path": "a", "view_range": "[3, 5]"}),
                FILESYSTEM,
                json!({"operation": "read_file", "path": "a", "line": 3, "lines": 3}),
            ),
            (
                "filesystem",
                json!({"operation": "read_file", "arguments": "{\"path\": \"a\"}"}),
                FILESYSTEM,
                json!({"operation": "read_file", "path": "a"}),
            ),
            ("bash", json!({"command": "ls", "timeout": "120000"}), BASH, json!({"command": "ls", "timeout": 120.0})),
        ] {
            assert_eq!(canonical(name, &input, &tools), (expected.to_owned(), members), "{name} {input}");
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
