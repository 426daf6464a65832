//! Streams of every API, with oddities of real servers, are split at every byte. The decoded answer is always the same,
//! and equal to the answer in one body.

use cp_common::Result;
use cp_common::wire::Origin;
use cp_http::sse::Parser;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire_api::{Answer, Partial, Payload, Request, TextKind, WireApi, decode_event, finish};
use crate::wire_api::{anthropic, gemini, openai, responses};

/// An answer as a stream and in one body. Some servers split a surrogate pair between two deltas.
#[derive(Deserialize)]
struct Sample {
    api: String,
    thoughts: String,
    kinds: Vec<String>,
    stream: Vec<String>,
    whole: Box<RawValue>,
}

fn samples() -> Vec<Sample> {
    serde_json::from_str(include_str!("../../../tests/data/streams.json")).unwrap()
}

/// Streams that end with a stop reason other than the usual one, or without `[DONE]`.
fn other_streams() -> Vec<(String, String)> {
    let all: Value = serde_json::from_str(include_str!("../../../tests/data/ends_of_streams.json")).unwrap();
    let streams = all.as_array().unwrap().iter().map(|sample| {
        let events = sample["events"].as_array().unwrap().iter();
        let events = events.map(|event| event.as_str().map_or_else(|| event.to_string(), str::to_owned));
        (sample["api"].as_str().unwrap().to_owned(), stream_of(&events.collect::<Vec<_>>()))
    });
    streams.collect()
}

pub(super) fn api(name: &str) -> WireApi {
    match name {
        "anthropic" => anthropic::API,
        "openai" => openai::COMPATIBLE,
        "openai-responses" => responses::API,
        _ => gemini::API,
    }
}

fn here(api: &str) -> Origin {
    Origin { endpoint: "http://127.0.0.1".to_owned(), dialect: api.to_owned() }
}

/// The answer in a whole body.
pub(super) fn whole(name: &str, body: &str) -> Answer {
    let (mut decoder, mut partial) = ((api(name).decoder)(), Partial::default());
    decoder.event(&Payload::parse(body.as_bytes(), None).unwrap(), &mut partial).unwrap();
    partial.ended = true;
    finish(decoder.as_mut(), partial, &here(name)).unwrap()
}

/// The answer, and the text and the reasoning that were passed on.
pub(super) fn decoded(name: &str, pieces: &[&[u8]]) -> Result<(Answer, [String; 2])> {
    let (mut decoder, mut partial) = ((api(name).decoder)(), Partial::default());
    let (mut parser, mut shown) = (Parser::new(), [String::new(), String::new()]);
    let mut show = |kind: TextKind, text: &str| {
        shown[usize::from(kind == TextKind::Thinking)].push_str(text);
        Ok(())
    };
    for piece in pieces {
        parser.push(piece, |event| decode_event(decoder.as_mut(), &mut partial, &event, &mut show).map(|_| ()))?;
    }
    if let Some(event) = parser.finish() {
        decode_event(decoder.as_mut(), &mut partial, &event, &mut show)?;
    }
    Ok((finish(decoder.as_mut(), partial, &here(name))?, shown))
}

#[test]
fn stream_is_equal_at_any_split() {
    for Sample { api, thoughts, kinds, stream, whole: body } in samples() {
        let stream = stream.concat();
        let bytes = stream.as_bytes();
        let (first, shown) = decoded(&api, &[bytes]).unwrap();
        let text = "Gr\u{fc}\u{df}e \u{1F600}!";
        assert_eq!((first.content.text().as_str(), &shown), (text, &[text.to_owned(), thoughts]));
        assert_eq!(first.calls.len(), 1, "{first:?}");
        assert_eq!((first.calls[0].name.as_str(), first.calls[0].input.get()), ("f", "{\"a\":1e2}"), "{stream}");
        let usage = first.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, first.stop.as_str()), (7, 3, "tool_use"));
        let found: Vec<String> = first.blocks.iter().map(|block| block.view().unwrap().kind.into_owned()).collect();
        assert_eq!(found, kinds);
        assert_eq!(format!("{first:#?}"), format!("{:#?}", whole(&api, body.get())));
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            let (split, words) = decoded(&api, &[one, other]).unwrap();
            assert_eq!((format!("{split:?}"), words), (format!("{first:?}"), shown.clone()), "cut at {cut}: {stream}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(format!("{:?}", decoded(&api, &single).unwrap().0), format!("{first:?}"));
    }
}

