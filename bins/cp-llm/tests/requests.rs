//! Requests: the body for the same prompt in each API, without additions.

use cp_testkit::server::Request;
use cp_testkit::server::reply;
use cp_testkit::{Server, server};
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::whole;

fn prompt() -> Value {
    json!({
        "agent": "a", "session_id": "SES-1", "system": "be brief", "history": 2, "model": "from-the-prompt",
        "params": {"max_tokens": 50, "temperature": 0.5, "stop": ["END"], "seed": 7},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "let me"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42", "is_error": false},
                {"type": "text", "text": "and?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}}]},
        ],
        "row": {"id": 9}
    })
}

fn sent(backend: &str, arguments: &[&str], prompt: &Value) -> (Request, Value) {
    let server = Server::playing(vec![whole(backend, "ok")]);
    let record = json!({"ok":true,"schema_version":"1.0","type":"prompt","data":prompt,"meta":{"duration_ms":0}});
    let ran = Llm::asking(backend, &server).feed(arguments, &format!("{record}\n"));
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    (server.requests().remove(0), ran.only()["data"].clone())
}

#[test]
fn anthropic_request_has_blocks_unchanged() {
    let (request, message) = sent("anthropic", &[], &prompt());
    assert!(request.head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!(request.header("x-api-key").unwrap(), "key-of-the-test-0123456789");
    assert_eq!(request.header("anthropic-version").unwrap(), "2023-06-01");
    assert_eq!(request.header("authorization"), None);
    assert_eq!(request.header("accept-encoding"), None);
    assert_eq!(
        request.json(),
        json!({"stream": false, "model": "from-the-prompt", "max_tokens": 50, "system": "be brief", "messages": prompt()["messages"],
            "tools": prompt()["tools"], "temperature": 0.5, "stop_sequences": ["END"], "seed": 7
        })
    );
    assert_eq!(message["input"], json!([prompt()["messages"][2]]));
    assert_eq!(
        (&message["session_id"], &message["agent"], &message["row"]),
        (&json!("SES-1"), &json!("a"), &json!({"id": 9}))
    );
}

#[test]
fn openai_request_has_converted_blocks() {
    let (request, _) = sent("openai", &[], &prompt());
    assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!(request.header("authorization").unwrap(), "Bearer key-of-the-test-0123456789");
    assert_eq!(
        request.json(),
        json!({"stream": false, "model": "from-the-prompt",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "let me",
                    "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
                {"role": "tool", "tool_call_id": "t1", "content": "42"},
                {"role": "user", "content": [{"type": "text", "text": "and?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"}}]},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
            "max_tokens": 50, "temperature": 0.5, "stop": ["END"], "seed": 7
        })
    );
}

#[test]
fn options_override_prompt() {
    let arguments = ["-m", "mine", "-s", "be long", "--max-tokens", "9", "--temperature", "0"];
    for backend in ["anthropic", "openai"] {
        let body = sent(backend, &arguments, &prompt()).0.json();
        assert_eq!(
            (&body["model"], &body["max_tokens"], &body["temperature"]),
            (&json!("mine"), &json!(9), &json!(0.0))
        );
        assert!(body.to_string().contains("be long") && !body.to_string().contains("be brief"));
    }
}

#[test]
fn text_input_is_sent_without_additions() {
    for (backend, expected) in [
        (
            "anthropic",
            json!({"model":"m","stream":false,"max_tokens":8192,"messages":[{"role":"user","content":"hi"}]}),
        ),
        ("openai", json!({"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}]})),
    ] {
        let server = Server::playing(vec![whole(backend, "ok")]);
        let ran = Llm::asking(backend, &server).run(&["-m", "m", "hi"]);
        assert_eq!(ran.status, 0, "{}", ran.stdout);
        assert_eq!(server.requests()[0].json(), expected);
    }
}

#[test]
fn long_numbers_in_history_keep_digits() {
    let prompt = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"n":123456789012345678901234567890}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"1e2"}]}]}"#;
    for backend in ["anthropic", "openai"] {
        let server = Server::playing(vec![whole(backend, "ok")]);
        let ran = Llm::asking(backend, &server).feed(&["-m", "m", "--rows"], &format!("{prompt}\n"));
        assert_eq!(ran.status, 0, "{}", ran.stdout);
        assert!(String::from_utf8_lossy(&server.requests()[0].body).contains("123456789012345678901234567890"));
    }
}

