//! Runs of rows: what they used together, several at the same time, and going on after a kill without doing anything
//! twice.

use std::fs::OpenOptions;
use std::path::PathBuf;

use cp_testkit::{Background, Outcome, Signal, records_of, until};
use serde_json::{Value, json};

use crate::toolloop::{Results as _, ToolLoop, words_of};

/// A tool that keeps each input once.
const STEP: &str =
    r#"n=$(cat); echo "$n" >>calls; grep -qxF "$n" effects 2>/dev/null || echo "$n" >>effects; echo did"#;

/// A place where row number n calls `step` with that number, then says `done n`. The stub answers by the number of
/// turns before.
fn place(rows: usize, tool: &str) -> ToolLoop {
    let place = ToolLoop::new();
    place.tool("step", r#","idempotent":true,"timeout":60"#, tool);
    let used = r#""usage":{"input_tokens":3,"output_tokens":2}"#;
    let lines = (0..rows).flat_map(|n| {
        let call = format!(r#"{{"tool_calls":[{{"name":"step","input":{{"n":{n}}}}}],{used}}}"#);
        [call, format!(r#"{{"content":"done {n}",{used}}}"#)]
    });
    let lines: Vec<String> = lines.collect();
    place.script(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    place
}

fn row(n: usize) -> String {
    let turn = |role: &str| json!({"role": role, "content": "x"});
    let before = (0..2 * n).flat_map(|_| [turn("user"), turn("assistant")]);
    let messages: Vec<Value> = before.chain([json!({"role": "user", "content": format!("row {n}")})]).collect();
    format!("{}\n", json!({ "messages": messages, "row": {"n": n} }))
}

fn rows(range: impl IntoIterator<Item = usize>) -> String {
    range.into_iter().map(row).collect()
}

fn over_rows(place: &ToolLoop, input: &str, more: &[&str]) -> Outcome {
    place.command(&[&["--tools", &place.tools(), "--rows"], more].concat()).stdin(input).run()
}

/// Starts the program with its output appended to `out`, which also is its `--skip-done` where that is asked.
fn appending(place: &ToolLoop, input: &str, more: &[&str]) -> Background {
    let out = OpenOptions::new().create(true).append(true).open(out(place)).unwrap();
    place.command(&[&["--tools", &place.tools(), "--rows"], more].concat()).stdin(input).stdout_to(out).start()
}

fn out(place: &ToolLoop) -> PathBuf {
    place.work.join("out")
}

/// The last messages of rows, as (index, text).
fn answers(records: &[Value]) -> Vec<(u64, String)> {
    let last = records.iter().filter(|line| line["type"] == "message" && line["data"]["tool_calls"] == json!([]));
    let last = last.inspect(|line| assert!(line["data"]["row"]["n"].is_u64(), "{line}"));
    last.map(|line| (line["data"]["index"].as_u64().unwrap(), line["data"]["content"].as_str().unwrap().to_owned()))
        .collect()
}

fn expected(rows: impl IntoIterator<Item = usize>) -> Vec<(u64, String)> {
    (0..).zip(rows).map(|(index, n)| (index, format!("done {n}"))).collect()
}

/// The numbers of the lines that the tool wrote.
fn sorted(place: &ToolLoop, name: &str) -> Vec<String> {
    let mut lines: Vec<String> = place.written(name).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn each_once(rows: usize) -> Vec<String> {
    (0..rows).map(|n| format!("{{\"n\":{n}}}")).collect()
}

#[test]
fn summary_has_usage_of_all_runs() {
    let two = place(2, STEP);
    let one = over_rows(&two, &rows(0..1), &[]);
    let data = &one.closing()["data"];
    assert!(data["run_id"].as_str().unwrap().starts_with("RUN-") && data["runs"].is_null(), "{one:?}");
    assert_eq!(data["usage"]["input_tokens"], 6);
    // The answer to the call of row 3 fails.
    let five = place(5, STEP);
    let script = five.root.read("script").replace(r#"{"content":"done 3","#, r#"{"error":{"code":"E_FORBIDDEN"},"#);
    five.root.write("script", script);
    for jobs in ["1", "3"] {
        let ran = over_rows(&two, &rows(0..2), &["--jobs", jobs]);
        let data = &ran.closing()["data"];
        assert_eq!((ran.status, &data["runs"], &data["run_id"]), (0, &json!(2), &Value::Null), "{ran:?}");
        assert_eq!((&data["iterations"], &data["usage"]["output_tokens"]), (&json!(4), &json!(8)));
        let ran = over_rows(&five, &rows(0..5), &["--jobs", jobs]);
        let data = &ran.closing()["error"]["details"];
        let counts =
            ["runs", "succeeded", "failed", "iterations", "tool_calls"].map(|name| data[name].as_u64().unwrap());
        assert_eq!((ran.status, counts), (1, [5, 4, 1, 9, 5]), "{ran:?}");
        assert_eq!(data["usage"]["input_tokens"], 27, "{ran:?}");
        let failed = ran.first_error();
        let details = &failed["details"];
        assert_eq!(
            (&failed["code"], &details["row"], &details["usage"]),
            (&json!("E_FORBIDDEN"), &json!({"n": 3}), &Value::Null)
        );
        assert!(details["run_id"].is_string() && details["receipt"]["hash"].is_string(), "{failed}");
        assert!(details["resume"].as_str().unwrap().contains(details["run_id"].as_str().unwrap()), "{failed}");
        assert_eq!((answers(&ran.records()).len(), &details["_untrusted"]), (4, &json!(["/row"])));
    }
}

#[test]
fn parallel_rows_are_printed_in_order() {
    // Row 0 waits for what row 1 writes, and that for what row 0 writes; then row 1 is done first, and its answer
    // waits.
    let tool = "n=$(cat | tr -cd 0-9); o=$((1 - n)); echo x >at$n; until [ -e at$o ]; do sleep 0.02; done
        if [ $n = 0 ]; then until [ -e go ]; do sleep 0.02; done; fi; echo met";
    let place = place(2, tool);
    let first = appending(&place, &rows(0..2), &["--jobs", "2"]);
    let runs = place.home.at("planes/ho1/runs");
    until("one that is over", || runs.exists() && runs.names().iter().any(|name| name.ends_with(".recorded")));
    place.work.write("go", "");
    assert_eq!((first.finish().status, answers(&records_of(place.written("out").as_bytes()))), (0, expected(0..2)));
    let ran = over_rows(&place, &rows(0..2), &["--jobs", "2"]);
    assert_eq!((ran.status, answers(&ran.records())), (0, expected(0..2)), "{ran:?}");
    assert_eq!(ran.results(), ["met\n", "met\n"]);
    let indexes: Vec<u64> = ran.of("tool_result").iter().map(|data| data["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [0, 1]);
    let text = over_rows(&place, &rows(0..2), &["--jobs", "2", "--format", "text"]);
    assert_eq!(text.stdout, "done 0\ndone 1\n", "{text:?}");
}

#[test]
fn killed_rows_are_resumed_with_each_effect_once() {
    for at in ["\"tool_call\"", "done 0"] {
        for first in [&["--jobs", "2"][..], &[]] {
            let place = place(4, STEP);
            let child = appending(&place, &rows(0..4), first);
            // With --jobs, the records of a run come when it is over.
            until(at, || place.written("out").contains(at));
            child.kill();
            let torn = place.written("out") + r#"{"ok":tr"#;
            place.work.write("out", torn);
            let ran = appending(&place, &rows(0..4), &["--jobs", "2", "--skip-done", "out"]).finish();
            assert_eq!(ran.status, 0, "{at} {first:?} {ran:?}\n{}", place.written("out"));
            let mut found = answers(&records_of(place.written("out").as_bytes()));
            found.sort();
            assert_eq!((at, found), (at, expected(0..4)), "{}", place.written("out"));
            assert_eq!(sorted(&place, "effects"), each_once(4));
            let again = over_rows(&place, &rows(0..4), &["--skip-done", "out"]);
            assert_eq!((again.status, &again.closing()["data"]["skipped"]), (0, &json!(4)), "{again:?}");
            let other = over_rows(&place, &rows([0, 2]), &["--skip-done", "out"]);
            assert_eq!((other.status, &other.error()["code"]), (6, &json!("E_CONFLICT")), "{other:?}");
            assert_eq!(other.error()["details"]["index"], 1);
        }
    }
}

#[test]
fn resumed_rows_print_finished_and_skip_cancelled_runs() {
    let place = place(2, STEP);
    let ran = appending(&place, &rows(0..2), &["--max-iterations", "1", "--jobs", "2"]).finish();
    assert_eq!(ran.status, 9, "{ran:?}");
    let records = records_of(place.written("out").as_bytes());
    let failed: Vec<&Value> = records.iter().filter(|line| line["type"] == "error").collect();
    let resume = failed[0]["error"]["details"]["resume"].as_str().unwrap();
    place.run(&words_of(resume)).success();
    place.run(&["cancel", failed[1]["error"]["details"]["run_id"].as_str().unwrap()]).success();
    let ran = over_rows(&place, &rows(0..2), &["--skip-done", "out"]);
    assert_eq!((ran.status, answers(&ran.records())), (1, expected(0..1)), "{ran:?}");
    assert_eq!((&ran.first_error()["code"], &ran.first_error()["details"]["index"]), (&json!("E_CONFLICT"), &json!(1)));
    assert_eq!(sorted(&place, "effects"), each_once(2));
}

#[test]
fn output_is_locked_by_one_process() {
    let place = place(2, "cat >>calls; until [ -e go ]; do sleep 0.02; done; echo did");
    for more in [&["--jobs", "2"][..], &["--jobs", "2", "--skip-done", "out"]] {
        let first = appending(&place, &rows(0..2), more);
        place.until_written("calls");
        let second = over_rows(&place, &rows(0..2), &["--skip-done", "out"]);
        assert_eq!((second.status, &second.error()["code"]), (6, &json!("E_CONFLICT")), "{second:?}");
        assert!(second.error()["message"].as_str().unwrap().contains("another process writes this output"));
        assert!(second.of("item").is_empty());
        place.work.write("go", "");
        assert_eq!(first.finish().status, 0);
        for name in ["go", "calls", "out"] {
            std::fs::remove_file(place.work.join(name)).unwrap();
        }
    }
}

#[test]
fn signal_stops_rows_and_names_them() {
    let place = place(2, "cat >>calls; until [ -e go ]; do sleep 0.02; done; echo did");
    let child = appending(&place, &rows(0..2), &["--jobs", "2"]);
    until("two calls", || place.written("calls").matches('n').count() == 2);
    child.signal(Signal::TERM);
    let ended = child.finish();
    assert_eq!(ended.status, 130, "{ended:?}");
    let records = records_of(place.written("out").as_bytes());
    let failed: Vec<&Value> =
        records.iter().filter(|line| line["type"] == "error").map(|line| &line["error"]).collect();
    let about = |error: &Value| (error["code"].clone(), error["details"]["index"].clone());
    assert_eq!(
        failed.iter().map(|error| about(error)).collect::<Vec<_>>(),
        [0, 1].map(|n| (json!("E_INTERRUPTED"), json!(n)))
    );
    // Nobody holds a run any more.
    place.work.write("go", "");
    let ran = appending(&place, &rows(0..2), &["--jobs", "2", "--skip-done", "out"]).finish();
    assert_eq!(ran.status, 0, "{ran:?}\n{}", place.written("out"));
    assert_eq!(answers(&records_of(place.written("out").as_bytes())), expected(0..2));
}

#[test]
fn empty_rows_succeed() {
    let place = place(1, STEP);
    for more in [&[][..], &["--jobs", "2"], &["--skip-done", "new"]] {
        let ran = over_rows(&place, "", more);
        assert_eq!((ran.status, &ran.closing()["data"]["total"]), (0, &json!(0)), "{more:?} {ran:?}");
        assert!(ran.closing()["data"]["usage"].is_null());
    }
}

#[test]
fn rows_share_budget_file() {
    let place = place(4, STEP);
    let spent = || {
        let budget: Value = serde_json::from_str(&place.work.read("budget")).unwrap();
        budget["spent"]["tokens"].as_u64().unwrap()
    };
    let budget = |tokens: &str| {
        over_rows(&place, &rows(0..4), &["--jobs", "2", "--budget-file", "budget", "--budget-tokens", tokens])
    };
    let ran = budget("100000");
    assert_eq!((ran.status, spent()), (0, 40), "{ran:?}");
    let ran = budget("41");
    assert_eq!((ran.status, &ran.error()["code"]), (9, &json!("E_BUDGET_EXHAUSTED")), "{ran:?}");
    assert!(spent() <= 60, "{}", spent());
}
