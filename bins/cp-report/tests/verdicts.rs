//! What a page concludes from its lines: how they are rendered, approvals against what ran, effects, and edited words.

use cp_testkit::Place;
use serde_json::{Value, json};

use crate::browser::{opened, signed};
use crate::made::{RUN, bundle, id, ledger};

fn page_of(place: &Place, entries: &[Value]) -> std::path::PathBuf {
    ledger(place, "run.jsonl", entries);
    bundle(place, "run.jsonl");
    place.sh("cp-report bundle >page.html").success();
    place.work.join("page.html")
}

/// The script and `--format json` have one table of events, and each its own code that reads it.
#[test]
fn rendered_lines_equal_the_records_of_the_same_lines() {
    let place = Place::new();
    let of = |event: &str, rest: Value| {
        let mut entry = json!({"event": event, "run": RUN, "turn": 2, "role": "tool"});
        entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        entry
    };
    let values = [
        json!({"content": "text", "message": "why", "data": {"id": "x", "duration_ms": 125_000, "usage": {"cost_usd": 0.25, "input_tokens": 7}}}),
        json!({"content": [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}, {"type": "odd", "n": 1.0},
            {"type": "tool_use", "name": "n", "input": {"patch": "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b"}}, {"role": "user", "content": "c"}]}),
        json!({"data": {"argv": ["rm", "a b"], "line": "ls | sort", "return_code": 3, "part": 1, "stdout": {"bytes": 9}, "limits": {"deadline": 7}}}),
        json!({"data": {"name": "n", "input": {"operation": "edit_file", "old": "1\n2\n3", "new": "1\n2b\n3\n4", "n": 12_345_678_901_234_567_890_u64}}}),
        json!({"content": {"blob": format!("sha256:{}", "0".repeat(64))}, "data": {"decision": "deny", "rule": "r", "code": "E_X", "asked": ["x"]}}),
        json!({"data": {"approval": {"action": "run", "shown": {"diff": "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n"}}, "by": "ada", "status": "failed"}}),
        json!({"message": "m".repeat(5000), "data": {"exit": 1, "is_error": true, "files": [{"path": "p"}], "what": {"call": "c"}}}),
    ];
    let events = [
        "entry",
        "run_start",
        "run_end",
        "run_paused",
        "llm.request",
        "llm.response",
        "message",
        "tool_call",
        "tool_result",
        "exec.intent",
        "exec.step",
        "exec.part",
        "exec.result",
        "exec.refused",
        "exec.changes",
        "exec.operation",
        "approval.asked",
        "approval.granted",
        "approval.denied",
        "command",
        "error",
        "log",
        "host.intent",
        "mcp.call",
        "unheard.of",
    ];
    let entries: Vec<Value> =
        events.iter().flat_map(|event| values.iter().map(|value| of(event, value.clone()))).collect();
    let page = page_of(&place, &entries);
    // What is seen of a line, and the same of its record.
    let seen = "[...document.querySelectorAll('.entry')].map((e) => [e.id, e.dataset.group, e.querySelector('strong').textContent, \
        ['refused', 'failed'].find((tone) => e.classList.contains(tone)) ?? '', \
        [...e.querySelectorAll('.facts div')].filter((f) => !f.querySelector('a')).map((f) => f.querySelector('dt').textContent + '=' + f.querySelector('dd').textContent), \
        [...e.querySelectorAll('.said, pre, .difference')].map((p) => (p.matches('.difference') ? [...p.children].map((row) => row.textContent).join('\\n') : p.textContent))])";
    let Some(seen) = opened(&page, &json!({"evaluate": [seen]})) else { return };
    let rows = |part: &Value| match part["form"].as_str() {
        Some("difference") => part["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| format!("{}{}", row[0].as_str().unwrap(), row[1].as_str().unwrap()))
            .collect::<Vec<_>>()
            .join("\n"),
        _ => part["text"].as_str().unwrap().to_owned(),
    };
    let list = |value: &Value| value.as_array().unwrap().clone();
    let records = place.sh("cp-report --format json bundle").success().records();
    let lines = records.iter().filter(|record| record["data"]["line"].is_object()).map(|record| {
        let line = &record["data"]["line"];
        let facts: Vec<String> = list(&line["facts"])
            .iter()
            .map(|fact| format!("{}={}", fact["name"].as_str().unwrap(), fact["value"].as_str().unwrap()))
            .collect();
        let parts: Vec<String> = list(&line["parts"]).iter().map(rows).collect();
        json!([record["data"]["id"], line["group"], line["title"], line["tone"], facts, parts])
    });
    let shown = list(&seen["values"][0]);
    assert_eq!(shown.len(), entries.len() + 1);
    for (shown, line) in shown.iter().zip(lines) {
        assert_eq!(shown, &line);
    }
}

