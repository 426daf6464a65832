//! Transcripts of opencode: the JSON of `opencode export SESSION`. The host writes the command by which the hook replaced its own.

use std::path::{Path, PathBuf};

use chrono::DateTime;
use cp_common::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{Call, Item, Members, Outcome, Status, with_original_command};

#[derive(Deserialize)]
struct Export {
    info: Info,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Info {
    id: String,
    directory: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Message {
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Tool {
        #[serde(rename = "callID")]
        call: String,
        tool: String,
        state: Box<State>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    status: String,
    #[serde(default)]
    input: Members,
    #[serde(default)]
    time: Value,
}

/// Reads an export, which is one document.
pub(super) fn read(path: &Path, text: &[u8], each: &mut dyn FnMut(Item) -> Result<()>) -> Result<()> {
    let damaged = |e: serde_json::Error| Error::validation(format!("not an export of opencode: {e}")).in_file(path);
    let Export { info, messages } = serde_json::from_slice(text).map_err(damaged)?;
    for (number, message) in messages.into_iter().enumerate() {
        for part in message.parts {
            let Part::Tool { call: id, tool, state } = part else { continue };
            let status = match state.status.as_str() {
                _ if tool == "invalid" => Status::Rejected,
                "completed" => Status::Succeeded,
                _ => Status::Failed,
            };
            let start = state.time["start"].as_i64().and_then(DateTime::from_timestamp_millis);
            each(Item::Call(Call {
                id: id.clone(),
                session: info.id.clone(),
                tool,
                input: with_original_command(state.input),
                cwd: info.directory.clone(),
                ts: start.map(|start| start.to_rfc3339()),
                place: format!("message {}", number + 1),
                has_id: true,
            }))?;
            each(Item::Outcome(Outcome { id, session: info.id.clone(), status, hash: None }))?;
        }
    }
    Ok(())
}
