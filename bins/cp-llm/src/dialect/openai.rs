//! `OpenAI` Chat Completions, as the many servers use it that call themselves compatible.

use cp_common::wire::record;
use cp_common::wire::{Block, BlockView, Content, ToolSpec, Turn};
use cp_common::{Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::Body;
use super::partial::{PartialCall, arguments, fresh_id};
use super::{
    Answer, Call, Decoder, Dialect, Partial, Request, Show, Tokens, bad_answer, bearer, count_of, data_url, text_of,
};

pub(crate) struct OpenAi {
    /// Whether the server is the original one, which has renamed `max_tokens`.
    pub original: bool,
}

impl Dialect for OpenAi {
    fn path(&self, _: &Request) -> String {
        "/chat/completions".to_owned()
    }

    fn headers(&self, key: Option<&str>) -> Vec<(String, String)> {
        bearer(key)
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        let mut messages = Vec::with_capacity(request.messages.len() + 1);
        if !request.system.is_empty() {
            messages.push(json!({"role": "system", "content": request.system}));
        }
        for turn in &request.messages {
            put_turn(turn, &mut messages)?;
        }
        let mut body = Body::default();
        body.set("model", &request.model)?;
        body.set("messages", &messages)?;
        if !request.tools.is_empty() {
            body.set("tools", &request.tools.iter().map(Tool::of).collect::<Vec<_>>())?;
        }
        if let Some(schema) = &request.schema {
            let format = json!({"name": "answer", "schema": schema});
            body.set("response_format", &json!({"type": "json_schema", "json_schema": format}))?;
        }
        for (name, value) in &request.params {
            body.set(if self.original && name == "max_tokens" { "max_completion_tokens" } else { name }, value)?;
        }
        if request.stream {
            body.set("stream", &true)?;
            body.set("stream_options", &json!({"include_usage": true}))?;
        }
        Ok(body.finish())
    }

    fn whole(&self, body: &Value, _: &[u8]) -> Result<Answer> {
        let Some(choice) = body.pointer("/choices/0") else {
            return Err(bad_answer("invalid_json", "the answer has no choices"));
        };
        let message = &choice["message"];
        let refusal = text_of(message, "refusal").filter(|text| !text.is_empty());
        let mut calls = Vec::new();
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let input = match &function["arguments"] {
                Value::String(text) => arguments(text),
                Value::Null => arguments(""),
                // Some servers forget to write the arguments as text.
                object => arguments(&object.to_string()),
            };
            let name = text_of(function, "name").unwrap_or_default().to_owned();
            calls.push(Call { id: id_of(text_of(call, "id")), name, input });
        }
        Answer {
            id: text_of(body, "id").map(str::to_owned),
            model: text_of(body, "model").map(str::to_owned),
            text: text_of(message, "content")
                .filter(|text| !text.is_empty())
                .or(refusal)
                .unwrap_or_default()
                .to_owned(),
            others: Vec::new(),
            calls,
            stop: if refusal.is_some() {
                "refusal".to_owned()
            } else {
                stop(text_of(choice, "finish_reason").unwrap_or_default())
            },
            usage: body.get("usage").filter(|usage| usage.is_object()).map(tokens),
        }
        .checked()
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Stream::default())
    }
}

/// A call must have an id to be answered, even where the server gave none.
fn id_of(id: Option<&str>) -> String {
    id.filter(|id| !id.is_empty()).map_or_else(fresh_id, str::to_owned)
}

fn stop(reason: &str) -> String {
    match reason {
        "stop" | "eos" => "end_turn",
        "length" => "max_tokens",
        "tool_calls" | "function_call" => "tool_use",
        "content_filter" => "refusal",
        other => other,
    }
    .to_owned()
}

fn tokens(usage: &Value) -> Tokens {
    let cached = count_of(usage, "/prompt_tokens_details/cached_tokens");
    Tokens::with_cached(count_of(usage, "/prompt_tokens"), count_of(usage, "/completion_tokens"), cached)
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a RawValue,
}

impl<'a> Tool<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        let function = Function { name: &tool.name, description: &tool.description, parameters: &tool.input_schema };
        Self { r#type: "function", function }
    }
}

/// Appends the messages that one of our turns becomes: each tool result is a message of its own here.
fn put_turn(turn: &Turn, messages: &mut Vec<Value>) -> Result<()> {
    let role = &turn.role;
    let blocks = match &turn.content {
        Content::Text(text) => {
            messages.push(json!({"role": role, "content": text}));
            return Ok(());
        }
        Content::Blocks(blocks) => blocks,
    };
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        let view = block.view()?;
        match view.kind.as_ref() {
            "tool_use" => calls.push(json!({
                "id": view.id, "type": "function",
                "function": {"name": view.name, "arguments": view.input.map_or("{}", RawValue::get)},
            })),
            "tool_result" => {
                let (text, others) = result(&view)?;
                messages.push(json!({"role": "tool", "tool_call_id": view.tool_use_id, "content": text}));
                // A tool's message is text; what it showed follows as the user's.
                parts.extend(others);
            }
            // What the model thought in another dialect is not for this one.
            "thinking" | "redacted_thinking" => {}
            _ => parts.push(part(block)?),
        }
    }
    let content = match parts.as_slice() {
        [] => Value::Null,
        [only] if text_of(only, "type") == Some("text") => only["text"].clone(),
        // An assistant's content may be parts, but only text: most servers want a string.
        _ if role == "assistant" => parts.iter().filter_map(|p| text_of(p, "text")).collect::<String>().into(),
        _ => parts.into(),
    };
    if !calls.is_empty() {
        messages.push(json!({"role": role, "content": content, "tool_calls": calls}));
    } else if !content.is_null() {
        messages.push(json!({"role": role, "content": content}));
    }
    Ok(())
}

