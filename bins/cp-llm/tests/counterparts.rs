//! Programs that others wrote: a server that speaks every dialect, the providers' own types for requests, and `llm` itself.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use cp_testkit::{Background, Place, Program, Server, counterpart, required, until};
use serde_json::{Value, json};

use crate::llm::Llm;

const BACKENDS: [&str; 4] = ["anthropic", "openai", "openai-responses", "gemini"];

/// A program that others wrote runs with the path that it was found by, since it may need others there.
fn theirs(place: &Place, name: &str) -> Option<Program> {
    let program = place.program(counterpart(name)?);
    Some(program.env("PATH", std::env::var_os("PATH").unwrap_or_default()))
}

/// A server that speaks every dialect, and where it is.
fn mock(place: &Place) -> Option<(Background, String)> {
    let mock = theirs(place, "llmock")?;
    let fixtures = json!({"fixtures":[
        {"match":{"userMessage":"weather"},"response":{"toolCalls":[
            {"name":"get_weather","arguments":"{\"city\":\"Oslo\"}"},{"name":"now","arguments":"{}"}]}},
        {"match":{"userMessage":"slow"},"response":{"status":429,"error":{"type":"rate_limit_error","message":"slow down"}}},
        {"match":{"userMessage":"busy"},"response":{"status":529,"error":{"type":"overloaded_error","message":"come back"}}},
        {"match":{"userMessage":"hello"},"response":{"content":"Grüße \u{1F600}"}}
    ]});
    place.work.write("fixtures.json", fixtures.to_string());
    // A port that was free a moment ago: the program takes none that it chooses itself.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mock = mock.args(["-p", &port.to_string(), "-f"]).arg(&place.work);
    let mock = mock.stdout_to(Stdio::null()).limit(Duration::from_mins(10)).start();
    until("the mock", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some((mock, format!("http://127.0.0.1:{port}")))
}

#[test]
fn an_independent_server_is_understood_in_every_dialect() {
    let place = Place::new();
    let Some((_mock, url)) = mock(&place) else { return };
    let schema = json!({"type":"object","properties":{"city":{"type":"string"}}});
    let list = json!([{"name":"get_weather","description":"d","input_schema":schema},{"name":"now","input_schema":{"type":"object"}}]);
    let tools = place.work.write("tools.txt", list.to_string());
    for backend in BACKENDS {
        for stream in [&[][..], &["--stream"]] {
            let llm = Llm::new()
                .set("ANTHROPIC_BASE_URL", &url)
                .set("OPENAI_BASE_URL", &format!("{url}/v1"))
                .set("GEMINI_BASE_URL", &format!("{url}/v1beta"))
                .set("ANTHROPIC_API_KEY", "k")
                .set("OPENAI_API_KEY", "k")
                .set("GEMINI_API_KEY", "k");
            let ask = |more: &[&str]| {
                let ran = llm.run(&[&["--backend", backend, "-m", "m", "--retries", "0"], stream, more].concat());
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
                let ran = llm.run(&[&options[..], stream, &[prompt]].concat());
                let error = ran.first_error();
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
    let place = Place::new();
    let python = |code: &str| theirs(&place, "python3").map(|python| python.args(["-c", code]));
    let has_types = python("import anthropic, openai, pydantic").is_some_and(|python| python.run().status == 0);
    if !required("the anthropic and openai packages (Python)", has_types) {
        return;
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
    let llm = Llm::new();
    let schema = llm.work.write("schema.json", r#"{"type":"object"}"#);
    let mut cases = String::new();
    for backend in &BACKENDS[..3] {
        for extra in [&[][..], &["--schema", schema.to_str().unwrap()]] {
            let arguments = [&["--backend", backend, "-m", "m", "--rows", "--dry-run"], extra].concat();
            let ran = llm.feed(&arguments, &format!("{prompt}\n"));
            let data = ran.records()[0]["data"].clone();
            cases.push_str(&json!({"backend": backend, "request": data["request"]}).to_string());
            cases.push('\n');
        }
    }
    python(CHECK).unwrap().stdin(cases).run().success();
}

#[test]
fn the_llm_program_itself_keeps_a_session_as_its_conversation() {
    let Some(program) = counterpart("llm") else { return };
    let script = [1, 2, 3].map(|n| crate::messages::whole("openai", &format!("answer {n}"))).to_vec();
    let server = Server::playing(script);
    let models =
        format!("- model_id: local\n  model_name: local\n  api_base: {}/v1\n  can_stream: false\n", server.url());
    let llm = Llm::new();
    llm.user.write("extra-openai-models.yaml", models);
    let (directory, user) = (program.parent().unwrap().display().to_string(), llm.user.display().to_string());
    let llm = llm
        .set("PATH", &format!("{directory}:/usr/bin:/bin"))
        .set("LLM_USER_PATH", &user)
        .set("OPENAI_API_KEY", "k")
        .set("CP_BACKEND", "llm");
    let ask = |turns: Value| {
        let history = turns.as_array().unwrap().len() - 1;
        let row = json!({"session_id":"SES-1","system":"be brief","messages":turns,"history":history});
        llm.feed(&["-m", "local", "--rows"], &format!("{row}\n"))
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
    assert_eq!(other.first_error()["code"], "E_CONFLICT", "{}", other.stdout);
}
