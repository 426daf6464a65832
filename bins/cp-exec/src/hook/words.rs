//! Encodes answers in the format of each host, and rewrites command lines to run in this program.

use std::path::PathBuf;

use cp_common::wire::quoted;
use serde_json::{Map, Value, json};

/// The decision about a tool call.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The host applies its own rules.
    Pass,
    /// The tool runs with this input.
    Rewrite(Map<String, Value>),
    /// The tool runs with this input if the user agrees.
    Ask(Map<String, Value>, String),
    /// The tool does not run.
    Deny(String),
}

/// The name of the decision on the ledger, and the line that the host reads from standard output; empty if it expects
/// none. For a denial the exit status is also 2, with a message on standard error, which all hosts accept as a denial.
pub(crate) fn response(verdict: &Verdict) -> (&'static str, String) {
    let (name, decision, why, input) = match verdict {
        Verdict::Pass => return ("pass", String::new()),
        Verdict::Rewrite(input) => ("rewrite", "allow", "cp-exec runs it in its sandbox", Some(input)),
        Verdict::Ask(input, why) => ("ask", "ask", why.as_str(), Some(input)),
        Verdict::Deny(why) => ("deny", "deny", why.as_str(), None),
    };
    let mut words = json!({
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": why,
    });
    if let Some(input) = input {
        words["updatedInput"] = Value::Object(input.clone());
    }
    (name, format!("{}\n", json!({ "hookSpecificOutput": words })))
}

/// A command line of a host's shell tool.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub command: String,
    pub cwd: PathBuf,
    /// The time limit of the host, in seconds.
    pub timeout: Option<f64>,
}

/// The common parts of all rewritten commands of an event.
#[derive(Debug)]
pub(crate) struct Rewriter<'a> {
    /// The path of this program.
    pub program: &'a str,
    /// The options that pass the context on.
    pub context: &'a [String],
    /// The value of `--hosted`.
    pub hosted: &'a str,
}

impl Rewriter<'_> {
    /// The rewritten command line for the host's shell.
    pub(crate) fn of(&self, line: &Line) -> String {
        let cwd = line.cwd.display().to_string();
        let timeout = line.timeout.map(|limit| limit.to_string());
        let mut words: Vec<&str> = Vec::new();
        words.extend(self.context.iter().map(String::as_str));
        words.extend(["--hosted", self.hosted, "--format", "raw", "--cwd", &cwd]);
        words.extend(timeout.iter().flat_map(|limit| ["--timeout", limit.as_str()]));
        let words: Vec<String> = words.into_iter().map(quoted).collect();
        let (listed, program, words) = (words_for_rules(&line.command), quoted(self.program), words.join(" "));
        format!("{listed}; {program} {words} -c '{}'", line.command.replace('\'', r"'\''"))
    }
}

/// Words that a shell does not take for the name of a command.
#[rustfmt::skip]
const RESERVED: [&str; 23] = [
    "if", "then", "elif", "else", "fi", "while", "until", "for", "foreach", "select", "repeat", "do", "done", "end", "case",
    "in", "esac", "function", "coproc", "time", "!", "{", "}",
];

/// The words of each command of a line, for the rules of the host: a list that never runs. The name of a command is
/// quoted only if it has other characters than names have, because Codex has no rules for a quoted name; such a name
/// can end no list. Quotes of the line are left out, because one that the shell ends elsewhere would hide a command;
/// therefore a rule may also match text in quotes and here-documents.
fn words_for_rules(line: &str) -> String {
    let plain = line.replace("\\\n", "").replace(['\'', '"', '\\'], "");
    // A file descriptor is no word, and the target of a redirection no command.
    let plain = plain.replace("2>", ">").replace(">&", ">");
    let mut listed = "false".to_owned();
    for part in plain.split([';', '&', '|', '(', ')', '`', '\n']) {
        for (number, part) in part.split(['<', '>']).enumerate() {
            let words = part.split_whitespace().skip(usize::from(number > 0));
            let mut words = words.skip_while(|word| RESERVED.contains(word) || word.contains('='));
            listed.extend(words.next().map(|name| format!(" && {}", quoted(name))));
            listed.extend(words.map(|word| format!(" '{word}'")));
        }
    }
    listed
}

/// The original of a command line that may be a rewritten one. The caller verifies it by rewriting it again.
pub(crate) fn original_of(line: &Line) -> Option<Line> {
    // The quoted word at the end of the line.
    let words = line.command.match_indices(" -c '").map(|(at, mark)| &line.command[at + mark.len()..]);
    let mut words = words.filter_map(|word| word.strip_suffix('\'')).map(|word| word.replace(r"'\''", "\0"));
    let command = words.find(|word| !word.contains('\''))?.replace('\0', "'");
    Some(Line { command, ..line.clone() })
}