#[test]
fn dry_run_prints_body_and_sends_nothing() {
    for backend in ["anthropic", "openai"] {
        let server = Server::playing(vec![whole(backend, "ok")]);
        let llm = Llm::asking(backend, &server);
        let dry = llm.run(&["-m", "m", "--dry-run", "--stream", "-s", "a", "b"]);
        assert_eq!(server.requests().len(), 0);
        assert_eq!(llm.run(&["-m", "m", "--stream", "--retries", "0", "-s", "a", "b"]).status, 0);
        let data = dry.only()["data"].clone();
        let request = &server.requests()[0];
        assert_eq!(data["request"], request.json());
        assert!(dry.stdout.contains(std::str::from_utf8(&request.body).unwrap()), "the bytes are the same");
        assert!(data["url"].as_str().unwrap().starts_with(&server.url()));
        assert!(!dry.stdout.contains("key-of-the-test"), "{}", dry.stdout);
    }
}

#[test]
fn tools_option_reads_file() {
    let server = Server::playing(vec![whole("openai", "ok")]);
    let llm = Llm::asking("openai", &server);
    let file = llm.work.write(
        "tools.json",
        r#"[{"name":"f","parameters":{"type":"object"}},{"name":"g","description":"d","input_schema":{}}]"#,
    );
    assert_eq!(llm.run(&["-m", "m", "--tool-schemas", file.to_str().unwrap(), "hi"]).status, 0);
    let tools = server.requests()[0].json()["tools"].clone();
    assert_eq!(
        (&tools[0]["function"]["parameters"], &tools[1]["function"]["description"]),
        (&json!({"type":"object"}), &json!("d"))
    );
    std::fs::write(&file, r#"{"name":"f"}"#).unwrap();
    let ran = llm.run(&["-m", "m", "--tool-schemas", file.to_str().unwrap(), "hi"]);
    assert_eq!((ran.status, ran.first_error()["code"].as_str().unwrap().to_owned()), (2, "E_VALIDATION".to_owned()));
    assert_eq!(llm.run(&["-m", "m", "--tool-schemas", "/nowhere.json", "hi"]).status, 3);
}

#[test]
fn proxy_is_used_by_scheme() {
    let proxy = Server::playing(vec![reply(502, "text/plain", "", b"")]);
    let server = Server::playing(vec![whole("openai", "ok")]);
    let asking = || Llm::asking("openai", &server).set("http_proxy", &proxy.url());
    assert_eq!(asking().run(&["-m", "m", "--retries", "0", "hi"]).status, 7);
    assert!(proxy.requests()[0].head.starts_with("CONNECT 127.0.0.1:"), "{}", proxy.requests()[0].head);
    assert_eq!(asking().set("NO_PROXY", "127.0.0.1").run(&["-m", "m", "--retries", "0", "hi"]).status, 0);
    assert_eq!(
        asking().set("http_proxy", "socks5://127.0.0.1:1").run(&["-m", "m", "hi"]).first_error()["code"],
        "E_CONFIG"
    );
}

#[test]
fn models_are_sorted() {
    let body = json!({"data":[{"id":"b"},{"id":"a"},{"id":"b"}]});
    for (backend, path) in [("anthropic", "GET /v1/models?limit=1000 "), ("openai", "GET /v1/models ")] {
        let server = Server::playing(vec![server::json(200, &body)]);
        let ran = Llm::asking(backend, &server).run(&["models", "--fields", "id"]);
        assert_eq!(ran.only()["data"]["items"], json!([{"id":"a"},{"id":"b"}]));
        assert!(server.requests()[0].head.starts_with(path), "{}", server.requests()[0].head);
        let checks = Llm::asking(backend, &server).run(&["doctor"]).only()["data"]["checks"].clone();
        let upstream = checks.as_array().unwrap().iter().find(|check| check["check"] == "upstream").unwrap().clone();
        assert_eq!(
            (&upstream["status"], upstream["message"].as_str().unwrap().contains("3 models")),
            (&json!("pass"), true),
            "{upstream}"
        );
    }
}

#[test]
fn empty_text_is_rejected() {
    let server = Server::playing(vec![whole("openai", "ok")]);
    let llm = Llm::asking("openai", &server);
    for text in ["", "   ", "\n\t"] {
        llm.run(&["-m", "m", "--", text]).failed(2, "E_VALIDATION");
        let row = json!({"messages":[{"role":"user","content":text}]}).to_string();
        llm.feed(&["-m", "m", "--rows"], &row).failed(2, "E_VALIDATION");
    }
    assert_eq!(server.connections(), 0);
    llm.run(&["-m", "m", "--", "."]).success();
}
