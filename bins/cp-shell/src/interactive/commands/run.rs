//! `:! COMMAND`, `:cmd WORDS` and the queries of the control plane tree. A command line is run by `cp-exec` as the person's own: policy
//! decides about each program when it starts, and cp-exec asks at the same terminal if it requires approval.

use std::path::Path;
use std::process::{Command, Stdio};

use cp_common::context::options::Origin;
use cp_common::{Code, Context, Error, Result, coprocess, signals};
use serde_json::{Value, json};

use crate::interactive::console::Console;
use crate::interactive::console::keys::ask_model;
use crate::interactive::console::render::{harmless, style, value};
use crate::interactive::state::{Outcome, Standing, State};
use crate::interactive::{commands, turn};
use crate::plane::operations::{self, Host};
use crate::plane::paths::check_command;
use crate::plane::work_orders::{self, Applied};
use crate::plane::{Failure, Plane};
use crate::signals::Tracker;

/// What the model is asked for a command line.
const COMMAND_REQUEST: &str = "Answer with one command line for a POSIX shell on Linux that does what is asked: \
    a single line, no explanation, no fence. If no command does it, answer with a line that begins with #.";

/// The exit status of a line that was refused, or whose last program was, as shells give it.
const REFUSED: i32 = 126;

/// Runs a command line. One that was `proposed` by a model requires confirmation, also where policy does not ask.
pub(crate) fn run(state: &mut State<'_>, command: &str, proposed: bool) -> Result<Outcome> {
    if command.is_empty() {
        return Err(Error::usage("a command must follow `:!`").hint("write it after `:!`: :! git status"));
    }
    let State { context, console, standing, .. } = state;
    check_command(context, &standing.plane, command).inspect_err(|_| standing.tracker.denied())?;
    if proposed {
        if !console.agrees("Run it? [y/N] ") {
            standing.tracker.denied();
            return Err(Error::new(Code::Forbidden, "cancelled: nothing was run").hint("a yes at a terminal runs it"));
        }
        standing.tracker.confirmed();
    }
    let mut exec = Command::new(coprocess::find("cp-exec")?);
    exec.args(flags_of_person(context)).args(standing.plane.root_option());
    exec.args(["--format", "raw", "-c", command]);
    // cp-exec asks at a terminal, and gives the command none of it. The lines of a script are not answers.
    exec.stdin(if console.is_terminal() { Stdio::inherit() } else { Stdio::null() });
    context.out.flush()?;
    let status = exec.status().map_err(|e| Error::io("starting cp-exec", e))?.code();
    // A signal was for the command, and it has ended.
    signals::forget_interrupt();
    let is_refused = status == Some(REFUSED);
    standing.tracker.called(is_refused);
    if is_refused {
        standing.tracker.denied();
    }
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
        exit: u8::from(status != Some(0)),
        has_strip: true,
        ..Outcome::default()
    })
}

/// The flags that hand the context on, with the person as the one who asks.
fn flags_of_person(context: &mut Context) -> Vec<std::ffi::OsString> {
    let before = context.options.origin.replace(Origin::Person);
    let flags = context.handed_on();
    context.options.origin = before;
    flags
}

/// `:cmd WORDS`
pub(super) fn propose(state: &mut State<'_>, words: &str) -> Result<Outcome> {
    if words.is_empty() {
        return Err(Error::usage("what should the command do?").hint("write :cmd find the largest file here"));
    }
    turn::check_offline(state)?;
    let said = state.setup.redactor.redact_text(words).0;
    let mut asked = vec!["-s", COMMAND_REQUEST];
    for (name, value) in [("--backend", &state.model.backend), ("--model", &state.model.model)] {
        asked.extend(value.iter().flat_map(|value| [name, value.as_str()]));
    }
    asked.extend(["--", &said]);
    let answer = ask_model(&state.console, state.context, "cp-llm", &asked)?;
    let command = command_of(answer["content"].as_str().unwrap_or_default());
    if command.is_empty() || command.starts_with('#') {
        let reason = harmless(command.trim_start_matches('#').trim());
        return Ok(Outcome::of_text(format!(
            "no command does this{}\n",
            if reason.is_empty() { reason } else { format!(": {reason}") }
        )));
    }
    state.show(&format!("{}\n", style().strong(&harmless(command))))?;
    run(state, command, true)
}

