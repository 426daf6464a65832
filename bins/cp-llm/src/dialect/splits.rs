//! Streams of every dialect, with the traps that real servers set, cut in two at every byte: what comes out is always the same.

use cp_common::Result;

use super::{Answer, Dialect, feed};
use crate::http::sse::Parser;

/// Half of a surrogate pair in one delta and half in the next, as some servers send them.
const ANTHROPIC: &str = concat!(
    "\u{feff}event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"x\",\"usage\":{\"input_tokens\":7}}}\r\n\r\n",
    "event: ping \rdata: {\"type\":\"ping\"}\r\r: a comment\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\ndata: \"delta\":{\"type\":\"text_delta\",\"text\":\"Gr\u{fc}\u{df}e \\ud83d\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\ude00!\"}}\n\n",
    "event: never_heard_of\ndata: {\"type\":\"never_heard_of\"}\n\nid: 7\nretry: 10\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"e2}\"}}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":3}}\n\n",
    "data: {\"type\":\"message_stop\"}\n"
);

const OPENAI: &str = concat!(
    "data: {\"id\":\"c\",\"model\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n: keep-alive\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Gr\u{fc}\u{df}e \\ud83d\"}}]}  \r\n\r\n",
    "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ude00!\"}}]}\r\r",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"t\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1e2}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]"
);

const RESPONSES: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"x\"}}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"Gr\u{fc}\u{df}e \\ud83d\"}\r\n\r\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"\\ude00!\"}\n\n",
    "data: {\"type\":\"response.output_item.added\",\"output_index\":1,\"item\":{\"type\":\"function_call\",\"call_id\":\"t\",\"name\":\"f\",\"arguments\":\"\"}}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":1,\"delta\":\"{\\\"a\\\"\"}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":1,\"delta\":\":1e2}\"}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}}\n\n"
);

const GEMINI: &str = concat!(
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Gr\u{fc}\u{df}e \\ud83d\"}]}}],\"responseId\":\"g\",\"modelVersion\":\"x\"}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\\ude00!\"}]}}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"id\":\"t\",\"name\":\"f\",\"args\":{\"a\":1e2}}}]},\"finishReason\":\"STOP\"}],",
    "\"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":3}}\n\n"
);

/// The answer, and the words in the order they were shown.
fn decoded(dialect: &dyn Dialect, pieces: &[&[u8]]) -> Result<(Answer, String)> {
    let (mut decoder, mut parser, mut shown) = (dialect.decoder(), Parser::new(), String::new());
    let mut show = |text: &str| {
        shown.push_str(text);
        Ok(())
    };
    for piece in pieces {
        parser.push(piece, |event| feed(decoder.as_mut(), &event, &mut show).map(|_| ()))?;
    }
    if let Some(event) = parser.finish() {
        feed(decoder.as_mut(), &event, &mut show)?;
    }
    Ok((std::mem::take(decoder.partial()).finish()?, shown))
}

#[test]
fn no_split_changes_what_a_stream_says() {
    let wires: [(&dyn Dialect, &str); 4] = [
        (&super::anthropic::Anthropic, ANTHROPIC),
        (&super::openai::OpenAi { original: true }, OPENAI),
        (&super::responses::Responses, RESPONSES),
        (&super::gemini::Gemini, GEMINI),
    ];
    for (wire, stream) in wires {
        let bytes = stream.as_bytes();
        let (whole, shown) = decoded(wire, &[bytes]).unwrap();
        assert_eq!((whole.text.as_str(), shown.as_str()), ("Gr\u{fc}\u{df}e \u{1F600}!", "Gr\u{fc}\u{df}e \u{1F600}!"));
        assert_eq!(whole.calls.len(), 1, "{whole:?}");
        assert_eq!((whole.calls[0].name.as_str(), whole.calls[0].input.get()), ("f", "{\"a\":1e2}"), "{stream}");
        assert_eq!((whole.usage.unwrap().input, whole.usage.unwrap().output, whole.stop.as_str()), (7, 3, "tool_use"));
        for cut in 0..=bytes.len() {
            let (first, rest) = bytes.split_at(cut);
            let (split, words) = decoded(wire, &[first, rest]).unwrap();
            assert_eq!((format!("{split:?}"), words), (format!("{whole:?}"), shown.clone()), "cut at {cut}: {stream}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(format!("{:?}", decoded(wire, &single).unwrap().0), format!("{whole:?}"));
    }
}
