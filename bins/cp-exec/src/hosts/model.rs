//! A model on loopback, in the four languages that hosts speak: it asks for one command, and notes what it is told of that.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// The longest request that is read.
const LONGEST: u64 = 64 << 20;
/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(30);

/// A tool call that the model asks for.
pub(super) struct Call {
    pub tool: &'static str,
    pub arguments: Value,
    /// A word of the arguments that nothing else has: what has it comes after the call.
    pub mark: String,
}

/// The model: its address, and what it was told of the command.
pub(super) struct Model {
    pub address: SocketAddr,
    told: Arc<Mutex<Vec<String>>>,
}

impl Model {
    /// Serves until the program ends.
    pub(super) fn start(call: Call) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let (address, told) = (listener.local_addr()?, Arc::<Mutex<Vec<String>>>::default());
        let (call, into) = (Arc::new(call), Arc::clone(&told));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (call, told) = (Arc::clone(&call), Arc::clone(&into));
                // A host that goes away in the middle has nothing to be told.
                std::thread::spawn(move || serve(&stream, &call, &told).ok());
            }
        });
        Ok(Self { address, told })
    }

    /// The texts of the last request that came after the call: the result is among the first of them.
    pub(super) fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(mut stream: &TcpStream, call: &Call, told: &Mutex<Vec<String>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(stream.take(LONGEST));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut chunked) = (0, false);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "transfer-encoding" => chunked = value.contains("chunked"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    while chunked {
        line.clear();
        reader.read_line(&mut line)?;
        let length = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
        (&mut reader).take(length).read_to_end(&mut body)?;
        reader.read_line(&mut line)?;
        chunked = length > 0;
    }
    (&mut reader).take(length).read_to_end(&mut body)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut texts = Vec::new();
    texts_of(&request, &mut texts);
    let asked = texts.iter().position(|text| text.contains(&call.mark));
    if let Some(at) = asked {
        *told.lock().unwrap_or_else(PoisonError::into_inner) = texts.split_off(at + 1);
    }
    // What has no tools is a question beside the conversation, such as its title.
    let asks = request["tools"].as_array().is_some_and(|tools| !tools.is_empty()) && asked.is_none();
    let (kind, answer) = answer(&path, &request, asks.then_some(call));
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type:";
    write!(stream, "{head} {kind}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len())
}

/// Every text in a value.
fn texts_of(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|value| texts_of(value, texts)),
        Value::Object(members) => members.values().for_each(|value| texts_of(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

const PLAIN: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The answer in the language of the path: the call, or the last word.
fn answer(path: &str, request: &Value, call: Option<&Call>) -> (&'static str, String) {
    let path = path.split('?').next().unwrap_or_default();
    let arguments = call.map(|call| call.arguments.to_string()).unwrap_or_default();
    if path.ends_with("/messages") {
        let (block, delta, stop) = match call {
            Some(Call { tool, .. }) => (
                json!({"type": "tool_use", "id": "toolu_canary", "name": tool, "input": {}}),
                json!({"type": "input_json_delta", "partial_json": arguments}),
                "tool_use",
            ),
            None => (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": "done"}), "end_turn"),
        };
        let usage = json!({"input_tokens": 1, "output_tokens": 1});
        let message = json!({"id": "msg", "type": "message", "role": "assistant", "model": request["model"], "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage});
        return events([
            json!({"type": "message_start", "message": message}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
            json!({"type": "content_block_delta", "index": 0, "delta": delta}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": usage}),
            json!({"type": "message_stop"}),
        ]);
    }
    if path.ends_with("/responses") {
        let item = match call {
            Some(Call { tool, .. }) => {
                json!({"type": "function_call", "call_id": "call_canary", "name": tool, "arguments": arguments})
            }
            None => json!({"type": "message", "role": "assistant", "id": "msg",
                "content": [{"type": "output_text", "text": "done"}]}),
        };
        let usage = json!({"input_tokens": 1, "input_tokens_details": null, "output_tokens": 1,
            "output_tokens_details": null, "total_tokens": 2});
        return events([
            json!({"type": "response.created", "response": {"id": "resp"}}),
            json!({"type": "response.output_item.done", "item": item}),
            json!({"type": "response.completed", "response": {"id": "resp", "usage": usage}}),
        ]);
    }
    if path.ends_with("enerateContent") {
        let part = match call {
            Some(Call { tool, arguments, .. }) => json!({"functionCall": {"name": tool, "args": arguments}}),
            None => json!({"text": "{}"}),
        };
        let answer = json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}});
        return if path.contains(":stream") { events([answer]) } else { (PLAIN, answer.to_string()) };
    }
    if path.ends_with("/chat/completions") {
        let (delta, finish) = match call {
            Some(Call { tool, .. }) => {
                let function = json!({"name": tool, "arguments": arguments});
                let calls = json!([{"index": 0, "id": "call_canary", "type": "function", "function": function}]);
                (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
            }
            None => (json!({"role": "assistant", "content": "done"}), "stop"),
        };
        let is_stream = request["stream"] == true;
        let name = if is_stream { "delta" } else { "message" };
        let mut chunk = json!({"id": "chat", "object": "chat.completion.chunk", "created": 1, "model": request["model"],
            "choices": [{"index": 0, name: delta, "finish_reason": finish}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}});
        if is_stream {
            return (EVENTS, format!("data: {chunk}\n\ndata: [DONE]\n\n"));
        }
        chunk["object"] = "chat.completion".into();
        return (PLAIN, chunk.to_string());
    }
    (PLAIN, "{}".to_owned())
}

/// Events of a stream, each named by its type.
fn events<const N: usize>(events: [Value; N]) -> (&'static str, String) {
    let event = |data: Value| {
        let name = data["type"].as_str().map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {data}\n\n")
    };
    (EVENTS, events.map(event).concat())
}
