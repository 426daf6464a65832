//! Requests: the path and the key of each API, files of tools, proxies, and the list of models.

use cp_testkit::server::reply;
use cp_testkit::{Server, server};
use serde_json::json;

use crate::llm::Llm;
use crate::messages::whole;

#[test]
fn request_has_path_and_key_of_its_api_and_bytes_of_dry_run() {
    let turn = |role: &str, text: &str| json!({"role": role, "content": text});
    let turns = [turn("user", "q"), turn("assistant", "a"), turn("user", "and?")];
    let prompt = json!({"agent": "a", "session_id": "SES-1", "history": 2, "messages": turns, "row": {"id": 9}, "params": {"max_tokens": 5}});
    let key = "key-of-the-test-0123456789";
    for (api, path, header, value) in [
        ("anthropic", "/v1/messages", "x-api-key", key.to_owned()),
        ("openai", "/v1/chat/completions", "authorization", format!("Bearer {key}")),
        ("openai-responses", "/v1/responses", "authorization", format!("Bearer {key}")),
        ("gemini", "/v1beta/models/m:generateContent", "x-goog-api-key", key.to_owned()),
        ("gemini", "/v1beta/models/m:streamGenerateContent?alt=sse", "x-goog-api-key", key.to_owned()),
        ("gemini", "/v1beta/models/a%23b%3F%20%25%C3%A9/c-d.e:generateContent", "x-goog-api-key", key.to_owned()),
    ] {
        let (llm, server) = Llm::playing(api, vec![whole(api, "ok")]);
        let model = if path.contains('%') { "a#b? %é/c-d.e" } else { "m" };
        let words = ["-m", model, "--rows", "--retries", "0", "-s", "be brief"];
        let words = [&words[..], if path.contains("sse") { &["--stream"] } else { &[] }].concat();
        let dry = llm.feed(&[&words[..], &["--dry-run"]].concat(), &prompt.to_string());
        assert_eq!(server.requests().len(), 0, "{path}");
        let message = llm.feed(&words, &prompt.to_string());
        let request = &server.requests()[0];
        assert_eq!((request.line(), request.header(header)), (&*format!("POST {path}"), Some(&*value)));
        assert_eq!(request.header("anthropic-version"), (api == "anthropic").then_some("2023-06-01"));
        assert_eq!((request.header("accept-encoding"), request.head.matches(key).count()), (None, 1), "{path}");
        assert_eq!(dry.of("item")[0]["url"], format!("{}{path}", server.url()));
        assert!(dry.stdout.contains(std::str::from_utf8(&request.body).unwrap()), "{path}: the bytes are the same");
        assert!(!dry.stdout.contains(key), "{path}: {}", dry.stdout);
        // A server other than that of OpenAI gets the old name of the limit.
        assert!(api != "openai" || request.json()["max_tokens"] == 5);
        if ["anthropic", "openai"].contains(&api) {
            let message = &message.success().of("message")[0];
            assert_eq!((&message["input"], &message["row"]), (&json!([prompt["messages"][2]]), &json!({"id": 9})));
            assert_eq!((&message["session_id"], &message["agent"]), (&json!("SES-1"), &json!("a")));
        }
    }
}

#[test]
fn query_of_base_is_sent() {
    let (llm, server) = Llm::playing("openai", vec![whole("openai", "hi")]);
    let base = format!("{}/deployments/g?api-version=1", server.url());
    llm.set("OPENAI_BASE_URL", &base).run(&["-m", "m", "hi"]).success();
    assert_eq!(server.requests()[0].line(), "POST /deployments/g/chat/completions?api-version=1");
}

#[test]
fn tools_option_reads_file() {
    let (llm, server) = Llm::playing("openai", vec![whole("openai", "ok")]);
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
    assert_eq!(asking().run(&["-m", "m", "--retries", "0", "hi"]).status, 0, "loopback is never proxied");
    let asking = || asking().set("OPENAI_BASE_URL", "http://server.invalid:81/v1");
    assert_eq!(asking().run(&["-m", "m", "--retries", "0", "hi"]).status, 7);
    assert!(proxy.requests()[0].head.starts_with("CONNECT server.invalid:81"), "{}", proxy.requests()[0].head);
    let exempt = asking().set("NO_PROXY", "server.invalid").run(&["-m", "m", "--retries", "0", "hi"]);
    assert!(exempt.first_error()["message"].as_str().unwrap().contains("does not resolve"), "{exempt:?}");
    assert_eq!(
        asking().set("http_proxy", "socks5://127.0.0.1:1").run(&["-m", "m", "hi"]).first_error()["code"],
        "E_CONFIG"
    );
}

#[test]
fn models_are_sorted() {
    let body = json!({"data":[{"id":"b"},{"id":"a"},{"id":"b"}]});
    for (backend, path) in [("anthropic", "GET /v1/models?limit=1000 "), ("openai", "GET /v1/models ")] {
        let (llm, server) = Llm::playing(backend, vec![server::json(200, &body)]);
        let ran = llm.run(&["models", "--fields", "id"]);
        assert_eq!(ran.only()["data"]["items"], json!([{"id":"a"},{"id":"b"}]));
        assert!(server.requests()[0].head.starts_with(path), "{}", server.requests()[0].head);
        let checks = Llm::asking(backend, &server).run(&["doctor"]).only()["data"]["checks"].clone();
        let upstream = checks.as_array().unwrap().iter().find(|check| check["check"] == "backend").unwrap().clone();
        assert_eq!(
            (&upstream["status"], upstream["message"].as_str().unwrap().contains("3 models")),
            (&json!("pass"), true),
            "{upstream}"
        );
    }
}

#[test]
fn empty_text_is_rejected() {
    let (llm, server) = Llm::playing("openai", vec![whole("openai", "ok")]);
    for text in ["", "   ", "\n\t"] {
        llm.run(&["-m", "m", "--", text]).failed(2, "E_VALIDATION");
        let row = json!({"messages":[{"role":"user","content":text}]}).to_string();
        llm.feed(&["-m", "m", "--rows"], &row).failed(2, "E_VALIDATION");
    }
    assert_eq!(server.connections(), 0);
    llm.run(&["-m", "m", "--", "."]).success();
}
