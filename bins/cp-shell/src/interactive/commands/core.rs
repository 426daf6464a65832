//! The commands of every shell: help, state, agent, mode, and how the session stands.

use std::fmt::Write as _;

use cp_common::wire::raw;
use serde_json::{Value, json};

use crate::interactive::agent_of;
use crate::interactive::explain::explained;
use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::render::{harmless, value};
use crate::interactive::shell::Shell;
use crate::interactive::style;
use crate::interactive::table::{self, COMMANDS, Command};
use crate::interactive::turn::strip;
use crate::journal::ask;
use crate::plane::Read;
use crate::signals::{CONTEXT_LIMIT, health_bar};

/// `:help [COMMAND]`
pub(super) fn help(shell: &Shell<'_>, about: &str) -> Done {
    let about = about.trim_start_matches([':', '/']);
    if !about.is_empty() {
        let command = table::find(about)
            .ok_or_else(|| Problem::new(format!("there is no command `{about}`"), "`:help` lists the commands"))?;
        return Ok(Outcome::of_text(of_one(command)));
    }
    let style = style();
    let mut text = String::new();
    let there = COMMANDS
        .iter()
        .filter(|command| command.needs.is_none_or(|needed| shell.agent.capabilities().contains(&needed)));
    let rows = there.map(|command| (spelled(command), command.help));
    let passthrough = (":! COMMAND".to_owned(), "run a command of the system, under policy");
    for (name, help) in rows.chain([passthrough]) {
        text.push_str(&entry(&name, help, style.width));
    }
    text.push_str("A / does for a :, as in /help. The names of the operations of cp-shell(1) are commands too.\n");
    text.push_str("All else goes to the model. A \\ at its end, or an open ``` or \"\"\", lets a line go on.\n");
    Ok(Outcome::of_text(text))
}

/// Its names as help shows them: the whole one, a short one, and what it takes.
fn spelled(command: &Command) -> String {
    let short =
        command.names.iter().skip(1).find(|name| name.len() < 4).map_or_else(String::new, |name| format!(", :{name}"));
    format!(":{}{short} {}", command.name(), command.takes).trim_end().to_owned()
}

/// A name and what it does, below each other where they do not fit beside each other.
fn entry(name: &str, help: &str, width: usize) -> String {
    const COLUMN: usize = 31;
    let beside = 2 + COLUMN + 1 + help.len() <= width && name.len() <= COLUMN;
    if beside { format!("  {name:<COLUMN$} {help}\n") } else { format!("  {name}\n      {help}\n") }
}

fn of_one(command: &Command) -> String {
    let names: Vec<String> = command.names.iter().map(|name| format!(":{name}")).collect();
    let needs = command.needs.map_or_else(String::new, |needed| format!("\n  needs the capability {}", needed.name()));
    format!("{} {}\n  {}{needs}\n", names.join(", "), command.takes, command.help)
}

/// `:clear`
pub(super) fn clear(shell: &Shell<'_>) -> Outcome {
    let text = if shell.desk.is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    Outcome { text: text.to_owned(), ..Outcome::default() }
}

/// `:state`
pub(super) fn state(shell: &mut Shell<'_>) -> Done {
    let own = shell.agent.state()?;
    let capabilities: Vec<&str> = shell.agent.capabilities().iter().map(|it| it.name()).collect();
    let hub = shell.hub.loaded();
    let state = json!({
        "session_id": shell.journal.session(),
        "directory": shell.journal.directory().display().to_string(),
        "home": shell.context.home.root().display().to_string(),
        "root": shell.plane.root().display().to_string(),
        "mode": mode_name(shell.isolated),
        "agent": {
            "name": shell.agent.name(),
            "version": shell.agent.version(),
            "capabilities": capabilities,
            "state": own,
        },
        "backend": shell.context.config.text("backend", shell.args.backend.as_deref()),
        "tools": shell.args.tools,
        "offline": shell.args.offline,
        "signals": shell.tracker.signals(&shell.plane).to_value(),
        "context": {"used": shell.used, "limit": CONTEXT_LIMIT},
        "shell_history": {"enabled": shell.history.enabled, "lines": shell.history.lines.len()},
        "hub": {
            "status": hub.status,
            "pending": shell.hub.is_pending(),
            "workstreams": hub.workstreams.len(),
            "tasks": hub.tasks.len(),
            "messages": hub.messages.len(),
            "errors": hub.errors,
        },
    });
    let text = serde_json::to_string_pretty(&state).unwrap_or_default();
    Ok(Outcome { text: harmless(&text) + "\n", result: state, ..Outcome::default() })
}

