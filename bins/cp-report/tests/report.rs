//! What is printed for which bundle, and each way to fail.

use cp_testkit::Place;
use serde_json::Value;

use crate::made::{RUN, bundle, eventful, id, ledger};

fn page(place: &Place, words: &str) -> String {
    place.sh(&format!("cp-report {words} <bundle")).success().stdout
}

#[test]
fn a_run_has_its_heading_and_its_turns_in_order() {
    let place = Place::new();
    ledger(&place, "run.jsonl", &eventful());
    bundle(&place, "run.jsonl");
    let page = page(&place, "");
    for said in [
        "<p class=\"kind\">Run</p>",
        "<h1>RUN-20261101-00000001</h1>",
        "Mend it",
        "<dt>outcome</dt><dd>completed</dd>",
        "<dt>cost</dt><dd>$1.00</dd>",
        "turn 2: 100 tokens read, 20 written",
        "turn 2: $0.5000",
        "Tokens and cost",
        "2 of 4",
        "model, waiting",
        "model, failed",
        "people, waiting",
    ] {
        assert!(page.contains(said), "{said} is not in\n{page}");
    }
    // Each claim leads to its line, which the script renders.
    let line = |seq| id("run.jsonl", seq);
    for (from, to) in [
        ("<dt>retries</dt><dd>".to_owned(), line(5)),
        ("<dt>refusals</dt><dd>".to_owned(), line(8)),
        (format!("<a id=\"c{}\" ", line(13)), line(13)),
        (format!("<a id=\"t{}\" ", line(7)), line(7)),
    ] {
        let (_, rest) = page.split_once(&from).unwrap_or_else(|| panic!("{from} is not in\n{page}"));
        assert_eq!(rest.split("href=\"#").nth(1).unwrap().split('"').next(), Some(&*to), "{from}");
    }
    assert_eq!(page.matches("<section").count(), page.matches("</section>").count());
    assert_eq!(page.matches("It is mended.").count(), 1, "in its line, from which it is rendered");
    let bundle = place.work.read("bundle");
    let unescaped = page.replace("&lt;", "<").replace("&amp;", "&");
    assert!(unescaped.contains(&bundle), "the page has the bundle as it is");
}

#[test]
fn an_overview_and_a_batch_begin_with_sums() {
    let place = Place::new();
    ledger(&place, "run.jsonl", &eventful());
    let answer = |code: Value| serde_json::json!({"event": "llm.response", "data": {"model": "m", "code": code, "duration_ms": 70}});
    ledger(&place, "batch.jsonl", &[answer(Value::Null), answer("E_RATE_LIMITED".into()), answer(Value::Null)]);
    bundle(&place, "run.jsonl");
    let overview = page(&place, "--overview");
    for said in ["By day", "By model", "Refusals by rule", "<td>1</td>", "All lines", "Mend it"] {
        assert!(overview.contains(said), "{said}\n{overview}");
    }
    bundle(&place, "batch.jsonl");
    let batch = page(&place, "");
    for said in ["<p class=\"kind\">Batch</p>", "Failures by code", "E_RATE_LIMITED", "at most 128 ms"] {
        assert!(batch.contains(said), "{said}\n{batch}");
    }
}

#[test]
fn a_run_of_another_model_program_counts_what_its_messages_say() {
    let place = Place::new();
    let of = |event: &str, data: Value| serde_json::json!({"event": event, "run": RUN, "turn": 1, "data": data});
    let usage = serde_json::json!({"model": "x", "usage": {"input_tokens": 100, "output_tokens": 5, "cost_usd": 0.25}});
    let start = serde_json::json!({"limits": {"max_iterations": 4, "tokens": 1000, "usd": 2, "deadline": 600}});
    let turn = [of("iteration", Value::Null), of("message", usage)];
    ledger(&place, "run.jsonl", &[&[of("run_start", start)], &turn[..], &turn[..]].concat());
    bundle(&place, "run.jsonl");
    let page = page(&place, "");
    for said in
        ["2 of 4", "210 of 1000", "$0.5000 of $2.00", "4.0 s of 10.0 min", "<dt>answers</dt>", "model, fine, 1.0 s"]
    {
        assert!(page.contains(said), "{said} is not in\n{page}");
    }
}

