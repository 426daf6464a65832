//! Commands about sessions: list, continue, rename and copy them, and take back the last turn with its files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cp_common::home::write_whole;
use cp_common::program::Class;
use cp_common::wire::Turn;
use cp_common::{Code, Context, Error, Result};
use serde_json::{Value, json};

use crate::ask;
use crate::interactive::console::render::{Style, count, cut, escaped, style, table};
use crate::interactive::state::{Outcome, State};
use crate::interactive::transcript::{COPY, Copied, Digest, End, UNDONE};
use crate::interactive::turn;

/// The number of turns in a recap.
const SHOWN: usize = 6;
const LISTED: usize = 10;

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

/// `:sessions [N]`
pub(super) fn list(state: &mut State<'_>, many: &str) -> Result<Outcome> {
    let here = state.ledgers.journal.session();
    let many = if many.is_empty() { Ok(LISTED) } else { many.parse::<usize>() };
    let many = many.map_err(|_| Error::usage("invalid number of sessions").hint("write :sessions 20"))?.max(1);
    // A session that `:undo` or `:retry` replaced by a copy takes no place in the list.
    let page = ask(state.context, "cp-session", &["list", "--limit", &many.saturating_mul(3).to_string()])?;
    let newest = page["items"].as_array().map_or(&[][..], Vec::as_slice);
    let (mut rows, mut listed, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
    for session in newest {
        let member = |name: &str| session[name].as_str().unwrap_or_default();
        let id = member("session_id");
        let directory = state.context.home.path(format!("planes/{}/sessions/{id}", member("tier")));
        let Digest { first, model, replaces, .. } = Digest::of(&directory).unwrap_or_default();
        replaced.extend(replaces);
        if replaced.iter().any(|replaced| replaced == id) || listed.len() == many {
            continue;
        }
        let is_here = if id == here { "*" } else { "" };
        let name = session["name"].as_str().map(|name| format!("[{name}] ")).unwrap_or_default();
        let words = first.split_whitespace().collect::<Vec<_>>().join(" ");
        let model = model.unwrap_or_else(|| member("agent").to_owned());
        let row = [is_here.to_owned(), id.to_owned(), age_of(&directory), model, format!("{name}{words}")];
        rows.push(row.iter().map(|cell| escaped(cell)).collect::<Vec<_>>());
        listed.push(session);
    }
    let mut text = table(&["", "session_id", "age", "model", "first words"], &rows, style());
    let _ = writeln!(text, "{}", style().faint("`:switch ID` or `:switch NAME` continues a session"));
    Ok(Outcome { text, result: json!({"sessions": listed}), ..Outcome::default() })
}

/// The time since the last entry of a session, in its largest unit.
fn age_of(directory: &Path) -> String {
    let changed = directory.join("session.jsonl").metadata().and_then(|found| found.modified());
    let seconds = changed.ok().and_then(|at| SystemTime::now().duration_since(at).ok()).map_or(0, |age| age.as_secs());
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    let largest = units.into_iter().find(|(length, _)| seconds >= *length);
    largest.map_or_else(|| format!("{seconds} s"), |(length, unit)| format!("{} {unit}", seconds / length))
}

/// `:switch ID|NAME`
pub(super) fn switch(state: &mut State<'_>, session: &str) -> Result<Outcome> {
    if session.is_empty() {
        return Err(Error::usage("the session is missing").hint("write :switch ID; :sessions lists the sessions"));
    }
    state.switch_session(session, false)?;
    arrived(state, "")
}

/// Shows the session that is open now.
fn arrived(state: &State<'_>, first: &str) -> Result<Outcome> {
    let session = state.ledgers.journal.session();
    remember(session, state.context)?;
    let text = format!("{first}{}", recap(state.context, style())?);
    Ok(Outcome { text, result: json!({"session_id": session}), ..Outcome::default() })
}

/// `:rename NAME`
pub(super) fn rename(state: &mut State<'_>, name: &str) -> Result<Outcome> {
    let session = state.ledgers.journal.session();
    if name.is_empty() {
        return Err(Error::usage("the name is missing").hint("for example :rename bug-17"));
    }
    let renamed = ask(state.context, "cp-session", &["rename", session, name])?;
    let text = format!("{session} is {name}: cp-shell --session {name} continues it\n");
    Ok(Outcome { text, result: renamed, ..Outcome::default() })
}

/// `:fork`
pub(super) fn fork(state: &mut State<'_>, _: &str) -> Result<Outcome> {
    let from = state.ledgers.journal.session().to_owned();
    copy(state, None, None)?;
    arrived(state, &format!("a copy of {from}, which is not changed\n"))
}

/// `:undo [turn]`
pub(super) fn undo(state: &mut State<'_>, what: &str) -> Result<Outcome> {
    if !matches!(what, "" | "turn") {
        return Err(Error::usage(format!("there is no `:undo {what}`")).hint("write :undo, or :undo turn"));
    }
    let Digest { runs, failed_run: failed, .. } = state.digest()?;
    let run = failed.clone().or_else(|| runs.last().cloned().flatten());
    let restored = match run.filter(|_| what.is_empty()) {
        Some(run) => put_back(&run, state)?,
        None => json!({"files": [], "effects": []}),
    };
    let files = match restored["files"].as_array().map_or(0, Vec::len) {
        0 => String::new(),
        restored => format!("{} put back\n", count(restored, "file")),
    };
    if failed.is_some() {
        state.ledgers.transcript.note(UNDONE, &json!({"run": failed}))?;
        let text =
            format!("{files}the turn failed and is not in the conversation; another :undo takes back the one before\n");
        return Ok(Outcome { text, result: restored, ..Outcome::default() });
    }
    let from = state.ledgers.journal.session().to_owned();
    let (turns, _) = last_round(state.context)?.ok_or_else(no_turns)?;
    copy(state, Some(turns), Some(from.clone()))?;
    arrived(state, &format!("{files}a copy without its last round; :switch {from} restores it\n"))
}

/// Puts the files of a run back after the person has seen and confirmed the list, and shows the effects that stay. An
/// error leaves the conversation as it is.
fn put_back(run: &str, state: &mut State<'_>) -> Result<Value> {
    const LEAVES: &str = "`:undo turn` takes back the turn and leaves the files";
    let planned = ask(state.context, "cp-toolloop", &["undo", run, "--dry-run"]);
    let planned = planned.map_err(|e| {
        let hint = e.hint_text().map_or_else(|| LEAVES.to_owned(), |hint| format!("{hint}; {LEAVES}"));
        e.hint(hint)
    })?;
    let restored = json!({"files": planned["files"], "effects": planned["effects"]});
    let files = planned["files"].as_array().map_or(&[][..], Vec::as_slice);
    let effects = planned["effects"].as_array().map_or(&[][..], Vec::as_slice);
    let shown = files.iter().map(restored_line).chain(effects.iter().map(effect_text));
    state.show(&shown.collect::<String>())?;
    if files.is_empty() {
        return Ok(restored);
    }
    let question = format!("Take back the turn and put back {}? [y/N] ", count(files.len(), "file"));
    if !state.console.confirm(&question) {
        return Err(Error::new(
            Code::ConfirmationRequired,
            "nothing was taken back: it requires approval at a terminal",
        )
        .hint(LEAVES));
    }
    state.session_status.tracker.confirmed();
    ask(state.context, "cp-toolloop", &["undo", run])?;
    Ok(restored)
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
    let digest = state.digest()?;
    let run = if run.is_empty() { digest.last_run() } else { Some(run) };
    let run = run.ok_or_else(|| Error::not_found("no turn of this session used tools"))?;
    let differences = turn::differences(run, state.context.handed_on())?;
    let text = match differences.concat() {
        none if none.is_empty() => format!("{} changed no file by its file tools\n", escaped(run)),
        all => turn::painted(&all, usize::MAX, style()),
    };
    Ok(Outcome { text, result: json!({"run_id": run, "changes": differences.len()}), ..Outcome::default() })
}

/// `:retry`
pub(super) fn retry(state: &mut State<'_>, _: &str) -> Result<Outcome> {
    let (question, attached) = match state.conversation.turns.last() {
        Some(turn) => (turn.text.clone(), turn.attached.clone()),
        None => (last_round(state.context)?.ok_or_else(no_turns)?.1, Vec::new()),
    };
    let kept = state.setup.redactor.redact_text(&question).0;
    let is_it = |stored: &str| {
        [&kept, &question]
            .into_iter()
            .any(|question| stored.strip_prefix(question.as_str()).is_some_and(turn::is_attached))
    };
    // A failed turn is not in the conversation.
    if let Some((turns, _)) = last_round(state.context)?.filter(|(_, stored)| is_it(stored)) {
        let from = state.ledgers.journal.session().to_owned();
        copy(state, Some(turns), Some(from))?;
        remember(state.ledgers.journal.session(), state.context)?;
        // The turn belongs to the copy.
        state.session_status.tracker.begin(Class::Append);
    }
    let new = attached.into_iter().filter(|file| !state.conversation.attached.contains(file)).collect::<Vec<_>>();
    state.conversation.attached.extend(new);
    state.show(&format!("{}\n", style().faint(&cut(&escaped(&question).replace('\n', " "), style().width))))?;
    turn::take(state, &question)
}

fn no_turns() -> Error {
    Error::not_found("this session has no turns yet")
}

/// Switches to a copy of this session: all of it, or its first turns, which then replaces the original in lists.
fn copy(state: &mut State<'_>, turns: Option<u64>, replaces: Option<String>) -> Result<()> {
    let at = turns.map(|turns| turns.to_string());
    let mut words = vec!["fork", state.ledgers.journal.session()];
    words.extend(at.iter().flat_map(|at| ["--at", at.as_str()]));
    let copy = ask(state.context, "cp-session", &words)?;
    let mut runs = state.digest()?.runs;
    if replaces.is_some() {
        runs.pop();
        if let Some(last) = state.conversation.turns.iter_mut().rfind(|turn| turn.end == End::Answered) {
            last.end = End::Undone;
        }
    }
    state.switch_session(copy["session_id"].as_str().unwrap_or_default(), true)?;
    state.ledgers.transcript.note(COPY, &Copied { replaces, runs })
}

/// The number of turns before the last round of the session, and the question of this round.
fn last_round(context: &Context) -> Result<Option<(u64, String)>> {
    let loaded = ask(context, "cp-session", &["load"])?;
    let turns: Vec<Turn> = serde_json::from_value(loaded["messages"].clone()).unwrap_or_default();
    let stored = ask(context, "cp-session", &["count"])?["count"].as_u64().unwrap_or_default();
    let says = |turn: &Turn| turn.role == "user" && !turn.content.text().is_empty();
    let Some(at) = turns.iter().rposition(says) else { return Ok(None) };
    let later = u64::try_from(turns.len() - at).unwrap_or_default();
    Ok(Some((stored.saturating_sub(later), turns[at].content.text())))
}

/// `:compact [KEEP]`
pub(super) fn compact(state: &mut State<'_>, keep: &str) -> Result<Outcome> {
    super::run::refuse_ungoverned(state, ":compact")?;
    let State { model, context, .. } = state;
    let mut words = vec!["compact"];
    if !keep.is_empty() {
        keep.parse::<u64>().map_err(|_| Error::usage("invalid number of turns").hint("for example :compact 10"))?;
        words.extend(["--keep", keep]);
    }
    words.extend(model.flags());
    let compacted = ask(context, "cp-session", &words)?;
    let turns = compacted["turns"].as_u64().unwrap_or_default();
    let text = if turns == 0 {
        "there was nothing to summarise\n".to_owned()
    } else {
        format!("{} replaced by a summary\n", count(usize::try_from(turns).unwrap_or(usize::MAX), "turn"))
    };
    Ok(Outcome { text, result: compacted, ..Outcome::default() })
}
