//! Commands about answers: the model, tools and files for the next answer, and the file for the last one.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use cp_common::{Error, Result};
use serde_json::json;

use crate::agent::ModelOptions;
use crate::interactive::console::render::{escaped, style};
use crate::interactive::state::{Allowed, Outcome, State};
use crate::interactive::turn;
use crate::plane::Read;

/// `:save FILE`: does not overwrite a file.
pub(super) fn save(state: &mut State<'_>, file: &str) -> Result<Outcome> {
    let answered = state.conversation.turns.iter().rfind(|turn| !turn.messages.is_empty());
    let answer = answered.ok_or_else(|| Error::not_found("no answer to save yet"))?.words();
    if file.is_empty() {
        return Err(Error::usage("the name of a file is missing").hint("write :save answer.md"));
    }
    let path = Path::new(file);
    cp_policy::check_writable(&state.context.home, path)?;
    let mut created = OpenOptions::new().write(true).create_new(true).mode(0o666).open(path).map_err(|e| {
        let error = Error::io("saving the answer", e).in_file(path);
        if path.exists() { error.hint("choose another name: existing files are not overwritten") } else { error }
    })?;
    let text = format!("{}\n", answer.trim_end_matches('\n'));
    created.write_all(text.as_bytes()).map_err(|e| Error::io("saving the answer", e).in_file(path))?;
    let hash = format!("sha256:{}", cp_ledger::format::line::Hash::of(text.as_bytes()).hex());
    let shown = format!("written: {}, {} bytes\n", escaped(file), text.len());
    let writes = vec![Read::whole(file.to_owned(), hash)];
    Ok(Outcome { text: shown, result: json!({"file": file, "bytes": text.len()}), writes, ..Outcome::default() })
}

/// `:model [MODEL]`
pub(super) fn model(state: &mut State<'_>, model: &str) -> Result<Outcome> {
    choose(state, model, |options| &mut options.model, "model")
}

/// `:backend [NAME]`
pub(super) fn backend(state: &mut State<'_>, backend: &str) -> Result<Outcome> {
    choose(state, backend, |options| &mut options.backend, "backend")
}

/// Changes the model or backend. The current one stays if the new one is not available.
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
                state.conversation.allows_tools = false;
            }
            let agent = state.agent_id().to_owned();
            state.switch_agent(&agent)?;
            state.ledgers.transcript.note("session_tools", &json!({"enabled": is_on}))?;
        }
        other => {
            return Err(Error::usage(format!("there is no `:tools {other}`")).hint("write :tools on, or :tools off"));
        }
    }
    let State { model, conversation, context, .. } = state;
    if !model.uses_tools() {
        return Ok(Outcome::of_text("off: `:tools on` lets the model use the built-in tools, after confirmation\n"));
    }
    let found = turn::tools(model, context)?;
    let mut text = String::new();
    for tool in found["items"].as_array().into_iter().flatten() {
        let member = |name: &str| escaped(tool[name].as_str().unwrap_or_default());
        let _ = writeln!(text, "{}  {}", style().strong(&member("name")), member("description").replace('\n', " "));
    }
    if conversation.allows_tools {
        let _ = writeln!(text, "{}", style().faint("allowed for this session, except in turns with risk"));
    }
    for Allowed { rule, tool, .. } in &conversation.allowed {
        let _ = writeln!(text, "{}", style().faint(&escaped(&format!("allowed for this session: {tool} ({rule})"))));
    }
    Ok(Outcome { text, result: found, ..Outcome::default() })
}

/// `:attach [PATH]`
pub(super) fn attach(state: &mut State<'_>, path: &str) -> Result<Outcome> {
    let conversation = &mut state.conversation;
    if !path.is_empty() {
        conversation.attached.push(turn::attachable(path)?);
    }
    let names: Vec<String> = conversation.attached.iter().map(|path| escaped(&path.display().to_string())).collect();
    let text = if names.is_empty() { "no files are attached".to_owned() } else { names.join("\n") };
    Ok(Outcome { text: format!("{text}\n"), result: json!({"attached": names}), ..Outcome::default() })
}
