//! `OpenAI` Responses, without state on their side: the whole conversation goes out each time.

use cp_common::wire::record;
use cp_common::wire::{Content, ToolSpec, Turn};
use cp_common::{Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::Body;
use super::partial::{PartialCall, arguments};
use super::{
    Answer, Call, Decoder, Dialect, Partial, Request, Show, Tokens, UpstreamError, bad_answer, bearer, count_of,
    data_url, text_of,
};

pub(crate) struct Responses;

impl Dialect for Responses {
    fn path(&self, _: &Request) -> String {
        "/responses".to_owned()
    }

    fn headers(&self, key: Option<&str>) -> Vec<(String, String)> {
        bearer(key)
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        let mut body = Body::default();
        body.set("model", &request.model)?;
        if !request.system.is_empty() {
            body.set("instructions", &request.system)?;
        }
        let mut items = Vec::new();
        for turn in &request.messages {
            put_turn(turn, &mut items)?;
        }
        body.set("input", &items)?;
        if !request.tools.is_empty() {
            body.set("tools", &request.tools.iter().map(Tool::of).collect::<Vec<_>>())?;
        }
        if let Some(schema) = &request.schema {
            body.set("text", &json!({"format": {"type": "json_schema", "name": "answer", "schema": schema}}))?;
        }
        if request.params.contains_key("stop") {
            return Err(Error::validation("an openai-responses server does not support `stop`")
                .hint("remove `stop`, or use --backend openai"));
        }
        for (name, value) in &request.params {
            body.set(if name == "max_tokens" { "max_output_tokens" } else { name }, value)?;
        }
        // Nothing is kept there unless the caller says so.
        body.set("store", &false)?;
        if request.stream {
            body.set("stream", &true)?;
        }
        Ok(body.finish())
    }

    fn whole(&self, body: &Value, _: &[u8]) -> Result<Answer> {
        let Some(output) = body.get("output").and_then(Value::as_array) else {
            return Err(bad_answer("invalid_json", "the answer has no output"));
        };
        if body["status"] == "failed" {
            return Err(failure(body));
        }
        let mut answer = Answer {
            id: text_of(body, "id").map(str::to_owned),
            model: text_of(body, "model").map(str::to_owned),
            stop: stop(body),
            usage: body.get("usage").filter(|usage| usage.is_object()).map(tokens),
            ..Answer::default()
        };
        for item in output {
            match text_of(item, "type") {
                Some("message") => {
                    for part in item["content"].as_array().into_iter().flatten() {
                        let refusal = text_of(part, "refusal");
                        if refusal.is_some() {
                            "refusal".clone_into(&mut answer.stop);
                        }
                        answer.text.push_str(text_of(part, "text").or(refusal).unwrap_or_default());
                    }
                }
                Some("function_call") => {
                    let (id, name) = (text_of(item, "call_id"), text_of(item, "name").unwrap_or_default());
                    answer.calls.push(Call {
                        id: id.unwrap_or_default().to_owned(),
                        name: name.to_owned(),
                        input: arguments(text_of(item, "arguments").unwrap_or_default()),
                    });
                }
                // Reasoning cannot be given back without the state that the server keeps of it.
                _ => {}
            }
        }
        answer.checked()
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Stream::default())
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a RawValue,
    /// The default would refuse schemas with members that need not be there.
    strict: bool,
}

impl<'a> Tool<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        let ToolSpec { name, description, input_schema } = tool;
        Self { r#type: "function", name, description, parameters: input_schema, strict: false }
    }
}

