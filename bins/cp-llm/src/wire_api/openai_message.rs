//! The message of Chat Completions, whole or assembled from deltas. Compatible servers have members of their own for
//! reasoning, and Mistral's content is a list.

use cp_common::Result;
use cp_common::wire::raw;
use serde_json::{Map, Value, json};

use super::answer::fresh_id;
use super::{Part, PartContent, Partial, TextKind, text_of};

/// Members with reasoning. They are sent back under the same name.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Tags around reasoning at the beginning of a content, of servers that do not take it out.
const TAGS: [&str; 2] = ["<think>", "</think>"];

/// A message as far as it has arrived.
#[derive(Default)]
pub(super) struct Message {
    /// The text of the content, and how much of it is known to be reasoning between tags, and the answer.
    content: String,
    thought_bytes: usize,
    answer_bytes: usize,
    thoughts: Vec<(&'static str, String)>,
    /// Signed reasoning of `OpenRouter`.
    details: Vec<Value>,
    /// The parts of the content. Reasoning of Mistral's models has no block yet.
    chunks: Vec<Part>,
    pub refusal: String,
    annotations: Vec<Value>,
    calls: Vec<PartialToolCall>,
}

/// A tool call whose arguments are incomplete.
#[derive(Default)]
struct PartialToolCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Members that are not in the API.
    more: Map<String, Value>,
    more_of_function: Map<String, Value>,
}

