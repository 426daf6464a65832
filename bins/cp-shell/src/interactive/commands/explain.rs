//! `:explain`: the last turn, the history of the shell, and the hub.

use std::fmt::Write as _;

use crate::interactive::console::render::harmless;
use crate::interactive::console::render::{Style, count, cut, style};
use crate::interactive::hub::Loaded;
use crate::interactive::outcome::Outcome;
use crate::interactive::shell_history::ShellHistory;
use crate::interactive::state::State;

/// `:explain`
pub(super) fn explain(state: &State<'_>) -> Outcome {
    let State { setup, hub, conversation, .. } = state;
    let style = style();
    let mut text =
        conversation.last.as_ref().map_or_else(|| "no turn was taken yet\n".to_owned(), |last| last.text(style));
    text.push_str(&history_text(&setup.shell_history, style));
    text.push_str(&hub_text(hub.loaded(), hub.is_pending(), style));
    Outcome::of_text(text)
}

fn history_text(history: &ShellHistory, style: Style) -> String {
    if !history.enabled {
        return "history     off: --with-history, or enabled in [shell_history] of config/shell.toml\n".to_owned();
    }
    let mut text = String::new();
    let source = history.source.unwrap_or("nowhere");
    let lines = count(history.lines.len(), "line");
    let _ = writeln!(text, "history     on: {lines} from {source}, {} redacted", history.redactions);
    if let Some(error) = &history.error {
        let _ = writeln!(text, "            {}", harmless(error));
    }
    let path = history.path.as_deref().unwrap_or_default();
    for line in &history.lines {
        let shown = format!("            {}:{} [{source}] {}", path, line.line, line.command.replace('\n', " "));
        let _ = writeln!(text, "{}", cut(&harmless(&shown), style.width));
    }
    text
}

/// What the hub answered, in a few lines.
pub(super) fn hub_text(hub: &Loaded, pending: bool, style: Style) -> String {
    let status = if pending { "asked, no answer yet" } else { hub.status };
    let mut text = format!("hub         {status}\n");
    if let Some(brief) = &hub.brief {
        let _ = writeln!(
            text,
            "  brief     {} ({} bytes, {} redacted)",
            harmless(&brief.path),
            brief.text.len(),
            brief.redactions
        );
    }
    for (name, entries) in hub.lists() {
        for entry in entries {
            let line = format!("  {name:<10} {} {} ({})", entry.id, entry.title, entry.note);
            let _ = writeln!(text, "{}", cut(&harmless(&line).replace('\n', " "), style.width));
        }
    }
    for error in &hub.errors {
        let _ = writeln!(text, "  error      {}", harmless(error));
    }
    text
}
