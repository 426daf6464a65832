//! Commands about the session: help, state, agent, mode, model, tools, export, signals, trust.

use std::fmt::Write as _;

use cp_common::{Error, Result};
use serde::de::IgnoredAny;
use serde_json::json;

use crate::agent::ModelOptions;
use crate::ask;
use crate::interactive::commands::{self, COMMANDS, Command};
use crate::interactive::console::render::{cell, escaped, style, value};
use crate::interactive::state::{Outcome, State};
use crate::interactive::turn;
use crate::plane::Read;
use crate::signals::health_bar;

/// `:help [COMMAND]`
pub(super) fn help(state: &mut State<'_>, about: &str) -> Result<Outcome> {
    let about = about.trim_start_matches([':', '/']);
    if !about.is_empty() {
        let command = commands::find(about)
            .ok_or_else(|| Error::usage(format!("there is no command `{about}`")).hint("`:help` lists the commands"))?;
        return Ok(Outcome::of_text(of_one(command)));
    }
    let style = style();
    let mut text = String::new();
    let available = COMMANDS.iter().filter(|command| command.is_for(state.agent.described()));
    let rows = available.map(|command| (spelled(command), command.help));
    let passthrough = (":! COMMAND".to_owned(), "run a command of the system, under policy");
    for (name, help) in rows.chain([passthrough]) {
        text.push_str(&entry(&name, help, style.width));
    }
    text.push_str(NOTES);
    Ok(Outcome::of_text(text))
}

const NOTES: &str = "`/` works like `:`: /help is :help.\n\
    The names of the operations of cp-shell(1) are commands too.\n\
    Other lines are sent to the model.\n\
    A \\ at the end, or an open ``` or \"\"\", continues the line.\n";

/// The names for help: the full name, a short name, and the operands.
fn spelled(command: &Command) -> String {
    let short =
        command.names().skip(1).find(|name| name.len() < 4).map_or_else(String::new, |name| format!(", :{name}"));
    format!(":{}{short} {}", command.name(), command.takes).trim_end().to_owned()
}

/// A name and its description: on one line, or below each other if that fits better.
fn entry(name: &str, help: &str, width: usize) -> String {
    const COLUMN: usize = 25;
    if name.len() <= COLUMN && 3 + COLUMN + help.len() <= width {
        return format!("  {name:<COLUMN$} {help}\n");
    }
    format!("  {name}\n      {help}\n")
}

fn of_one(command: &Command) -> String {
    let names: Vec<String> = command.names().map(|name| format!(":{name}")).collect();
    let needs = command.needs;
    let needs = if needs.is_empty() { String::new() } else { format!("\n  needs the capability {needs}") };
    format!("{} {}\n  {}{needs}\n", names.join(", "), command.takes, command.help)
}

/// `:quit`
pub(super) fn quit(state: &mut State<'_>) -> Outcome {
    state.end = Some(Ok(()));
    Outcome::default()
}

/// `:clear`
pub(super) fn clear(state: &State<'_>) -> Outcome {
    let text = if state.console.is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    Outcome { text: text.to_owned(), ..Outcome::default() }
}

/// `:state`
pub(super) fn state(state: &State<'_>) -> Outcome {
    let State { shell_history, context, agent, journal, hub, model, .. } = state;
    let loaded = &hub.loaded;
    let state = json!({
        "session_id": journal.session,
        "directory": journal.directory.display().to_string(),
        "home": context.home.root().display().to_string(),
        "root": state.plane.root.display().to_string(),
        "mode": mode_name(state.isolated),
        "agent": agent.described(),
        "backend": context.config.text("backend", model.backend.as_deref()),
        "model": context.config.text("model", model.model.as_deref()),
        "tools": model.tools,
        "offline": state.offline,
        "signals": state.signals(),
        "context": {"used": state.used, "limit": state.window},
        "shell_history": {"enabled": shell_history.enabled, "lines": shell_history.lines.len()},
        "hub": {
            "status": loaded.status,
            "pending": hub.is_pending(),
            "workstreams": loaded.workstreams.len(),
            "tasks": loaded.tasks.len(),
            "messages": loaded.messages.len(),
            "errors": loaded.errors,
        },
    });
    let text = serde_json::to_string_pretty(&state).unwrap_or_default();
    Outcome { text: escaped(&text) + "\n", result: state, ..Outcome::default() }
}

const fn mode_name(isolated: bool) -> &'static str {
    if isolated { "isolated" } else { "persistent" }
}

/// `:agent [NAME]`
pub(super) fn agent(state: &mut State<'_>, name: &str) -> Result<Outcome> {
    if !name.is_empty() {
        state.switch_agent(name)?;
    }
    let mut known: Vec<String> = state.context.home.agents::<IgnoredAny>()?.into_keys().collect();
    if !known.iter().any(|id| id == "default") {
        known.push("default".to_owned());
    }
    let mut answer = json!(state.agent.described());
    answer["others"] = known.into();
    Ok(Outcome { text: value(&answer, style()), result: answer, ..Outcome::default() })
}

