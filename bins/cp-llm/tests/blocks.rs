//! Blocks of answers: the parts of each provider in order, and how they are sent back to it and to other providers.

use cp_testkit::Server;
use cp_testkit::server::{events, json as json_answer};
use serde_json::{Value, json};

use crate::llm::Llm;

fn asked(backend: &str, answer: &Value) -> Value {
    let server = Server::playing(vec![json_answer(200, answer)]);
    let ran = Llm::asking(backend, &server).run(&["-m", "m", "--retries", "0", "hi"]);
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    ran.only()["data"].clone()
}

fn streamed(backend: &str, pieces: &[Value]) -> Value {
    let pieces: Vec<String> = pieces.iter().map(|piece| format!("data: {piece}\n\n")).collect();
    let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
    let server = Server::playing(vec![events(&pieces)]);
    let ran = Llm::asking(backend, &server).run(&["-m", "m", "--stream", "--retries", "0", "hi"]);
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    ran.of("message")[0].clone()
}

/// The request for these turns, and the notices.
fn sent(backend: &str, model: &str, turns: &Value) -> (Value, Value) {
    let server = Server::playing(vec![json_answer(500, &json!({}))]);
    let row = format!("{}\n", json!({ "messages": turns }));
    let ran = Llm::asking(backend, &server).feed(&["-m", model, "--rows", "--dry-run"], &row);
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    (ran.records()[0]["data"]["request"].clone(), ran.closing()["meta"]["notices"].clone())
}

fn kinds(data: &Value) -> Vec<&str> {
    data["blocks"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect()
}

#[test]
fn blocks_keep_order_and_citations() {
    let content = json!([
        {"type": "thinking", "thinking": "one", "signature": "a"}, {"type": "text", "text": "A"},
        {"type": "thinking", "thinking": "two", "signature": "b"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "url": "u"}]},
        {"type": "text", "text": "B", "citations": [{"type": "web_search_result_location", "url": "u"}]},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"n": 1}},
    ]);
    let data = asked("anthropic", &json!({"id": "m", "content": content, "stop_reason": "tool_use", "usage": {}}));
    assert_eq!(kinds(&data), ["thinking", "text", "thinking", "server_tool", "server_tool", "text", "tool_use"]);
    assert_eq!((&data["content"], &data["tool_calls"][0]["input"]), (&json!("AB"), &json!({"n": 1})));
    assert_eq!(data["blocks"][5]["citations"][0]["url"], "u");
    assert_eq!(data["_untrusted"], json!(["/content", "/tool_calls", "/input", "/blocks"]));
    let turns = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "AB", "blocks": data["blocks"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}]);
    let (request, notices) = sent("anthropic", "m", &turns);
    assert_eq!(request["messages"][1], json!({"role": "assistant", "content": content}));
    assert_eq!(notices, Value::Null);
    for (backend, plain) in [
        (
            "openai",
            json!({"role": "assistant", "content": "AB", "tool_calls":
            [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{\"n\":1}"}}]}),
        ),
        (
            "gemini",
            json!({"role": "model", "parts": [{"text": "A"}, {"text": "B"}, {"functionCall": {"name": "f", "args": {"n": 1}}}]}),
        ),
    ] {
        let (request, notices) = sent(backend, "m", &turns);
        let found = request.pointer("/messages/1").or(request.pointer("/contents/1")).unwrap();
        assert_eq!(found, &plain, "{backend}");
        assert_eq!(notices[0]["type"], "blocks_lowered");
        let message = notices[0]["message"].as_str().unwrap();
        assert!(message.ends_with(": 2 server_tool, 2 thinking"), "{message}");
    }
}

#[test]
fn blocks_that_start_with_content_are_decoded() {
    let end = [
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"input_tokens": 612, "output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ];
    let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": {"command": "ls"}});
    let start = json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 60385, "cache_read_input_tokens": 5}}});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": call});
    let data = streamed("anthropic", &[&[start, block], &end[..]].concat());
    assert_eq!(data["tool_calls"][0]["input"], json!({"command": "ls"}));
    // A later count replaces an earlier one; missing counts stay.
    assert_eq!((&data["usage"]["input_tokens"], &data["usage"]["cache_read_tokens"]), (&json!(612), &json!(5)));
    let content = json!([{"type": "text", "text": "whole"}, call]);
    let start = json!({"type": "message_start", "message": {"id": "m", "content": content, "usage": {}}});
    let data = streamed("anthropic", &[&[start], &end[..]].concat());
    assert_eq!((&data["content"], &data["tool_calls"][0]["input"]), (&json!("whole"), &json!({"command": "ls"})));
}

