//! Messages from answers, whole and streamed: text, tool calls, usage, stop reasons.

use cp_testkit::Server;
use cp_testkit::server::{Step, chunk, events, json as json_answer, reply, stream_head};
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

#[test]
fn parallel_tool_calls_are_complete_in_message() {
    let anthropic = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"m-1\",\"usage\":{\"input_tokens\":1,\"cache_read_input_tokens\":5,\"cache_creation_input_tokens\":2}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"weather\",\"input\":{}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"now\",\"input\":{}}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"city\\\":\\\"\\ud83d\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\ude00\\\",\\\"n\\\":123456789012345678901234567890}\"}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":9}}\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
    ];
    let openai = [
        "data: {\"id\":\"m\",\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"t1\",\"function\":{\"name\":\"weather\",\"arguments\":\"\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"city\\\":\\\"\\ud83d\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\ude00\\\",\\\"n\\\":123456789012345678901234567890}\"}},{\"index\":1,\"id\":\"t2\",\"function\":{\"name\":\"now\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\ndata: [DONE]",
    ];
    for (backend, pieces) in [("anthropic", &anthropic[..]), ("openai", &openai[..])] {
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
        let server = Server::playing(vec![events(&pieces)]);
        let ran = Llm::asking(backend, &server).run(&["-m", "m", "--stream", "--retries", "0", "hi"]);
        assert_eq!(ran.status, 0, "{}", ran.stdout);
        let line = ran.stdout.lines().find(|line| line.contains("\"type\":\"message\"")).unwrap();
        // Arguments keep their bytes, including a long integer.
        assert!(line.contains("\"input\":{\"city\":\"\u{1F600}\",\"n\":123456789012345678901234567890}"), "{line}");
        let data: Value = serde_json::from_str::<Value>(line).unwrap()["data"].clone();
        assert_eq!(data["tool_calls"][1], json!({"id":"t2","name":"now","input":{}}));
        assert_eq!((&data["stop_reason"], &data["content"]), (&json!("tool_use"), &json!("")));
        assert_eq!(
            (&data["usage"]["input_tokens"], &data["usage"]["cache_read_tokens"]),
            (&json!(1), &json!(5)),
            "{backend}"
        );
    }
}

#[test]
fn tool_call_arguments_keep_bytes() {
    let anthropic = br#"{"id":"m","model":"x","content":[{"type":"text","text":"let me look"},{"type":"tool_use","id":"t1","name":"f","input":{"n":123456789012345678901234567890}}],"stop_reason":"tool_use","usage":{}}"#;
    let openai = br#"{"id":"m","choices":[{"message":{"content":"let me look","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"n\":123456789012345678901234567890}"}}]},"finish_reason":"tool_calls"}]}"#;
    for (backend, body) in [("anthropic", &anthropic[..]), ("openai", &openai[..])] {
        let server = Server::playing(vec![reply(200, "application/json", "", body)]);
        let ran = Llm::asking(backend, &server).run(&["-m", "m", "hi"]);
        assert!(
            ran.stdout.contains("{\"id\":\"t1\",\"name\":\"f\",\"input\":{\"n\":123456789012345678901234567890}}"),
            "{}",
            ran.stdout
        );
        assert_eq!(ran.only()["data"]["content"], "let me look");
    }
}

