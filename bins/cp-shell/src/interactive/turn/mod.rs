//! A turn: collects the context, classifies the risk, asks for confirmation if required, sends the turn to the agent, and records both
//! sides. Commands that the model proposes are not run; its tools are, if the person named tools and confirmed the turn.

pub(crate) mod changes;
mod context;
mod watch;

use std::fmt::Write as _;

use cp_common::wire::Message;
use cp_common::{Code, Context, Error, Result, coprocess, signals};
use cp_ledger::format::line::Hash;
use serde_json::{Value, json};

use self::context::{Attached, Envelope};
pub(crate) use self::context::{attachable, is_attached};
use self::watch::{Seen, Watch};
use crate::agent::{self, ModelOptions};
use crate::interactive::assessment::hints::{self, Hint, Situation};
use crate::interactive::assessment::risk::{self, Level, Risk};
use crate::interactive::assessment::{Explained, TurnOutcome};
use crate::interactive::console::render::{Style, count, escaped, show, style};
use crate::interactive::history::append;
use crate::interactive::state::{Outcome, State};
use crate::interactive::transcript::{Closed, called_without_effect, last_answer};
use crate::signals::CONTEXT_LIMIT;

/// A turn that is about to be sent.
struct Sending<'a> {
    text: &'a str,
    /// The text with attached texts.
    sent: String,
    attached: Attached,
    risk: Risk,
    hints: Vec<Hint>,
    envelope: Envelope,
}

/// Takes a turn with the text of a person.
pub(crate) fn take(state: &mut State<'_>, text: &str) -> Result<Outcome> {
    check_offline(state)?;
    state.session_status.tracker.count_turn();
    state.poll_hub()?;
    decide_brief(state)?;
    text.clone_into(&mut state.conversation.last_question);
    let attached = Attached::of(&state.conversation.attached, text, &state.setup.redactor)?;
    let risk = risk::classify(text);
    let State { setup, context, hub, conversation, .. } = state;
    let hints = hints::hints(&Situation {
        text,
        level: risk.level,
        destructive_turns: &conversation.destructive_turns,
        hub: &hub.loaded().text(),
    });
    conversation.destructive_turns.push(hints::is_destructive_or_mass_edit(text, risk.level));
    // An isolated turn has no context.
    let envelope =
        if conversation.isolated { Envelope::default() } else { Envelope::gather(text, setup, hub.loaded(), context) };
    let sent = format!("{text}{}", attached.text);
    let sending = Sending { text, sent, attached, risk, hints, envelope };
    state.show(&remarks(&sending, state.console.is_terminal(), style()))?;
    state.conversation.last = Some(Explained {
        turn: 0,
        text: state.setup.redactor.redact_text(text).0,
        risk: sending.risk.clone(),
        hints: sending.hints.clone(),
        pieces: sending.envelope.pieces.iter().map(|piece| (piece.name.clone(), piece.text.len())).collect(),
        recalled: sending.envelope.recalled.iter().map(|it| format!("{} ({}): {}", it.kind, it.at, it.text)).collect(),
        redactions: sending.envelope.redactions,
        isolated: state.conversation.isolated,
        agent: state.agent.name().to_owned(),
        confirmed: false,
        outcome: TurnOutcome::NotSent,
    });
    if let Some(is_confirmed) = confirm(state, sending.risk.level)? {
        if !is_confirmed {
            return cancelled(state, &sending);
        }
        state.session_status.tracker.confirmed();
        if let Some(last) = &mut state.conversation.last {
            last.confirmed = true;
        }
    }
    answer(state, &sending)
}

/// Refuses to call a model over the network with --offline.
pub(crate) fn check_offline(state: &State<'_>) -> Result<()> {
    if !state.setup.request.options.offline {
        return Ok(());
    }
    let backend = state.context.config.text("backend", state.model.backend.as_deref());
    match backend.as_deref() {
        Some("stub") => Ok(()),
        _ => Err(Error::usage("the model is reached over the network, which --offline forbids")
            .hint("add --backend stub, or remove --offline; the other commands work as they are")),
    }
}

