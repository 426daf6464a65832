//! The loop backends of cp-toolloop, one suite for all: whatever drives the loop, the words, the results and the ledger
//! are the same.

use std::path::Path;

use cp_testkit::{Outcome, Place, Program, Server, answered, counterpart, repository, server};
use cp_tests::check_contract;
use serde_json::{Value, json};

use crate::loop_elixir;
use crate::toolloop::{of, tool};

/// A loop, and the backend that it is to ask.
type Loop = (&'static str, &'static str);

/// A server of chat completions and of messages: its answer depends on how many answers the request already has.
fn server(answers: Vec<Value>) -> Server {
    Server::replying(move |request| {
        let anthropic = request.line().contains("/messages");
        let request = request.json();
        let messages = request["messages"].as_array().unwrap();
        let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
        let results = if anthropic {
            messages.last().and_then(|last| last["content"].as_array()).map_or(0, Vec::len)
        } else {
            messages.iter().rev().take_while(|message| message["role"] == "tool").count()
        };
        let asked = turn.checked_sub(1).map_or(0, |last| answers[last]["calls"].as_array().map_or(0, Vec::len));
        assert_eq!(results, asked, "every call has its result before the model is asked again");
        let answer = &answers[turn.min(answers.len() - 1)];
        server::json(200, &if anthropic { message(turn, answer) } else { completion(turn, answer) })
    })
}

fn calls(turn: usize, answer: &Value) -> impl Iterator<Item = (String, &Value)> {
    let calls = answer["calls"].as_array().into_iter().flatten().enumerate();
    calls.map(move |(at, call)| (format!("call_{turn}_{at}"), call))
}

fn completion(turn: usize, answer: &Value) -> Value {
    let mut message = json!({"role": "assistant", "content": answer["content"]});
    if !answer["calls"].is_null() {
        let function = |call: &Value| json!({"name": call["name"], "arguments": call["input"].to_string()});
        let called = |(id, call)| json!({"id": id, "type": "function", "function": function(call)});
        message["tool_calls"] = calls(turn, answer).map(called).collect();
    }
    let mut answer = answered("openai", &[message]);
    // The client of llm refuses an answer without it.
    answer["usage"] = json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10});
    answer
}

fn message(turn: usize, answer: &Value) -> Value {
    let text = answer["content"].as_str().map(|text| json!({"type": "text", "text": text}));
    let called = |(id, call): (String, &Value)| json!({"type": "tool_use", "id": id, "name": call["name"], "input": call["input"]});
    answered("anthropic", &text.into_iter().chain(calls(turn, answer).map(called)).collect::<Vec<_>>())
}

/// The loops that can run here.
fn loops() -> Vec<Loop> {
    let mut loops = vec![("native", "openai")];
    if counterpart("curl").is_some() {
        loops.extend([("bash", "openai"), ("bash", "anthropic")]);
    }
    loops.extend(counterpart("llm").is_some().then_some(("llm", "llm")));
    loops.extend(loop_elixir::is_installed().then_some(("elixir", "openai")));
    loops
}

/// A shell that finds the loops, and the program that one of them is made of.
fn shell(place: &Place, name: &str, line: &str) -> Program {
    let shell = place.shell("sh", line).also_on_path(repository().join("scripts/backends"));
    let shell = shell.env("LLM_USER_PATH", place.work.join("llm"));
    match counterpart("llm").filter(|_| name == "llm").as_deref().and_then(Path::parent) {
        Some(directory) => shell.also_on_path(directory),
        None => shell,
    }
}

/// Runs a question in the place; the server is at this address.
fn ask_at(place: &Place, (name, backend): Loop, options: &str, url: &str) -> Outcome {
    let line = format!(
        "cp-toolloop --tools tools --tool-backend {name} --backend {backend} -m gpt-4o-mini {options} -- 'Hi there'"
    );
    shell(place, name, &line)
        // Options and variables of the command line override the setting, also when a run is resumed.
        .env("CP_BACKEND", "stub")
        .env("OPENAI_API_KEY", "a-key")
        .env("OPENAI_BASE_URL", format!("{url}/v1"))
        .env("ANTHROPIC_API_KEY", "a-key")
        .env("ANTHROPIC_BASE_URL", url)
        .run()
}

/// The same question to every loop.
fn ask(which: Loop, answers: &[Value], options: &str) -> (Place, Outcome) {
    let place = Place::new();
    tool(&place, "echo_it", "cat");
    tool(&place, "fails", "echo half; echo why >&2; exit 3");
    let ran = ask_at(&place, which, options, &server(answers.to_vec()).url());
    (place, ran)
}

/// Results without what differs from run to run.
fn results(ran: &Outcome, place: &Place) -> Vec<Value> {
    let lines = ran.records();
    let here = place.work.display().to_string();
    let plain = |data: &&Value| {
        let content = data["content"].as_str().unwrap().replace(&here, "HERE");
        json!({"id": data["id"], "name": data["name"], "content": content, "is_error": data["is_error"], "exit_code": data["exit_code"]})
    };
    of(&lines, "tool_result").iter().map(plain).collect()
}

