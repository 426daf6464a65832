//! The Gemini API: requests and answers.

use cp_testkit::Server;
use cp_testkit::server::{Step, events, json as json_answer, reply};
use serde_json::{Value, json};

use crate::llm::Llm;

fn ask(script: Vec<Step>, arguments: &[&str], prompt: &Value) -> (Vec<Value>, Server, i32) {
    let server = Server::playing(vec![script]);
    let mut all = vec!["--retries", "0", "-m", "gemini-x", "--rows"];
    all.extend(arguments);
    let ran = Llm::asking("gemini", &server).feed(&all, &format!("{prompt}\n"));
    (ran.records(), server, ran.status)
}

/// A message whose blocks have an empty address, because each test server has another one.
pub(crate) fn without_endpoints(message: &mut Value) {
    for block in message["blocks"].as_array_mut().unwrap() {
        block["origin"]["endpoint"].take();
    }
}

fn hi() -> Value {
    json!({"messages":[{"role":"user","content":"hi"}]})
}

fn part(part: &Value, more: &Value) -> Value {
    let mut event = json!({"responseId":"r1","modelVersion":"gemini-x-1","candidates":[{"content":{"role":"model","parts":[part]}}]});
    event["candidates"][0].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

#[test]
fn conversation_with_tools_is_encoded() {
    let prompt = json!({
        "system": "be brief", "params": {"max_tokens": 5, "temperature": 0.5, "stop": ["END"]},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
        ]
    });
    let answer = part(&json!({"text":"ok"}), &json!({"finishReason":"STOP"}));
    let (_, server, status) = ask(json_answer(200, &answer), &[], &prompt);
    assert_eq!(status, 0);
    let request = &server.requests()[0];
    assert!(request.head.starts_with("POST /v1beta/models/gemini-x:generateContent HTTP"), "{}", request.head);
    assert_eq!(request.header("x-goog-api-key").unwrap(), "key-of-the-test-0123456789");
    assert_eq!(
        request.json(),
        json!({
            "systemInstruction": {"parts": [{"text": "be brief"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"x": 1}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "42"}}},
                    {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
            ],
            "tools": [{"functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": {"type": "object"}}]}],
            "generationConfig": {"maxOutputTokens": 5, "temperature": 0.5, "stopSequences": ["END"]}
        })
    );
}

#[test]
fn whole_and_streamed_answers_are_equal() {
    let usage =
        json!({"promptTokenCount":9,"cachedContentTokenCount":2,"candidatesTokenCount":3,"thoughtsTokenCount":4});
    let mut whole = part(&json!({"text":"Hel"}), &json!({"finishReason":"STOP"}));
    let rest = [json!({"text":"hm","thought":true}), json!({"text":"lo"})];
    whole["candidates"][0]["content"]["parts"].as_array_mut().unwrap().extend(rest);
    whole["usageMetadata"] = usage.clone();
    let (one, ..) = ask(json_answer(200, &whole), &[], &hi());
    let mut last = part(&json!({"text":"lo"}), &json!({"finishReason":"STOP"}));
    last["usageMetadata"] = usage;
    let pieces =
        [part(&json!({"text":"Hel"}), &json!({})), part(&json!({"text":"hm","thought":true}), &json!({})), last];
    let pieces: Vec<String> = pieces.iter().map(|piece| format!("data: {piece}\r\n\r\n")).collect();
    let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
    let (many, server, _) = ask(events(&pieces), &["--stream"], &hi());
    assert!(server.requests()[0].head.contains(":streamGenerateContent?alt=sse "));
    let mut data = [one[0]["data"].clone(), many[2]["data"].clone()];
    for data in &mut data {
        data.as_object_mut().unwrap().remove("receipt");
        without_endpoints(data);
    }
    assert_eq!(data[0], data[1]);
    assert_eq!(
        (&data[0]["content"], &data[0]["model"], &data[0]["id"]),
        (&json!("Hello"), &json!("gemini-x-1"), &json!("r1"))
    );
    assert_eq!(
        data[0]["usage"],
        json!({"input_tokens":7,"output_tokens":7,"cache_read_tokens":2,"cache_write_tokens":0,"cost_usd":null})
    );
}

#[test]
fn gemini_calls_get_ids_and_keep_bytes() {
    let body = br#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"n":123456789012345678901234567890}}},{"functionCall":{"name":"g"}}]},"finishReason":"STOP"}]}"#;
    let server = Server::playing(vec![reply(200, "application/json", "", body)]);
    let ran = Llm::asking("gemini", &server).run(&["-m", "x", "hi"]);
    assert!(ran.stdout.contains("\"input\":{\"n\":123456789012345678901234567890}"), "{}", ran.stdout);
    let data = ran.only()["data"].clone();
    assert_eq!((&data["stop_reason"], &data["tool_calls"][1]["name"]), (&json!("tool_use"), &json!("g")));
    // An id that is only a counter would repeat in a conversation.
    let ids: Vec<&str> =
        data["tool_calls"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.starts_with("call_") && id.len() > 10), "{ids:?}");
}

#[test]
fn gemini_errors_blocks_and_cuts_are_reported() {
    let quota = json!([{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow","details":[{"retryDelay":"3600s"}]}}]);
    let (records, _, status) = ask(json_answer(429, &quota), &[], &hi());
    assert_eq!((status, &records[0]["error"]["details"]["retry_after_ms"]), (7, &json!(3_600_000)));
    let (records, ..) = ask(json_answer(200, &json!({"promptFeedback":{"blockReason":"SAFETY"}})), &[], &hi());
    assert_eq!(records[0]["error"]["code"], "E_FORBIDDEN", "{records:?}");
    let cut = format!("data: {}\n\n", part(&json!({"text":"Hel"}), &json!({})));
    let (records, _, status) = ask(events(&[cut.as_bytes()]), &["--stream"], &hi());
    assert_eq!((status, &records[1]["error"]["details"]["partial"]), (7, &json!("Hel")), "{records:?}");
    let (_, _, status) = ask(json_answer(200, &json!({"hello":1})), &[], &hi());
    assert_eq!(status, 7);
}