/// The text that is shown before the answer.
fn remarks(sending: &Sending<'_>, is_terminal: bool, style: Style) -> String {
    let Sending { risk, hints, envelope, .. } = sending;
    let mut text = String::new();
    for hint in hints {
        let _ = writeln!(text, "{} {}: {}", style.warning("hint"), hint.rule, escaped(&hint.message));
    }
    if !envelope.recalled.is_empty() {
        let kinds: Vec<&str> = envelope.recalled.iter().map(|it| it.kind.as_str()).collect();
        let memories = if kinds.len() == 1 { "memory" } else { "memories" };
        let line = format!("memory: {} {memories} attached ({})", kinds.len(), kinds.join(", "));
        let _ = writeln!(text, "{}", style.faint(&line));
    }
    if is_terminal && !envelope.pieces.is_empty() {
        let pieces = envelope.pieces.iter().map(|piece| format!("{} {} B", piece.name, piece.text.len()));
        let _ = writeln!(text, "{}", style.faint(&format!("context: {}", pieces.collect::<Vec<_>>().join(", "))));
    }
    for line in &sending.attached.lines {
        let _ = writeln!(text, "{}", style.faint(&escaped(line)));
    }
    for error in &envelope.errors {
        let _ = writeln!(text, "{}", style.warning(&format!("memory: {}", escaped(error))));
    }
    if risk.level > Level::Safe {
        let _ = writeln!(text, "{} {}", style.warning(&format!("risk {}:", risk.level.name())), escaped(&risk.reason));
    }
    text
}

/// Cancels a turn: the person declined, or there is no terminal.
fn cancelled(state: &mut State<'_>, sending: &Sending<'_>) -> Result<Outcome> {
    state.session_status.tracker.denied();
    let closed = Closed { cancelled: true, ..sending.closed(state) };
    record(state, &closed)?;
    let style = style();
    let text = if state.console.is_terminal() {
        format!("{}\n", style.faint("cancelled: nothing was sent"))
    } else {
        let message = "cancelled: this turn requires approval, and there is no terminal to ask at; nothing was sent";
        style.error(message, Some("send it from a terminal; a line of a script is never used as an answer"))
    };
    // In a script this is a failure.
    let exit = if state.console.is_terminal() { 0 } else { Code::ConfirmationRequired.row().exit };
    Ok(Outcome { text, result: json!({"cancelled": true}), exit, has_strip: true, ..Outcome::default() })
}

/// Sends the turn, shows the answer as it arrives, and records both sides.
fn answer(state: &mut State<'_>, sending: &Sending<'_>) -> Result<Outcome> {
    let State { context, console, agent, ledgers, session_status, conversation, model, .. } = state;
    ledgers.transcript.question(session_status.tracker.turns(), &sending.sent)?;
    let turn = agent::Turn {
        text: &sending.sent,
        session: ledgers.journal.session(),
        isolated: conversation.isolated,
        context: &sending.envelope.pieces,
        attached: &sending.attached.others,
    };
    if let Some(last) = &mut conversation.last {
        last.outcome = TurnOutcome::Sent;
    }
    let (flags, tracker) = (context.handed_on(), &mut session_status.tracker);
    let allowed = &mut conversation.allowed;
    let mut watch = Watch::new(console, &mut context.out, tracker, allowed, model.reasoning, flags);
    let replied = agent.process(&turn, &mut watch);
    let seen = watch.end()?;
    let run = run_line(&seen);
    let mut outcome = match replied {
        Ok(reply) => answered(state, sending, &reply.messages, seen),
        Err(error) if error.is_reader_gone() => Err(error),
        Err(error) => stopped(state, sending, &error, &seen),
    }?;
    outcome.text.push_str(&run);
    Ok(outcome)
}

