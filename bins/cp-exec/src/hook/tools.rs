//! The effect of a host's tool, by its name and input: the command that it would run, and the files that it would
//! read or change.

use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde_json::{Map, Value};

use super::Tool;
use super::words::{Line, original_of};
use crate::policy::Access;
use crate::refusal::refuse;

/// The effect of a tool call.
#[derive(Debug)]
pub(crate) enum ToolEffect {
    /// Run a command line.
    Shell(Line),
    /// Read or change files.
    Files(Vec<(Access, PathBuf)>),
    /// Unknown; only the name of the tool is known.
    Other,
}

const SHELLS: [&str; 7] =
    ["bash", "shell", "local_shell", "shell_command", "exec_command", "run_shell_command", "run_terminal_command"];
/// Tools that write to the standard input of a running command, which cannot be checked.
const STDIN_TOOLS: [&str; 3] = ["write_bash", "write_powershell", "write_stdin"];
const READS: [&str; 14] = [
    "read",
    "notebookread",
    "view",
    "view_image",
    "read_file",
    "read_many_files",
    "grep",
    "search_file_content",
    "grep_search",
    "glob",
    "ls",
    "list",
    "list_directory",
    "rg",
];
const WRITES: [&str; 9] = [
    "write",
    "edit",
    "multiedit",
    "notebookedit",
    "create",
    "str_replace",
    "str_replace_editor",
    "write_file",
    "replace",
];
const PATCHES: [&str; 2] = ["apply_patch", "patch"];

/// The members that name a file or directory.
const PATH_MEMBERS: [&str; 6] = ["file_path", "filePath", "notebook_path", "path", "dir_path", "absolute_path"];
/// The members of read tools that hold path patterns.
const PATTERN_MEMBERS: [&str; 2] = ["paths", "include"];
/// The members that name a working directory.
const DIRECTORY_MEMBERS: [&str; 4] = ["workdir", "cwd", "dir_path", "directory"];

/// The command line that a tool would run.
pub(crate) fn command(tool: &Tool) -> Option<&str> {
    let is_shell = SHELLS.contains(&tool.name.to_lowercase().as_str());
    ["command", "cmd"].iter().filter(|_| is_shell).find_map(|member| text_of(&tool.input, member))
}

/// The identity of a call: its original command line, or its name and input.
pub(crate) fn call_identity(tool: &Tool) -> String {
    let Some(command) = command(tool) else { return format!("{} {}", tool.name, Value::Object(tool.input.clone())) };
    let line = Line { command: command.to_owned(), cwd: PathBuf::new(), timeout: None };
    original_of(&line).unwrap_or(line).command
}

/// The effect of a tool call in a directory. A call without the expected command or file is refused.
pub(crate) fn effect_of(tool: &Tool, cwd: &Path) -> Result<ToolEffect> {
    let Tool { name, input } = tool;
    let known = name.to_lowercase();
    let known = known.as_str();
    if SHELLS.contains(&known) {
        return line_of(tool, cwd).map(ToolEffect::Shell);
    }
    if STDIN_TOOLS.contains(&known)
        && ["input", "chars"].iter().any(|member| text_of(input, member).is_some_and(|text| !text.is_empty()))
    {
        return Err(refuse(
            "host_tool",
            format!("`{name}` writes to the standard input of a running command, which cannot be checked"),
        )
        .hint("run another command, with its input in a file or a here-document"));
    }
    let paths = if PATCHES.contains(&known) {
        patched(input)
    } else if WRITES.contains(&known) {
        named(input, Access::Write)
    } else if READS.contains(&known) {
        let mut paths = named(input, Access::Read);
        let globs = PATTERN_MEMBERS.iter().chain((known == "glob").then_some(&"pattern"));
        paths.extend(texts(input, globs).map(|pattern| (Access::Read, fixed(pattern))));
        // These tools use the working directory if they name no path.
        let looks_here =
            !matches!(known, "read" | "notebookread" | "view" | "view_image" | "read_file" | "read_many_files");
        if paths.is_empty() && looks_here {
            paths.push((Access::Read, String::new()));
        }
        paths
    } else {
        return Ok(ToolEffect::Other);
    };
    if paths.is_empty() {
        return Err(Error::validation(format!("the tool `{name}` names no file where one is looked for"))
            .with("rule", "host_tool"));
    }
    Ok(ToolEffect::Files(paths.into_iter().map(|(access, path)| (access, below(cwd, &path))).collect()))
}

fn line_of(tool: &Tool, cwd: &Path) -> Result<Line> {
    let Tool { name, input } = tool;
    let Some(command) = command(tool) else {
        return Err(
            Error::validation(format!("the tool `{name}` has no command that is one text")).with("rule", "host_tool")
        );
    };
    let place = DIRECTORY_MEMBERS.iter().find_map(|member| text_of(input, member)).unwrap_or_default();
    let timeout = input.get("timeout").and_then(Value::as_f64).filter(|limit| *limit >= 1.0);
    // All hosts with such a member count in milliseconds.
    Ok(Line { command: command.to_owned(), cwd: below(cwd, place), timeout: timeout.map(|limit| limit / 1000.0) })
}

fn named(input: &Map<String, Value>, access: Access) -> Vec<(Access, String)> {
    texts(input, PATH_MEMBERS.iter()).map(|path| (access, path.to_owned())).collect()
}

/// The texts of these members; a list gives several.
fn texts<'a>(
    input: &'a Map<String, Value>,
    members: impl Iterator<Item = &'a &'static str>,
) -> impl Iterator<Item = &'a str> {
    let values = members.filter_map(|member| input.get(*member));
    let all = values.flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
    all.filter_map(Value::as_str).filter(|text| !text.is_empty())
}

/// The directory that a pattern searches: the components before its first wildcard. A pattern that may leave the
/// directory searches everywhere.
fn fixed(pattern: &str) -> String {
    let Some(at) = pattern.find(['*', '?', '[', '{']) else { return pattern.to_owned() };
    let leaves = ["..", "{/", ",/", "{~", ",~"].iter().any(|part| pattern[at..].contains(part));
    let end = pattern[..at].rfind('/').map_or(0, |end| end + 1);
    if leaves { "/".to_owned() } else { pattern[..end].to_owned() }
}

/// The files that a patch names.
fn patched(input: &Map<String, Value>) -> Vec<(Access, String)> {
    const MARKS: [&str; 4] = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    let texts = ["command", "input", "patch", "patchText"].iter().filter_map(|member| text_of(input, member));
    let lines = texts.flat_map(str::lines).map(str::trim_start);
    let paths = lines.filter_map(|line| MARKS.iter().find_map(|mark| line.strip_prefix(mark)));
    paths.map(|path| (Access::Write, path.trim().to_owned())).collect()
}

/// Resolves a path of a tool against the host's working directory. A leading `~` is kept for the policy to expand.
fn below(cwd: &Path, path: &str) -> PathBuf {
    match path {
        "" => cwd.to_owned(),
        path if path == "~" || path.starts_with("~/") => PathBuf::from(path),
        path => cwd.join(path),
    }
}

fn text_of<'a>(input: &'a Map<String, Value>, member: &str) -> Option<&'a str> {
    input.get(member)?.as_str()
}