const SHOWN: &str = "[...document.querySelectorAll('.card')].map((e) => [[...e.classList].at(-1), e.querySelector('.outcome').textContent])";

/// A run in which a command was approved and ran.
fn approved() -> Vec<Value> {
    let of = |event: &str, data: Value| json!({"event": event, "run": RUN, "data": data});
    let shown = json!({"argv": ["rm", "a b"], "why": "it removes"});
    let binds = json!({"program": "sha256:1", "target": null});
    vec![
        of("tool_call", json!({"id": "c", "name": "shell", "input": {"argv": ["rm", "a b"]}})),
        of("approval.asked", json!({"id": "A", "call": "c", "approval": {"id": "A", "shown": shown, "binds": binds}})),
        of("approval.granted", json!({"id": "A", "call": "c", "by": "ada", "how": "terminal"})),
        of("approval.spent", json!({"id": "A", "call": "c", "by": "ada"})),
        of(
            "exec.intent",
            json!({"argv": ["rm", "a b"], "call": "c", "exe": {"path": "/bin/rm", "sha256": "sha256:1"}}),
        ),
        of("exec.result", json!({"intent": 5, "return_code": 0})),
    ]
}

/// A change of the entries of a run.
type Change = Box<dyn Fn(&mut Vec<Value>)>;

#[test]
fn approval_card_compares_what_was_shown_with_what_ran() {
    let set = |at: usize, path: &'static str, to: Value| {
        move |entries: &mut Vec<Value>| *entries[at]["data"].pointer_mut(path).unwrap() = to.clone()
    };
    let take = |at: usize| move |entries: &mut Vec<Value>| drop(entries.remove(at));
    let cases: Vec<(Change, &str, &str)> = vec![
        (Box::new(|_| ()), "fine", "Ran as shown. The same: the command, the program."),
        (Box::new(set(1, "/approval/shown/argv/1", "a c".into())), "failed", "Not the same as shown: the command."),
        (Box::new(set(4, "/argv/1", "a c".into())), "failed", "Not the same as shown: the command."),
        (Box::new(set(4, "/exe/sha256", "sha256:2".into())), "failed", "Not the same as shown: the program."),
        (Box::new(take(2)), "failed", "Used, although no line of this page grants it."),
        (Box::new(take(3)), "failed", "It ran, and no line uses the approval."),
        (Box::new(take(1)), "waiting", "Used; its request is not in this page, so nothing can be compared."),
        (Box::new(|entries| entries.truncate(3)), "waiting", "Approved; it was not used."),
        (Box::new(|entries| entries.truncate(2)), "waiting", "Waiting for an answer."),
        (
            Box::new(|entries| {
                entries.truncate(3);
                entries[2]["event"] = "approval.denied".into();
            }),
            "refused",
            "Denied; nothing ran.",
        ),
        (
            Box::new(|entries| entries[2]["event"] = "approval.denied".into()),
            "failed",
            "Denied, and it ran all the same.",
        ),
    ];
    for (change, tone, outcome) in cases {
        let (place, mut entries) = (Place::new(), approved());
        change(&mut entries);
        let page = page_of(&place, &entries);
        let Some(seen) = opened(&page, &json!({"evaluate": [SHOWN]})) else { return };
        assert_eq!(seen["values"][0], json!([[tone, outcome]]));
    }
}

