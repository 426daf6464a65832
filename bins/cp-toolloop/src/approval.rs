//! Who decides about a call that needs a word: a program that was named, or else a person, later.

use std::io::Write as _;
use std::process::{Command, Stdio};

use cp_common::coprocess;
use cp_common::wire::ToolCall;
use cp_common::{Context, Error, Result};
use serde::Serialize;

use crate::journal::Decision;
use crate::tool::Tool;

/// How much of an approver's words the model is told.
const WORDS: usize = 1000;

/// What decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Approver {
    /// The program, with its arguments; none: a person.
    argv: Option<Vec<String>>,
    /// The names that the policy wants a word about; `*` stands for any run of characters.
    patterns: Vec<String>,
}

#[derive(Serialize)]
struct Question<'a> {
    run_id: &'a str,
    call: &'a ToolCall,
    tool: &'a Tool,
}

impl Approver {
    /// The approver of a command line, with what the policy of this home says.
    pub(crate) fn new(command: Option<&str>, context: &Context) -> Result<Self> {
        let argv = command.map(coprocess::command_line).transpose().map_err(Error::fatal)?;
        Ok(Self { argv, patterns: policy_patterns(context)? })
    }

    /// Whether a call of this tool needs a word.
    pub(crate) fn is_asked_about(&self, tool: &Tool) -> bool {
        tool.hints.approve || self.patterns.iter().any(|pattern| matches(pattern, &tool.name))
    }

    /// The program's decision. `None`: there is no program.
    pub(crate) fn decide(&self, run: &str, call: &ToolCall, tool: &Tool) -> Result<Option<Decision>> {
        let Some((program, arguments)) = self.argv.as_ref().and_then(|argv| argv.split_first()) else {
            return Ok(None);
        };
        let failed = |e: std::io::Error| Error::io(format!("asking {program}"), e).fatal();
        let mut question = serde_json::to_vec(&Question { run_id: run, call, tool })
            .map_err(|e| Error::new(cp_common::Code::Unknown, e.to_string()))?;
        question.push(b'\n');
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that decides without reading is free to.
            let _ = stdin.write_all(&question);
        }
        let answer = child.wait_with_output().map_err(failed)?;
        if answer.status.success() {
            return Ok(Some(Decision::Approved));
        }
        let words: String = String::from_utf8_lossy(&answer.stdout).trim().chars().take(WORDS).collect();
        Ok(Some(Decision::Denied(if words.is_empty() { "the approver said no".to_owned() } else { words })))
    }
}

/// `[tools] approve` of the policy. The rest of the file is cp-exec's to judge.
fn policy_patterns(context: &Context) -> Result<Vec<String>> {
    let file = context.home.policy_file();
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(e) => return Err(Error::config(format!("cannot read: {e}")).in_file(&file).fatal()),
    };
    let table: toml::Table = toml::from_str(&text).map_err(|e| Error::config(e.message()).in_file(&file).fatal())?;
    let Some(patterns) = table.get("tools").and_then(|tools| tools.get("approve")) else { return Ok(Vec::new()) };
    let wrong = || Error::config("tools.approve must be a list of names").in_file(&file).fatal();
    let patterns = patterns.as_array().ok_or_else(wrong)?;
    patterns.iter().map(|pattern| pattern.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

/// Whether a name is of a pattern, in which `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).filter(|at| tail.is_char_boundary(*at)).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("*", "x") && matches("de*y", "deploy") && matches("deploy", "deploy"));
        assert!(!matches("deploy", "deploy_all") && !matches("*_all", "deploy") && matches("a*b*c", "aXbYc"));
    }
}
