//! Streams of every API, with oddities of real servers, are split at every byte. The decoded answer is always the same, and equal to the
//! answer in one body.

use cp_common::Result;
use cp_common::wire::Origin;
use cp_http::sse::Parser;
use serde_json::Value;

use crate::wire_api::{Answer, Payload, TextKind, WireApi, decode_event, finish};

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

fn here() -> Origin {
    Origin { endpoint: "http://127.0.0.1".to_owned(), dialect: "d".to_owned() }
}

/// The answer in a whole body.
pub(super) fn whole(dialect: &dyn WireApi, body: &str) -> Answer {
    let mut decoder = dialect.decoder();
    let value: Value = serde_json::from_str(body).unwrap();
    decoder.whole(&Payload { value: &value, bytes: body.as_bytes(), has_halves: false }).unwrap();
    finish(decoder.as_mut(), &here()).unwrap()
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
    Ok((finish(decoder.as_mut(), &here())?, shown))
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