const fn mode_name(isolated: bool) -> &'static str {
    if isolated { "isolated" } else { "persistent" }
}

/// `:agent [NAME]`
pub(super) fn agent(shell: &mut Shell<'_>, name: &str) -> Done {
    if !name.is_empty() {
        // The one that is there goes on where the other cannot be had.
        shell.agent = agent_of(name, &shell.plane, &shell.desk, shell.args, shell.context)?;
        shell.record.speaks(name);
        shell.record.note("session_agent", &json!({"agent": name}))?;
    }
    let mut known: Vec<String> = crate::agents::load(&shell.context.home.agents_file())?.keys().cloned().collect();
    if !known.iter().any(|id| id == "default") {
        known.push("default".to_owned());
    }
    let answer = json!({
        "name": shell.agent.name(),
        "version": shell.agent.version(),
        "capabilities": shell.agent.capabilities().iter().map(|it| it.name()).collect::<Vec<_>>(),
        "others": known,
    });
    Ok(Outcome { text: value(&answer, style()), result: answer, ..Outcome::default() })
}

/// `:ctx [persistent|isolated]`
pub(super) fn mode(shell: &mut Shell<'_>, mode: &str) -> Done {
    match mode {
        "" => {}
        "persistent" | "isolated" => {
            shell.isolated = mode == "isolated";
            shell.record.note("session_mode", &json!({"mode": mode}))?;
        }
        other => {
            return Err(Problem::new(format!("there is no mode `{other}`"), "write :ctx persistent or :ctx isolated"));
        }
    }
    let meaning = if shell.isolated {
        "only what you say goes to the model; the session keeps it all"
    } else {
        "the conversation, the context and what is remembered go along"
    };
    let now = mode_name(shell.isolated);
    Ok(Outcome { text: format!("{now}: {meaning}\n"), result: json!({"mode": now}), ..Outcome::default() })
}

/// `:explain`
pub(super) fn explain(shell: &Shell<'_>) -> Outcome {
    Outcome::of_text(explained(shell))
}

/// `:export-session`
pub(super) fn export(shell: &mut Shell<'_>) -> Done {
    let exported = ask(shell.context, "cp-session", &["export"])?;
    let path = exported["path"].as_str().unwrap_or_default().to_owned();
    let hash = exported["sha256"].as_str().unwrap_or_default().to_owned();
    let text = format!("written: {}, {} turns, without secrets\n", harmless(&path), exported["turns"]);
    Ok(Outcome { text, result: exported, writes: vec![Read { path, hash }], ..Outcome::default() })
}

/// `:signals`
pub(super) fn signals(shell: &mut Shell<'_>) -> Outcome {
    let signals = shell.tracker.signals(&shell.plane);
    let mut text = format!("{}\n", strip(shell));
    let rows = [
        ("stance", format!("{} {}", signals.stance.icon(), signals.stance.name())),
        ("altitude", signals.altitude.name().to_owned()),
        ("health", format!("{} {:.1}", health_bar(signals.health), signals.health)),
        ("progress", signals.progress_icon().to_string()),
        ("trust", format!("{} {:.1}", signals.trust_icon(), signals.trust)),
        ("learning", signals.learning_icon().to_string()),
        ("tier", signals.tier.clone()),
        ("role", signals.role.clone().unwrap_or_else(|| "-".to_owned())),
        ("active_wo", signals.active_wo.clone().unwrap_or_else(|| "-".to_owned())),
        ("gate_state", signals.gate_state.name().to_owned()),
        ("ledger", if signals.ledger_synced { "synced" } else { "not synced" }.to_owned()),
    ];
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<11} {}", harmless(&value));
    }
    // What an agent says of itself is shown as its own word.
    for (name, value) in shell.agent.signals().unwrap_or_default() {
        let _ = writeln!(text, "{:<11} {}", harmless(&format!("~{name}")), harmless(&said(&value)));
    }
    Outcome { text, result: signals.to_value(), ..Outcome::default() }
}

fn said(value: &Value) -> String {
    value.as_str().map_or_else(|| raw(value).map(|raw| raw.get().to_owned()).unwrap_or_default(), str::to_owned)
}

/// `:trust`
pub(super) fn trust(shell: &Shell<'_>) -> Outcome {
    let signals = shell.tracker.signals(&shell.plane);
    let text = format!(
        "trust {} {:.2}: the share of commands and tools that needed no denial\n",
        signals.trust_icon(),
        signals.trust
    );
    Outcome { text, result: json!({"trust": signals.trust}), ..Outcome::default() }
}
