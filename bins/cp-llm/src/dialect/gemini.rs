//! Gemini `generateContent`.

use std::collections::VecDeque;

use cp_common::wire::record;
use cp_common::wire::{Block, Content, ToolSpec, Turn};
use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::body::Body;
use super::partial::{PartialCall, fresh_id};
use super::{Answer, Decoder, Dialect, Partial, Request, Show, Tokens, bad_answer, count_of, text_of};

pub(crate) struct Gemini;

impl Dialect for Gemini {
    fn models_path(&self) -> &'static str {
        "/models?pageSize=1000"
    }

    fn path(&self, request: &Request) -> String {
        let method = if request.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("/models/{}:{method}", request.model.trim_start_matches("models/"))
    }

    fn headers(&self, key: Option<&str>) -> Vec<(String, String)> {
        key.map(|key| ("x-goog-api-key".to_owned(), key.to_owned())).into_iter().collect()
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        let mut body = Body::default();
        if let Some(system) = request.whole_system() {
            body.set("systemInstruction", &json!({"parts": [{"text": system}]}))?;
        }
        let mut names = Names::default();
        let contents =
            request.conversation_turns().map(|turn| content(turn, &mut names)).collect::<Result<Vec<_>>>()?;
        body.set("contents", &contents)?;
        if !request.tools.is_empty() {
            let functions: Vec<Function<'_>> = request.tools.iter().map(Function::of).collect();
            body.set("tools", &[Tools { function_declarations: functions }])?;
        }
        let mut config = Map::new();
        if let Some(schema) = &request.schema {
            config.insert("responseMimeType".into(), "application/json".into());
            config.insert("responseJsonSchema".into(), schema.clone());
        }
        for (name, value) in &request.params {
            let renamed = match name.as_str() {
                "max_tokens" => "maxOutputTokens",
                "top_p" => "topP",
                "stop" => "stopSequences",
                name => name,
            };
            config.insert(renamed.into(), value.clone());
        }
        if !config.is_empty() {
            body.set("generationConfig", &config)?;
        }
        Ok(body.finish())
    }

    fn whole(&self, body: &Value, bytes: &[u8]) -> Result<Answer> {
        let mut stream = Stream::default();
        stream.bytes(bytes);
        stream.event(body, false, &mut |_| Ok(()))?;
        if stream.partial.id.is_none() && body.get("candidates").is_none() && body.get("promptFeedback").is_none() {
            return Err(bad_answer("invalid_json", "the answer has no candidates"));
        }
        // A whole answer has come to its end, whatever it says of it.
        stream.partial.ended = true;
        stream.partial.finish()
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Stream::default())
    }
}

/// The arguments of calls in the bytes of an answer: a long integer must not become a float.
#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default)]
    candidates: Vec<RawCandidate<'a>>,
}

#[derive(Deserialize)]
struct RawCandidate<'a> {
    #[serde(borrow)]
    content: Option<RawContent<'a>>,
}

#[derive(Deserialize)]
struct RawContent<'a> {
    #[serde(borrow, default)]
    parts: Vec<RawPart<'a>>,
}

#[derive(Deserialize)]
struct RawPart<'a> {
    #[serde(borrow, rename = "functionCall")]
    call: Option<RawCall<'a>>,
}

#[derive(Deserialize)]
struct RawCall<'a> {
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

impl Raw<'_> {
    fn inputs(&self) -> VecDeque<String> {
        let parts =
            self.candidates.first().and_then(|c| c.content.as_ref()).map(|c| c.parts.as_slice()).unwrap_or_default();
        let calls = parts.iter().filter_map(|part| part.call.as_ref());
        calls.map(|call| call.args.map_or("{}", RawValue::get).to_owned()).collect()
    }
}

/// The names of the calls so far: a result here names its call by the tool, and not by id.
#[derive(Default)]
struct Names(Vec<(String, String)>);

#[derive(Serialize)]
struct Tools<'a> {
    #[serde(rename = "functionDeclarations")]
    function_declarations: Vec<Function<'a>>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(rename = "parametersJsonSchema")]
    parameters: &'a RawValue,
}

impl<'a> Function<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        Self { name: &tool.name, description: &tool.description, parameters: &tool.input_schema }
    }
}

fn content(turn: &Turn, names: &mut Names) -> Result<Value> {
    let role = if turn.role == "assistant" { "model" } else { "user" };
    let parts = match &turn.content {
        Content::Text(text) => vec![json!({"text": text})],
        Content::Blocks(blocks) => blocks.iter().map(|block| part(block, names)).collect::<Result<Vec<_>>>()?,
    };
    let parts: Vec<Value> = parts.into_iter().filter(|part| !part.is_null()).collect();
    Ok(json!({"role": role, "parts": parts}))
}

