//! The last session, which `-c` continues, and the commands that show and put back the files that a turn changed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cp_common::home::write_whole;
use cp_common::wire::Turn;
use cp_common::{Code, Context, Error, Result};
use serde_json::{Value, json};

use crate::ask;
use crate::interactive::console::render::{Style, count, cut, escaped, style};
use crate::interactive::state::{Outcome, State};
use crate::interactive::transcript::{Digest, UNDONE};
use crate::interactive::turn;

/// The number of turns in a recap.
const SHOWN: usize = 6;

/// The file with the id of the last interactive session.
fn last_file(context: &Context) -> PathBuf {
    context.home.state("shell_session")
}

/// Records the last session.
pub(crate) fn remember(session: &str, context: &Context) -> Result<()> {
    write_whole(&last_file(context), session.as_bytes())
}

/// The last interactive session of this home.
pub(crate) fn last(context: &Context) -> Result<String> {
    std::fs::read_to_string(last_file(context)).map_err(|_| {
        Error::not_found("no session to continue in this home")
            .hint("remove -c to start a session; `cp-session list` shows sessions of other programs, for --session")
    })
}

/// A recap of a continued session: its newest turns, one on each line.
pub(crate) fn recap(context: &Context, style: Style) -> Result<String> {
    let loaded = ask(context, "cp-session", &["load", "--last", &SHOWN.to_string()])?;
    let turns: Vec<Turn> = serde_json::from_value(loaded["messages"].clone()).unwrap_or_default();
    let session = context.options.session.as_deref().unwrap_or_default();
    if turns.is_empty() {
        return Ok(format!("{}\n", style.faint(&format!("{session} continues, without turns so far"))));
    }
    let mut text = format!("{}\n", style.faint(&format!("{session} continues; its last turns (:v shows more)")));
    for turn in turns {
        let who = if turn.role == "user" { "you:" } else { "  →" };
        let words = escaped(&turn.content.text());
        let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
        if !line.is_empty() {
            let _ = writeln!(text, "{}", style.faint(&cut(&format!("{who} {line}"), style.width)));
        }
    }
    Ok(text)
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
    if !state.console.confirm(&format!("Put back {many}? [y/N] ")) {
        state.session_status.tracker.denied();
        let error = Error::new(Code::ConfirmationRequired, "nothing was put back: it requires approval at a terminal");
        return Err(error.hint(format!("`cp-toolloop undo {run}` does it without a question")));
    }
    state.session_status.tracker.confirmed();
    ask(state.context, "cp-toolloop", &["undo", &run])?;
    state.ledgers.transcript.note(UNDONE, &json!({"run": run}))?;
    Ok(Outcome { result, ..Outcome::of_text(format!("{many} put back; the conversation is as it was\n")) })
}

/// The named run, or the last one of this session whose files were not put back.
fn run_of(state: &State<'_>, named: &str) -> Result<String> {
    let last = Digest::of(state.ledgers.journal.directory())?.runs.pop().filter(|_| named.is_empty());
    let named = Some(named.to_owned()).filter(|named| !named.is_empty());
    named.or(last).ok_or_else(|| {
        Error::not_found("no turn of this session used tools").hint("`:tools on` lets the model use them")
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
    let differences = turn::differences(&run, state.context.handed_on())?;
    let text = match differences.concat() {
        none if none.is_empty() => format!("{} changed no file by its file tools\n", escaped(&run)),
        all => turn::painted(&all, usize::MAX, style()),
    };
    Ok(Outcome { text, result: json!({"run_id": run, "changes": differences.len()}), ..Outcome::default() })
}
