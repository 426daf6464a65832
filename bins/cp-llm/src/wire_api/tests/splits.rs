//! Streams of every API, with oddities of real servers, are split at every byte. The decoded answer is always the same, and equal to the
//! answer in one body.

use cp_common::Result;
use cp_common::wire::Origin;
use cp_http::sse::Parser;
use serde_json::Value;

use crate::wire_api::{Answer, Payload, Request, TextKind, WireApi, decode_event, finish};

/// Some servers split a surrogate pair between two deltas.
const ANTHROPIC: &str = concat!(
    "\u{feff}event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"x\",\"usage\":{\"input_tokens\":7}}}\r\n\r\n",
    "event: ping \rdata: {\"type\":\"ping\"}\r\r: a comment\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":7,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":7,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"h \\ud83d\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":7,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"\\ude00\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":7,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"sig==\"}}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":8,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":8,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"query\\\":\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":8,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"x\\\"}\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":[]}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"url\":\"u\"}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\ndata: \"delta\":{\"type\":\"text_delta\",\"text\":\"Gr\u{fc}\u{df}e \\ud83d\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\ude00!\"}}\n\n",
    "event: never_heard_of\ndata: {\"type\":\"never_heard_of\"}\n\nid: 7\nretry: 10\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"e2}\"}}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":3}}\n\n",
    "data: {\"type\":\"message_stop\"}\n"
);

const ANTHROPIC_WHOLE: &str = r#"{"id":"m","model":"x","content":[{"type":"thinking","thinking":"h \ud83d\ude00","signature":"sig=="},
    {"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"x"}},
    {"type":"text","text":"Gr\u00fc\u00dfe \ud83d\ude00!","citations":[{"url":"u"}]},
    {"type":"tool_use","id":"t","name":"f","input":{ "a":1e2 }}],"stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":3}}"#;

const OPENAI: &str = concat!(
    "data: {\"id\":\"c\",\"model\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n: keep-alive\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"h \\ud83d\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"\\ude00\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"h\",\"index\":0}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"m\",\"signature\":\"s\",\"index\":0}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"we\"}]}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"ll\"}]}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Gr\u{fc}\u{df}e \\ud83d\"}}]}  \r\n\r\n",
    "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ude00!\"}}]}\r\r",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"t\",\"extra_content\":{\"google\":{\"thought_signature\":\"g\"}},\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1e2}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]"
);

const OPENAI_WHOLE: &str = r#"{"id":"c","model":"x","choices":[{"index":0,"message":{"role":"assistant","reasoning_content":"h \ud83d\ude00",
    "reasoning_details":[{"type":"reasoning.text","text":"hm","index":0,"signature":"s"}],
    "content":[{"type":"thinking","thinking":[{"type":"text","text":"well"}]},{"type":"text","text":"Gr\u00fc\u00dfe \ud83d\ude00!"}],
    "tool_calls":[{"id":"t","type":"function","extra_content":{"google":{"thought_signature":"g"}},"function":{"name":"f","arguments":"{\"a\":1e2}"}}]},
    "finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#;

const RESPONSES: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"x\"}}\n\n",
    "data: {\"type\":\"response.reasoning_summary_part.added\",\"output_index\":0,\"summary_index\":0}\n\n",
    "data: {\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":0,\"delta\":\"h\"}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"h\"}],\"encrypted_content\":\"e==\"}}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"type\":\"web_search_call\",\"id\":\"ws\",\"status\":\"completed\"}}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":2,\"delta\":\"Gr\u{fc}\u{df}e \\ud83d\"}\r\n\r\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":2,\"delta\":\"\\ude00!\"}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":2,\"item\":{\"type\":\"message\",\"id\":\"m\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Gr\u{fc}\u{df}e \\ud83d\\ude00!\",\"annotations\":[{\"url\":\"u\"}]}]}}\n\n",
    "data: {\"type\":\"response.output_item.added\",\"output_index\":3,\"item\":{\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"t\",\"name\":\"f\",\"arguments\":\"\"}}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":3,\"delta\":\"{\\\"a\\\"\"}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":3,\"delta\":\":1e2}\"}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}}\n\n"
);

