//! Transcripts of other programs: Claude Code, codex, and the `llm` program. Their lines may be cut off, run together or unknown: what
//! can be read is used, the rest is counted.

use cp_common::wire::{Block, Content, Turn, raw};
use cp_common::{Error, Result};
use serde_json::Value;

/// A transcript, read.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// Whose it is: `claude_code`, `codex` or `llm`.
    pub(crate) format: &'static str,
    /// The id of the conversation in the other program; empty where there is none.
    pub(crate) id: String,
    /// The turns, oldest first; pieces of one answer are one turn.
    pub(crate) turns: Vec<Turn>,
    /// Lines that could not be read.
    pub(crate) skipped: u64,
}

/// Reads a transcript; the format is recognised by its content.
pub(crate) fn read(bytes: &[u8]) -> Result<Transcript> {
    let mut transcript = match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Array(responses)) => llm(&responses)?,
        _ => lines(bytes),
    };
    if transcript.format.is_empty() {
        return Err(Error::validation("unknown transcript format: expected Claude Code, codex, or `llm logs --json`")
            .with("lines_skipped", transcript.skipped));
    }
    transcript.turns = merged(transcript.turns);
    Ok(transcript)
}

fn lines(bytes: &[u8]) -> Transcript {
    let mut transcript = Transcript::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let damaged = each_value(line, &mut |value| one(&value, &mut transcript));
        transcript.skipped += u64::from(damaged);
    }
    transcript
}

/// How many positions in a damaged line are tried as the start of a value.
const MAX_STARTS: usize = 1000;

/// Calls `each` with the values of a line. Usually there is one; but a writer that was killed leaves part of a line before the next
/// one, or a run of NUL bytes, and two that write at once join theirs. Returns whether something could not be read.
fn each_value(line: &[u8], each: &mut dyn FnMut(Value)) -> bool {
    let mut rest = line.trim_ascii();
    let (mut damaged, mut tried) = (false, 0);
    while !rest.is_empty() && tried < MAX_STARTS {
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
        if let Some(Ok(value)) = values.next()
            && value.is_object()
        {
            rest = rest[values.byte_offset()..].trim_ascii_start();
            each(value);
            continue;
        }
        (damaged, tried) = (true, tried + 1);
        let next = memchr::memchr(b'{', &rest[1..]).map_or(rest.len(), |at| at + 1);
        rest = &rest[next..];
    }
    damaged
}

fn one(line: &Value, transcript: &mut Transcript) {
    match line["type"].as_str() {
        Some(role @ ("user" | "assistant")) if line["message"].is_object() => {
            transcript.format = "claude_code";
            named(&line["sessionId"], transcript);
            // Side conversations of sub-agents and notes of the program are not part of the conversation.
            if line["isSidechain"] != true && line["isMeta"] != true {
                transcript.turns.extend(turn(role, &line["message"]["content"]));
            }
        }
        Some("session_meta") => {
            transcript.format = "codex";
            named(&line["payload"]["id"], transcript);
        }
        Some("response_item") => {
            transcript.format = "codex";
            transcript.turns.extend(codex(&line["payload"]));
        }
        // Older versions write the payload itself as the line.
        Some("message" | "function_call" | "function_call_output") => {
            if let Some(turn) = codex(line) {
                transcript.format = "codex";
                transcript.turns.push(turn);
            }
        }
        None if line["id"].is_string() && line["timestamp"].is_string() && line.get("instructions").is_some() => {
            transcript.format = "codex";
            named(&line["id"], transcript);
        }
        _ => {}
    }
}

fn named(id: &Value, transcript: &mut Transcript) {
    if let (true, Some(id)) = (transcript.id.is_empty(), id.as_str()) {
        id.clone_into(&mut transcript.id);
    }
}

