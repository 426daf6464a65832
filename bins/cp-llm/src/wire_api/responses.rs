//! `OpenAI` Responses. The server stores nothing, so each request has the whole conversation.

use std::collections::BTreeMap;

use cp_common::wire::{Origin, raw, record};
use cp_common::{Error, Result};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::history::{Outgoing, outgoing, result, split};
use super::json::Body;
use super::openai::{COMPATIBLE, is_strict};
use super::{
    Decoder, Media, Part, PartContent, Partial, Payload, Request, UpstreamError, WireApi, count_of, data_url,
    file_name, function, media, restarted, text_of, tokens,
};

pub(crate) const API: WireApi = WireApi {
    path: |_| "/responses".to_owned(),
    body,
    decoder: || Box::new(ResponsesDecoder::default()),
    ..COMPATIBLE
};

fn body(request: &Request, there: &Origin) -> Result<Vec<u8>> {
    let mut body = Body::default();
    body.set("model", &request.model)?;
    body.set_some("instructions", Some(&request.system).filter(|system| !system.is_empty()))?;
    let mut items = Vec::new();
    for turn in &request.messages {
        put_turn(&turn.role, &outgoing(turn, request, there)?, &mut items)?;
    }
    body.set("input", &items)?;
    // The default of `strict`, true, refuses schemas with optional members.
    let own = [("type", "function".into()), ("strict", false.into())];
    let tools = request.tools.iter().map(|tool| function(tool, "parameters", &own));
    body.set_some("tools", request.tools(tools)?)?;
    if request.params.contains_key("stop") {
        return Err(Error::validation("an openai-responses server does not support `stop`")
            .hint("remove `stop`, or use --backend openai"));
    }
    for (name, value) in members(request) {
        body.set(name, &value)?;
    }
    for (name, value) in &request.params {
        match name.as_str() {
            "reasoning_effort" | "verbosity" => {}
            "max_tokens" => body.set("max_output_tokens", value)?,
            name => body.set(name, value)?,
        }
    }
    // The server stores nothing unless a parameter says so.
    body.set("store", &false)?;
    // Without storage, reasoning can be sent back only in its encrypted form. Models that do not reason refuse this
    // parameter.
    if request.params.get("store") != Some(&Value::Bool(true)) && reasons(request) {
        body.set("include", &["reasoning.encrypted_content"])?;
    }
    body.set("stream", &request.stream)?;
    Ok(body.finish())
}

/// Members that combine several parameters.
fn members(request: &Request) -> impl Iterator<Item = (&'static str, Map<String, Value>)> {
    let (mut text, mut reasoning) = (request.object("text"), request.object("reasoning"));
    if let Some(given) = &request.schema {
        let strict = is_strict(given);
        let format = json!({"type": "json_schema", "name": "answer", "schema": given, "strict": strict});
        text.entry("format").or_insert(format);
    }
    for (name, parameter, members) in
        [("verbosity", "verbosity", &mut text), ("effort", "reasoning_effort", &mut reasoning)]
    {
        if let Some(value) = request.params.get(parameter) {
            members.entry(name).or_insert_with(|| value.clone());
        }
    }
    if request.reasoning && reasons(request) {
        reasoning.entry("summary").or_insert_with(|| "auto".into());
    }
    [("text", text), ("reasoning", reasoning)].into_iter().filter(|(_, members)| !members.is_empty())
}

/// True if the model reasons, by its name or because a parameter of reasoning is given.
fn reasons(request: &Request) -> bool {
    let name = request.model.rsplit('/').next().unwrap_or_default();
    let digit_after =
        |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let is_gpt =
        name.strip_prefix("gpt-").and_then(|rest| rest.chars().next()).is_some_and(|c| ('5'..='9').contains(&c));
    ["reasoning", "reasoning_effort"].iter().any(|name| request.params.contains_key(*name))
        || digit_after("o")
        || name.starts_with("codex-")
        || (is_gpt && !name.contains("-chat"))
}

