//! Programs that others wrote: a server that speaks every dialect, and the providers' own types for requests. They are those of
//! `.ci/packages`, else those on `PATH`. Where one is not installed the test says so and ends; with `CP_COUNTERPARTS=1` or `CI=true`
//! in the environment it fails instead.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::Program;

const BACKENDS: [&str; 4] = ["anthropic", "openai", "openai-responses", "gemini"];

#[expect(clippy::print_stderr, reason = "a test that was skipped must not pass for one that ran")]
fn absent(what: &str) {
    let is_wanted = std::env::var_os("CP_COUNTERPARTS").is_some() || std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_wanted, "{what} is not installed");
    eprintln!("skipped: {what} is not installed");
}

/// The program of `.ci/packages`, else the one on `PATH`.
fn installed(below: &str) -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/packages").join(below);
    if ours.exists() { ours } else { PathBuf::from(ours.file_name().unwrap()) }
}

/// A server that is ended with the test.
struct Mock(Child, u16);

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mock(directory: &Path) -> Option<Mock> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let fixtures = json!({"fixtures":[
        {"match":{"userMessage":"weather"},"response":{"toolCalls":[
            {"name":"get_weather","arguments":"{\"city\":\"Oslo\"}"},{"name":"now","arguments":"{}"}]}},
        {"match":{"userMessage":"slow"},"response":{"status":429,"error":{"type":"rate_limit_error","message":"slow down"}}},
        {"match":{"userMessage":"busy"},"response":{"status":529,"error":{"type":"overloaded_error","message":"come back"}}},
        {"match":{"userMessage":"hello"},"response":{"content":"Grüße \u{1F600}"}}
    ]});
    std::fs::write(directory.join("fixtures.json"), fixtures.to_string()).unwrap();
    let mut command = Command::new(installed("node_modules/.bin/llmock"));
    command.args(["-p", &port.to_string(), "-f"]).arg(directory).stdout(Stdio::null()).stderr(Stdio::null());
    let mock = Mock(command.spawn().ok()?, port);
    for _ in 0..200 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(mock);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the mock did not start");
}

#[test]
fn an_independent_server_is_understood_in_every_dialect() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mock) = mock(directory.path()) else { return absent("aimock (npm)") };
    let tools = directory.path().join("tools.txt");
    let schema = json!({"type":"object","properties":{"city":{"type":"string"}}});
    let list = json!([{"name":"get_weather","description":"d","input_schema":schema},{"name":"now","input_schema":{"type":"object"}}]);
    std::fs::write(&tools, list.to_string()).unwrap();
    let url = format!("http://127.0.0.1:{}", mock.1);
    for backend in BACKENDS {
        for stream in [&[][..], &["--stream"]] {
            let program = Program::new()
                .set("ANTHROPIC_BASE_URL", &url)
                .set("OPENAI_BASE_URL", &format!("{url}/v1"))
                .set("GEMINI_BASE_URL", &format!("{url}/v1beta"))
                .set("ANTHROPIC_API_KEY", "k")
                .set("OPENAI_API_KEY", "k")
                .set("GEMINI_API_KEY", "k");
            let ask = |more: &[&str]| {
                let ran = program.run(&[&["--backend", backend, "-m", "m", "--retries", "0"], stream, more].concat());
                let records = ran.records();
                let message = records.iter().find(|record| record["type"] == "message").cloned();
                message.unwrap_or_else(|| panic!("{backend} {stream:?}: {}", ran.stdout))["data"].clone()
            };
            assert_eq!(ask(&["hello"])["content"], "Grüße \u{1F600}", "{backend} {stream:?}");
            // It asks for a second of rest where it is too much, which is longer than we would wait.
            for (prompt, code, said, attempts, wish) in [
                ("slow?", "E_RATE_LIMITED", "slow down", 1, json!(1000)),
                ("busy?", "E_SERVER", "come back", 2, Value::Null),
            ] {
                let options = ["--backend", backend, "-m", "m", "--retries", "1", "--retry-max-wait", "0.01"];
                let ran = program.run(&[&options[..], stream, &[prompt]].concat());
                let error = ran.error();
                assert_eq!((ran.status, &error["code"]), (7, &json!(code)), "{backend}");
                assert_eq!(
                    (&error["details"]["attempts"], &error["details"]["retry_after_ms"]),
                    (&json!(attempts), &wish)
                );
                assert!(error["message"].as_str().unwrap().contains(said), "{error}");
            }
            let data = ask(&["--tools", tools.to_str().unwrap(), "weather?"]);
            assert_eq!(data["stop_reason"], "tool_use", "{backend} {stream:?}");
            let calls: Vec<(&Value, &Value)> =
                data["tool_calls"].as_array().unwrap().iter().map(|call| (&call["name"], &call["input"])).collect();
            let expected = [(json!("get_weather"), json!({"city":"Oslo"})), (json!("now"), json!({}))];
            assert_eq!(
                calls,
                expected.iter().map(|(name, input)| (name, input)).collect::<Vec<_>>(),
                "{backend} {stream:?}"
            );
        }
    }
}