const RESPONSES_WHOLE: &str = r#"{"id":"r","model":"x","status":"completed","output":[
    {"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"h"}],"encrypted_content":"e=="},
    {"type":"web_search_call","id":"ws","status":"completed"},
    {"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"Gr\u00fc\u00dfe \ud83d\ude00!","annotations":[{"url":"u"}]}]},
    {"type":"function_call","id":"fc","call_id":"t","name":"f","arguments":"{\"a\":1e2}"}],"usage":{"input_tokens":7,"output_tokens":3}}"#;

const GEMINI: &str = concat!(
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"h\",\"thought\":true}]}}],\"responseId\":\"g\",\"modelVersion\":\"x\"}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"m\",\"thought\":true}]}}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Gr\u{fc}\u{df}e \\ud83d\"}]}}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\\ude00!\"}]}}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\",\"thoughtSignature\":\"s==\"}]}}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"id\":\"t\",\"name\":\"f\",\"args\":{\"a\":1e2}},\"thoughtSignature\":\"c==\"}]},\"finishReason\":\"STOP\"}],",
    "\"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":3}}\n\n"
);

const GEMINI_WHOLE: &str = r#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"text":"Gr\u00fc\u00dfe \ud83d\ude00!"},
    {"text":"","thoughtSignature":"s=="},
    {"functionCall":{"id":"t","name":"f","args":{ "a":1e2 }},"thoughtSignature":"c=="}]},"finishReason":"STOP"}],
    "responseId":"g","modelVersion":"x","usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":3}}"#;

/// The origin of an API, which has its name.
fn here(api: &dyn WireApi) -> Origin {
    let dialect = match api.path(&Request::default()).as_str() {
        "/messages" => "anthropic",
        "/responses" => "openai-responses",
        "/chat/completions" => "openai",
        _ => "gemini",
    };
    Origin { endpoint: "http://127.0.0.1".to_owned(), dialect: dialect.to_owned() }
}

/// The answer in a whole body.
pub(super) fn whole(dialect: &dyn WireApi, body: &str) -> Answer {
    let mut decoder = dialect.decoder();
    let value: Value = serde_json::from_str(body).unwrap();
    decoder.whole(&Payload { value: &value, bytes: body.as_bytes(), has_halves: false }).unwrap();
    finish(decoder.as_mut(), &here(dialect)).unwrap()
}

/// The answer, and the text and the reasoning that were passed on.
pub(super) fn decoded(dialect: &dyn WireApi, pieces: &[&[u8]]) -> Result<(Answer, [String; 2])> {
    let (mut decoder, mut parser, mut shown) = (dialect.decoder(), Parser::new(), [String::new(), String::new()]);
    let mut show = |kind: TextKind, text: &str| {
        shown[usize::from(kind == TextKind::Thinking)].push_str(text);
        Ok(())
    };
    for piece in pieces {
        parser.push(piece, |event| decode_event(decoder.as_mut(), &event, &mut show).map(|_| ()))?;
    }
    if let Some(event) = parser.finish() {
        decode_event(decoder.as_mut(), &event, &mut show)?;
    }
    Ok((finish(decoder.as_mut(), &here(dialect))?, shown))
}

