//! `:! COMMAND`: a command line for the system, run by `cp-exec` as the person's own. Policy decides about each program when it starts;
//! where it requires approval, cp-exec asks at the same terminal.

use std::process::{Command, Stdio};

use cp_common::context::options::Origin;
use cp_common::{Code, Context, Error, Result, coprocess, signals};
use serde_json::json;

use crate::interactive::console::render::style;
use crate::interactive::outcome::Outcome;
use crate::interactive::state::State;
use crate::parts::check_governed;

/// The exit status of a line that was refused, or whose last program was, as shells give it.
const REFUSED: i32 = 126;

/// Runs a command line. One that was `proposed` by a model requires confirmation, also where policy does not ask.
pub(crate) fn run(state: &mut State<'_>, command: &str, proposed: bool) -> Result<Outcome> {
    if command.is_empty() {
        return Err(Error::usage("a command must follow `:!`").hint("write it after `:!`: :! git status"));
    }
    let State { context, console, standing, .. } = state;
    check_governed(context, &standing.plane, command).inspect_err(|_| standing.tracker.denied())?;
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