fn turn(role: &str, content: &Value) -> Option<Turn> {
    let content = match content {
        Value::String(text) if !text.is_empty() => Content::Text(text.clone()),
        Value::Array(blocks) if !blocks.is_empty() => {
            let known = |block: &&Value| {
                matches!(block["type"].as_str(), Some("text" | "image" | "document" | "tool_use" | "tool_result"))
            };
            let blocks: Vec<Block> =
                blocks.iter().filter(known).filter_map(|block| Some(Block::from_raw(raw(block).ok()?))).collect();
            if blocks.is_empty() {
                return None;
            }
            Content::Blocks(blocks)
        }
        _ => return None,
    };
    Some(Turn::of(role, content))
}

fn codex(payload: &Value) -> Option<Turn> {
    let blocks = |role: &str, block: Block| Some(Turn::of(role, Content::Blocks(vec![block])));
    match payload["type"].as_str()? {
        "message" => {
            let role = payload["role"].as_str().filter(|role| matches!(*role, "user" | "assistant"))?;
            let texts: Vec<&str> =
                payload["content"].as_array()?.iter().filter_map(|part| part["text"].as_str()).collect();
            Some(Turn::text(role, &texts.join("\n"))).filter(|turn| !turn.content.is_empty())
        }
        "function_call" | "custom_tool_call" => {
            let arguments = payload["arguments"].as_str().or(payload["input"].as_str()).unwrap_or("{}");
            let input = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
            let input = raw(&input.unwrap_or_else(|| serde_json::json!({ "arguments": arguments }))).ok()?;
            blocks("assistant", Block::tool_use(payload["call_id"].as_str()?, payload["name"].as_str()?, &input))
        }
        "function_call_output" | "custom_tool_call_output" => {
            let output = &payload["output"];
            let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
            blocks("user", Block::tool_result(payload["call_id"].as_str()?, &text, false))
        }
        _ => None,
    }
}

fn llm(responses: &[Value]) -> Result<Transcript> {
    let mut transcript = Transcript::default();
    for response in responses {
        let (Some(prompt), Some(answer)) = (response["prompt"].as_str(), response["response"].as_str()) else {
            transcript.skipped += 1;
            continue;
        };
        transcript.format = "llm";
        let before = transcript.id.clone();
        named(&response["conversation_id"], &mut transcript);
        if !before.is_empty() && response["conversation_id"].as_str().is_some_and(|id| id != before) {
            return Err(Error::validation("the file holds several conversations")
                .hint("export one at a time: llm logs --json --cid ID -n 0"));
        }
        transcript.turns.extend([Turn::text("user", prompt), Turn::text("assistant", answer)]);
    }
    Ok(transcript)
}

/// Joins adjacent pieces of one turn: answers are written one block a line, and so are the results of parallel calls.
fn merged(turns: Vec<Turn>) -> Vec<Turn> {
    let mut merged: Vec<Turn> = Vec::new();
    for turn in turns {
        match merged.last_mut() {
            Some(last)
                if last.role == turn.role && (turn.role == "assistant" || (is_result(last) && is_result(&turn))) =>
            {
                let blocks = last.content.blocks().into_iter().chain(turn.content.blocks()).collect();
                last.content = Content::Blocks(blocks);
            }
            _ => merged.push(turn),
        }
    }
    merged
}

