//! What is remembered, what was said, and notes.

use std::fmt::Write as _;

use cp_common::wire::Turn;

use crate::interactive::learning::kept;
use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::recall::{self, Remembered};
use crate::interactive::render::{count, harmless};
use crate::interactive::shell::Shell;
use crate::interactive::style;
use crate::journal::ask;

/// How much of each kind is shown.
const SHOWN: usize = 10;

/// `:memory [QUERY]`
pub(super) fn recall(shell: &Shell<'_>, query: &str) -> Done {
    let kinds = recall::kinds(shell.context);
    if kinds.is_empty() {
        return Ok(Outcome::of_text(format!(
            "nothing is remembered in {}\n",
            shell.context.home.path("memory").display()
        )));
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    shown(shell, &kinds, query)
}

/// `:notes`
pub(super) fn notes(shell: &Shell<'_>) -> Done {
    shown(shell, &["note", "dev_note"], "")
}

fn shown(shell: &Shell<'_>, kinds: &[&str], query: &str) -> Done {
    let mut text = String::new();
    for kind in kinds {
        let found: Vec<Remembered> = recall::recall(kind, query, SHOWN, shell.context)?;
        let file = recall::file_of(kind, shell.context);
        let _ = writeln!(text, "{}", style().faint(&format!("{kind}: {} of {}", found.len(), file.display())));
        for remembered in found {
            let _ = writeln!(text, "  {} {}", remembered.at, harmless(&remembered.text).replace('\n', "\n    "));
        }
    }
    Ok(Outcome::of_text(text))
}

/// `:n+ TEXT`, `:nd+ TEXT`
pub(super) fn add(shell: &Shell<'_>, kind: &str, text: &str) -> Done {
    if text.is_empty() {
        return Err(Problem::new("there is nothing to note", "write it after the command: :n+ TEXT"));
    }
    kept(shell, kind, text)
}

/// `:v [N]`
pub(super) fn view(shell: &Shell<'_>, last: &str) -> Done {
    let last = if last.is_empty() { "10" } else { last };
    if last.parse::<usize>().is_err() {
        return Err(Problem::new(format!("`{last}` is no number of turns"), "write :v 10"));
    }
    let loaded = ask(shell.context, "cp-session", &["load", "--last", last])?;
    let turns: Vec<Turn> = serde_json::from_value(loaded["messages"].clone()).unwrap_or_default();
    let mut text = String::new();
    for turn in &turns {
        let _ = writeln!(
            text,
            "{} {}",
            style().strong(&format!("{}:", harmless(&turn.role))),
            harmless(&turn.content.text())
        );
    }
    let _ =
        writeln!(text, "{}", style().faint(&format!("{} of {}", count(turns.len(), "turn"), shell.journal.session())));
    Ok(Outcome::of_text(text))
}
