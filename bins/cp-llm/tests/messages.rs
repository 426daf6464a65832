//! Messages from answers, whole and streamed: text, tool calls, usage, stop reasons.

use cp_testkit::Server;
use cp_testkit::server::{Request, Step, chunk, events, json as json_answer, stream_head};
use serde_json::{Value, json};

use crate::llm::Llm;

/// The usual end of an answer.
fn usual(api: &str) -> &'static str {
    match api {
        "anthropic" => "end_turn",
        "openai" => "stop",
        "openai-responses" => "completed",
        _ => "STOP",
    }
}

/// The body of an answer with this text and this end, which may be empty.
pub(crate) fn body(api: &str, text: &str, end: &str) -> Value {
    let reason = if end.is_empty() { Value::Null } else { end.into() };
    let usage = json!({"input_tokens": 7, "output_tokens": 3});
    match api {
        "anthropic" => json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "usage": usage,
            "content": [{"type": "text", "text": text}], "stop_reason": reason}),
        "openai" => json!({"id": "c_1", "model": "m-1", "usage": {"prompt_tokens": 7, "completion_tokens": 3},
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}]}),
        "openai-responses" => {
            let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
            let item = json!({"id": "i_1", "type": "message", "role": "assistant", "status": "completed",
                "content": content});
            let mut whole = json!({"id": "r_1", "model": "m-1", "status": reason, "output": [item], "usage": usage});
            if ["max_output_tokens", "content_filter"].contains(&end) {
                (whole["status"], whole["incomplete_details"]) = ("incomplete".into(), json!({"reason": end}));
            }
            whole
        }
        _ => {
            let candidate = json!({"content": {"parts": [{"text": text}]}, "finishReason": reason});
            let usage = json!({"promptTokenCount": 7, "candidatesTokenCount": 3});
            json!({"responseId": "g_1", "modelVersion": "m-1", "candidates": [candidate], "usageMetadata": usage})
        }
    }
}

/// The events of a stream with these pieces of reasoning and of text, and those at its end.
fn parts(api: &str, thoughts: &[&str], texts: &[&str], end: &str) -> [Vec<Value>; 2] {
    let thinking = |each: &dyn Fn(&str) -> Value| thoughts.iter().map(|thought| each(thought)).collect::<Vec<_>>();
    let saying = |each: &dyn Fn(&str) -> Value| texts.iter().map(|text| each(text)).collect::<Vec<_>>();
    let whole = body(api, &texts.concat(), end);
    match api {
        "anthropic" => {
            let block = |index: u8, kind: &str| {
                let empty = json!({"type": kind, kind: ""});
                vec![json!({"type": "content_block_start", "index": index, "content_block": empty})]
            };
            let delta = |index: u8, kind: &str, text: &str| {
                let delta = json!({"type": format!("{kind}_delta"), kind: text});
                json!({"type": "content_block_delta", "index": index, "delta": delta})
            };
            let start = json!({"id": "msg_1", "model": "m-1", "usage": {"input_tokens": 7}});
            let start = vec![json!({"type": "message_start", "message": start})];
            let text = u8::from(!thoughts.is_empty());
            let thinking = thinking(&|piece| delta(0, "thinking", piece));
            let thoughts = if text == 0 { Vec::new() } else { [block(0, "thinking"), thinking].concat() };
            let stop = json!({"stop_reason": whole["stop_reason"]});
            let stop = json!({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 3}});
            let texts = [block(text, "text"), saying(&|piece| delta(text, "text", piece))].concat();
            [[start, thoughts, texts].concat(), vec![stop, json!({"type": "message_stop"})]]
        }
        "openai" => {
            let choice = |delta: Value, end: &Value| {
                let choices = json!([{"index": 0, "delta": delta, "finish_reason": end}]);
                json!({"id": "c_1", "model": "m-1", "choices": choices})
            };
            let piece = |delta: Value| choice(delta, &Value::Null);
            let thoughts = thinking(&|text| piece(json!({"reasoning": text, "reasoning_content": text})));
            let role = vec![piece(json!({"role": "assistant"}))];
            let usage = json!({"id": "c_1", "choices": [], "usage": whole["usage"]});
            let end = vec![choice(json!({}), &whole["choices"][0]["finish_reason"]), usage, "[DONE]".into()];
            [[role, thoughts, saying(&|text| piece(json!({"content": text})))].concat(), end]
        }
        "openai-responses" => {
            let delta = |kind: &str, index: u8, text: &str| {
                let kind = format!("response.{kind}.delta");
                json!({"type": kind, "output_index": index, "delta": text})
            };
            let mut events = thinking(&|text| delta("reasoning_summary_text", 0, text));
            if !thoughts.is_empty() {
                let summary = json!([{"type": "summary_text", "text": thoughts.concat()}]);
                let item = json!({"type": "reasoning", "id": "r", "summary": summary});
                events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
            }
            events.extend(saying(&|text| delta("output_text", u8::from(!thoughts.is_empty()), text)));
            let end = match thoughts {
                [] => whole,
                _ => json!({"id": "r_1", "status": "completed"}),
            };
            [events, vec![json!({"type": "response.completed", "response": end})]]
        }
        _ => {
            let part = |part: Value| {
                let candidate = json!({"content": {"parts": [part]}});
                json!({"responseId": "g_1", "modelVersion": "m-1", "candidates": [candidate]})
            };
            let thoughts = thinking(&|text| part(json!({"text": text, "thought": true})));
            let reason = whole["candidates"][0]["finishReason"].clone();
            let end = json!({"candidates": [{"finishReason": reason}], "usageMetadata": whole["usageMetadata"]});
            [[thoughts, saying(&|text| part(json!({"text": text})))].concat(), vec![end]]
        }
    }
}