/// The text of a tool result, and the parts that are not text.
fn result(view: &BlockView<'_>) -> Result<(String, Vec<Value>)> {
    let Some(raw) = view.content else { return Ok((String::new(), Vec::new())) };
    match serde_json::from_str::<Content>(raw.get()) {
        Ok(Content::Text(text)) => Ok((text, Vec::new())),
        Ok(Content::Blocks(blocks)) => {
            let (mut text, mut others) = (String::new(), Vec::new());
            for block in &blocks {
                match block.view()?.text {
                    Some(piece) => text.push_str(&piece),
                    None => others.push(part(block)?),
                }
            }
            Ok((text, others))
        }
        Err(_) => Ok((raw.get().to_owned(), Vec::new())),
    }
}

/// A block of text, image or document as this dialect writes it.
fn part(block: &Block) -> Result<Value> {
    let block: Value = record::read(block.raw())?;
    let block = &block;
    let source = &block["source"];
    match (text_of(block, "type"), text_of(source, "type")) {
        (Some("text"), _) => Ok(json!({"type": "text", "text": block["text"]})),
        (Some("image"), Some("url")) => Ok(json!({"type": "image_url", "image_url": {"url": source["url"]}})),
        (Some("image"), _) => Ok(json!({"type": "image_url", "image_url": {"url": data_url(source)}})),
        (Some("document"), Some("text")) => Ok(json!({"type": "text", "text": source["data"]})),
        (Some("document"), Some("base64")) => {
            let name = text_of(block, "title").unwrap_or("document.pdf");
            Ok(json!({"type": "file", "file": {"filename": name, "file_data": data_url(source)}}))
        }
        (kind, source) => Err(Error::validation(format!(
            "a block of type {} with a source of type {} cannot be sent to an openai server",
            kind.unwrap_or("(none)"),
            source.unwrap_or("(none)")
        ))),
    }
}

#[derive(Default)]
struct Stream {
    partial: Partial,
    refused: bool,
}

impl Stream {
    fn call(&mut self, delta: &Value, halves: bool) {
        let id = text_of(delta, "id").filter(|id| !id.is_empty());
        let name = text_of(&delta["function"], "name").filter(|name| !name.is_empty());
        let index = delta.get("index").and_then(Value::as_u64);
        let calls = &mut self.partial.calls;
        // Servers leave out the index, give every call the same one, or repeat the id with every piece.
        let known = match index {
            Some(_) => calls.iter().rposition(|call| call.index == index),
            None => calls.len().checked_sub(1),
        };
        let known = known.filter(|at| id.is_none() || name.is_none() || id == Some(calls[*at].id.as_str()));
        let at = known.unwrap_or_else(|| {
            let id = id_of(id);
            calls.push(PartialCall { index, id, ..PartialCall::default() });
            calls.len() - 1
        });
        let call = &mut calls[at];
        if let Some(name) = name.filter(|_| call.name.is_empty()) {
            name.clone_into(&mut call.name);
        }
        match &delta["function"]["arguments"] {
            Value::String(piece) => drop(call.arguments.push(piece, halves)),
            whole @ Value::Object(_) => drop(call.arguments.push(&whole.to_string(), false)),
            _ => {}
        }
    }
}

impl Decoder for Stream {
    fn event(&mut self, data: &Value, halves: bool, show: &mut Show<'_>) -> Result<bool> {
        let partial = &mut self.partial;
        partial.identify(data, "id", "model");
        if let Some(usage) = data.get("usage").filter(|usage| usage.is_object()) {
            partial.usage = Some(tokens(usage));
        }
        // Other choices were not asked for.
        let Some(choice) = data.pointer("/choices/0").filter(|choice| count_of(choice, "/index") == 0) else {
            return Ok(false);
        };
        let delta = &choice["delta"];
        for name in ["content", "refusal"] {
            if let Some(piece) = text_of(delta, name).filter(|piece| !piece.is_empty()) {
                self.refused |= name == "refusal";
                self.partial.show(piece, halves, show)?;
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, halves);
        }
        if let Some(reason) = text_of(choice, "finish_reason").filter(|reason| !reason.is_empty()) {
            self.partial.stop = Some(if self.refused { "refusal".to_owned() } else { stop(reason) });
        }
        // The usage comes after the reason, so only `[DONE]` or the end of the stream is the end.
        Ok(false)
    }

    fn partial(&mut self) -> &mut Partial {
        &mut self.partial
    }
}
