//! Transcripts of Codex: `sessions/YEAR/MONTH/DAY/rollout-*.jsonl`.

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
struct Line {
    #[serde(default)]
    r#type: String,
    timestamp: Option<String>,
    #[serde(default)]
    payload: Value,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    FunctionCall {
        name: String,
        namespace: Option<String>,
        arguments: String,
        call_id: String,
    },
    CustomToolCall {
        name: String,
        input: String,
        call_id: String,
    },
    #[serde(alias = "custom_tool_call_output")]
    FunctionCallOutput {
        call_id: String,
        output: Value,
    },
    #[serde(other)]
    Other,
}

impl LineReader for Reader {
    fn line(&mut self, bytes: &[u8], place: &str, items: &mut Vec<Item>) -> serde_json::Result<()> {
        let Line { r#type, timestamp, payload } = serde_json::from_slice(bytes)?;
        if let Some(cwd) = payload.get("cwd").and_then(Value::as_str).filter(|_| r#type != "response_item") {
            self.cwd = Some(cwd.into());
        }
        match r#type.as_str() {
            "session_meta" => payload["id"].as_str().unwrap_or_default().clone_into(&mut self.session),
            "response_item" => {
                let (id, tool, input) = match serde_json::from_value(payload)? {
                    Part::FunctionCall { name, namespace, arguments, call_id } => {
                        let (tool, input) = described(namespace.as_deref(), &name, &arguments);
                        (call_id, tool, input)
                    }
                    Part::CustomToolCall { name, input, call_id } => {
                        (call_id, name, Members::from_iter([("command".to_owned(), input.into())]))
                    }
                    Part::FunctionCallOutput { call_id, output } => {
                        let (session, status) = (self.session.clone(), status_of(&output));
                        items.push(Item::Outcome(Outcome { id: call_id, session, status, hash: None }));
                        return Ok(());
                    }
                    Part::Other => return Ok(()),
                };
                let (session, cwd) = (self.session.clone(), self.cwd.clone());
                let place = place.to_owned();
                items.push(Item::Call(Call { id, session, tool, input, cwd, ts: timestamp, place, has_id: true }));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The tool and its input as the hook receives them: for each shell tool `Bash` with the command line.
fn described(namespace: Option<&str>, name: &str, arguments: &str) -> (String, Members) {
    let mut input: Members = serde_json::from_str(arguments).unwrap_or_default();
    let line = ["cmd", "command"].into_iter().find_map(|member| input.remove(member).filter(Value::is_string));
    match (line, ["exec_command", "shell_command", "shell"].contains(&name)) {
        (Some(line), true) => ("Bash".to_owned(), Members::from_iter([("command".to_owned(), line)])),
        _ => (format!("{}{name}", namespace.unwrap_or_default()), serde_json::from_str(arguments).unwrap_or_default()),
    }
}

fn status_of(output: &Value) -> Status {
    let Some(text) = output.as_str() else { return Status::Succeeded };
    if text.starts_with("unsupported call: ") || text.starts_with("failed to parse function arguments: ") {
        return Status::Rejected;
    }
    let code = ["Process exited with code ", "Exit code: "].into_iter().find_map(|mark| {
        let head = text.split_once("\nOutput:").map_or(text, |(head, _)| head);
        head.split_once(mark)?.1.lines().next()
    });
    let is_blocked = text.contains("blocked by PreToolUse hook");
    if is_blocked || code.is_some_and(|code| code != "0") { Status::Failed } else { Status::Succeeded }
}