#[test]
fn content_list_is_decoded() {
    let list =
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]);
    let message = json!({"role": "assistant", "content": list});
    let data = asked("openai", &json!({"id": "m", "choices": [{"message": message, "finish_reason": "stop"}]}));
    assert_eq!((&data["content"], kinds(&data)), (&json!("yes"), vec!["thinking", "text"]));
    // It is sent back as a list to its own server, and as text to others.
    let mut blocks = data["blocks"].clone();
    let there = sent_back(&blocks);
    assert_eq!(there["content"], "yes");
    blocks[0]["origin"]["dialect"] = json!("anthropic");
    assert_eq!(sent_back(&blocks), json!({"role": "assistant", "content": "yes"}));
}

/// The encoding of these blocks for an openai server at another address.
fn sent_back(blocks: &Value) -> Value {
    let turns = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes", "blocks": blocks}, {"role": "user", "content": "and?"}]);
    sent("openai", "m", &turns).0["messages"][1].clone()
}

#[test]
fn reasoning_is_sent_only_to_its_own_server() {
    let message = json!({"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}],
        "reasoning_content": "well"});
    let server = Server::playing(vec![json_answer(200, &json!({"id": "m", "choices": [{"message": message}]}))]);
    let llm = Llm::asking("openai", &server);
    let blocks = llm.run(&["-m", "m", "hi"]).only()["data"]["blocks"].clone();
    let turns = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes", "blocks": blocks}, {"role": "user", "content": "and?"}]);
    let row = format!("{}\n", json!({ "messages": turns }));
    assert_eq!(llm.feed(&["-m", "m", "--rows"], &row).status, 0);
    assert_eq!(server.requests()[1].json()["messages"][1], message);
    assert_eq!(sent("openai", "m", &turns).0["messages"][1], json!({"role": "assistant", "content": "yes"}));
}

#[test]
fn encrypted_reasoning_is_requested_and_answers_without_it_become_text() {
    let hi = json!([{"role": "user", "content": "hi"}]);
    for (model, asks) in [
        ("gpt-5.1", true),
        ("o4-mini", true),
        ("openai-responses/openai/gpt-5", true),
        ("gpt-4o", false),
        ("gpt-5-chat-latest", false),
    ] {
        let include = &sent("openai-responses", model, &hi).0["include"];
        assert_eq!(include, &if asks { json!(["reasoning.encrypted_content"]) } else { Value::Null }, "{model}");
    }
    let output = |reasoning: Value, redacted: bool| {
        let call = json!({"type": "function_call", "id": "fc", "call_id": "t", "name": "f", "arguments": "{}"});
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
        let data = asked("openai-responses", &json!({"id": "r", "status": "completed", "output": [reasoning, call]}));
        let mut blocks = data["blocks"].clone();
        if redacted {
            blocks[1]["redacted"] = true.into();
            blocks[1]["raw"].take();
        }
        let result =
            json!([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}, image]}]);
        let turns = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "blocks": blocks}, {"role": "user", "content": result}]);
        let (request, notices) = sent("openai-responses", "m", &turns);
        (request["input"].as_array().unwrap()[1..].to_vec(), notices[0]["type"].clone())
    };
    let encrypted = json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"});
    let (items, notice) = output(encrypted.clone(), false);
    assert_eq!((&items[0], &items[1]["id"], notice), (&encrypted, &json!("fc"), Value::Null));
    // Images of the tool are sent with its text.
    assert_eq!(items[2]["output"][0], json!({"type": "input_text", "text": "x"}));
    assert_eq!(items[2]["output"][1]["image_url"], "data:image/png;base64,AAAA");
    let (items, notice) = output(json!({"type": "reasoning", "id": "rs", "summary": []}), false);
    let plain = json!({"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"});
    assert_eq!((&items[0], notice), (&plain, json!("blocks_lowered")));
    // Reasoning is not sent without the item that followed it.
    assert_eq!(output(encrypted, true).0[0], plain);
}

