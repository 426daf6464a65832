//! A turn: collects the context, classifies the risk, asks for confirmation if required, sends the turn to the agent,
//! and records both sides. Commands that the model proposes are not run; its tools are, if the person named tools and
//! confirmed the turn.

mod context;
mod watch;

use std::fmt::Write as _;

use cp_common::{Code, Context, Error, Result, coprocess};
use serde_json::{Value, json};

use self::watch::{Seen, Watch};
pub(crate) use self::watch::{changes, difference, painted};
use crate::agent::{self, ModelOptions};
use crate::interactive::console::render::{Style, count, escaped, show, style};
use crate::interactive::risk::{self, Level};
use crate::interactive::state::{Outcome, State};
use crate::interactive::transcript::{End, Exchange, called_without_effect};
use crate::plane::Read;
use crate::signals::CONTEXT_LIMIT;

/// Takes a turn with the text of a person.
pub(crate) fn take(state: &mut State<'_>, text: &str) -> Result<Outcome> {
    check_offline(state)?;
    state.tracker.turns += 1;
    state.poll_hub()?;
    let risk = risk::classify(text);
    let earlier: Vec<bool> = state.turns.iter().map(|turn| risk::changes_much(&turn.text)).collect();
    let hints = risk::hints(text, &earlier, state.hub.known().as_deref());
    let session = state.journal.session.clone();
    let mut turn = Exchange {
        number: state.tracker.turns,
        text: text.to_owned(),
        agent: state.agent.described().name.clone(),
        asked: agent::Turn { session, isolated: state.isolated, ..agent::Turn::default() },
        risk,
        hints,
        ..Exchange::default()
    };
    let lines = context::attach(&mut turn, state.redactor)?;
    // An isolated turn has no context.
    let errors = if turn.asked.isolated { Vec::new() } else { context::gather(&mut turn, state) };
    state.show(&remarks(&turn, &lines, &errors, state.console.is_terminal(), style()))?;
    match confirm(state, turn.risk.level)? {
        Some(false) => return cancelled(state, turn),
        confirmed => turn.confirmed = confirmed.is_some(),
    }
    if turn.confirmed {
        state.tracker.confirmed();
    }
    answer(state, turn)
}

