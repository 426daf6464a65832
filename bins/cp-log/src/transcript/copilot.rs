//! Transcripts of Copilot: `session-state/SESSION/events.jsonl`. The hook of the host receives no id of a call.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::{Call, Item, LineReader, Members, Outcome, Status};

/// The session so far.
#[derive(Default)]
pub(super) struct Reader {
    session: String,
    cwd: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(default)]
    r#type: String,
    timestamp: Option<String>,
    /// The subagent, whose hook reports it as the session.
    agent_id: Option<String>,
    #[serde(default)]
    data: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    tool_call_id: String,
    tool_name: String,
    #[serde(default)]
    arguments: Members,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Complete {
    tool_call_id: String,
    success: bool,
    error: Option<Value>,
}

impl LineReader for Reader {
    fn line(&mut self, bytes: &[u8], place: &str, items: &mut Vec<Item>) -> serde_json::Result<()> {
        let Line { r#type, timestamp, agent_id, data } = serde_json::from_slice(bytes)?;
        let session = agent_id.unwrap_or_else(|| self.session.clone());
        match r#type.as_str() {
            "session.start" | "session.resume" => {
                if let Some(id) = data["sessionId"].as_str() {
                    id.clone_into(&mut self.session);
                }
                self.cwd = data["context"]["cwd"].as_str().map(PathBuf::from).or_else(|| self.cwd.take());
            }
            "tool.execution_start" => {
                let Start { tool_call_id: id, tool_name: tool, arguments: input } = serde_json::from_value(data)?;
                let (cwd, place) = (self.cwd.clone(), place.to_owned());
                items.push(Item::Call(Call { id, session, tool, input, cwd, ts: timestamp, place, has_id: false }));
            }
            "tool.execution_complete" => {
                let Complete { tool_call_id: id, success, error } = serde_json::from_value(data)?;
                let message = error.as_ref().and_then(|error| error["message"].as_str()).unwrap_or_default();
                let is_missing = message.starts_with("Tool '") && message.ends_with("' does not exist.");
                let status = match (success, is_missing) {
                    (true, _) => Status::Succeeded,
                    (false, true) => Status::Rejected,
                    (false, false) => Status::Failed,
                };
                items.push(Item::Outcome(Outcome { id, session, status, hash: None }));
            }
            _ => {}
        }
        Ok(())
    }
}
