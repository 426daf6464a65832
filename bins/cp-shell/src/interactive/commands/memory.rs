//! Memories, notes, and the last turns of the conversation.

use std::fmt::Write as _;

use cp_common::wire::Turn;
use cp_common::{Context, Error, Result};

use crate::interactive::console::render::harmless;
use crate::interactive::console::render::{count, style};
use crate::interactive::memory::{self, Remembered};
use crate::interactive::outcome::Outcome;
use crate::interactive::state::{Setup, State};
use crate::parts::ask;

/// How much of each kind is shown.
const SHOWN: usize = 10;

/// `:memory [QUERY]`
pub(super) fn recall(state: &mut State<'_>, query: &str) -> Result<Outcome> {
    let context = &*state.context;
    let kinds = memory::kinds(context);
    if kinds.is_empty() {
        let directory = context.home.path("memory");
        return Ok(Outcome::of_text(format!("nothing is remembered in {}\n", directory.display())));
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
            let _ = writeln!(text, "  {} {}", remembered.at, harmless(&remembered.text).replace('\n', "\n    "));
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
        return Err(Error::usage("there is nothing to note").hint("write it after the command: :n+ TEXT"));
    }
    keep(kind, text, &state.setup, state.context)
}

/// Keeps a text of a kind without secrets, and shows where.
pub(super) fn keep(kind: &str, text: &str, setup: &Setup<'_>, context: &Context) -> Result<Outcome> {
    let (text, redactions) = setup.redactor.redact_text(text);
    memory::remember(kind, &text, context)?;
    let without =
        if redactions > 0 { format!(", {} taken out", count(redactions as usize, "secret")) } else { String::new() };
    Ok(Outcome::of_text(format!("kept in {}{without}\n", memory::file_of(kind, context).display())))
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
        let role = style().strong(&format!("{}:", harmless(&turn.role)));
        let _ = writeln!(text, "{role} {}", harmless(&turn.content.text()));
    }
    let _ = writeln!(text, "{}", style().faint(&format!("{} of {session}", count(turns.len(), "turn"))));
    Ok(Outcome::of_text(text))
}
