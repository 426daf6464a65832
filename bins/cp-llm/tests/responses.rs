//! The Responses API: requests and answers.

use cp_testkit::Server;
use cp_testkit::server::{Step, events, json as json_answer};
use serde_json::{Value, json};

use crate::gemini::without_endpoints;
use crate::llm::Llm;

fn ask(script: Vec<Step>, arguments: &[&str], prompt: &Value) -> (Vec<Value>, Server, i32) {
    let server = Server::playing(vec![script]);
    let mut all = vec!["--retries", "0", "-m", "m", "--rows"];
    all.extend(arguments);
    let ran = Llm::asking("openai-responses", &server).feed(&all, &format!("{prompt}\n"));
    (ran.records(), server, ran.status)
}

fn response(status: &str, output: &Value) -> Value {
    json!({"id":"resp_1","object":"response","model":"m-1","status":status,"error":null,"incomplete_details":null,"output":output,
        "usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":2},"output_tokens":3}})
}

#[test]
fn conversation_with_tools_is_encoded() {
    let prompt = json!({
        "system": "be brief", "params": {"max_tokens": 5},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "text", "text": "well"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42"}, {"type": "text", "text": "and?"}]},
        ]
    });
    let answer = response("completed", &json!([{"type":"message","content":[{"type":"output_text","text":"ok"}]}]));
    let (_, server, status) = ask(json_answer(200, &answer), &[], &prompt);
    assert_eq!(status, 0);
    assert!(server.requests()[0].head.starts_with("POST /v1/responses HTTP"));
    assert_eq!(
        server.requests()[0].json(),
        json!({"stream": false, "model": "m", "instructions": "be brief", "store": false, "max_output_tokens": 5,
            "input": [
                {"role": "user", "content": "q"},
                {"type": "message", "role": "assistant", "content": "well"},
                {"type": "function_call", "call_id": "t1", "name": "f", "arguments": "{\"x\":1}"},
                {"type": "function_call_output", "call_id": "t1", "output": "42"},
                {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
            ],
            "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": false}]
        })
    );
}

#[test]
fn whole_and_streamed_answers_are_equal() {
    let output = json!([{"type":"reasoning","summary":[]}, {"type":"message","content":[{"type":"output_text","text":"Hello"}]},
        {"type":"function_call","call_id":"t1","name":"f","arguments":"{\"x\":1}"}]);
    let hi = json!({"messages":[{"role":"user","content":"hi"}]});
    let (one, ..) = ask(json_answer(200, &response("completed", &output)), &[], &hi);
    let pieces = [
        json!({"type":"response.created","response":response("in_progress", &json!([]))}),
        json!({"type":"response.output_text.delta","output_index":1,"delta":"Hel"}),
        json!({"type":"response.output_text.delta","output_index":1,"delta":"lo"}),
        json!({"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"t1","name":"f","arguments":""}}),
        json!({"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"x\""}),
        json!({"type":"response.function_call_arguments.delta","output_index":2,"delta":":1}"}),
        json!({"type":"response.completed","response":response("completed", &output)}),
    ];
    let pieces: Vec<String> =
        pieces.iter().map(|piece| format!("event: {}\ndata: {piece}\n\n", piece["type"].as_str().unwrap())).collect();
    let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
    let (many, _, status) = ask(events(&pieces), &["--stream"], &hi);
    assert_eq!(status, 0, "{many:?}");
    let mut data = [one[0]["data"].clone(), many[2]["data"].clone()];
    for data in &mut data {
        data.as_object_mut().unwrap().remove("receipt");
        without_endpoints(data);
    }
    assert_eq!(data[0], data[1]);
    assert_eq!(data[0]["tool_calls"], json!([{"id":"t1","name":"f","input":{"x":1}}]));
    assert_eq!((&data[0]["usage"]["input_tokens"], &data[0]["stop_reason"]), (&json!(7), &json!("tool_use")));
    let (cut, _, status) = ask(events(&pieces[..2]), &["--stream"], &hi);
    assert_eq!((status, &cut[1]["error"]["details"]["partial"]), (7, &json!("Hel")));
}

#[test]
fn responses_errors_and_refusals_are_reported() {
    let hi = json!({"messages":[{"role":"user","content":"hi"}]});
    let mut failed = response("failed", &json!([]));
    failed["error"] = json!({"code":"rate_limit_exceeded","message":"slow"});
    let (records, _, status) = ask(json_answer(200, &failed), &[], &hi);
    assert_eq!((status, &records[0]["error"]["code"]), (7, &json!("E_RATE_LIMITED")));
    let event = format!("data: {}\n\n", json!({"type":"response.failed","response":failed}));
    assert_eq!(ask(events(&[event.as_bytes()]), &["--stream"], &hi).2, 7);
    let refusal =
        response("completed", &json!([{"type":"message","content":[{"type":"refusal","refusal":"I cannot"}]}]));
    let (records, ..) = ask(json_answer(200, &refusal), &[], &hi);
    assert_eq!(
        (&records[0]["error"]["code"], &records[0]["error"]["details"]["partial"]),
        (&json!("E_FORBIDDEN"), &json!("I cannot"))
    );
    let mut short =
        response("incomplete", &json!([{"type":"message","content":[{"type":"output_text","text":"abc"}]}]));
    short["incomplete_details"] = json!({"reason":"max_output_tokens"});
    assert_eq!(ask(json_answer(200, &short), &["--max-tokens", "9"], &hi).0[0]["data"]["stop_reason"], "max_tokens");
}

#[test]
fn responses_call_sent_only_when_done_is_decoded() {
    let item = json!({"type":"function_call","call_id":"t1","name":"f","arguments":"{\"x\":1}"});
    let end = json!({"type":"response.completed","response":response("completed", &json!([]))});
    let added = json!({"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"t1","name":"f","arguments":""}});
    let delta = json!({"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"x\":1}"});
    let done = json!({"type":"response.output_item.done","output_index":0,"item":item});
    for before in [vec![], vec![&added], vec![&added, &delta]] {
        let pieces: Vec<String> =
            before.iter().chain([&&done, &&end]).map(|piece| format!("data: {piece}\n\n")).collect();
        let hi = json!({"messages":[{"role":"user","content":"hi"}]});
        let (records, _, status) = ask(events(&[pieces.concat().as_bytes()]), &["--stream"], &hi);
        assert_eq!(status, 0, "{records:?}");
        assert_eq!(records[0]["data"]["tool_calls"], json!([{"id":"t1","name":"f","input":{"x":1}}]));
    }
}
