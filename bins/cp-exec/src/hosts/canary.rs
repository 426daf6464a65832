//! Tests that a host calls its hook: runs the real program with a local model that requests tool calls, each of which
//! would create a file outside of the sandbox.
//!
//! The model is a local server for the APIs of the hosts. It requests one call after the other, and
//! records the results that it receives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, Grace};
use cp_common::{Error, Result, signals};
use serde_json::{Value, json};

use super::HookHost;

/// The time limit of a host.
const LIMIT: Duration = Duration::from_mins(1);
const PROMPT: &str = "do it";

/// The observations of a canary run.
pub(crate) struct CanaryResult {
    /// For each call, the texts of its result; none if it was not carried out.
    pub results: Vec<Vec<String>>,
    /// The last line of the host on standard error.
    pub last_error_line: String,
}

/// The parameters of a canary run.
pub(crate) struct Canary<'a> {
    pub host: HookHost,
    pub program: &'a Path,
    /// The directory in which the host is started.
    pub cwd: &'a Path,
    /// A temporary directory of the test.
    pub place: &'a Path,
    /// A command that the rules of the user deny, if the host takes such rules for one run.
    pub denied: &'a str,
    /// A shell script that is a server with the tool `effect`.
    pub server: &'a str,
}

/// A server of the Model Context Protocol for a shell, whose tool `effect` runs a line before it answers.
pub(crate) fn server_script(line: &str) -> String {
    SERVER.replace("LINE", line)
}

const SERVER: &str = r#"while read -r question; do
  id=$(printf %s "$question" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $question in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"canary","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"effect","description":"d","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) { LINE; } >&2; result='{"content":[{"type":"text","text":"effect"}]}' ;;
    *) result= ;;
  esac
  [ "$id" ] || continue
  if [ "$result" ]; then printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
  else printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id"; fi
done"#;

/// Runs the host, with a model that requests these calls one after the other.
pub(crate) fn run_canary(canary: &Canary<'_>, calls: Vec<Call>) -> Result<CanaryResult> {
    let &Canary { host, program, cwd, .. } = canary;
    let model = Model::start(calls).map_err(|e| Error::io("listening on loopback", e))?;
    let mut command = Command::new(program);
    command.current_dir(cwd).stderr(Stdio::piped());
    configure(host, &mut command, &format!("http://{}", model.address), canary);
    let grace = Grace { after_input: Duration::ZERO, after_term: Duration::from_secs(2) };
    let mut child = Child::start_group(&mut command, grace)?;
    child.close_input();
    let until = Instant::now() + LIMIT;
    let mut unread = Vec::new();
    while Instant::now() < until && child.is_running() {
        unread.clear();
        if let Some(0) = child.read_some(&mut unread, Duration::from_millis(200))? {
            std::thread::sleep(Duration::from_millis(20));
        }
        signals::check()?;
    }
    child.stop();
    Ok(CanaryResult { results: model.results(), last_error_line: child.error_text() })
}

/// Configures a host to use the model at `url`, without questions to the user, and with its existing configuration.
fn configure(host: HookHost, command: &mut Command, url: &str, canary: &Canary<'_>) {
    let v1 = format!("{url}/v1");
    let server = json!({"command": "sh", "args": ["-c", canary.server]});
    match host {
        HookHost::Claude => {
            let servers = json!({"mcpServers": {"canary": server}});
            let rules = json!({"deny": [format!("Bash({}:*)", canary.denied)]});
            let env = json!({"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"});
            let settings = json!({"env": env, "permissions": rules}).to_string();
            command.args(["-p", PROMPT, "--permission-mode", "bypassPermissions", "--no-session-persistence"]);
            command.args(["--strict-mcp-config", "--mcp-config", &servers.to_string(), "--settings", &settings]);
            command.arg("--add-dir").arg(canary.place);
            command.env("ANTHROPIC_BASE_URL", url).env("ANTHROPIC_API_KEY", "none").env("IS_SANDBOX", "1");
            command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
        }
        HookHost::Codex => {
            let provider = format!(
                "model_providers.canary={{name=\"canary\",base_url=\"{v1}\",wire_api=\"responses\",request_max_retries=0,stream_max_retries=0}}"
            );
            command.args([
                "exec",
                "--dangerously-bypass-approvals-and-sandbox",
                "--skip-git-repo-check",
                "--ephemeral",
            ]);
            // This model gets the tool that patches files.
            command.args(["-c", &provider, "-c", "model_provider=\"canary\"", "-c", "model=\"gpt-5.5\""]);
            let server = format!(
                "mcp_servers.canary={{command=\"sh\",args=[\"-c\",{}],default_tools_approval_mode=\"approve\"}}",
                Value::from(canary.server)
            );
            command.args(["-c", &server, PROMPT]);
        }
    }
}

/// The longest request that is read.
const LONGEST: u64 = 64 << 20;
/// The time after which an idle connection is closed.
const SILENCE: Duration = Duration::from_secs(30);

/// A tool call that the model requests.
pub(crate) struct Call {
    pub tool: &'static str,
    pub arguments: Value,
    /// A unique word of the arguments. A request that contains it follows the call.
    pub mark: String,
}

