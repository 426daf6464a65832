//! Independent programs: a server of every API, the providers' own types of requests, and `llm`.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use cp_testkit::{Background, Conduct, Place, Program, Server, answered, counterpart, required, thought, until};
use serde_json::{Value, json};

use crate::llm::Llm;

const BACKENDS: [&str; 4] = ["anthropic", "openai", "openai-responses", "gemini"];

/// An independent program may need other programs beside it, so its directory is on `PATH`.
fn theirs(place: &Place, name: &str) -> Option<Program> {
    let program = place.program(counterpart(name)?);
    Some(program.env("PATH", std::env::var_os("PATH").unwrap_or_default()))
}

/// A script in Python, where its packages are there.
fn python(place: &Place, packages: &str, script: &str) -> Option<Program> {
    let program = |code: &str| theirs(place, "python3").map(|python| python.args(["-c", code]));
    let has_packages = program(&format!("import {packages}")).is_some_and(|python| python.run().status == 0);
    required(&format!("the Python packages {packages}"), has_packages).then(|| program(script).unwrap())
}

/// A server of every API, and its URL.
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
    // The program cannot choose a port itself, so a free one is passed to it.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mock = mock.args(["-p", &port.to_string(), "-f"]).arg(&place.work);
    let mock = mock.stdout_to(Stdio::null()).limit(Duration::from_mins(10)).start();
    until("the mock", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some((mock, format!("http://127.0.0.1:{port}")))
}

#[test]
fn independent_server_is_decoded_in_every_api() {
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
            // Its `Retry-After` is a second, which is longer than the limit.
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
            let data = ask(&["--tool-schemas", tools.to_str().unwrap(), "weather?"]);
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

const CHECK: &str = include_str!("data/python/requests.py");

#[test]
fn requests_match_provider_types() {
    let place = Place::new();
    let Some(check) = python(&place, "anthropic, openai, pydantic, google.genai", CHECK) else { return };
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
    let any = llm.work.write("any.json", r#"{"type":"object"}"#).display().to_string();
    let closed = json!({"type": "object", "additionalProperties": false,
        "required": ["n", "k"], "$defs": {"K": {"type": "integer"}}, "properties": {
            "n": {"type": "string", "description": "d"}, "k": {"anyOf": [{"$ref": "#/$defs/K"}, {"type": "null"}]}}});
    let closed = llm.work.write("closed.json", closed.to_string()).display().to_string();
    let mut cases = String::new();
    for backend in BACKENDS {
        let effort = ["-o", "reasoning_effort=low", "--reasoning"];
        let own = match backend {
            "anthropic" => r#"stop=END service_tier=auto tools=[{"type":"web_search_20250305","name":"web_search"}]"#,
            "openai" => "stop=END seed=7 top_p=0.5 presence_penalty=1 verbosity=low",
            "gemini" => {
                r#"stop=END top_k=4 toolConfig={"functionCallingConfig":{"mode":"AUTO"}} tools=[{"googleSearch":{}}]
                safety_settings=[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE"}]"#
            }
            _ => r#"top_p=0.5 verbosity=low tools=[{"type":"web_search"}]"#,
        };
        let own: &[&str] = &own.split_whitespace().flat_map(|option| ["-o", option]).collect::<Vec<_>>();
        for extra in [&[][..], &["--schema", &any], &["--schema", &closed], &effort, own, &[&effort, own].concat()] {
            let arguments = [&["--backend", backend, "-m", "m", "--rows", "--dry-run"], extra].concat();
            let ran = llm.feed(&arguments, &format!("{prompt}\n"));
            let data = ran.records()[0]["data"].clone();
            assert_eq!(ran.status, 0, "{backend} {extra:?}: {}", ran.stdout);
            let case =
                json!({"backend": backend, "request": data["request"], "closed": extra.contains(&closed.as_str())});
            cases.extend([case.to_string().as_str(), "\n"]);
        }
    }
    // An answer that matches their types is sent back in a request that matches them.
    for backend in BACKENDS {
        let answer = answered(backend, &thought(backend, 1, Some("f")));
        let (llm, _server) = Llm::playing(backend, vec![cp_testkit::server::json(200, &answer)]);
        let message = llm.run(&["-m", "m", "q"]).only()["data"].clone();
        let result =
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call-1", "content": "42"}]});
        let turn = json!({"role": "assistant", "content": message["content"], "blocks": message["blocks"]});
        let row = json!({"messages": [{"role": "user", "content": "q"}, turn, result], "tools": prompt["tools"]});
        let ran = llm.feed(&["-m", "m", "--rows", "--dry-run"], &format!("{row}\n"));
        let request = ran.records()[0]["data"]["request"].clone();
        assert!(request.to_string().contains("hm 1"), "{backend}: {request}");
        cases.push_str(&json!({"backend": backend, "request": request, "answer": answer}).to_string());
        cases.push('\n');
    }
    check.stdin(cases).run().success();
}

const BATCHES: &str = include_str!("data/python/batches.py");

#[test]
fn batches_match_provider_types() {
    let place = Place::new();
    let Some(check) = python(&place, "anthropic, openai, pydantic", BATCHES) else { return };
    let row =
        |text: &str| json!({"messages":[{"role":"user","content":text}],"params":{"max_tokens":9}}).to_string() + "\n";
    let mut cases = String::new();
    for backend in &BACKENDS[..3] {
        let (llm, provider) = Llm::batching(backend, Conduct::default());
        let made = llm
            .feed(&["batch", "submit", "-m", "m", "--rows"], &["one", "refuse", "expire", "cancel"].map(row).concat());
        llm.run(&["batch", "result", made.records()[0]["data"]["job_id"].as_str().unwrap()]).records();
        let lines = |text: &str| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
        let asked = provider.server.requests();
        let made = asked.iter().find(|request| request.line().ends_with("/batches")).unwrap().json();
        let rows = if *backend == "anthropic" { made["requests"].clone() } else { lines(&provider.file(0)).into() };
        let (batch, results) = provider.shown(0, *backend == "anthropic");
        let case = json!({"backend": backend, "made": made, "rows": rows, "batch": batch, "results": lines(&results)});
        cases.push_str(&case.to_string());
        cases.push('\n');
    }
    check.stdin(cases).run().success();
}

const ASSEMBLE: &str = include_str!("data/python/stream.py");

#[test]
fn stream_equals_provider_library() {
    let place = Place::new();
    let Some(assemble) = python(&place, "anthropic, pydantic", ASSEMBLE) else { return };
    let block =
        |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let citation = json!({"type": "char_location", "cited_text": "c", "document_index": 0, "document_title": null,
        "file_id": null, "start_char_index": 0, "end_char_index": 1});
    let stream = [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "x",
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 60385, "output_tokens": 1, "cache_read_input_tokens": 5}}}),
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "o"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "ne"})),
        delta(0, json!({"type": "signature_delta", "signature": "sig"})),
        block(1, json!({"type": "text", "text": "A"})),
        delta(1, json!({"type": "citations_delta", "citation": citation})),
        delta(1, json!({"type": "text_delta", "text": "B"})),
        block(2, json!({"type": "redacted_thinking", "data": "d"})),
        block(3, json!({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{\"query\": "})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "\"x\"}"})),
        block(
            4,
            json!({"type": "web_search_tool_result", "tool_use_id": "srv", "content":
            [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e", "page_age": null}]}),
        ),
        block(5, json!({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}})),
        block(6, json!({"type": "tool_use", "id": "u", "name": "g", "input": {}})),
        delta(6, json!({"type": "input_json_delta", "partial_json": "{\"b\":[1,2.5]}"})),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"output_tokens": 9, "input_tokens": 612}}),
        json!({"type": "message_stop"}),
    ];
    let lines = stream.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let theirs: Value = serde_json::from_str(&assemble.stdin(lines).run().success().stdout).unwrap();
    let (llm, _server) = Llm::playing("anthropic", vec![crate::messages::played(&stream)]);
    let message = llm.run(&["-m", "m", "--stream", "q"]).of("message")[0].clone();
    let turn = json!({"role": "assistant", "content": message["content"], "blocks": message["blocks"]});
    let row = json!({"messages": [{"role": "user", "content": "q"}, turn, {"role": "user", "content": "and?"}]});
    let ran = llm.feed(&["-m", "m", "--rows", "--dry-run"], &format!("{row}\n"));
    assert_eq!(ran.records()[0]["data"]["request"]["messages"][1]["content"], theirs["content"]);
    for (ours, name) in [
        ("input_tokens", "input_tokens"),
        ("output_tokens", "output_tokens"),
        ("cache_read_tokens", "cache_read_input_tokens"),
    ] {
        assert_eq!(message["usage"][ours], theirs["usage"][name], "{name}");
    }
}

