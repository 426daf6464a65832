//! `-C`: a command line that the model proposes. On a terminal it runs after confirmation; elsewhere it is printed.

use std::collections::BTreeMap;
use std::fs::File;

use cp_common::coprocess::{ask_with, find, replace};
use cp_common::output::{Output, to_stderr};
use cp_common::program::terminal;
use cp_common::wire::{Message, Reply as _};
use cp_common::{Code, Error, Result};
use cp_redact::Redactor;
use rustix::stdio::{dup2_stdin, stdout};
use rustix::termios::isatty;
use serde_json::Value;
use unicode_general_category::{GeneralCategory, get_general_category};

use crate::arguments::Question;
use crate::ask::read_text;

const INSTRUCTION: &str = "Answer with one command line for a POSIX shell on Linux that does what is asked: a single line, no explanation, \
    no fence. If no command does it, answer with a line that begins with #.";

/// Asks the model for a command line, outside of any conversation and without the secrets of the text.
pub(crate) fn propose(question: &Question, out: &mut Output) -> Result<u8> {
    let (text, _) = Redactor::from_environment().redact_text(&read_text(question)?.0);
    let mut words = vec![format!("--system={INSTRUCTION}"), "--input=text".to_owned(), "--extract".to_owned()];
    words.extend(question.passed("model backend option retries timeout"));
    let message: Message = ask_with("cp-llm", &words, text.as_bytes(), [])?;
    let command = command_in(&message.text())?;
    let check = ["check", "--origin", "person", "-c", &command];
    let decision: Value = ask_with("cp-exec", &check, b"", [])?;
    let member = |name: &str| decision[name].as_str().unwrap_or_default();
    let hint = Some(member("hint")).filter(|hint| member("decision") == "deny" && !hint.is_empty());
    let policy = format!("policy: {}, {}\n", member("decision"), member("reason"));
    let policy = policy + &hint.map(|hint| format!("  Hint: {hint}\n")).unwrap_or_default();
    out.raw(format!("{command}\n").as_bytes())?;
    out.flush()?;
    to_stderr(&policy);
    let denied = if member("decision") == "allow" { 0 } else { Code::Forbidden.row().exit };
    if denied > 0 || !isatty(stdout()) || !terminal::is_there() {
        return Ok(denied);
    }
    if terminal::confirms("Run it? [y/N] ")? != Some(true) {
        return Err(Error::new(Code::Forbidden, "nothing was run"));
    }
    let words = ["--origin", "person", "--format", "raw", "-c", &command];
    // The command reads nothing.
    let nothing = File::open("/dev/null").map_err(|e| Error::io("/dev/null", e))?;
    dup2_stdin(&nothing).map_err(|e| Error::io("closing standard input", e))?;
    Err(Error::io("starting cp-exec", replace(find("cp-exec")?, words, &BTreeMap::new())))
}

/// Returns the command line of an answer. Invisible characters are removed, so that the command that runs is the command
/// that is shown. Several lines are refused, because one of them can be prose, or half of a command.
fn command_in(answer: &str) -> Result<String> {
    let is_visible = |c: &char| !c.is_control() && get_general_category(*c) != GeneralCategory::Format;
    let lines = answer.lines().map(|line| line.replace('\t', " ").chars().filter(is_visible).collect::<String>());
    let lines = lines.map(|line| line.trim_matches(' ').to_owned()).filter(|line| !line.is_empty());
    match &lines.collect::<Vec<_>>()[..] {
        reasons if reasons.iter().all(|line| line.starts_with('#')) => {
            let said = format!("no command does this: {}", reasons.join(" ").trim_matches(['#', ' ']));
            Err(Error::not_found(said.trim_end_matches(": ")))
        }
        [command] => Ok(command.clone()),
        lines => Err(Error::validation(format!("the answer has {} lines, a command line has one", lines.len()))
            .hint("ask for a script with cp-ask -x TEXT, or for one line")),
    }
}
