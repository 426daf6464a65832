//! Transcripts of Claude Code: `projects/*/SESSION.jsonl`, and `SESSION/subagents/agent-*.jsonl` of its subagents.
//!
//! A message is one line for each of its blocks. A resumed session appends to its file, and a forked one copies the history with its own
//! session id, so a reader of several files sees a call several times.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::{Call, Item, LineReader, Members, Outcome, Status, hash_of};

pub(super) struct Reader;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(default)]
    r#type: String,
    session_id: Option<String>,
    cwd: Option<PathBuf>,
    timestamp: Option<String>,
    message: Option<Value>,
    tool_use_result: Option<Value>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    ToolUse {
        id: String,
        name: String,
        input: Members,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(default)]
        content: Value,
        #[serde(default)]
        is_error: bool,
    },
    #[serde(other)]
    Other,
}

impl LineReader for Reader {
    fn line(&mut self, bytes: &[u8], place: &str, items: &mut Vec<Item>) -> serde_json::Result<()> {
        let line: Line = serde_json::from_slice(bytes)?;
        // Other lines repeat parts of messages.
        if !["assistant", "user"].contains(&line.r#type.as_str()) {
            return Ok(());
        }
        let Some(Value::Array(blocks)) =
            line.message.and_then(|mut message| message.get_mut("content").map(Value::take))
        else {
            return Ok(());
        };
        let session = line.session_id.unwrap_or_default();
        for block in blocks {
            match serde_json::from_value(block)? {
                Block::ToolUse { id, name, input } => items.push(Item::Call(Call {
                    id,
                    session: session.clone(),
                    tool: name,
                    input,
                    cwd: line.cwd.clone(),
                    ts: line.timestamp.clone(),
                    place: place.to_owned(),
                    has_id: true,
                })),
                Block::ToolResult { tool_use_id, content, is_error } => {
                    let result = line.tool_use_result.as_ref();
                    items.push(Item::Outcome(Outcome {
                        id: tool_use_id,
                        session: session.clone(),
                        status: status_of(is_error, &content, result),
                        hash: result.map(hash_of),
                    }));
                }
                Block::Other => {}
            }
        }
        Ok(())
    }
}

/// The host encloses the reason in a tag if it rejects a call before its hook. The result that it keeps beside the message has no tag then,
/// whereas an error of a tool that contains the tag has it in both.
fn status_of(is_error: bool, content: &Value, result: Option<&Value>) -> Status {
    const TAG: &str = "<tool_use_error>";
    let is_tagged = content.as_str().is_some_and(|text| text.starts_with(TAG));
    let by_tool = result.and_then(Value::as_str).is_none_or(|text| text.contains(TAG));
    match (is_error, is_tagged && !by_tool) {
        (true, true) => Status::Rejected,
        (true, false) => Status::Failed,
        (false, _) => Status::Succeeded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_tool_with_tag_of_host_is_failure() {
        let content = Value::from("<tool_use_error>Error: No such tool available: x</tool_use_error>");
        let by_host = Value::from("Error: No such tool available: x");
        let by_tool = Value::from("Error: <tool_use_error>Error: No such tool available: x</tool_use_error>");
        assert_eq!(status_of(true, &content, Some(&by_host)), Status::Rejected);
        assert_eq!(status_of(true, &content, Some(&by_tool)), Status::Failed);
        assert_eq!(status_of(true, &content, None), Status::Failed);
    }
}
