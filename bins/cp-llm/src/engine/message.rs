//! The message that an answer becomes.

use cp_common::wire::{Block, Content, Message, ToolCall, Usage};
use cp_common::{Code, Error, Result};
use serde_json::value::{RawValue, to_raw_value};

use super::work::Work;
use crate::dialect::Answer;

/// The message, with what the prompt hands on.
pub(super) fn of(answer: Answer, usage: Usage, work: &Work, backend: &str) -> Result<Message> {
    let content = if answer.others.is_empty() {
        Content::Text(answer.text)
    } else {
        let mut blocks = Vec::with_capacity(answer.others.len() + 1);
        for other in &answer.others {
            let raw = to_raw_value(other).map_err(|e| Error::new(Code::Unknown, format!("encoding a block: {e}")))?;
            blocks.push(Block::from_raw(raw));
        }
        if !answer.text.is_empty() {
            blocks.push(Block::text(&answer.text));
        }
        Content::Blocks(blocks)
    };
    let calls = answer.calls.into_iter().map(|call| ToolCall {
        id: call.id,
        name: call.name,
        input: call.input,
        untrusted: Vec::new(),
    });
    let mut message = Message {
        id: answer.id.unwrap_or_default(),
        role: "assistant".to_owned(),
        content,
        tool_calls: calls.collect(),
        input: work.prompt.input().to_vec(),
        model: answer.model.unwrap_or_else(|| work.request().model.clone()),
        backend: backend.to_owned(),
        stop_reason: answer.stop,
        usage,
        session_id: work.prompt.session_id.clone(),
        agent: work.prompt.agent.clone(),
        row: work.prompt.row.clone(),
        parsed: None,
        receipt: None,
        untrusted: Vec::new(),
    };
    message.mark();
    Ok(message)
}

/// The message with its words as JSON, which are the model's too.
pub(super) fn with_parsed(mut message: Message, parsed: Box<RawValue>) -> Message {
    message.parsed = Some(parsed);
    message.mark();
    message
}

/// What two requests used together.
pub(super) fn sum(a: &Usage, b: &Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens + b.input_tokens,
        output_tokens: a.output_tokens + b.output_tokens,
        cache_read_tokens: a.cache_read_tokens + b.cache_read_tokens,
        cache_write_tokens: a.cache_write_tokens + b.cache_write_tokens,
        cost_usd: a.cost_usd.zip(b.cost_usd).map(|(a, b)| a + b),
    }
}