/// The lines of an event.
pub(crate) fn frame(event: &Value) -> String {
    format!("data: {}\n\n", event.as_str().map_or_else(|| event.to_string(), str::to_owned))
}

/// A stream with these pieces of reasoning and of text.
pub(crate) fn stream(api: &str, thoughts: &[&str], texts: &[&str]) -> Vec<Value> {
    parts(api, thoughts, texts, usual(api)).concat()
}

/// The same with one piece of text and an end.
pub(crate) fn ended_stream(api: &str, text: &str, end: &str) -> Vec<Value> {
    parts(api, &[], &[text], end).concat()
}

/// Plays these events.
pub(crate) fn played(stream: &[Value]) -> Vec<Step> {
    let frames: Vec<String> = stream.iter().map(frame).collect();
    events(&frames.iter().map(String::as_bytes).collect::<Vec<_>>())
}

/// A whole answer with this text.
pub(crate) fn whole(api: &str, text: &str) -> Vec<Step> {
    json_answer(200, &body(api, text, usual(api)))
}

/// The beginning of a stream, up to the words `Hel`.
pub(crate) fn stream_start(api: &str) -> String {
    parts(api, &[], &["Hel"], "")[0].iter().map(frame).collect()
}

/// A stream of the letters of this text and of empty pieces, in reads of two bytes, which split characters and events,
/// with frames that say nothing.
pub(crate) fn stream_of(api: &str, text: &str) -> Vec<Step> {
    let noise = match api {
        "anthropic" => "event: ping\ndata: {\"type\":\"ping\"}\n\ndata: {\"type\":\"new_thing\",\"x\":1}\n\n",
        _ => ": keep-alive\n\n",
    };
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let pieces: Vec<&str> = letters.iter().flat_map(|letter| [letter, ""]).collect();
    let frames: Vec<String> = stream(api, &[], &pieces).iter().map(frame).collect();
    let body = frames[0].replace('\n', "\r\n") + noise + &frames[1..].join(noise);
    events(&body.as_bytes().chunks(2).collect::<Vec<_>>())
}

/// A row with this text.
pub(crate) fn row(text: &str) -> String {
    json!({"messages": [{"role": "user", "content": text}]}).to_string() + "\n"
}

/// Numbered rows.
pub(crate) fn rows(count: usize) -> String {
    (0..count).map(|n| row(&format!("row {n}"))).collect()
}

/// The text of a request.
pub(crate) fn asked(request: &Request) -> String {
    let messages = request.json()["messages"].clone();
    messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned()
}

/// A server that repeats the text of a request after a delay in milliseconds, and rejects `bad`.
pub(crate) fn echo(wait: u64) -> Server {
    Server::replying(move |request| match &*asked(request) {
        "bad" => json_answer(400, &json!({"error": {"message": "no"}})),
        text => [vec![Step::Wait(wait)], whole("openai", text)].concat(),
    })
}

fn ask(backend: &str, script: Vec<Step>, arguments: &[&str]) -> (Vec<Value>, Server) {
    let (llm, server) = Llm::playing(backend, vec![script]);
    let ran = llm.run(&[&["-m", "m", "--retries", "0"], arguments, &["--", "hi"]].concat()).success();
    (ran.records(), server)
}

