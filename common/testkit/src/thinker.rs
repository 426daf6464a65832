//! A provider whose model returns signed thinking. Like real providers, it rejects a conversation in which its own
//! answers were changed. If tools are offered, it calls the first one twice; then it answers with text.

use serde_json::{Value, json};

use crate::server::{Reply, Request, Server, json as json_reply};

/// Starts a server for this backend.
pub fn thinker(backend: &'static str) -> Server {
    Server::replying(move |request| reply(backend, request))
}

/// Returns the answer with this number, in the backend's dialect, as the next request must repeat it.
pub fn thought(backend: &str, number: usize, calls: Option<&str>) -> Vec<Value> {
    let (text, thought) = (format!("step {number}"), format!("hm {number}"));
    let (id, signature) = (format!("call-{number}"), format!("c2lnbmF0dXJl{number:04}"));
    let arguments = format!("{{\"n\":{number}}}");
    let input = json!({ "n": number });
    let mut answer = match backend {
        "anthropic" => vec![
            json!({"type": "thinking", "thinking": thought, "signature": signature}),
            json!({"type": "text", "text": text}),
            json!({"type": "redacted_thinking", "data": signature}),
            json!({"type": "text", "text": "!"}),
        ],
        "openai" => vec![json!({"role": "assistant", "content": format!("{text}!"), "reasoning_content": thought})],
        "openai-responses" => vec![
            json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [{"type": "summary_text", "text": thought}],
                "encrypted_content": signature}),
            json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": format!("{text}!"), "annotations": []}]}),
        ],
        "gemini" => vec![
            json!({"text": thought, "thought": true}),
            json!({"text": text}),
            json!({"text": "!", "thoughtSignature": signature}),
        ],
        other => panic!("no provider {other}"),
    };
    let Some(name) = calls else { return answer };
    match backend {
        "anthropic" => answer.push(json!({"type": "tool_use", "id": id, "name": name, "input": input})),
        "openai" => {
            answer[0]["tool_calls"] = json!([{"id": id, "type": "function",
                "function": {"name": name, "arguments": arguments}, "extra_content": {"thought_signature": signature}}]);
        }
        "openai-responses" => {
            answer.push(json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": id, "name": name,
                "arguments": arguments, "status": "completed"}));
        }
        _ => {
            let call = json!({"functionCall": {"id": id, "name": name, "args": input}, "thoughtSignature": signature});
            answer.push(call);
        }
    }
    answer
}

fn reply(backend: &str, request: &Request) -> Reply {
    let asked = request.json();
    let tool = ["/tools/0/name", "/tools/0/function/name", "/tools/0/functionDeclarations/0/name"];
    let tool = tool.iter().find_map(|pointer| asked.pointer(pointer)?.as_str());
    let calls = |number: usize| tool.filter(|_| number < 3);
    let given = given(backend, &asked);
    for (number, given) in (1..).zip(&given) {
        if *given != thought(backend, number, calls(number)) {
            let message = format!("answer {number} was changed, so its signature is lost: {}", json!(given));
            return json_reply(400, &json!({"error": {"type": "invalid_request_error", "message": message}}));
        }
    }
    let number = given.len() + 1;
    json_reply(200, &answered(backend, &thought(backend, number, calls(number))))
}

/// Returns the whole body of an answer, with all members that the provider's types require.
pub fn answered(backend: &str, answer: &[Value]) -> Value {
    let calls = answer.iter().any(|part| part["type"] == "tool_use" || part.get("tool_calls").is_some());
    match backend {
        "anthropic" => json!({"id": "m", "type": "message", "role": "assistant", "model": "x", "content": answer,
            "stop_reason": if calls { "tool_use" } else { "end_turn" }, "stop_sequence": null,
            "usage": {"input_tokens": 7, "output_tokens": 3}}),
        "openai" => json!({"id": "m", "object": "chat.completion", "created": 1, "model": "x",
            "choices": [{"index": 0, "message": answer[0], "finish_reason": if calls { "tool_calls" } else { "stop" }, "logprobs": null}]}),
        "openai-responses" => {
            json!({"id": "m", "object": "response", "created_at": 1, "model": "x", "status": "completed",
            "output": answer, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []})
        }
        _ => json!({"responseId": "m", "modelVersion": "x",
            "candidates": [{"content": {"role": "model", "parts": answer}, "finishReason": "STOP"}]}),
    }
}

/// Returns the model's answers in a request.
fn given(backend: &str, asked: &Value) -> Vec<Vec<Value>> {
    let list = |name: &str| asked[name].as_array().cloned().unwrap_or_default();
    let list_or_one = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    match backend {
        "anthropic" => {
            let answers = list("messages").into_iter().filter(|message| message["role"] == "assistant");
            answers.map(|message| list_or_one(&message["content"])).collect()
        }
        "openai" => {
            let answers = list("messages").into_iter().filter(|message| message["role"] == "assistant");
            answers.map(|message| vec![message]).collect()
        }
        "openai-responses" => {
            let items = list("input");
            let is_mine = |item: &Value| item["role"] != "user" && item["type"] != "function_call_output";
            items
                .chunk_by(|one, other| is_mine(one) == is_mine(other))
                .filter(|chunk| is_mine(&chunk[0]))
                .map(<[_]>::to_vec)
                .collect()
        }
        _ => {
            let answers = list("contents").into_iter().filter(|message| message["role"] == "model");
            answers.map(|message| list_or_one(&message["parts"])).collect()
        }
    }
}