/// The command in an answer, which models like to put in a fence whatever they are asked.
fn command_of(answer: &str) -> &str {
    answer.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("```")).unwrap_or_default()
}

/// A command of the table, by its whole name.
pub(super) fn query(state: &mut State<'_>, name: &str, argument: &str) -> Result<Outcome> {
    if let ("wo", Some(file)) = (name, argument.strip_prefix("apply ")) {
        let home = state.context.home.root();
        return apply(Path::new(file.trim()), home, &state.console, &mut state.standing.tracker);
    }
    let takes = commands::find(name).map_or("", |command| command.takes);
    if (argument.is_empty() && !takes.is_empty() && !takes.starts_with('[')) || (name, argument) == ("wo", "apply") {
        let takes = if name == "wo" { "apply FILE" } else { takes };
        return Err(Error::usage(format!("write :{name} {takes}")).hint(format!("`:help {name}` says more")));
    }
    operation(&mut state.standing, &format!("{name} {argument}")).unwrap_or_else(|| {
        Err(Error::usage(format!("`:{name}` takes {takes}")).hint(format!("`:help {name}` says more")))
    })
}

/// A line that names an operation; none if it does not.
pub(super) fn operation(standing: &mut Standing, line: &str) -> Option<Result<Outcome>> {
    let query = operations::parse(line)?;
    let Standing { plane, tracker, .. } = standing;
    let answered = operations::answer(plane, &query, &mut Session { tracker });
    let style = style();
    Some(
        answered
            .map(|result| Outcome { text: value(&result, style), result, ..Outcome::default() })
            .map_err(Error::from),
    )
}

/// What an operation sees of the session.
struct Session<'a> {
    tracker: &'a Tracker,
}

impl Host for Session<'_> {
    fn signal_status(&mut self, plane: &Plane) -> Value {
        self.tracker.signals(plane).status()
    }

    fn execute(&mut self, _: &Plane, _: &str) -> std::result::Result<Value, Failure> {
        Err(Failure::handler("a command for the system is run by `:!`").hint("write :! COMMAND"))
    }
}

/// `:wo apply FILE`, after a yes: the home's ledger of work orders gets an entry.
fn apply(file: &Path, home: &Path, console: &Console, tracker: &mut Tracker) -> Result<Outcome> {
    let text = std::fs::read(file)
        .map_err(|e| Error::io("reading the work order", e).in_file(file).hint("name a JSON file that can be read"))?;
    let payload: Value = serde_json::from_slice(&text).map_err(|e| {
        Error::validation(format!("the work order is not valid JSON: {e}"))
            .in_file(file)
            .hint("correct it: `jq . FILE` shows the place")
    })?;
    if !console.agrees(&format!("Put the work order of {} on the ledger of the home? [y/N] ", file.display())) {
        tracker.denied();
        return Err(Error::new(Code::ConfirmationRequired, "cancelled: nothing was applied")
            .hint("it requires approval at a terminal"));
    }
    tracker.confirmed();
    let (id, applied) = work_orders::apply(home, &payload)?;
    let text = match applied {
        Applied::New => format!("{id} was applied\n"),
        Applied::Already => format!("{id} had been applied with the same payload: nothing was done\n"),
    };
    Ok(Outcome { result: json!({"work_order_id": id}), ..Outcome::of_text(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_in_a_fence_and_without_one() {
        assert_eq!(command_of("```sh\nls -l\n```\n"), "ls -l");
        assert_eq!(command_of("\n ls -l \n"), "ls -l");
        assert_eq!(command_of(""), "");
    }
}
