//! A turn: what goes along is gathered, the risk told, a yes asked for where it is needed; then the agent answers, and both sides go to
//! the session. Nothing that the model proposes is run here: its tools are, where the person named some and says yes to the turn.

use std::fmt::Write as _;

use cp_common::wire::Message;
use cp_common::{Code, Error};
use serde_json::json;

use crate::agent::{Event, Turn};
use crate::interactive::consent;
use crate::interactive::explain::Explained;
use crate::interactive::gather::{Envelope, Known, gather};
use crate::interactive::hints::{self, Hint, Situation};
use crate::interactive::interrupt;
use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::record::{Over, last_words, result_of};
use crate::interactive::render::{Style, count, cut, harmless};
use crate::interactive::risk::{self, Level, Risk};
use crate::interactive::shell::Shell;
use crate::interactive::style;
use crate::signals::{CONTEXT_LIMIT, Strip};

/// What is about to be sent.
struct Sending<'a> {
    said: &'a str,
    risk: Risk,
    hints: Vec<Hint>,
    envelope: Envelope,
}

/// Takes what a person said.
pub(crate) fn take(shell: &mut Shell<'_>, said: &str) -> Done {
    check_offline(shell)?;
    shell.look_at_hub()?;
    let risk = risk::classify(said);
    let situation = Situation { text: said, level: risk.level, heavy: &shell.heavy, hub: &shell.hub.loaded().text() };
    let hints = hints::hints(&situation);
    shell.heavy.push(hints::is_heavy(said, risk.level));
    let sending = Sending { said, risk, hints, envelope: envelope(shell, said) };
    shell.say(&before(&sending, style()))?;
    let Sending { risk, hints, envelope, .. } = &sending;
    shell.last = Some(Explained::new(said, risk, hints, envelope, shell));
    if let Some(question) = consent::question(shell, &sending.risk)? {
        if !shell.desk.agrees(&format!("{question} [y/N] ")) {
            return cancelled(shell, &sending);
        }
        shell.tracker.confirmed();
        if let Some(last) = &mut shell.last {
            last.confirmed = true;
        }
    }
    answer(shell, &sending)
}

/// Refuses to ask a model over a network that the person does not want to be used.
fn check_offline(shell: &Shell<'_>) -> Result<(), Problem> {
    if !shell.args.offline {
        return Ok(());
    }
    let backend = shell.context.config.text("backend", shell.args.backend.as_deref());
    match backend.as_deref() {
        Some("stub") => Ok(()),
        _ => Err(Problem::new(
            "with --offline no model is asked that is reached over a network",
            "add --backend stub, or leave --offline out; the other commands work as they are",
        )),
    }
}

/// What goes along: nothing at all where only the prompt is to go.
fn envelope(shell: &Shell<'_>, said: &str) -> Envelope {
    if shell.isolated {
        return Envelope::default();
    }
    let known = Known { history: &shell.history, hub: shell.hub.loaded(), memory: &shell.settings.memory };
    gather(said, known, &shell.redactor, shell.context)
}

/// What is told before the answer.
fn before(sending: &Sending<'_>, style: Style) -> String {
    let Sending { risk, hints, envelope, .. } = sending;
    let mut text = String::new();
    for hint in hints {
        let _ = writeln!(text, "{} {}: {}", style.warning("hint"), hint.rule, harmless(&hint.message));
    }
    if !envelope.recalled.is_empty() {
        let kinds: Vec<&str> = envelope.recalled.iter().map(|it| it.kind.as_str()).collect();
        let told = format!("memory: {} went along ({})", count(kinds.len(), "remembered thing"), kinds.join(", "));
        let _ = writeln!(text, "{}", style.faint(&told));
    }
    for error in &envelope.errors {
        let _ = writeln!(text, "{}", style.warning(&format!("memory: {}", harmless(error))));
    }
    if risk.level > Level::Safe {
        let _ = writeln!(text, "{} {}", style.warning(&format!("risk {}:", risk.level.name())), harmless(&risk.reason));
    }
    text
}

/// The person said no, or there is nobody who could say yes.
fn cancelled(shell: &mut Shell<'_>, sending: &Sending<'_>) -> Done {
    shell.tracker.denied();
    if let Some(last) = &mut shell.last {
        last.cancelled = true;
    }
    record(shell, sending, &[], true, "")?;
    let style = style();
    let mut text = if shell.desk.is_terminal() {
        format!("{}\n", style.faint("cancelled: nothing was sent"))
    } else {
        let message = "cancelled: this turn needs a yes, and there is no terminal to ask at; nothing was sent";
        style.error(message, Some("say it at a terminal; the next line of a script is never taken for an answer"))
    };
    let _ = writeln!(text, "{}", style.faint(&strip(shell)));
    Ok(Outcome { text, result: json!({"cancelled": true}), ..Outcome::default() })
}