fn stream_of(events: &[String]) -> String {
    format!("data: {}\n\n", events.join("\n\ndata: "))
}

/// The places after the blank lines of a stream.
fn boundaries(stream: &str) -> Vec<usize> {
    let ends = ["\n\n", "\r\n\r\n", "\r\r"];
    (1..stream.len())
        .filter(|at| stream.is_char_boundary(*at) && ends.iter().any(|e| stream[..*at].ends_with(e)))
        .collect()
}

/// The stop reason ends an answer: some servers send no terminal event after it.
#[test]
fn stream_without_stop_reason_is_error_at_every_boundary() {
    let samples = samples().into_iter().map(|sample| (sample.api, sample.stream.concat()));
    for (api, stream) in samples.chain(other_streams()) {
        let stream = stream.trim_end();
        let answer = decoded(&api, &[stream.as_bytes()]).unwrap().0;
        assert!(!answer.stop.is_empty(), "{stream}");
        assert!(!stream.contains("completion_tokens") || answer.usage.unwrap().output_tokens == 3, "{stream}");
        let cuts = boundaries(stream);
        let ends = ["\"finish_reason\":\"", "\"stop_reason\":\"", "finishReason", "blockReason"];
        assert!(!cuts.is_empty(), "{stream}");
        for (at, cut) in cuts.iter().enumerate() {
            let outcome = decoded(&api, &[&stream.as_bytes()[..*cut]]);
            let has_stop = ends.iter().any(|end| stream[..*cut].contains(end));
            assert_eq!(outcome.is_ok(), has_stop, "{at} of {}: {}", cuts.len(), &stream[..*cut]);
            // A `[DONE]` does not end the streams of other APIs.
            let foreign = format!("{}data: [DONE]\n\n", &stream[..*cut]);
            let is_error = decoded(&api, &[foreign.as_bytes()]).is_err();
            assert!(api == "openai" || is_error != has_stop, "{foreign}");
        }
    }
}

#[test]
fn second_start_in_stream_is_error() {
    for Sample { api, stream, .. } in samples().into_iter().filter(|sample| sample.stream[0].contains("event:")) {
        let stream = stream.concat();
        for cut in boundaries(&stream) {
            let spliced = [&stream.as_bytes()[..cut], stream.as_bytes()];
            assert!(decoded(&api, &spliced).is_err(), "{}", &stream[..cut]);
        }
    }
}

#[test]
fn call_of_gemini_in_pieces_is_error() {
    let part = |call: Value| serde_json::json!({"candidates":[{"content":{"parts":[{"functionCall":call}]},"finishReason":"STOP"}]});
    let outcome = |call: Value| decoded("gemini", &[stream_of(&[part(call).to_string()]).as_bytes()]);
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
    let body = |name: &str, block: Value| {
        let turn = serde_json::json!({"role": "user", "content": [block]});
        let request = Request { messages: vec![serde_json::from_value(turn).unwrap()], ..Request::default() };
        (api(name).body)(&request, &here(name))
    };
    let sources = [
        Value::Null,
        serde_json::json!({"type": "file", "file_id": "f1"}),
        serde_json::json!({"type": "base64", "media_type": "image/png"}),
        serde_json::json!({"type": "base64", "data": "aa"}),
        serde_json::json!({"type": "url"}),
        serde_json::json!({"type": "content", "content": []}),
    ];
    for api in ["openai", "openai-responses", "gemini"] {
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
