//! `OpenAI` Chat Completions, also of compatible servers.

use cp_common::wire::{Origin, quoted, record};
use cp_common::{Error, Result};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::history::{Outgoing, outgoing, result, split};
use super::json::Body;
use super::openai_message::Message;
use super::{
    BatchApi, Decoder, Media, Part, Partial, Payload, Request, UpstreamError, WireApi, count_of, data_url, file_name,
    function, media, text_of, tokens,
};

/// The end of the body of a streamed request, which asks for the usage.
const ASKS_USAGE: &[u8] = br#","stream_options":{"include_usage":true}}"#;

/// The body of a streamed request without the member that some compatible servers refuse; `None` for other requests.
pub(crate) fn without_stream_options(body: &[u8]) -> Option<Vec<u8>> {
    body.strip_suffix(ASKS_USAGE).map(|rest| [rest, b"}"].concat())
}

/// The API of compatible servers. The key is a bearer token (RFC 6750).
pub(crate) const COMPATIBLE: WireApi = WireApi {
    default_path: "/v1",
    models_path: "/models",
    key_header: ("authorization", "Bearer "),
    version: None,
    batch_api: Some(BatchApi { has_file: true, path: "/batches", console: "https://platform.openai.com/batches" }),
    path: |_| "/chat/completions".to_owned(),
    body: |request, there| body(request, there, false),
    decoder: || Box::new(ChatDecoder::default()),
};

/// The API of the server of `OpenAI`, which has renamed `max_tokens`.
pub(crate) const ORIGINAL: WireApi = WireApi { body: |request, there| body(request, there, true), ..COMPATIBLE };

fn body(request: &Request, there: &Origin, is_original: bool) -> Result<Vec<u8>> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for turn in &request.messages {
        put_turn(&turn.role, &outgoing(turn, request, there)?, &mut messages)?;
    }
    let mut body = Body::default();
    body.set("model", &request.model)?;
    body.set("messages", &messages)?;
    let tool = |tool| {
        let mut body = Body::default();
        body.set("type", "function")?;
        body.set("function", &function(tool, "parameters", &[])?)?;
        body.into_raw()
    };
    body.set_some("tools", request.tools(request.tools.iter().map(tool))?)?;
    if let Some(given) = &request.schema {
        // Compatible servers accept more schemas, and differ in their meaning of `strict`.
        let format = if is_original && is_strict(given) {
            json!({"name": "answer", "schema": given, "strict": true})
        } else {
            json!({"name": "answer", "schema": given})
        };
        body.set("response_format", &json!({"type": "json_schema", "json_schema": format}))?;
    }
    for (name, value) in &request.params {
        body.set(if is_original && name == "max_tokens" { "max_completion_tokens" } else { name }, value)?;
    }
    // Some servers send events unless this is false.
    body.set("stream", &request.stream)?;
    if request.stream {
        body.set("stream_options", &json!({"include_usage": true}))?;
    }
    Ok(body.finish())
}

/// Appends the messages of a turn. Each tool result is a separate message.
fn put_turn(role: &str, blocks: &[Outgoing<'_>], messages: &mut Vec<Value>) -> Result<()> {
    let (mut parts, mut calls, mut members, mut is_list) = (Vec::new(), Vec::new(), Map::new(), false);
    for block in blocks {
        let block = match block {
            Outgoing::Passthrough { kind, raw, .. } => {
                match (kind.as_ref(), record::read::<Value>(raw)?) {
                    ("tool_use", call) => calls.push(call),
                    (_, Value::Object(own)) if !own.contains_key("type") => members.extend(own),
                    (_, part) => {
                        is_list = true;
                        parts.push(part);
                    }
                }
                continue;
            }
            Outgoing::Plain(block) => block,
        };
        let view = block.view()?;
        match view.kind.as_ref() {
            "tool_use" => calls.push(json!({
                "id": view.id, "type": "function",
                "function": {"name": view.name, "arguments": view.input.map_or("{}", RawValue::get)},
            })),
            "tool_result" => {
                let blocks = result(&view, false)?;
                let (text, others) = split(&blocks);
                messages.push(json!({"role": "tool", "tool_call_id": view.tool_use_id, "content": text}));
                // A tool message has only text, so images follow in a user message.
                for other in others {
                    parts.push(part(other)?);
                }
            }
            _ => parts.push(part(&record::read(block.raw())?)?),
        }
    }
    let content = match parts.as_slice() {
        // Reasoning needs a text beside it.
        [] if calls.is_empty() && !members.is_empty() && !members.contains_key("refusal") => "".into(),
        [] => Value::Null,
        _ if is_list => parts.into(),
        [only] if text_of(only, "type") == Some("text") => only["text"].clone(),
        // Most servers require the content of the assistant to be a string.
        _ if role == "assistant" => parts.iter().filter_map(|p| text_of(p, "text")).collect::<String>().into(),
        _ => parts.into(),
    };
    if content.is_null() && calls.is_empty() && members.is_empty() {
        return Ok(());
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), role.into());
    message.insert("content".to_owned(), content);
    message.extend(members);
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    messages.push(message.into());
    Ok(())
}

