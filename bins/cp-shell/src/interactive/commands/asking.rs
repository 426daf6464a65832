//! How the next turn is asked: by which model, with which files and tools, from an editor; and a command line that the model writes.

use std::fmt::Write as _;
use std::process::Command;

use cp_common::home::write_whole;
use cp_common::words::split;
use cp_common::{Error, Result};
use serde_json::json;

use crate::agent::ModelOptions;
use crate::interactive::commands::system;
use crate::interactive::console::keys::ask_model;
use crate::interactive::console::render::{harmless, style};
use crate::interactive::outcome::Outcome;
use crate::interactive::state::{Allowed, State};
use crate::interactive::turn;
use crate::parts::ask;

/// What the model is asked for a command line.
const COMMAND_REQUEST: &str = "Answer with one command line for a POSIX shell on Linux that does what is asked: \
    a single line, no explanation, no fence. If no command does it, answer with a line that begins with #.";

/// `:model [MODEL]`
pub(super) fn model(state: &mut State<'_>, model: &str) -> Result<Outcome> {
    choose(state, model, |options| &mut options.model, "model")
}

/// `:backend [NAME]`
pub(super) fn backend(state: &mut State<'_>, backend: &str) -> Result<Outcome> {
    choose(state, backend, |options| &mut options.backend, "backend")
}

/// Changes who answers. What was there stays where the other cannot be had.
fn choose(
    state: &mut State<'_>,
    value: &str,
    member: fn(&mut ModelOptions) -> &mut Option<String>,
    name: &'static str,
) -> Result<Outcome> {
    if !value.is_empty() {
        let before = member(&mut state.model).replace(value.to_owned());
        let agent = state.agent_id().to_owned();
        if let Err(e) = state.switch_agent(&agent) {
            *member(&mut state.model) = before;
            return Err(e);
        }
        state.ledgers.transcript.note("session_model", &json!({name: value}))?;
    }
    let now = state.context.config.text(name, member(&mut state.model).as_deref());
    let text = now.as_deref().map_or_else(|| "chosen by the environment".to_owned(), harmless);
    Ok(Outcome { text: format!("{name}: {text}\n"), result: json!({name: now}), ..Outcome::default() })
}

/// `:tools`
pub(super) fn tools(state: &mut State<'_>, _: &str) -> Result<Outcome> {
    let State { model, conversation, context, .. } = state;
    if model.tools.is_empty() {
        return Ok(Outcome::of_text(
            "none: cp-shell --tools DIR lets the model use those of a directory, each turn after a yes\n",
        ));
    }
    let directories: Vec<String> = model.tools.iter().map(|directory| directory.display().to_string()).collect();
    let words = ["tools"].into_iter().chain(directories.iter().flat_map(|directory| ["--tools", directory.as_str()]));
    let found = ask(context, "cp-toolloop", &words.collect::<Vec<_>>())?;
    let mut text = String::new();
    for tool in found["items"].as_array().into_iter().flatten() {
        let member = |name: &str| harmless(tool[name].as_str().unwrap_or_default());
        let _ = writeln!(text, "{}  {}", style().strong(&member("name")), member("description").replace('\n', " "));
    }
    for Allowed { rule, tool, .. } in &conversation.allowed {
        let _ = writeln!(text, "{}", style().faint(&harmless(&format!("allowed for this session: {tool} ({rule})"))));
    }
    Ok(Outcome { text, result: found, ..Outcome::default() })
}

/// `:attach [PATH]`
pub(super) fn attach(state: &mut State<'_>, path: &str) -> Result<Outcome> {
    let conversation = &mut state.conversation;
    if !path.is_empty() {
        conversation.attached.push(turn::attachable(path)?);
    }
    let names: Vec<String> = conversation.attached.iter().map(|path| harmless(&path.display().to_string())).collect();
    let text = if names.is_empty() { "nothing is attached".to_owned() } else { names.join("\n") };
    Ok(Outcome { text: format!("{text}\n"), result: json!({"attached": names}), ..Outcome::default() })
}

/// `:edit [TEXT]`
pub(super) fn edit(state: &mut State<'_>, text: &str) -> Result<Outcome> {
    if !state.console.is_terminal() {
        return Err(Error::usage("an editor needs a terminal").hint("write the text itself"));
    }
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let argv = split(&editor).map_err(Error::from)?.argv;
    let (program, arguments) = argv.split_first().ok_or_else(|| Error::config("EDITOR is empty"))?;
    let file = state.context.home.path("tmp").join(format!("turn-{}.md", std::process::id()));
    let begun = if text.is_empty() { String::new() } else { format!("{text}\n") };
    write_whole(&file, begun.as_bytes())?;
    let status = Command::new(program).args(arguments).arg(&file).status();
    let written = std::fs::read_to_string(&file);
    std::fs::remove_file(&file).map_err(|e| Error::io("removing what was edited", e).in_file(&file))?;
    let failed = |e| Error::io(format!("starting {program}"), e).hint("set EDITOR to an editor that is installed");
    if !status.map_err(failed)?.success() {
        return Ok(Outcome::of_text("the editor failed: nothing was sent\n"));
    }
    let said = written.map_err(|e| Error::io("reading what was edited", e).in_file(&file))?;
    if said.trim().is_empty() {
        return Ok(Outcome::of_text("nothing was written: nothing was sent\n"));
    }
    state.show(&format!("{}\n", style().faint(&harmless(said.trim_end()))))?;
    turn::take(state, said.trim_end())
}

/// `:cmd WORDS`
pub(super) fn propose(state: &mut State<'_>, words: &str) -> Result<Outcome> {
    if words.is_empty() {
        return Err(Error::usage("what should the command do?").hint("write :cmd find the largest file here"));
    }
    turn::check_offline(state)?;
    let said = state.setup.redactor.redact_text(words).0;
    let mut asked = vec!["-s", COMMAND_REQUEST];
    for (name, value) in [("--backend", &state.model.backend), ("--model", &state.model.model)] {
        asked.extend(value.iter().flat_map(|value| [name, value.as_str()]));
    }
    asked.extend(["--", &said]);
    let answer = ask_model(&state.console, state.context, "cp-llm", &asked)?;
    let command = command_of(answer["content"].as_str().unwrap_or_default());
    if command.is_empty() || command.starts_with('#') {
        let reason = harmless(command.trim_start_matches('#').trim());
        return Ok(Outcome::of_text(format!(
            "no command does this{}\n",
            if reason.is_empty() { reason } else { format!(": {reason}") }
        )));
    }
    state.show(&format!("{}\n", style().strong(&harmless(command))))?;
    system::run(state, command, true)
}

/// The command in an answer, which models like to put in a fence whatever they are asked.
fn command_of(answer: &str) -> &str {
    answer.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("```")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_in_a_fence_and_without_one() {
        assert_eq!(command_of("```sh\nls -l\n```\n"), "ls -l");
        assert_eq!(command_of("\n ls -l \n"), "ls -l");
        assert_eq!(command_of(""), "");
    }
}