#[test]
fn stream_is_equal_at_any_split() {
    let wires: [(&dyn WireApi, [&str; 3], &[&str]); 4] = [
        (
            &crate::wire_api::anthropic::Anthropic,
            [ANTHROPIC, ANTHROPIC_WHOLE, "h \u{1F600}"],
            &["thinking", "server_tool", "text", "tool_use"],
        ),
        (
            &crate::wire_api::openai::OpenAi { original: true },
            [OPENAI, OPENAI_WHOLE, "h \u{1F600}well"],
            &["thinking", "thinking", "thinking", "text", "tool_use"],
        ),
        (
            &crate::wire_api::responses::Responses,
            [RESPONSES, RESPONSES_WHOLE, "h"],
            &["thinking", "server_tool", "text", "tool_use"],
        ),
        (&crate::wire_api::gemini::Gemini, [GEMINI, GEMINI_WHOLE, "hm"], &["thinking", "text", "text", "tool_use"]),
    ];
    for (wire, [stream, body, thoughts], kinds) in wires {
        let bytes = stream.as_bytes();
        let (first, shown) = decoded(wire, &[bytes]).unwrap();
        assert_eq!(
            (first.content.text().as_str(), shown.each_ref().map(String::as_str)),
            ("Gr\u{fc}\u{df}e \u{1F600}!", ["Gr\u{fc}\u{df}e \u{1F600}!", thoughts])
        );
        assert_eq!(first.calls.len(), 1, "{first:?}");
        assert_eq!((first.calls[0].name.as_str(), first.calls[0].input.get()), ("f", "{\"a\":1e2}"), "{stream}");
        assert_eq!(
            (first.usage.unwrap().input_tokens, first.usage.unwrap().output_tokens, first.stop.as_str()),
            (7, 3, "tool_use")
        );
        let found: Vec<String> = first.blocks.iter().map(|block| block.view().unwrap().kind.into_owned()).collect();
        assert_eq!(found, kinds);
        assert_eq!(format!("{first:#?}"), format!("{:#?}", whole(wire, body)));
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            let (split, words) = decoded(wire, &[one, other]).unwrap();
            assert_eq!((format!("{split:?}"), words), (format!("{first:?}"), shown.clone()), "cut at {cut}: {stream}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(format!("{:?}", decoded(wire, &single).unwrap().0), format!("{first:?}"));
    }
}

/// Streams that end with a stop reason other than the usual one. A cut stream may have the reason, but not the terminal event.
const REFUSAL: [&str; 5] = [
    r#"{"type":"response.created","response":{"id":"r","model":"x"}}"#,
    r#"{"type":"response.refusal.delta","output_index":0,"delta":"I'm sorry, I"}"#,
    r#"{"type":"response.refusal.delta","output_index":0,"delta":" cannot help"}"#,
    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"refusal","refusal":"I'm sorry, I cannot help"}]}}"#,
    r#"{"type":"response.completed","response":{"id":"r","status":"completed","output":[{"type":"message","content":[{"type":"refusal","refusal":"I'm sorry, I cannot help"}]}]}}"#,
];
const REFUSED_CHAT: [&str; 4] = [
    r#"{"id":"c","choices":[{"index":0,"delta":{"refusal":"I cannot"}}]}"#,
    r#"{"id":"c","choices":[{"index":0,"delta":{"refusal":" help"}}]}"#,
    r#"{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    "[DONE]",
];
/// Groq and Moonshot have the usage in members of their own, and send no `[DONE]` here.
const GROQ: [&str; 2] = [
    r#"{"id":"c","choices":[{"index":0,"delta":{"content":"yes"}}]}"#,
    r#"{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":7,"completion_tokens":3}}}"#,
];
const MOONSHOT: [&str; 2] = [
    r#"{"id":"c","choices":[{"index":0,"delta":{"content":"yes"}}]}"#,
    r#"{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":7,"completion_tokens":3}}]}"#,
];
/// A `[DONE]` does not end the streams of other APIs.
const LIMITED: [&str; 5] = [
    r#"{"type":"message_start","message":{"id":"m","content":[]}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"yes"}}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"input_tokens":7,"output_tokens":3}}"#,
    r#"{"type":"ping"}"#,
    r#"{"type":"message_stop"}"#,
];

fn stream_of(events: &[&str]) -> String {
    format!("data: {}\n\n", events.join("\n\ndata: "))
}

/// The places after the blank lines of a stream.
fn boundaries(stream: &str) -> Vec<usize> {
    let ends = ["\n\n", "\r\n\r\n", "\r\r"];
    (1..stream.len())
        .filter(|at| stream.is_char_boundary(*at) && ends.iter().any(|e| stream[..*at].ends_with(e)))
        .collect()
}

