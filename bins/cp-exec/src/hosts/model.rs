//! A local model server for tests of hosts, in the four APIs that they use. It requests one command, and records the
//! results that it receives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

/// The longest request that is read.
const LONGEST: u64 = 64 << 20;
/// The time after which an idle connection is closed.
const SILENCE: Duration = Duration::from_secs(30);

/// A tool call that the model requests.
pub(super) struct Call {
    pub tool: &'static str,
    pub arguments: Value,
    /// A unique word of the arguments. A request that contains it follows the call.
    pub mark: String,
}

/// The model server: its address, and the recorded results of the command.
pub(super) struct Model {
    pub address: SocketAddr,
    tool_results: Arc<Mutex<Vec<String>>>,
}

impl Model {
    /// Starts the server, which runs until the program ends.
    pub(super) fn start(call: Call) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let (address, tool_results) = (listener.local_addr()?, Arc::<Mutex<Vec<String>>>::default());
        let (call, into) = (Arc::new(call), Arc::clone(&tool_results));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (call, tool_results) = (Arc::clone(&call), Arc::clone(&into));
                // If the host closed the connection, no answer is needed.
                std::thread::spawn(move || serve(&stream, &call, &tool_results).ok());
            }
        });
        Ok(Self { address, tool_results })
    }

    /// The texts of the last request after the call. The result of the command is among the first of them.
    pub(super) fn tool_results(&self) -> Vec<String> {
        self.tool_results.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(mut stream: &TcpStream, call: &Call, tool_results: &Mutex<Vec<String>>) -> std::io::Result<()> {
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
        *tool_results.lock().unwrap_or_else(PoisonError::into_inner) = texts.split_off(at + 1);
    }
    // A request without tools is not part of the conversation; it asks for a title, for example.
    let asks = request["tools"].as_array().is_some_and(|tools| !tools.is_empty()) && asked.is_none();
    let (kind, answer) = answer(&path, asks.then_some(call));
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type:";
    write!(stream, "{head} {kind}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len())
}

/// Collects every text in a value.
fn texts_of(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|value| texts_of(value, texts)),
        Value::Object(members) => members.values().for_each(|value| texts_of(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The answers in each API, one event per line: the end of the path, the call, and the final message. `TOOL`,
/// `OBJECT` and `STRING` are replaced by the tool, and by its arguments as an object and as text.
const LANGUAGES: [(&str, &str, &str); 4] = [
    (
        "/messages",
        r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":TOOL,"input":{}}}
{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":STRING}}
{"type":"content_block_stop","index":0}
{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":1}}
{"type":"message_stop"}"#,
        r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"done"}}
{"type":"content_block_stop","index":0}
{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}}
{"type":"message_stop"}"#,
    ),
    (
        "/responses",
        r#"{"type":"response.created","response":{"id":"r"}}
{"type":"response.output_item.done","item":{"type":"function_call","call_id":"call_1","name":TOOL,"arguments":STRING}}
{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":1,"input_tokens_details":null,"output_tokens":1,"output_tokens_details":null,"total_tokens":2}}}"#,
        r#"{"type":"response.created","response":{"id":"r"}}
{"type":"response.output_item.done","item":{"type":"message","role":"assistant","id":"m","content":[{"type":"output_text","text":"done"}]}}
{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":1,"input_tokens_details":null,"output_tokens":1,"output_tokens_details":null,"total_tokens":2}}}"#,
    ),
    (
        "enerateContent",
        r#"{"candidates":[{"index":0,"content":{"role":"model","parts":[{"functionCall":{"name":TOOL,"args":OBJECT}}]},"finishReason":"STOP"}]}"#,
        r#"{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"{}"}]},"finishReason":"STOP"}]}"#,
    ),
    (
        "/chat/completions",
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":TOOL,"arguments":STRING}}]},"finish_reason":"tool_calls"}]}"#,
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}"#,
    ),
];

/// The answer for a path: the call, or the final message.
fn answer(path: &str, call: Option<&Call>) -> (&'static str, String) {
    let path = path.split('?').next().unwrap_or_default();
    let Some((_, asks, ends)) = LANGUAGES.iter().find(|(end, ..)| path.ends_with(end)) else {
        return ("application/json", "{}".to_owned());
    };
    let text = call.map_or((*ends).to_owned(), |Call { tool, arguments, .. }| {
        let (tool, string) = (Value::from(*tool), Value::from(arguments.to_string()));
        asks.replace("TOOL", &tool.to_string())
            .replace("OBJECT", &arguments.to_string())
            .replace("STRING", &string.to_string())
    });
    if path.ends_with(":generateContent") {
        return ("application/json", text);
    }
    let event = |line: &str| match line.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split_once('"')) {
        Some((name, _)) => format!("event: {name}\ndata: {line}\n\n"),
        None => format!("data: {line}\n\n"),
    };
    ("text/event-stream", text.lines().map(event).collect())
}
