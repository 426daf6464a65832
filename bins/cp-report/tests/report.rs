//! What is printed for which bundle, and each way to fail.

use cp_testkit::Place;
use serde_json::Value;

use crate::made::{RUN, bundle, child, eventful, id, ledger};

fn page(place: &Place, words: &str) -> String {
    place.sh(&format!("cp-report {words} <bundle")).success().stdout
}

#[test]
fn a_run_has_its_heading_its_turns_in_order_and_its_agent_inside() {
    let place = Place::new();
    ledger(&place, "run.jsonl", &eventful());
    ledger(&place, "child.jsonl", &child());
    bundle(&place, "child.jsonl run.jsonl");
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
        "Turn 1 begins",
        "2 of 4",
        "<del>-two</del><ins>+2</ins>",
        "Refused: blocked",
        "Approved by ada",
        "rm &#39;a b&#39;",
        "model, waiting",
        "model, failed",
        "people, fine",
    ] {
        assert!(page.contains(said), "{said} is not in\n{page}");
    }
    // Each claim leads to its line, and the line back to it.
    let line = |seq| id("run.jsonl", seq);
    let own = |mark: &str, seq| format!("{mark}{}", line(seq));
    for (from, to) in [
        ("<dt>retries</dt><dd>".to_owned(), line(5)),
        ("<dt>refusals</dt><dd>".to_owned(), line(8)),
        ("<strong>Refused: blocked".to_owned(), "sum-refusals".to_owned()),
        (format!("<a id=\"{}\" ", own("c", 14)), line(14)),
        ("<h4>Turn 2 <a class=\"back\" ".to_owned(), own("c", 14)),
        (format!("<a id=\"{}\" ", own("t", 7)), line(7)),
        ("<strong>Result of filesystem".to_owned(), own("t", 7)),
        ("<strong>Call of filesystem".to_owned(), own("r", 6)),
        (format!("<a id=\"{}\" ", own("r", 6)), line(6)),
    ] {
        let (_, rest) = page.split_once(&from).unwrap_or_else(|| panic!("{from} is not in\n{page}"));
        assert!(page.contains(&format!(" id=\"{to}\"")), "{to}");
        assert_eq!(rest.split("href=\"#").nth(1).unwrap().split('"').next(), Some(&*to), "{from}");
    }
    let place_of = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place_of("An agent begins") < place_of("I helped.") && place_of("I helped.") < place_of("It is mended."));
    assert_eq!(page.matches("<section").count(), page.matches("</section>").count());
    assert_eq!(page.matches("I helped.").count(), 2, "shown, and in its line");
}

#[test]
fn an_overview_and_a_batch_begin_with_sums() {
    let place = Place::new();
    ledger(&place, "run.jsonl", &eventful());
    let answer = |code: Value| serde_json::json!({"event": "llm.response", "data": {"model": "m", "code": code, "duration_ms": 70}});
    ledger(&place, "batch.jsonl", &[answer(Value::Null), answer("E_RATE_LIMITED".into()), answer(Value::Null)]);
    bundle(&place, "run.jsonl");
    let overview = page(&place, "--overview");
    for said in ["By day", "By model", "Refusals by rule", "<td>1</td>", "All lines", "data-seq=\"17\""] {
        assert!(overview.contains(said), "{said}\n{overview}");
    }
    bundle(&place, "batch.jsonl");
    let batch = page(&place, "");
    for said in ["<p class=\"kind\">Batch</p>", "Failures by code", "E_RATE_LIMITED", "at most 128 ms"] {
        assert!(batch.contains(said), "{said}\n{batch}");
    }
}

#[test]
fn the_rows_of_a_batch_lead_to_their_answers() {
    let place = Place::new();
    let row = |event: &str, name: &str| serde_json::json!({"event": event, "data": {"model": "m", "attempt": 1, "request_hash": name}});
    let lines =
        [("request", "a"), ("request", "b"), ("request", "b"), ("response", "b"), ("response", "a"), ("response", "c")];
    ledger(&place, "batch.jsonl", &lines.map(|(event, name)| row(&format!("llm.{event}"), name)));
    bundle(&place, "batch.jsonl");
    let page = page(&place, "");
    let line = |seq| id("batch.jsonl", seq);
    let asked_by = |seq| format!("<a id=\"r{0}\" href=\"#{0}\">line {seq}</a>", line(seq));
    let answer = |seq: u64| page.split(&format!(" id=\"{}\" data-group", line(seq))).nth(1).unwrap();
    assert!(answer(4).split("</article>").next().unwrap().contains(&asked_by(2)), "{page}");
    assert!(answer(5).split("</article>").next().unwrap().contains(&asked_by(1)), "{page}");
    // One has no answer, and one answer no question.
    assert_eq!(page.matches("what came of it").count(), 2, "{page}");
    assert_eq!(page.matches("<dt>of</dt>").count(), 2, "{page}");
}

#[test]
fn a_run_of_another_model_program_counts_what_its_messages_say_and_its_agents() {
    let place = Place::new();
    let of =
        |run: &str, event: &str, data: Value| serde_json::json!({"event": event, "run": run, "turn": 1, "data": data});
    let usage = serde_json::json!({"model": "x", "usage": {"input_tokens": 100, "output_tokens": 5, "cost_usd": 0.25}});
    let start = serde_json::json!({"limits": {"max_iterations": 4, "tokens": 1000, "usd": 2, "deadline": 600}});
    let run = |name: &str, start: Value, more: &[Value]| {
        let mut lines =
            vec![of(name, "run_start", start), of(name, "iteration", Value::Null), of(name, "message", usage.clone())];
        lines.extend(more.iter().cloned());
        lines
    };
    ledger(&place, "run.jsonl", &run(RUN, start, &[of(RUN, "agent_start", serde_json::json!({"run_id": "RUN-2"}))]));
    ledger(&place, "agent.jsonl", &run("RUN-2", serde_json::json!({"parent": RUN}), &[]));
    bundle(&place, "run.jsonl agent.jsonl");
    let page = page(&place, "");
    for said in
        ["2 of 4", "210 of 1000", "$0.5000 of $2.00", "3.0 s of 10.0 min", "<dt>answers</dt>", "model, fine, 1.0 s"]
    {
        assert!(page.contains(said), "{said} is not in\n{page}");
    }
}

#[test]
fn a_session_is_a_transcript() {
    let place = Place::new();
    place.sh("S=$(cp-session start --format text); cp-session append --session $S -- why; cp-session append --session $S --role assistant -- because; cp-log bundle --session $S >bundle").success();
    let page = page(&place, "");
    assert!(page.contains("<p class=\"kind\">Session</p>"), "{page}");
    assert!(page.find(">why<") < page.find(">because<") && page.contains(">why<"), "{page}");
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
    assert_eq!(records.last().unwrap()["data"]["total"], 18);
    let refused = records.iter().find(|record| record["data"]["line"]["tone"] == "refused").unwrap();
    assert_eq!(refused["data"]["line"]["event"], "exec.refused");
    // What is drawn, and what leads where, is there too.
    let heading = &records[0]["data"]["heading"];
    let fact = heading["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == "refusals").unwrap();
    assert_eq!(fact["line"], refused["data"]["id"]);
    assert_eq!(
        (&heading["turns"]["rows"][1][3], &heading["turns"]["links"][1]),
        (&"$0.5000".into(), &id("run.jsonl", 14).into())
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
        assert!(page.contains("[U+202E]") && page.contains('\u{2400}') && !page.contains('\u{0}'));
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