/// Refuses to call a model over the network with --offline.
pub(crate) fn check_offline(state: &State<'_>) -> Result<()> {
    if !state.offline {
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
fn remarks(turn: &Exchange, lines: &[String], errors: &[String], is_terminal: bool, style: Style) -> String {
    let Exchange { risk, hints, recalled, asked, .. } = turn;
    let mut text = String::new();
    for hint in hints {
        let _ = writeln!(text, "{} {}: {}", style.warning("hint"), hint.rule, escaped(&hint.message));
    }
    if !recalled.is_empty() {
        let kinds: Vec<&str> = recalled.iter().map(|it| it.kind.as_str()).collect();
        let memories = if kinds.len() == 1 { "memory" } else { "memories" };
        let line = format!("memory: {} {memories} attached ({})", kinds.len(), kinds.join(", "));
        let _ = writeln!(text, "{}", style.faint(&line));
    }
    if is_terminal && !asked.context.is_empty() {
        let pieces = asked.context.iter().map(|piece| format!("{} {} B", piece.name, piece.text.len()));
        let _ = writeln!(text, "{}", style.faint(&format!("context: {}", pieces.collect::<Vec<_>>().join(", "))));
    }
    for line in lines {
        let _ = writeln!(text, "{}", style.faint(&escaped(line)));
    }
    for error in errors {
        let _ = writeln!(text, "{}", style.warning(&format!("memory: {}", escaped(error))));
    }
    if risk.level > Level::Safe {
        let _ = writeln!(text, "{} {}", style.warning(&format!("risk {}:", risk.level.name())), escaped(&risk.reason));
    }
    text
}

/// Cancels a turn: the person declined, or there is no terminal.
fn cancelled(state: &mut State<'_>, turn: Exchange) -> Result<Outcome> {
    state.tracker.denied();
    record(state, turn)?;
    let style = style();
    let text = if state.console.is_terminal() {
        format!("{}\n", style.faint("cancelled: nothing was sent"))
    } else {
        let message = "cancelled: this turn requires approval, and there is no terminal to ask at; nothing was sent";
        style.error(message, "send it from a terminal; a line of a script is never used as an answer")
    };
    // In a script this is a failure.
    let exit = if state.console.is_terminal() { 0 } else { Code::ConfirmationRequired.row().exit };
    Ok(Outcome { text, result: json!({"cancelled": true}), exit, has_strip: true, ..Outcome::default() })
}

/// Sends the turn, shows the answer as it arrives, and records both sides.
fn answer(state: &mut State<'_>, turn: Exchange) -> Result<Outcome> {
    let State { context, console, agent, transcript, tracker, .. } = state;
    transcript.question(turn.number, &turn.asked.text)?;
    let flags = context.handed_on();
    let mut watch = Watch::new(console, &mut context.out, tracker, flags.clone());
    let replied = agent.process(&turn.asked, &mut watch);
    let seen = watch.end()?;
    let (run, ran) = (run_line(&seen), seen.run.clone());
    let turn = Exchange { run: ran.clone(), ..turn };
    let mut outcome = match replied {
        Ok(messages) => answered(state, Exchange { messages, end: End::Answered, ..turn }, seen),
        Err(error) if error.is_reader_gone() => Err(error),
        Err(error) => stopped(state, Exchange { partial: seen.partial, ..turn }, &error),
    }?;
    outcome.text.push_str(&run);
    if let Some(run) = &ran {
        let changes = changes(run, flags)?;
        outcome.writes = changes.iter().flat_map(|change| Read::of_changes(&change["data"]["files"])).collect();
    }
    Ok(outcome)
}

/// A line about the tool run of a turn, for the person; empty if no tool was called.
fn run_line(seen: &Seen) -> String {
    let Some(run) = seen.run.as_deref().filter(|_| !seen.called.is_empty()) else { return String::new() };
    let calls = count(seen.called.len(), "call");
    let changes = match seen.changes {
        0 => String::new(),
        changes => format!(", {} of files · :diff shows, :undo puts back", count(changes, "change")),
    };
    format!("{}\n", style().faint(&escaped(&format!("{run}: {calls}{changes}"))))
}

/// Finishes an answered turn.
fn answered(state: &mut State<'_>, turn: Exchange, seen: Seen) -> Result<Outcome> {
    let (words, mut text) = (turn.words(), String::new());
    let called = called_without_effect(&turn.messages);
    if seen.partial.is_empty() && (called.is_empty() || !words.is_empty()) {
        text = escaped(&words);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if !called.is_empty() {
        let names = called.join(", ");
        let message = format!("the model called {names}, but this session has no tools");
        text.push_str(&style().error(&message, "`:tools on` permits them"));
    }
    let last = turn.messages.last();
    let tokens = last.map_or(0, |message| message.usage.tokens());
    let window = last.and_then(|message| state.settings.context.window(&message.model)).unwrap_or(CONTEXT_LIMIT);
    (state.used, state.window) = (tokens, window);
    if tokens > window / 5 * 4 {
        let message = format!("the conversation takes {tokens} of the {window} tokens that the model can hold");
        let _ = writeln!(text, "{} {message}: `cp-session compact` summarises it", style().warning("context"));
    }
    let models = turn
        .messages
        .iter()
        .map(|message| json!({"model": message.model, "backend": message.backend, "endpoint": message.endpoint}));
    let calls = models.chain(seen.called).collect();
    record(state, turn)?;
    Ok(Outcome { text, result: json!({"content": words}), calls, has_strip: true, ..Outcome::default() })
}

/// Finishes a turn that failed or was stopped. The session continues.
fn stopped(state: &mut State<'_>, turn: Exchange, error: &Error) -> Result<Outcome> {
    let interrupted = error.code() == Code::Interrupted;
    let end = if interrupted { End::Interrupted } else { End::Failed };
    record(state, Exchange { end, error: error.message().to_owned(), ..turn })?;
    let style = style();
    let mut text = String::new();
    if interrupted {
        state.forget_interrupt();
        let message = "interrupted: the turn was stopped, the session continues";
        text.push_str(&style.error(message, "send it again, or go on; `:explain` shows the turn"));
    } else {
        state.transcript.error(&error.to_value())?;
        let hint =
            error.hint_text().unwrap_or("send it again; `:state` shows the agent, `:agent` switches to another one");
        text.push_str(&style.error(error.message(), hint));
        if let Some(resume) = error.details().get("resume").and_then(Value::as_str) {
            let _ = writeln!(text, "  To continue: {}", escaped(resume));
        }
    }
    let result = json!({"error": error.code().row().name});
    let exit = if interrupted && state.console.is_terminal() { 0 } else { error.code().row().exit };
    Ok(Outcome { text, result, exit, has_strip: true, ..Outcome::default() })
}

/// Records a turn that has ended, also for `:explain`.
fn record(state: &mut State<'_>, mut turn: Exchange) -> Result<()> {
    turn.redactions = state.transcript.close(&turn)?;
    state.turns.push(turn);
    Ok(())
}

/// Asks to confirm a turn with risk, and the use of tools. `None` if nothing must be confirmed; false if the person
/// declined.
fn confirm(state: &mut State<'_>, level: Level) -> Result<Option<bool>> {
    let State { context, allows_tools, model, console, .. } = state;
    let is_risky = level > Level::Safe;
    if !model.uses_tools() || *allows_tools {
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
    *allows_tools = is_always;
    Ok(Some(is_confirmed))
}

/// The tools that the model may use, as cp-toolloop lists them.
pub(crate) fn tools(model: &ModelOptions, context: &Context) -> Result<Value> {
    let flags: Vec<_> = ["tools".into()].into_iter().chain(model.tool_flags()).collect();
    coprocess::ask("cp-toolloop", &flags, b"", context)
}
