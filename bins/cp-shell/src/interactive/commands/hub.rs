//! `:hub` and `:inbox`: what the hub said; and the two ways to tell it something, each a command of its own.

use serde_json::json;

use crate::interactive::explain::told_hub;
use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::parse::unquoted;
use crate::interactive::render::{cut, harmless};
use crate::interactive::shell::Shell;
use crate::interactive::style;

/// `:hub`, `:hub log TEXT`
pub(super) fn hub(shell: &mut Shell<'_>, argument: &str) -> Done {
    match argument.split_once(char::is_whitespace).unwrap_or((argument, "")) {
        ("", _) => {
            wait(shell)?;
            let mut text = told_hub(shell.hub.loaded(), shell.hub.is_pending(), style());
            if let Some(brief) = &shell.hub.loaded().brief {
                text.push_str(&harmless(brief.text.trim_end()));
                text.push('\n');
            }
            Ok(Outcome { result: json!(shell.hub.loaded()), ..Outcome::of_text(text) })
        }
        ("log", summary) => log(shell, unquoted(summary.trim())),
        (other, _) => Err(Problem::new(format!("`:hub {other}` is not known"), "write :hub, or :hub log TEXT")),
    }
}

/// Waits for the questions of the start: the person wants to see the answers now.
fn wait(shell: &mut Shell<'_>) -> Result<(), Problem> {
    let patience = shell.hub.patience();
    shell.hub.take(patience);
    shell.record_hub()?;
    Ok(())
}

fn log(shell: &mut Shell<'_>, summary: &str) -> Done {
    if summary.is_empty() {
        return Err(Problem::new("there is nothing to post", "write it after the command: :hub log TEXT"));
    }
    let (summary, _) = shell.redactor.redact_text(summary);
    let note = shell.hub.note(&summary, shell.journal.session());
    if !shell.desk.is_terminal() {
        shell.tracker.denied();
        return Err(Problem::new(
            "cancelled: a note to the hub needs a yes, and there is no terminal to ask at; nothing was posted",
            "say it at a terminal; the next line of a script is never taken for an answer",
        ));
    }
    if !shell.desk.agrees(&format!("Post to the hub: {}? [y/N] ", harmless(&summary))) {
        shell.tracker.denied();
        return Ok(Outcome::of_text("cancelled: nothing was posted\n"));
    }
    shell.tracker.confirmed();
    shell.hub.log(&summary, shell.journal.session())?;
    shell.record.note("session_hub_log", &note)?;
    let calls = vec![json!({"hub": "progress"})];
    Ok(Outcome { calls, result: note, ..Outcome::of_text("posted\n") })
}

/// `:inbox`, `:inbox read ID`
pub(super) fn inbox(shell: &mut Shell<'_>, argument: &str) -> Done {
    wait(shell)?;
    match argument.split_once(char::is_whitespace).unwrap_or((argument, "")) {
        ("", _) => {
            let style = style();
            let messages = &shell.hub.loaded().messages;
            let mut text = String::new();
            for message in messages {
                let line = format!("{}  {}: {}", message.id, message.note, message.title);
                text.push_str(&cut(&harmless(&line).replace('\n', " "), style.width));
                text.push('\n');
            }
            if messages.is_empty() {
                let why = shell.hub.loaded().errors.first().map_or(shell.hub.loaded().status, String::as_str);
                text = format!("no unread message is known ({})\n", harmless(why));
            }
            Ok(Outcome::of_text(text))
        }
        ("read", "") => Err(Problem::new("which message was read?", "write :inbox read ID")),
        ("read", id) => {
            shell.hub.read(id.trim())?;
            shell.record.note("session_inbox_read", &json!({"message_id": id.trim()}))?;
            let calls = vec![json!({"hub": "message read", "message_id": id.trim()})];
            Ok(Outcome { calls, ..Outcome::of_text(format!("{} is marked as read\n", harmless(id.trim()))) })
        }
        (other, _) => Err(Problem::new(format!("`:inbox {other}` is not known"), "write :inbox, or :inbox read ID")),
    }
}
