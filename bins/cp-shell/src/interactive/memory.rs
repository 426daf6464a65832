//! Memories, which `cp-session` stores and searches in the `memory` directory of the home, the commands about them and
//! about the last turns, and the last session, which `-c` continues.

use std::fmt::Write as _;
use std::path::PathBuf;

use cp_common::home::write_whole;
use cp_common::wire::Turn;
use cp_common::{Context, Error, Result};
use cp_ledger::sessions::Current;
use serde_json::Value;

use crate::ask;
use crate::interactive::console::render::{count, cut, escaped, style};
use crate::interactive::state::{Outcome, State};
use crate::interactive::transcript::{End, Remembered};
use crate::plane::Read;

/// The kinds with stored memories.
fn kinds(context: &Context) -> Vec<String> {
    let listing = std::fs::read_dir(context.home.path("memory")).into_iter().flatten().flatten();
    let names = listing.filter_map(|entry| entry.file_name().into_string().ok());
    let mut kinds: Vec<String> = names.filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned)).collect();
    kinds.sort_unstable();
    kinds
}

/// The file of a kind.
fn file_of(kind: &str, context: &Context) -> PathBuf {
    context.home.path("memory").join(format!("{kind}.jsonl"))
}

/// Returns the newest memories that have one of these words, or the newest of all.
pub(crate) fn find(kind: &str, words: &str, limit: usize, context: &Context) -> Result<Vec<Remembered>> {
    if !file_of(kind, context).is_file() {
        return Ok(Vec::new());
    }
    let limit = limit.max(1).to_string();
    let mut argv = vec!["recall", "--kind", kind, "--limit", &limit];
    if !words.trim().is_empty() {
        argv.extend(["--", words]);
    }
    let found = ask(context, "cp-session", &argv)?;
    let member = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let items = found["items"].as_array().into_iter().flatten();
    Ok(items
        .map(|item| Remembered { kind: kind.to_owned(), text: member(item, "text"), at: member(item, "ts") })
        .collect())
}

/// The number of memories of each kind that are shown.
const SHOWN: usize = 10;

/// `:memory [QUERY]`
pub(crate) fn recall(state: &mut State<'_>, query: &str) -> Result<Outcome> {
    let context = &*state.context;
    let kinds = kinds(context);
    if kinds.is_empty() {
        let directory = context.home.path("memory");
        return Ok(Outcome::of_text(format!("no memories in {}\n", directory.display())));
    }
    shown(&kinds.iter().map(String::as_str).collect::<Vec<_>>(), query, context)
}

/// `:notes`
pub(crate) fn notes(state: &mut State<'_>, _: &str) -> Result<Outcome> {
    shown(&["note", "dev_note"], "", state.context)
}

fn shown(kinds: &[&str], query: &str, context: &Context) -> Result<Outcome> {
    let mut text = String::new();
    for kind in kinds {
        let found: Vec<Remembered> = find(kind, query, SHOWN, context)?;
        let file = file_of(kind, context);
        let _ = writeln!(text, "{}", style().faint(&format!("{kind}: {} of {}", found.len(), file.display())));
        for remembered in found {
            let _ = writeln!(text, "  {} {}", remembered.at, escaped(&remembered.text).replace('\n', "\n    "));
        }
    }
    Ok(Outcome::of_text(text))
}

/// `:n+ TEXT`, `:nd+ TEXT`, `:learn LESSON`: stores a text of a kind without secrets, and shows the file.
pub(crate) fn keep(kind: &str, text: &str, state: &State<'_>) -> Result<Outcome> {
    let (text, redactions) = state.redactor.redact_text(text);
    ask(state.context, "cp-session", &["remember", "--kind", kind, "--", &text])?;
    let without =
        if redactions > 0 { format!(", {} removed", count(redactions as usize, "secret")) } else { String::new() };
    let file = file_of(kind, state.context);
    let writes = vec![Read::written(&file)?];
    Ok(Outcome { writes, ..Outcome::of_text(format!("saved in {}{without}\n", file.display())) })
}

/// `:v [N]`
pub(crate) fn view(state: &mut State<'_>, last: &str) -> Result<Outcome> {
    let session = &state.journal.session;
    let last = if last.is_empty() { "10" } else { last };
    if last.parse::<usize>().is_err() {
        return Err(Error::usage(format!("`{last}` is not a valid number of turns")).hint("write :v 10"));
    }
    let turns = newest_turns(last, state.context)?;
    let mut text = String::new();
    for turn in &turns {
        let role = format!("{}:", escaped(&turn.role));
        let _ = writeln!(text, "{} {}", style().strong(&role), escaped(&turn.content.text()));
    }
    let _ = writeln!(text, "{}", style().faint(&format!("{} of {session}", count(turns.len(), "turn"))));
    Ok(Outcome::of_text(text))
}

/// Asks for memories at the end of an interactive session.
pub(crate) fn offer_lesson(state: &mut State<'_>) -> Result<()> {
    let answered = state.turns.iter().filter(|turn| turn.end == End::Answered);
    let rounds: Vec<String> =
        answered.map(|turn| format!("user: {}\nassistant: {}", turn.text, turn.words())).collect();
    if rounds.is_empty() {
        return Ok(());
    }
    state.tracker.learning = true;
    let lesson = state.console.answer("Keep a lesson of this session? (Enter skips): ").unwrap_or_default();
    if !lesson.is_empty() {
        keep_and_show(state, "lesson", &lesson)?;
    }
    let question =
        format!("Remember its {}, without secrets, for later sessions? [y/N] ", count(rounds.len(), "round"));
    if state.console.confirm(&question) {
        for round in rounds {
            keep_and_show(state, "session_turn", &round)?;
        }
    }
    state.tracker.learning = false;
    Ok(())
}

/// Stores a text and shows the file or the error, which does not stop the end of the session.
fn keep_and_show(state: &mut State<'_>, kind: &str, text: &str) -> Result<()> {
    let text = match keep(kind, text, state) {
        Ok(outcome) => outcome.text,
        Err(error) => {
            let hint = format!("`cp-session remember --kind {kind} -` stores it later");
            style().error(error.message(), error.hint_text().unwrap_or(&hint))
        }
    };
    state.show(&text)
}

/// The newest turns of the session.
fn newest_turns(many: &str, context: &Context) -> Result<Vec<Turn>> {
    let loaded = ask(context, "cp-session", &["load", "--last", many])?;
    Ok(serde_json::from_value(loaded["messages"].clone()).unwrap_or_default())
}

/// The number of turns in a recap.
const RECAP: &str = "6";

/// The file with the id of the last interactive session.
fn last_file(context: &Context) -> PathBuf {
    context.home.state("shell_session")
}

/// Records the last session, which becomes the current one of its agent.
pub(crate) fn remember_session(session: &str, agent: &str, context: &Context) -> Result<()> {
    write_whole(&last_file(context), session.as_bytes())?;
    let current = Current::of(agent, &context.home);
    let _lock = current.lock()?;
    current.point(session)
}

/// The last interactive session of this home.
pub(crate) fn last_session(context: &Context) -> Result<String> {
    std::fs::read_to_string(last_file(context)).map_err(|_| {
        Error::not_found("no session to continue in this home")
            .hint("remove -c to start a session; `cp-session list` shows sessions of other programs, for --session")
    })
}

/// A recap of a continued session: its newest turns, one on each line.
pub(crate) fn recap(context: &Context) -> Result<String> {
    let style = style();
    let turns = newest_turns(RECAP, context)?;
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