#[test]
fn stream_without_terminal_event_is_error_at_every_boundary() {
    use crate::wire_api::{anthropic::Anthropic, gemini::Gemini, openai::OpenAi, responses::Responses};
    let chat: &dyn WireApi = &OpenAi { original: false };
    // The number of boundaries after the terminal event: of Chat Completions, the usage comes before `[DONE]`.
    let streams: [(&dyn WireApi, String, usize); 9] = [
        (&Anthropic, ANTHROPIC.to_owned(), 0),
        (chat, OPENAI.to_owned(), 1),
        (&Responses, RESPONSES.trim_end().to_owned(), 0),
        (&Gemini, GEMINI.trim_end().to_owned(), 0),
        (&Responses, stream_of(&REFUSAL).trim_end().to_owned(), 0),
        (chat, stream_of(&REFUSED_CHAT).trim_end().to_owned(), 0),
        (chat, stream_of(&GROQ).trim_end().to_owned(), 0),
        (chat, stream_of(&MOONSHOT).trim_end().to_owned(), 0),
        (&Anthropic, stream_of(&LIMITED).trim_end().to_owned(), 0),
    ];
    for (api, stream, ended) in streams {
        let whole = decoded(api, &[stream.as_bytes()]).unwrap().0;
        assert!(!whole.stop.is_empty(), "{stream}");
        let cuts = boundaries(&stream);
        assert!(!cuts.is_empty(), "{stream}");
        for (at, cut) in cuts.iter().enumerate() {
            let outcome = decoded(api, &[&stream.as_bytes()[..*cut]]);
            assert_eq!(outcome.is_ok(), at >= cuts.len() - ended, "{at} of {}: {}", cuts.len(), &stream[..*cut]);
            let foreign = format!("{}data: [DONE]\n\n", &stream[..*cut]);
            let is_chat = api.facts().default_path == "/v1" && api.path(&Request::default()).contains("chat");
            assert!(is_chat || decoded(api, &[foreign.as_bytes()]).is_err(), "{foreign}");
        }
    }
    for stream in [GROQ, MOONSHOT] {
        let usage = decoded(chat, &[stream_of(&stream).as_bytes()]).unwrap().0.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (7, 3));
    }
}

#[test]
fn second_start_in_stream_is_error() {
    use crate::wire_api::{anthropic::Anthropic, responses::Responses};
    for (api, stream) in [(&Anthropic as &dyn WireApi, ANTHROPIC), (&Responses, RESPONSES)] {
        for cut in boundaries(stream) {
            let spliced = [&stream.as_bytes()[..cut], stream.as_bytes()];
            assert!(decoded(api, &spliced).is_err(), "{}", &stream[..cut]);
        }
    }
}

#[test]
fn call_of_gemini_in_pieces_is_error() {
    let part = |call: Value| serde_json::json!({"candidates":[{"content":{"parts":[{"functionCall":call}]},"finishReason":"STOP"}]});
    let outcome =
        |call: Value| decoded(&crate::wire_api::gemini::Gemini, &[stream_of(&[&part(call).to_string()]).as_bytes()]);
    for call in [
        serde_json::json!({"name": "f", "willContinue": true}),
        serde_json::json!({"partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}]}),
    ] {
        assert_eq!(outcome(call).unwrap_err().details()["reason"], "partial_call");
    }
    assert_eq!(outcome(serde_json::json!({"name": "f", "args": {"a": "x"}})).unwrap().0.calls.len(), 1);
}

#[test]
fn attachment_without_bytes_is_refused() {
    use crate::wire_api::{gemini::Gemini, openai::OpenAi, responses::Responses};
    let body = |api: &dyn WireApi, block: Value| {
        let turn = serde_json::json!({"role": "user", "content": [block]});
        let request = Request { messages: vec![serde_json::from_value(turn).unwrap()], ..Request::default() };
        api.body(&request, &here(api))
    };
    let sources = [
        Value::Null,
        serde_json::json!({"type": "file", "file_id": "f1"}),
        serde_json::json!({"type": "base64", "media_type": "image/png"}),
        serde_json::json!({"type": "base64", "data": "aa"}),
        serde_json::json!({"type": "url"}),
        serde_json::json!({"type": "content", "content": []}),
    ];
    for api in [&OpenAi { original: true } as &dyn WireApi, &Responses, &Gemini] {
        for kind in ["image", "document"] {
            let block = |source: &Value| serde_json::json!({"type": kind, "source": source});
            for source in &sources {
                assert!(body(api, block(source)).is_err(), "{kind} {source}");
            }
            let whole = serde_json::json!({"type": "base64", "media_type": "image/png", "data": "aa"});
            assert!(body(api, block(&whole)).is_ok(), "{kind}");
        }
    }
}
