//! Requests that come as records: a `tool_call` whose name is an operation is answered by a `tool_result`, so that a model can be given
//! the operations as tools.

use cp_common::output::Place;
use cp_common::wire::Reply as _;
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{ToolCall, ToolResult};
use cp_common::{Context, Error, Result};
use serde_json::Value;

use crate::pipe::responder::Responder;
use crate::pipe::response::Response;

/// Answers a record. A failure is the item's, unless it is fatal.
pub(super) fn answer(bytes: &[u8], index: u64, responder: &mut Responder, context: &mut Context) -> Result<()> {
    context.out.set_place(Place { index: Some(index), line: None });
    match item(bytes, responder, context) {
        Err(error) if !error.is_fatal() => context.out.item_failed(error),
        other => other,
    }
}

fn item(bytes: &[u8], responder: &mut Responder, context: &mut Context) -> Result<()> {
    let record = Record::parse(bytes)?;
    if !record.closed {
        context.out.streaming()?;
    }
    match record.kind {
        _ if !record.ok => Err(record.failure()),
        Some(Kind::ToolCall) => {
            let call: ToolCall = record.read()?;
            let input: Value =
                serde_json::from_str(call.input.get()).map_err(|e| Error::validation(format!("data.input: {e}")))?;
            if !input.is_object() {
                return Err(Error::validation("data.input is not an object"));
            }
            let response = responder.call(&call.name, &input, context)?;
            let mut result = result_of(call, &response);
            result.receipt = responder.commit()?;
            context.out.record(Kind::ToolResult, &result)?;
            if result.is_error {
                context.warn(&format!("{}: {}", result.name, result.text()));
            }
            context.out.item_succeeded();
            Ok(())
        }
        Some(Kind::Summary) => Ok(()),
        _ => context.out.pass(&record.opened()),
    }
}

fn result_of(call: ToolCall, response: &Response) -> ToolResult {
    let content = match (&response.result, &response.error) {
        (Some(result), _) => result.to_string(),
        (None, Some(error)) => format!("{}: {}", error.code, error.message),
        (None, None) => String::new(),
    };
    ToolResult {
        id: call.id,
        name: call.name,
        content,
        images: Vec::new(),
        is_error: response.error.is_some(),
        exit_code: None,
        duration_ms: response.evidence.duration_ms,
        receipt: None,
        untrusted: vec!["/name".to_owned(), "/content".to_owned()],
    }
}