#[test]
fn llm_program_itself_sends_turns_of_a_session_as_one_text() {
    let Some(program) = counterpart("llm") else { return };
    let server = Server::playing(vec![crate::messages::whole("openai", "answer 2")]);
    let models =
        format!("- model_id: local\n  model_name: local\n  api_base: {}/v1\n  can_stream: false\n", server.url());
    let llm = Llm::new();
    llm.user.write("extra-openai-models.yaml", models);
    let (directory, user) = (program.parent().unwrap().display().to_string(), llm.user.display().to_string());
    let llm = llm
        .set(
            "PATH",
            &format!("{directory}:/usr/bin:/bin:{}", cp_testkit::repository().join("scripts/backends").display()),
        )
        .set("LLM_USER_PATH", &user)
        .set("OPENAI_API_KEY", "k")
        .set("CP_BACKEND", "llm");
    let turn = |role: &str, text: &str| json!({"role":role,"content":text});
    let turns = [turn("user", "one"), turn("assistant", "answer 1"), turn("user", "two")];
    let row = json!({"session_id":"SES-1","system":"be brief","messages":turns,"history":2});
    let ran = llm.feed(&["-m", "local", "--rows"], &format!("{row}\n"));
    assert_eq!(ran.records()[0]["data"]["content"], "answer 2", "{}", ran.stdout);
    let text = "user: one\n\nassistant: answer 1\n\nuser: two";
    assert_eq!(server.requests()[0].json()["messages"], json!([turn("system", "be brief"), turn("user", text)]));
}
