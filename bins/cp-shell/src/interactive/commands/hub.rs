//! `:hub`, `:inbox` and `:explain`: the answers of the hub, the two ways to write to it, and the context of the last
//! turn.

use std::fmt::Write as _;

use cp_common::{Error, Result, signals};
use serde_json::json;

use crate::interactive::commands::unquoted;
use crate::interactive::console::render::{Style, count, cut, escaped, style};
use crate::interactive::history::ShellHistory;
use crate::interactive::hub::{Hub, Loaded};
use crate::interactive::state::{Outcome, Setup, State, record_hub};
use crate::interactive::transcript::{End, Exchange, Transcript};

/// `:hub`, `:hub log TEXT`
pub(super) fn hub(state: &mut State<'_>, argument: &str) -> Result<Outcome> {
    match argument.split_once(char::is_whitespace).unwrap_or((argument, "")) {
        ("", _) => {
            wait(&mut state.hub, &mut state.ledgers.transcript)?;
            let loaded = state.hub.loaded();
            let mut text = hub_text(loaded, state.hub.is_pending(), style());
            if let Some(brief) = &loaded.brief {
                text.push_str(&escaped(brief.text.trim_end()));
                text.push('\n');
            }
            Ok(Outcome { result: json!(loaded), ..Outcome::of_text(text) })
        }
        ("log", summary) => log(state, unquoted(summary.trim())),
        (other, _) => {
            Err(Error::usage(format!("unknown subcommand `:hub {other}`")).hint("write :hub, or :hub log TEXT"))
        }
    }
}

/// Waits for the requests that were sent at the start.
fn wait(hub: &mut Hub, transcript: &mut Transcript) -> Result<()> {
    let limit = hub.longest_wait();
    hub.take(limit);
    signals::check()?;
    record_hub(hub, transcript)
}

fn log(state: &mut State<'_>, summary: &str) -> Result<Outcome> {
    if summary.is_empty() {
        return Err(Error::usage("the note is missing").hint("write :hub log TEXT"));
    }
    let State { setup, console, ledgers, session_status, hub, .. } = state;
    let (summary, _) = setup.redactor.redact_text(summary);
    let session = ledgers.journal.session();
    let note = hub.note(&summary, session);
    if !console.is_terminal() {
        session_status.tracker.denied();
        let message =
            "cancelled: a note to the hub requires approval, and there is no terminal to ask at; nothing was posted";
        return Err(
            Error::usage(message).hint("post it from a terminal; a line of a script is never used as an answer")
        );
    }
    if !console.confirm(&format!("Post to the hub: {}? [y/N] ", escaped(&summary))) {
        session_status.tracker.denied();
        return Ok(Outcome::of_text("cancelled: nothing was posted\n"));
    }
    session_status.tracker.confirmed();
    hub.log(&note)?;
    ledgers.transcript.note("session_hub_log", &note)?;
    let calls = vec![json!({"hub": "progress"})];
    Ok(Outcome { calls, result: note, ..Outcome::of_text("posted\n") })
}

/// `:inbox`, `:inbox read ID`
pub(super) fn inbox(state: &mut State<'_>, argument: &str) -> Result<Outcome> {
    let (hub, transcript) = (&mut state.hub, &mut state.ledgers.transcript);
    wait(hub, transcript)?;
    match argument.split_once(char::is_whitespace).unwrap_or((argument, "")) {
        ("", _) => {
            let style = style();
            let loaded = hub.loaded();
            let mut text = String::new();
            for message in &loaded.messages {
                let line = format!("{}  {}: {}", message.id, message.note, message.title);
                text.push_str(&cut(&escaped(&line).replace('\n', " "), style.width));
                text.push('\n');
            }
            if loaded.messages.is_empty() {
                let why = loaded.errors.first().map_or(loaded.status, String::as_str);
                text = format!("no unread messages ({})\n", escaped(why));
            }
            Ok(Outcome::of_text(text))
        }
        ("read", "") => Err(Error::usage("the id of the message is missing").hint("write :inbox read ID")),
        ("read", id) => {
            let id = id.trim();
            hub.read(id)?;
            transcript.note("session_inbox_read", &json!({"message_id": id}))?;
            let calls = vec![json!({"hub": "message read", "message_id": id})];
            Ok(Outcome { calls, ..Outcome::of_text(format!("{} is marked as read\n", escaped(id))) })
        }
        (other, _) => {
            Err(Error::usage(format!("unknown subcommand `:inbox {other}`")).hint("write :inbox, or :inbox read ID"))
        }
    }
}

/// `:explain`
pub(super) fn explain(state: &State<'_>) -> Outcome {
    let State { setup, hub, conversation, .. } = state;
    let style = style();
    let mut text =
        conversation.turns.last().map_or_else(|| "no turn yet\n".to_owned(), |turn| turn_text(turn, setup, style));
    text.push_str(&history_text(&setup.shell_history, style));
    text.push_str(&hub_text(hub.loaded(), hub.is_pending(), style));
    Outcome::of_text(text)
}

fn turn_text(turn: &Exchange, setup: &Setup<'_>, style: Style) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let value = cut(&escaped(value).replace('\n', " "), style.width.saturating_sub(12).max(20));
        let _ = writeln!(text, "{name:<11} {value}");
    };
    line("turn", &turn.number.to_string());
    line("said", &setup.redactor.redact_text(&turn.text).0);
    line("agent", &turn.agent);
    line("risk", &format!("{}: {}", turn.risk.level.name(), turn.risk.reason));
    let (sent, outcome) = match turn.end {
        End::NotSent => (false, "nothing was sent"),
        End::Answered => (true, "sent, and answered"),
        End::Interrupted => (true, "sent, and stopped by the person: the partial answer stays in the conversation"),
        End::Failed => (true, "sent, and failed"),
    };
    let confirmed = if turn.confirmed { "yes, by the person" } else { "no approval was required" };
    line("confirmed", if sent { confirmed } else { "no" });
    line("sent", outcome);
    line("mode", if turn.isolated { "isolated: only this text" } else { "persistent: the conversation too" });
    if turn.pieces.is_empty() {
        line("context", "nothing attached");
    }
    for piece in &turn.pieces {
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
        let shown = format!("            {}:{} [{source}] {}", path, line.line, line.command.replace('\n', " "));
        let _ = writeln!(text, "{}", cut(&escaped(&shown), style.width));
    }
    text
}

/// A summary of the hub's answers.
pub(super) fn hub_text(hub: &Loaded, pending: bool, style: Style) -> String {
    let status = if pending { "asked, no answer yet" } else { hub.status };
    let mut text = format!("hub         {status}\n");
    if let Some(brief) = &hub.brief {
        let _ = writeln!(
            text,
            "  brief     {} ({} bytes, {} redacted)",
            escaped(&brief.path),
            brief.text.len(),
            brief.redactions
        );
    }
    for (name, entries) in hub.lists() {
        for entry in entries {
            let line = format!("  {name:<10} {} {} ({})", entry.id, entry.title, entry.note);
            let _ = writeln!(text, "{}", cut(&escaped(&line).replace('\n', " "), style.width));
        }
    }
    for error in &hub.errors {
        let _ = writeln!(text, "  error      {}", escaped(error));
    }
    text
}