impl Message {
    /// Adds a delta.
    pub(super) fn delta(&mut self, delta: &Value, partial: &mut Partial) -> Result<()> {
        // Some servers send the same reasoning under both names.
        let mut is_shown = false;
        for name in THOUGHTS {
            if let Some(text) = text_of(delta, name).filter(|text| !text.is_empty()) {
                if !std::mem::replace(&mut is_shown, true) {
                    partial.thinking.push_str(text);
                }
                self.thought(name).push_str(text);
            }
        }
        for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
            self.detail(detail);
            if self.thoughts.is_empty() {
                let text = text_of(detail, "text").or_else(|| text_of(detail, "summary"));
                partial.thinking.push_str(text.unwrap_or_default());
            }
        }
        match &delta["content"] {
            Value::String(text) => self.text(text, false, partial),
            Value::Array(chunks) => {
                for chunk in chunks {
                    self.chunk(chunk, partial)?;
                }
            }
            _ => {}
        }
        if let Some(text) = text_of(delta, "refusal") {
            self.refusal.push_str(text);
            partial.text.push_str(text);
        }
        self.annotations.extend(delta["annotations"].as_array().into_iter().flatten().cloned());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call);
        }
        Ok(())
    }

    /// The reasoning that is sent back under this name.
    fn thought(&mut self, name: &'static str) -> &mut String {
        let known = self.thoughts.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.thoughts.push((name, String::default()));
            self.thoughts.len() - 1
        });
        &mut self.thoughts[known].1
    }

    /// Adds text of the content: reasoning between tags at its beginning, else the answer. A part of a tag waits for the
    /// rest of it, unless the content has ended.
    pub(super) fn text(&mut self, text: &str, has_ended: bool, partial: &mut Partial) {
        let [open, close] = TAGS;
        self.content.push_str(text);
        let begun = self.content.trim_start();
        let (thought, answer) = match begun.strip_prefix(open) {
            None if !has_ended && open.starts_with(begun) => return,
            None => ("", self.content.as_str()),
            Some(inside) => match inside[self.thought_bytes..].find(close).map(|at| self.thought_bytes + at) {
                Some(at) => (&inside[..at], inside[at + close.len()..].trim_start()),
                None if has_ended => (inside, ""),
                None => {
                    let part = (0..close.len()).rev().find(|length| inside.ends_with(&close[..*length]));
                    (&inside[..inside.len() - part.unwrap_or(0)], "")
                }
            },
        };
        let new = |whole: &str, known: &mut usize| {
            let new = whole.get(*known..).unwrap_or_default().to_owned();
            *known += new.len();
            new
        };
        let (thought, answer) = (new(thought, &mut self.thought_bytes), new(answer, &mut self.answer_bytes));
        if !thought.is_empty() {
            self.thought(THOUGHTS[0]).push_str(&thought);
            partial.thinking.push_str(&thought);
        }
        Part::grow(&mut self.chunks, TextKind::Answer, &answer);
        partial.text.push_str(&answer);
    }

    fn chunk(&mut self, chunk: &Value, partial: &mut Partial) -> Result<()> {
        match (text_of(chunk, "type"), &chunk["thinking"]) {
            (Some("text"), _) => self.text(text_of(chunk, "text").unwrap_or_default(), false, partial),
            (Some("thinking"), Value::Array(thoughts)) if thoughts.iter().all(|thought| thought["type"] == "text") => {
                for text in thoughts.iter().filter_map(|thought| text_of(thought, "text")) {
                    Part::grow(&mut self.chunks, TextKind::Thinking, text);
                    partial.thinking.push_str(text);
                }
            }
            (kind, _) => {
                let content = PartContent::Other(kind.unwrap_or_default().to_owned());
                self.chunks.push(part(content, chunk)?);
            }
        }
        Ok(())
    }

    /// Adds a detail, or a piece of the last one, which has the same index.
    fn detail(&mut self, detail: &Value) {
        let same = |known: &Value| known["type"] == detail["type"] && known["index"] == detail["index"];
        let last = self.details.last_mut().filter(|last| detail["index"].is_u64() && same(last));
        match (last.and_then(Value::as_object_mut), detail.as_object()) {
            (Some(known), Some(new)) => {
                for (name, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                    match (known.get_mut(name), value) {
                        (Some(Value::String(text)), Value::String(piece))
                            if ["text", "summary", "data"].contains(&name.as_str()) =>
                        {
                            text.push_str(piece);
                        }
                        _ => drop(known.insert(name.clone(), value.clone())),
                    }
                }
            }
            _ => self.details.push(detail.clone()),
        }
    }

    fn call(&mut self, delta: &Value) {
        let id = text_of(delta, "id").filter(|id| !id.is_empty());
        let name = text_of(&delta["function"], "name").filter(|name| !name.is_empty());
        let index = delta.get("index").and_then(Value::as_u64);
        let calls = &mut self.calls;
        // Some servers omit the index, use one index for all calls, or repeat the id in every piece.
        let known = match index {
            Some(_) => calls.iter().rposition(|call| call.index == index),
            None => calls.len().checked_sub(1),
        };
        let known = known.filter(|at| id.is_none() || name.is_none() || id == Some(calls[*at].id.as_str()));
        let at = known.unwrap_or_else(|| {
            // A tool result needs the id of its call, even if the server sent none.
            let id = id.map_or_else(fresh_id, str::to_owned);
            calls.push(PartialToolCall { index, id, ..PartialToolCall::default() });
            calls.len() - 1
        });
        let call = &mut calls[at];
        if let Some(name) = name.filter(|_| call.name.is_empty()) {
            name.clone_into(&mut call.name);
        }
        match &delta["function"]["arguments"] {
            Value::String(piece) => call.arguments.push_str(piece),
            // Some servers send the arguments as an object.
            whole @ Value::Object(_) => call.arguments.push_str(&whole.to_string()),
            _ => {}
        }
        let add = |more: &mut Map<String, Value>, from: &Value, known: &[&str]| {
            let members = from.as_object().into_iter().flatten();
            more.extend(
                members
                    .filter(|(name, value)| !value.is_null() && !known.contains(&name.as_str()))
                    .map(|(name, value)| (name.clone(), value.clone())),
            );
        };
        add(&mut call.more, delta, &["index", "id", "type", "function"]);
        add(&mut call.more_of_function, &delta["function"], &["name", "arguments"]);
    }

    /// The parts, in the order of the members of a message.
    pub(super) fn parts(mut self) -> Result<Vec<Part>> {
        // A stream may end without a finish reason.
        self.text("", true, &mut Partial::default());
        let mut parts = Vec::new();
        let has_thoughts = !self.thoughts.is_empty();
        for (name, text) in self.thoughts {
            parts.push(part(PartContent::Thinking(text.clone()), &json!({ name: text }))?);
        }
        if !self.details.is_empty() {
            let texts = self.details.iter().filter(|_| !has_thoughts);
            let text = texts.filter_map(|detail| text_of(detail, "text").or_else(|| text_of(detail, "summary")));
            parts.push(part(PartContent::Thinking(text.collect()), &json!({ "reasoning_details": self.details }))?);
        }
        let mut annotations = self.annotations;
        for mut chunk in self.chunks {
            match &mut chunk.content {
                PartContent::Text(_, citations) => *citations = std::mem::take(&mut annotations),
                PartContent::Thinking(text) => {
                    let own = json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]});
                    chunk.raw = Some(raw(&own)?);
                }
                _ => {}
            }
            parts.push(chunk);
        }
        if !self.refusal.is_empty() {
            let text = self.refusal;
            parts.push(part(PartContent::Text(text.clone(), Vec::new()), &json!({ "refusal": text }))?);
        }
        for call in self.calls {
            parts.push(call.part()?);
        }
        Ok(parts)
    }
}

fn part(content: PartContent, own: &Value) -> Result<Part> {
    Ok(Part { content, raw: Some(raw(own)?) })
}

impl PartialToolCall {
    fn part(self) -> Result<Part> {
        let has_more = !self.more.is_empty() || !self.more_of_function.is_empty();
        let with = |members: Value, more: Map<String, Value>| -> Value {
            members.as_object().cloned().unwrap_or_default().into_iter().chain(more).collect()
        };
        let function = with(json!({"name": self.name, "arguments": self.arguments}), self.more_of_function);
        let own = raw(&with(json!({"id": self.id, "type": "function", "function": function}), self.more))?;
        Ok(Part::call(self.id, &self.name, &self.arguments, has_more.then_some(own)))
    }
}
