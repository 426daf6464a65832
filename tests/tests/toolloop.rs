//! cp-toolloop among the others: what comes from cp-compose, what goes to cp-session and cp-log, and the loop backends, one suite for all.

use std::path::Path;

use cp_testkit::{Outcome, Place, Server, counterpart, repository, server};
use cp_tests::check_contract;
use serde_json::{Value, json};

/// A tool of three lines of shell.
fn tool(place: &Place, name: &str, body: &str) {
    let describe = json!({"name": name, "description": "A tool.", "parameters": {"type": "object"}});
    let script = format!("#!/bin/sh\nif [ \"$1\" = --describe ]; then echo '{describe}'; exit; fi\n{body}\n");
    place.work.executable(format!("tools/{name}"), script);
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).map(|line| &line["data"]).collect()
}

#[test]
fn turns_that_a_session_keeps_alternate_strictly() {
    let place = Place::new();
    tool(&place, "echo_it", "cat");
    let ran = place.sh(
        r#"S=$(cp-session start | jq -r .data.session_id)
        for n in 1 2; do
            echo '{"content":"let me see","tool_calls":[{"name":"echo_it","input":{"n":1}},{"name":"nope"}]}' >>script
            echo '{"tool_calls":[{"name":"echo_it"}]}' >>script
            echo '{"content":"done"}' >>script
            cp-compose --session "$S" "question $n" | cp-toolloop --tools tools --backend stub --stub-script script | cp-session tee "$S" >out.$n || exit
        done
        cp-session load "$S" | jq -r 'if has("data") and .data.messages then .data.messages[].role elif .data.role then .data.role else empty end' >roles
        tail -n 1 out.2; cat roles | tr '\n' ' '; cp-session count "$S" | jq .data.count"#,
    );
    assert_eq!(ran.status, 0, "{ran:?}");
    let (closing, roles) = ran.stdout.split_once('\n').unwrap();
    assert_eq!(serde_json::from_str::<Value>(closing).unwrap()["ok"], true, "{closing}");
    assert_eq!(roles, format!("{}12\n", "user assistant ".repeat(6)), "{}", ran.stderr);
}

#[test]
fn a_failure_before_it_travels_through() {
    let ran = Place::new().sh("cp-compose --agent nobody x | cp-toolloop --backend stub | cp-log tee r.jsonl");
    check_contract(&ran);
    assert_eq!((ran.status, &ran.closing()["error"]["code"]), (3, &json!("E_NOT_FOUND")), "{}", ran.stderr);
}

#[test]
fn each_prompt_of_a_stream_is_a_run_of_its_own() {
    let place = Place::new();
    let ran = place.sh("{ cp-compose a; cp-compose b; } | cp-toolloop --backend stub");
    check_contract(&ran);
    assert_eq!(of(&ran.records(), "message").len(), 2, "{ran:?}");
    let runs = place.sh("cp-toolloop runs | jq -r '.data.items[] | .status, .ledger'");
    let lines: Vec<&str> = runs.stdout.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (4, "completed", "completed"), "{runs:?}");
    assert_ne!(lines[1], lines[3]);
    let verified = place.sh(&format!("cp-log verify {} {}", lines[1], lines[3]));
    assert_eq!(verified.status, 0, "{verified:?}");
}

#[test]
fn the_example_tools_do_what_they_say() {
    let place = Place::new();
    place.work.write("a.log", "one\nERROR two\nERROR three\n");
    let calls = json!({"tool_calls": [
        {"name": "count_lines", "input": {"path": "a.log", "containing": "ERROR"}},
        {"name": "first_line", "input": {"path": "a.log", "containing": "ERROR"}},
        {"name": "word_count", "input": {"text": "a b\nc"}},
        {"name": "disk_usage", "input": {}},
        {"name": "count_lines", "input": {"path": "absent.log"}},
        {"name": "count_lines", "input": {"file": "a.log"}},
    ]});
    place.work.write("script", format!("{calls}\n"));
    let tools = repository().join("scripts/tools");
    let ran = place.sh(&format!("cp-toolloop --tools {} --backend stub --stub-script script x", tools.display()));
    assert_eq!(ran.status, 0, "{ran:?}");
    let lines = ran.records();
    let results = of(&lines, "tool_result");
    let content: Vec<&str> = results.iter().map(|result| result["content"].as_str().unwrap().trim()).collect();
    assert_eq!((content[0], content[1]), ("2", "ERROR two"));
    assert_eq!(content[2], r#"{"lines": 2, "words": 3, "characters": 5}"#);
    assert!(content[3].contains('%'), "{}", content[3]);
    let failed: Vec<bool> = results.iter().map(|result| result["is_error"] == true).collect();
    assert_eq!(failed, [false, false, false, false, true, true], "{content:?}");
}

#[test]
fn a_signal_in_the_middle_of_a_pipe_leaves_every_line_whole_and_nothing_behind() {
    let place = Place::new();
    tool(&place, "slow", "echo $$ >pid; sleep 31.4159");
    place.work.write("script", "{\"tool_calls\":[{\"name\":\"slow\"}]}\n");
    let ran = place.sh("cp-toolloop --tools tools --backend stub --stub-script script x >out & \
         until [ -s pid ]; do sleep 0.05; done; kill -INT $!; wait $!; echo $?; tail -n 1 out | jq -r .error.code; \
         cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 31[.]4159'; true");
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), ["130", "E_INTERRUPTED", "0"], "{ran:?}");
    let out = place.work.read("out");
    assert!(out.ends_with('\n') && out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{out}");
}

