//! Commands about answers: the model, tools and files for the next answer, the editor, and copies and cost of past answers.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use cp_common::home::write_whole;
use cp_common::wire::Usage;
use cp_common::words::split;
use cp_common::{Error, Result};
use serde_json::json;

use crate::agent::ModelOptions;
use crate::interactive::console::render::{count, escaped, style};
use crate::interactive::state::{Allowed, Conversation, Outcome, State};
use crate::interactive::turn;
use crate::plane::Read;

/// The largest sequence that terminals accept.
const CLIPBOARD_LIMIT: usize = 74_994;

fn last(conversation: &Conversation) -> Result<&str> {
    let answer = conversation.answer.as_str();
    if answer.is_empty() { Err(Error::not_found("no answer to copy or save yet")) } else { Ok(answer) }
}

/// `:copy`: the terminal copies the answer to its clipboard (OSC 52), even over ssh.
pub(super) fn copy(state: &mut State<'_>, _: &str) -> Result<Outcome> {
    let is_terminal = state.console.is_terminal();
    let answer = last(&state.conversation)?;
    let encoded = BASE64_STANDARD.encode(answer);
    if !is_terminal || encoded.len() > CLIPBOARD_LIMIT {
        let what = if is_terminal { "the answer is too long for the clipboard" } else { "copying requires a terminal" };
        return Err(Error::usage(what).hint("save it to a file: :save FILE"));
    }
    let text = format!("\x1b]52;c;{encoded}\x07copied: {}\n", count(answer.chars().count(), "character"));
    Ok(Outcome { text, result: json!({"characters": answer.chars().count()}), ..Outcome::default() })
}

/// `:save FILE`: does not overwrite a file.
pub(super) fn save(state: &mut State<'_>, file: &str) -> Result<Outcome> {
    let answer = last(&state.conversation)?;
    if file.is_empty() {
        return Err(Error::usage("the name of a file is missing").hint("write :save answer.md"));
    }
    let path = Path::new(file);
    state.context.home.check_writable(path)?;
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

/// `:cost`
pub(super) fn cost(state: &State<'_>) -> Outcome {
    let Conversation { usage, answers, last_usage, .. } = &state.conversation;
    let line = |name: &str, usage: &Usage| {
        let cost = usage.cost_usd.map_or_else(|| "unpriced".to_owned(), |cost| format!("${cost:.4}"));
        let Usage { output_tokens, cache_read_tokens, .. } = usage;
        let input = usage.input_tokens + usage.cache_write_tokens;
        format!("{name}: {input} tokens in, {output_tokens} out, {cache_read_tokens} from a cache; {cost}\n")
    };
    let last = if *answers == 0 { String::new() } else { line("last turn", last_usage) };
    let text = format!("{last}{}", line(&count(*answers, "answer"), usage));
    Outcome { text, result: json!(usage), ..Outcome::default() }
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

/// `:edit [TEXT]`
pub(super) fn edit(state: &mut State<'_>, text: &str) -> Result<Outcome> {
    if !state.console.is_terminal() {
        return Err(Error::usage("an editor requires a terminal").hint("write the text as the turn"));
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
    let text = written.map_err(|e| Error::io("reading what was edited", e).in_file(&file))?;
    if text.trim().is_empty() {
        return Ok(Outcome::of_text("nothing was written: nothing was sent\n"));
    }
    state.show(&format!("{}\n", style().faint(&escaped(text.trim_end()))))?;
    turn::take(state, text.trim_end())
}
