//! Transcripts of Gemini CLI: `tmp/PROJECT/chats/session-*.jsonl`. The hook of the host receives no id of a call, and the host writes a
//! call after its end, with the command by which the hook replaced its own.

use serde::Deserialize;
use serde_json::Value;

use super::{Call, Item, LineReader, Members, Outcome, Status, with_original_command};

/// The session so far.
#[derive(Default)]
pub(super) struct Reader {
    session: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    session_id: Option<String>,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    #[serde(rename = "$set")]
    set: Option<Set>,
}

/// A change of the whole conversation, which repeats its messages.
#[derive(Deserialize)]
struct Set {
    #[serde(default)]
    messages: Vec<Line>,
}

#[derive(Deserialize)]
struct ToolCall {
    id: String,
    name: String,
    #[serde(default)]
    args: Members,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    status: String,
    timestamp: Option<String>,
}

impl LineReader for Reader {
    fn line(&mut self, bytes: &[u8], place: &str, items: &mut Vec<Item>) -> serde_json::Result<()> {
        let line: Line = serde_json::from_slice(bytes)?;
        if let Some(session) = line.session_id {
            self.session = session;
        }
        let repeated = line.set.into_iter().flat_map(|set| set.messages).flat_map(|message| message.tool_calls);
        for call in line.tool_calls.into_iter().chain(repeated) {
            let (id, session) = (call.id, self.session.clone());
            let status = status_of(&call.status, &call.result);
            items.push(Item::Call(Call {
                id: id.clone(),
                session: session.clone(),
                tool: call.name,
                input: with_original_command(call.args),
                cwd: None,
                ts: call.timestamp,
                place: place.to_owned(),
                has_id: false,
            }));
            items.push(Item::Outcome(Outcome { id, session, status, hash: None }));
        }
        Ok(())
    }
}

fn status_of(status: &str, result: &Value) -> Status {
    let error = result[0]["functionResponse"]["response"]["error"].as_str().unwrap_or_default();
    let is_rejected = error.starts_with("Tool \"") && error.contains("\" not found") || error.starts_with("params ");
    match status {
        "success" => Status::Succeeded,
        _ if is_rejected => Status::Rejected,
        _ => Status::Failed,
    }
}