#[test]
fn whole_and_streamed_answers_are_equal() {
    for backend in ["anthropic", "openai", "openai-responses", "gemini"] {
        let text = "Grüße \u{1F600} an\nalle";
        let (llm, _server) = Llm::playing(backend, vec![whole(backend, text), stream_of(backend, text)]);
        let run = |more: &[&str]| llm.run(&[&["-m", "m", "--retries", "0"], more, &["--", "hi"]].concat()).success();
        let (one, many) = (run(&[]), run(&["--stream"]));
        let deltas: String = many.of("delta").iter().map(|delta| delta["text"].as_str().unwrap().to_owned()).collect();
        assert_eq!(deltas, text, "{backend}");
        assert_eq!(many.closing()["data"], json!({"total":1,"succeeded":1,"failed":0,"skipped":0}));
        let [one, many] = [one, many].map(|ran| {
            let mut data = ran.of("message").remove(0);
            assert!(data["receipt"]["hash"].as_str().unwrap().starts_with("sha256:"));
            data.as_object_mut().unwrap().remove("receipt");
            data
        });
        assert_eq!(one, many, "{backend}");
        assert_eq!((&one["content"], &one["input"]), (&json!(text), &json!([{"role":"user","content":"hi"}])));
        let usage =
            json!({"input_tokens":7,"output_tokens":3,"cache_read_tokens":0,"cache_write_tokens":0,"cost_usd":null});
        let expected = [json!("m-1"), json!(backend), json!("end_turn"), usage];
        assert_eq!(["model", "backend", "stop_reason", "usage"].map(|name| one[name].clone()), expected);
        let untrusted = one["_untrusted"].as_array().unwrap();
        assert!(["/content", "/tool_calls", "/input"].iter().all(|name| untrusted.contains(&json!(name))), "{one}");
    }
}

/// The request says which form it expects, and the content type decides how the answer is read.
#[test]
fn answer_in_another_form_than_requested_is_decoded() {
    let forms = [false, true];
    for ((backend, is_requested), is_sent) in ["anthropic", "openai"]
        .iter()
        .flat_map(|backend| forms.map(|form| (*backend, form)))
        .flat_map(|request| forms.map(|form| (request, form)))
    {
        let script = if is_sent { stream_of(backend, "Hello") } else { whole(backend, "Hello") };
        let (records, server) = ask(backend, script, if is_requested { &["--stream"] } else { &[] });
        let message = records.iter().find(|record| record["type"] == "message").unwrap();
        assert_eq!(message["data"]["content"], "Hello", "{backend} {is_requested} {is_sent}");
        assert_eq!(records.iter().any(|record| record["type"] == "delta"), is_requested, "{records:?}");
        assert_eq!(server.requests()[0].json()["stream"], is_requested, "{backend}");
    }
}

#[test]
fn stream_prints_each_delta_before_the_next() {
    for backend in ["anthropic", "openai"] {
        let script = vec![stream_head(), chunk(stream_start(backend).as_bytes()), Step::Stall];
        let (llm, _server) = Llm::playing(backend, vec![script]);
        let mut child = llm.start(&["-m", "m", "--stream", "hi"]);
        let line = child.line();
        assert!(line.contains("\"text\":\"Hel\""), "{line}");
        child.kill();
    }
}

#[test]
fn calls_without_an_id_get_one() {
    let parts = json!([{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}]);
    let body = json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]});
    let (records, _) = ask("gemini", json_answer(200, &body), &[]);
    // An id that is only a counter would repeat in a conversation.
    let calls = records[0]["data"]["tool_calls"].as_array().unwrap();
    let ids: Vec<&str> = calls.iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.starts_with("call_") && id.len() > 10), "{ids:?}");
}

#[test]
fn connection_is_reused_for_all_prompts() {
    for (backend, stream) in [("anthropic", false), ("openai", true)] {
        let script = if stream { stream_of(backend, "x") } else { whole(backend, "x") };
        let (llm, server) = Llm::playing(backend, vec![script]);
        let mut arguments = vec!["-m", "m", "--rows"];
        arguments.extend(stream.then_some("--stream"));
        let ran = llm.feed(&arguments, &rows(3)).success();
        assert!(ran.of("message").iter().map(|message| &message["index"]).eq([0, 1, 2]), "{ran:?}");
        assert_eq!(server.connections(), 1, "{backend}");
    }
}