/// The model server: its address, its calls, and the last request of the conversation.
struct Model {
    address: SocketAddr,
    conversation: Arc<Conversation>,
}

#[derive(Default)]
struct Conversation {
    calls: Vec<Call>,
    request: Mutex<Value>,
}

impl Model {
    /// Starts the server, which runs until the program ends.
    fn start(calls: Vec<Call>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let conversation = Arc::new(Conversation { calls, ..Conversation::default() });
        let served = Arc::clone(&conversation);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                // If the host closed the connection, no answer is needed.
                std::thread::spawn(move || serve(&stream, &served).ok());
            }
        });
        Ok(Self { address, conversation })
    }

    /// The texts of the result with the id of each call, else the texts after the call and before the next one.
    fn results(&self) -> Vec<Vec<String>> {
        let request = self.conversation.request.lock().unwrap_or_else(PoisonError::into_inner);
        let mut texts = Vec::new();
        texts_of(&request, &mut texts);
        let place = |call: &Call| texts.iter().position(|text| text.contains(&call.mark));
        let places: Vec<Option<usize>> = self.conversation.calls.iter().map(place).collect();
        let after =
            |at: usize| places.iter().flatten().filter(|next| **next > at).min().copied().unwrap_or(texts.len());
        let result = |(number, at): (usize, &Option<usize>)| {
            let mut result = Vec::new();
            result_texts(&request, &[format!("call_{number}"), format!("toolu_{number}")], &mut result);
            if result.is_empty() { at.map_or(Vec::new(), |at| texts[at + 1..after(at)].to_vec()) } else { result }
        };
        places.iter().enumerate().map(result).collect()
    }
}

/// Collects the texts of the objects that are results of a call.
fn result_texts(value: &Value, ids: &[String; 2], texts: &mut Vec<String>) {
    let is_result = |members: &serde_json::Map<String, Value>| {
        let named = ["tool_use_id", "tool_call_id", "call_id"].iter().filter_map(|name| members.get(*name)?.as_str());
        named.into_iter().any(|id| ids.iter().any(|own| own == id))
            && !["arguments", "input"].iter().any(|name| members.contains_key(*name))
    };
    match value {
        Value::Object(members) if is_result(members) => {
            let contents = ["content", "output"].iter().filter_map(|name| members.get(*name));
            contents.for_each(|value| texts_of(value, texts));
        }
        Value::Object(members) => members.values().for_each(|value| result_texts(value, ids, texts)),
        Value::Array(list) => list.iter().for_each(|value| result_texts(value, ids, texts)),
        _ => {}
    }
}

fn serve(mut stream: &TcpStream, conversation: &Conversation) -> std::io::Result<()> {
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
    let is_asked = |call: &&Call| texts.iter().any(|text| text.contains(&call.mark));
    let number = conversation.calls.iter().take_while(is_asked).count();
    // A request without tools is not part of the conversation; it asks for a title, for example.
    let has_tools = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let call = conversation.calls.get(number).filter(|_| has_tools);
    if number > 0 {
        *conversation.request.lock().unwrap_or_else(PoisonError::into_inner) = request;
    }
    let (kind, answer) = answer(&path, call, number);
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

/// The answers in each API, one event per line: the end of the path, the call, and the final message. `TOOL` and
/// `STRING` are replaced by the tool, and by its arguments as text.
const LANGUAGES: [(&str, &str, &str); 2] = [
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
];

/// The answer for a path: the call with this number, or the final message.
fn answer(path: &str, call: Option<&Call>, number: usize) -> (&'static str, String) {
    let path = path.split('?').next().unwrap_or_default();
    let Some((_, asks, ends)) = LANGUAGES.iter().find(|(end, ..)| path.ends_with(end)) else {
        return ("application/json", "{}".to_owned());
    };
    let text = call.map_or((*ends).to_owned(), |Call { tool, arguments, .. }| {
        // A tool of a server is in a namespace, and a tool that takes a text has a call of its own kind.
        let (namespace, name) = tool.rsplit_once("__").filter(|_| path.ends_with("/responses")).unzip();
        let tool = Value::from(name.unwrap_or(tool)).to_string();
        let tool = namespace.map_or(tool.clone(), |namespace| format!("{tool},\"namespace\":\"{namespace}\""));
        let string = if arguments.is_string() { arguments.clone() } else { Value::from(arguments.to_string()) };
        let asks = if arguments.is_string() {
            asks.replace("function_call", "custom_tool_call").replace("\"arguments\"", "\"input\"")
        } else {
            (*asks).to_owned()
        };
        asks.replace("TOOL", &tool)
            .replace("STRING", &string.to_string())
            .replace("call_1", &format!("call_{number}"))
            .replace("toolu_1", &format!("toolu_{number}"))
    });
    let event = |line: &str| match line.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split_once('"')) {
        Some((name, _)) => format!("event: {name}\ndata: {line}\n\n"),
        None => format!("data: {line}\n\n"),
    };
    ("text/event-stream", text.lines().map(event).collect())
}