/// `:ctx [persistent|isolated]`
pub(super) fn mode(state: &mut State<'_>, mode: &str) -> Result<Outcome> {
    match mode {
        "" => {}
        "persistent" | "isolated" => {
            state.isolated = mode == "isolated";
            state.transcript.note("session_mode", &json!({"mode": mode}))?;
        }
        other => {
            return Err(
                Error::usage(format!("there is no mode `{other}`")).hint("write :ctx persistent or :ctx isolated")
            );
        }
    }
    let meaning = if state.isolated {
        "only the current turn is sent to the model; the session records everything"
    } else {
        "the conversation, the context and memories are sent to the model"
    };
    let now = mode_name(state.isolated);
    Ok(Outcome { text: format!("{now}: {meaning}\n"), result: json!({"mode": now}), ..Outcome::default() })
}

/// `:export-session`
pub(super) fn export(state: &mut State<'_>, _: &str) -> Result<Outcome> {
    let exported = ask(state.context, "cp-session", &["export"])?;
    let path = exported["path"].as_str().unwrap_or_default().to_owned();
    let hash = exported["sha256"].as_str().map(str::to_owned);
    let text = format!("written: {}, {} turns, without secrets\n", escaped(&path), exported["turns"]);
    Ok(Outcome { text, result: exported, writes: vec![Read::whole(path, hash)], ..Outcome::default() })
}

/// `:signals`
pub(super) fn signals(state: &State<'_>) -> Outcome {
    let signals = state.signals();
    let result = json!(signals);
    let (stance, icon) = signals.stance.shown();
    let mut text = format!("{}\n", state.strip());
    let rows = [
        ("stance", format!("{icon} {stance}")),
        ("altitude", signals.altitude.to_owned()),
        ("health", format!("{} {:.1}", health_bar(signals.health), signals.health)),
        ("progress", signals.progress_icon().to_string()),
        ("trust", format!("{} {:.1}", signals.trust_icon(), signals.trust)),
        ("learning", signals.learning_icon().to_string()),
        ("tier", cell(&result["tier"])),
        ("role", cell(&result["role"])),
        ("active_wo", cell(&result["active_wo"])),
        ("gate_state", cell(&result["gate_state"])),
        ("ledger", if signals.ledger_synced { "synced" } else { "not synced" }.to_owned()),
    ];
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<11} {}", escaped(&value));
    }
    Outcome { text, result, ..Outcome::default() }
}

/// `:trust`
pub(super) fn trust(state: &State<'_>) -> Outcome {
    let signals = state.signals();
    let (icon, trust) = (signals.trust_icon(), signals.trust);
    let text = format!("trust {icon} {trust:.2}: the share of calls of commands and tools that were not denied\n");
    Outcome { text, result: json!({"trust": trust}), ..Outcome::default() }
}

/// `:model [MODEL]`, `:backend [NAME]`: the current one stays if the new one is not available.
pub(super) fn choose(
    state: &mut State<'_>,
    value: &str,
    name: &'static str,
    member: fn(&mut ModelOptions) -> &mut Option<String>,
) -> Result<Outcome> {
    if !value.is_empty() {
        let before = member(&mut state.model).replace(value.to_owned());
        let agent = state.transcript.agent.clone();
        if let Err(e) = state.switch_agent(&agent) {
            *member(&mut state.model) = before;
            return Err(e);
        }
        state.transcript.note("session_model", &json!({name: value}))?;
    }
    let now = state.context.config.text(name, member(&mut state.model).as_deref());
    let text = now.as_deref().map_or_else(|| "chosen by the environment".to_owned(), escaped);
    Ok(Outcome { text: format!("{name}: {text}\n"), result: json!({name: now}), ..Outcome::default() })
}

/// `:tools [on|off]`
pub(super) fn tools(state: &mut State<'_>, switch: &str) -> Result<Outcome> {
    match switch {
        "" => {}
        "on" | "off" => {
            let is_on = switch == "on";
            state.model.with_tools = is_on;
            if !is_on {
                state.model.tools.clear();
                state.allows_tools = false;
            }
            let agent = state.transcript.agent.clone();
            state.switch_agent(&agent)?;
            state.transcript.note("session_tools", &json!({"enabled": is_on}))?;
        }
        other => {
            return Err(Error::usage(format!("there is no `:tools {other}`")).hint("write :tools on, or :tools off"));
        }
    }
    let State { model, allows_tools, context, .. } = state;
    if !model.uses_tools() {
        return Ok(Outcome::of_text("off: `:tools on` lets the model use the built-in tools, after confirmation\n"));
    }
    let found = turn::tools(model, context)?;
    let mut text = String::new();
    for tool in found["items"].as_array().into_iter().flatten() {
        let member = |name: &str| escaped(tool[name].as_str().unwrap_or_default());
        let _ = writeln!(text, "{}  {}", style().strong(&member("name")), member("description").replace('\n', " "));
    }
    if *allows_tools {
        let _ = writeln!(text, "{}", style().faint("allowed for this session, except in turns with risk"));
    }
    Ok(Outcome { text, result: found, ..Outcome::default() })
}
