//! A model that asks for what a test says, in the protocol of whichever agent it is.

use std::collections::VecDeque;
use std::sync::Mutex;

use cp_testkit::Server;
use cp_testkit::server::{self, Reply, Request};
use serde_json::{Value, json};

/// A tool call that the model asks for.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) tool: &'static str,
    /// An object, or the whole input of a tool that takes a text.
    pub(super) input: Value,
}

/// What the model asks for in one answer.
pub(super) type Turn = Vec<Call>;

/// It asks for its turns one after the other, and then says that it is done.
pub(super) struct Model {
    server: Server,
}

impl Model {
    pub(super) fn asking(turns: Vec<Turn>) -> Self {
        let left = Mutex::new((0, VecDeque::from(turns)));
        Self { server: Server::replying(move |request| answer(request, &left)) }
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// The results of all tool calls so far, as the model was sent them last.
    pub(super) fn results(&self) -> Vec<String> {
        let requests = self.server.requests();
        let heard =
            |request: &Request| serde_json::from_slice(&request.body).map(|body| results(&body)).unwrap_or_default();
        requests.iter().rev().map(heard).find(|results| !results.is_empty()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<String> = self.server.requests().iter().map(|request| request.line().to_owned()).collect();
        write!(f, "requests: {lines:?}\nresults: {:#?}", self.results())
    }
}

fn answer(request: &Request, left: &Mutex<(usize, VecDeque<Turn>)>) -> Reply {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let target = request.line().split(['?', ' ']).nth(1).unwrap_or_default().to_owned();
    let next = || {
        // A question without tools is for a title, or which model to take.
        if body["tools"].as_array().is_none_or(Vec::is_empty) {
            return (0, Vec::new());
        }
        let mut left = left.lock().unwrap();
        left.0 += 1;
        (left.0, left.1.pop_front().unwrap_or_default())
    };
    match () {
        () if target.ends_with("/v1/messages") => stream(&messages(next())),
        () if target.ends_with("/responses") => stream(&responses(next())),
        () if target.ends_with("/chat/completions") => stream(&completions(next())),
        () if target.ends_with(":streamGenerateContent") => stream(&[("", generated(next()))]),
        () => server::json(200, &json!({"object": "list", "data": [], "models": [], "input_tokens": 1})),
    }
}

fn stream(events: &[(&str, Value)]) -> Reply {
    let text: String = events
        .iter()
        .map(
            |(name, data)| {
                if name.is_empty() { format!("data: {data}\n\n") } else { format!("event: {name}\ndata: {data}\n\n") }
            },
        )
        .collect();
    server::reply(200, "text/event-stream", "", text.as_bytes())
}

fn id(number: usize, index: usize) -> String {
    format!("call_{number}_{index}")
}

fn messages((number, turn): (usize, Turn)) -> Vec<(&'static str, Value)> {
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    let message = json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage});
    let mut events = vec![("message_start", json!({"type": "message_start", "message": message}))];
    let mut block = |index: usize, start: Value, delta: Value| {
        events.push((
            "content_block_start",
            json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        events.push(("content_block_delta", json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(("content_block_stop", json!({"type": "content_block_stop", "index": index})));
    };
    for (index, call) in turn.iter().enumerate() {
        let start = json!({"type": "tool_use", "id": id(number, index), "name": call.tool, "input": {}});
        block(index, start, json!({"type": "input_json_delta", "partial_json": call.input.to_string()}));
    }
    if turn.is_empty() {
        block(0, json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": "done"}));
    }
    let reason = if turn.is_empty() { "end_turn" } else { "tool_use" };
    events.push((
        "message_delta",
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}}),
    ));
    events.push(("message_stop", json!({"type": "message_stop"})));
    events
}

fn responses((number, turn): (usize, Turn)) -> Vec<(&'static str, Value)> {
    let item = |(index, call): (usize, &Call)| {
        if let Value::String(text) = &call.input {
            json!({"type": "custom_tool_call", "call_id": id(number, index), "name": call.tool, "input": text})
        } else {
            // The tools of a server are a namespace.
            let (namespace, name) =
                call.tool.rsplit_once("__").map_or((None, call.tool), |(of, name)| (Some(of), name));
            let mut item = json!({"type": "function_call", "call_id": id(number, index), "name": name, "arguments": call.input.to_string()});
            if let Some(namespace) = namespace {
                item["namespace"] = namespace.into();
            }
            item
        }
    };
    let mut items: Vec<Value> = turn.iter().enumerate().map(item).collect();
    if items.is_empty() {
        let text = json!([{"type": "output_text", "text": "done"}]);
        items.push(json!({"type": "message", "role": "assistant", "id": format!("m{number}"), "content": text}));
    }
    let response =
        json!({"id": format!("r{number}"), "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}});
    let mut events =
        vec![("response.created", json!({"type": "response.created", "response": {"id": format!("r{number}")}}))];
    let done = |item| ("response.output_item.done", json!({"type": "response.output_item.done", "item": item}));
    events.extend(items.into_iter().map(done));
    events.push(("response.completed", json!({"type": "response.completed", "response": response})));
    events
}

fn completions((number, turn): (usize, Turn)) -> Vec<(&'static str, Value)> {
    let call = |(index, call): (usize, &Call)| {
        let function = json!({"name": call.tool, "arguments": call.input.to_string()});
        json!({"index": index, "id": id(number, index), "type": "function", "function": function})
    };
    let calls: Vec<Value> = turn.iter().enumerate().map(call).collect();
    let (delta, reason) = if calls.is_empty() {
        (json!({"role": "assistant", "content": "done"}), "stop")
    } else {
        (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
    };
    let chunk = |delta: Value, reason: Value| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
        (
            "",
            json!({"id": format!("c{number}"), "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, "usage": usage}),
        )
    };
    vec![chunk(delta, Value::Null), chunk(json!({}), reason.into())]
}

fn generated((number, turn): (usize, Turn)) -> Value {
    let part = |(index, call): (usize, &Call)| json!({"functionCall": {"name": call.tool, "args": call.input, "id": id(number, index)}});
    let mut parts: Vec<Value> = turn.iter().enumerate().map(part).collect();
    if parts.is_empty() {
        parts.push(json!({"text": "done"}));
    }
    let candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"});
    json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}})
}

/// The results of tools in a request, whichever protocol it is of.
fn results(body: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        other => other.to_string(),
    };
    let mut found = Vec::new();
    for message in list(&body["messages"]) {
        if message["role"] == "tool" {
            found.push(text(&message["content"]));
        }
        let blocks = list(&message["content"]);
        found.extend(blocks.iter().filter(|block| block["type"] == "tool_result").map(|block| text(&block["content"])));
    }
    let items = list(&body["input"]);
    let is_output = |item: &&Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output"));
    found.extend(items.iter().filter(is_output).map(|item| text(&item["output"])));
    for content in list(&body["contents"]) {
        let responses = list(&content["parts"]).into_iter().filter(|part| part.get("functionResponse").is_some());
        found.extend(responses.map(|part| part["functionResponse"]["response"].to_string()));
    }
    found
}