#[test]
fn gemini_parts_keep_ids_and_empty_turns_are_dropped() {
    let parts = json!([{"text": "hm", "thought": true}, {"functionCall": {"id": "c1", "name": "f", "args": {"n": 1}}, "thoughtSignature": "s"},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]);
    let data = asked("gemini", &json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}));
    assert_eq!(kinds(&data), ["thinking", "tool_use", "image"]);
    assert_eq!(data["content"][0]["source"]["data"], "AAAA");
    let thoughts = json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]});
    let turns = json!([{"role": "user", "content": "q"}, thoughts, {"role": "assistant", "content": "", "blocks": data["blocks"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}]}]}]);
    let (request, notices) = sent("gemini", "m", &turns);
    assert_eq!(request["contents"][1], json!({"role": "model", "parts": parts}));
    let response = json!({"name": "f", "response": {"result": "x"}, "id": "c1"});
    assert_eq!(request["contents"][2]["parts"], json!([{"functionResponse": response}]));
    assert!(notices[0]["message"].as_str().unwrap().ends_with(": 1 thinking"), "{notices}");
}

#[test]
fn llm_program_rejects_tools_and_images() {
    let llm = Llm::new();
    llm.work.executable("llm", "#!/bin/sh\necho hi\n");
    let path = format!("{}:/usr/bin:/bin", llm.work.display());
    let llm = llm.set("PATH", &path);
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let tools = json!([{"name": "f", "description": "", "input_schema": {}}]);
    for (row, status) in [
        (json!({"messages": [{"role": "user", "content": [image]}]}), 2),
        (json!({"messages": [{"role": "user", "content": "x"}], "tools": tools}), 2),
        (json!({"messages": [{"role": "user", "content": "x"}]}), 0),
    ] {
        let ran = llm.feed(&["--backend", "llm", "--rows", "--dry-run"], &format!("{row}\n"));
        assert_eq!(ran.status, status, "{}", ran.stdout);
    }
    let call = json!([{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]);
    let row = json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": call}, {"role": "user", "content": "y"}]});
    let ran = llm.feed(&["--backend", "llm", "--rows", "--dry-run"], &format!("{row}\n"));
    assert_eq!(ran.closing()["meta"]["notices"][0]["type"], "blocks_lowered", "{}", ran.stdout);
}

#[test]
fn tool_failure_is_text_without_member() {
    let text = json!([{"type": "text", "text": "no such file"}]);
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let turns = |content: &Value, is_error: bool| {
        let call = json!([{"type": "tool_use", "id": "t", "name": "f", "input": {}}]);
        let result = json!([{"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": is_error}]);
        json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": call}, {"role": "user", "content": result}])
    };
    for (backend, place) in [("openai", "/messages/2/content"), ("openai-responses", "/input/2/output")] {
        let said =
            |content: &Value, is_error| sent(backend, "m", &turns(content, is_error)).0.pointer(place).unwrap().clone();
        for content in [json!("no such file"), text.clone()] {
            assert_eq!(said(&content, true), "The tool failed: no such file", "{backend}");
            assert_eq!(said(&content, false), "no such file", "{backend}");
        }
        assert_eq!(said(&Value::Null, true), "The tool failed: ", "{backend}");
        assert!(said(&json!([image]), true).to_string().contains("The tool failed"), "{backend}");
    }
}

#[test]
fn image_in_system_turn_is_counted() {
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let system = json!([{"type": "text", "text": "look"}, image]);
    let turns = json!([{"role": "system", "content": system}, {"role": "user", "content": "q"}]);
    for backend in ["anthropic", "gemini"] {
        let (request, notices) = sent(backend, "m", &turns);
        assert!(!request.to_string().contains("AAAA"), "{backend}");
        assert!(notices[0]["message"].as_str().unwrap().ends_with(": 1 image"), "{backend}: {notices}");
    }
    assert!(sent("openai", "m", &turns).0.to_string().contains("AAAA"));
}