/// Encodes a block of text, image or document.
fn part(block: &Value) -> Result<Value> {
    Ok(match media(block, "openai")? {
        Media::Text(text) => json!({"type": "text", "text": text}),
        Media::Url("image", url) => json!({"type": "image_url", "image_url": {"url": url}}),
        Media::Url(_, url) => {
            let hint = format!("attach its bytes: curl {} | cp-ask -a - …", quoted(url.as_str().unwrap_or_default()));
            return Err(Error::validation("Chat Completions takes no URL of a document").hint(hint));
        }
        Media::Bytes("image", source) => json!({"type": "image_url", "image_url": {"url": data_url(source)}}),
        Media::Bytes(_, source) => {
            json!({"type": "file", "file": {"filename": file_name(block), "file_data": data_url(source)}})
        }
    })
}

#[derive(Default)]
struct ChatDecoder {
    message: Message,
}

impl ChatDecoder {
    fn choice(&mut self, choice: &Value, delta: &Value, partial: &mut Partial) -> Result<()> {
        self.message.delta(delta, partial)?;
        if let Some(reason) = text_of(choice, "finish_reason").filter(|reason| !reason.is_empty()) {
            self.message.text("", true, partial);
            let is_refused = !self.message.refusal.is_empty();
            partial.stop = Some(if is_refused { "refusal" } else { reason }.to_owned());
        }
        if let Some(error) = UpstreamError::find(choice, false) {
            return Err(error.into_error(200).with("reason", "end"));
        }
        Ok(())
    }
}

/// Reads the members of a body or an event beside its choices.
fn head(data: &Value, partial: &mut Partial) {
    partial.identify(data, "id", "model");
    let usages = ["/usage", "/x_groq/usage", "/choices/0/usage"];
    if let Some(usage) = usages.iter().filter_map(|path| data.pointer(path)).find(|usage| usage.is_object()) {
        let cached = "/prompt_tokens_details/cached_tokens";
        partial.usage = tokens(usage, "/prompt_tokens", &["/completion_tokens"], cached);
    }
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: &Payload<'_>, partial: &mut Partial) -> Result<bool> {
        head(&event.value, partial);
        // The first choice is the only one that was requested. The usage follows the finish reason, so the stream ends
        // only at `[DONE]` or its end.
        if let Some(choice) = event.value.pointer("/choices/0").filter(|choice| count_of(choice, "/index") == 0) {
            match choice.get("message") {
                // A whole answer. Each element of its tool calls is a separate call.
                Some(message) if choice.get("delta").is_none() => {
                    let mut message = message.clone();
                    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten();
                    for (index, call) in calls.filter_map(Value::as_object_mut).enumerate() {
                        call.insert("index".to_owned(), index.into());
                    }
                    self.choice(choice, &message, partial)?;
                }
                _ => self.choice(choice, &choice["delta"], partial)?,
            }
        }
        Ok(false)
    }

    fn done(&self, partial: &mut Partial) {
        partial.ended = true;
    }

    fn parts(&mut self) -> Result<Vec<Part>> {
        std::mem::take(&mut self.message).parts()
    }
}

/// Keywords of the strict mode of `OpenAI`.
const STRICT: &str = "$defs $ref $schema additionalProperties anyOf const description enum exclusiveMaximum exclusiveMinimum format items \
    maxItems maximum minItems minimum multipleOf pattern properties required title type";

/// True if the strict mode of `OpenAI` takes a schema: its objects are closed and require all their properties.
pub(super) fn is_strict(schema: &Value) -> bool {
    schema["type"] == "object" && schema.get("anyOf").is_none() && is_taken(schema)
}

fn is_taken(schema: &Value) -> bool {
    let Some(members) = schema.as_object() else { return false };
    let each_of = |schemas: &Value| schemas.as_object().is_some_and(|all| all.values().all(is_taken));
    let is_known = |(name, value): (&String, &Value)| match name.as_str() {
        "$defs" | "properties" => each_of(value),
        "anyOf" => value.as_array().is_some_and(|all| all.iter().all(is_taken)),
        "items" => is_taken(value),
        "format" => value != "uri",
        name => STRICT.split_whitespace().any(|known| known == name),
    };
    let names = schema["properties"].as_object().into_iter().flat_map(Map::keys);
    let is_required = |name: &String| schema["required"].as_array().is_some_and(|all| all.iter().any(|n| n == name));
    let is_object = schema["type"] == "object" || members.contains_key("properties");
    (!is_object || schema["additionalProperties"] == false && names.into_iter().all(is_required))
        && ["type", "anyOf", "$ref"].iter().any(|name| members.contains_key(*name))
        && members.iter().all(is_known)
}
