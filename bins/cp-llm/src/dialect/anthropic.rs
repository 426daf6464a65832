//! Anthropic Messages. Our blocks have this dialect's shape, so they go out as they came.

use cp_common::Result;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::Body;
use super::partial::{PartialCall, arguments};
use super::{Answer, Call, Decoder, Dialect, Partial, Request, Show, Tokens, bad_answer, count_of, text_of};

/// The version of the API that this is written to.
const VERSION: &str = "2023-06-01";
/// The API requires a limit; where none is given, this one is sent.
const MAX_TOKENS: u64 = 8192;

pub(crate) struct Anthropic;

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    content: Vec<RawBlock<'a>>,
}

#[derive(Deserialize)]
struct RawBlock<'a> {
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

impl Dialect for Anthropic {
    fn base<'a>(&self, base: &'a str) -> &'a str {
        // The paths begin with it here, and people give it as the others need it.
        base.strip_suffix("/v1").unwrap_or(base)
    }

    fn models_path(&self) -> &'static str {
        "/v1/models?limit=1000"
    }

    fn path(&self, _: &Request) -> String {
        "/v1/messages".to_owned()
    }

    fn headers(&self, key: Option<&str>) -> Vec<(String, String)> {
        let mut headers = vec![("anthropic-version".to_owned(), VERSION.to_owned())];
        headers.extend(key.map(|key| ("x-api-key".to_owned(), key.to_owned())));
        headers
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        let mut body = Body::default();
        body.set("model", &request.model)?;
        body.set("max_tokens", request.params.get("max_tokens").unwrap_or(&MAX_TOKENS.into()))?;
        if let Some(system) = request.whole_system() {
            body.set("system", &system)?;
        }
        body.set("messages", &request.conversation_turns().collect::<Vec<_>>())?;
        if !request.tools.is_empty() {
            body.set("tools", &request.tools)?;
        }
        if let Some(schema) = &request.schema {
            body.set("output_config", &json!({"format": {"type": "json_schema", "schema": schema}}))?;
        }
        for (name, value) in &request.params {
            body.set(if name == "stop" { "stop_sequences" } else { name }, value)?;
        }
        if request.stream {
            body.set("stream", &true)?;
        }
        Ok(body.finish())
    }

    fn whole(&self, body: &Value, bytes: &[u8]) -> Result<Answer> {
        let Some(content) = body.get("content").and_then(Value::as_array) else {
            return Err(bad_answer("invalid_json", "the answer is not a message"));
        };
        let mut answer = Answer {
            id: text_of(body, "id").map(str::to_owned),
            model: text_of(body, "model").map(str::to_owned),
            stop: text_of(body, "stop_reason").unwrap_or_default().to_owned(),
            usage: body.get("usage").map(tokens),
            ..Answer::default()
        };
        // The arguments of calls are taken from the bytes: a long integer must not become a float.
        let raw: Option<Raw<'_>> = serde_json::from_slice(bytes).ok();
        for (n, block) in content.iter().enumerate() {
            match text_of(block, "type") {
                Some("text") => answer.text.push_str(text_of(block, "text").unwrap_or_default()),
                Some("tool_use") => {
                    let name = text_of(block, "name").unwrap_or_default().to_owned();
                    let parsed = || block["input"].to_string();
                    let exact =
                        raw.as_ref().and_then(|raw| raw.content.get(n)?.input).map(|input| input.get().to_owned());
                    let id = text_of(block, "id").unwrap_or_default().to_owned();
                    answer.calls.push(Call { id, name, input: arguments(&exact.unwrap_or_else(parsed)) });
                }
                _ => answer.others.push(block.clone()),
            }
        }
        answer.checked()
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Stream::default())
    }
}

fn tokens(usage: &Value) -> Tokens {
    Tokens {
        input: count_of(usage, "/input_tokens"),
        output: count_of(usage, "/output_tokens"),
        cache_read: count_of(usage, "/cache_read_input_tokens"),
        cache_write: count_of(usage, "/cache_creation_input_tokens"),
    }
}

/// What the blocks of the stream are, by their index.
enum Part {
    Text,
    Call(usize),
    Other(usize),
}

#[derive(Default)]
struct Stream {
    partial: Partial,
    parts: Vec<(u64, Part)>,
}

impl Stream {
    fn start(&mut self, index: u64, block: &Value, halves: bool, show: &mut Show<'_>) -> Result<()> {
        let part = match text_of(block, "type") {
            Some("text") => {
                self.partial.show(text_of(block, "text").unwrap_or_default(), halves, show)?;
                Part::Text
            }
            Some("tool_use") => {
                self.partial.calls.push(PartialCall {
                    index: Some(index),
                    id: text_of(block, "id").unwrap_or_default().to_owned(),
                    name: text_of(block, "name").unwrap_or_default().to_owned(),
                    ..PartialCall::default()
                });
                Part::Call(self.partial.calls.len() - 1)
            }
            _ => {
                self.partial.others.push(block.clone());
                Part::Other(self.partial.others.len() - 1)
            }
        };
        self.parts.push((index, part));
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: &Value, halves: bool, show: &mut Show<'_>) -> Result<()> {
        let part = self.parts.iter().rev().find(|(i, _)| *i == index).map(|(_, part)| part);
        match (part, text_of(delta, "type")) {
            (Some(Part::Text), Some("text_delta")) => {
                self.partial.show(text_of(delta, "text").unwrap_or_default(), halves, show)
            }
            (Some(Part::Call(call)), Some("input_json_delta")) => {
                let piece = text_of(delta, "partial_json").unwrap_or_default();
                self.partial.calls[*call].arguments.push(piece, halves);
                Ok(())
            }
            (Some(Part::Other(other)), Some(_)) => {
                append(&mut self.partial.others[*other], delta);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Grows a block such as `thinking` by the members of a delta such as `thinking_delta`.
fn append(block: &mut Value, delta: &Value) {
    for (name, piece) in delta.as_object().into_iter().flatten().filter(|(name, _)| *name != "type") {
        match (block.get_mut(name), piece) {
            (Some(Value::String(text)), Value::String(piece)) => text.push_str(piece),
            _ => block[name] = piece.clone(),
        }
    }
}

impl Decoder for Stream {
    fn event(&mut self, data: &Value, halves: bool, show: &mut Show<'_>) -> Result<bool> {
        let index = count_of(data, "/index");
        match text_of(data, "type") {
            Some("message_start") => {
                let message = &data["message"];
                self.partial.identify(message, "id", "model");
                self.partial.usage = message.get("usage").map(tokens);
            }
            Some("content_block_start") => self.start(index, &data["content_block"], halves, show)?,
            Some("content_block_delta") => self.delta(index, &data["delta"], halves, show)?,
            Some("message_delta") => {
                if let Some(stop) = text_of(&data["delta"], "stop_reason") {
                    self.partial.stop = Some(stop.to_owned());
                }
                if let Some(last) = data.get("usage").map(tokens) {
                    let usage = self.partial.usage.get_or_insert_default();
                    usage.output = last.output;
                    // The counts here are totals; servers that put the input only at the end are served too.
                    usage.input = usage.input.max(last.input);
                    usage.cache_read = usage.cache_read.max(last.cache_read);
                    usage.cache_write = usage.cache_write.max(last.cache_write);
                }
            }
            Some("message_stop") => {
                self.partial.ended = true;
                return Ok(true);
            }
            // `ping`, `content_block_stop`, and what will be invented.
            _ => {}
        }
        Ok(false)
    }

    fn partial(&mut self) -> &mut Partial {
        &mut self.partial
    }
}