/// Sends it, shows what comes as it comes, and keeps both sides.
fn answer(shell: &mut Shell<'_>, sending: &Sending<'_>) -> Done {
    let (mut partial, mut called) = (String::new(), Vec::new());
    let style = style();
    let session = shell.journal.session().to_owned();
    let turn =
        Turn { text: sending.said, session: &session, isolated: shell.isolated, context: &sending.envelope.pieces };
    let Shell { agent, context, tracker, .. } = shell;
    let replied = agent.process(&turn, &mut |event| {
        let shown = match event {
            Event::Delta(words) => {
                partial.push_str(words);
                harmless(words)
            }
            Event::ToolCall(call) => {
                let line = format!("→ {} {}", call.name, call.input.get());
                called.push(json!({"tool": call.name}));
                on_a_line_of_its_own(&mut partial, &cut(&harmless(&line).replace('\n', " "), style.width), style)
            }
            Event::ToolResult(result) => {
                let denied = result.is_error && result.exit_code.is_none() && is_denial(&result.content);
                tracker.called(denied);
                if denied {
                    tracker.denied();
                }
                let first = result.content.lines().next().unwrap_or_default();
                let mark = if result.is_error { "✗" } else { "←" };
                on_a_line_of_its_own(
                    &mut partial,
                    &cut(&harmless(&format!("{mark} {}: {first}", result.name)), style.width),
                    style,
                )
            }
        };
        context.out.raw(shown.as_bytes())?;
        context.out.flush()
    });
    match replied {
        Ok(reply) => {
            let mut text = String::new();
            let (words, tokens) = last_words(&reply.messages);
            if partial.is_empty() {
                text.push_str(&harmless(&words));
            }
            let shown = if partial.is_empty() { &words } else { &partial };
            if !shown.ends_with('\n') {
                text.push('\n');
            }
            shell.used = tokens;
            let redactions = record(shell, sending, &reply.messages, false, "")?;
            remember_round(shell, sending.said, &words);
            if let Some(last) = &mut shell.last {
                last.answered(redactions);
            }
            let _ = writeln!(text, "{}", style.faint(&strip(shell)));
            let result = result_of(&reply.messages);
            Ok(Outcome { text, result, calls: calls(&reply.messages, called), ..Outcome::default() })
        }
        Err(error) if error.is_reader_gone() => Err(error.into()),
        Err(error) => {
            let at_line_start = partial.is_empty() || partial.ends_with('\n');
            let interrupted = error.code() == Code::Interrupted;
            record(shell, sending, &[], interrupted, &partial)?;
            stopped(shell, &error, at_line_start)
        }
    }
}

/// The turn has failed, or the person stopped it. The session goes on.
fn stopped(shell: &mut Shell<'_>, error: &Error, at_line_start: bool) -> Done {
    let interrupted = error.code() == Code::Interrupted;
    if interrupted {
        shell.desk.forget_interruption();
        interrupt::forget();
    } else {
        shell.record.note("error", &error.to_value())?;
    }
    if let Some(last) = &mut shell.last {
        last.cancelled = true;
    }
    let style = style();
    let mut text = String::from(if at_line_start { "" } else { "\n" });
    if interrupted {
        text.push_str(&style.error("interrupted: the turn was stopped, the session goes on", None));
    } else {
        text.push_str(&style.error(error.message(), error.hint_text()));
        if let Some(resume) = error.details().get("resume").and_then(serde_json::Value::as_str) {
            let _ = writeln!(text, "  To go on: {}", harmless(resume));
        }
    }
    let _ = writeln!(text, "{}", style.faint(&strip(shell)));
    let result = json!({"error": error.code().row().name});
    Ok(Outcome { text, result, failed: !interrupted, ..Outcome::default() })
}

/// Whether a tool's answer says that it was kept from running: by the list of tools, by a person, or by policy.
fn is_denial(answer: &str) -> bool {
    let first = answer.lines().next().unwrap_or_default();
    first.starts_with("Tool not permitted") || first.starts_with("Denied:") || first.contains("is not allowed")
}

/// A line about a tool, after the words that came before it.
fn on_a_line_of_its_own(partial: &mut String, line: &str, style: Style) -> String {
    let start = if partial.is_empty() || partial.ends_with('\n') { "" } else { "\n" };
    if !start.is_empty() {
        partial.push('\n');
    }
    format!("{start}{}\n", style.faint(line))
}

fn record(
    shell: &mut Shell<'_>,
    sending: &Sending<'_>,
    messages: &[Message],
    cancelled: bool,
    partial: &str,
) -> Result<u32, Problem> {
    let Sending { said, risk, hints, envelope } = sending;
    let number = shell.tracker.turns();
    let recalled = envelope.recalled.len();
    let over = Over { number, said, messages, risk, hints, cancelled, partial, recalled };
    Ok(shell.record.turn(&over)? + envelope.redactions)
}

/// Keeps the round for the end of the session, without secrets.
fn remember_round(shell: &mut Shell<'_>, said: &str, words: &str) {
    let (said, _) = shell.redactor.redact_text(said);
    let (words, _) = shell.redactor.redact_text(words);
    shell.rounds.push((said, words));
}

/// How the session stands, in a line.
pub(crate) fn strip(shell: &Shell<'_>) -> String {
    let signals = shell.tracker.signals(&shell.plane);
    Strip { signals: &signals, used: shell.used, limit: CONTEXT_LIMIT }.to_string()
}

/// What was called on the way: models and tools.
fn calls(messages: &[Message], tools: Vec<serde_json::Value>) -> Vec<serde_json::Value> {
    let models = messages.iter().map(|message| json!({"model": message.model, "backend": message.backend}));
    models.chain(tools).collect()
}
