//! Recorded answers and requests of each API. A row of `data/answers` is a body or the events of a stream, and what the
//! caller gets; a row of `data/requests` is a prompt, and what the provider gets.

use cp_testkit::Outcome;
use cp_testkit::server::{events, reply};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::llm::Llm;

const ANSWERS: [(&str, &str); 4] = [
    ("anthropic", include_str!("data/answers/anthropic.json")),
    ("openai", include_str!("data/answers/openai.json")),
    ("openai-responses", include_str!("data/answers/openai-responses.json")),
    ("gemini", include_str!("data/answers/gemini.json")),
];
const REQUESTS: [(&str, &str); 4] = [
    ("anthropic", include_str!("data/requests/anthropic.json")),
    ("openai", include_str!("data/requests/openai.json")),
    ("openai-responses", include_str!("data/requests/openai-responses.json")),
    ("gemini", include_str!("data/requests/gemini.json")),
];

/// Expected values by JSON Pointer; null also stands for a member that is absent.
type Expected = Map<String, Value>;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Answer {
    name: String,
    words: Vec<String>,
    retries: u8,
    http: Option<u16>,
    body: Option<Box<RawValue>>,
    /// Objects are the data of an event, and strings are whole events.
    events: Vec<Box<RawValue>>,
    status: i32,
    requests: Option<usize>,
    kinds: Vec<String>,
    message: Expected,
    error: Expected,
    printed: String,
    warned: String,
    /// A conversation with this answer, and the request for it at each backend; `same` is its own server.
    turns: Vec<Value>,
    back: Map<String, Value>,
    /// The blocks that are left out of it, by backend.
    lowered: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    name: String,
    #[serde(default)]
    words: Vec<String>,
    row: Option<Box<RawValue>>,
    #[serde(default)]
    status: i32,
    #[serde(default)]
    request: Expected,
    #[serde(default)]
    printed: String,
    #[serde(default)]
    lowered: Value,
}

#[track_caller]
fn check(found: &Value, expected: &Expected, what: &str) {
    for (pointer, expected) in expected {
        assert_eq!(found.pointer(pointer).unwrap_or(&Value::Null), expected, "{what}: {pointer} of {found}");
    }
}

/// Checks the request of a dry run, and the notice about blocks that are left out.
#[track_caller]
fn check_request(ran: &Outcome, expected: &Expected, lowered: &Value, what: &str) {
    assert_eq!(ran.status, 0, "{what}: {ran:?}");
    check(&ran.records()[0]["data"]["request"], expected, what);
    let notice = ran.closing()["meta"]["notices"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert!(notice.ends_with(lowered.as_str().unwrap_or_default()), "{what}: {notice}");
    assert_eq!(notice.is_empty(), lowered.is_null(), "{what}: {notice}");
}

#[test]
fn recorded_answers_are_decoded_and_sent_back() {
    for (api, answers) in ANSWERS {
        for answer in serde_json::from_str::<Vec<Answer>>(answers).unwrap() {
            check_answer(api, &answer, &format!("{api}: {}", answer.name));
        }
    }
}

fn check_answer(api: &str, answer: &Answer, what: &str) {
    let frame = |event: &RawValue| {
        serde_json::from_str::<String>(event.get())
            .unwrap_or_else(|_| format!("data: {}", event.get().replace('\n', "")))
    };
    let frames: Vec<String> = answer.events.iter().map(|event| frame(event) + "\n\n").collect();
    let script = match &answer.body {
        Some(body) => reply(answer.http.unwrap_or(200), "application/json", "", body.get().as_bytes()),
        None => events(&frames.iter().map(String::as_bytes).collect::<Vec<_>>()),
    };
    let (llm, server) = Llm::playing(api, vec![script]);
    let retries = answer.retries.to_string();
    let mut words = vec!["-m", "m", "--retry-max-wait", "0", "--retries", &retries];
    words.extend(answer.words.iter().map(String::as_str));
    let ran = llm.run(&[&words[..], &["--", "hi"]].concat());
    assert_eq!((ran.status, server.requests().len()), (answer.status, answer.requests.unwrap_or(1)), "{what}: {ran:?}");
    assert!(ran.stdout.contains(&answer.printed) && ran.stderr.contains(&answer.warned), "{what}: {ran:?}");
    if answer.status != 0 {
        return check(&ran.first_error(), &answer.error, what);
    }
    let message = ran.of("message").remove(0);
    check(&message, &answer.message, what);
    let kinds = message["blocks"].as_array().into_iter().flatten().map(|block| block["type"].as_str().unwrap());
    assert!(answer.kinds.is_empty() || kinds.eq(answer.kinds.iter().map(String::as_str)), "{what}: {message}");
    let turn = json!({"role": "assistant", "content": message["content"], "blocks": message["blocks"]});
    let turns: Vec<&Value> = answer.turns.iter().map(|known| if known == "ANSWER" { &turn } else { known }).collect();
    let row = json!({ "messages": turns }).to_string();
    for (backend, expected) in &answer.back {
        let same = backend == "same";
        let elsewhere = Llm::new().set("CP_BACKEND", backend);
        let ran = (if same { &llm } else { &elsewhere }).feed(&["-m", "m", "--rows", "--dry-run"], &row);
        let lowered = answer.lowered.get(backend).unwrap_or(&Value::Null);
        let notices = ran.closing()["meta"]["notices"][0]["message"].clone();
        let lowered = if answer.lowered.is_empty() { &notices } else { lowered };
        check_request(&ran, expected.as_object().unwrap(), lowered, &format!("{what}: back to {backend}"));
    }
}

#[test]
fn recorded_requests_are_encoded() {
    for (api, requests) in REQUESTS {
        for Sent { name, words, row, status, request, printed, lowered } in
            serde_json::from_str::<Vec<Sent>>(requests).unwrap()
        {
            let what = format!("{api}: {name}");
            let mut arguments = vec!["--backend", api, "--dry-run"];
            arguments.extend(words.iter().map(String::as_str));
            let ran = match row {
                Some(row) => Llm::new().feed(&[&arguments[..], &["--rows"]].concat(), &row.get().replace('\n', "")),
                None => Llm::new().run(&[&arguments[..], &["--", "hi"]].concat()),
            };
            assert_eq!(ran.status, status, "{what}: {ran:?}");
            assert!(ran.stdout.contains(&printed), "{what}: {ran:?}");
            if status == 0 && !request.is_empty() {
                check_request(&ran, &request, &lowered, &what);
            }
        }
    }
}
