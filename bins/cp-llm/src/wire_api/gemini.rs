//! Gemini `generateContent`.

use std::collections::BTreeMap;

use cp_common::wire::{Block, Origin, raw, record};
use cp_common::{Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::fresh_id;
use super::history::{Outgoing, outgoing, result, split};
use super::json::{Body, exact};
use super::{
    Decoder, Media, Part, PartContent, Partial, Payload, Request, TextKind, WireApi, bad_answer, function, list, media,
    text_of, tokens,
};

pub(crate) const API: WireApi = WireApi {
    default_path: "/v1beta",
    models_path: "/models?pageSize=1000",
    key_header: ("x-goog-api-key", ""),
    version: None,
    batch_api: None,
    path,
    body,
    decoder: || Box::new(GeminiDecoder::default()),
};

fn path(request: &Request) -> String {
    let method = if request.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    let name = request.model.trim_start_matches("models/").bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    format!("/models/{}:{method}", name.collect::<String>())
}

fn body(request: &Request, there: &Origin) -> Result<Vec<u8>> {
    let mut body = Body::default();
    let system = request.whole_system().map(|system| json!({"parts": [{"text": system}]}));
    body.set_some("systemInstruction", system)?;
    let mut names = Names::default();
    let mut contents = Vec::with_capacity(request.messages.len());
    for turn in request.conversation_turns() {
        let parts = parts(&outgoing(turn, request, there)?, &mut names)?;
        // The server refuses a turn without parts.
        if !parts.is_empty() {
            contents.push(Message { role: if turn.role == "assistant" { "model" } else { "user" }, parts });
        }
    }
    body.set("contents", &contents)?;
    let functions = request.tools.iter().map(|tool| function(tool, "parametersJsonSchema", &[]));
    let functions = Some(functions.collect::<Result<Vec<_>>>()?).filter(|functions| !functions.is_empty());
    let own = functions.map(|functions| Ok(BTreeMap::from([("functionDeclarations", functions)])));
    body.set_some("tools", request.tools(own.into_iter())?)?;
    let (config, beside) = places(request);
    body.set_some("generationConfig", Some(config).filter(|config| !config.is_empty()))?;
    beside.iter().try_for_each(|(name, value)| body.set(name, value))?;
    Ok(body.finish())
}

/// The id and the name of each tool call so far, and whether the server knows the id. Results in this API have the name
/// of the tool.
#[derive(Default)]
struct Names(Vec<(String, String, bool)>);

#[derive(Serialize)]
struct Message {
    role: &'static str,
    parts: Vec<Box<RawValue>>,
}

fn parts(blocks: &[Outgoing<'_>], names: &mut Names) -> Result<Vec<Box<RawValue>>> {
    let mut parts = Vec::with_capacity(blocks.len());
    for block in blocks {
        match block {
            Outgoing::Passthrough { id, raw: own, .. } => {
                if let Some(id) = id.as_deref() {
                    let part: Value = record::read(own)?;
                    let text = |name: &str| text_of(&part["functionCall"], name).unwrap_or_default().to_owned();
                    names.0.push((id.to_owned(), text("name"), part["functionCall"]["id"].is_string()));
                }
                parts.push((*own).to_owned());
            }
            Outgoing::Plain(block) => put_part(block, names, &mut parts)?,
        }
    }
    Ok(parts)
}

fn put_part(block: &Block, names: &mut Names, parts: &mut Vec<Box<RawValue>>) -> Result<()> {
    let view = block.view()?;
    match view.kind.as_ref() {
        "tool_use" => {
            let (id, name) = (view.id.unwrap_or_default(), view.name.unwrap_or_default());
            names.0.push((id.into_owned(), name.to_string(), false));
            let mut call = Body::default();
            call.set("name", &name)?;
            call.set("args", &view.input)?;
            let mut part = Body::default();
            part.set("functionCall", &call.into_raw()?)?;
            parts.push(part.into_raw()?);
        }
        "tool_result" => {
            let id = view.tool_use_id.as_deref().unwrap_or_default();
            let Some((_, name, is_known)) = names.0.iter().rev().find(|(known, ..)| known == id) else {
                return Err(Error::validation(format!(
                    "the tool result {id} does not answer a call of this conversation"
                )));
            };
            let member = if view.is_error { "error" } else { "result" };
            let blocks = result(&view, true)?;
            let (text, others) = split(&blocks);
            let mut response = json!({"name": name, "response": {member: text}});
            if *is_known {
                response["id"] = id.into();
            }
            parts.push(raw(&json!({"functionResponse": response}))?);
            // A result is JSON, so images follow as separate parts.
            for other in others {
                parts.push(raw(&part(other)?)?);
            }
        }
        _ => parts.push(raw(&part(&record::read(block.raw())?)?)?),
    }
    Ok(())
}

/// Encodes a block of text, image or document.
fn part(block: &Value) -> Result<Value> {
    Ok(match media(block, "gemini")? {
        Media::Text(text) => json!({"text": text}),
        Media::Url(_, url) => json!({"fileData": {"fileUri": url}}),
        Media::Bytes(_, source) => json!({"inlineData": {"mimeType": source["media_type"], "data": source["data"]}}),
    })
}

#[derive(Default)]
struct GeminiDecoder {
    /// The parts that have arrived. Text without a block may continue in the next one.
    parts: Vec<Part>,
    citations: Vec<Value>,
}

impl GeminiDecoder {
    fn take(&mut self, part: &Value, pointer: &str, piece: &Payload<'_>, partial: &mut Partial) -> Result<()> {
        let kind = if part["thought"] == true { TextKind::Thinking } else { TextKind::Answer };
        let has_only = |names: &[&str]| {
            part.as_object().is_some_and(|members| members.keys().all(|name| names.contains(&name.as_str())))
        };
        if let Some(text) = text_of(part, "text") {
            partial.add(kind, text);
            // A part with a signature must not be merged.
            if has_only(&["text", "thought"]) {
                Part::grow(&mut self.parts, kind, text);
                return Ok(());
            }
        }
        let own = match exact(&piece.bytes, pointer) {
            Some(own) => own,
            None => raw(part)?,
        };
        let call = &part["functionCall"];
        if call["willContinue"] == true || !call["partialArgs"].is_null() {
            return Err(bad_answer("partial_call", "the answer has the arguments of a tool call in pieces")
                .hint("remove streamFunctionCallArguments from toolConfig"));
        }
        if call.is_object() {
            let given = || call.get("args").map_or_else(|| "{}".to_owned(), Value::to_string);
            let input = exact(&piece.bytes, &format!("{pointer}/functionCall/args"));
            let input = input.map_or_else(given, |input| input.get().to_owned());
            let id = text_of(call, "id").map_or_else(fresh_id, str::to_owned);
            let is_plain = has_only(&["functionCall"]) && call["id"].is_null();
            let name = text_of(call, "name").unwrap_or_default();
            self.parts.push(Part::call(id, name, &input, (!is_plain).then_some(own)));
            return Ok(());
        }
        let content = if let Some(text) = text_of(part, "text") {
            PartContent::text(kind, text)
        } else if let Some(media) = text_of(&part["inlineData"], "mimeType").filter(|media| media.starts_with("image/"))
        {
            PartContent::Image(json!({"type": "base64", "media_type": media, "data": part["inlineData"]["data"]}))
        } else {
            let name = part.as_object().and_then(|members| members.keys().find(|name| *name != "thoughtSignature"));
            let name = name.map_or("", String::as_str).to_owned();
            if ["executableCode", "codeExecutionResult"].contains(&name.as_str()) || name.starts_with("tool") {
                PartContent::ServerTool(name)
            } else {
                PartContent::Other(name)
            }
        };
        self.parts.push(Part { content, raw: Some(own) });
        Ok(())
    }
}

impl Decoder for GeminiDecoder {
    fn event(&mut self, event: &Payload<'_>, partial: &mut Partial) -> Result<bool> {
        let data = &event.value;
        partial.identify(data, "responseId", "modelVersion");
        if let Some(usage) = data.get("usageMetadata") {
            let output = ["/candidatesTokenCount", "/thoughtsTokenCount"];
            partial.usage = tokens(usage, "/promptTokenCount", &output, "/cachedContentTokenCount");
        }
        if data.pointer("/promptFeedback/blockReason").is_some() {
            partial.stop = Some("refusal".to_owned());
        }
        let Some(candidate) = data.pointer("/candidates/0") else { return Ok(false) };
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        for (at, part) in parts.into_iter().flatten().enumerate() {
            self.take(part, &format!("/candidates/0/content/parts/{at}"), event, partial)?;
        }
        for pointer in ["/groundingMetadata/groundingChunks", "/citationMetadata/citationSources"] {
            let citations = candidate.pointer(pointer).and_then(Value::as_array);
            self.citations.extend(citations.into_iter().flatten().cloned());
        }
        if let Some(reason) = text_of(candidate, "finishReason") {
            // Some models send one in earlier chunks too, which the stream does not distinguish.
            partial.stop = Some(reason.to_owned());
        }
        Ok(false)
    }

    fn parts(&mut self) -> Result<Vec<Part>> {
        let mut parts = std::mem::take(&mut self.parts);
        for part in &mut parts {
            if let Part { content: PartContent::Thinking(text), raw: own @ None } = part {
                *own = Some(raw(&json!({"text": text, "thought": true}))?);
            }
        }
        // Citations refer to the whole answer, so the last text has them.
        let text = parts.iter_mut().rev().find_map(|part| match &mut part.content {
            PartContent::Text(_, citations) => Some(citations),
            _ => None,
        });
        if let Some(citations) = text {
            *citations = std::mem::take(&mut self.citations);
        }
        Ok(parts)
    }
}

/// The members of `generationConfig`.
const GENERATION: &str = "audioTimestamp audioTranscriptionConfig candidateCount enableAffectiveDialog enableEnhancedCivicAnswers \
frequencyPenalty imageConfig logprobs maxOutputTokens mediaResolution modelConfig presencePenalty responseFormat responseJsonSchema \
responseLogprobs responseMimeType responseModalities responseSchema routingConfig seed speechConfig stopSequences temperature \
thinkingConfig topK topP translationConfig";
/// Other members of a request.
const BESIDE: &str = "cachedContent modelArmorConfig safetySettings serviceTier systemInstruction toolConfig";

/// Distributes the parameters to `generationConfig` and the request. Unknown parameters become members of the request.
pub(super) fn places(request: &Request) -> (Map<String, Value>, Map<String, Value>) {
    let (mut config, mut beside) = (request.object("generationConfig"), Map::new());
    for (name, value) in &request.params {
        // Names may be in snake case.
        let plain = name.replace('_', "");
        let known = |names: &'static str| names.split(' ').find(|known| known.eq_ignore_ascii_case(&plain));
        let (members, name, value) = match (name.as_str(), known(GENERATION)) {
            ("generationConfig" | "tools" | "reasoning_effort", _) => continue,
            ("max_tokens", _) => (&mut config, "maxOutputTokens", value.clone()),
            ("stop", _) => (&mut config, "stopSequences", list(value)),
            (_, Some(known)) => (&mut config, known, value.clone()),
            (name, None) => (&mut beside, known(BESIDE).unwrap_or(name), value.clone()),
        };
        members.insert(name.to_owned(), value);
    }
    if let Some(given) = &request.schema {
        config.insert("responseMimeType".to_owned(), "application/json".into());
        config.insert("responseJsonSchema".to_owned(), given.clone());
    }
    let mut thinking = thinking(request);
    thinking.extend(config.get("thinkingConfig").and_then(Value::as_object).cloned().unwrap_or_default());
    if !thinking.is_empty() {
        config.insert("thinkingConfig".to_owned(), thinking.into());
    }
    (config, beside)
}

/// The members of `thinkingConfig`.
fn thinking(request: &Request) -> Map<String, Value> {
    let mut members = Map::new();
    if let Some(effort) = request.params.get("reasoning_effort") {
        // Models up to 2.5 have only budgets. These are the provider's own values for each effort.
        let budget = match effort.as_str() {
            Some("none") => Some(0),
            Some("minimal" | "low") => Some(1024),
            Some("medium") => Some(8192),
            Some("high") => Some(24_576),
            _ => None,
        };
        let has_levels = !["gemini-1", "gemini-2"].iter().any(|old| request.model.contains(old));
        match budget.filter(|budget| !has_levels || *budget == 0) {
            Some(budget) => members.insert("thinkingBudget".to_owned(), budget.into()),
            None => members.insert("thinkingLevel".to_owned(), effort.clone()),
        };
    }
    if request.reasoning {
        members.insert("includeThoughts".to_owned(), true.into());
    }
    members
}