#[test]
fn the_model_of_the_page_comes_as_records() {
    let place = Place::new();
    ledger(&place, "run.jsonl", &eventful());
    bundle(&place, "run.jsonl");
    let records = place.sh("cp-report --format json bundle").success().records();
    assert_eq!(records[0]["data"]["heading"]["kind"], "Run");
    assert_eq!(records[0]["data"]["overview"]["runs"][0]["id"], RUN);
    assert_eq!(records[1]["data"]["ledger"]["file"], "run.jsonl");
    assert_eq!(records.last().unwrap()["data"]["total"], 17);
    let refused = records.iter().find(|record| record["data"]["line"]["tone"] == "refused").unwrap();
    assert_eq!(refused["data"]["line"]["event"], "exec.refused");
    // What is drawn, and what leads where, is there too.
    let heading = &records[0]["data"]["heading"];
    let fact = heading["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == "refusals").unwrap();
    assert_eq!(fact["line"], refused["data"]["id"]);
    assert_eq!(
        (&heading["turns"]["rows"][1][3], &heading["turns"]["links"][1]),
        (&"$0.5000".into(), &id("run.jsonl", 13).into())
    );
    let overview = &records[0]["data"]["overview"];
    assert_eq!((&overview["turns"][1]["output_tokens"], &overview["lanes"][0][1]["tone"]), (&20.into(), &3.into()));
    let result = records.iter().find(|record| record["data"]["line"]["event"] == "tool_result").unwrap();
    assert_eq!(result["data"]["answers"], 6);
}

#[test]
fn incomplete_bundle_is_refused_before_output() {
    let place = Place::new();
    ledger(&place, "run.jsonl", &eventful());
    bundle(&place, "run.jsonl");
    for (made, status, code) in [
        ("printf ''", 2, "E_VALIDATION"),
        ("echo hello", 2, "E_VALIDATION"),
        ("sed 1d bundle", 2, "E_VALIDATION"),
        ("sed '2s/bundle_ledger/bundle_other/' bundle", 2, "E_VALIDATION"),
        ("sed '1s/\"version\":1/\"version\":2/' bundle", 2, "E_VALIDATION"),
        ("cat bundle bundle", 2, "E_VALIDATION"),
        ("sed '$d' bundle", 1, "E_IO"),
        ("cp-log bundle --run RUN-none", 3, "E_NOT_FOUND"),
    ] {
        let ran = place.sh(&format!("{made} | cp-report"));
        ran.failed(status, code);
        assert!(!ran.stdout.contains("<html"), "{made}");
    }
    place.sh("cp-report missing").failed(3, "E_NOT_FOUND");
    place.sh("cp-report --trust bundle bundle").failed(4, "E_CONFIG");
    let full = place.sh("cp-report bundle >/dev/full");
    assert!(full.status == 1 && full.stderr.contains("cp-report: "), "{full:?}");
    place.sh("cp-report bundle | head -c 9 >/dev/null").success();
}

/// The texts of a hostile ledger come back as text, in the page and in its data.
#[test]
fn page_escapes_markup_of_lines() {
    let place = Place::new();
    let hostile = "</script></style></title><script>alert(1)</script><img src=x onerror=alert(1)>&lt;\"'\u{0}\u{202e}";
    let object = serde_json::json!({"event": hostile, "agent": hostile, "role": hostile, "message": hostile, "content": hostile,
        "data": {hostile: hostile, "name": hostile}});
    let mut entries = vec![object];
    for mut entry in eventful() {
        spoil(&mut entry, hostile);
        entries.push(entry);
    }
    ledger(&place, "run.jsonl", &entries);
    bundle(&place, "run.jsonl");
    for words in ["", "--overview"] {
        let page = page(&place, words);
        assert!(!page.contains("<img") && !page.contains("alert(1)</script>"), "{page}");
        let own = page.matches("<script>").count();
        assert_eq!((own, page.matches("</script>").count()), (1, page.matches("<script").count()));
        assert!(page.contains("[U+202E]") && !page.contains('\u{0}'));
    }
}

/// Puts a text in the place of every text but those that say what kind of line it is.
fn spoil(value: &mut Value, with: &str) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if !["event", "run", "operation"].contains(&name.as_str()) {
                    spoil(value, with);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| spoil(item, with)),
        Value::String(text) => with.clone_into(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
