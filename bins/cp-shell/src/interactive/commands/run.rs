//! `:! COMMAND`, `:cmd WORDS` and the queries of the control plane tree. A command line is run by `cp-exec` as the
//! person's own: policy decides about each program when it starts, and cp-exec asks at the same terminal if it requires
//! approval.

use std::ffi::OsString;
use std::path::Path;

use cp_common::context::options::Origin;
use cp_common::{Code, Context, Error, Result, coprocess, signals};
use serde_json::{Value, json};

use crate::ask;
use crate::interactive::console::Console;
use crate::interactive::console::render::{escaped, style, value};
use crate::interactive::state::{Outcome, SessionStatus, State};
use crate::interactive::{commands, turn};
use crate::plane::operations::{self, Host};
use crate::plane::work_orders::{self, Applied};
use crate::plane::{Failure, Plane};
use crate::signals::Tracker;

/// The request to the model for a command line.
const COMMAND_REQUEST: &str = "Answer with one command line for a POSIX shell on Linux that does what is asked: \
    a single line, no explanation, no fence. If no command does it, answer with a line that begins with #.";

/// The exit status if a command line, or its last program, was refused.
const REFUSED: i32 = 126;

/// Runs a command line. A line that was `proposed` by a model requires confirmation even if the policy allows it.
pub(crate) fn run(state: &mut State<'_>, command: &str, proposed: bool) -> Result<Outcome> {
    if command.is_empty() {
        return Err(Error::usage("a command must follow `:!`").hint("for example :! git status"));
    }
    let State { context, console, session_status, .. } = state;
    if proposed {
        if !console.confirm("Run it? [y/N] ") {
            session_status.tracker.denied();
            return Err(Error::new(Code::Forbidden, "cancelled: nothing was run").hint("confirm it at a terminal"));
        }
        session_status.tracker.confirmed();
    }
    let words = flags_of_person(context).into_iter().chain(["--format", "raw", "-c", command].map(OsString::from));
    let exec = coprocess::cmd(coprocess::find("cp-exec")?, words).unchecked();
    // cp-exec asks at the terminal, which the command does not get. Lines of a script are not answers.
    let exec = if console.is_terminal() { exec } else { exec.stdin_null() };
    context.out.flush()?;
    let status = exec.run().map_err(|e| Error::io("starting cp-exec", e))?.status.code();
    // The signal was for the command, which has ended.
    signals::forget_interrupt();
    let is_refused = status == Some(REFUSED);
    session_status.tracker.called(is_refused);
    if is_refused {
        session_status.tracker.denied();
    }
    let code = if is_refused { Code::Forbidden } else { Code::CommandFailed };
    let mut text = String::new();
    if status != Some(0) {
        let end = status.map_or_else(|| "was killed".to_owned(), |status| format!("exited with status {status}"));
        let name = command.split_whitespace().next().unwrap_or_default();
        text.push_str(&style().error(&format!("{name} {end}"), None));
    }
    Ok(Outcome {
        text,
        result: json!({"command": command, "status": status}),
        calls: vec![json!({"program": "cp-exec", "command": command})],
        exit: if status == Some(0) { 0 } else { code.row().exit },
        has_strip: true,
        ..Outcome::default()
    })
}

/// The flags that pass the context on, with the person as origin.
fn flags_of_person(context: &mut Context) -> Vec<OsString> {
    let before = context.options.origin.replace(Origin::Person);
    let flags = context.handed_on();
    context.options.origin = before;
    flags
}

/// `:cmd WORDS`
pub(super) fn propose(state: &mut State<'_>, words: &str) -> Result<Outcome> {
    if words.is_empty() {
        return Err(Error::usage("the description of the command is missing")
            .hint("for example :cmd find the largest file here"));
    }
    turn::check_offline(state)?;
    refuse_ungoverned(state, ":cmd")?;
    let request = state.setup.redactor.redact_text(words).0;
    let mut asked = vec!["-s", COMMAND_REQUEST];
    asked.extend(state.model.flags());
    asked.extend(["--", &request]);
    let answer = ask(state.context, "cp-llm", &asked)?;
    let command = command_of(answer["content"].as_str().unwrap_or_default());
    if command.is_empty() || command.starts_with('#') {
        let reason = escaped(command.trim_start_matches('#').trim());
        return Ok(Outcome::of_text(format!(
            "no command does this{}\n",
            if reason.is_empty() { reason } else { format!(": {reason}") }
        )));
    }
    state.show(&format!("{}\n", style().strong(&escaped(command))))?;
    run(state, command, true)
}

