//! Messages from answers, whole and streamed: text, tool calls, usage, stop reasons.

use cp_testkit::Server;
use cp_testkit::server::{Step, chunk, events, json as json_answer, stream_head};
use serde_json::{Value, json};

use crate::llm::Llm;

/// A whole answer with this text.
pub(crate) fn whole(backend: &str, text: &str) -> Vec<Step> {
    json_answer(
        200,
        &match backend {
            "anthropic" => {
                json!({"id":"msg_1","model":"m-1","role":"assistant","content":[{"type":"text","text":text}],
            "stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":3}})
            }
            _ => json!({"id":"c_1","model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":text},
            "finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}),
        },
    )
}

/// The beginning of a stream, up to the words `Hel`.
pub(crate) fn stream_start(backend: &str) -> String {
    match backend {
        "anthropic" => concat!(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m-1\",\"usage\":{\"input_tokens\":7}}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hel\"}}\n\n",
        ),
        _ => "data: {\"id\":\"c_1\",\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\n",
    }
    .to_owned()
}

/// A stream of this text in pieces of two bytes, which split characters and events.
pub(crate) fn stream_of(backend: &str, text: &str) -> Vec<Step> {
    let escaped = json!(text);
    let body = match backend {
        "anthropic" => format!(
            "event: message_start\r\ndata: {{\"type\":\"message_start\",\"message\":{{\"id\":\"msg_1\",\"model\":\"m-1\",\"usage\":{{\"input_tokens\":7}}}}}}\r\n\r\n\
             event: ping\ndata: {{\"type\":\"ping\"}}\n\n: comment\n\n\
             event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"text\",\"text\":\"\"}}}}\n\n\
             event: new_thing\ndata: {{\"type\":\"new_thing\",\"x\":1}}\n\n\
             event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":{escaped}}}}}\n\n\
             event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":0}}\n\n\
             event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{{\"output_tokens\":3}}}}\n\n\
             event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
        ),
        _ => format!(
            "data: {{\"id\":\"c_1\",\"model\":\"m-1\",\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}}}}]}}\n\n: keep-alive\n\n\
             data: {{\"id\":\"c_1\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{escaped}}}}}]}}  \n\n\
             data: {{\"id\":\"c_1\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n\
             data: {{\"id\":\"c_1\",\"choices\":[],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":3}}}}\n\n\
             data: [DONE]\n\n"
        ),
    };
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(2).collect();
    events(&pieces)
}

fn ask(backend: &str, script: Vec<Step>, arguments: &[&str]) -> (Vec<Value>, Server) {
    let server = Server::playing(vec![script]);
    let mut all = vec!["--backend", backend, "-m", "m", "--retries", "0"];
    all.extend(arguments);
    all.extend(["--", "hi"]);
    let ran = Llm::asking(backend, &server).run(&all);
    assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
    (ran.records(), server)
}

#[test]
fn whole_and_streamed_answers_are_equal() {
    for backend in ["anthropic", "openai"] {
        let text = "Grüße \u{1F600} an\nalle";
        let (one, _) = ask(backend, whole(backend, text), &[]);
        let (many, _) = ask(backend, stream_of(backend, text), &["--stream"]);
        let deltas: String =
            many.iter().filter(|r| r["type"] == "delta").map(|r| r["data"]["text"].as_str().unwrap()).collect();
        assert_eq!(deltas, text, "{backend}");
        assert_eq!(many.last().unwrap()["data"], json!({"total":1,"succeeded":1,"failed":0,"skipped":0}));
        let mut data = [one[0]["data"].clone(), many[many.len() - 2]["data"].clone()];
        for data in &mut data {
            assert!(data["receipt"]["hash"].as_str().unwrap().starts_with("sha256:"));
            data.as_object_mut().unwrap().remove("receipt");
        }
        assert_eq!(data[0], data[1], "{backend}");
        assert_eq!(data[0]["content"], text);
        assert_eq!(data[0]["input"], json!([{"role":"user","content":"hi"}]));
        assert_eq!(
            (&data[0]["model"], &data[0]["backend"], &data[0]["stop_reason"]),
            (&json!("m-1"), &json!(backend), &json!("end_turn"))
        );
        assert_eq!(
            data[0]["usage"],
            json!({"input_tokens":7,"output_tokens":3,"cache_read_tokens":0,"cache_write_tokens":0,"cost_usd":null})
        );
        assert_eq!(data[0]["_untrusted"], json!(["/content", "/tool_calls", "/input"]));
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
        let server = Server::playing(vec![vec![
            stream_head(),
            chunk(crate::messages::stream_start(backend).as_bytes()),
            Step::Stall,
        ]]);
        let llm = Llm::asking(backend, &server);
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
        let server = Server::playing(vec![script]);
        let mut arguments = vec!["-m", "m", "--rows"];
        arguments.extend(stream.then_some("--stream"));
        let rows = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n".repeat(3);
        let ran = Llm::asking(backend, &server).feed(&arguments, &rows);
        assert_eq!(ran.closing()["data"]["succeeded"], 3, "{}", ran.stdout);
        let indices: Vec<Value> =
            ran.records().iter().filter(|r| r["type"] == "message").map(|r| r["data"]["index"].clone()).collect();
        assert_eq!(indices, [json!(0), json!(1), json!(2)]);
        assert_eq!(server.connections(), 1, "{backend}");
    }
}
