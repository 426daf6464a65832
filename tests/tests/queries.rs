//! What every query has in common, from what `reference` lists: a new query is covered by being listed.

use cp_testkit::{Outcome, Place};
use cp_tests::{Verb, check_contract, verbs};
use serde_json::{Value, json};

use crate::contract::with_silent_prelude;

/// The example of a query, its last command with `--fields`.
fn with_fields(query: Verb, fields: &str) -> Outcome {
    let words = query.words();
    let to_file = |example: &str| example.rsplit(query.program).next().is_some_and(|last| last.contains('>'));
    let is_plain = |example: &&str| !example.contains("--fields") && !to_file(example);
    let script = with_silent_prelude(query.texts("examples").into_iter().find(is_plain).unwrap());
    let is_outside = |at: &usize| script[..*at].matches("$(").count() <= script[..*at].matches(')').count();
    let at = script.match_indices(&words).map(|(at, _)| at + words.len()).filter(is_outside).last();
    let (before, after) = script.split_at(at.unwrap_or_else(|| panic!("{script}")));
    Place::new().sh(&format!("{before} --fields {fields}{after}"))
}

/// The names of the members that can be asked for, and whether they are those of items of a page.
fn known(schema: &Value) -> (Vec<String>, bool) {
    let members = &schema["properties"];
    let of_items = members["items"].is_object() && members["has_more"].is_object();
    let mut object = if of_items { &members["items"]["items"] } else { schema };
    if let Some(place) = object["$ref"].as_str() {
        object = schema.pointer(place.trim_start_matches('#')).unwrap();
    }
    (object["properties"].as_object().into_iter().flat_map(|names| names.keys().cloned()).collect(), of_items)
}

#[test]
fn query_prints_only_fields_that_were_asked_for_and_refuses_one_that_it_cannot_have() {
    let (mut seen, mut queries) = (0, 0);
    for query in verbs().filter(|verb| verb.entry["type"] == "query") {
        let what = query.words();
        assert!(query.has("--fields"), "{what} has no --fields");
        let (known, of_items) = known(query.schema());
        let asked = known.first().unwrap_or_else(|| panic!("{what}: the schema has no members"));
        let ran = with_fields(query, asked).success();
        check_contract(&ran);
        for line in ran.records().iter().filter(|line| line["type"] != "summary") {
            let data = &line["data"];
            let objects = if of_items { data["items"].as_array().unwrap() } else { std::slice::from_ref(data) };
            for object in objects {
                let names = cp_tests::keys(object);
                let is_asked = |name: &&str| *name == asked || *name == "_untrusted" || *name == "index";
                assert!(names.iter().all(is_asked), "{what}: {names:?}");
                seen += usize::from(names.contains(asked.as_str()));
            }
        }
        let refused = with_fields(query, "no_such_field");
        check_contract(&refused);
        let error = refused.failed(2, "E_USAGE");
        assert!(error["details"]["known"].as_array().is_some_and(|known| !known.is_empty()), "{what}: {error}");
        queries += 1;
    }
    assert!(seen >= 45 && queries >= 50, "only {seen} of {queries} queries showed the member");
}

#[test]
fn today_begins_at_the_first_moment_of_the_local_day() {
    let place = Place::new();
    // Beirut sets its clock at midnight on to 01:00, and Havana at 01:00 back to midnight.
    for (zone, before, first) in [
        ("America/New_York", "2025-11-03T04:59:59Z", "2025-11-03T05:00:00Z"),
        ("Asia/Beirut", "2025-03-29T21:59:59Z", "2025-03-29T22:00:00Z"),
        ("America/Havana", "2025-11-02T03:59:59Z", "2025-11-02T04:00:00Z"),
    ] {
        let line = format!(
            "rm -f L.jsonl; for now in {before} {first}; do CP_NOW=$now cp-log append -f L.jsonl hi >/dev/null; done
            CP_NOW={first} TZ={zone} cp-log query L.jsonl --since today | tail -n 1 | jq .data.count"
        );
        assert_eq!(place.sh(&line).success().stdout, "1\n", "{zone}");
    }
}

#[test]
fn list_has_newest_first_and_times_in_seconds() {
    let place = Place::new();
    place.policy(
        "[exec]\nallowed_commands = [\"touch\"]\n[[exec.rule]]\ncommand = \"touch\"\ndecision = \"confirm\"\n[paths]\nwrite = [\".\"]\n",
    );
    assert_eq!(place.sh("cp-exec approve --format text").success().stdout, "no approval is pending\n");
    for name in ["one", "two"] {
        let call = json!({"tool_calls": [{"name": "shell", "input": {"argv": ["touch", name]}}]});
        let script = place.root.write(name, call.to_string());
        place.sh("cp-session start").success();
        let script = script.display();
        assert_eq!(place.sh(&format!("cp-toolloop --backend stub --stub-script {script} -- go")).status, 9);
        place.sh(&format!("echo {name} | cp-llm batch submit --backend stub")).success();
        // The time of an approval is in seconds.
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    for (list, time) in [
        ("cp-session list", "updated_at"),
        ("cp-toolloop runs", "started_at"),
        ("cp-exec approve", "asked_at"),
        ("cp-llm batch status", "created_at"),
    ] {
        let ran = place.sh(list).success();
        let page = ran.closing()["data"]["items"].as_array().cloned().unwrap_or_else(|| ran.of("item"));
        let times: Vec<&str> = page.iter().map(|item| item[time].as_str().unwrap()).collect();
        assert!(times.len() == 2 && times[0] > times[1], "{list}: {ran:?}");
        let text = place.sh(&format!("{list} --format text")).success().stdout;
        assert!(text.lines().count() == 2, "{text}");
        assert!(text.split_whitespace().all(|word| !word.ends_with('Z') || !word.contains('.')), "{text}");
    }
}
