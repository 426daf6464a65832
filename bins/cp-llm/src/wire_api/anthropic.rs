//! Anthropic Messages. Blocks of our records have the same shape, so they are sent unchanged.

use cp_common::Result;
use cp_common::wire::{Content, Origin, Turn, Usage};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::{arguments, is_object};
use super::history::{Outgoing, outgoing};
use super::json::{Body, exact};
use super::{
    BatchApi, Decoder, Part, PartContent, Partial, Payload, Request, WireApi, count_in, count_of, list, restarted,
    text_of,
};

/// The default of `max_tokens`, which the API requires.
const MAX_TOKENS: u64 = 8192;

/// The body of a request that is recorded for backends without a server. This API keeps the most of a request.
pub(crate) fn recorded(request: &Request) -> Result<Vec<u8>> {
    body(request, &Origin { endpoint: String::new(), dialect: "anthropic".to_owned() })
}

pub(crate) const API: WireApi = WireApi {
    default_path: "",
    models_path: "/v1/models?limit=1000",
    key_header: ("x-api-key", ""),
    version: Some(("anthropic-version", "2023-06-01")),
    batch_api: Some(BatchApi {
        has_file: false,
        path: "/v1/messages/batches",
        console: "https://console.anthropic.com",
    }),
    path: |_| "/v1/messages".to_owned(),
    body,
    decoder: || Box::new(AnthropicDecoder::default()),
};

fn body(request: &Request, there: &Origin) -> Result<Vec<u8>> {
    let mut body = Body::default();
    body.set("model", &request.model)?;
    // Reasoning counts as output.
    let budget = request.object("thinking").get("budget_tokens").and_then(Value::as_u64).unwrap_or_default();
    let most = MAX_TOKENS.saturating_add(budget).into();
    body.set("max_tokens", request.params.get("max_tokens").unwrap_or(&most))?;
    body.set_some("system", request.whole_system())?;
    let messages = request.conversation_turns().map(|turn| message(turn, request, there));
    body.set("messages", &messages.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?)?;
    body.set_some("tools", request.tools(request.tools.iter().map(Ok))?)?;
    for (name, value) in output(request) {
        body.set(name, &value)?;
    }
    for (name, value) in request.params.iter().filter(|(name, _)| *name != "reasoning_effort") {
        match name.as_str() {
            "stop" => body.set("stop_sequences", &list(value))?,
            name => body.set(name, value)?,
        }
    }
    body.set("stream", &request.stream)?;
    Ok(body.finish())
}

/// The members for the schema and the reasoning effort. With an effort but without a kind of thinking, the model
/// decides, as the provider documents it for models that support an effort.
fn output(request: &Request) -> impl Iterator<Item = (&'static str, Map<String, Value>)> {
    let (mut output, mut thinking) = (request.object("output_config"), request.object("thinking"));
    if let Some(schema) = &request.schema {
        output.entry("format").or_insert_with(|| json!({"type": "json_schema", "schema": schema}));
    }
    if let Some(effort) = request.params.get("reasoning_effort") {
        let kind = if effort == "none" { "disabled" } else { "adaptive" };
        thinking.entry("type").or_insert_with(|| kind.into());
        if effort != "none" {
            let least = (effort == "minimal").then(|| "low".into());
            output.entry("effort").or_insert_with(|| least.unwrap_or_else(|| effort.clone()));
        }
    }
    // By default newer models send only a signature.
    if request.reasoning && thinking.get("type").is_some_and(|kind| kind == "adaptive" || kind == "enabled") {
        thinking.entry("display").or_insert_with(|| "summarized".into());
    }
    [("output_config", output), ("thinking", thinking)].into_iter().filter(|(_, members)| !members.is_empty())
}

