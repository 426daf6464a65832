//! `-C`: a command line that the model proposes. On a terminal it runs after confirmation; elsewhere it is printed.

use std::collections::BTreeMap;
use std::fs::File;

use cp_common::coprocess::{ask_with, find, replace};
use cp_common::output::{Output, to_stderr};
use cp_common::program::terminal;
use cp_common::wire::Message;
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
    let mut words = vec![format!("--system={INSTRUCTION}"), "--input=text".to_owned()];
    words.extend(question.passed("model backend option retries timeout"));
    let message: Message = ask_with("cp-llm", &words, text.as_bytes(), [])?;
    let command = command_in(&message.content.text());
    if command.is_empty() || command.starts_with('#') {
        let reason = command.strip_prefix('#').map(|reason| format!(":{reason}")).unwrap_or_default();
        return Err(Error::not_found(format!("no command does this{reason}")));
    }
    let check = ["check", "--origin", "person", "-c", &command];
    let decision: Value = ask_with("cp-exec", &check, b"", [])?;
    let member = |name: &str| decision[name].as_str().unwrap_or_default();
    let hint = Some(member("hint")).filter(|hint| member("decision") == "deny" && !hint.is_empty());
    let policy = format!("policy: {}, {}\n", member("decision"), member("reason"));
    let policy = policy + &hint.map(|hint| format!("  Hint: {hint}\n")).unwrap_or_default();
    if !isatty(stdout()) || !terminal::is_there() {
        to_stderr(&policy);
        out.raw(format!("{command}\n").as_bytes())?;
        return Ok(0);
    }
    to_stderr(&format!("{command}\n{policy}"));
    if member("decision") != "allow" {
        return Ok(Code::Forbidden.row().exit);
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

/// Returns the first line of an answer that can be a command. Fences and invisible characters are removed, so that the
/// command that runs is the command that is shown.
fn command_in(answer: &str) -> String {
    let is_visible = |c: &char| !c.is_control() && get_general_category(*c) != GeneralCategory::Format;
    let lines = answer.lines().map(|line| line.replace('\t', " ").chars().filter(is_visible).collect::<String>());
    let mut lines = lines.map(|line| line.trim_matches(' ').to_owned());
    let line = lines.find(|line| !line.is_empty() && !line.starts_with("```")).unwrap_or_default();
    line.strip_prefix('#').map_or_else(|| line.clone(), |reason| format!("# {}", reason.trim_start()))
}