/// Appends the items of a turn. Tool calls and results are separate items.
fn put_turn(role: &str, blocks: &[Outgoing<'_>], items: &mut Vec<Value>) -> Result<()> {
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        let block = match block {
            Outgoing::Passthrough { raw, .. } => {
                put_message(role, &mut parts, items);
                items.append(&mut calls);
                items.push(record::read(raw)?);
                continue;
            }
            Outgoing::Plain(block) => block,
        };
        let view = block.view()?;
        match view.kind.as_ref() {
            "tool_use" => {
                let input = view.input.map_or("{}", RawValue::get);
                calls.push(json!({"type": "function_call", "call_id": view.id, "name": view.name, "arguments": input}));
            }
            "tool_result" => {
                let blocks = result(&view, false)?;
                // The output is a string if it has only text.
                let output = match split(&blocks) {
                    (text, others) if others.is_empty() => text.into(),
                    _ => blocks.iter().map(part).collect::<Result<Value>>()?,
                };
                items.push(json!({"type": "function_call_output", "call_id": view.tool_use_id, "output": output}));
            }
            _ => parts.push(part(&record::read(block.raw())?)?),
        }
    }
    put_message(role, &mut parts, items);
    items.extend(calls);
    Ok(())
}

/// Appends a message of these parts.
fn put_message(role: &str, parts: &mut Vec<Value>, items: &mut Vec<Value>) {
    match (std::mem::take(parts).as_slice(), role) {
        ([], _) => {}
        // Parts of an assistant's message would need the item id of the server.
        (parts, "assistant") => {
            let text: String = parts.iter().filter_map(|part| text_of(part, "text")).collect();
            items.push(json!({"type": "message", "role": role, "content": text}));
        }
        ([only], _) if only["type"] == "input_text" => items.push(json!({"role": role, "content": only["text"]})),
        (parts, _) => items.push(json!({"role": role, "content": parts})),
    }
}

/// Encodes a block of text, image or document.
fn part(block: &Value) -> Result<Value> {
    Ok(match media(block, "openai-responses")? {
        Media::Text(text) => json!({"type": "input_text", "text": text}),
        Media::Url("image", url) => json!({"type": "input_image", "detail": "auto", "image_url": url}),
        Media::Url(_, url) => json!({"type": "input_file", "file_url": url}),
        Media::Bytes("image", source) => {
            json!({"type": "input_image", "detail": "auto", "image_url": data_url(source)})
        }
        Media::Bytes(_, source) => {
            json!({"type": "input_file", "filename": file_name(block), "file_data": data_url(source)})
        }
    })
}

fn stop(response: &Value) -> &str {
    let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
    reason.or_else(|| text_of(response, "status")).unwrap_or_default()
}

/// An item of an answer, as far as it has arrived.
#[derive(Default)]
struct Item {
    /// The item of the server, at its start or when it is done.
    given: Value,
    is_done: bool,
    /// The text or the arguments from deltas.
    pieces: String,
}

impl Item {
    fn part(self) -> Result<Option<Part>> {
        let Self { given: mut item, is_done, pieces: text } = self;
        if !is_done && item["type"] == "function_call" {
            item["arguments"] = text.into();
        } else if !is_done {
            // An incomplete item cannot be sent back.
            return Ok((!text.is_empty()).then(|| Part { content: PartContent::Text(text, Vec::new()), raw: None }));
        }
        part_of(&item).map(Some)
    }
}