#[test]
fn every_loop_backend_gives_the_same_words_and_the_same_results() {
    let hard = json!({"text": "a \"q\"\n$HOME `x` \\ ä \u{1}", "nested": {"deep": [1, {"x": null}]}, "empty": ""});
    let stories = [
        vec![json!({"content": "Nothing to do."})],
        vec![json!({"content": "I look.", "calls": [{"name": "echo_it", "input": hard}]}), json!({"content": "Done."})],
        vec![
            json!({"content": null, "calls": [{"name": "echo_it", "input": {"n": 1}}, {"name": "rm_all", "input": {}}, {"name": "echo_it", "input": {"n": 2}}]}),
            json!({"content": null, "calls": [{"name": "fails", "input": {}}]}),
            json!({"content": "Two rounds."}),
        ],
    ];
    for story in stories {
        let mut expected: Option<Vec<Value>> = None;
        for which in loops() {
            let (place, ran) = ask(which, &story, "");
            assert_eq!(ran.status, 0, "{which:?}: {ran:?}");
            check_contract(&ran);
            let lines = ran.records();
            let last = of(&lines, "message").pop().unwrap()["content"].clone();
            assert_eq!(last, story.last().unwrap()["content"], "{which:?}");
            let results = results(&ran, &place);
            assert_eq!(expected.get_or_insert_with(|| results.clone()), &results, "{which:?}");
            // A call of a tool that is not there begins and ends like any other.
            let audited = place.sh("cp-log audit");
            assert_eq!(audited.status, 0, "{which:?}: {audited:?}");
        }
    }
}

#[test]
fn every_loop_backend_leaves_the_same_ledger() {
    let story = [
        json!({"content": "I look.", "calls": [{"name": "echo_it", "input": {"n": 1}}, {"name": "fails", "input": {}}]}),
        json!({"content": "Done."}),
    ];
    let mut expected: Option<Vec<String>> = None;
    for which in loops() {
        let (place, ran) = ask(which, &story, "");
        assert_eq!(ran.status, 0, "{which:?}: {ran:?}");
        let read = place.sh("L=$(cp-toolloop runs | jq -r '.data.items[0].ledger'); cp-log verify \"$L\" >verified && jq -r .event \"$L\"");
        assert_eq!(read.status, 0, "{which:?}: {read:?}");
        let all: Vec<&str> = read.stdout.lines().collect();
        // What cp-llm writes itself stands only where it is asked, and before the run ends.
        let asks = matches!(which.0, "native" | "elixir");
        let of_llm = all.iter().filter(|event| event.starts_with("llm.")).count();
        // The run writes the answers of another program itself.
        let messages = all.iter().filter(|event| **event == "message").count();
        assert_eq!((of_llm, messages), if asks { (4, 0) } else { (0, 2) }, "{which:?}: {all:?}");
        assert_eq!(all.last(), Some(&"run_end"), "{which:?}: {all:?}");
        let ours = all.into_iter().filter(|event| !event.starts_with("llm.") && *event != "message");
        let ours: Vec<String> = ours.map(str::to_owned).collect();
        assert_eq!(expected.get_or_insert_with(|| ours.clone()), &ours, "{which:?}");
    }
}

#[test]
fn every_loop_backend_stops_at_the_limit_and_fails_with_the_code_of_a_server_that_is_gone() {
    let endless = [json!({"content": null, "calls": [{"name": "echo_it", "input": {}}]})];
    for which in loops() {
        let (place, ran) = ask(which, &[endless.as_slice(), &endless].concat(), "--max-iterations 2");
        check_contract(&ran);
        let error = ran.failed(9, "E_BUDGET_EXHAUSTED");
        assert!(error["details"]["resume"].as_str().unwrap().contains("resume RUN-"), "{which:?}");
        if which.0 != "llm" {
            let ran = ask_at(&place, which, "", "http://127.0.0.1:9");
            check_contract(&ran);
            ran.failed(7, "E_NETWORK");
        }
    }
}

#[test]
fn a_loop_asks_the_backend_that_is_meant_or_refuses() {
    let answers = [json!({"content": "Hi."})];
    let asked = |name: &str, options: &str, variables: &[(&str, &str)]| {
        let place = Place::new();
        let server = server(answers.to_vec());
        let line = format!("cp-toolloop -m some-model --tool-backend {name} {options} -- hi");
        let mut asking = shell(&place, name, &line);
        for (name, value) in variables {
            asking = asking.env(name, value.replace("URL", &server.url()));
        }
        let ran = asking.run();
        let lines: Vec<String> = server.requests().iter().map(|request| request.line().to_owned()).collect();
        (ran, lines)
    };
    let both = [("OPENAI_BASE_URL", "URL/v1"), ("ANTHROPIC_BASE_URL", "URL")];
    let names = loops();
    let has = |name: &str| names.iter().any(|(known, _)| *known == name);
    if has("bash") {
        for (options, variables, line) in [
            ("--backend anthropic", both.as_slice(), "POST /v1/messages"),
            ("--backend openai", both.as_slice(), "POST /v1/chat/completions"),
            ("", &both[..1], "POST /v1/chat/completions"),
            ("", &both[1..], "POST /v1/messages"),
        ] {
            let (ran, lines) = asked("bash", options, variables);
            assert_eq!((ran.status, lines), (0, vec![line.to_owned()]), "{options}: {ran:?}");
        }
    }
    let set = [&both[..], &[("CP_BACKEND", "stub")]].concat();
    for name in ["bash", "llm"].into_iter().filter(|name| has(name)) {
        for (options, variables) in [("--backend stub", both.as_slice()), ("--backend gemini", &both), ("", &set)] {
            let (ran, lines) = asked(name, options, variables);
            assert_eq!((ran.failed(4, "E_CONFIG"), lines.len()), (ran.error(), 0), "{name} {options}: {ran:?}");
            let said = ran.first_error()["message"].as_str().unwrap().to_owned();
            assert!(said.contains("cannot ask the backend"), "{said}");
        }
    }
    if has("bash") {
        let (ran, _) = asked("bash", "", &both);
        assert!(ran.first_error()["message"].as_str().unwrap().contains("more than one backend"), "{ran:?}");
        let (ran, _) = asked("bash", "", &[]);
        assert!(ran.first_error()["message"].as_str().unwrap().contains("no backend is configured"), "{ran:?}");
    }
}
