//! Memories, notes and lessons, and the last turns of the conversation.

use std::fmt::Write as _;

use cp_common::wire::Turn;
use cp_common::{Context, Error, Result};

use crate::ask;
use crate::interactive::console::render::{count, escaped, style};
use crate::interactive::memory::{self, Remembered, remember};
use crate::interactive::state::{Outcome, Setup, State};

/// The number of memories of each kind that are shown.
const SHOWN: usize = 10;

/// `:memory [QUERY]`
pub(super) fn recall(state: &mut State<'_>, query: &str) -> Result<Outcome> {
    let context = &*state.context;
    let kinds = memory::kinds(context);
    if kinds.is_empty() {
        let directory = context.home.path("memory");
        return Ok(Outcome::of_text(format!("no memories in {}\n", directory.display())));
    }
    shown(&kinds.iter().map(String::as_str).collect::<Vec<_>>(), query, context)
}

/// `:notes`
pub(super) fn notes(state: &mut State<'_>, _: &str) -> Result<Outcome> {
    shown(&["note", "dev_note"], "", state.context)
}

fn shown(kinds: &[&str], query: &str, context: &Context) -> Result<Outcome> {
    let mut text = String::new();
    for kind in kinds {
        let found: Vec<Remembered> = memory::recall(kind, query, SHOWN, context)?;
        let file = memory::file_of(kind, context);
        let _ = writeln!(text, "{}", style().faint(&format!("{kind}: {} of {}", found.len(), file.display())));
        for remembered in found {
            let _ = writeln!(text, "  {} {}", remembered.at, escaped(&remembered.text).replace('\n', "\n    "));
        }
    }
    Ok(Outcome::of_text(text))
}

/// `:n+ TEXT`
pub(super) fn add_note(state: &mut State<'_>, text: &str) -> Result<Outcome> {
    add("note", text, state)
}

/// `:nd+ TEXT`
pub(super) fn add_developer_note(state: &mut State<'_>, text: &str) -> Result<Outcome> {
    add("dev_note", text, state)
}

fn add(kind: &str, text: &str, state: &State<'_>) -> Result<Outcome> {
    if text.is_empty() {
        return Err(Error::usage("the note is missing").hint("write :n+ TEXT"));
    }
    keep(kind, text, &state.setup, state.context)
}

/// Stores a text of a kind without secrets, and shows the file.
pub(super) fn keep(kind: &str, text: &str, setup: &Setup<'_>, context: &Context) -> Result<Outcome> {
    let (text, redactions) = setup.redactor.redact_text(text);
    memory::remember(kind, &text, context)?;
    let without =
        if redactions > 0 { format!(", {} removed", count(redactions as usize, "secret")) } else { String::new() };
    Ok(Outcome::of_text(format!("saved in {}{without}\n", memory::file_of(kind, context).display())))
}

/// `:v [N]`
pub(super) fn view(state: &mut State<'_>, last: &str) -> Result<Outcome> {
    let session = state.ledgers.journal.session();
    let last = if last.is_empty() { "10" } else { last };
    if last.parse::<usize>().is_err() {
        return Err(Error::usage(format!("`{last}` is not a valid number of turns")).hint("write :v 10"));
    }
    let loaded = ask(state.context, "cp-session", &["load", "--last", last])?;
    let turns: Vec<Turn> = serde_json::from_value(loaded["messages"].clone()).unwrap_or_default();
    let mut text = String::new();
    for turn in &turns {
        let role = format!("{}:", escaped(&turn.role));
        let _ = writeln!(text, "{} {}", style().strong(&role), escaped(&turn.content.text()));
    }
    let _ = writeln!(text, "{}", style().faint(&format!("{} of {session}", count(turns.len(), "turn"))));
    Ok(Outcome::of_text(text))
}

/// `:learn [LESSON]`
pub(super) fn learn(state: &mut State<'_>, lesson: &str) -> Result<Outcome> {
    let lesson = if lesson.is_empty() {
        let tracker = &mut state.session_status.tracker;
        tracker.learning(true);
        let answer = state.console.answer("Lesson (Enter skips): ");
        tracker.learning(false);
        match answer {
            Some(answer) => answer,
            None if state.console.is_terminal() => String::new(),
            None => return Err(Error::usage("there is no terminal to ask at").hint("write :learn TEXT")),
        }
    } else {
        lesson.to_owned()
    };
    if lesson.is_empty() {
        return Ok(Outcome::of_text("skipped: nothing was written\n"));
    }
    keep("lesson", &lesson, &state.setup, state.context)
}

/// Asks for memories at the end of an interactive session.
pub(crate) fn offer_lesson(state: &mut State<'_>) -> Result<()> {
    if state.conversation.rounds.is_empty() {
        return Ok(());
    }
    state.session_status.tracker.learning(true);
    let lesson = state.console.answer("Keep a lesson of this session? (Enter skips): ").unwrap_or_default();
    if !lesson.is_empty() {
        keep_and_show(state, "lesson", &lesson)?;
    }
    let rounds = std::mem::take(&mut state.conversation.rounds);
    let question =
        format!("Remember its {}, without secrets, for later sessions? [y/N] ", count(rounds.len(), "round"));
    if state.console.confirm(&question) {
        for (at, (question_text, answered)) in rounds.iter().enumerate() {
            let text = format!("user: {question_text}\nassistant: {answered}");
            if at + 1 < rounds.len() {
                remember("session_turn", &text, state.context)?;
            } else {
                keep_and_show(state, "session_turn", &text)?;
            }
        }
    }
    state.session_status.tracker.learning(false);
    Ok(())
}

/// Stores a text and shows the file or the error, which does not stop the end of the session.
fn keep_and_show(state: &mut State<'_>, kind: &str, text: &str) -> Result<()> {
    let text = match keep(kind, text, &state.setup, state.context) {
        Ok(outcome) => outcome.text,
        Err(error) => style().error(error.message(), error.hint_text()),
    };
    state.show(&text)
}
