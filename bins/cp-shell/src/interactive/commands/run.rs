//! `:! COMMAND`, the queries of the control plane tree, and the commands that show and put back the files that a turn
//! changed. A command line is run by `cp-exec` as the person's own: policy decides about each program when it starts, and
//! cp-exec asks at the same terminal if it requires approval.

use std::ffi::OsString;
use std::path::Path;

use cp_common::context::options::Origin;
use cp_common::{Code, Context, Error, Result, coprocess};
use serde_json::{Value, json};

use crate::ask;
use crate::interactive::commands;
use crate::interactive::console::render::{count, escaped, style, value};
use crate::interactive::state::{Outcome, State};
use crate::interactive::transcript::{Digest, UNDONE};
use crate::interactive::turn;
use crate::plane::operations::Host;
use crate::plane::work_orders;
use crate::plane::{Plane, Read, Request, fault};
use crate::signals::Tracker;

/// The exit status if a command line, or its last program, was refused.
const REFUSED: i32 = 126;

/// Runs a command line.
pub(crate) fn run(state: &mut State<'_>, command: &str) -> Result<Outcome> {
    if command.is_empty() {
        return Err(Error::usage("a command must follow `:!`").hint("for example :! git status"));
    }
    let State { context, console, journal, .. } = state;
    let words = flags_of_person(context).into_iter().chain(["--format", "raw", "-c", command].map(OsString::from));
    let exec = coprocess::cmd(coprocess::find("cp-exec")?, words).unchecked();
    // cp-exec asks at the terminal, which the command does not get. Lines of a script are not answers.
    let exec = if console.is_terminal() { exec } else { exec.stdin_null() };
    context.out.flush()?;
    let (ended, writes, receipt) = journal.watch(|| exec.run())?;
    let status = ended.map_err(|e| Error::io("starting cp-exec", e))?.status.code();
    state.forget_interrupt();
    let is_refused = status == Some(REFUSED);
    state.tracker.called(is_refused);
    let code = if is_refused { Code::Forbidden } else { Code::CommandFailed };
    let mut text = String::new();
    if status != Some(0) {
        let end = status.map_or_else(|| "was killed".to_owned(), |status| format!("exited with status {status}"));
        text.push_str(&style().error(&format!("the command {end}"), command_hint(status)));
    }
    Ok(Outcome {
        text,
        result: json!({"command": command, "status": status}),
        writes,
        calls: vec![json!({"program": "cp-exec", "command": command, "receipt": receipt})],
        exit: if status == Some(0) { 0 } else { code.row().exit },
        has_strip: true,
    })
}

/// What helps after a command that failed with this exit status.
pub(crate) const fn command_hint(status: Option<i32>) -> &'static str {
    match status {
        Some(REFUSED) => "the lines of cp-exec have the reason, and the line to type",
        Some(127) => "no program has this name: check the name and PATH",
        _ => "its standard error has the reason",
    }
}

/// The flags that pass the context on, with the person as origin.
fn flags_of_person(context: &mut Context) -> Vec<OsString> {
    let before = context.options.origin.replace(Origin::Person);
    let flags = context.handed_on();
    context.options.origin = before;
    flags
}

/// Runs a query command of the table, by its full name.
pub(super) fn query(state: &mut State<'_>, name: &str, argument: &str) -> Result<Outcome> {
    if let ("wo", Some(file)) = (name, argument.strip_prefix("apply")) {
        return apply(state, Path::new(file.trim()));
    }
    commands::unlisted(state, &format!("{name} {argument}"), name)
}

/// Runs an operation; `None` if the line does not name one.
pub(super) fn operation(state: &mut State<'_>, line: &str) -> Option<Result<Outcome>> {
    let query = Request::of_command(line)?;
    let answered = query.run(&state.plane, &mut state.tracker);
    Some(answered.map(|result| Outcome { text: value(&result, style()), result, ..Outcome::default() }))
}

impl Host for Tracker {
    fn signal_status(&mut self, plane: &Plane) -> Value {
        self.signals(plane).status()
    }

    fn execute(&mut self, _: &str) -> Result<Value> {
        Err(fault("HANDLER_ERROR", "commands of the system are run with `:!`").hint("write :! COMMAND"))
    }
}