/// A run of the real programs: a file is overwritten, one is edited, and a command is refused.
#[test]
fn run_shows_its_approvals_and_the_difference_of_each_edit() {
    let place = Place::new();
    place.policy("[paths]\nread = [\".\", \"../beside\"]\nwrite = [\".\", \"../beside\"]\n");
    // Outside of the working directory, so that a person is asked.
    place.root.write("beside/f", "one\ntwo\n");
    place.work.write("g", "a\nb\n");
    let file = |rest: &str| format!(r#"{{"tool_calls":[{{"name":"filesystem","input":{{{rest}}}}}]}}"#);
    let script = [
        file(r#""operation":"write_file","path":"../beside/f","content":"one\n2\n","mode":"overwrite""#),
        file(r#""operation":"edit_file","path":"g","old":"b","new":"c""#),
        r#"{"tool_calls":[{"name":"shell","input":{"argv":["rm","-rf","/"]}}]}"#.to_owned(),
        r#"{"content":"done"}"#.to_owned(),
    ];
    place.work.write("script", script.join("\n"));
    let steps = "export CP_BACKEND=stub CP_STUB_SCRIPT=$PWD/script; cp-toolloop x >out; \
        R=$(tail -n 1 out | jq -r .error.details.run_id) C=$(tail -n 1 out | jq -r .error.details.call.id); \
        cp-toolloop resume $R --approve $C >done; cp-log bundle --run $R | cp-report >page.html";
    place.sh(steps).success();
    let rows = "[...document.querySelectorAll('.effects tbody tr')].map((row) => [...row.children].slice(0, 3).map((cell) => cell.innerText.split('\\n')[0].replace(/.*\\//, '')))";
    let differences = "document.querySelectorAll('.effects details').forEach((e) => { e.open = true; }); [...document.querySelectorAll('.effects .difference')].map((e) => e.innerText)";
    let strip =
        "[...document.querySelectorAll('#strip div')].slice(2, 5).map((e) => e.querySelector('dd').textContent)";
    let asked = json!({"evaluate": [SHOWN, rows, differences, strip]});
    let Some(seen) = opened(&place.work.join("page.html"), &asked) else { return };
    let same = "Ran as shown. The same: the file, the file as it was, what was written.";
    assert_eq!(seen["values"][0], json!([["fine", same]]), "{seen}");
    let rows = seen["values"][1].to_string();
    assert!(rows.contains("an approval") && rows.contains("\"refused\",\"not_allowed\""), "{rows}");
    assert_eq!(seen["values"][2], json!([" one\n-two\n+2", " a\n-b\n+c"]), "{seen}");
    assert_eq!(seen["values"][3], json!(["2", "1, as shown", "1"]), "{seen}");

    // The same page, in which the words that were shown are other ones.
    let text = place.work.read("page.html");
    assert!(text.contains(r"-two\\n+2\\n"), "{text}");
    place.work.write("page.html", text.replacen(r"-two\\n+2\\n", r"-two\\n+3\\n", 1));
    let seen = opened(&place.work.join("page.html"), &json!({"evaluate": [SHOWN]})).unwrap();
    assert!(
        seen["verdict"].as_str().unwrap().starts_with("It does not hold")
            && !seen["proved"].as_str().unwrap().contains('\u{2713}'),
        "{seen}"
    );
    assert!(seen["values"][0].to_string().contains("Not the same as shown: what was written."), "{seen}");
}

#[test]
fn edited_words_of_the_summary_are_found() {
    let place = Place::new();
    let page = signed(&place);
    let text = std::fs::read_to_string(&page).unwrap();
    for (from, to) in
        [("<dd>completed</dd>", "<dd>failed</dd>"), ("Mend it</p>", "Mend all</p>"), ("\"held\":", "\"held\":9")]
    {
        assert!(text.contains(from), "{from}");
        std::fs::write(&page, text.replacen(from, to, 1)).unwrap();
        let Some(seen) = opened(&page, &json!({})) else { return };
        assert!(seen["faults"].as_str().unwrap().contains("the words of the summary were changed"), "{from}: {seen}");
    }
}

#[test]
fn requests_lead_to_their_answers() {
    let place = Place::new();
    let row = |event: &str, name: &str| json!({"event": format!("llm.{event}"), "data": {"model": "m", "attempt": 1, "request_hash": name}});
    let lines =
        [("request", "a"), ("request", "b"), ("request", "b"), ("response", "b"), ("response", "a"), ("response", "c")];
    let page = page_of(&place, &lines.map(|(event, name)| row(event, name)));
    let pairs = "[...document.querySelectorAll('.entry')].map((e) => [...e.querySelectorAll('.facts a')].map((a) => a.hash).join())";
    let Some(seen) = opened(&page, &json!({"evaluate": [pairs]})) else { return };
    let line = |seq| format!("#{}", id("run.jsonl", seq));
    assert_eq!(seen["values"][0], json!(["", line(5), line(4), "", line(2), line(1), ""]), "{seen}");
}
