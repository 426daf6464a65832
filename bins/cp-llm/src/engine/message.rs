//! The message that an answer becomes.

use cp_common::wire::{Message, ToolCall, Usage};
use serde_json::value::RawValue;

use super::journal::Try;
use super::work::Work;
use crate::dialect::Answer;

/// The message, with what the prompt hands on.
pub(super) fn of(answer: Answer, usage: Usage, work: &Work, this: &Try<'_>) -> Message {
    let calls = answer.calls.into_iter().map(|call| ToolCall {
        timeout: None,
        id: call.id,
        name: call.name,
        input: call.input,
        untrusted: Vec::new(),
    });
    let mut message = Message {
        id: answer.id.unwrap_or_default(),
        role: "assistant".to_owned(),
        content: answer.content,
        tool_calls: calls.collect(),
        blocks: answer.blocks,
        input: work.prompt.input().to_vec(),
        model: answer.model.unwrap_or_else(|| work.request().model.clone()),
        backend: this.backend.to_owned(),
        endpoint: work.target().endpoint.name.clone(),
        stop_reason: answer.stop,
        usage,
        cached: false,
        session_id: work.prompt.session_id.clone(),
        agent: work.prompt.agent.clone(),
        row: work.prompt.row.clone(),
        parsed: None,
        extracted: None,
        receipt: work.receipt(),
        request_hash: Some(this.request_hash.to_owned()),
        untrusted: Vec::new(),
    };
    message.mark();
    message
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