const CHECK: &str = "
import json, sys
from pydantic import TypeAdapter
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as anthropic
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as openai
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as responses
types = {'anthropic': anthropic, 'openai': openai, 'openai-responses': responses}
for line in sys.stdin:
    case = json.loads(line)
    TypeAdapter(types[case['backend']]).validate_python(case['request'])
    unknown = set(case['request']) - set(types[case['backend']].__annotations__) - set().union(
        *(set(getattr(base, '__annotations__', {})) for base in types[case['backend']].__orig_bases__))
    # Newer Anthropic types have no temperature; servers of older models do.
    assert unknown <= {'temperature'}, unknown
";

#[test]
fn requests_fit_the_types_that_the_providers_publish() {
    let python = |code: &str| {
        let mut command = Command::new(installed("python/bin/python3"));
        command.args(["-c", code]).stdin(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let is_there = python("import anthropic, openai, pydantic").output().is_ok_and(|ran| ran.status.success());
    if !is_there {
        return absent("the anthropic and openai packages (Python)");
    }
    let prompt = json!({
        "system": "be brief", "params": {"max_tokens": 50, "temperature": 0.5},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "let me"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42", "is_error": false},
                {"type": "text", "text": "and?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}}]},
        ]
    });
    let program = Program::new();
    let schema = program.home.path().join("schema.json");
    std::fs::write(&schema, r#"{"type":"object"}"#).unwrap();
    let mut cases = String::new();
    for backend in &BACKENDS[..3] {
        for extra in [&[][..], &["--schema", schema.to_str().unwrap()]] {
            let arguments = [&["--backend", backend, "-m", "m", "--rows", "--dry-run"], extra].concat();
            let ran = program.run_with(&arguments, &format!("{prompt}\n"));
            let data = ran.records()[0]["data"].clone();
            cases.push_str(&json!({"backend": backend, "request": data["request"]}).to_string());
            cases.push('\n');
        }
    }
    let mut child = python(CHECK).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), cases.as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn the_llm_program_itself_keeps_a_session_as_its_conversation() {
    let program = installed("python/bin/llm");
    let Some(directory) = program.parent().filter(|directory| directory.is_absolute()) else {
        return absent("llm (Python)");
    };
    let script = [1, 2, 3].map(|n| crate::messages::whole("openai", &format!("answer {n}"))).to_vec();
    let server = crate::server::Server::start(script);
    let home = tempfile::tempdir().unwrap();
    let models =
        format!("- model_id: local\n  model_name: local\n  api_base: {}/v1\n  can_stream: false\n", server.url());
    std::fs::write(home.path().join("extra-openai-models.yaml"), models).unwrap();
    let program = Program::new()
        .set("PATH", &format!("{}:/usr/bin:/bin", directory.display()))
        .set("LLM_USER_PATH", home.path().to_str().unwrap())
        .set("OPENAI_API_KEY", "k")
        .set("CP_BACKEND", "llm");
    let ask = |turns: Value| {
        let history = turns.as_array().unwrap().len() - 1;
        let row = json!({"session_id":"SES-1","system":"be brief","messages":turns,"history":history});
        program.run_with(&["-m", "local", "--rows"], &format!("{row}\n"))
    };
    let turn = |role: &str, text: &str| json!({"role":role,"content":text});
    let first = ask(json!([turn("user", "one")]));
    assert_eq!(first.records()[0]["data"]["content"], "answer 1", "{}", first.stdout);
    let second = ask(json!([turn("user", "one"), turn("assistant", "answer 1"), turn("user", "two")]));
    assert_eq!(second.records()[0]["data"]["content"], "answer 2", "{}", second.stdout);
    let sent = server.requests()[1].json()["messages"].clone();
    assert_eq!(
        sent.as_array().unwrap()[1..],
        [turn("user", "one"), turn("assistant", "answer 1"), turn("user", "two")]
    );
    let other = ask(json!([turn("user", "else"), turn("assistant", "answer 1"), turn("user", "three")]));
    assert_eq!(other.error()["code"], "E_CONFLICT", "{}", other.stdout);
}