/// `:wo apply FILE`: appends a work order to the ledger of the home, after confirmation.
fn apply(state: &mut State<'_>, file: &Path) -> Result<Outcome> {
    let text = std::fs::read(file)
        .map_err(|e| Error::io("reading the work order", e).in_file(file).hint("name a readable JSON file"))?;
    let payload: Value = serde_json::from_slice(&text).map_err(|e| {
        Error::validation(format!("the work order is not valid JSON: {e}"))
            .in_file(file)
            .hint("`jq . FILE` shows the error")
    })?;
    let question = format!("Append the work order in {} to the ledger of the home? [y/N] ", file.display());
    state.confirm(&question, "cancelled: nothing was applied", "it requires approval at a terminal")?;
    let (id, is_new) = work_orders::apply(state.context.home.root(), &payload)?;
    let ledger = state.context.home.path(work_orders::LEDGER);
    let writes = is_new.then(|| Read::written(&ledger)).transpose()?.into_iter().collect();
    let text = if is_new { "was applied" } else { "was already applied with the same payload" };
    let text = format!("{id} {text}\n");
    Ok(Outcome { result: json!({"work_order_id": id}), writes, ..Outcome::of_text(text) })
}

/// `:undo [RUN]`: the conversation stays as it is, because the ledger is only appended to.
pub(super) fn undo(state: &mut State<'_>, run: &str) -> Result<Outcome> {
    let run = run_of(state, run)?;
    let planned = ask(state.context, "cp-toolloop", &["undo", &run, "--dry-run"])?;
    let items = |name: &str| planned[name].as_array().map_or(&[][..], Vec::as_slice);
    let (files, effects) = (items("files"), items("effects"));
    state.show(&files.iter().map(restored_line).chain(effects.iter().map(effect_text)).collect::<String>())?;
    let result = json!({"run_id": run, "files": files, "effects": effects});
    if files.is_empty() {
        return Ok(Outcome { result, ..Outcome::of_text(format!("{} changed no file\n", escaped(&run))) });
    }
    let many = count(files.len(), "file");
    let refusal = "nothing was put back: it requires approval at a terminal";
    let hint = format!("`cp-toolloop undo {run}` does it without a question");
    state.confirm(&format!("Put back {many}? [y/N] "), refusal, &hint)?;
    ask(state.context, "cp-toolloop", &["undo", &run])?;
    let paths = files.iter().filter_map(|file| file["path"].as_str());
    let writes = paths.map(|path| Read::written(Path::new(path))).collect::<Result<_>>()?;
    state.transcript.note(UNDONE, &json!({"run": run}))?;
    Ok(Outcome { result, writes, ..Outcome::of_text(format!("{many} put back; the conversation is as it was\n")) })
}

/// The named run, or the last one of this session whose files were not put back.
fn run_of(state: &State<'_>, named: &str) -> Result<String> {
    if !named.is_empty() {
        return Ok(named.to_owned());
    }
    let Digest { mut runs, undone, .. } = Digest::of(&state.journal.directory)?;
    runs.pop().ok_or_else(|| match undone {
        Some(run) => Error::not_found(format!("the files of {run} were put back already, and no other run is left"))
            .hint(format!("`:diff {run}` shows what it had changed")),
        None => Error::not_found("no turn of this session used tools").hint("`:tools on` lets the model use them"),
    })
}

/// A path and what is done with it.
fn restored_line(file: &Value) -> String {
    let member = |name: &str| file[name].as_str().unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    let path = Path::new(member("path"));
    let path = path.strip_prefix(&here).unwrap_or(path).display().to_string();
    format!("  {} {}\n", member("action"), escaped(&path))
}

/// A killed command or a tool of a server that `:undo` does not take back.
fn effect_text(effect: &Value) -> String {
    let command = escaped(effect["command"].as_str().unwrap_or_default()).replace('\n', " ");
    format!("{} {command}\n    its changes are not known\n", style().warning("not taken back:"))
}

/// `:diff [RUN]`
pub(super) fn diff(state: &mut State<'_>, run: &str) -> Result<Outcome> {
    let run = run_of(state, run)?;
    let changes = turn::changes(&run, state.context.handed_on())?;
    let differences: Vec<&str> = changes.iter().filter_map(turn::difference).collect();
    let text = match differences.concat() {
        none if none.is_empty() => format!("{} changed no file by its file tools\n", escaped(&run)),
        all => turn::painted(&all, usize::MAX, style()),
    };
    Ok(Outcome { text, result: json!({"run_id": run, "changes": differences.len()}), ..Outcome::default() })
}