/// A line about the tool run of a turn, for the person; empty if no tool was called.
fn run_line(seen: &Seen) -> String {
    let Some(run) = seen.run.as_deref().filter(|_| !seen.called.is_empty()) else { return String::new() };
    let calls = count(seen.called.len(), "call");
    let changes = match seen.changes {
        0 => String::new(),
        changes => format!(", {} of files · :diff shows, :undo takes back", count(changes, "change")),
    };
    format!("{}\n", style().faint(&escaped(&format!("{run}: {calls}{changes}"))))
}

/// Finishes an answered turn.
fn answered(state: &mut State<'_>, sending: &Sending<'_>, messages: &[Message], seen: Seen) -> Result<Outcome> {
    let (words, tokens) = last_answer(messages);
    let mut text = String::new();
    let called = called_without_effect(messages);
    if seen.partial.is_empty() && (called.is_empty() || !words.is_empty()) {
        text = escaped(&words);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if !called.is_empty() {
        let names = called.join(", ");
        let message = format!("the model called {names}, but this session has no tools: `:tools on` permits them");
        text.push_str(&style().error(&message, None));
    }
    state.session_status.used = tokens;
    let answered_by = messages.last().map(|message| message.model.as_str()).unwrap_or_default();
    state.session_status.window = state.setup.settings.context.window(answered_by).unwrap_or(CONTEXT_LIMIT);
    words.clone_into(&mut state.conversation.answer);
    state.conversation.last_attachments = std::mem::take(&mut state.conversation.attached);
    let closed = Closed { messages, run: seen.run.as_deref(), ..sending.closed(state) };
    record(state, &closed)?;
    state.conversation.end_round(seen.run);
    let without_secrets = |text: &str| state.setup.redactor.redact_text(text).0;
    state.conversation.rounds.push((without_secrets(sending.text), without_secrets(&words)));
    if let Some(last) = &mut state.conversation.last {
        last.outcome = TurnOutcome::Answered;
    }
    if tokens > state.session_status.window / 5 * 4 {
        let message = format!(
            "the conversation takes {tokens} of the {} tokens that the model can hold",
            state.session_status.window
        );
        let _ = writeln!(text, "{} {message}: :compact summarises it", style().warning("context"));
    }
    let models = messages
        .iter()
        .map(|message| json!({"model": message.model, "backend": message.backend, "endpoint": message.endpoint}));
    let calls = models.chain(seen.called).collect();
    Ok(Outcome { text, result: json!({"content": words}), calls, has_strip: true, ..Outcome::default() })
}

/// Finishes a turn that failed or was stopped. The session continues.
fn stopped(state: &mut State<'_>, sending: &Sending<'_>, error: &Error, seen: &Seen) -> Result<Outcome> {
    let interrupted = error.code() == Code::Interrupted;
    let (partial, run) = (seen.partial.as_str(), seen.run.as_deref());
    let closed = Closed { cancelled: interrupted, interrupted, partial, run, ..sending.closed(state) };
    record(state, &closed)?;
    if interrupted {
        signals::forget_interrupt();
        state.conversation.end_round(seen.run.clone());
    } else {
        state.conversation.failed_run.clone_from(&seen.run);
        state.conversation.last_error = Some(format!("{}: {}", error.code().row().name, error.message()));
        state.ledgers.transcript.note("error", &error.to_value())?;
    }
    if let Some(last) = &mut state.conversation.last {
        last.outcome = if interrupted { TurnOutcome::Interrupted } else { TurnOutcome::Failed };
    }
    let style = style();
    let mut text = String::new();
    if interrupted {
        text.push_str(&style.error("interrupted: the turn was stopped, the session continues", None));
    } else {
        let hint =
            error.hint_text().unwrap_or("send it again; `:state` shows the agent, `:agent` switches to another one");
        text.push_str(&style.error(error.message(), Some(hint)));
        if let Some(resume) = error.details().get("resume").and_then(Value::as_str) {
            let _ = writeln!(text, "  To continue: {}", escaped(resume));
        }
    }
    let result = json!({"error": error.code().row().name});
    let exit = if interrupted { 0 } else { error.code().row().exit };
    Ok(Outcome { text, result, exit, has_strip: true, ..Outcome::default() })
}

impl Sending<'_> {
    /// The turn without an answer.
    fn closed(&self, state: &State<'_>) -> Closed<'_> {
        Closed {
            hints: &self.hints,
            recalled: self.envelope.recalled.len(),
            attached: self.envelope.redactions + self.attached.redactions,
            ..Closed::new(state.session_status.tracker.turns(), &self.sent, &self.risk)
        }
    }
}

/// Records a turn. Its number and redactions are also shown by `:explain`.
fn record(state: &mut State<'_>, closed: &Closed<'_>) -> Result<()> {
    let redactions = state.ledgers.transcript.turn(closed)?;
    if let Some(last) = &mut state.conversation.last {
        (last.turn, last.redactions) = (closed.number, redactions);
    }
    Ok(())
}

/// Asks to confirm a turn with risk, and the use of tools. `None` if nothing must be confirmed; false if the person declined.
fn confirm(state: &mut State<'_>, level: Level) -> Result<Option<bool>> {
    let State { context, conversation, model, console, .. } = state;
    let is_risky = level > Level::Safe;
    if !model.uses_tools() || conversation.allows_tools {
        let question = format!("Send this {} turn? [y/N] ", level.name());
        return Ok(is_risky.then(|| console.confirm(&question)));
    }
    let found = tools(model, context)?;
    let items = found["items"].as_array().into_iter().flatten();
    let names = items.filter_map(|tool| tool["name"].as_str()).collect::<Vec<_>>().join(", ");
    let send = if is_risky { format!("Send this {} turn, and let", level.name()) } else { "Let".to_owned() };
    if console.is_terminal() {
        show(&mut context.out, &format!("{send} the model use {} in this turn?\n", escaped(&names)))?;
    }
    let parse = |typed: &str| match typed {
        "y" | "yes" => Some((true, false)),
        "a" | "always" => Some((true, true)),
        "" | "n" | "no" => Some((false, false)),
        _ => None,
    };
    let (is_confirmed, is_always) =
        console.choose("y = yes, n = no, a = always in this session: ", "y, n or a", parse).unwrap_or_default();
    conversation.allows_tools = is_always;
    Ok(Some(is_confirmed))
}

/// The tools that the model may use, as cp-toolloop lists them.
pub(crate) fn tools(model: &ModelOptions, context: &Context) -> Result<Value> {
    let flags: Vec<_> = ["tools".into()].into_iter().chain(model.tool_flags()).collect();
    coprocess::ask("cp-toolloop", &flags, b"", context)?.data()
}

/// The file of the answers, one on each line: `yes` or `no`, and the hash of the path and content of the brief.
const FILE: &str = "briefs";

/// Asks once whether the brief is sent with turns. It is not sent if the answer is no, or without a terminal.
pub(super) fn decide_brief(state: &mut State<'_>) -> Result<()> {
    let Some((path, text)) = state.hub.undecided_brief() else { return Ok(()) };
    let hash = Hash::of(format!("{path}\n{text}").as_bytes());
    let mark = hash.hex();
    let file = state.context.home.state(FILE);
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let answered = |answer: &str| kept.lines().any(|line| line == format!("{answer} {mark}"));
    if answered("yes") {
        state.hub.decide_brief(true);
        return Ok(());
    }
    let is_asked = !answered("no") && state.console.is_terminal();
    let name = escaped(&path);
    let is_confirmed =
        is_asked && state.console.confirm(&format!("Send the brief {name} ({} bytes) with turns? [y/N] ", text.len()));
    if is_asked {
        append(&file, &format!("{} {mark}\n", if is_confirmed { "yes" } else { "no" }))?;
    } else if !answered("no") {
        let line = format!("the brief {name} was not sent: confirm it once in a terminal\n");
        state.show(&style().faint(&line))?;
    }
    state.hub.decide_brief(is_confirmed);
    Ok(())
}