/// A server of chat completions: its answer depends on how many answers the request already has.
fn server(answers: Vec<Value>) -> Server {
    Server::replying(move |request| {
        let request = request.json();
        let messages = request["messages"].as_array().unwrap();
        let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
        let results = messages.iter().rev().take_while(|message| message["role"] == "tool").count();
        let asked = turn.checked_sub(1).map_or(0, |last| answers[last]["calls"].as_array().map_or(0, Vec::len));
        assert_eq!(results, asked, "every call has its result before the model is asked again");
        server::json(200, &completion(turn, &answers[turn.min(answers.len() - 1)]))
    })
}

fn completion(turn: usize, answer: &Value) -> Value {
    let mut message = json!({"role": "assistant", "content": answer["content"]});
    let calls = answer["calls"].as_array().cloned().unwrap_or_default();
    let called = calls.iter().enumerate().map(|(at, call)| {
        json!({"id": format!("call_{turn}_{at}"), "type": "function",
            "function": {"name": call["name"], "arguments": call["input"].to_string()}})
    });
    if !calls.is_empty() {
        message["tool_calls"] = called.collect();
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    json!({"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}})
}

/// The loop backends that can run here.
fn backends() -> Vec<&'static str> {
    let mut backends = vec!["native"];
    backends.extend((counterpart("curl").is_some() && counterpart("jq").is_some()).then_some("bash"));
    backends.extend(counterpart("llm").is_some().then_some("llm"));
    backends
}

/// The same question to every backend, and what must be the same from all: the last words and the results.
fn ask(backend: &str, answers: &[Value], options: &str) -> (Place, Outcome) {
    let place = Place::new();
    tool(&place, "echo_it", "cat");
    tool(&place, "fails", "echo half; echo why >&2; exit 3");
    let native = if backend == "native" { "--backend openai" } else { "" };
    let line =
        format!("cp-toolloop --tools tools --tool-backend {backend} {native} -m gpt-4o-mini {options} -- 'Hi there'");
    let mut asking = place.shell("sh", &line).also_on_path(repository().join("scripts/backends"));
    if let Some(directory) =
        (backend == "llm").then(|| counterpart("llm")).flatten().and_then(|llm| llm.parent().map(Path::to_owned))
    {
        asking = asking.also_on_path(directory);
    }
    let server = server(answers.to_vec());
    let ran = asking
        .env("LLM_USER_PATH", place.work.join("llm"))
        .env("OPENAI_API_KEY", "a-key")
        .env("OPENAI_BASE_URL", format!("{}/v1", server.url()))
        .run();
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
        // The agent asks the same server, and is told that it may not start another.
        vec![
            json!({"content": null, "calls": [{"name": "agent", "input": {"task": "Look."}}]}),
            json!({"content": "Found."}),
        ],
    ];
    for story in stories {
        let mut expected: Option<Vec<Value>> = None;
        for (backend, options) in backends().into_iter().flat_map(|backend| [(backend, ""), (backend, "--parallel 3")])
        {
            let (place, ran) = ask(backend, &story, options);
            assert_eq!(ran.status, 0, "{backend}: {ran:?}");
            check_contract(&ran);
            let lines = ran.records();
            let last = of(&lines, "message").pop().unwrap()["content"].clone();
            assert_eq!(last, story.last().unwrap()["content"], "{backend}");
            let results = results(&ran, &place);
            assert_eq!(expected.get_or_insert_with(|| results.clone()), &results, "{backend}");
        }
    }
}

#[test]
fn every_loop_backend_stops_at_the_limit_and_says_how_to_go_on() {
    let endless = [json!({"content": null, "calls": [{"name": "echo_it", "input": {}}]})];
    for backend in backends() {
        let (_place, ran) = ask(backend, &[endless.as_slice(), &endless].concat(), "--max-iterations 2");
        check_contract(&ran);
        assert_eq!(
            (ran.status, &ran.closing()["error"]["code"]),
            (9, &json!("E_BUDGET_EXHAUSTED")),
            "{backend}: {ran:?}"
        );
        assert!(ran.closing()["error"]["details"]["resume"].as_str().unwrap().contains("resume RUN-"), "{backend}");
    }
}

#[test]
fn a_loop_backend_whose_server_is_gone_fails_with_its_code() {
    for backend in backends().into_iter().filter(|backend| *backend == "bash") {
        let place = Place::new();
        let ran = place
            .shell("sh", &format!("cp-toolloop --tool-backend {backend} -m m -- hi"))
            .also_on_path(repository().join("scripts/backends"))
            .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
            .run();
        check_contract(&ran);
        assert_eq!((ran.status, &ran.closing()["error"]["code"]), (7, &json!("E_NETWORK")), "{ran:?}");
    }
}
