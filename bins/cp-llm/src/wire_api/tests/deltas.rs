//! Blocks are the same for every division of reasoning, text and arguments into deltas, and equal to the blocks of the
//! whole answer.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::splits::{decoded, whole};

/// The reasoning, the text and the arguments of a call.
struct Sample {
    thought: String,
    text: String,
    arguments: String,
}

/// Splits a text into pieces, which may be empty.
fn pieces<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| *cut.get(&bounds)).chain([0, text.len()]).collect();
    at.sort_unstable();
    at.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect()
}

/// The events and the whole answer in each API.
fn answers(sample: &Sample, cut: impl Fn(&str) -> Vec<&str>) -> Vec<(&'static str, Vec<Value>, Value)> {
    let Sample { thought, text, arguments } = sample;
    let input: Value = serde_json::from_str(arguments).unwrap();
    let each = |text: &str, event: &dyn Fn(&str) -> Value| cut(text).into_iter().map(event).collect::<Vec<_>>();

    let start =
        |index: u64, block: Value| vec![json!({"type": "content_block_start", "index": index, "content_block": block})];
    let delta = |index: u64, kind: &str, name: &str, piece: &str| json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, name: piece}});
    let anthropic = [
        vec![json!({"type": "message_start", "message": {"id": "m"}})],
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        each(thought, &|piece| delta(0, "thinking_delta", "thinking", piece)),
        vec![delta(0, "signature_delta", "signature", "s")],
        start(1, json!({"type": "text", "text": ""})),
        each(text, &|piece| delta(1, "text_delta", "text", piece)),
        start(2, json!({"type": "tool_use", "id": "t", "name": "f", "input": {}})),
        each(arguments, &|piece| delta(2, "input_json_delta", "partial_json", piece)),
        vec![json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}), json!({"type": "message_stop"})],
    ];
    let content = json!([{"type": "thinking", "thinking": thought, "signature": "s"}, {"type": "text", "text": text},
        {"type": "tool_use", "id": "t", "name": "f", "input": input}]);

    let choice = |delta: Value| json!({"id": "m", "choices": [{"index": 0, "delta": delta}]});
    let call = |arguments: &str| json!({"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let openai = [
        each(thought, &|piece| choice(json!({"reasoning_content": piece}))),
        each(text, &|piece| choice(json!({"content": piece}))),
        each(arguments, &|piece| choice(json!({"tool_calls": [call(piece)]}))),
        vec![json!({"id": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": {}})],
    ];
    let message = json!({"reasoning_content": thought, "content": text, "tool_calls": [call(arguments)]});

    let part = |part: Value| json!({"responseId": "m", "candidates": [{"content": {"parts": [part]}}]});
    let (signed, called) = (
        json!({"text": "", "thoughtSignature": "s"}),
        json!({"functionCall": {"id": "t", "name": "f", "args": input}}),
    );
    let gemini = [
        each(thought, &|piece| part(json!({"text": piece, "thought": true}))),
        each(text, &|piece| part(json!({"text": piece}))),
        vec![part(signed.clone()), part(called.clone()), json!({"candidates": [{"finishReason": "STOP"}]})],
    ];
    let parts = json!([{"text": thought, "thought": true}, {"text": text}, signed, called]);

    vec![
        ("anthropic", anthropic.concat(), json!({"id": "m", "content": content, "stop_reason": "tool_use"})),
        (
            "openai",
            openai.concat(),
            json!({"id": "m", "choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {}}),
        ),
        (
            "gemini",
            gemini.concat(),
            json!({"responseId": "m", "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}),
        ),
    ]
}

proptest! {
    #[test]
    fn deltas_make_blocks_of_whole_answer(
        thought in "\\PC{1,16}",
        text in "\\PC{1,16}",
        word in "\\PC{0,8}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let sample = Sample { thought, text, arguments: json!({ "word": word, "n": 1 }).to_string() };
        for (api, events, body) in answers(&sample, |text| pieces(text, &cuts)) {
            let stream: Vec<Vec<u8>> = events.iter().map(|event| format!("data: {event}\n\n").into_bytes()).collect();
            let stream: Vec<&[u8]> = stream.iter().map(Vec::as_slice).collect();
            let (streamed, shown) = decoded(api, &stream).unwrap();
            prop_assert_eq!(&shown, &[sample.text.clone(), sample.thought.clone()]);
            prop_assert_eq!(format!("{:?}", streamed), format!("{:?}", whole(api, &body.to_string())));
        }
    }
}