/// Refuses a command that sends a system text of its own, if the tree has a registry of prompts.
pub(super) fn refuse_ungoverned(state: &State<'_>, command: &str) -> Result<()> {
    if !state.session_status.plane.governs_prompts()? {
        return Ok(());
    }
    let message = format!("`{command}` sends a system text that is not a governed prompt");
    Err(Error::new(Code::Forbidden, message).with("rule", "llm.governed_prompts").hint("ask in a turn"))
}

/// The command in an answer. Models often put it in a fence.
fn command_of(answer: &str) -> &str {
    answer.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("```")).unwrap_or_default()
}

/// Runs a query command of the table, by its full name.
pub(super) fn query(state: &mut State<'_>, name: &str, argument: &str) -> Result<Outcome> {
    if let ("wo", Some(file)) = (name, argument.strip_prefix("apply ")) {
        let home = state.context.home.root();
        return apply(Path::new(file.trim()), home, &state.console, &mut state.session_status.tracker);
    }
    let takes = commands::find(name).map_or("", |command| command.takes);
    if (argument.is_empty() && !takes.is_empty() && !takes.starts_with('[')) || (name, argument) == ("wo", "apply") {
        let takes = if name == "wo" { "apply FILE" } else { takes };
        return Err(Error::usage(format!("write :{name} {takes}")).hint(format!("see `:help {name}`")));
    }
    operation(&mut state.session_status, &format!("{name} {argument}"))
        .unwrap_or_else(|| Err(Error::usage(format!("`:{name}` takes {takes}")).hint(format!("see `:help {name}`"))))
}

/// Runs an operation; `None` if the line does not name one.
pub(super) fn operation(session_status: &mut SessionStatus, line: &str) -> Option<Result<Outcome>> {
    let query = operations::parse(line)?;
    let SessionStatus { plane, tracker, .. } = session_status;
    let answered = operations::answer(plane, &query, &mut Session { tracker });
    let style = style();
    Some(
        answered
            .map(|result| Outcome { text: value(&result, style), result, ..Outcome::default() })
            .map_err(Error::from),
    )
}

/// The session in which operations run.
struct Session<'a> {
    tracker: &'a Tracker,
}

impl Host for Session<'_> {
    fn signal_status(&mut self, plane: &Plane) -> Value {
        self.tracker.signals(plane).status()
    }

    fn execute(&mut self, _: &str) -> std::result::Result<Value, Failure> {
        Err(Failure::handler("commands of the system are run with `:!`").hint("write :! COMMAND"))
    }
}

/// `:wo apply FILE`: appends a work order to the ledger of the home, after confirmation.
fn apply(file: &Path, home: &Path, console: &Console, tracker: &mut Tracker) -> Result<Outcome> {
    let text = std::fs::read(file)
        .map_err(|e| Error::io("reading the work order", e).in_file(file).hint("name a readable JSON file"))?;
    let payload: Value = serde_json::from_slice(&text).map_err(|e| {
        Error::validation(format!("the work order is not valid JSON: {e}"))
            .in_file(file)
            .hint("`jq . FILE` shows the error")
    })?;
    if !console.confirm(&format!("Append the work order in {} to the ledger of the home? [y/N] ", file.display())) {
        tracker.denied();
        return Err(Error::new(Code::ConfirmationRequired, "cancelled: nothing was applied")
            .hint("it requires approval at a terminal"));
    }
    tracker.confirmed();
    let (id, applied) = work_orders::apply(home, &payload)?;
    let text = match applied {
        Applied::New => format!("{id} was applied\n"),
        Applied::Already => format!("{id} was already applied with the same payload\n"),
    };
    Ok(Outcome { result: json!({"work_order_id": id}), ..Outcome::of_text(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_extracted_from_fence() {
        assert_eq!(command_of("```sh\nls -l\n```\n"), "ls -l");
        assert_eq!(command_of("\n ls -l \n"), "ls -l");
        assert_eq!(command_of(""), "");
    }
}
