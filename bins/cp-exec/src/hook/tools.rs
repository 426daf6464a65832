//! The effect of a host's tool, by its name and input: the command that it would run, and the files that it would
//! read or change. The tables of the hosts name the members that matter; a tool that no table has is classified by
//! the names of its members.

use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde_json::{Map, Value};

use super::Tool;
use crate::hosts::{Does, ToolRow};
use crate::policy::{Access, LONGEST};
use crate::refusal::refuse;
use crate::request::Command;

/// The effect of a tool call.
#[derive(Debug)]
pub(crate) struct ToolEffect {
    pub does: Does,
    /// The command line that it would run.
    pub line: Option<Command>,
    /// The files that it would read or change.
    pub files: Vec<(Access, PathBuf)>,
}

/// Members of unknown tools that hold a line for a shell.
const LINE_MEMBERS: [&str; 2] = ["command", "cmd"];
/// Parts of the names of members that hold paths.
const PATH_PARTS: [&str; 5] = ["path", "file", "dir", "folder", "cwd"];

/// The row of a tool. One that no table has, or whose input has a member that may name a path and that the row of the
/// table does not have, may write each path that its members name.
fn row_of(tool: &Tool) -> ToolRow {
    let paths = tool.input.keys().filter(|member| is_path_member(member));
    let has_all = |row: &&ToolRow| {
        let known = [&row.command, &row.paths, &row.patterns, &row.directory];
        paths.clone().all(|member| known.iter().any(|members| members.contains(member)))
    };
    let known = tool.host.facts().tool(&tool.name).filter(has_all).cloned();
    known.unwrap_or_else(|| ToolRow { does: Does::Unknown, paths: paths.cloned().collect(), ..ToolRow::default() })
}

/// The command line that a tool would run.
pub(crate) fn command(tool: &Tool) -> Option<&str> {
    let may_run = matches!(row_of(tool).does, Does::Shell | Does::Unknown);
    LINE_MEMBERS.iter().filter(|_| may_run).find_map(|member| tool.input.get(*member)?.as_str())
}

/// The effect of a tool call in a directory. A call without the expected command or file is refused.
pub(crate) fn effect_of(tool: &Tool, cwd: &Path) -> Result<ToolEffect> {
    let Tool { name, input, .. } = tool;
    let row = row_of(tool);
    let access = |access| texts(input, &row.paths).map(move |path| (access, path.to_owned())).collect::<Vec<_>>();
    let has_line = || LINE_MEMBERS.iter().any(|member| input.contains_key(*member));
    let runs = row.does == Does::Shell || row.does == Does::Unknown && has_line();
    let line = runs.then(|| line_of(tool, &row.directory, cwd)).transpose()?;
    let paths = match row.does {
        _ if runs => Vec::new(),
        Does::Stdin if texts(input, &row.command).next().is_some() => {
            return Err(refuse(
                "host_tool",
                format!("`{name}` writes to the standard input of a running command, which cannot be checked"),
            )
            .hint("run another command, with its input in a file or a here-document"));
        }
        Does::Unknown => {
            let paths = texts(input, &row.paths).map(|path| path.strip_prefix("file://").unwrap_or(path));
            paths.map(|path| (Access::Write, path.to_owned())).collect()
        }
        Does::Shell | Does::Skill | Does::Fetch | Does::Stdin | Does::None => Vec::new(),
        Does::Patch => patched(texts(input, &row.command)),
        Does::Write => access(Access::Write),
        Does::Read => access(Access::Read),
        Does::Search => {
            let mut paths = access(Access::Read);
            paths.extend(texts(input, &row.patterns).map(|pattern| (Access::Read, fixed(pattern))));
            if paths.is_empty() {
                paths.push((Access::Read, String::new()));
            }
            paths
        }
    };
    if paths.is_empty() && matches!(row.does, Does::Patch | Does::Write | Does::Read) {
        return Err(Error::validation(format!("the tool `{name}` names no file where one is looked for"))
            .with("rule", "host_tool"));
    }
    let files = paths.into_iter().map(|(access, path)| (access, below(cwd, &path))).collect();
    Ok(ToolEffect { does: row.does, line, files })
}

fn is_path_member(member: &str) -> bool {
    let member = member.to_lowercase();
    PATH_PARTS.iter().any(|part| member.contains(part))
}

fn line_of(tool: &Tool, directory: &[String], cwd: &Path) -> Result<Command> {
    let Tool { name, input, .. } = tool;
    let Some(command) = command(tool) else {
        return Err(
            Error::validation(format!("the tool `{name}` has no command that is one text")).with("rule", "host_tool")
        );
    };
    let cwd = below(cwd, texts(input, directory).next().unwrap_or_default());
    let timeout = input.get("timeout").and_then(Value::as_f64).filter(|limit| *limit >= 1.0);
    Ok(Command {
        line: Some(command.to_owned()),
        cwd: Some(cwd.display().to_string()),
        // All hosts with such a member count in milliseconds.
        timeout: timeout.map(|limit| (limit / 1000.0).min(LONGEST)),
        ..Command::default()
    })
}

/// The texts of these members; a list gives several.
fn texts<'a>(
    input: &'a Map<String, Value>,
    members: impl IntoIterator<Item = &'a String>,
) -> impl Iterator<Item = &'a str> {
    let values = members.into_iter().filter_map(|member| input.get(member));
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
fn patched<'a>(patches: impl Iterator<Item = &'a str>) -> Vec<(Access, String)> {
    const MARKS: [&str; 4] = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    let lines = patches.flat_map(str::lines).map(str::trim_start);
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