/// Appends the items that one of our turns becomes: calls and results are items of their own.
fn put_turn(turn: &Turn, items: &mut Vec<Value>) -> Result<()> {
    let blocks = match &turn.content {
        Content::Text(text) => {
            items.push(json!({"role": turn.role, "content": text}));
            return Ok(());
        }
        Content::Blocks(blocks) => blocks,
    };
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        let value: Value = record::read(block.raw())?;
        let source = &value["source"];
        match (text_of(&value, "type"), text_of(source, "type")) {
            (Some("text"), _) => parts.push(json!({"type": "input_text", "text": value["text"]})),
            (Some("tool_use"), _) => {
                let input = block.view()?.input.map_or("{}", RawValue::get).to_owned();
                calls.push(
                    json!({"type": "function_call", "call_id": value["id"], "name": value["name"], "arguments": input}),
                );
            }
            (Some("tool_result"), _) => {
                let output = match &value["content"] {
                    Value::Array(blocks) => blocks.iter().filter_map(|b| text_of(b, "text")).collect::<String>().into(),
                    other => other.clone(),
                };
                items.push(json!({"type": "function_call_output", "call_id": value["tool_use_id"], "output": output}));
            }
            (Some("thinking" | "redacted_thinking"), _) => {}
            (Some("document"), Some("text")) => parts.push(json!({"type": "input_text", "text": source["data"]})),
            (Some("image"), Some("url")) => {
                parts.push(json!({"type": "input_image", "detail": "auto", "image_url": source["url"]}));
            }
            (Some("image"), _) => {
                parts.push(json!({"type": "input_image", "detail": "auto", "image_url": data_url(source)}));
            }
            (Some("document"), Some("base64")) => {
                let name = text_of(&value, "title").unwrap_or("document.pdf");
                parts.push(json!({"type": "input_file", "filename": name, "file_data": data_url(source)}));
            }
            (kind, _) => {
                let kind = kind.unwrap_or("(none)");
                return Err(Error::validation(format!(
                    "a block of type {kind} cannot be sent to an openai-responses server"
                )));
            }
        }
    }
    if turn.role == "assistant" && !parts.is_empty() {
        // Given back as parts it would have to be one of the server's items, with its id.
        let text: String = parts.iter().filter_map(|part| text_of(part, "text")).collect();
        items.push(json!({"role": turn.role, "content": text}));
    } else if !parts.is_empty() {
        items.push(json!({"role": turn.role, "content": parts}));
    }
    items.extend(calls);
    Ok(())
}

fn stop(response: &Value) -> String {
    match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
        None => "",
        Some("max_output_tokens") => "max_tokens",
        Some("content_filter") => "refusal",
        Some(other) => other,
    }
    .to_owned()
}

fn tokens(usage: &Value) -> Tokens {
    let cached = count_of(usage, "/input_tokens_details/cached_tokens");
    Tokens::with_cached(count_of(usage, "/input_tokens"), count_of(usage, "/output_tokens"), cached)
}

fn failure(response: &Value) -> Error {
    UpstreamError::find(response, false).unwrap_or_default().into_error(200)
}

/// A call whose arguments are still to come.
fn begun(index: Option<u64>, item: &Value) -> PartialCall {
    let text = |name: &str| text_of(item, name).unwrap_or_default().to_owned();
    PartialCall { index, id: text("call_id"), name: text("name"), ..PartialCall::default() }
}

#[derive(Default)]
struct Stream {
    partial: Partial,
    refused: bool,
}

impl Decoder for Stream {
    fn event(&mut self, data: &Value, halves: bool, show: &mut Show<'_>) -> Result<bool> {
        let index = data.get("output_index").and_then(Value::as_u64);
        match text_of(data, "type") {
            Some("response.created") => self.partial.identify(&data["response"], "id", "model"),
            Some(kind @ ("response.output_text.delta" | "response.refusal.delta")) => {
                self.refused |= kind == "response.refusal.delta";
                self.partial.show(text_of(data, "delta").unwrap_or_default(), halves, show)?;
            }
            Some("response.output_item.added") if data["item"]["type"] == "function_call" => {
                self.partial.calls.push(begun(index, &data["item"]));
            }
            // Some servers send the arguments only here, whole.
            Some("response.output_item.done") if data["item"]["type"] == "function_call" => {
                let calls = &mut self.partial.calls;
                if !calls.iter().any(|call| call.index == index) {
                    calls.push(begun(index, &data["item"]));
                }
                if let Some(call) = calls.iter_mut().rfind(|call| call.index == index && call.arguments.is_empty()) {
                    call.arguments.push(text_of(&data["item"], "arguments").unwrap_or_default(), halves);
                }
            }
            Some("response.function_call_arguments.delta") => {
                if let Some(call) = self.partial.calls.iter_mut().rfind(|call| call.index == index) {
                    call.arguments.push(text_of(data, "delta").unwrap_or_default(), halves);
                }
            }
            Some("response.completed" | "response.incomplete") => {
                let response = &data["response"];
                self.partial.usage = response.get("usage").filter(|usage| usage.is_object()).map(tokens);
                self.partial.stop = Some(if self.refused { "refusal".to_owned() } else { stop(response) });
                self.partial.ended = true;
                return Ok(true);
            }
            Some("response.failed") => return Err(failure(&data["response"])),
            _ => {}
        }
        Ok(false)
    }

    fn partial(&mut self) -> &mut Partial {
        &mut self.partial
    }
}
