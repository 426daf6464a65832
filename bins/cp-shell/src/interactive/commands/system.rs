//! `:! COMMAND`: a command for the system, decided about and run by `cp-exec`, as a person's own wish. Policy decides; where it asks,
//! the person is asked.

use std::process::{Command, Stdio};

use cp_common::coprocess;
use cp_common::words::split;
use cp_common::{Code, Error};
use serde_json::{Value, json};

use crate::interactive::interrupt;
use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::render::harmless;
use crate::interactive::shell::Shell;
use crate::interactive::style;
use crate::interactive::turn::strip;
use crate::journal::ask;

/// Runs it, if that is allowed.
pub(crate) fn run(shell: &mut Shell<'_>, command: &str) -> Done {
    if command.is_empty() {
        return Err(Problem::new("there is no command", "write it after `:!`: :! git status"));
    }
    let words = split(command).map_err(Error::from)?;
    shell.plane.check_capability(&words.argv).inspect_err(|_| shell.tracker.denied())?;
    let decision = ask_person(shell, &["check", "-c", command])?;
    let confirm = match decision["decision"].as_str() {
        Some("allow") => None,
        Some("ask") => Some(confirmation(shell, command, &decision)?),
        _ => {
            shell.tracker.called(true);
            shell.tracker.denied();
            let reason = decision["reason"].as_str().unwrap_or("policy does not allow it");
            let rule = decision["rule"].as_str().unwrap_or("policy");
            let cure = match rule {
                // cp-exec sends a model to another tool; a person can allow the command.
                "not_allowed" => "allow it in config/policy.toml; `cp-exec policy init` writes a policy to begin with",
                _ => decision["hint"].as_str().unwrap_or_default(),
            };
            return Err(Problem::new(format!("denied: {reason} ({rule})"), cure));
        }
    };
    shell.tracker.called(false);
    for notice in decision["notices"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        shell.say(&format!("{}\n", style().faint(&harmless(notice))))?;
    }
    let status = started(shell, command, confirm.as_deref())?;
    let mut outcome = Outcome { result: json!({"command": command, "status": status}), ..Outcome::default() };
    outcome.calls.push(json!({"program": "cp-exec", "command": command}));
    if interrupt::seen() {
        shell.desk.forget_interruption();
        interrupt::forget();
    }
    let style = style();
    if status != Some(0) {
        outcome.failed = true;
        let left = status.map_or_else(|| "was killed".to_owned(), |status| format!("left with exit status {status}"));
        let name = words.argv.first().map(String::as_str).unwrap_or_default();
        outcome.text = style.error(&format!("{name} {left}"), None);
    }
    outcome.text.push_str(&style.faint(&strip(shell)));
    outcome.text.push('\n');
    Ok(outcome)
}

/// A yes, and the token that it buys.
fn confirmation(shell: &mut Shell<'_>, command: &str, decision: &Value) -> Result<String, Problem> {
    let reason = decision["reason"].as_str().unwrap_or("policy asks");
    let rule = decision["rule"].as_str().unwrap_or("policy");
    if !shell.desk.is_terminal() {
        shell.tracker.denied();
        return Err(Problem::new(
            format!("cancelled: policy wants a yes for it ({rule}), and there is no terminal to ask at"),
            "the next line of a script is never taken for an answer",
        ));
    }
    let shown = ask_person(shell, &["--dry-run", "-c", command])?;
    let token = shown["confirm_token"].as_str().unwrap_or_default().to_owned();
    shell.say(&format!("{}\n", style().warning(&harmless(reason))))?;
    if !shell.desk.agrees(&format!("Run {}? [y/N] ", harmless(command))) {
        shell.tracker.denied();
        return Err(Problem::new("cancelled: nothing was run", ""));
    }
    shell.tracker.confirmed();
    Ok(token)
}

/// Asks cp-exec, as the person.
fn ask_person(shell: &mut Shell<'_>, words: &[&str]) -> Result<Value, Problem> {
    let before = shell.context.options.origin.replace(cp_common::context::options::Origin::Person);
    let asked = ask(shell.context, "cp-exec", words);
    shell.context.options.origin = before;
    Ok(asked?)
}

/// Lets it run with our own output. It reads nothing: the lines that follow are ours.
fn started(shell: &mut Shell<'_>, command: &str, token: Option<&str>) -> Result<Option<i32>, Problem> {
    let before = shell.context.options.origin.replace(cp_common::context::options::Origin::Person);
    let flags = shell.context.handed_on();
    shell.context.options.origin = before;
    shell.say("")?;
    let mut exec = Command::new(coprocess::find("cp-exec")?);
    exec.args(flags)
        .args(["--format", "raw"])
        .args(token.iter().flat_map(|token| ["--confirm", token]))
        .args(["-c", command]);
    let status = exec.stdin(Stdio::null()).status();
    let status = status.map_err(|e| Error::new(Code::Io, format!("starting cp-exec: {e}")))?;
    Ok(status.code())
}