/// Makes the part of an item.
fn part_of(item: &Value) -> Result<Part> {
    let kind = text_of(item, "type").unwrap_or_default();
    let list = |name: &str| item[name].as_array().into_iter().flatten();
    let content = match kind {
        "message" => {
            let words = |part: &Value| text_of(part, "text").or_else(|| text_of(part, "refusal")).map(str::to_owned);
            let citations = list("content").flat_map(|part| part["annotations"].as_array().into_iter().flatten());
            PartContent::Text(list("content").filter_map(words).collect(), citations.cloned().collect())
        }
        "reasoning" => {
            let texts = list("summary").chain(list("content")).filter_map(|part| text_of(part, "text"));
            PartContent::Thinking(texts.collect::<Vec<_>>().join("\n\n"))
        }
        "function_call" => {
            let text = |name| text_of(item, name).unwrap_or_default();
            return Ok(Part::call(text("call_id").to_owned(), text("name"), text("arguments"), Some(raw(item)?)));
        }
        "image_generation_call" if item["result"].is_string() => {
            let format = text_of(item, "output_format").unwrap_or("png");
            PartContent::Image(
                json!({"type": "base64", "media_type": format!("image/{format}"), "data": item["result"]}),
            )
        }
        _ if kind.ends_with("_call") || kind.starts_with("mcp_") => PartContent::ServerTool(kind.to_owned()),
        _ => PartContent::Other(kind.to_owned()),
    };
    Ok(Part { content, raw: Some(raw(item)?) })
}

#[derive(Default)]
struct ResponsesDecoder {
    has_started: bool,
    is_refused: bool,
    items: BTreeMap<u64, Item>,
}

impl ResponsesDecoder {
    /// Decodes a complete response. A failed one has usage too.
    fn response(&mut self, response: &Value, is_failed: bool, partial: &mut Partial) -> Result<()> {
        partial.identify(response, "id", "model");
        let usage = response.get("usage").filter(|usage| usage.is_object());
        let cached = "/input_tokens_details/cached_tokens";
        partial.usage = usage.and_then(|usage| tokens(usage, "/input_tokens", &["/output_tokens"], cached));
        if is_failed {
            return Err(UpstreamError::find(response, false).unwrap_or_default().into_error(200));
        }
        let output = response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Some servers omit the items that they sent before.
        if !output.is_empty() {
            let done = |item: &Value| Item { given: item.clone(), is_done: true, pieces: String::new() };
            self.items = (0..).zip(output.iter().map(done)).collect();
        }
        let parts = self.items.values().flat_map(|item| item.given["content"].as_array().into_iter().flatten());
        let is_refused = self.is_refused || parts.into_iter().any(|part| part["type"] == "refusal");
        partial.stop = Some(if is_refused { "refusal" } else { stop(response) }.to_owned());
        Ok(())
    }
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, event: &Payload<'_>, partial: &mut Partial) -> Result<bool> {
        let data = &event.value;
        let item = self.items.entry(count_of(data, "/output_index"));
        let delta = text_of(data, "delta").unwrap_or_default();
        match text_of(data, "type") {
            Some("response.created") if self.has_started => return Err(restarted()),
            Some("response.created") => {
                self.has_started = true;
                partial.identify(&data["response"], "id", "model");
            }
            Some(kind @ ("response.output_text.delta" | "response.refusal.delta")) => {
                self.is_refused |= kind == "response.refusal.delta";
                item.or_default().pieces.push_str(delta);
                partial.text.push_str(delta);
            }
            Some("response.reasoning_summary_text.delta" | "response.reasoning_text.delta") => {
                partial.thinking.push_str(delta);
            }
            // Parts of a summary are paragraphs.
            Some("response.reasoning_summary_part.added") if count_of(data, "/summary_index") > 0 => {
                partial.thinking.push_str("\n\n");
            }
            Some("response.function_call_arguments.delta") => {
                item.or_default().pieces.push_str(delta);
            }
            Some("response.output_item.added") => item.or_default().given = data["item"].clone(),
            // Some servers send the arguments only in this event.
            Some("response.output_item.done") => {
                let item = item.or_default();
                (item.given, item.is_done) = (data["item"].clone(), true);
            }
            Some(kind @ ("response.completed" | "response.incomplete" | "response.failed")) => {
                self.response(&data["response"], kind == "response.failed", partial)?;
                return Ok(true);
            }
            // A whole answer.
            None if data["output"].is_array() || data["status"] == "failed" => {
                self.response(data, data["status"] == "failed", partial)?;
            }
            _ => {}
        }
        Ok(false)
    }

    fn parts(&mut self) -> Result<Vec<Part>> {
        let items = std::mem::take(&mut self.items);
        items.into_values().filter_map(|item| item.part().transpose()).collect()
    }
}