/// The message of a turn; `None` if no block can be sent.
fn message(turn: &Turn, request: &Request, there: &Origin) -> Result<Option<Box<RawValue>>> {
    let mut body = Body::default();
    body.set("role", &turn.role)?;
    let raw = |block: &Outgoing<'_>| match block {
        Outgoing::Passthrough { raw, .. } => (*raw).to_owned(),
        Outgoing::Plain(block) => block.raw().to_owned(),
    };
    match (&turn.content, outgoing(turn, request, there)?.as_slice()) {
        (Content::Text(text), _) if turn.blocks.is_empty() => body.set("content", text)?,
        (content, []) if !content.is_empty() => return Ok(None),
        (_, blocks) => body.set("content", &blocks.iter().map(raw).collect::<Vec<_>>())?,
    }
    body.into_raw().map(Some)
}

/// Updates a usage by a later report. Its counts are totals. One that is missing keeps its value, and so does one that
/// is 0, because some gateways write that for what they do not repeat.
fn tokens(usage: &Value, before: Usage) -> Option<Usage> {
    let count = |path: &str, before: u64| count_in(usage, path).map(|count| if count > 0 { count } else { before });
    Some(Usage {
        input_tokens: count("/input_tokens", before.input_tokens)?,
        output_tokens: count("/output_tokens", before.output_tokens)?,
        cache_read_tokens: count("/cache_read_input_tokens", before.cache_read_tokens)?,
        cache_write_tokens: count("/cache_creation_input_tokens", before.cache_write_tokens)?,
        cost_usd: None,
    })
}

/// A block as far as it has arrived.
struct PartialBlock {
    index: u64,
    /// An object.
    members: Value,
    /// The arguments from deltas.
    pieces: String,
    /// The arguments, if they arrived whole.
    input: Option<Box<RawValue>>,
}

impl PartialBlock {
    /// Adds the members of a delta such as `thinking_delta`.
    fn grow(&mut self, delta: &Value) {
        for (name, piece) in delta.as_object().into_iter().flatten().filter(|(name, _)| *name != "type") {
            match (name.as_str(), piece, self.members.get_mut(name)) {
                ("partial_json", Value::String(piece), _) => self.pieces.push_str(piece),
                ("citation", citation, _) => match &mut self.members["citations"] {
                    Value::Array(citations) => citations.push(citation.clone()),
                    none => *none = json!([citation]),
                },
                // A signature is not split, but may be repeated.
                ("text" | "thinking", Value::String(piece), Some(Value::String(text))) => text.push_str(piece),
                _ => self.members[name] = piece.clone(),
            }
        }
    }

    /// Makes the part; `None` for an empty text.
    fn part(mut self) -> Result<Option<Part>> {
        let text = |name| text_of(&self.members, name).unwrap_or_default().to_owned();
        if !self.pieces.is_empty() {
            self.input = Some(arguments(&self.pieces));
        }
        let members = self.members.as_object().into_iter().flatten();
        let members = members.filter(|(name, value)| *name != "citations" || !value.is_null());
        let mut body = Body::default();
        for (name, value) in members.clone() {
            // The bytes of the input are kept.
            body.set_some(name, self.input.as_ref().filter(|_| name == "input"))?;
            body.set(name, value)?;
        }
        let raw = body.into_raw()?;
        let has_only = |names: &[&str]| members.clone().all(|(name, _)| names.contains(&name.as_str()));
        let (kind, name) = (text("type"), text("name"));
        let (content, is_plain) = match kind.as_str() {
            "text" => {
                let citations = self.members["citations"].as_array().cloned().unwrap_or_default();
                let (is_plain, text) = (has_only(&["type", "text"]), text("text"));
                if text.is_empty() && is_plain {
                    return Ok(None);
                }
                (PartContent::Text(text, citations), is_plain)
            }
            "thinking" => (PartContent::Thinking(text("thinking")), false),
            "redacted_thinking" => (PartContent::Thinking(String::new()), false),
            "tool_use" => {
                let given = || self.members.get("input").map_or_else(|| "{}".to_owned(), Value::to_string);
                let whole = || self.input.as_ref().map_or_else(given, |input| input.get().to_owned());
                let input = if self.pieces.is_empty() { whole() } else { self.pieces };
                let own = (!has_only(&["type", "id", "name", "input"])).then_some(raw);
                return Ok(Some(Part::call(text("id"), &name, &input, own)));
            }
            // One whose arguments were cut off cannot be sent back.
            _ if kind.ends_with("_use") => {
                (PartContent::ServerTool(name), self.input.is_some_and(|input| !is_object(&input)))
            }
            _ if kind.ends_with("_result") => (PartContent::ServerTool(kind), false),
            _ => (PartContent::Other(kind), false),
        };
        Ok(Some(Part { content, raw: (!is_plain).then_some(raw) }))
    }
}