fn is_result(turn: &Turn) -> bool {
    turn.content.blocks().iter().all(|block| block.view().is_ok_and(|view| view.kind == "tool_result"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(transcript: &Transcript) -> Vec<&str> {
        transcript.turns.iter().map(|turn| turn.role.as_str()).collect()
    }

    #[test]
    fn claude_code_with_pieces_side_chains_and_damage() {
        let text = concat!(
            "{\"type\":\"summary\",\"summary\":\"x\"}\n",
            "{\"type\":\"user\",\"sessionId\":\"s1\",\"message\":{\"role\":\"user\",\"content\":\"list files\"}}\n",
            "{\"type\":\"assistant\",\"sessionId\":\"s1\",\"message\":{\"content\":[{\"type\":\"thinking\",\"thinking\":\"h\"},{\"type\":\"text\",\"text\":\"ok\"}]}}\n",
            "{\"type\":\"assistant\",\"sessionId\":\"s1\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"ls\",\"input\":{}}]}}\n",
            "{\"type\":\"user\",\"isSidechain\":true,\"message\":{\"content\":\"inner\"}}\n",
            "{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"a b\"}]}}\n",
            "\0\0\0\0\n{\"type\":\"user\",\"message\":{\"cont{\"type\":\"user\"}\n",
            "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}}\n{\"type\":\"us",
        );
        let transcript = read(text.as_bytes()).unwrap();
        assert_eq!((transcript.format, transcript.id.as_str(), transcript.skipped), ("claude_code", "s1", 3));
        assert_eq!(transcript.turns.len(), 4);
        assert_eq!(roles(&transcript), ["user", "assistant", "user", "assistant"]);
        assert_eq!(transcript.turns[1].content.blocks().len(), 2);
    }

    #[test]
    fn fused_and_swallowed_lines_are_taken_apart() {
        let user = |text: &str| format!("{{\"type\":\"user\",\"message\":{{\"content\":\"{text}\"}}}}");
        let (one, two, three, four) = (user("one"), user("two"), user("three"), user("four"));
        // Two fused; a piece before a whole one; NUL bytes before one; a piece at the end.
        let text = format!("{one}{two}\n{}{three}\n\0\0\0{four}\n{}", &one[..30], &two[..25]);
        let transcript = read(text.as_bytes()).unwrap();
        let said: Vec<String> = transcript.turns.iter().map(|turn| turn.content.text()).collect();
        assert_eq!(said, ["one", "two", "three", "four"]);
        assert_eq!(transcript.skipped, 3);
        assert!(read("{".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn codex_of_older_versions() {
        let text = concat!(
            "{\"id\":\"c0\",\"timestamp\":\"2025-01-01T00:00:00Z\",\"instructions\":null}\n",
            "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"hi\"}]}\n",
            "{\"type\":\"function_call\",\"name\":\"shell\",\"arguments\":\"{}\",\"call_id\":\"k\"}\n",
            "{\"type\":\"function_call_output\",\"call_id\":\"k\",\"output\":\"out\"}\n",
        );
        let transcript = read(text.as_bytes()).unwrap();
        assert_eq!((transcript.format, transcript.id.as_str()), ("codex", "c0"));
        assert_eq!(roles(&transcript), ["user", "assistant", "user"]);
    }

    #[test]
    fn codex_with_calls() {
        let text = concat!(
            "{\"type\":\"session_meta\",\"payload\":{\"id\":\"c1\"}}\n",
            "{\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"hi\"}]}}\n",
            "{\"type\":\"response_item\",\"payload\":{\"type\":\"function_call\",\"name\":\"shell\",\"arguments\":\"{\\\"c\\\":1}\",\"call_id\":\"k\"}}\n",
            "{\"type\":\"response_item\",\"payload\":{\"type\":\"function_call_output\",\"call_id\":\"k\",\"output\":\"out\"}}\n",
            "{\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"bye\"}]}}\n",
        );
        let transcript = read(text.as_bytes()).unwrap();
        assert_eq!((transcript.format, transcript.id.as_str()), ("codex", "c1"));
        assert_eq!(roles(&transcript), ["user", "assistant", "user", "assistant"]);
    }

    #[test]
    fn llm_logs_and_what_is_none() {
        let text = r#"[{"conversation_id":"l1","prompt":"q","response":"a"},{"conversation_id":"l1","prompt":"q2","response":"a2"}]"#;
        let transcript = read(text.as_bytes()).unwrap();
        assert_eq!((transcript.format, transcript.id.as_str(), transcript.turns.len()), ("llm", "l1", 4));
        assert!(read(&text.replacen("l1", "l2", 1).into_bytes()).is_err());
        assert!(read(b"{\"a\":1}\nhello").is_err());
        assert!(read(b"").is_err());
    }
}
