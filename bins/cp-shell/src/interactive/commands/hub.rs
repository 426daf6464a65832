//! `:hub`, `:inbox` and `:explain`: the answers of the hub, the two ways to write to it, and the context of the last
//! turn.

use std::fmt::Write as _;

use cp_common::{Error, Result};
use cp_redact::Redactor;
use serde_json::json;

use crate::interactive::commands::unquoted;
use crate::interactive::console::render::{Style, count, escaped, style};
use crate::interactive::history::ShellHistory;
use crate::interactive::hub::{Entry, Loaded};
use crate::interactive::state::{Outcome, State};
use crate::interactive::transcript::{End, Exchange};

/// `:hub`, `:hub log TEXT`
pub(super) fn hub(state: &mut State<'_>, argument: &str) -> Result<Outcome> {
    match argument.split_once(char::is_whitespace).unwrap_or((argument, "")) {
        ("", _) => {
            state.hub.wait(&mut state.transcript)?;
            let loaded = &state.hub.loaded;
            let mut text = hub_text(loaded, state.hub.is_pending(), style());
            if let Some(brief) = &loaded.brief {
                text.push_str(&escaped(brief.text.trim_end()));
                text.push('\n');
            }
            Ok(Outcome { result: json!(loaded), ..Outcome::of_text(text) })
        }
        ("log", summary) if !summary.is_empty() => log(state, unquoted(summary.trim())),
        _ => Err(Error::usage(format!("`:hub {argument}` is not valid")).hint("write :hub, or :hub log TEXT")),
    }
}

fn log(state: &mut State<'_>, summary: &str) -> Result<Outcome> {
    let (summary, _) = state.redactor.redact_text(summary);
    let question = format!("Post to the hub: {}? [y/N] ", escaped(&summary));
    let hint = "it requires approval at a terminal; a line of a script is never used as an answer";
    state.confirm(&question, "cancelled: nothing was posted", hint)?;
    let note = state.hub.log(&summary, &state.journal.session)?;
    state.transcript.note("session_hub_log", &note)?;
    let calls = vec![json!({"hub": "progress"})];
    Ok(Outcome { calls, result: note, ..Outcome::of_text("posted\n") })
}

/// `:inbox`, `:inbox read ID`
pub(super) fn inbox(state: &mut State<'_>, argument: &str) -> Result<Outcome> {
    let (hub, transcript) = (&mut state.hub, &mut state.transcript);
    hub.wait(transcript)?;
    match argument.split_once(char::is_whitespace).unwrap_or((argument, "")) {
        ("", _) => {
            let loaded = &hub.loaded;
            let line = |message: &Entry| format!("{}  {}: {}", message.id, message.note, message.title);
            let mut text: String = loaded.messages.iter().map(|message| style().line(&line(message))).collect();
            if loaded.messages.is_empty() {
                let why = loaded.errors.first().map_or(loaded.status, String::as_str);
                text = format!("no unread messages ({})\n", escaped(why));
            }
            Ok(Outcome::of_text(text))
        }
        ("read", id) if !id.is_empty() => {
            let id = id.trim();
            hub.read(id)?;
            transcript.note("session_inbox_read", &json!({"message_id": id}))?;
            let calls = vec![json!({"hub": "message read", "message_id": id})];
            Ok(Outcome { calls, ..Outcome::of_text(format!("{} is marked as read\n", escaped(id))) })
        }
        _ => Err(Error::usage(format!("`:inbox {argument}` is not valid")).hint("write :inbox, or :inbox read ID")),
    }
}

/// `:explain`
pub(super) fn explain(state: &State<'_>) -> Outcome {
    let State { redactor, shell_history, hub, turns, .. } = state;
    let style = style();
    let mut text = turns.last().map_or_else(|| "no turn yet\n".to_owned(), |turn| turn_text(turn, redactor, style));
    text.push_str(&history_text(shell_history, style));
    text.push_str(&hub_text(&hub.loaded, hub.is_pending(), style));
    Outcome::of_text(text)
}

fn turn_text(turn: &Exchange, redactor: &Redactor, style: Style) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        text.push_str(&style.line(&format!("{name:<11} {value}")));
    };
    line("turn", &turn.number.to_string());
    line("said", &redactor.redact_text(&turn.text).0);
    line("agent", &turn.agent);
    line("risk", &format!("{}: {}", turn.risk.level.name(), turn.risk.reason));
    let outcome = match turn.end {
        End::NotSent => "nothing was sent",
        End::Answered => "sent, and answered",
        End::Interrupted => "sent, and stopped by the person: the partial answer stays in the conversation",
        // The agent or the provider may have refused it before anything was sent.
        End::Failed => &format!("not answered: {}", turn.error),
    };
    let confirmed = if turn.confirmed { "yes, by the person" } else { "no approval was required" };
    line("confirmed", if turn.end == End::NotSent { "no" } else { confirmed });
    line("outcome", outcome);
    line("mode", if turn.asked.isolated { "isolated: only this text" } else { "persistent: the conversation too" });
    if turn.asked.context.is_empty() {
        line("context", "nothing attached");
    }
    for piece in &turn.asked.context {
        line("context", &format!("{}, {} bytes", piece.name, piece.text.len()));
    }
    for it in &turn.recalled {
        line("memory", &format!("{} ({}): {}", it.kind, it.at, it.text));
    }
    line("redactions", &turn.redactions.to_string());
    if turn.hints.is_empty() {
        line("hints", "none");
    }
    for hint in &turn.hints {
        line("hints", &format!("{}: {}", hint.rule, hint.message));
    }
    text
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
        let _ = writeln!(text, "            {}", escaped(error));
    }
    let path = history.path.as_deref().unwrap_or_default();
    for line in &history.lines {
        text.push_str(&style.line(&format!("            {path}:{} [{source}] {}", line.line, line.command)));
    }
    text
}

/// A summary of the hub's answers.
pub(super) fn hub_text(hub: &Loaded, pending: bool, style: Style) -> String {
    let status = if pending { "asked, no answer yet" } else { hub.status };
    let mut text = format!("hub         {status}\n");
    if let Some(brief) = &hub.brief {
        let (path, length, redactions) = (escaped(&brief.path), brief.text.len(), brief.redactions);
        let _ = writeln!(text, "  brief     {path} ({length} bytes, {redactions} redacted)");
    }
    for (name, entries) in hub.lists() {
        for entry in entries {
            text.push_str(&style.line(&format!("  {name:<10} {} {} ({})", entry.id, entry.title, entry.note)));
        }
    }
    for error in &hub.errors {
        let _ = writeln!(text, "  error      {}", escaped(error));
    }
    text
}