#[derive(Default)]
struct AnthropicDecoder {
    has_started: bool,
    blocks: Vec<PartialBlock>,
}

impl AnthropicDecoder {
    /// Decodes a whole message, or the start of one, which may have content.
    fn message(&mut self, message: &Value, pointer: &str, piece: &Payload<'_>, partial: &mut Partial) {
        partial.identify(message, "id", "model");
        partial.usage = message.get("usage").and_then(|usage| tokens(usage, Usage::default()));
        partial.stop = text_of(message, "stop_reason").map(str::to_owned);
        for (index, block) in (0..).zip(message["content"].as_array().into_iter().flatten()) {
            self.start(index, block, &format!("{pointer}/content/{index}"), piece, partial);
        }
    }

    fn start(&mut self, index: u64, block: &Value, pointer: &str, piece: &Payload<'_>, partial: &mut Partial) {
        let input = block["input"].as_object().filter(|input| !input.is_empty());
        let begun = PartialBlock {
            index,
            members: if block.is_object() { block.clone() } else { json!({}) },
            pieces: String::new(),
            input: input.and_then(|_| exact(&piece.bytes, &format!("{pointer}/input"))),
        };
        show(text_of(block, "type"), block, partial);
        self.blocks.push(begun);
    }
}

/// Adds the text for a block of this type.
fn show(kind: Option<&str>, from: &Value, partial: &mut Partial) {
    let text = |name| text_of(from, name).unwrap_or_default();
    match kind {
        Some("text") => partial.text.push_str(text("text")),
        Some("thinking") => partial.thinking.push_str(text("thinking")),
        _ => {}
    }
}

impl Decoder for AnthropicDecoder {
    fn event(&mut self, event: &Payload<'_>, partial: &mut Partial) -> Result<bool> {
        let data = &event.value;
        let index = count_of(data, "/index");
        match text_of(data, "type") {
            Some("message_start") if self.has_started => return Err(restarted()),
            // A whole answer.
            None | Some("message") if data["content"].is_array() => self.message(data, "", event, partial),
            Some("message_start") => {
                self.has_started = true;
                self.message(&data["message"], "/message", event, partial);
            }
            Some("content_block_start") => {
                self.start(index, &data["content_block"], "/content_block", event, partial);
            }
            Some("content_block_delta") => {
                let delta = &data["delta"];
                if let Some(block) = self.blocks.iter_mut().rfind(|block| block.index == index) {
                    block.grow(delta);
                    show(text_of(&block.members, "type"), delta, partial);
                }
            }
            Some("message_delta") => {
                if let Some(stop) = text_of(&data["delta"], "stop_reason") {
                    partial.stop = Some(stop.to_owned());
                }
                if let Some(usage) = data.get("usage") {
                    // Without a usage so far, the count of the input is not known.
                    let before = partial.usage.or_else(|| usage.get("input_tokens").map(|_| Usage::default()));
                    partial.usage = before.and_then(|before| tokens(usage, before));
                }
            }
            Some("message_stop") => {
                partial.ended = true;
                return Ok(true);
            }
            // `ping`, `content_block_stop` and unknown events.
            _ => {}
        }
        Ok(false)
    }

    fn parts(&mut self) -> Result<Vec<Part>> {
        let blocks = std::mem::take(&mut self.blocks);
        blocks.into_iter().filter_map(|block| block.part().transpose()).collect()
    }
}