#[test]
fn tool_calls_of_compatible_servers_are_decoded() {
    // Every call with index 0, the id repeated, `stop` at the end, no `[DONE]`.
    let pieces = [
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"x\\\"\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"b\",\"function\":{\"arguments\":\":1}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"h\",\"arguments\":{\"y\":2}},\"id\":\"c\"}]},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    ];
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
    let (records, _) = ask("openai", events(&pieces), &["--stream"]);
    let data = &records[0]["data"];
    assert_eq!(
        data["tool_calls"],
        json!([
        {"id":"a","name":"f","input":{}}, {"id":"b","name":"g","input":{"x":1}}, {"id":"c","name":"h","input":{"y":2}}])
    );
    assert_eq!(data["stop_reason"], "tool_use");
}

#[test]
fn stop_reasons_are_normalized_and_fail_on_makes_errors() {
    let openai = |reason: &str| {
        json_answer(200, &json!({"id":"m","choices":[{"message":{"content":"abc"},"finish_reason":reason}]}))
    };
    for (theirs, ours) in [("stop", "end_turn"), ("length", "max_tokens")] {
        let (records, _) = ask("openai", openai(theirs), &["--max-tokens", "3"]);
        assert_eq!(records[0]["data"]["stop_reason"], ours);
    }
    for (theirs, exit, code) in [("length", 2, "E_VALIDATION"), ("stop", 2, "E_VALIDATION")] {
        let server = Server::playing(vec![openai(theirs)]);
        let ran = Llm::asking("openai", &server).run(&["-m", "m", "--fail-on", "max_tokens,end_turn", "hi"]);
        let error = ran.only()["error"].clone();
        assert_eq!(
            (ran.status, error["code"].as_str().unwrap(), &error["details"]["partial"]),
            (exit, code, &json!("abc"))
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn refusal_member_is_refusal_and_its_text_is_kept() {
    let body = json!({"id":"m","choices":[{"message":{"content":null,"refusal":"I cannot"},"finish_reason":"stop"}]});
    let server = Server::playing(vec![json_answer(200, &body)]);
    let error = Llm::asking("openai", &server).run(&["-m", "m", "hi"]).first_error();
    assert_eq!((&error["code"], &error["details"]["partial"]), (&json!("E_FORBIDDEN"), &json!("I cannot")));
}

#[test]
fn tool_call_cut_off_at_token_limit_is_dropped() {
    let piece = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\"}}]},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
    let (records, _) = ask("openai", events(&[piece.as_bytes()]), &["--stream", "--max-tokens", "9"]);
    assert_eq!(
        (&records[0]["data"]["tool_calls"], &records[0]["data"]["stop_reason"]),
        (&json!([]), &json!("max_tokens"))
    );
}

#[test]
fn reasoning_is_kept_in_blocks() {
    let pieces = [
        "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"x\",\"usage\":{}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"well\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"sig\"}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"yes\"}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
    let (records, _) = ask("anthropic", events(&pieces), &["--stream"]);
    let message = records.iter().find(|r| r["type"] == "message").unwrap();
    assert_eq!(message["data"]["content"], "yes");
    let blocks = message["data"]["blocks"].as_array().unwrap();
    assert_eq!((&blocks[0]["thinking"], &blocks[1]["text"]), (&json!("well"), &json!("yes")));
    assert_eq!(blocks[0]["raw"], json!({"type":"thinking","thinking":"well","signature":"sig"}));
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
fn cost_is_computed_from_price_file() {
    let server = Server::playing(vec![whole("openai", "x")]);
    let llm = Llm::asking("openai", &server);
    llm.home.write("config/prices.toml", "[m]\ninput = 1.0\noutput = 2.0\n");
    let ran = llm.run(&["-m", "m", "hi"]);
    assert_eq!(ran.only()["data"]["usage"]["cost_usd"], json!(0.000_013));
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

#[test]
fn tool_call_arguments_not_object_become_string() {
    let openai = |arguments: &str| {
        let call = json!({"id": "t", "type": "function", "function": {"name": "f", "arguments": arguments}});
        json!({"id": "m", "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    };
    let input = |written: &str| {
        let (records, _) = ask("openai", json_answer(200, &openai(written)), &[]);
        records[0]["data"]["tool_calls"][0]["input"].clone()
    };
    for written in ["{\"x\":", "[1]", "{'x':1}"] {
        assert_eq!(input(written), json!(written));
    }
    assert_eq!(input("null"), json!({}), "some servers write no arguments as null");
    let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": null});
    let anthropic = json!({"id": "m", "content": [call], "stop_reason": "tool_use", "usage": {}});
    let (records, _) = ask("anthropic", json_answer(200, &anthropic), &[]);
    assert_eq!(records[0]["data"]["tool_calls"][0]["input"], json!({}), "{records:?}");
}