fn part(block: &Block, names: &mut Names) -> Result<Value> {
    let value: Value = record::read(block.raw())?;
    let source = &value["source"];
    match (text_of(&value, "type"), text_of(source, "type")) {
        (Some("text"), _) => Ok(json!({"text": value["text"]})),
        (Some("tool_use"), _) => {
            let (id, name) = (text_of(&value, "id").unwrap_or_default(), text_of(&value, "name").unwrap_or_default());
            names.0.push((id.to_owned(), name.to_owned()));
            Ok(json!({"functionCall": {"name": name, "args": value["input"]}}))
        }
        (Some("tool_result"), _) => {
            let id = text_of(&value, "tool_use_id").unwrap_or_default();
            let name = names.0.iter().rev().find(|(known, _)| known == id).map(|(_, name)| name.as_str());
            let name = name.ok_or_else(|| {
                Error::validation(format!("the tool result {id} does not answer a call of this conversation"))
            })?;
            let member = if value["is_error"] == true { "error" } else { "result" };
            Ok(json!({"functionResponse": {"name": name, "response": {member: value["content"]}}}))
        }
        // What the model thought in another dialect is not for this one.
        (Some("thinking" | "redacted_thinking"), _) => Ok(Value::Null),
        (Some("document"), Some("text")) => Ok(json!({"text": source["data"]})),
        (Some("image" | "document"), Some("url")) => Ok(json!({"fileData": {"fileUri": source["url"]}})),
        (Some("image" | "document"), _) => {
            Ok(json!({"inlineData": {"mimeType": source["media_type"], "data": source["data"]}}))
        }
        (kind, _) => {
            let kind = kind.unwrap_or("(none)");
            Err(Error::validation(format!("a block of type {kind} cannot be sent to a gemini server")))
        }
    }
}

fn stop(reason: &str) -> String {
    match reason {
        "STOP" => "end_turn",
        "FUNCTION_CALL" | "TOOL_CALL" => "tool_use",
        "MAX_TOKENS" => "max_tokens",
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => "refusal",
        other => return other.to_ascii_lowercase(),
    }
    .to_owned()
}

fn tokens(usage: &Value) -> Tokens {
    let output = count_of(usage, "/candidatesTokenCount") + count_of(usage, "/thoughtsTokenCount");
    Tokens::with_cached(count_of(usage, "/promptTokenCount"), output, count_of(usage, "/cachedContentTokenCount"))
}

#[derive(Default)]
struct Stream {
    partial: Partial,
    /// The arguments of the calls that come next, in their bytes.
    exact: VecDeque<String>,
}

impl Decoder for Stream {
    fn bytes(&mut self, data: &[u8]) {
        self.exact = serde_json::from_slice::<Raw<'_>>(data).map(|raw| raw.inputs()).unwrap_or_default();
    }

    fn event(&mut self, data: &Value, halves: bool, show: &mut Show<'_>) -> Result<bool> {
        let partial = &mut self.partial;
        partial.identify(data, "responseId", "modelVersion");
        if let Some(usage) = data.get("usageMetadata") {
            partial.usage = Some(tokens(usage));
        }
        if data.pointer("/promptFeedback/blockReason").is_some() {
            partial.stop = Some("refusal".to_owned());
        }
        let Some(candidate) = data.pointer("/candidates/0") else { return Ok(false) };
        for part in candidate.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten() {
            if let Some(call) = part.get("functionCall") {
                let name = text_of(call, "name").unwrap_or_default().to_owned();
                let id = text_of(call, "id").map_or_else(fresh_id, str::to_owned);
                let mut whole = PartialCall { id, name, ..PartialCall::default() };
                let exact = self.exact.pop_front();
                let input = exact.unwrap_or_else(|| call.get("args").map_or_else(|| "{}".to_owned(), Value::to_string));
                whole.arguments.push(&input, halves);
                self.partial.calls.push(whole);
            } else if part["thought"] == true {
                // A summary of thoughts is not part of the answer.
            } else if let Some(text) = text_of(part, "text") {
                self.partial.show(text, halves, show)?;
            }
        }
        if let Some(reason) = text_of(candidate, "finishReason") {
            self.partial.stop = Some(stop(reason));
        }
        Ok(false)
    }

    fn partial(&mut self) -> &mut Partial {
        &mut self.partial
    }
}
